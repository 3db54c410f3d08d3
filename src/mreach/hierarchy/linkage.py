"""The spanning tree as a linkage matrix of scipy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mreach import _core
from mreach.records import EDGE_DTYPE


def linkage(edges: NDArray[np.void]) -> NDArray[np.float64]:
    """Return the single linkage tree: edges merged one by one, in their order.

    Parameters
    ----------
    edges : EDGE_DTYPE array of shape (n_rows - 1,)
        Sorted by ``(weight, source, target)``.

    Returns
    -------
    float64 array of shape (n_rows - 1, 4)
        The two clusters merged (lower number first), their distance and the size of the new one, as
        ``scipy.cluster.hierarchy.linkage`` gives it. Equal distances are merged in the order of the edges.
    """
    edges = np.ascontiguousarray(edges, EDGE_DTYPE)
    merges = np.empty((len(edges), 4))
    _core.linkage(edges.view(np.int64), merges)
    return merges

"""The spanning tree as a linkage matrix of scipy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mreach import _core


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
    left, right, size = _core.linkage(
        np.ascontiguousarray(edges["source"]), np.ascontiguousarray(edges["target"])
    )
    return np.column_stack((left, right, edges["weight"], size))

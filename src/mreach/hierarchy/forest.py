"""The spanning forest of a graph that is given by its edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach import _core
from mreach.records import EDGE_DTYPE


def spanning_forest(
    n_rows: int, source: NDArray[Any], target: NDArray[Any], weight: NDArray[np.float64]
) -> NDArray[np.void]:
    """Return the minimum spanning forest of a graph (Kruskal 1956).

    It is the unique one under the order (weight, lower row, higher row).

    Parameters
    ----------
    n_rows : int
        Rows are numbered from 0.
    source, target : int arrays of shape (n_edges,)
        Ends of each edge, in any order. An edge may occur more than once; one from a row to itself is left
        out.
    weight : float64 array of shape (n_edges,)
        At least 0, possibly infinite.

    Returns
    -------
    EDGE_DTYPE array
        ``n_rows`` less the number of connected parts, sorted by ``(weight, source, target)``.
    """
    edges: NDArray[np.int64] = _core.spanning_forest(
        n_rows,
        np.ascontiguousarray(source, np.int64),
        np.ascontiguousarray(target, np.int64),
        np.ascontiguousarray(weight, np.float64),
    )
    return edges.view(EDGE_DTYPE)

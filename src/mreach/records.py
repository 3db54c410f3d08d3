"""Records that the stages of a fit hand each other.

Every stage reads and writes plain NumPy arrays with one of these dtypes, so that any stage can be looked at,
stored, or replaced by itself.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CONDENSED_DTYPE", "EDGE_DTYPE", "Cut"]

EDGE_DTYPE = np.dtype([("source", np.int64), ("target", np.int64), ("weight", np.float64)])
"""An edge of the minimum spanning tree: ``source < target`` are row numbers, ``weight`` is the mutual
reachability distance between the two rows (in the unit of the data, never squared)."""

CONDENSED_DTYPE = np.dtype(
    [("parent", np.int64), ("child", np.int64), ("lambda_val", np.float64), ("child_size", np.int64)]
)
"""A record of the condensed tree: ``child`` leaves the cluster ``parent`` at density ``lambda_val`` (one over
a distance). Children below ``n`` are points (``child_size`` 1); ``n`` is the root, higher numbers are
clusters. There is one record for each point and one for each cluster other than the root, sorted by
``(parent, lambda_val, child)``."""


class Cut(NamedTuple):
    """Flat clusters, and the condensed tree that they were selected from.

    Attributes
    ----------
    labels : int64 array of shape (n,)
        Cluster of each point, -1 for noise.
    probabilities : float64 array of shape (n,)
        Strength with which each point belongs to its cluster, in [0, 1]; 0 for noise.
    condensed_tree : CONDENSED_DTYPE array
        The condensed tree, sorted by ``(parent, lambda_val, child)``.
    stabilities : float64 array of shape (n_clusters_in_tree,)
        Stability of every cluster of the condensed tree, at index ``cluster - n``. May be infinite.
    selected : int64 array of shape (n_labels,)
        Cluster of the condensed tree behind each label.
    persistence : float64 array of shape (n_labels,)
        Persistence of each label's cluster, in [0, 1].
    birth_heights : float64 array of shape (n_clusters_in_tree,)
        Height (a distance) at which every cluster of the condensed tree is born, at index ``cluster - n``:
        where its parent breaks up. Infinite for the root. One over it is the lambda of the cluster's record,
        but for rounding, and for heights so small that their lambda is capped.
    """

    labels: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    condensed_tree: NDArray[np.void]
    stabilities: NDArray[np.float64]
    selected: NDArray[np.int64]
    persistence: NDArray[np.float64]
    birth_heights: NDArray[np.float64]


class NearestRows(NamedTuple):
    """What a search of fitted rows gives for new rows.

    Attributes
    ----------
    core_distances : float64 array of shape (m,)
        Of the new rows.
    rows : int64 array of shape (m,)
        Fitted row of least mutual reachability distance; among equals the one at the least distance, then the
        lexicographically smallest row, then the lowest number. -1 where no row may be the answer.
    weights : float64 array of shape (m,)
        That mutual reachability distance; infinite where there is no row.
    """

    core_distances: NDArray[np.float64]
    rows: NDArray[np.int64]
    weights: NDArray[np.float64]

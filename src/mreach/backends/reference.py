"""The definition of the result, written to be read: NumPy, the whole distance matrix, plain Python loops.

Every other backend has to give exactly what this module gives, bit for bit. It takes ``16 n**2`` bytes and
``O(n**2 d)`` time. What comes after the tree is in ``reference_hierarchy``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.host_rows import hold_rows
from mreach.backends.reference_hierarchy import clusters_by_epsilon, cut, cut_at_distance, linkage
from mreach.records import EDGE_DTYPE

__all__ = [
    "NAME",
    "ReferencePoints",
    "clusters_by_epsilon",
    "cut",
    "cut_at_distance",
    "hold_rows",
    "linkage",
    "open_points",
]

NAME = "reference"

ROWS_AT_ONCE = 64
"""Rows of the distance matrix that are filled together: few enough to stay in the processor's cache."""


class ReferencePoints:
    """Points with all their pairwise distances.

    Parameters
    ----------
    X : float32 or float64 array of shape (n, d)
        Finite rows.
    """

    def __init__(self, X: NDArray[Any]) -> None:
        self.distances = distance_matrix(X.astype(np.float64))
        self._core_distances: NDArray[np.float64] | None = None

    def core_distances(self, min_samples: int) -> NDArray[np.float64]:
        """Distance from each point to its ``min_samples``-th nearest, itself counted first.

        Parameters
        ----------
        min_samples : int
            From 1 to n.

        Returns
        -------
        float64 array of shape (n,), in the unit of the data.
        """
        # The point's own distance, 0, is in its row and never above another: it counts first.
        nearest = np.partition(self.distances, min_samples - 1, axis=1)
        self._core_distances = nearest[:, min_samples - 1].copy()
        return self._core_distances.copy()

    def minimum_spanning_tree(self, alpha: float) -> NDArray[np.void]:
        """Prim's algorithm on ``max(core(a), core(b), d(a, b) / alpha)``.

        The tree is the unique one under the total order (weight, lower row, higher row).
        ``core_distances`` must have been called: its last result is used.

        Parameters
        ----------
        alpha : float
            Positive divisor of the distances.

        Returns
        -------
        EDGE_DTYPE array of shape (n - 1,), sorted by (weight, source, target).
        """
        core = self._core_distances
        if core is None:
            raise RuntimeError(
                "call core_distances before minimum_spanning_tree: the weights are made of them"
            )
        n = len(core)
        # The best edge from each row outside the tree to any row inside it.
        weight = np.full(n, np.inf)
        lower = np.full(n, n)
        higher = np.full(n, n)
        outside = np.ones(n, dtype=bool)
        rows = np.arange(n)
        edges = np.empty(max(n - 1, 0), dtype=EDGE_DTYPE)
        newest = 0
        for edge in edges:
            outside[newest] = False
            new_weight = np.maximum(np.maximum(core[newest], core), self.distances[newest] / alpha)
            new_lower = np.minimum(newest, rows)
            new_higher = np.maximum(newest, rows)
            better = (new_weight < weight) | (
                (new_weight == weight)
                & ((new_lower < lower) | ((new_lower == lower) & (new_higher < higher)))
            )
            weight[better] = new_weight[better]
            lower[better] = new_lower[better]
            higher[better] = new_higher[better]

            lightest = np.flatnonzero(outside & (weight == weight[outside].min()))
            newest = int(lightest[np.lexsort((higher[lightest], lower[lightest]))[0]])
            edge["source"], edge["target"], edge["weight"] = lower[newest], higher[newest], weight[newest]
        return edges[np.lexsort((edges["target"], edges["source"], edges["weight"]))]


def open_points(X: NDArray[Any], *, n_threads: int = 1, progress: Any = None) -> ReferencePoints:
    """Compute all pairwise distances between the rows of ``X`` (finite float32 or float64, shape (n, d)).

    ``n_threads`` and ``progress`` are accepted as every backend accepts them; nothing here uses them.
    """
    return ReferencePoints(X)


def distance_matrix(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Euclidean distances in difference form, features in order, each operation rounded once.

    Parameters
    ----------
    X : float64 array of shape (n, d)

    Returns
    -------
    float64 array of shape (n, n)
    """
    n, n_features = X.shape
    columns = np.ascontiguousarray(X.T)
    squared_distances = np.zeros((n, n))
    for start in range(0, n, ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        for feature in range(n_features):
            difference = X[rows, feature, np.newaxis] - columns[feature]
            squared_distances[rows] += difference * difference
    return np.sqrt(squared_distances, out=squared_distances)

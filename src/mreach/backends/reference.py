"""The definition of the result, written to be read: NumPy, the whole distance matrix, plain Python loops.

Every other backend has to give exactly what this module gives, bit for bit. It takes ``16 n**2`` bytes and
``O(n**2 d)`` time. What comes after the tree is in ``reference_hierarchy``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.host_rows import hold_rows
from mreach.backends.reference_cuts import clusters_by_epsilon, cut_at_distance
from mreach.backends.reference_hierarchy import cut, linkage
from mreach.backends.reference_metrics import matrix_of, prepare_rows
from mreach.metrics import Metric
from mreach.records import EDGE_DTYPE, NearestRows

__all__ = [
    "NAME",
    "ReferencePoints",
    "clusters_by_epsilon",
    "cut",
    "cut_at_distance",
    "hold_rows",
    "linkage",
    "nearest_rows",
    "open_pairwise",
    "open_points",
    "prepare_rows",
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
    halved_square : bool
        Whether the distance is half the squared Euclidean one, as the metric "cosine" has it, in place of the
        Euclidean one.
    """

    def __init__(self, X: NDArray[Any], halved_square: bool = False) -> None:
        self.distances = distances_between(X, X, halved_square)
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
            with np.errstate(over="ignore"):  # what overflows is not connected
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


class MatrixPoints(ReferencePoints):
    """Points with distances of any kind.

    Parameters
    ----------
    distances : float64 array of shape (n, n)
        Symmetric, with zeros on its diagonal. Infinite between points that are not connected.
    """

    def __init__(self, distances: NDArray[np.float64]) -> None:
        self.distances = distances
        self._core_distances = None


def open_points(
    X: NDArray[Any], *, n_threads: int = 1, progress: Any = None, halved_square: bool = False
) -> ReferencePoints:
    """Compute all pairwise distances between the rows of ``X`` (finite float32 or float64, shape (n, d)).

    ``n_threads`` and ``progress`` are accepted as every backend accepts them; nothing here uses them.
    """
    return ReferencePoints(X, halved_square)


def open_pairwise(
    X: Any,
    metric: Metric,
    *,
    row_of_point: NDArray[np.int64] | None = None,
    n_threads: int = 1,
    progress: Any = None,
) -> ReferencePoints:
    """Compute all distances of another metric; see :func:`mreach.backends.pairwise.open_pairwise`."""
    distances = matrix_of(X, metric)
    return MatrixPoints(distances if row_of_point is None else distances[np.ix_(row_of_point, row_of_point)])


def nearest_rows(
    X: NDArray[Any],
    X_new: NDArray[Any],
    *,
    core_distances: NDArray[np.float64],
    alpha: float,
    min_samples: int = 1,
    new_core_distances: NDArray[np.float64] | None = None,
    candidates: NDArray[np.bool_] | None = None,
    halved_square: bool = False,
    n_threads: int = 1,
    progress: Any = None,
) -> NearestRows:
    """Find the fitted row of least mutual reachability distance to each new row.

    Parameters
    ----------
    X, X_new : float32 or float64 arrays of shape (n, d) and (m, d)
        The rows of the fit and the new ones, finite.
    core_distances : float64 array of shape (n,)
        Of the rows of the fit.
    alpha : float
        As in the fit.
    min_samples : int
        The core distance of a new row is the distance to its ``min_samples``-th nearest row of the fit; the
        new row itself is not counted.
    new_core_distances : float64 array of shape (m,), optional
        Core distances of the new rows, where they are known: ``min_samples`` then does not matter.
    candidates : bool array of shape (n,), optional
        Only these rows may be the answer; all count for core distances.
    halved_square : bool
        As for :class:`ReferencePoints`.

    Returns
    -------
    NearestRows
    """
    n, m = len(X), len(X_new)
    allowed = np.arange(n) if candidates is None else np.flatnonzero(candidates)
    # Among equals the lexicographically smallest row, then the first: the order of the rows changes no value.
    allowed = allowed[np.lexsort((allowed, *X[allowed].T.astype(np.float64)[::-1]))]
    found = NearestRows(np.empty(m), np.full(m, -1), np.full(m, np.inf))
    for i in range(m):
        distances = distances_between(X_new[i : i + 1], X, halved_square)[0]
        core = np.sort(distances)[min_samples - 1] if new_core_distances is None else new_core_distances[i]
        found.core_distances[i] = core
        if len(allowed):
            weights = np.maximum(np.maximum(core, core_distances), distances / alpha)[allowed]
            best = np.lexsort((distances[allowed], weights))[0]  # stable
            found.rows[i], found.weights[i] = allowed[best], weights[best]
    return found


def distances_between(X: NDArray[Any], Y: NDArray[Any], halved_square: bool = False) -> NDArray[np.float64]:
    """Distances in difference form, features in order, each operation rounded once.

    Parameters
    ----------
    X, Y : float32 or float64 arrays of shape (n, d) and (m, d)
    halved_square : bool
        As for :class:`ReferencePoints`.

    Returns
    -------
    float64 array of shape (n, m)
    """
    X = X.astype(np.float64)
    columns = np.ascontiguousarray(Y.T, np.float64)
    squared_distances = np.zeros((len(X), len(Y)))
    for start in range(0, len(X), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        for feature, column in enumerate(columns):
            difference = X[rows, feature, np.newaxis] - column
            squared_distances[rows] += difference * difference
    if halved_square:
        return squared_distances * 0.5
    return np.sqrt(squared_distances, out=squared_distances)

"""A sparse graph of distances: pairs that are not in it are infinitely far apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from mreach.metrics import sort_edges
from mreach.records import EDGE_DTYPE

__all__ = ["GraphPoints", "NeighbourGraph", "join_at_infinity", "lightest_tree"]


class NeighbourGraph:
    """Pairs of rows and their distances, each pair once.

    Parameters
    ----------
    n : int
        Number of rows.
    lower, higher : int64 arrays of shape (n_pairs,)
        Row numbers, ``lower < higher``.
    distances : float64 array of shape (n_pairs,)
        Finite, at least 0.
    """

    def __init__(
        self, n: int, lower: NDArray[np.int64], higher: NDArray[np.int64], distances: NDArray[np.float64]
    ) -> None:
        self.n, self.lower, self.higher, self.distances = n, lower, higher, distances

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, twice."""
        return self.n, self.n

    def repeated(self, row_of_point: NDArray[np.int64]) -> NeighbourGraph:
        """Return the graph of points that are rows taken several times, copies of a row at distance 0.

        Parameters
        ----------
        row_of_point : int64 array of shape (n_points,), ascending
        """
        own = np.arange(self.n)
        rows = np.concatenate((self.lower, self.higher, own))
        columns = np.concatenate((self.higher, self.lower, own))
        values = np.concatenate((self.distances, self.distances, np.zeros(self.n)))
        both_ways = csr_array((values, (rows, columns)), shape=self.shape)  # zeros stay in it
        points = both_ways[row_of_point][:, row_of_point].tocoo()
        once = points.row < points.col
        return NeighbourGraph(
            len(row_of_point),
            points.row[once].astype(np.int64),
            points.col[once].astype(np.int64),
            points.data[once],
        )


class GraphPoints:
    """The rows of a graph, for the stages of one fit. Memory and time follow the number of pairs."""

    def __init__(self, graph: NeighbourGraph) -> None:
        self._graph = graph

    def core_distances(self, min_samples: int) -> NDArray[np.float64]:
        """Return the core distances, shape (n_rows,); infinite for rows with too few neighbours."""
        graph = self._graph
        self._core = np.zeros(graph.n)
        if min_samples > 1:
            row = np.concatenate((graph.lower, graph.higher))
            distances = np.concatenate((graph.distances, graph.distances))
            order = np.lexsort((distances, row))
            degrees = np.bincount(row, minlength=graph.n)
            # The row itself counts first, and no row lists itself.
            has_enough = degrees >= min_samples - 1
            place = (np.cumsum(degrees) - degrees + min_samples - 2)[has_enough]
            self._core[:] = np.inf
            self._core[has_enough] = distances[order[place]]
        return self._core.copy()

    def minimum_spanning_tree(self, alpha: float) -> NDArray[np.void]:
        """Return the tree, shape (n_rows - 1,), EDGE_DTYPE, sorted; components are joined at infinity."""
        graph, core = self._graph, self._core
        with np.errstate(over="ignore"):
            weights = np.maximum(np.maximum(core[graph.lower], core[graph.higher]), graph.distances / alpha)
        kept = np.flatnonzero(np.isfinite(weights))
        chosen = kept[lightest_tree(graph.n, graph.lower[kept], graph.higher[kept], weights[kept])]
        edges = np.empty(len(chosen), EDGE_DTYPE)
        edges["source"], edges["target"] = graph.lower[chosen], graph.higher[chosen]
        edges["weight"] = weights[chosen]
        tree = coo_array((np.ones(len(edges)), (edges["source"], edges["target"])), shape=graph.shape)
        _, component = connected_components(tree, directed=False)
        return sort_edges(np.concatenate((edges, join_at_infinity(component))))


def lightest_tree(
    n: int, lower: NDArray[np.int64], higher: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return which edges make the minimum spanning forest under the order (weight, lower row, higher row).

    Parameters
    ----------
    n : int
        Number of rows.
    lower, higher, weights : arrays of shape (n_edges,)
        Edges, ``lower < higher``; a pair may come several times.

    Returns
    -------
    int64 array of at most n - 1 edges, in that order
    """
    order = np.lexsort((weights, higher, lower))
    is_first = np.ones(len(order), bool)
    pair = lower[order], higher[order]
    is_first[1:] = (pair[0][1:] != pair[0][:-1]) | (pair[1][1:] != pair[1][:-1])
    once = order[is_first]
    once = once[np.lexsort((higher[once], lower[once], weights[once]))]
    # By their ranks in the order no two edges are equal: the tree is one, whatever finds it.
    ranks = coo_array((np.arange(1.0, len(once) + 1), (lower[once], higher[once])), shape=(n, n))
    chosen = minimum_spanning_tree(ranks.tocsr()).data.astype(np.int64) - 1
    found: NDArray[np.int64] = once[np.sort(chosen)]
    return found


def join_at_infinity(component: NDArray[np.int64]) -> NDArray[np.void]:
    """Return the edges that join components which nothing connects.

    Row 0 and the smallest row of each other component, at infinity: the least of such edges in the order
    (weight, lower row, higher row).

    Parameters
    ----------
    component : int array of shape (n_rows,)
    """
    _, smallest = np.unique(component, return_index=True)
    smallest = np.sort(smallest)[1:]
    edges = np.empty(len(smallest), EDGE_DTYPE)
    edges["source"], edges["target"], edges["weight"] = 0, smallest, np.inf
    return edges

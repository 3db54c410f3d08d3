"""Spanning trees for several numbers of neighbours from one search: CORE-SG.

Neto, A. C. A., Naldi, M. C., Campello, R. J. G. B., Sander, J. (2022). CORE-SG: efficient computation
of multiple MSTs for density-based methods. ICDE 2022, 951-964.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.backends.distances import paired_distances
from mreach.hierarchy import spanning_forest
from mreach.spanning_tree import minimum_spanning_tree

__all__ = ["MAX_NEIGHBORS", "trees_for"]

MAX_NEIGHBORS = 256
"""The compiled core lists all neighbours up to so many."""


class Tree(NamedTuple):
    """Core distances and spanning tree for one number of neighbours."""

    core_distances: NDArray[np.float64]  # (n,)
    edges: NDArray[np.void]  # (n - 1,) EDGE_DTYPE, sorted by (weight, source, target)


def trees_for(
    points: Any, X: NDArray[Any], min_samples: list[int], alpha: float, halved_square: bool
) -> Iterator[Tree]:
    """Give core distances and a minimum spanning tree for each of several values of ``min_samples``.

    Parameters
    ----------
    points
        What ``open_points`` of backend "cpu" returned for ``X``.
    X : float array of shape (n, n_features)
    min_samples : list of int
        Each from 1 to :data:`MAX_NEIGHBORS` and to n.
    alpha : float
        At most 1.
    halved_square : bool
        As in ``open_points``.

    Yields
    ------
    Tree
        Of each value, in their order. The weights are those of a search of its own, bit for bit; of
        equal edges others may stand in the tree.

    Notes
    -----
    Let a and b be two rows, d their distance, K the largest value. Where d is below one of their core
    distances for K, the edge is listed. Else its weight for K is d / alpha, as alpha is at most 1, and
    for a smaller value it is the same: the path between them in the tree for K has no heavier edge, and
    none of its edges is heavier for the smaller value. So listed edges and the tree for K hold a
    minimum spanning tree for each smaller value.
    """
    most = max(min_samples)
    core_of_most = points.core_distances(most)
    listed = points.listed_neighbors()
    tree = minimum_spanning_tree(points, alpha)
    lists = _Lists(listed, core_of_most)
    source, target = np.r_[lists.source, tree["source"]], np.r_[lists.target, tree["target"]]
    distances = paired_distances(X, tree["source"], tree["target"], halved_square)
    distances = np.r_[lists.distances, distances] / alpha
    for k in min_samples:
        if k == most:
            yield Tree(core_of_most.copy(), tree.copy())
            continue
        core = lists.core_distances(k)
        weights = np.maximum(np.maximum(core[source], core[target]), distances)
        yield Tree(core, spanning_forest(len(core), source, target, weights))


class _Lists:
    """Listed neighbours with the number of rows up to each of them.

    Parameters
    ----------
    listed : ListedNeighbors
    core_of_most : float64 array of shape (n,)
        Core distances for the largest number of neighbours: all that is nearer is listed, or equals what is.

    Attributes
    ----------
    source, target : int arrays of shape (n_kept,)
    distances : float64 array of shape (n_kept,)
        Ends and length of the listed edges up to the core distance.
    """

    def __init__(self, listed: Any, core_of_most: NDArray[np.float64]) -> None:
        n = len(core_of_most)
        self._core_of_most = core_of_most
        source = np.repeat(np.arange(n), np.diff(listed.indptr))
        kept = listed.distances <= core_of_most[source]
        self.source, self.target = source[kept], listed.rows[kept]
        self.distances = listed.distances[kept]
        self._start = np.r_[0, np.cumsum(np.bincount(self.source, minlength=n))]
        # Copies of a row list the lowest of them alone, at distance 0, and have its core distance.
        self._multiplicity = listed.multiplicity
        first = np.arange(n)
        alone = np.flatnonzero((np.diff(self._start) == 1) & (listed.multiplicity > 1))
        edge = self._start[alone]
        is_copy = (self.distances[edge] == 0) & (self.target[edge] < alone)
        first[alone[is_copy]] = self.target[edge[is_copy]]
        self._first = first
        counts = np.r_[0, np.cumsum(listed.multiplicity[self.target], dtype=np.int64)]
        own = listed.multiplicity[self.source]
        self._up_to = counts[1:] - counts[self._start[self.source]] + own  # rows within each edge, itself too

    def core_distances(self, k: int) -> NDArray[np.float64]:
        """Return the core distances for ``k`` neighbours, float64 of shape (n,)."""
        n = len(self._core_of_most)
        fewer = np.bincount(self.source[self._up_to < k], minlength=n)  # edges that do not suffice
        edge = self._start[:-1] + fewer
        core = self._core_of_most.copy()  # where the list ends before: the rest is as far as that
        found = np.flatnonzero(edge < self._start[1:])
        core[found] = self.distances[edge[found]]
        core[self._multiplicity >= k] = 0.0
        return core[self._first]

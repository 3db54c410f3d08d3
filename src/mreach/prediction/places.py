"""The condensed tree of a fit as new rows are placed in it. NumPy alone: backend "reference" has it, too."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.scores import by_cluster, largest_in_subtrees

__all__ = ["ClusterTree", "Places"]


class Places(NamedTuple):
    """Where rows are in a condensed tree.

    Attributes
    ----------
    clusters : int32 array of shape (m,)
        The deepest cluster that a row is in; the root is 0.
    lambdas : float64 array of shape (m,)
        Density at which it leaves.
    """

    clusters: NDArray[np.int32]
    lambdas: NDArray[np.float64]


class ClusterTree:
    """The clusters of a condensed tree, by number: the root is 0, a parent comes before its children.

    Parameters
    ----------
    condensed : CONDENSED_DTYPE array
        In the user's row numbers; clusters from ``n_samples`` on. Empty where only one row is finite.
    birth_heights : float64 array of shape (n_clusters,)
        Distance at which each cluster was born, infinite for the root.
    selected : int64 array of shape (n_labels,)
        Cluster in ``condensed`` behind each label.
    n_samples : int
    epsilon : float
        ``cluster_selection_epsilon`` of the fit.

    Attributes
    ----------
    birth_heights, birth_lambdas, largest : float64 arrays of shape (n_clusters,)
        ``largest`` is the largest finite lambda at which anything leaves the cluster itself, 0 where there is
        none.
    largest_below : float64 array of shape (n_clusters,)
        The same for the cluster and all below it.
    parent, labels : int32 and int64 arrays of shape (n_clusters,)
        ``labels``: of the nearest selected cluster among a cluster and its ancestors; -1: none.
    selected : int64 array of shape (n_labels,)
        Numbers of the selected clusters.
    jumps : list of int32 arrays of shape (n_clusters,)
        Ancestors 1, 2, 4, 8, ... above each cluster (the root where there are fewer): whole paths are climbed
        in a few steps, however deep the tree is.
    rows : Places
        Of the rows of the fit, by their number, shape (n_samples,); a row that is not finite is in the root.
    """

    def __init__(
        self,
        condensed: NDArray[np.void],
        birth_heights: NDArray[np.float64],
        selected: NDArray[np.int64],
        n_samples: int,
        epsilon: float,
    ) -> None:
        n_clusters = len(birth_heights)
        self.birth_heights = birth_heights
        self.selected = selected - n_samples
        self.parent: NDArray[np.int32] = np.zeros(n_clusters, np.int32)
        self.birth_lambdas, self.largest = np.zeros(n_clusters), np.zeros(n_clusters)
        self.rows = Places(np.zeros(n_samples, np.int32), np.full(n_samples, np.inf))
        self._root_needs = np.inf
        if len(condensed):
            cluster, child, lambdas, starts = by_cluster(condensed, n_samples)
            is_row = child < n_samples
            self.rows.clusters[child[is_row]] = cluster[is_row]
            self.rows.lambdas[child[is_row]] = lambdas[is_row]
            self.parent[child[~is_row] - n_samples] = cluster[~is_row]
            self.birth_lambdas[child[~is_row] - n_samples] = lambdas[~is_row]
            self.largest = np.maximum.reduceat(np.where(np.isfinite(lambdas), lambdas, 0.0), starts)
            self._root_needs = 1 / epsilon if epsilon > 0 else lambdas[cluster == 0].max()
        self.largest_below = largest_in_subtrees(self.largest, self.parent)
        self.jumps = [self.parent]
        while self.jumps[-1].any():  # no more often than the number of clusters has bits
            self.jumps.append(self.jumps[-1][self.jumps[-1]])
        self.labels = np.full(n_clusters, -1)
        self.labels[self.selected] = np.arange(len(self.selected))
        for jump in self.jumps:
            self.labels = np.where(self.labels >= 0, self.labels, self.labels[jump])

    def place(self, nearest: NDArray[np.int64], heights: NDArray[np.float64]) -> Places:
        """Place new rows.

        Parameters
        ----------
        nearest : int64 array of shape (m,)
            The row of the fit that each joins.
        heights : float64 array of shape (m,)
            Mutual reachability distance to it.
        """
        clusters = self.rows.clusters[nearest]
        for jump in reversed(self.jumps):
            above = jump[clusters]
            clusters = np.where(self.birth_heights[above] <= heights, above, clusters)
        clusters = np.where(self.birth_heights[clusters] <= heights, self.parent[clusters], clusters)
        return Places(clusters, np.minimum(density(heights), self.rows.lambdas[nearest]))

    def labels_of(self, places: Places) -> NDArray[np.int64]:
        """Return the label of each place, -1 for noise, shape (m,)."""
        labels = self.labels[places.clusters]
        if 0 in self.selected:  # everything lies below the root: only what is dense enough belongs to it
            labels[places.lambdas < self._root_needs] = -1
        return labels

    def strengths_of(self, places: Places, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how strongly each place belongs to its label, from 0 to 1; 0 for noise. Shape (m,)."""
        strengths = np.zeros(len(labels))
        clustered = labels >= 0
        largest = self.largest[self.selected[labels[clustered]]]
        lambdas = places.lambdas[clustered]
        whole = np.isinf(lambdas) | (lambdas >= largest)
        strengths[clustered] = np.divide(lambdas, largest, out=np.ones(len(lambdas)), where=~whole)
        return strengths

    def outlier_scores_of(self, places: Places) -> NDArray[np.float64]:
        """Return GLOSH of each place, from 0 to 1, shape (m,)."""
        largest = self.largest_below[places.clusters]
        ratio = np.ones(len(largest))  # as dense as it gets: equal rows, or a tree that knows no density
        np.divide(places.lambdas, largest, out=ratio, where=np.isfinite(places.lambdas) & (largest > 0))
        return np.maximum(0.0, 1.0 - ratio)


def density(heights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return lambda at heights: 1 / height, infinite at 0, and finite everywhere else."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(heights == 0, np.inf, np.minimum(1 / heights, np.finfo(np.float64).max))

"""Scores that a fit gives beside its labels, worked out from the fitted trees when they are first asked for.

NumPy alone, and no part of ``hierarchy``: backend "reference" has them too, where there is no compiled core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mreach.float_environment import default_float_environment

__all__ = ["FittedScores", "exemplars", "outlier_scores", "relative_validity"]


class FittedScores:
    """Attributes of a fitted estimator that are computed at first access and kept.

    A fit does not pay for what nobody asks for. The results belong to the trees and labels they were computed
    from: another fit, or other labels, and they are computed again. They are not pickled.
    """

    labels_: NDArray[np.int64]
    condensed_tree_: NDArray[np.void]
    minimum_spanning_tree_: NDArray[np.void]

    @property
    def outlier_scores_(self) -> NDArray[np.float64]:
        """Outlier score of each row (GLOSH), float64 array of shape (n_samples,).

        From 0 to 1; NaN for rows with a NaN.
        """
        return self._score("outlier_scores_", lambda: outlier_scores(self.condensed_tree_, self.labels_))

    @property
    def exemplars_(self) -> list[NDArray[np.int64]]:
        """Rows in the densest places of each cluster: a list of int64 arrays, in the order of the labels."""
        return self._score("exemplars_", lambda: exemplars(self.condensed_tree_, self.labels_))

    @property
    def relative_validity_(self) -> float:
        """Approximate validity of the clusters (DBCV on the spanning tree), from -1 to 1."""
        return self._score("relative_validity_", lambda: relative_validity(*self._edges_and_labels()))

    def _edges_and_labels(self) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """Return the spanning tree and the labels that the validity is read off."""
        return self.minimum_spanning_tree_, self.labels_

    def _score(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return a score, computed unless it was computed for these very arrays before."""
        check_is_fitted(self, "labels_")  # its error is an AttributeError, too: hasattr says no
        made_of = (self.labels_, self.condensed_tree_, self.minimum_spanning_tree_)
        # A fit or a cut gives the estimator an empty store; filling it leaves all attributes as they are.
        kept: dict[str, Any] = self.__dict__.setdefault("_scores", {})
        old_made_of = kept.get("made_of", (None,) * len(made_of))
        if any(old is not new for old, new in zip(old_made_of, made_of, strict=True)):
            kept.clear()
            kept["made_of"] = made_of
        score = kept.get(name)  # once: another thread may fill or empty the store meanwhile
        if score is None:
            with default_float_environment(), np.errstate(under="ignore"):
                score = kept[name] = compute()
        return score

    def __getstate__(self) -> Any:
        state = super().__getstate__()  # type: ignore[misc]
        return {name: {} if name == "_scores" else value for name, value in state.items()}


def outlier_scores(condensed: NDArray[np.void], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Global-local outlier score from hierarchies, GLOSH (Campello et al. 2015, section 6).

    A row that leaves its last cluster at density lambda, while the densest row in this cluster or in a
    cluster below it leaves at L (the largest finite one), scores ``1 - lambda / L``.

    Parameters
    ----------
    condensed : CONDENSED_DTYPE array
        Condensed tree of the finite rows, in the user's row numbers; clusters from ``n_samples`` on.
    labels : int64 array of shape (n_samples,)
        Only -2 (infinity) and -3 (NaN) matter.

    Returns
    -------
    float64 array of shape (n_samples,)
        From 0 to 1. 0 where lambda is infinite (equal rows), and for a finite row that is the only one. 1 for
        a row with an infinity: it is infinitely far from all others. NaN for a row with a NaN. 0 for a row of
        weight 0, which is in no tree.
    """
    scores = np.zeros(len(labels))
    scores[labels == -2] = 1.0
    scores[labels == -3] = np.nan
    if not len(condensed):
        return scores
    cluster, child, lambdas, starts = by_cluster(condensed, len(labels))
    is_finite = np.isfinite(lambdas)
    largest = np.maximum.reduceat(np.where(is_finite, lambdas, 0.0), starts)
    is_row = child < len(labels)
    parent = np.zeros(len(starts), np.int64)
    parent[child[~is_row] - len(labels)] = cluster[~is_row]
    ratio = np.ones(len(condensed))
    densest = largest_in_subtrees(largest, parent)[cluster]  # 0: all leave at infinity, none before another
    np.divide(lambdas, densest, out=ratio, where=is_finite & (densest > 0))
    scores[child[is_row]] = np.maximum(0.0, 1.0 - ratio[is_row])
    return scores


def exemplars(condensed: NDArray[np.void], labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows in the densest places of each cluster.

    They are, of each leaf of the condensed tree (a cluster that does not split further), the rows that leave
    it at the largest lambda.

    Parameters
    ----------
    condensed : CONDENSED_DTYPE array
        Condensed tree in the user's row numbers; clusters from ``n_samples`` on.
    labels : int64 array of shape (n_samples,)
        Rows without a cluster are no exemplars. A leaf below a selected cluster carries its label, so that
        nothing else need be known of the selection.

    Returns
    -------
    list of int64 arrays, one for each label
        Row numbers, ascending; at least one for each label.
    """
    n_clusters = int(labels.max()) + 1
    if n_clusters <= 0:
        return []
    cluster, child, lambdas, starts = by_cluster(condensed, len(labels))
    splits = np.zeros(len(starts), bool)
    splits[cluster[child > len(labels)]] = True
    largest = lambdas[np.append(starts[1:], len(condensed)) - 1]  # records of a cluster are sorted by lambda
    rows = child[(lambdas == largest[cluster]) & ~splits[cluster]]
    rows = np.sort(rows[labels[rows] >= 0])
    counts = np.bincount(labels[rows], minlength=n_clusters)
    return np.split(rows[np.argsort(labels[rows], kind="stable")], np.cumsum(counts)[:-1])


def relative_validity(edges: NDArray[np.void], labels: NDArray[np.int64]) -> float:
    """Density-based cluster validity, DBCV (Moulavi et al. 2014), approximated on the tree of the fit.

    As the library hdbscan defines it. The *sparseness* of a cluster is its heaviest tree edge, its
    *separation* the lightest tree edge to another cluster, or, where no edge leads to another cluster, twice
    the heaviest edge of the whole tree. (With one cluster only: twice the lightest edge between it and noise,
    if there is one.) Its validity is (separation - sparseness) / max(separation, sparseness), and the score
    is the mean over all finite rows, noise counting 0.

    Parameters
    ----------
    edges : EDGE_DTYPE array of shape (n_finite - 1,)
        Minimum spanning tree, in the user's row numbers.
    labels : int64 array of shape (n_samples,)

    Returns
    -------
    float
        From -1 to 1, 0 where there is no cluster.
    """
    sizes = np.bincount(labels[labels >= 0])
    if not len(sizes):
        return 0.0
    weight = edges["weight"]
    one, other = labels[edges["source"]], labels[edges["target"]]
    sparseness, separation = np.zeros(len(sizes)), np.full(len(sizes), np.inf)
    inside = (one == other) & (one >= 0)
    np.maximum.at(sparseness, one[inside], weight[inside])
    between = (one != other) & (one >= 0) & (other >= 0)
    np.minimum.at(separation, one[between], weight[between])
    np.minimum.at(separation, other[between], weight[between])
    far = weight.max()
    to_noise = (one >= 0) != (other >= 0)
    if len(sizes) == 1 and to_noise.any():
        far = weight[to_noise].min()
    separation[np.isinf(separation)] = 2 * float(far)  # infinite, without a warning, where it overflows
    larger, smaller = np.maximum(separation, sparseness), np.minimum(separation, sparseness)
    validity = np.zeros(len(sizes))  # both 0: all rows are equal; both infinite: nothing is connected
    known = (larger > 0) & np.isfinite(larger)
    validity[known] = (separation[known] - sparseness[known]) / larger[known]
    apart = np.isinf(larger) & np.isfinite(smaller)
    validity[apart] = np.where(np.isinf(separation[apart]), 1.0, -1.0)
    return float((sizes * validity).sum() / np.count_nonzero(labels >= -1))


def largest_in_subtrees(largest: NDArray[np.float64], parent: NDArray[Any]) -> NDArray[np.float64]:
    """Return for each cluster the largest value of itself and all clusters below it.

    Parameters
    ----------
    largest : float64 array of shape (n_clusters,)
        A value of each cluster, the root first.
    parent : integer array of shape (n_clusters,)
    """
    # A cluster's number is larger than its parent's: in descending order each is complete when it is read.
    parents, maxima = parent.tolist(), largest.tolist()
    for one in range(len(parents) - 1, 0, -1):
        if maxima[one] > maxima[parents[one]]:
            maxima[parents[one]] = maxima[one]
    return np.asarray(maxima)


def by_cluster(
    condensed: NDArray[np.void], n_samples: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return cluster (the root is 0), child and lambda of each record, and each cluster's first record.

    Every cluster has records: what leaves it, at the latest when it ends.
    """
    cluster = condensed["parent"] - n_samples
    starts = np.searchsorted(cluster, np.arange(int(cluster[-1]) + 1))
    return cluster, condensed["child"].copy(), condensed["lambda_val"].copy(), starts

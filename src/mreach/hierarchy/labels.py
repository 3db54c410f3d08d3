"""Numbers of labels, the same for every order of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def number_labels(
    cluster_index: NDArray[np.int32], n_clusters: int, data: NDArray[Any] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number clusters by decreasing number of rows, equal numbers by their lexicographically smallest row.

    Parameters
    ----------
    cluster_index : int array of shape (n_rows,)
        Cluster of each row, or -1.
    n_clusters : int
    data : array of shape (n_rows, n_features), optional
        Without it equal numbers are ordered by their smallest row number.

    Returns
    -------
    labels : int64 array of shape (n_rows,)
    order : int64 array of shape (n_clusters,)
        The cluster behind each label.
    """
    counts = np.bincount(cluster_index + 1, minlength=n_clusters + 1)[1:]  # without the noise
    order = np.argsort(-counts, kind="stable")
    # Only clusters of equal size need a look at their rows.
    by_size = counts[order]
    starts = np.flatnonzero(np.r_[True, by_size[1:] != by_size[:-1]]) if n_clusters else np.empty(0, np.int64)
    ends = np.r_[starts[1:], n_clusters] if n_clusters else starts
    tied = ends - starts > 1
    if tied.any():
        in_a_tie = np.zeros(n_clusters + 1, bool)  # the last is where index -1 looks
        for start, end in zip(starts[tied], ends[tied], strict=True):
            in_a_tie[order[start:end]] = True
        smallest = _smallest_rows(cluster_index, in_a_tie, n_clusters, data)
        for start, end in zip(starts[tied], ends[tied], strict=True):
            group = order[start:end]
            order[start:end] = group[np.argsort(smallest[group], kind="stable")]
    number = np.empty(n_clusters + 1, np.int64)
    number[order] = np.arange(n_clusters)
    number[-1] = -1  # where index -1 looks
    return number[cluster_index], order


def _smallest_rows(
    cluster_index: NDArray[np.int32], in_a_tie: NDArray[np.bool_], n_clusters: int, data: NDArray[Any] | None
) -> NDArray[np.int64]:
    """Return a rank for each cluster in a tie that orders them by their lexicographically smallest row."""
    rows = np.flatnonzero(in_a_tie[cluster_index])
    clusters = cluster_index[rows]
    rank = np.zeros(n_clusters, np.int64)
    if data is None:
        first = np.full(n_clusters, len(cluster_index), np.int64)
        np.minimum.at(first, clusters, rows)
        return first
    # Feature by feature, keep the rows that share their cluster's smallest value, until one row each is left
    # (or rows that are equal). One or two features are nearly always enough.
    for feature in range(data.shape[1]):
        if len(rows) == np.count_nonzero(in_a_tie):
            break
        values = np.asarray(data[rows, feature], np.float64)
        smallest = np.full(n_clusters, np.inf)
        np.minimum.at(smallest, clusters, values)
        kept = values == smallest[clusters]
        rows, clusters = rows[kept], clusters[kept]
    _, one_each = np.unique(clusters, return_index=True)
    rows, clusters = rows[one_each], clusters[one_each]
    # Equal rows lie in different clusters where their distance is not 0, as a function may have it.
    order = np.lexsort((rows, *np.asarray(data[rows], np.float64).T[::-1]))
    rank[clusters[order]] = np.arange(len(order))
    return rank

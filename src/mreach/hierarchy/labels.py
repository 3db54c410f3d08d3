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
    counts = np.bincount(cluster_index[cluster_index >= 0], minlength=n_clusters)
    order = np.argsort(-counts, kind="stable")
    # Only clusters of equal size need a look at their rows.
    by_size = counts[order]
    starts = np.flatnonzero(np.r_[True, by_size[1:] != by_size[:-1]]) if n_clusters else np.empty(0, np.int64)
    ends = np.r_[starts[1:], n_clusters] if n_clusters else starts
    tied = ends - starts > 1
    if tied.any():
        in_a_tie = np.zeros(n_clusters, bool)
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
    """Return, for each cluster in a tie, the rank of its smallest row among the rows of such clusters."""
    rows = np.flatnonzero((cluster_index >= 0) & in_a_tie[cluster_index])
    if data is not None:
        values = np.asarray(data[rows], np.float64)
        rows = rows[np.lexsort(values.T[::-1])]
    first = np.full(n_clusters, len(rows), np.int64)
    np.minimum.at(first, cluster_index[rows], np.arange(len(rows)))
    return first

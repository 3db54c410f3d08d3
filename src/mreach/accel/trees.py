"""Trees of mreach in the form that the library hdbscan keeps them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mreach.records import CONDENSED_DTYPE

__all__ = ["binary_condensed_tree", "place_numbers"]


def place_numbers(selected: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number labels by the place of their clusters in the tree, as hdbscan's functions take for granted.

    Parameters
    ----------
    selected : int64 array of shape (n_clusters,)
        The cluster of the condensed tree behind each label of mreach.

    Returns
    -------
    numbers : int64 array of shape (n_clusters + 1,)
        The new number of each label; -1 at the end, for label -1.
    order : int64 array of shape (n_clusters,)
        The label of mreach behind each new number.
    """
    order = np.argsort(selected)
    numbers = np.full(len(selected) + 1, -1, np.int64)
    numbers[order] = np.arange(len(selected))
    return numbers, order


def binary_condensed_tree(condensed: NDArray[np.void], labels: NDArray[np.int64]) -> NDArray[np.void]:
    """Return a condensed tree in which a cluster splits into two at most.

    Where three or more clusters part at one height, clusters that last for no time are put between: the first
    part from all others, the second from the rest, and so on. Rows that are not finite leave the root at
    density 0.

    Parameters
    ----------
    condensed : CONDENSED_DTYPE array
        In the user's row numbers; clusters from ``n_samples`` on, each parent's records together, ascending.
    labels : int64 array of shape (n_samples,)
        Of mreach: -2 and -3 for rows that are not finite.

    Returns
    -------
    CONDENSED_DTYPE array
        Clusters keep their order; numbers of those put in are below those of the clusters that they part.
    """
    n_rows = len(labels)
    is_cluster = condensed["child"] > n_rows
    _, first, counts = np.unique(condensed["parent"][is_cluster], return_index=True, return_counts=True)
    tree = condensed
    if (counts > 2).any():
        tree = _with_clusters_between(condensed, np.flatnonzero(is_cluster), first, counts)
    not_finite = np.flatnonzero(labels < -1)
    if len(not_finite):
        leaving = np.zeros(len(not_finite), CONDENSED_DTYPE)
        leaving["parent"] = n_rows
        leaving["child"] = not_finite
        leaving["child_size"] = 1
        tree = np.concatenate((leaving, tree))
    return tree


def _with_clusters_between(
    condensed: NDArray[np.void],
    cluster_records: NDArray[np.int64],
    first: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.void]:
    children = [cluster_records[start : start + count] for start, count in zip(first, counts, strict=True)]
    wide = [index for index, count in enumerate(counts) if count > 2]
    # The clusters put into a split come right before its first part, which has the smallest number of them.
    at = np.array([condensed["child"][children[index]].min() for index in wide])
    added = counts[wide] - 2
    by_number = np.argsort(at)
    before = np.concatenate(([0], np.cumsum(added[by_number])))

    def renumbered(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Every number with the clusters put in below it; rows are below all of them."""
        return numbers + before[np.searchsorted(at[by_number], numbers, side="right")]

    tree = condensed.copy()
    tree["parent"], tree["child"] = renumbered(condensed["parent"]), renumbered(condensed["child"])
    between = []
    for index in wide:
        parts = children[index]
        parts = parts[np.argsort(condensed["child"][parts])]
        sizes = condensed["child_size"][parts]
        number = int(tree["child"][parts[0]]) - (len(parts) - 2)
        parent = int(tree["parent"][parts[0]])
        for step, part in enumerate(parts[:-1]):
            tree["parent"][part] = parent
            if step < len(parts) - 2:
                rest = int(sizes[step + 1 :].sum())
                between.append((parent, number + step, condensed["lambda_val"][part], rest))
                parent = number + step
        tree["parent"][parts[-1]] = parent
    tree = np.concatenate((tree, np.array(between, CONDENSED_DTYPE)))
    return tree[np.argsort(tree["parent"], kind="stable")]

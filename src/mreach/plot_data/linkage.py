"""A linkage as a dendrogram."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.plot_data.scale import Scale

__all__ = ["LinkageData", "linkage_data"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class LinkageData(NamedTuple):
    """The last merges of a linkage, as a dendrogram.

    Attributes
    ----------
    x, y : float64 arrays of shape (n_links, 4)
        The link of each merge: up from its first node, across, and down to its second one, in ascending order
        of the merges. Leaves stand at 5, 15, 25 ..., as in ``scipy.cluster.hierarchy.dendrogram``.
    link_rows : int64 array of shape (n_links,)
        Number of rows that each merge brings together.
    child_rows : int64 array of shape (n_links, 2)
        Number of rows of the two nodes merged.
    leaves : int64 array of shape (n_links + 1,)
        The node at each leaf, from left to right: a row, or a merge whose parts are not shown.
    leaf_rows : int64 array of shape (n_links + 1,)
        Number of rows in each leaf.
    scale : Scale
        Of the heights: infinity is drawn at ``scale.infinity``.
    """

    x: Floats
    y: Floats
    link_rows: Integers
    child_rows: Integers
    leaves: Integers
    leaf_rows: Integers
    scale: Scale


def linkage_data(linkage: Floats, truncate_mode: str | None = "lastp", p: int = 30) -> LinkageData:
    """Lay out a linkage, or the last of its merges.

    Parameters
    ----------
    linkage : float64 array of shape (n_rows - 1, 4)
    truncate_mode : {None, "lastp", "level"}
        None: all merges. "lastp": the last ``p - 1``, which have p leaves. "level": merges with at most ``p``
        merges between them and the last.
    p : int

    Returns
    -------
    LinkageData
    """
    n_rows = len(linkage) + 1
    node_rows = np.concatenate((np.ones(n_rows, np.int64), linkage[:, 3].astype(np.int64)))
    first, second = linkage[:, 0].astype(np.int64).tolist(), linkage[:, 1].astype(np.int64).tolist()
    is_shown = _shown_merges(first, second, truncate_mode, p)
    leaves: list[int] = []
    waiting = [2 * n_rows - 2]
    while waiting:
        node = waiting.pop()
        if node >= n_rows and is_shown[node - n_rows]:
            waiting += (second[node - n_rows], first[node - n_rows])
        else:
            leaves.append(node)
    place = np.zeros(2 * n_rows - 1)
    place[leaves] = 10.0 * np.arange(len(leaves)) + 5
    shown = np.flatnonzero(is_shown)
    at = place.tolist()
    for merge in shown.tolist():  # a node is made before it is merged
        at[n_rows + merge] = (at[first[merge]] + at[second[merge]]) / 2
    place = np.asarray(at)
    scale = Scale.of(linkage[shown, 2])
    height = np.zeros(2 * n_rows - 1)
    height[n_rows + shown] = scale.place(linkage[shown, 2])
    children = linkage[shown, :2].astype(np.int64)
    x, y, own = place[children], height[children], height[n_rows + shown]
    return LinkageData(
        x=np.column_stack((x[:, 0], x[:, 0], x[:, 1], x[:, 1])),
        y=np.column_stack((y[:, 0], own, own, y[:, 1])),
        link_rows=node_rows[n_rows + shown],
        child_rows=node_rows[children],
        leaves=np.asarray(leaves, np.int64),
        leaf_rows=node_rows[leaves],
        scale=scale,
    )


def _shown_merges(
    first: list[int], second: list[int], truncate_mode: str | None, p: int
) -> NDArray[np.bool_]:
    n_merges = len(first)
    n_rows = n_merges + 1
    if truncate_mode == "lastp":
        return np.arange(n_merges) > n_merges - p
    if truncate_mode is None:
        return np.ones(n_merges, bool)
    level = [0] * n_merges
    for merge in range(n_merges - 1, -1, -1):
        for child in (first[merge], second[merge]):
            if child >= n_rows:
                level[child - n_rows] = level[merge] + 1
    return np.asarray(level, np.int64) <= p

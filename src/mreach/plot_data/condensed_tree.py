"""The condensed tree as an icicle."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.plot_data.scale import Scale

__all__ = ["CondensedTreeData", "condensed_tree_bars", "condensed_tree_data"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

GAPS = 0.15
"""Space between the leaves of the condensed tree, all of it, as a part of the root's width."""


class CondensedTreeData(NamedTuple):
    """The condensed tree as an icicle: the root on top, width for rows, lambda down.

    Lambdas are places on ``scale``: finite, infinity replaced by ``scale.infinity``. A bar stands for a
    cluster between two lambdas. The clusters of a tree lie side by side and never overlap: below each cluster
    is a slot, wide enough for all that comes from it.

    Attributes
    ----------
    bar_cluster : int64 array of shape (n_bars,)
        Cluster, the root being 0.
    bar_center, bar_width, bar_start, bar_end : float64 arrays of shape (n_bars,)
        Place across, width, and lambda from and to.
    bar_rows : int64 array of shape (n_bars,)
        Number of rows in the cluster where the bar begins.
    split_left, split_right, split_lambda : float64 arrays of shape (n_splits,)
        Lines where a cluster breaks up into others, from the first child's middle to the last one's.
    left, right, birth, end : float64 arrays of shape (n_clusters,)
        Slot of each cluster, lambda of its birth, and the largest lambda in it and below it.
    label : int64 array of shape (n_clusters,)
        Label of a selected cluster and of those below it, else -1.
    selected : int64 array of shape (n_labels,)
        Cluster of each label.
    scale : Scale
    """

    bar_cluster: Integers
    bar_center: Floats
    bar_width: Floats
    bar_start: Floats
    bar_end: Floats
    bar_rows: Integers
    split_left: Floats
    split_right: Floats
    split_lambda: Floats
    left: Floats
    right: Floats
    birth: Floats
    end: Floats
    label: Integers
    selected: Integers
    scale: Scale


def condensed_tree_data(
    condensed: NDArray[np.void],
    selected: Integers | None = None,
    *,
    leaf_separation: float = 1.0,
    log_size: bool = False,
    log_lambda: bool = False,
    max_rectangles: int = 50,
) -> CondensedTreeData:
    """Lay out the condensed tree.

    Parameters
    ----------
    condensed : CONDENSED_DTYPE array
        Sorted by parent, then lambda_val. A cluster may have any number of children, a row any child_size.
    selected : int64 array of shape (n_labels,), optional
        Cluster of the tree behind each label.
    leaf_separation : float
        Space between leaves; 1: together 0.15 of the root's width.
    log_size : bool
        Width log(1 + rows) in place of the number of rows.
    log_lambda : bool
        A logarithmic axis: lambda 0, where the root begins, is drawn just above the smallest lambda.
    max_rectangles : int
        Bars a cluster has at most. A new one begins where the number of rows has fallen by at least 1 /
        max_rectangles of what the cluster was born with, so that no width is wrong by more than that.

    Returns
    -------
    CondensedTreeData
    """
    scale = Scale.of(condensed["lambda_val"], log_lambda)
    root = int(condensed["parent"][0]) if len(condensed) else 0
    cluster = condensed["parent"] - root
    is_cluster = condensed["child"] > root
    children, parents = condensed["child"][is_cluster] - root, cluster[is_cluster]
    n_clusters = (int(cluster[-1]) if len(cluster) else 0) + 1
    lambdas = scale.place(condensed["lambda_val"])
    birth, size = np.full(n_clusters, scale.start), np.zeros(n_clusters, np.int64)
    birth[children] = lambdas[is_cluster]
    size[children] = condensed["child_size"][is_cluster]
    size[0] = condensed["child_size"][cluster == 0].sum()
    bars = _bars(cluster, lambdas, condensed["child_size"], birth, size, max_rectangles)

    end = birth.copy()
    np.maximum.at(end, cluster, lambdas)
    parent = np.zeros(n_clusters, np.int64)
    parent[children] = parents
    _pass_up_maximum(end, parent)
    width = np.log1p(size) if log_size else size.astype(np.float64)
    left, right = _slots(width, size, parent, parents, leaf_separation)
    center = (left + right) / 2

    chosen = np.empty(0, np.int64) if selected is None else selected - root
    rows = bars["rows"]
    splitting = np.unique(parents)
    first, last = np.full(n_clusters, np.inf), np.full(n_clusters, -np.inf)
    np.minimum.at(first, parents, center[children])
    np.maximum.at(last, parents, center[children])
    split_lambda = np.zeros(n_clusters)
    split_lambda[parents] = birth[children]
    return CondensedTreeData(
        bar_cluster=bars["cluster"],
        bar_center=center[bars["cluster"]],
        bar_width=np.log1p(rows) if log_size else rows.astype(np.float64),
        bar_start=bars["start"],
        bar_end=bars["end"],
        bar_rows=rows,
        split_left=first[splitting],
        split_right=last[splitting],
        split_lambda=split_lambda[splitting],
        left=left,
        right=right,
        birth=birth,
        end=end,
        label=_pass_down_labels(chosen, parent),
        selected=chosen,
        scale=scale,
    )


def _bars(
    cluster: Integers, lambdas: Floats, leaving: Integers, birth: Floats, size: Integers, max_rectangles: int
) -> dict[str, Any]:
    """Return cluster, start, end and rows of each bar, by cluster and lambda."""
    is_new = np.r_[True, (cluster[1:] != cluster[:-1]) | (lambdas[1:] != lambdas[:-1])][: len(cluster)]
    steps = np.flatnonzero(is_new)  # a step: everything that leaves a cluster at one lambda
    of, until = cluster[steps], lambdas[steps]
    left_before = np.concatenate((np.zeros(1, np.int64), np.cumsum(leaving)))[steps]
    is_first = np.r_[True, of[1:] != of[:-1]][: len(of)]
    firsts = np.flatnonzero(is_first)
    rows = size[of] - (left_before - np.repeat(left_before[firsts], np.diff(np.r_[firsts, len(of)])))
    since = np.where(is_first, birth[of], np.r_[0.0, until[:-1]][: len(of)])
    fallen = ((size[of] - rows) * max_rectangles) // np.maximum(size[of], 1)
    begins = is_first | np.r_[True, fallen[1:] != fallen[:-1]][: len(of)]
    kept = np.flatnonzero(begins)
    end = until[np.r_[kept[1:], len(of)][: len(kept)] - 1]
    has_height = end > since[kept]
    kept, end = kept[has_height], end[has_height]
    return {"cluster": of[kept], "start": since[kept], "end": end, "rows": rows[kept]}


def _pass_up_maximum(values: Floats, parent: Integers) -> None:
    """Raise each cluster's value to the largest below it; a cluster's number is larger than its parent's."""
    listed, above = values.tolist(), parent.tolist()
    for one in range(len(listed) - 1, 0, -1):
        if listed[one] > listed[above[one]]:
            listed[above[one]] = listed[one]
    values[:] = listed


def _pass_down_labels(chosen: Integers, parent: Integers) -> Integers:
    label = [-1] * len(parent)
    for number, cluster in enumerate(chosen.tolist()):
        label[cluster] = number
    for one, above in enumerate(parent.tolist()):
        if label[one] < 0:
            label[one] = label[above]
    return np.asarray(label, np.int64)


def _slots(
    width: Floats, size: Integers, parent: Integers, parents: Integers, separation: float
) -> tuple[Floats, Floats]:
    """Return left and right of each cluster's slot; children by decreasing size, from left to right."""
    n_clusters = len(width)
    n_children = np.bincount(parents, minlength=n_clusters)
    n_leaves = int(np.count_nonzero(n_children == 0))
    gap = separation * GAPS * float(width[0]) / max(n_leaves - 1, 1)
    above, counts, slot = parent.tolist(), n_children.tolist(), width.tolist()
    inside = [gap * max(count - 1, 0) for count in counts]  # what the children of a cluster take
    for one in range(n_clusters - 1, 0, -1):
        slot[one] = max(slot[one], inside[one])
        inside[above[one]] += slot[one]
    slot[0] = max(slot[0], inside[0])
    left, free = [0.0] * n_clusters, [0.0] * n_clusters  # free: where the next child goes
    free[0] = (slot[0] - inside[0]) / 2
    # Parents have smaller numbers, but their children come by size: depth is the order that serves both.
    depth = [0] * n_clusters
    for one in range(1, n_clusters):
        depth[one] = depth[above[one]] + 1
    for one in np.lexsort((np.arange(n_clusters), -size, np.asarray(depth))).tolist()[1:]:
        left[one] = free[above[one]]
        free[above[one]] += slot[one] + gap
        free[one] = left[one] + (slot[one] - inside[one]) / 2
    lefts = np.asarray(left)
    return lefts, lefts + np.asarray(slot)


def condensed_tree_bars(condensed: NDArray[np.void], **options: Any) -> dict[str, Any]:
    """Return :func:`condensed_tree_data` under the names of hdbscan's ``get_plot_data``."""
    data = condensed_tree_data(condensed, **options)
    root = int(condensed["parent"][0]) if len(condensed) else 0
    bounds = np.column_stack((data.left, data.right, data.birth, data.end)).tolist()
    return {
        "bar_centers": data.bar_center.tolist(),
        "bar_tops": (data.bar_end - data.bar_start).tolist(),
        "bar_bottoms": data.bar_start.tolist(),
        "bar_widths": data.bar_width.tolist(),
        "line_xs": np.column_stack((data.split_left, data.split_right)).tolist(),
        "line_ys": np.column_stack((data.split_lambda, data.split_lambda)).tolist(),
        "cluster_bounds": {root + index: tuple(bound) for index, bound in enumerate(bounds)},
    }

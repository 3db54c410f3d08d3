"""The single linkage tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from mreach.plot_data import linkage_data
from mreach.plots.drawing import MOST_FRAMES, mark_infinity, open_axes, open_frame, strong_colors
from mreach.validation.plots import check_truncation, fitted_tree, one_axes, require


def single_linkage_tree(
    model: Any,
    ax: Any = None,
    *,
    truncate_mode: str | None = "lastp",
    p: int = 30,
    cmap: Any = None,
    colorbar: bool = True,
    vary_line_width: bool = True,
    label_leaves: bool | None = None,
    axis: Any = None,
) -> Any:
    """Draw the last merges of the single linkage tree as a dendrogram.

    Merges at infinity (rows that are not finite, parts of a graph that falls apart) are drawn at a dashed
    line above the largest finite distance, marked by the sign of infinity.

    Parameters
    ----------
    model : HDBSCAN or SingleLinkageTree
        A fitted model or its ``single_linkage_tree_``.
    ax : matplotlib Axes, default=None
        Where to draw; None: in a new figure.
    truncate_mode : {"lastp", "level", None}, default="lastp"
        "lastp": the tree down to ``p`` leaves. "level": merges with at most ``p`` merges between them and the
        last. None: all.
    p : int, default=30
        At least 1.
    cmap : str or matplotlib Colormap, default=None
        Colours for the number of rows, on a logarithmic scale. None: from green to dark blue.
    colorbar : bool, default=True
        Whether to draw that scale beside the axes.
    vary_line_width : bool, default=True
        Whether lines are wider for more rows (by the logarithm).
    label_leaves : bool, default=None
        Whether to write below each leaf which row it is, or, in parentheses, how many it stands for. None:
        where there are at most 40.
    axis : matplotlib Axes, default=None
        hdbscan's name for ``ax``.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        Without matplotlib.
    ValueError, TypeError
        Options out of range; a model before its fit (NotFittedError).
    """
    tree = fitted_tree(model, "single_linkage_tree_")
    data = linkage_data(np.asarray(tree), *check_truncation(truncate_mode, p))
    colors = require("matplotlib.colors", "plot")
    collections = require("matplotlib.collections", "plot")
    ax = open_axes(one_axes(ax, axis))

    # The two sides of a link stand for the two nodes, the bar between them for both together.
    x, y = data.x, data.y
    right = np.stack((x[:, [2, 3]], y[:, [2, 3]]), axis=2)
    across = np.stack((x[:, [1, 2]], y[:, [1, 2]]), axis=2)
    left = np.stack((x[:, [0, 1]], y[:, [0, 1]]), axis=2)
    rows = np.concatenate((data.link_rows, data.child_rows[:, 0], data.child_rows[:, 1]))
    most = max(int(rows.max(initial=1)), 2)
    width = 0.7 + 2 * np.log(rows) / np.log(most) if vary_line_width else 1.2
    lines = collections.LineCollection(np.concatenate((across, left, right)), linewidths=width)
    lines.set(array=rows, cmap=strong_colors(cmap), norm=colors.LogNorm(1, most))
    lines.set_capstyle("projecting")
    ax.add_collection(lines, autolim=False)
    ax.set_xlim(0, 10 * len(data.leaves))
    ax.set_ylim(0, data.scale.infinity)
    if data.scale.has_infinity:
        mark_infinity(ax, data.scale, horizontal=True)
    n_leaves = len(data.leaves)
    if label_leaves if label_leaves is not None else n_leaves <= MOST_FRAMES:
        pairs = zip(data.leaves.tolist(), data.leaf_rows.tolist(), strict=True)
        names = [str(node) if count == 1 else f"({count})" for node, count in pairs]
        ax.set_xticks(10 * np.arange(n_leaves) + 5, names, rotation=90, fontsize="small")
    else:
        ax.set_xticks([])
    ax.tick_params(axis="x", length=0)
    ax.set_xlabel("row, or (number of rows)")
    ax.set_ylabel("mutual reachability distance")
    if colorbar and len(rows):
        ax.figure.colorbar(lines, ax=ax, label="number of rows")
    open_frame(ax)
    return ax

"""The condensed tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from mreach.plot_data import condensed_tree_data
from mreach.plots.drawing import (
    FRAME,
    LAMBDA,
    MOST_FRAMES,
    NEUTRAL,
    mark_infinity,
    open_axes,
    open_frame,
    palette_of,
)
from mreach.validation.parameters import boolean_of
from mreach.validation.plots import check_icicle, fitted_tree, one_axes, require


def condensed_tree(
    model: Any,
    ax: Any = None,
    *,
    cmap: Any = "viridis",
    colorbar: bool = True,
    select_clusters: bool | None = None,
    label_clusters: bool | None = None,
    selection_palette: Any = None,
    log_size: bool = False,
    log_lambda: bool = False,
    leaf_separation: float = 1.0,
    max_rectangles_per_icicle: int = 50,
    axis: Any = None,
) -> Any:
    """Draw the condensed tree as an icicle: the root on top, density downwards, width for the number of rows.

    A cluster may break up into any number of others. Where rows leave at infinite lambda (equal rows), the
    cluster reaches down to a dashed line beyond the largest finite lambda, marked by the sign of infinity.

    Parameters
    ----------
    model : HDBSCAN or CondensedTree
        A fitted model or its ``condensed_tree_``.
    ax : matplotlib Axes, default=None
        Where to draw; None: in a new figure.
    cmap : str or matplotlib Colormap, default="viridis"
        Colours for the number of rows. None: grey, and each selected cluster, with what lies below it, in the
        colour of its label.
    colorbar : bool, default=True
        Whether to draw the scale of ``cmap`` beside the axes.
    select_clusters : bool, default=None
        Whether to frame the selected clusters, with what lies below them. None: where there are at most 40.
    label_clusters : bool, default=None
        Whether to write the labels below the frames. None: where there are at most 40.
    selection_palette : sequence of colours, default=None
        Colours of the labels, used in turn. None: seven colours that do not depend on colour vision.
    log_size : bool, default=False
        Widths and colours by the logarithm of the number of rows, to see small clusters beside large ones.
    log_lambda : bool, default=False
        A logarithmic axis. The root begins at lambda 0, drawn just above the smallest lambda.
    leaf_separation : float, default=1.0
        Space between clusters.
    max_rectangles_per_icicle : int, default=50
        Steps in which a cluster narrows. No width is wrong by more than a part in so many of its largest.
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
    tree = fitted_tree(model, "condensed_tree_")
    options = check_icicle(leaf_separation, log_size, max_rectangles_per_icicle)
    boolean_of("log_lambda", log_lambda)
    selected = getattr(tree, "selected", None)
    data = condensed_tree_data(np.asarray(tree), selected, log_lambda=log_lambda, **options)
    colors = require("matplotlib.colors", "plot")
    collections = require("matplotlib.collections", "plot")
    ax = open_axes(one_axes(ax, axis))

    palette = palette_of(selection_palette)
    half = data.bar_width / 2
    left, right = data.bar_center - half, data.bar_center + half
    corners = ((left, data.bar_start), (right, data.bar_start), (right, data.bar_end), (left, data.bar_end))
    bars = collections.PolyCollection(
        np.stack([np.column_stack(corner) for corner in corners], axis=1), linewidths=0.4
    )
    if cmap is None:
        label = data.label[data.bar_cluster]
        fill = np.concatenate(([colors.to_rgba(one) for one in palette], [colors.to_rgba(NEUTRAL)]))
        bars.set_facecolor(fill[np.where(label < 0, len(palette), label % len(palette))])
    else:
        most = max(int(data.bar_rows.max(initial=1)), 2)
        bars.set(array=data.bar_rows, cmap=cmap)
        bars.set_norm(colors.LogNorm(1, most) if log_size else colors.Normalize(0, most))
    bars.set_edgecolor("face")  # no white seams between bars, and a thin bar stays visible
    ax.add_collection(bars, autolim=False)
    at = np.stack((data.split_left, data.split_right), axis=1)
    splits = np.stack((at, np.stack((data.split_lambda, data.split_lambda), axis=1)), axis=2)
    ax.add_collection(
        collections.LineCollection(splits, colors="0.35", linewidths=0.8, zorder=0.9), autolim=False
    )

    bottom = float(data.end[0])
    _set_icicle_limits(ax, data, bottom)
    if data.scale.has_infinity:
        mark_infinity(ax, data.scale, horizontal=True)
    few = len(data.selected) <= MOST_FRAMES
    if few if select_clusters is None else select_clusters:
        _frame_selected(ax, data, collections, wide=cmap is not None)
        if few if label_clusters is None else label_clusters:
            _write_labels(ax, data)
    if not len(data.bar_rows):
        ax.text(0.5, 0.5, "one row", transform=ax.transAxes, ha="center", va="center", color="0.35")
    if cmap is not None and colorbar and len(data.bar_rows):
        ax.figure.colorbar(bars, ax=ax, label="number of rows")
    ax.set_ylabel(LAMBDA)
    ax.set_xlabel("width: log(1 + number of rows)" if log_size else "width: number of rows")
    return ax


def _set_icicle_limits(ax: Any, data: Any, bottom: float) -> None:
    width = max(float(data.right[0] - data.left[0]), 1.0)
    ax.set_xlim(data.left[0] - 0.03 * width, data.right[0] + 0.03 * width)
    if data.scale.is_log:
        ax.set_yscale("log")
    # Room for the labels below the frames.
    scale = data.scale
    below = bottom * (bottom / scale.start) ** 0.09 if scale.is_log else bottom + 0.09 * bottom
    ax.set_ylim(below if below > scale.start else scale.infinity, scale.start)
    ax.set_xticks([])
    open_frame(ax)
    ax.spines["bottom"].set_visible(False)


def _frame_selected(ax: Any, data: Any, collections: Any, *, wide: bool) -> None:
    """Frame each selected cluster with what lies below it."""
    at = data.selected
    left, right, top, bottom = data.left[at], data.right[at], data.birth[at], data.end[at]
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    frames = collections.PolyCollection(
        np.stack([np.column_stack(corner) for corner in corners], axis=1),
        facecolors="none",
        edgecolors=FRAME if wide else "0.2",
        linewidths=1.4 if wide else 0.7,
        zorder=3,
    )
    ax.add_collection(frames, autolim=False)


def _write_labels(ax: Any, data: Any) -> None:
    """Write the label of each selected cluster under its frame."""
    how = {"textcoords": "offset points", "ha": "center", "va": "top", "fontsize": "small"}
    for label, cluster in enumerate(data.selected.tolist()):
        middle = (data.left[cluster] + data.right[cluster]) / 2
        ax.annotate(str(label), (middle, data.end[cluster]), (0, -3), **how)

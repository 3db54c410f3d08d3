"""The minimum spanning tree over rows in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.plot_data import spanning_tree_data
from mreach.plots.drawing import NEUTRAL, PALETTE, open_axes, strong_colors
from mreach.validation.parameters import boolean_of, real_of
from mreach.validation.plots import check_labels, check_points, fitted_tree, one_axes, require


def minimum_spanning_tree(
    model: Any,
    ax: Any = None,
    *,
    X: Any = None,
    labels: Any = None,
    cmap: Any = None,
    colorbar: bool = True,
    vary_line_width: bool = True,
    node_size: float = 12.0,
    log_distance: bool = True,
    axis: Any = None,
    edge_cmap: Any = None,
    edge_alpha: float = 1.0,
    edge_linewidth: float = 2.2,
    node_color: Any = None,
    node_alpha: float = 1.0,
) -> Any:
    """Draw the minimum spanning tree over rows in the plane.

    Rows that are not finite are left out. Edges of infinite weight are dotted.

    Parameters
    ----------
    model : HDBSCAN or MinimumSpanningTree
        A fitted model or its ``minimum_spanning_tree_``.
    ax : matplotlib Axes, default=None
        Where to draw; None: in a new figure.
    X : array-like of shape (n_samples, 2), default=None
        Where the rows lie. None: the rows of the fit, if they have two features and are at hand. For rows of
        more features (or one) pass two columns made of them; the tree stays that of the fit.
    labels : int array-like of shape (n_samples,), default=None
        Colours the rows: ``model.labels_``, for example. None: the labels of a model given, none for a tree.
    cmap : str or matplotlib Colormap, default=None
        Colours of the edges by weight. None: from green (short) to dark blue (long).
    colorbar : bool, default=True
        Whether to draw the scale of the weights beside the axes.
    vary_line_width : bool, default=True
        Whether short edges are wider.
    node_size : float, default=12.0
        Area of a row's mark, in points squared; 0 for none.
    log_distance : bool, default=True
        Colours by the logarithm of the weight; weights of 0 count as the smallest other.
    axis : matplotlib Axes, default=None
        hdbscan's name for ``ax``.
    edge_cmap : str or matplotlib Colormap, default=None
        hdbscan's name for ``cmap``.
    edge_alpha, node_alpha : float, default=1.0
        How opaque edges and rows are, from 0 to 1.
    edge_linewidth : float, default=2.2
        Width of the widest edges, in points.
    node_color : matplotlib colour, default=None
        Of all rows, in place of the colours of the labels.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        Without matplotlib.
    ValueError, TypeError
        Rows without two columns; not as many as were fitted; a model before its fit (NotFittedError).
    """
    tree = fitted_tree(model, "minimum_spanning_tree_")
    size = real_of("node_size", node_size, "; 0 draws no marks")
    width = real_of("edge_linewidth", edge_linewidth, "; in points")
    if labels is None and tree is not model:
        labels = model.labels_
    points = check_points(X, np.asarray(tree), getattr(tree, "rows", None))
    labels = check_labels(labels, len(points))
    data = spanning_tree_data(np.asarray(tree), points)
    colors = require("matplotlib.colors", "plot")
    collections = require("matplotlib.collections", "plot")
    ax = open_axes(one_axes(ax, axis))

    is_finite = np.isfinite(data.weights)
    weights = data.weights[is_finite]
    norm, shade = _weight_norm(weights, log_distance, colors)
    edges = collections.LineCollection(
        data.segments[is_finite],
        linewidths=width * (1 - 0.73 * shade if vary_line_width else 0.55),
        cmap=strong_colors(edge_cmap if cmap is None else cmap),
        alpha=edge_alpha,
        norm=norm,
        zorder=1,
    )
    edges.set_array(weights)
    ax.add_collection(edges)
    ax.add_collection(
        collections.LineCollection(data.segments[~is_finite], colors="0.5", linestyles="dotted", zorder=0.9)
    )
    if size > 0:
        fill = "black" if labels is None else _label_colors(labels[data.rows], colors)
        fill = fill if node_color is None else node_color
        ax.scatter(*data.points.T, s=size, c=fill, alpha=node_alpha, linewidths=0, zorder=2)
    ax.autoscale_view()
    ax.set_aspect("equal", adjustable="box")
    ax.set_xlabel("first column (unit of the data)")
    ax.set_ylabel("second column (unit of the data)")
    if colorbar and len(weights):
        ax.figure.colorbar(edges, ax=ax, label="mutual reachability distance")
    return ax


def _weight_norm(weights: NDArray[np.float64], is_log: bool, colors: Any) -> tuple[Any, NDArray[np.float64]]:
    """Return the scale of colours for finite weights, and where on it, from 0 to 1, each lies."""
    positive = weights[weights > 0]
    if not len(positive) or positive.min() == weights.max():
        return colors.Normalize(0, float(weights.max(initial=0)) or 1.0), np.zeros(len(weights))
    low, high = float(positive.min()), float(positive.max())
    if boolean_of("log_distance", is_log):
        place = (np.log(np.maximum(weights, low)) - np.log(low)) / (np.log(high) - np.log(low))
        return colors.LogNorm(low, high, clip=True), place
    return colors.Normalize(0, high), weights / high


def _label_colors(labels: NDArray[np.int64], colors: Any) -> NDArray[np.float64]:
    fill = np.array([colors.to_rgba(one) for one in (*PALETTE, NEUTRAL)])
    return fill[np.where(labels < 0, len(PALETTE), labels % len(PALETTE))]

"""How clusters lose their rows as the density rises."""

from __future__ import annotations

from typing import Any

from mreach.plot_data import cluster_profile_data
from mreach.plots.drawing import LAMBDA, mark_infinity, open_axes, open_frame, palette_of
from mreach.validation.parameters import boolean_of, integer_of
from mreach.validation.plots import fitted_tree, require


def cluster_profile(
    model: Any,
    ax: Any = None,
    *,
    log_lambda: bool = False,
    max_clusters: int = 20,
    selection_palette: Any = None,
) -> Any:
    """Draw at which densities each cluster holds how many of its rows.

    A band for each cluster, in the order of the labels, from the lambda of its birth to that where its last
    rows leave; its thickness is the part of its rows that is left. A dot marks where half of them are. Long
    and thick: a cluster that lasts. Thin soon: a dense core in a loose surrounding. On the right: number of
    rows, persistence, mean probability.

    Parameters
    ----------
    model : HDBSCAN
        A fitted model.
    ax : matplotlib Axes, default=None
        Where to draw; None: in a new figure.
    log_lambda : bool, default=False
        A logarithmic axis.
    max_clusters : int, default=20
        The largest are drawn; the axis says how many there are.
    selection_palette : sequence of colours, default=None
        Colours of the labels, used in turn.

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
    fitted_tree(model, "labels_")  # a tree alone does not do
    shown = integer_of("max_clusters", max_clusters, 1)
    data = cluster_profile_data(model, boolean_of("log_lambda", log_lambda))
    require("matplotlib", "plot")
    ax = open_axes(ax)
    palette = palette_of(selection_palette)
    n_clusters = len(data.rows)
    drawn = min(shown, n_clusters)
    for label in range(drawn):
        curve = slice(data.starts[label], data.starts[label + 1])
        left = data.left[curve]
        half = 0.42 * left / left[0]
        color = palette[label % len(palette)]
        x = data.scale.place(data.lambdas[curve])
        ax.fill_between(x, label - half, label + half, step="post", color=color, linewidth=0.5)
        ax.plot(data.scale.place(data.half[label : label + 1]), [label], "o", color="black", markersize=3)
        text = f"{data.rows[label]} rows, {data.persistence[label]:.2f}, {data.probability[label]:.2f}"
        ax.text(1.02, label, text, transform=ax.get_yaxis_transform(), va="center", fontsize="small")
    ax.set_ylim(max(drawn, 1) - 0.5, -0.5)
    ax.set_yticks(range(drawn))
    ax.set_ylabel("cluster" if drawn == n_clusters else f"cluster (the {drawn} largest of {n_clusters})")
    if data.scale.is_log:
        ax.set_xscale("log")
    # A little room beyond infinity, for the dots there.
    room = (data.scale.infinity - data.scale.start) * 0.02
    ax.set_xlim(data.scale.start, data.scale.infinity + room)
    if data.scale.has_infinity:
        mark_infinity(ax, data.scale, horizontal=False)
    ax.set_xlabel(LAMBDA)
    if drawn:
        title = "rows, persistence, mean probability"
        above = 14 if data.scale.has_infinity else 2  # its sign stands there
        how = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
        ax.annotate(title, (1.02, 1.0), (0, above), fontsize="small", color="0.35", **how)
    else:
        ax.text(0.5, 0.5, "no clusters", transform=ax.transAxes, ha="center", va="center", color="0.35")
    open_frame(ax)
    return ax

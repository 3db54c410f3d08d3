"""What the pictures share."""

from __future__ import annotations

from typing import Any

import numpy as np

from mreach.plot_data import Scale
from mreach.validation.plots import require

PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#D55E00", "#0072B2", "#CC79A7", "#F0E442")
"""Colours of Okabe and Ito, which people see apart whatever their colour vision; used in turn for labels."""

NEUTRAL = "#B8B8B8"
"""What has no label."""

FRAME = "#D55E00"
"""Of selected clusters, over the colours of numbers of rows."""

MOST_FRAMES = 40
"""More clusters, or leaves, are not marked one by one unless asked for: they would cover each other."""

LAMBDA = "lambda = 1 / distance"


def open_axes(ax: Any) -> Any:
    """Return the axes given, or those of a new figure."""
    return require("matplotlib.pyplot", "plot").subplots(layout="constrained")[1] if ax is None else ax


def palette_of(given: Any) -> list[Any]:
    return list(given) if given is not None and len(given) else list(PALETTE)


def strong_colors(cmap: Any) -> Any:
    """Return the colour map given, or a map from light to dark without colours that are lost on white."""
    if cmap is not None:
        return cmap
    whole = require("matplotlib", "plot").colormaps["viridis_r"]
    return require("matplotlib.colors", "plot").ListedColormap(whole(np.linspace(0.18, 1, 256)), "strong")


def open_frame(ax: Any) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def mark_infinity(ax: Any, scale: Scale, *, horizontal: bool) -> None:
    """Draw a dashed line where infinity lies, with its sign."""
    style = {"color": "0.35", "linestyle": (0, (4, 3)), "linewidth": 0.8, "zorder": 0.8}
    if horizontal:
        ax.axhline(scale.infinity, **style)
        place, how = (
            (1.0, scale.infinity),
            {"transform": ax.get_yaxis_transform(), "ha": "left", "va": "center"},
        )
    else:
        ax.axvline(scale.infinity, **style)
        place, how = (
            (scale.infinity, 1.0),
            {"transform": ax.get_xaxis_transform(), "ha": "center", "va": "bottom"},
        )
    ax.text(*place, r"$\infty$", color="0.2", fontsize="large", clip_on=False, **how)

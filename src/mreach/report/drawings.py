"""Drawings as SVG, which takes its colours from the page, light or dark, and prints sharp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.plot_data import condensed_tree_data

__all__ = ["N_COLOURS", "colour_class", "density_tree", "histogram", "panel"]

N_COLOURS = 7
"""Colours of the style sheet, used in turn for labels."""

MOST_STEPS = 40
"""Steps in which a cluster narrows in the drawing of the tree."""

LEAST_DRAWN = 0.15
"""Pixels; what is narrower or flatter is left out of the tree, which stays small for a million rows."""

MOST_NAMED = 40
"""Clusters that are named in the drawing of the tree: more names cover each other."""


def colour_class(label: int) -> str:
    """Return the class of the style sheet that colours a label."""
    return "none" if label < 0 else f"c{label % N_COLOURS}"


def panel(
    line: NDArray[np.float64],
    limits: tuple[float, float],
    name: str,
    *,
    spread: NDArray[np.float64] | None = None,
    label: int = -1,
    width: int = 220,
    height: int = 130,
) -> str:
    """Draw one waveform.

    Parameters
    ----------
    line : float64 array of shape (n_timepoints,)
    limits : tuple of float
        Lower and upper end of the vertical axis.
    name : str
        What a screen reader says.
    spread : float64 array of shape (n_timepoints,), optional
        A band of that half width is drawn around the line.
    label : int
        Cluster whose colour it gets.
    """
    low, high = limits
    x = np.linspace(4, width - 4, len(line)) if len(line) > 1 else np.array([width / 2])
    scale = (height - 8) / (high - low)

    def y(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return height - 4 - (values - low) * scale

    parts = []
    if low < 0 < high:
        zero = float(y(np.zeros(1))[0])
        parts.append(f'<line class="zero" x1="0" x2="{width}" y1="{zero:.1f}" y2="{zero:.1f}"/>')
    if spread is not None:
        outline = np.r_[y(line + spread), y(line - spread)[::-1]]
        parts.append(
            f'<polygon class="band {colour_class(label)}" points="{_points(np.r_[x, x[::-1]], outline)}"/>'
        )
    parts.append(f'<polyline class="mean" points="{_points(x, y(line))}"/>')
    return _svg(width, height, name, parts)


def histogram(groups: Sequence[tuple[str, NDArray[np.float64], str]], name: str, axis: str) -> str:
    """Draw how often which number from 0 to 1 occurs, one group beside the other, on a logarithmic axis.

    Parameters
    ----------
    groups : sequence of (name, values, class of the style sheet)
    name : str
        What a screen reader says.
    axis : str
        What the numbers are.
    """
    width, height, left, bottom, top = 640, 220, 52, 40, 26
    n_bins = 40
    counts = [np.histogram(values, bins=n_bins, range=(0, 1))[0] for _, values, _ in groups]
    most = max(1, max(int(one.max(initial=0)) for one in counts))
    whole = math.log10(most) + 1.0  # a count of 1 has a height, too
    tall = height - bottom - top

    def y(count: float) -> float:
        return height - bottom - (tall * (math.log10(count) + 0.5) / whole if count else 0.0)

    parts = []
    for power in range(int(math.log10(most)) + 1):
        at = y(10**power)
        parts.append(f'<line class="grid" x1="{left}" x2="{width - 8}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick end" x="{left - 6}" y="{at + 4:.1f}">{10**power}</text>')
    slot = (width - 8 - left) / n_bins
    each = slot * 0.84 / len(groups)
    for number, (count, (_, _, colour)) in enumerate(zip(counts, groups, strict=True)):
        bars = []
        for place, one in enumerate(count.tolist()):
            if one:
                x = left + place * slot + slot * 0.08 + number * each
                bars.append(f"M{x:.1f} {height - bottom}V{y(one):.1f}h{each:.1f}V{height - bottom}z")
        parts.append(f'<path class="fill {colour}" d="{"".join(bars)}"/>')
    for tick in (0, 0.25, 0.5, 0.75, 1):
        at = left + tick * (width - 8 - left)
        parts.append(f'<text class="tick middle" x="{at:.1f}" y="{height - bottom + 16}">{tick:g}</text>')
    parts.append(
        f'<text class="tick middle" x="{(left + width) / 2:.0f}" y="{height - 6}">{escape(axis)}</text>'
    )
    x = left
    for group, _, colour in groups:
        parts.append(f'<rect class="fill {colour}" x="{x}" y="6" width="11" height="11"/>')
        parts.append(f'<text class="tick" x="{x + 16}" y="16">{escape(group)}</text>')
        x += 40 + 7 * len(group)
    return _svg(width, height, name, parts)


def density_tree(condensed: NDArray[np.void], selected: NDArray[np.int64], name: str) -> str:
    """Draw the condensed tree: the root on top, density downwards, width for the number of rows.

    Parameters
    ----------
    condensed : CONDENSED_DTYPE array
        Not empty.
    selected : int64 array of shape (n_labels,)
        The cluster of the tree behind each label.
    name : str
        What a screen reader says.
    """
    width, height, left, top, bottom = 860, 420, 64, 12, 34
    tree = condensed_tree_data(condensed, selected, log_lambda=True, max_rectangles=MOST_STEPS)
    scale = tree.scale
    deepest = max(float(tree.end.max()), np.nextafter(scale.start, np.inf))
    if scale.is_log:
        first, span = math.log(scale.start), math.log(deepest) - math.log(scale.start)
    else:
        first, span = scale.start, deepest - scale.start
    wide = max(float((tree.right - tree.left)[0]), 1.0)

    def x(places: Any) -> Any:
        return left + (places - tree.left[0]) / wide * (width - left - 8)

    def y(lambdas: Any) -> Any:
        moved = np.log(lambdas) if scale.is_log else lambdas
        return top + (moved - first) / span * (height - top - bottom)

    parts = _tree_axis(scale, deepest, y, width, left)
    start, end = y(tree.bar_start), y(tree.bar_end)
    half = tree.bar_width / 2
    lefts, rights = x(tree.bar_center - half), x(tree.bar_center + half)
    is_drawn = (rights - lefts >= LEAST_DRAWN) & (end - start >= LEAST_DRAWN)
    bars: dict[str, list[str]] = {}
    for one in np.flatnonzero(is_drawn).tolist():
        wide_bar = max(rights[one] - lefts[one], 0.4)
        bar = f"M{lefts[one]:.1f} {start[one]:.1f}h{wide_bar:.1f}V{end[one]:.1f}h{-wide_bar:.1f}z"
        bars.setdefault(colour_class(int(tree.label[tree.bar_cluster[one]])), []).append(bar)
    splits = zip(x(tree.split_left), x(tree.split_right), y(tree.split_lambda), strict=True)
    lines = "".join(f"M{one:.1f} {at:.1f}H{other:.1f}" for one, other, at in splits if other - one >= 0.5)
    parts.append(f'<path class="split" d="{lines}"/>')
    parts += [f'<path class="fill {colour}" d="{"".join(some)}"/>' for colour, some in sorted(bars.items())]
    for label, cluster in enumerate(tree.selected[:MOST_NAMED].tolist()):
        middle = float(x((tree.left[cluster] + tree.right[cluster]) / 2))
        low = float(y(tree.end[cluster]))
        parts.append(f'<text class="tick middle strong" x="{middle:.1f}" y="{low + 13:.1f}">{label}</text>')
    return _svg(width, height, name, parts)


def _tree_axis(scale: Any, deepest: float, y: Any, width: int, left: int) -> list[str]:
    """Return lines and numbers for distances, which people know, at places of lambda = 1 / distance."""
    parts = []
    if not scale.is_log:
        ticks: list[float] = []
    else:
        powers = range(math.floor(math.log10(1 / deepest)) - 1, math.ceil(math.log10(1 / scale.start)) + 2)
        ticks = [factor * 10.0**power for power in powers for factor in (1, 1.5, 2, 3, 5, 7)]
        top = scale.infinity if scale.has_infinity else deepest
        ticks = [one for one in ticks if scale.start <= 1 / one < top]
    for tick in ticks:
        at = float(y(1 / tick))
        parts.append(f'<line class="grid" x1="{left - 4}" x2="{width - 8}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick end" x="{left - 8}" y="{at + 4:.1f}">{tick:g}</text>')
    if scale.has_infinity:
        at = float(y(scale.infinity))
        parts.append(f'<line class="grid" x1="{left - 4}" x2="{width - 8}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick end" x="{left - 8}" y="{at + 4:.1f}">0</text>')
    parts.append('<text class="tick middle" transform="translate(14 200) rotate(-90)">distance</text>')
    return parts


def _points(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    return " ".join(f"{one:.1f},{other:.1f}" for one, other in zip(x.tolist(), y.tolist(), strict=True))


def _svg(width: int, height: int, name: str, parts: list[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(name)}">{"".join(parts)}</svg>'
    )

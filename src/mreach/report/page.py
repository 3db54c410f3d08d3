"""The sections of a report."""

from __future__ import annotations

import datetime
import platform
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.report.drawings import colour_class, density_tree, histogram, panel

__all__ = ["report_html"]

MOST_IN_TABLE = 40
"""Clusters in the table, the largest ones: the others are in summary.json."""

MOST_WAVEFORMS = 24
"""Clusters whose mean waveform is drawn."""

MOST_OUTLIERS = 12
"""Outliers that are drawn."""

MOST_TIMEPOINTS = 400
"""Points of a drawn waveform; of longer clips every second, third, ... one is drawn."""

ROWS_AT_ONCE = 50_000
"""Clips that means are taken over at a time, in float64."""


def report_html(model: Any, data: Any, summary: dict[str, Any]) -> str:
    """Return a report as the text of an HTML page.

    Parameters
    ----------
    model : HDBSCAN
        Fitted.
    data : array of shape (n_samples, n_features)
        What it was fitted to; read in pieces.
    summary : dict
        What ``mreach ... --json`` prints: ``command`` ("clips": rows are waveforms, and noise is called
        outliers), ``input`` (``path``, ``shape``, ``dtype``), ``clusters``, ``parameters``, ``backend``,
        ``seconds``, counts.

    Returns
    -------
    str
    """
    clips = summary["command"] == "clips"
    noun, outside = ("clips", "outliers") if clips else ("rows", "noise")
    name = str(summary["input"]["path"])
    n_clusters = summary["n_clusters"]
    title = f"{name}: {n_clusters} {'cluster' if n_clusters == 1 else 'clusters'}"
    sections = [
        f"<h1>{escape(title)}</h1>",
        _overview(summary, noun, outside),
        _clusters(summary, noun),
        _waveforms(model, data, summary) if clips else "",
        _outliers(model, data, noun, outside),
        _tree(model, noun),
        _how(model, summary),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # The browser itself sees to it that nothing is loaded.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        f'<link rel="icon" href="data:,">\n<title>{escape(title)} - mreach</title>\n'
        f"<style>{_style()}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(sections)
        + "\n</main>\n</body>\n</html>\n"
    )


def _style() -> str:
    return (files("mreach.report") / "style.css").read_text(encoding="utf-8")


def _overview(summary: dict[str, Any], noun: str, outside: str) -> str:
    n_rows, n_columns = summary["input"]["shape"]
    n_inside = sum(one["n_rows"] for one in summary["clusters"])
    n_outside = n_rows - n_inside
    tiles = [
        (f"{n_rows:,}", noun),
        (f"{summary['n_clusters']:,}", "cluster" if summary["n_clusters"] == 1 else "clusters"),
        (f"{summary.get('n_kept', n_inside):,}", "kept" if noun == "clips" else "in clusters"),
        (f"{n_outside:,}", outside),
        (_seconds(summary["seconds"]["fit"]), "time of the fit"),
        (summary["backend"], "backend"),
    ]
    of = "samples" if noun == "clips" else "features"
    text = (
        f"{n_inside:,} of {n_rows:,} {noun} ({n_inside / n_rows:.1%}) are in a cluster, {n_outside:,} "
        "in none."
    )
    reasons = [(summary["n_infinite"], "an infinity"), (summary["n_nan"], "a NaN")]
    for count, what in reasons:
        if count:
            text += f" With {what}: {count:,}."
    listed = "".join(
        f'<li class="tile"><b>{escape(value)}</b><span>{name}</span></li>' for value, name in tiles
    )
    warning = "" if n_inside else _warning(summary, noun)
    return (
        f'<p class="soft">{noun.capitalize()} of {n_columns} {of}, {escape(summary["input"]["dtype"])}, '
        f"clustered by HDBSCAN.</p>\n"
        f'<ul class="tiles">{listed}</ul>\n<p>{text}</p>{warning}'
    )


def _warning(summary: dict[str, Any], noun: str) -> str:
    size = summary["parameters"]["min_cluster_size"]
    return (
        '<p class="warning" role="note">No cluster was found: nothing splits into two groups of at '
        f"least {size} {noun}. A smaller min_cluster_size finds smaller ones; allow_single_cluster lets all "
        f"{noun} be one.</p>"
    )


def _clusters(summary: dict[str, Any], noun: str) -> str:
    found = summary["clusters"]
    if not found:
        return ""
    n_rows = summary["input"]["shape"][0]
    largest = max(one["n_rows"] for one in found)
    rows = []
    for one in found[:MOST_IN_TABLE]:
        colour = colour_class(one["label"])
        rows.append(
            f'<tr><th scope="row"><span class="swatch {colour}"></span>{one["label"]}</th>'
            f'<td class="n">{one["n_rows"]:,}</td><td class="n">{one["n_rows"] / n_rows:.1%}</td>'
            f'<td class="bar"><i class="{colour}" '
            f'style="width:{100 * one["n_rows"] / largest:.1f}%"></i></td>'
            f'<td class="n">{one["persistence"]:.3f}</td>'
            f'<td class="bar"><i style="width:{100 * one["persistence"]:.1f}%"></i></td>'
            f'<td class="n">{one["mean_probability"]:.2f}</td></tr>'
        )
    more = len(found) - MOST_IN_TABLE
    rest = f" The {more:,} smaller ones are in summary.json." if more > 0 else ""
    return (
        "<h2>Clusters</h2>\n"
        '<div class="wide"><table><caption>By decreasing size. Persistence, from 0 to 1: how long a '
        "cluster lasts "
        "while the density that is asked for grows. Probability: mean over the cluster of how strongly its "
        f"{noun} belong to it.{rest}</caption>"
        f'<thead><tr><th scope="col">label</th><th scope="col" class="n">{noun}</th>'
        '<th scope="col" class="n">share</th><td></td><th scope="col" class="n">persistence</th><td></td>'
        f'<th scope="col" class="n">probability</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _waveforms(model: Any, data: Any, summary: dict[str, Any]) -> str:
    drawn = summary["clusters"][:MOST_WAVEFORMS]
    if not drawn:
        return ""
    mean, spread = _means(data, model.labels_, len(drawn))
    mean, spread = _fewer(mean), _fewer(spread)
    limits = _limits(np.concatenate((mean - spread, mean + spread)))
    figures = []
    for one, line, band in zip(drawn, mean, spread, strict=True):
        label, count = one["label"], one["n_rows"]
        name = (
            f"Mean waveform of cluster {label} with its spread, {count} clips, from {line.min():.3g} "
            f"to {line.max():.3g}"
        )
        figures.append(
            f'<figure class="panel">{panel(line, limits, name, spread=band, label=label)}'
            f"<figcaption><b>cluster {label}</b><span>{count:,} clips</span></figcaption></figure>"
        )
    more = len(summary["clusters"]) - len(drawn)
    rest = f" The {len(drawn)} largest of {len(drawn) + more} clusters." if more else ""
    return (
        "<h2>Mean waveforms</h2>\n"
        "<p>Mean of the clips of each cluster; the band is one standard deviation to either side. All "
        "panels "
        f"have one vertical scale, from {limits[0]:.3g} to {limits[1]:.3g}, over {data.shape[1]} "
        f"samples.{rest}</p>\n"
        f'<div class="panels">{"".join(figures)}</div>'
    )


def _outliers(model: Any, data: Any, noun: str, outside: str) -> str:
    labels, scores = model.labels_, model.outlier_scores_
    finite = labels >= -1
    inside, noise = scores[labels >= 0], scores[labels == -1]
    picture = histogram(
        [(f"{noun} in clusters", inside, "c4"), (outside, noise, "c3")],
        f"How many {noun} have which outlier score: {len(inside)} in clusters, {len(noise)} {outside}",
        "outlier score (GLOSH)",
    )
    heading = outside.capitalize()
    if not len(noise):
        text = f"<p>All finite {noun} are in a cluster.</p>"
    else:
        text = (
            f"<p>{len(noise):,} {noun} are in no cluster. The outlier score of a row says how much less "
            "dense its "
            "place is than the densest place of the cluster it leaves last, from 0 to 1; it is another "
            "measure "
            "than being in no cluster, and rows in clusters have one, too.</p>"
        )
    parts = [
        f"<h2>{heading}</h2>\n{text}",
        f"<figure>{picture}<figcaption>Counts on a logarithmic axis.</figcaption></figure>",
    ]
    rows = np.flatnonzero(labels == -1)
    worst = rows[np.lexsort((rows, -scores[rows]))][:MOST_OUTLIERS]
    if len(worst) and noun == "clips":
        lines = _fewer(np.asarray(data[worst], np.float64))
        limits = _limits(lines)
        figures = [
            f'<figure class="panel">{panel(line, limits, f"Clip {row}, outlier score {scores[row]:.3f}")}'
            f"<figcaption><b>clip {row}</b><span>score {scores[row]:.3f}</span></figcaption></figure>"
            for row, line in zip(worst.tolist(), lines, strict=True)
        ]
        which = (
            f"the {len(worst)} of them with the largest scores" if len(rows) > len(worst) else "all of them"
        )
        parts.append(
            f"<p>Drawn: {which}, on one vertical scale from {limits[0]:.3g} to {limits[1]:.3g}.</p>"
            f'<div class="panels">{"".join(figures)}</div>'
        )
    elif len(worst):
        body = "".join(
            f'<tr><th scope="row">{row}</th><td class="n">{scores[row]:.4f}</td></tr>'
            for row in worst.tolist()
        )
        parts.append(
            f'<table class="narrow">'
            f"<caption>{noun.capitalize()} in no cluster with the largest scores, counted from "
            "0.</caption>"
            f'<thead><tr><th scope="col">row</th><th scope="col" class="n">outlier score</th></tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )
    if not finite.any():
        return ""
    return "\n".join(parts)


def _tree(model: Any, noun: str) -> str:
    condensed = np.asarray(model.condensed_tree_)
    if not len(condensed):
        return ""
    n_clusters = int(condensed["parent"].max() - condensed["parent"].min()) + 1
    name = (
        f"Condensed tree: {n_clusters} clusters at all densities, of which {len(model._selected)} are "
        "selected; "
        "the table of clusters has their sizes and persistence"
    )
    return (
        "<h2>Condensed tree</h2>\n"
        f"<p>All {noun} on top; further down only those that have enough others within the distance on "
        "the left, "
        "down to the densest places. A cluster narrows as it loses single ones, and divides where it "
        "breaks up. "
        "The selected clusters have the colours of their labels.</p>\n"
        f"<figure>{density_tree(condensed, model._selected, name)}"
        f"<figcaption>Width: number of {noun}. Distance on a logarithmic axis, in the unit of the "
        "data.</figcaption></figure>"
    )


def _how(model: Any, summary: dict[str, Any]) -> str:
    parameters = "".join(
        f'<tr><th scope="row"><code>{escape(name)}</code></th><td>{escape(str(value))}</td></tr>'
        for name, value in summary["parameters"].items()
        if name not in ("algorithm", "copy", "leaf_size", "progress")
    )
    when = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    facts = {
        "mreach": summary["mreach_version"],
        "backend": summary["backend"],
        "time": ", ".join(f"{name} {_seconds(value)}" for name, value in summary["seconds"].items()),
        "Python, NumPy": f"{platform.python_version()}, {np.__version__}",
        "system": platform.platform(),
        "made": when,
    }
    listed = "".join(
        f'<tr><th scope="row">{name}</th><td>{escape(str(value))}</td></tr>' for name, value in facts.items()
    )
    return (
        "<h2>How it was made</h2>\n"
        "<p>The result depends on the data and the parameters alone, not on the backend, the number of "
        "threads or the order of the rows. In Python:</p>\n"
        f"<pre><code>{escape(_call(model))}</code></pre>\n"
        f"<table><caption>Where and when</caption><tbody>{listed}</tbody></table>\n"
        f"<table><caption>Parameters</caption><tbody>{parameters}</tbody></table>"
    )


def _call(model: Any) -> str:
    """Return the code of the fit, with the parameters that change its result and are not the default."""
    default = type(model)().get_params(deep=False)
    given = model.get_params(deep=False)
    left_out = ("progress", "n_jobs", "backend", "device")
    said = [
        f"{name}={value!r}"
        for name, value in given.items()
        if value != default[name] and name not in left_out
    ]
    return f"mreach.HDBSCAN({', '.join(said)}).fit(data)"


def _means(
    data: Any, labels: NDArray[np.int64], n_clusters: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of the rows of the first labels, a few rows in float64 at a time."""
    n_rows, n_columns = data.shape
    counts = np.bincount(labels[(labels >= 0) & (labels < n_clusters)], minlength=n_clusters)[:, np.newaxis]
    mean, squares = np.zeros((n_clusters, n_columns)), np.zeros((n_clusters, n_columns))
    for about in (None, mean):  # the second time around the means: differences of large sums lose digits
        for start in range(0, n_rows, ROWS_AT_ONCE):
            some = labels[start : start + ROWS_AT_ONCE]
            places = np.flatnonzero((some >= 0) & (some < n_clusters))
            places = places[np.argsort(some[places], kind="stable")]
            if not len(places):
                continue
            values = np.asarray(data[start : start + ROWS_AT_ONCE])[places].astype(np.float64)
            present, firsts = np.unique(some[places], return_index=True)
            if about is None:
                mean[present] += np.add.reduceat(values, firsts)
            else:
                values -= mean[some[places]]
                squares[present] += np.add.reduceat(values * values, firsts)
        if about is None:
            mean /= counts
    return mean, np.sqrt(squares / counts)


def _fewer(lines: NDArray[np.float64]) -> NDArray[np.float64]:
    return lines[:, :: 1 + (lines.shape[1] - 1) // MOST_TIMEPOINTS]


def _limits(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if low == high:
        return low - 1.0, high + 1.0
    return low, high


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"

"""Draw the pictures of docs/plots.md and docs/example-clips.md: ``python docs/pictures/make.py``.

It wants mreach[plot] and takes about ten seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from mreach import HDBSCAN, plots
from mreach.datasets import load_emg_clips
from mreach.ephys import remove_outlier_clips, universal_templates
from mreach.plots.drawing import PALETTE

FOLDER = Path(__file__).resolve().parent
DPI = 80
OUTSIDE = "#D55E00"  # outliers: the palette's fourth colour, where there are two clusters
MILLISECONDS = (np.arange(61) - 20) * 1000 / 2048  # surface EMG at 2048 Hz, the peak at sample 20
TIME, AMPLITUDE = "time from peak (ms)", "amplitude (a.u.)"


def shapes() -> np.ndarray:
    """Return rows in the plane: a loose group with two dense cores, a ring, a line, and scattered rows."""
    r = np.random.default_rng(4)
    angle = r.uniform(0, 2 * np.pi, 250)
    ring = np.column_stack((np.cos(angle), np.sin(angle))) * r.normal(2, 0.12, 250)[:, np.newaxis] + (8, 1)
    along = r.uniform(0, 1, 150)[:, np.newaxis]
    line = along * (6, 1.5) + (-1, 5) + r.normal(0, 0.12, (150, 2))
    groups = [r.normal(centre, sd, (n, 2)) for centre, sd, n in (((0, 0), 0.9, 120), ((-0.9, 0), 0.2, 120))]
    return np.vstack(
        (*groups, r.normal((1, 0.3), 0.25, (120, 2)), ring, line, r.uniform((-4, -4), (12, 8), (90, 2)))
    )


def save(figure: plt.Figure, name: str) -> None:
    figure.savefig(FOLDER / name, dpi=DPI, metadata={"Software": None})
    plt.close(figure)


def draw_plots(clips: np.ndarray) -> None:
    """Draw what docs/plots.md shows."""
    model = HDBSCAN(min_cluster_size=15).fit(shapes())

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    plots.condensed_tree(model, left)
    plots.condensed_tree(model, right, cmap=None)
    save(figure, "condensed-tree.png")

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    plots.minimum_spanning_tree(model, left)
    plots.single_linkage_tree(model, right, p=150)
    save(figure, "trees.png")

    figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
    plots.cluster_profile(HDBSCAN(min_cluster_size=20).fit(clips), ax)
    save(figure, "cluster-profile.png")


def draw_band(ax: Any, clips: np.ndarray, colour: str, *, mean: bool = True) -> None:
    """Draw where 90 % of the clips lie at each sample, and their mean."""
    low, high = np.quantile(clips, (0.05, 0.95), axis=0)
    ax.fill_between(MILLISECONDS, low, high, color=colour, alpha=0.3, linewidth=0)
    if mean:
        ax.plot(MILLISECONDS, clips.mean(axis=0), color=colour, linewidth=2)


def open_frames(axes: Any) -> None:
    for ax in np.ravel(axes):
        ax.spines[["top", "right"]].set_visible(False)


def draw_outliers(clips: np.ndarray, model: HDBSCAN) -> None:
    """Draw the clusters, and the outliers that stand out most over the cluster of the same polarity."""
    labels, scores = model.labels_, model.outlier_scores_
    figure, axes = plt.subplots(2, 4, figsize=(10, 4.6), sharex=True, sharey=True, layout="constrained")
    members = [clips[labels == label] for label in (0, 1)]
    for ax, one, colour, label in zip(axes[0], members, PALETTE, (0, 1), strict=False):
        draw_band(ax, one, colour)
        ax.set_title(f"cluster {label}: {len(one)} clips", fontsize=10)
    outliers = np.flatnonzero(labels < 0)
    outliers = outliers[np.argsort(-scores[outliers], kind="stable")]
    for ax, row in zip(axes.flat[2:], outliers, strict=False):
        like = int(clips[row, 20] > 0)
        draw_band(ax, members[like], PALETTE[like], mean=False)
        ax.plot(MILLISECONDS, clips[row], color="black", linewidth=1.4)
        ax.set_title(f"outlier, score {scores[row]:.2f}", fontsize=10)
    open_frames(axes)
    figure.supxlabel(TIME, fontsize=10)
    figure.supylabel(AMPLITUDE, fontsize=10)
    save(figure, "example-outliers.png")


def draw_strengths(clips: np.ndarray, model: HDBSCAN, components: np.ndarray) -> None:
    """Draw the clips in the plane of two components by strength, and their outlier scores."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    inside, scores = model.labels_ >= 0, model.outlier_scores_
    x, y = components[:2] @ clips.T
    order = np.flatnonzero(inside)[np.argsort(model.probabilities_[inside])]
    strengths = model.probabilities_[order]
    dots = left.scatter(x[order], y[order], c=strengths, s=5, cmap="cividis_r", vmin=0.3, vmax=1, lw=0)
    left.scatter(x[~inside], y[~inside], color=OUTSIDE, marker="x", s=30, linewidths=1.5, label="outliers")
    left.set(xlabel="component 1 (a.u.)", ylabel="component 2 (a.u.)")
    left.legend(frameon=False, fontsize=9, loc="lower center")
    figure.colorbar(dots, ax=left, label="strength in its cluster")

    bins = np.linspace(0, 0.8, 65)
    parts = [scores[model.labels_ == 0], scores[model.labels_ == 1], scores[~inside]]
    colours = (PALETTE[0], PALETTE[1], OUTSIDE)
    names = ("cluster 0", "cluster 1", "outliers")
    right.hist(parts, bins, histtype="step", linewidth=1.6, color=colours, label=names)
    right.set(xlabel="outlier score (GLOSH)", ylabel="number of clips", yscale="log", ylim=(0.7, None))
    right.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(0.78, 1.02))
    open_frames((left, right))
    save(figure, "example-strengths.png")


def draw_tree(model: HDBSCAN, fine: HDBSCAN) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    plots.condensed_tree(model, left, cmap=None)
    left.set_title("min_samples=20", fontsize=10)
    plots.condensed_tree(fine, right, cmap=None, log_size=True)
    right.set_title("min_samples=2, leaves", fontsize=10)
    save(figure, "example-trees.png")


def draw_families(clips: np.ndarray, fine: HDBSCAN) -> None:
    """Draw the clusters of a finer fit."""
    n_clusters = fine.labels_.max() + 1
    figure, axes = plt.subplots(
        1, n_clusters, figsize=(10, 2.6), sharex=True, sharey=True, layout="constrained"
    )
    for label, ax in enumerate(axes):
        members = clips[fine.labels_ == label]
        few = members[np.linspace(0, len(members) - 1, min(len(members), 80)).astype(int)]
        ax.plot(MILLISECONDS, few.T, color=PALETTE[label], alpha=0.25, linewidth=0.6)
        ax.plot(MILLISECONDS, members.mean(axis=0), color="black", linewidth=1.6)
        ax.set_title(f"cluster {label}: {len(members)} clips", fontsize=10)
    open_frames(axes)
    figure.supxlabel(TIME, fontsize=10)
    axes[0].set_ylabel(AMPLITUDE)
    save(figure, "example-families.png")


def draw_templates(clips: np.ndarray) -> None:
    """Draw templates of clips with loud noise among them, and without it."""
    noise = np.random.default_rng(0).normal(0, 1.5, (100, 61))
    spoilt = np.vstack((clips, noise)).astype(np.float32)
    with_noise = universal_templates(spoilt, keep=np.ones(len(spoilt), bool))
    without = universal_templates(spoilt, keep=remove_outlier_clips(spoilt).mask)
    figure, axes = plt.subplots(1, 3, figsize=(10, 3), sharex=True, layout="constrained")
    of_clips = universal_templates(clips, keep=remove_outlier_clips(clips).mask)
    axes[0].sharey(axes[1])
    drawn = (
        (with_noise.wTEMP, "wTEMP, noise among the clips"),
        (without.wTEMP, "wTEMP, outliers dropped"),
        (of_clips.wPCA, "wPCA of the clips"),
    )
    for ax, (curves, title) in zip(axes, drawn, strict=True):
        for number, curve in enumerate(curves):
            width = 2.2 - 0.3 * number if ax is axes[2] else 1.5
            ax.plot(MILLISECONDS, curve, color=PALETTE[number], linewidth=width, label=str(number))
        ax.set_title(title, fontsize=10)
        ax.set_xlabel(TIME)
    axes[0].set_ylabel("unit norm")
    axes[2].legend(frameon=False, fontsize=8, ncols=2, loc="upper right")
    open_frames(axes)
    save(figure, "example-templates.png")


def draw_example(clips: np.ndarray) -> None:
    """Draw what docs/example-clips.md shows."""
    _, mask, model = remove_outlier_clips(clips)
    assert model is not None
    distinct = np.unique(clips, axis=0)
    fine = HDBSCAN(min_cluster_size=20, min_samples=2, cluster_selection_method="leaf").fit(distinct)
    draw_outliers(clips, model)
    draw_tree(model, fine)
    draw_families(distinct, fine)
    draw_strengths(clips, model, universal_templates(clips, keep=mask).wPCA)
    draw_templates(clips)


def main() -> None:
    clips = load_emg_clips()
    draw_plots(clips)
    draw_example(clips)


if __name__ == "__main__":
    main()

"""Draw the pictures of docs/plots.md: ``python docs/pictures/make.py``, where mreach[plot] is installed."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from mreach import HDBSCAN, plots
from mreach.datasets import load_emg_clips

FOLDER = Path(__file__).resolve().parent


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
    figure.savefig(FOLDER / name, dpi=80, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    model = HDBSCAN(min_cluster_size=15).fit(shapes())

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    plots.condensed_tree(model, left)
    plots.condensed_tree(model, right, cmap=None)
    save(figure, "condensed-tree.png")

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    plots.minimum_spanning_tree(model, left)
    plots.single_linkage_tree(model, right, p=150)
    save(figure, "trees.png")

    clips = HDBSCAN(min_cluster_size=20).fit(load_emg_clips())
    figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
    plots.cluster_profile(clips, ax)
    save(figure, "cluster-profile.png")


if __name__ == "__main__":
    main()

"""Cluster real spike clips and tell the outliers: labels, a picture and a report go to demo-output/.

Run it with ``make demo``, or with ``python demo/emg_clips.py`` where mreach and matplotlib are installed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from mreach import HDBSCAN
from mreach.cli.summary import fit_summary
from mreach.datasets import load_emg_clips
from mreach.plots.drawing import PALETTE
from mreach.report import write_report

MIN_CLUSTER_SIZE = 20
SAMPLES_PER_SECOND = 2048
PEAK_SAMPLE = 20  # the largest sample of each clip
MOST_CLIPS_DRAWN = 300  # more lines than that in one panel only make it darker
MOST_CLUSTERS_DRAWN = 11
OTHER_SIZES = (5, 100, 500)  # values of min_cluster_size to cut the same tree by


def draw(clips: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Draw each cluster's mean waveform over its clips, and the outliers in a panel of their own.

    Parameters
    ----------
    clips : float32 array of shape (n_clips, n_timepoints)
    labels : int64 array of shape (n_clips,)
        Below 0: outlier.
    path : Path
        The PNG file to write.
    """
    milliseconds = (np.arange(clips.shape[1]) - PEAK_SAMPLE) * 1000 / SAMPLES_PER_SECOND
    n_clusters = labels.max() + 1
    drawn = min(n_clusters, MOST_CLUSTERS_DRAWN)
    n_columns = min(drawn + 1, 4)
    n_rows = -(-(drawn + 1) // n_columns)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=(3.4 * n_columns, 2.7 * n_rows), sharex=True, sharey=True, squeeze=False
    )
    panels = [
        (clips[labels == label], f"cluster {label}", PALETTE[label % len(PALETTE)]) for label in range(drawn)
    ]
    panels.append((clips[labels < 0], "outliers", "0.35"))
    rng = np.random.default_rng(0)
    for panel, (members, name, colour) in zip(axes.flat, panels, strict=False):
        few = members
        if len(members) > MOST_CLIPS_DRAWN:
            few = members[rng.choice(len(members), MOST_CLIPS_DRAWN, replace=False)]
        opacity = float(np.clip(15 / max(len(few), 1), 0.12, 0.6))
        panel.plot(milliseconds, few.T, color=colour, alpha=opacity, linewidth=0.6)
        if name != "outliers" and len(members):
            panel.plot(milliseconds, members.mean(axis=0), color="black", linewidth=1.6)
        panel.set_title(f"{name}: {len(members)} clips", fontsize=10)
        panel.axhline(0, color="0.8", linewidth=0.5, zorder=0)
    for panel in axes.flat[len(panels) :]:
        panel.axis("off")
    for panel in axes[:, 0]:
        panel.set_ylabel("amplitude (arbitrary)")
    for column in range(n_columns):
        last = max(row for row in range(n_rows) if row * n_columns + column < len(panels))
        axes[last, column].set_xlabel("time from peak (ms)")
        axes[last, column].tick_params(labelbottom=True)
    of_all = "" if drawn == n_clusters else f", the {drawn} largest drawn"
    figure.suptitle(
        f"Surface EMG: {len(clips)} spike clips, {n_clusters} clusters{of_all} "
        f"(HDBSCAN, min_cluster_size={MIN_CLUSTER_SIZE}; black: mean)",
        fontsize=11,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    """Cluster the clips, print what came out, write labels, picture and report."""
    parser = argparse.ArgumentParser(description="Cluster real spike clips and tell the outliers.")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder to write to")
    parser.add_argument("--backend", default="auto", help="what computes the fit; the result is the same")
    options = parser.parse_args()

    clips = load_emg_clips()
    model = HDBSCAN(min_cluster_size=MIN_CLUSTER_SIZE, backend=options.backend)
    start = time.perf_counter()
    labels = model.fit_predict(clips)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    cuts = model.cut_many(OTHER_SIZES)
    seconds_of_cuts = time.perf_counter() - start

    options.output.mkdir(parents=True, exist_ok=True)
    np.save(options.output / "labels.npy", labels)
    table = np.column_stack([np.arange(len(labels)), labels, model.probabilities_])
    np.savetxt(
        options.output / "labels.csv",
        table,
        fmt=["%d", "%d", "%.17g"],
        delimiter=",",
        header="clip,label,probability",
        comments="",
    )
    draw(clips, labels, options.output / "clusters.png")
    summary = fit_summary("clips", Path("emg_clips.npy"), clips, model, {"fit": seconds})
    write_report(options.output / "report.html", model, clips, summary)

    print(f"clips     {len(clips)} ({clips.shape[1]} samples each)")
    print(f"clusters  {labels.max() + 1}")
    print(f"outliers  {np.count_nonzero(labels < 0)}")
    print(f"seconds   {seconds:.3f} (backend {model.backend_})")
    sizes, found = (
        ", ".join(map(str, one)) for one in (OTHER_SIZES, [cut.labels_.max() + 1 for cut in cuts])
    )
    print(f"cuts      {seconds_of_cuts:.3f} s: min_cluster_size={sizes} gives {found} clusters")
    print(f"written   {options.output}/labels.npy, labels.csv, clusters.png, report.html")


if __name__ == "__main__":
    main()

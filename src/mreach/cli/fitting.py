"""A fit from a file into files."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import mreach
from mreach.cli.reading import read_table
from mreach.cli.running import DONE, NOTHING_FOUND, Outcome, blames_input, note
from mreach.cli.summary import fit_lines, fit_summary, written_text
from mreach.cli.writing import Folder, check_table_path, check_writable, output_folder, write_table
from mreach.ephys import remove_outlier_clips
from mreach.estimator import HDBSCAN
from mreach.model_file import save_model

__all__ = ["FitJob", "run_fit"]


class FitJob(NamedTuple):
    """What a command was asked to do."""

    command: str  # "cluster" or "clips"
    source: Path
    output: Path | None
    dataset: str | None
    columns: Sequence[str]
    header: bool | None
    saves_model: bool
    table: Path | None
    report: Path | None


def run_fit(job: FitJob, parameters: dict[str, Any], on_problem: str = "warn") -> Outcome:
    """Read, fit, write.

    Parameters
    ----------
    job : FitJob
    parameters : dict
        Of HDBSCAN.
    on_problem : str
        Of :func:`mreach.ephys.remove_outlier_clips`.
    """
    check_table_path(job.table)
    others = [path for path in (job.table, job.report) if path is not None]
    folder = Folder(output_folder(job.output, job.source, job.command), job.command, [job.source], others)
    for path in others:
        check_writable(path.parent)
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    read = read_table(job.source, job.dataset, job.columns, job.header)
    seconds["read"] = time.perf_counter() - start
    start = time.perf_counter()
    clips = job.command == "clips"
    parameters = {**parameters, "prediction_data": job.saves_model}
    with blames_input():
        if clips:
            kept_clips, kept, model = remove_outlier_clips(read.data, on_problem=on_problem, **parameters)
        else:
            model = HDBSCAN(**parameters).fit(read.data)
            kept = model.labels_ >= 0
    seconds["fit"] = time.perf_counter() - start

    if clips:
        folder.array("kept", kept)
        folder.array("kept_clips", kept_clips)
    if model is None:
        return _too_few(job, folder, read.data, kept)
    if read.columns is not None:
        model.feature_names_in_ = np.array(read.columns, dtype=object)
    folder.array("labels", model.labels_)
    folder.array("probabilities", model.probabilities_)
    folder.array("outlier_scores", model.outlier_scores_)
    if job.saves_model:
        folder.by("model", "model.npz", functools.partial(save_model, model))
    summary = fit_summary(job.command, job.source, read.data, model, seconds)
    if clips:
        summary["n_kept"] = int(kept.sum())
    if job.table is not None:
        write_table(job.table, _table_of(model))
        folder.written["table"] = job.table
    if job.report is not None:
        from mreach.report import write_report

        write_report(job.report, model, read.data, summary)
        folder.written["report"] = job.report
    summary["files"] = {name: str(path) for name, path in folder.written.items()}
    folder.summary(summary)

    lines = fit_lines(summary, "clips" if clips else "rows", "outliers" if clips else "noise")
    if clips:
        lines.insert(3, ("kept", str(summary["n_kept"])))
    lines.append(("written", written_text(folder.written)))
    return Outcome(lines, summary, DONE if (model.labels_ >= 0).any() else NOTHING_FOUND)


def _too_few(job: FitJob, folder: Folder, clips: NDArray[Any], kept: NDArray[np.bool_]) -> Outcome:
    """Return what there is to say where there were too few clips to cluster."""
    if job.table is not None or job.report is not None:
        note("nothing was clustered, so that there is no table and no report")
    summary: dict[str, Any] = {
        "command": job.command,
        "mreach_version": mreach.__version__,
        "input": {"path": str(job.source), "shape": list(clips.shape), "dtype": str(clips.dtype)},
        "n_rows": len(clips),
        "n_kept": int(kept.sum()),
        "files": {name: str(path) for name, path in folder.written.items()},
    }
    folder.summary(summary)
    lines = [
        ("clips", f"{len(clips)} of {clips.shape[1]} samples"),
        ("kept", str(summary["n_kept"])),
        ("written", written_text(folder.written)),
    ]
    return Outcome(lines, summary, NOTHING_FOUND)


def _table_of(model: HDBSCAN) -> dict[str, NDArray[Any]]:
    return {
        "row": np.arange(len(model.labels_)),
        "label": model.labels_,
        "probability": model.probabilities_,
        "outlier_score": model.outlier_scores_,
    }

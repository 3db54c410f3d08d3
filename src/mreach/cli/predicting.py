"""New rows from a file, by a model from a file."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import mreach
from mreach.cli.reading import has_columns, read_table
from mreach.cli.running import Outcome, blames_input
from mreach.cli.summary import counts_of, sizes_text, written_text
from mreach.cli.writing import Folder, check_table_path, check_writable, output_folder, write_table
from mreach.estimator import HDBSCAN
from mreach.model_file import load_model

__all__ = ["PredictJob", "run_predict"]


class PredictJob(NamedTuple):
    """What the command was asked to do."""

    model: Path
    source: Path
    output: Path | None
    dataset: str | None
    columns: Sequence[str]
    header: bool | None
    writes_membership: bool
    table: Path | None


def run_predict(job: PredictJob, n_jobs: int | None, progress: bool) -> Outcome:
    """Read, place the rows, write."""
    check_table_path(job.table)
    others = [] if job.table is None else [job.table]
    target = output_folder(job.output, job.source, "predict")
    folder = Folder(target, "predict", [job.model, job.source], others)
    for path in others:
        check_writable(path.parent)
    start = time.perf_counter()
    with blames_input():
        model = load_model(job.model).set_params(n_jobs=n_jobs, progress=progress)
    data = read_table(job.source, job.dataset, _columns_of(job, model), job.header).data
    seconds = {"read": time.perf_counter() - start}
    start = time.perf_counter()
    with blames_input(), warnings.catch_warnings():
        # Columns were chosen by the names of the model; the numbers that are left have none.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        labels, strengths = model.approximate_predict(data)
        scores = model.approximate_predict_scores(data)
        vectors = model.membership_vector(data) if job.writes_membership else None
    seconds["predict"] = time.perf_counter() - start

    folder.array("labels", labels)
    folder.array("probabilities", strengths)
    folder.array("outlier_scores", scores)
    if vectors is not None:
        folder.array("membership", vectors)
    if job.table is not None:
        columns = {"label": labels, "probability": strengths, "outlier_score": scores}
        write_table(job.table, {"row": np.arange(len(labels)), **columns})
        folder.written["table"] = job.table
    n_clusters = len(model.cluster_persistence_)
    sizes = np.bincount(labels[labels >= 0], minlength=n_clusters).tolist()
    summary: dict[str, Any] = {
        "command": "predict",
        "mreach_version": mreach.__version__,
        "model": str(job.model),
        "input": {"path": str(job.source), "shape": list(data.shape), "dtype": str(data.dtype)},
        **counts_of(labels),
        "n_clusters": n_clusters,
        "clusters": [{"label": label, "n_rows": size} for label, size in enumerate(sizes)],
        "backend": model.backend_,
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "files": {name: str(path) for name, path in folder.written.items()},
    }
    folder.summary(summary)
    n_outside = len(labels) - sum(sizes)
    lines = [
        ("rows", f"{len(labels)} of {data.shape[1]} features"),
        ("clusters", sizes_text(sizes)),
        ("noise", f"{n_outside} ({n_outside / len(labels):.1%})"),
        ("predict", f"{seconds['predict']:.2f} s (backend {model.backend_})"),
        ("written", written_text(folder.written)),
    ]
    return Outcome(lines, summary)


def _columns_of(job: PredictJob, model: HDBSCAN) -> Sequence[str]:
    """Return the columns asked for, else those of the model, where the file can have names."""
    names = getattr(model, "feature_names_in_", None)
    if job.columns or names is None or not has_columns(job.source):
        return job.columns
    return list(names)

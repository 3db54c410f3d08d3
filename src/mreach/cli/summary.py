"""What a fitted model says in a few lines, and in numbers for programs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mreach
from mreach.estimator import HDBSCAN

__all__ = ["counts_of", "fit_lines", "fit_summary", "plain", "sizes_text", "written_text"]

MOST_SIZES = 12
"""Clusters whose sizes are printed; JSON has all of them."""


def counts_of(labels: NDArray[np.int64]) -> dict[str, int]:
    """Return how many rows there are, in how many clusters, and how many are in none, by reason."""
    return {
        "n_rows": len(labels),
        "n_clusters": int(labels.max(initial=-1)) + 1,
        "n_noise": int(np.count_nonzero(labels == -1)),
        "n_infinite": int(np.count_nonzero(labels == -2)),
        "n_nan": int(np.count_nonzero(labels == -3)),
    }


def fit_summary(
    command: str, source: Path, data: Any, model: HDBSCAN, seconds: dict[str, float]
) -> dict[str, Any]:
    """Return the result of a fit as JSON can say it."""
    labels, probabilities = model.labels_, model.probabilities_
    sizes = np.bincount(labels[labels >= 0], minlength=int(labels.max(initial=-1)) + 1)
    strength = np.bincount(labels[labels >= 0], weights=probabilities[labels >= 0], minlength=len(sizes))
    return {
        "command": command,
        "mreach_version": mreach.__version__,
        "input": {"path": str(source), "shape": list(data.shape), "dtype": str(data.dtype)},
        **counts_of(labels),
        "clusters": [
            {
                "label": label,
                "n_rows": int(sizes[label]),
                "persistence": float(model.cluster_persistence_[label]),
                "mean_probability": float(strength[label] / sizes[label]),
            }
            for label in range(len(sizes))
        ],
        "parameters": plain(model.get_params(deep=False)),
        "backend": model.backend_,
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
    }


def fit_lines(summary: dict[str, Any], noun: str, outside: str) -> list[tuple[str, str]]:
    """Return the same in a few lines: ``noun`` names the rows, ``outside`` those in no cluster."""
    n_rows, n_columns = summary["input"]["shape"]
    sizes = [one["n_rows"] for one in summary["clusters"]]
    n_outside = n_rows - sum(sizes)
    lines = [
        (noun, f"{n_rows} of {n_columns} {'samples' if noun == 'clips' else 'features'}"),
        ("clusters", sizes_text(sizes)),
        (outside, f"{n_outside} ({n_outside / n_rows:.1%})"),
    ]
    for name, count in (("infinity", summary["n_infinite"]), ("NaN", summary["n_nan"])):
        if count:
            lines.append((f"  {name}", str(count)))
    lines.append(("fit", f"{summary['seconds']['fit']:.2f} s (backend {summary['backend']})"))
    return lines


def sizes_text(sizes: list[int]) -> str:
    """Return how many clusters, and how large."""
    if not sizes:
        return "0"
    more = ", ..." if len(sizes) > MOST_SIZES else ""
    return f"{len(sizes)}, of {', '.join(map(str, sizes[:MOST_SIZES]))}{more}"


def written_text(written: dict[str, Path]) -> str:
    """Return the names of files, those of one folder together."""
    folders: dict[Path, list[str]] = {}
    for path in written.values():
        folders.setdefault(path.parent, []).append(path.name)
    parts = []
    for folder, names in folders.items():
        if len(names) == 1 or folder == Path():
            parts += [str(folder / name) for name in names]
        else:
            parts.append(f"{folder}/ ({', '.join(names)})")
    return ", ".join(parts)


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values as JSON has them: numbers that it has not become text."""
    result = {}
    for name, value in values.items():
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        elif not isinstance(value, (bool, int, float, str, type(None), dict, list)):
            value = repr(value)
        result[name] = value
    return result

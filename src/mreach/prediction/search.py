"""The search of new rows among those of a fit: here a model becomes the arrays that a backend searches in."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends import why_not
from mreach.progress import open_progress
from mreach.records import NearestRows
from mreach.threads import threads_for
from mreach.validation.new_rows import check_joint_range

__all__ = ["nearest_of_fit", "values_of_finite"]

SEARCH_ROWS = 1 << 18
"""New rows that are searched at a time, or as many as the fit had: what a search takes beside its results
stays in proportion to the fit."""


def nearest_of_fit(
    model: Any,
    X_new: NDArray[Any],
    *,
    new_core_distances: NDArray[np.float64] | None = None,
    candidates: NDArray[np.bool_] | None = None,
) -> NearestRows:
    """Find the row of a fit of least mutual reachability distance to each new row.

    Parameters
    ----------
    model : HDBSCAN
        Fitted.
    X_new : C-contiguous float32 or float64 array of shape (m, n_features)
        Finite.
    new_core_distances : float64 array of shape (m,), optional
        Core distances of the new rows, where they are known.
    candidates : bool array of shape (n_finite,), optional
        Only these rows of the fit may be the answer.

    Returns
    -------
    NearestRows
        Rows are numbered among the finite ones of the fit.
    """
    given = model._given_parameters
    X, alpha = model._rows.data.whole(), float(given["alpha"])
    check_joint_range(X, X_new, alpha)
    if X.dtype != X_new.dtype:  # float32 widens exactly
        X, X_new = X.astype(np.float64, copy=False), X_new.astype(np.float64, copy=False)
    search = _search_of(model.backend_, given["device"])
    samples = given["min_cluster_size"] if given["min_samples"] is None else given["min_samples"]
    core = values_of_finite(model, model.core_distances_)
    n_threads = threads_for(None if given["n_jobs"] is None else int(given["n_jobs"]))
    n_at_once = max(SEARCH_ROWS, len(X))
    found = []
    with open_progress(bool(given["progress"])) as progress:
        for start in range(0, len(X_new), n_at_once):
            some = slice(start, start + n_at_once)
            found.append(
                search(
                    X,
                    X_new[some],
                    core_distances=core,
                    alpha=alpha,
                    min_samples=int(samples),
                    new_core_distances=None if new_core_distances is None else new_core_distances[some],
                    candidates=candidates,
                    n_threads=n_threads,
                    progress=progress,
                )
            )
    return NearestRows(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def values_of_finite(model: Any, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values of the finite rows, of values for all rows of a fit, shape (n_finite,)."""
    finite_rows = model._rows.finite_rows
    return values if finite_rows is None else values[finite_rows]


def _search_of(backend: str, device: int | None) -> Callable[..., NearestRows]:
    """Return what searches after a fit by a backend: the same one.

    After "cuda" the compiled core does, with the same result, where there is no GPU: a model may be loaded on
    another machine.
    """
    if backend == "cuda" and why_not("cuda", device) is not None:
        backend = "cpu"
    search: Callable[..., NearestRows] = importlib.import_module(f"mreach.backends.{backend}").nearest_rows
    return functools.partial(search, device=device) if backend == "cuda" else search

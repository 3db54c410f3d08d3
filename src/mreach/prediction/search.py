"""The search of new rows among those of a fit: here a model becomes the arrays that a backend searches in."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.backends import pairwise, why_not
from mreach.backends.distances import feature_distances
from mreach.copies import Copies
from mreach.metrics import Metric
from mreach.progress import open_progress
from mreach.records import NearestRows
from mreach.threads import threads_for
from mreach.validation.new_rows import check_distances, check_joint_range

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
        Finite. For "precomputed" of shape (m, n_finite): distances.
    new_core_distances : float64 array of shape (m,), optional
        Core distances of the new rows as measured, where they are known.
    candidates : bool array of shape (n_finite,), optional
        Only these rows of the fit may be the answer.

    Returns
    -------
    NearestRows
        Rows are numbered among the finite ones of the fit. Weights are in the unit of the metric, core
        distances as measured.
    """
    given = model._given_parameters
    samples = given["min_cluster_size"] if given["min_samples"] is None else given["min_samples"]
    task = _Task(
        model._measured_core_distances,
        candidates,
        {
            "alpha": float(given["alpha"]),
            "min_samples": int(samples),
            "n_threads": threads_for(None if given["n_jobs"] is None else int(given["n_jobs"])),
        },
    )
    copies, measured = Copies.of(model._rows), None
    if copies is not None:  # core distances count a row as often as the fit did
        measured = copies.measured(int(samples))
        task = task.of_points(measured)
    if model._metric.kind == "filtered":
        found = _search_filtered(model, X_new, task, measured, new_core_distances)
    else:
        found = _search_tiled(model, X_new, task, measured, new_core_distances)
    rows = found.rows if measured is None else measured[found.rows]
    return NearestRows(found.core_distances, rows, model._metric.weights_of(found.weights))


class _Task(NamedTuple):
    """What a search needs beside the rows, for the rows or points it meets."""

    core_distances: NDArray[np.float64]
    candidates: NDArray[np.bool_] | None
    options: dict[str, Any]

    def of_points(self, measured: NDArray[np.int64]) -> _Task:
        candidates = None if self.candidates is None else self.candidates[measured]
        return self._replace(core_distances=self.core_distances[measured], candidates=candidates)


def _search_filtered(
    model: Any,
    X_new: NDArray[Any],
    task: _Task,
    measured: NDArray[np.int64] | None,
    new_core_distances: NDArray[np.float64] | None,
) -> NearestRows:
    """Search by the backend of the fit, in the rows as it took them."""
    metric, given = model._metric, model._given_parameters
    X = model._rows.data.whole()
    check_joint_range(X, X_new, metric, task.options["alpha"])
    if X.dtype != X_new.dtype:  # float32 widens exactly
        X, X_new = X.astype(np.float64, copy=False), X_new.astype(np.float64, copy=False)
    X, X_new = metric.prepare(X), metric.prepare(X_new)
    if measured is not None:
        X = X[measured]
    search = _search_of(model.backend_, given["device"])
    n_at_once = max(SEARCH_ROWS, len(X))
    found = []
    with open_progress(given["progress"]) as progress:
        for start in range(0, len(X_new), n_at_once):
            some = slice(start, start + n_at_once)
            found.append(
                search(
                    X,
                    X_new[some],
                    core_distances=task.core_distances,
                    new_core_distances=None if new_core_distances is None else new_core_distances[some],
                    candidates=task.candidates,
                    progress=progress,
                    **task.options,
                    **metric.measure,
                )
            )
    return NearestRows(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _search_tiled(
    model: Any,
    X_new: NDArray[Any],
    task: _Task,
    measured: NDArray[np.int64] | None,
    new_core_distances: NDArray[np.float64] | None,
) -> NearestRows:
    """Search on the host, by the distances from some new rows to all of the fit at a time."""
    metric, n = model._metric, len(task.core_distances)
    order = np.arange(n)
    if metric.kind == "precomputed":

        def distances(some: slice) -> NDArray[np.float64]:
            found = np.asarray(X_new[some], np.float64)
            return found if measured is None else found[:, measured]

    else:
        X = model._rows.data.whole()
        check_joint_range(X, X_new, metric, task.options["alpha"])
        X = X if measured is None else X[measured]
        order = np.lexsort((order, *X.T[::-1]))

        def distances(some: slice) -> NDArray[np.float64]:
            found = feature_distances(metric, X_new[some], X)
            if metric.kind != "whole":
                return found
            return check_distances(_equal_rows_at_0(found, metric, X_new[some], X), metric, some.start)

    if task.candidates is not None:
        order = order[task.candidates[order]]
    return pairwise.nearest_rows(
        distances,
        len(X_new),
        order=order,
        core_distances=task.core_distances,
        new_core_distances=new_core_distances,
        **task.options,
    )


def _equal_rows_at_0(
    distances: NDArray[np.float64], metric: Metric, X_new: NDArray[Any], X: NDArray[Any]
) -> NDArray[np.float64]:
    """Put 0 where a metric divides 0 by 0 for equal rows (of zeros): what a fit has for a row itself."""
    if metric.function is None:
        new, other = np.nonzero(np.isnan(distances))
        equal = (X_new[new] == X[other]).all(axis=1)
        distances[new[equal], other[equal]] = 0.0
    return distances


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

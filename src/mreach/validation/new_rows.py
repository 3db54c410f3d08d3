"""Rows that a user hands to a fitted model are checked here; nothing else raises on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.inputs import as_cupy, copy_to_host, on_device
from mreach.backends.host_rows import HostRows, column_ranges
from mreach.metrics import Metric
from mreach.validation.arrays import check_host_array
from mreach.validation.parameters import InvalidParameterError, integer_of, real_of
from mreach.validation.rows import check_range


class NewRows(NamedTuple):
    """New rows: the finite ones as numbers, the others as labels."""

    finite: NDArray[Any]  # (n_finite, n_features) float32 or float64, C-contiguous
    places: NDArray[np.int64]  # (n_finite,) ascending, their numbers among all new rows
    labels: NDArray[np.int64]  # (n_new,): -3 for a row with NaN, -2 with an infinity, 0 for the finite ones


def check_new_rows(model: Any, X: Any) -> NewRows:
    """Check new rows against the data of the fit.

    Parameters
    ----------
    model : HDBSCAN
        Fitted.
    X : array-like of shape (n_new, n_features)
        As in a fit. Never changed. An array on a GPU is copied to the host. For "precomputed" of shape
        (n_new, n_samples): the distances to the rows of the fit.

    Returns
    -------
    NewRows

    Raises
    ------
    ValueError
        Not two-dimensional, empty, another number of features or other feature names than in the fit,
        complex, text or dates, masked.
    TypeError
        A sparse matrix, or objects that are not numbers.
    """
    if on_device(X):
        X = copy_to_host(as_cupy(X))
    rows = check_host_array(model, X, model._metric, reset=False)
    if model._metric.kind == "precomputed":
        return _check_new_distances(model, rows)
    marks = HostRows(rows).row_marks()
    labels = np.array([0, -2, -3])[marks]
    places = np.flatnonzero(marks == 0)
    return NewRows(rows if len(places) == len(rows) else rows[places], places, labels)


def _check_new_distances(model: Any, distances: NDArray[Any]) -> NewRows:
    wrong = np.isnan(distances) | (distances < 0)
    if wrong.any():
        row, column = (int(place[0]) for place in np.nonzero(wrong))
        raise ValueError(
            f"X holds {distances[row, column]} at [{row}, {column}]: distances to the rows of the fit are "
            "numbers of at least 0, infinite where nothing connects"
        )
    finite_rows = model._rows.finite_rows
    finite = distances if finite_rows is None else np.ascontiguousarray(distances[:, finite_rows])
    return NewRows(finite, np.arange(len(finite)), np.zeros(len(finite), np.int64))


def check_joint_range(fitted: NDArray[Any], new: NDArray[Any], metric: Metric, alpha: float) -> None:
    """Refuse new rows whose squared distances from the rows of the fit leave float64.

    Parameters
    ----------
    fitted, new : float arrays of shape (n, n_features) and (m, n_features)
        Finite, not empty.
    metric : Metric
    alpha : float

    Raises
    ------
    ValueError
        Saying by which power of two to scale both.
    """
    (low, high), (new_low, new_high) = column_ranges(fitted), column_ranges(new)
    check_range(np.minimum(low, new_low), np.maximum(high, new_high), metric, alpha, with_fitted_rows=True)


def check_distances(distances: NDArray[np.float64], metric: Metric, start: int) -> NDArray[np.float64]:
    """Return distances from new rows to the rows of the fit, as a metric of the kind "whole" gives them.

    Parameters
    ----------
    distances : float64 array of shape (m, n)
    metric : Metric
    start : int
        Number of the first of the new rows, among the finite ones.

    Raises
    ------
    ValueError
        One is NaN or negative.
    """
    wrong = ~(distances >= 0)
    if wrong.any():
        row, column = (int(place[0]) for place in np.nonzero(wrong))
        name = "the function given as metric" if metric.function is not None else f"metric={metric.name!r}"
        raise ValueError(
            f"{name} gives {float(distances[row, column])!r} between the finite rows {start + row} of X and "
            f"{column} of the fit, which is no distance: leave out such rows, or take another metric"
        )
    return distances


def check_max_distance(max_distance: Any) -> float:
    """Check the distance up to which noise is assigned; None means any.

    Raises
    ------
    InvalidParameterError
        Not a finite number of at least 0.
    """
    if max_distance is None:
        return np.inf
    distance = real_of("max_distance", max_distance, hint="; None means any distance")
    if distance < 0:
        raise InvalidParameterError(
            f"max_distance must be at least 0, got {distance!r}; None means any distance"
        )
    return distance


def check_batch_rows(batch_rows: Any) -> int | None:
    """Check the number of rows of a batch; None where none was given.

    Raises
    ------
    InvalidParameterError
        Not an integer of at least 1.
    """
    return None if batch_rows is None else integer_of("batch_rows", batch_rows, 1)


def refuse_dropped_rows() -> None:
    """Say that the rows of the fit were not kept.

    Raises
    ------
    ValueError
        Always.
    """
    raise ValueError(
        "the rows of the fit were not kept, and new rows are searched in them: fit with prediction_data=True"
    )


def check_cluster_id(cluster_id: Any, n_labels: int) -> int:
    """Check a label.

    Raises
    ------
    InvalidParameterError
        Not an integer, or no label of the fit.
    """
    hint = f"; the labels are 0 to {n_labels - 1}" if n_labels else "; no cluster was found"
    label = integer_of("cluster_id", cluster_id, 0, hint=hint)
    if label >= n_labels:
        raise InvalidParameterError(f"cluster_id={label} is no label{hint}")
    return label


def refuse_centers_without_rows() -> None:
    """Say that precomputed distances have no centres.

    Raises
    ------
    ValueError
        Always.
    """
    raise ValueError("metric='precomputed' has no rows to take centres from: exemplars_ names typical rows")


def refuse_without_rows() -> None:
    """Say that a fit of precomputed distances has no rows to measure between.

    Raises
    ------
    ValueError
        Always.
    """
    raise ValueError(
        "metric='precomputed' keeps no distances, and noise is assigned by them: give predict the lines of "
        "the matrix that belong to the rows of noise"
    )


def refuse_large_vectors(n_rows: int, n_clusters: int, budget: int) -> None:
    """Say that the membership vectors of so many rows take too much memory.

    Raises
    ------
    MemoryError
        Always.
    """
    raise MemoryError(
        f"membership vectors of {n_rows} rows in {n_clusters} clusters take "
        f"{8 * n_rows * n_clusters / 1e9:.1f} GB, more than {budget / 1e9:.1f} GB: take them in batches from "
        "membership_batches()"
    )

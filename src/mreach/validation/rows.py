"""The values of the data, looked at where a backend holds them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mreach.backends.distances import feature_distances
from mreach.metrics import Metric
from mreach.validation.parameters import Parameters


class Rows(NamedTuple):
    """The rows of a fit: the finite ones as numbers, the others as labels."""

    finite: Any  # the finite rows as the open_points of the backend takes them
    data: Any  # the finite rows to read on the host: [rows] and [rows, feature] give NumPy arrays
    n_rows: int  # rows the user gave
    finite_rows: np.ndarray | None  # (n_finite,) int64, ascending, the user's numbers; None: all rows
    other_rows: np.ndarray  # (n_rows - n_finite,) int64, ascending
    other_labels: np.ndarray  # (n_rows - n_finite,) int64: -3 a row with NaN, -2 with infinity, -1 weight 0
    copies: np.ndarray | None = None  # (n_finite,) int64: how often each counts; None: once

    @property
    def n_finite(self) -> int:
        """Number of finite rows that count."""
        return self.n_rows - len(self.other_rows)

    @property
    def n_points(self) -> int:
        """Number of points of the hierarchy: each row as often as it counts."""
        return self.n_finite if self.copies is None else int(self.copies.sum())

    @classmethod
    def without_data(cls, source: Any, parameters: Parameters, weights: np.ndarray | None) -> Rows:
        """Return the rows behind a source of distances.

        Raises
        ------
        ValueError
            Fewer of them than ``min_samples``.
        """
        return _parted(None, source.n, parameters, weights)


def check_rows(held: Any, parameters: Parameters, weights: np.ndarray | None = None) -> Rows:
    """Part the finite rows from the others and check them.

    Parameters
    ----------
    held
        What the ``hold_rows`` of a backend gave. It holds the finite rows only from then on.
    parameters : Parameters
        From :func:`check_parameters`.
    weights : int64 array of shape (n_rows,), optional
        How often each row counts.

    Returns
    -------
    Rows

    Raises
    ------
    ValueError
        Too few finite rows for ``min_samples``; distances that overflow or wholly underflow float64.
    """
    low, high = held.column_ranges()  # NaN and infinity show in them, so clean data needs no marks
    all_finite = np.isfinite(low).all() and np.isfinite(high).all()
    rows = _parted(None if all_finite else held.row_marks(), held.n_rows, parameters, weights)
    if rows.finite_rows is not None:
        held.select(rows.finite_rows)
        low, high = held.column_ranges()
    check_range(low, high, parameters.metric, parameters.alpha)
    return rows._replace(finite=held.for_points, data=held.for_labels)


def _parted(
    marks: np.ndarray | None, n_rows: int, parameters: Parameters, weights: np.ndarray | None
) -> Rows:
    """Part the rows that count from the others; ``marks`` as ``row_marks`` gives them, None: all finite."""
    finite_rows, other_rows, other_labels = None, np.empty(0, np.int64), np.empty(0, np.int64)
    if weights is not None:
        marks = np.zeros(n_rows, np.uint32) if marks is None else marks
        marks = np.where((marks == 0) & (weights == 0), 3, marks)
    if marks is not None and marks.any():
        finite_rows, other_rows = np.flatnonzero(marks == 0), np.flatnonzero(marks)
        other_labels = np.array([0, -2, -3, -1])[marks[other_rows]]
    copies = weights if weights is None or finite_rows is None else weights[finite_rows]
    rows = Rows(None, None, n_rows, finite_rows, other_rows, other_labels, copies)
    _check_count(rows, parameters)
    return rows


def _check_count(rows: Rows, parameters: Parameters) -> None:
    n_points = rows.n_points
    if n_points >= parameters.min_samples:
        return
    found = f"n_samples={rows.n_rows}"
    if rows.copies is not None:
        found += f" which count as {n_points}"
    elif n_points < rows.n_rows:
        found += f" of which {n_points} without NaN or infinity"
    asked = f"min_samples={parameters.min_samples}"
    if not parameters.min_samples_given:
        asked += " (taken from min_cluster_size, as min_samples=None)"
    remedy = f"set min_samples to at most {n_points}, or give more rows" if n_points else "give more rows"
    raise ValueError(f"{found} is fewer than {asked}: {remedy}")


def check_range(
    low: np.ndarray, high: np.ndarray, metric: Metric, alpha: float, with_fitted_rows: bool = False
) -> None:
    """Refuse data whose distances leave float64, saying by which power of two to scale them.

    Parameters
    ----------
    low, high : float64 arrays of shape (n_features,)
        The smallest and largest value of each column.
    metric : Metric
    alpha : float
    with_fitted_rows : bool
        Whether they are those of new rows and of the rows of a fit together.
    """
    if metric.kind == "whole":
        return  # anybody's
    if metric.makes_rows_ready or metric.name in ("hamming", "jaccard"):
        _check_alpha(alpha, 2.0)  # no distance is larger
        return
    with np.errstate(over="ignore", under="ignore"):
        ranges = high - low
        if metric.kind == "tiled":
            what = "distances"
            diameter = float(feature_distances(metric, low[np.newaxis], high[np.newaxis])[0, 0])
        else:
            what = "squared differences"
            squared_diameter = 0.0
            for one in ranges.tolist():
                squared_diameter += one * one
            diameter = math.sqrt(squared_diameter)
    if math.isinf(diameter):
        problem = f"too large: sums of {what} overflow"
    elif diameter == 0.0 and bool((low != high).any()):
        problem = f"too small: all {what} underflow to 0 in"
    else:
        _check_alpha(alpha, diameter)
        return
    widest = float(ranges.max())
    if math.isinf(widest):  # the difference of two large numbers of opposite sign
        exponent = math.frexp(float((high / 2 - low / 2).max()))[1] + 1
    else:
        exponent = math.frexp(widest)[1]
    power = -exponent  # brings the widest range to between 1/2 and 1
    data, scaled = "X are", "X"
    if with_fitted_rows:
        data, scaled = "X, together with those of the fit, are", "both, before the fit,"
    raise ValueError(
        f"the values of {data} {problem} float64. Multiply {scaled} by 2**{power}, for instance with "
        f"numpy.ldexp(X, {power}); distances then come out multiplied by it, too"
    )


def _check_alpha(alpha: float, diameter: float) -> None:
    if math.isinf(diameter / alpha):
        raise ValueError(f"alpha={alpha!r} is too small for these data: distance / alpha overflows")

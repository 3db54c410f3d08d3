"""The values of the data, looked at where a backend holds them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mreach.validation.parameters import Parameters


class Rows(NamedTuple):
    """The rows of a fit: the finite ones as numbers, the others as labels."""

    finite: Any  # the finite rows as the open_points of the backend takes them
    data: Any  # the finite rows to read on the host: [rows] and [rows, feature] give NumPy arrays
    n_rows: int  # rows the user gave
    finite_rows: np.ndarray | None  # (n_finite,) int64, ascending, the user's numbers; None: all rows
    other_rows: np.ndarray  # (n_rows - n_finite,) int64, ascending
    other_labels: np.ndarray  # (n_rows - n_finite,) int64: -3 for a row with NaN, else -2 (infinity)

    @property
    def n_finite(self) -> int:
        """Number of finite rows."""
        return self.n_rows - len(self.other_rows)


def check_rows(held: Any, parameters: Parameters) -> Rows:
    """Part the finite rows from the others and check them.

    Parameters
    ----------
    held
        What the ``hold_rows`` of a backend gave. It holds the finite rows only from then on.
    parameters : Parameters
        From :func:`check_parameters`.

    Returns
    -------
    Rows

    Raises
    ------
    ValueError
        Too few finite rows for ``min_samples``; distances that overflow or wholly underflow float64.
    """
    n_rows = held.n_rows
    finite_rows, other_rows, other_labels = None, np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = held.column_ranges()  # NaN and infinity show in them, so clean data needs no marks
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        marks = held.row_marks()
        finite_rows, other_rows = np.flatnonzero(marks == 0), np.flatnonzero(marks)
        other_labels = np.where(marks[other_rows] == 2, -3, -2)
    _check_count(n_rows - len(other_rows), n_rows, parameters)
    if finite_rows is not None:
        held.select(finite_rows)
        low, high = held.column_ranges()
    _check_range(low, high, parameters.alpha)
    return Rows(held.for_points, held.for_labels, n_rows, finite_rows, other_rows, other_labels)


def _check_count(n_finite: int, n_rows: int, parameters: Parameters) -> None:
    if n_finite >= parameters.min_samples:
        return
    found = f"n_samples={n_rows}"
    if n_finite < n_rows:
        found += f" of which {n_finite} without NaN or infinity"
    asked = f"min_samples={parameters.min_samples}"
    if not parameters.min_samples_given:
        asked += " (taken from min_cluster_size, as min_samples=None)"
    remedy = f"set min_samples to at most {n_finite}, or give more rows" if n_finite else "give more rows"
    raise ValueError(f"{found} is fewer than {asked}: {remedy}")


def _check_range(low: np.ndarray, high: np.ndarray, alpha: float) -> None:
    """Refuse data whose squared distances leave float64, saying by which power of two to scale them."""
    with np.errstate(over="ignore", under="ignore"):
        ranges = high - low
        squared_diameter = 0.0
        for one in ranges.tolist():
            squared_diameter += one * one
    if math.isinf(squared_diameter):
        problem = "too large: sums of squared differences overflow"
    elif squared_diameter == 0.0 and bool((low != high).any()):
        problem = "too small: all squared differences underflow to 0 in"
    else:
        if math.isinf(math.sqrt(squared_diameter) / alpha):
            raise ValueError(f"alpha={alpha!r} is too small for these data: distance / alpha overflows")
        return
    widest = float(ranges.max())
    if math.isinf(widest):  # the difference of two large numbers of opposite sign
        exponent = math.frexp(float((high / 2 - low / 2).max()))[1] + 1
    else:
        exponent = math.frexp(widest)[1]
    power = -exponent  # brings the widest range to between 1/2 and 1
    raise ValueError(
        f"the values of X are {problem} float64. Multiply X by 2**{power}, for instance with "
        f"numpy.ldexp(X, {power}); distances then come out multiplied by it, too"
    )

"""The rows of a fit as the fitted model needs them: for new rows, and for clusters of equal size."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.inputs import copy_to_host
from mreach.backends.host_rows import SelectedRows
from mreach.validation import Rows
from mreach.validation.cuts import refuse_changed_rows
from mreach.validation.new_rows import refuse_dropped_rows

N_PROBES = 64
"""Rows that are remembered by value, to notice data that were changed after the fit."""

SLICE_ROWS = 1 << 20
"""Rows of which a feature is read at a time."""


Reading = Future[NDArray[Any]]


class KeptRows:
    """The rows of a fit: where new rows are searched, and what orders clusters of equal size.

    Rows on the host are referred to, which costs no time and no memory, and a few are remembered by value to
    notice a change in place. Rows on a GPU are copied to the host beside the work of the GPU: a model holds
    no device memory. The rows go along where the model leaves the process.

    Without prediction, the lexicographic ranks of the rows (8 bytes each) would always do, but finding them
    takes 0.05 s for 500 000 rows, a third of a fit on a GPU, and few models are ever cut again. So rows on
    the host are still referred to, and ranks take their place where the model leaves the process; of rows on
    a GPU only ranks are kept.

    Parameters
    ----------
    data
        Finite rows, on the host: ``[rows]`` and ``[rows, feature]`` give NumPy arrays.
    for_prediction : bool
        Whether new rows may be searched in them.
    are_ranks : bool
        Whether they are ranks of rows, in one column.
    """

    def __init__(self, data: Any, for_prediction: bool = False, are_ranks: bool = False) -> None:
        self._data = data
        self._for_prediction = for_prediction
        self._are_ranks = are_ranks
        self.shape: tuple[int, ...] = data.shape
        self._probes = np.unique(np.linspace(0, data.shape[0] - 1, N_PROBES).astype(np.int64))
        self._probe_values = data[self._probes].copy()

    @classmethod
    def of(cls, X: Any, rows: Rows, reading: Reading | None, for_prediction: bool) -> KeptRows:
        """Make it during a fit, from the array given, the rows held, and what :func:`start_reading` gave."""
        if reading is not None and not for_prediction:
            return cls(lexicographic_ranks(rows.data, reading.result())[:, None], are_ranks=True)
        if reading is not None:
            copied = reading.result()
            return cls(copied if rows.finite_rows is None else copied[rows.finite_rows], for_prediction)
        # X and not what a backend may have copied of it: the copy then goes with the fit.
        return cls(X if rows.finite_rows is None else SelectedRows(X, rows.finite_rows), for_prediction)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Return the rows of a key ``rows``, or one feature of them for ``(rows, feature)``."""
        if not self._unchanged():
            refuse_changed_rows()
        rows: NDArray[Any] = self._data[key]
        return rows

    def values(self) -> NDArray[Any] | None:
        """Return all rows as they were fitted; None where only ranks are known, or the data have changed."""
        return None if self._are_ranks or not self._unchanged() else self._whole()

    def whole(self) -> NDArray[Any]:
        """Return the finite rows for a search, float32 or float64 of shape (n_finite, n_features).

        Raises
        ------
        ValueError
            They were not kept, or were changed in place.
        """
        if not self._for_prediction:
            refuse_dropped_rows()
        if not self._unchanged():
            refuse_changed_rows()
        return self._whole()

    def _whole(self) -> NDArray[Any]:
        rows = self._data if isinstance(self._data, np.ndarray) else self._data[np.arange(self.shape[0])]
        return np.ascontiguousarray(rows)

    def __getstate__(self) -> dict[str, Any]:
        """Leave with the data, or with ranks in place of them (with neither, if they were changed)."""
        if self._are_ranks:
            return self.__dict__.copy()
        if not self._unchanged():
            return {**self.__dict__, "_data": None}
        if self._for_prediction:
            return {**self.__dict__, "_data": self._whole()}
        return KeptRows(lexicographic_ranks(self._data)[:, None], are_ranks=True).__dict__

    def _unchanged(self) -> bool:
        return self._data is not None and np.array_equal(self._data[self._probes], self._probe_values)


def lexicographic_ranks(data: Any, by_first_feature: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return numbers that order rows as their values do, feature by feature; equal rows have equal numbers.

    Parameters
    ----------
    data
        Shape (n_rows, n_features), without NaN; ``data[rows, feature]`` gives a NumPy array.
    by_first_feature : int64 array of shape (n_rows,), optional
        The rows sorted by their first feature, if that is known.

    Returns
    -------
    int64 array of shape (n_rows,)
        For each row, how many rows are smaller.
    """
    n_rows, n_features = data.shape
    values = _values(data, np.arange(n_rows), 0)
    order = np.argsort(values) if by_first_feature is None else by_first_feature
    values = values[order]
    is_new = np.r_[True, values[1:] != values[:-1]]  # whether a row differs from the one before it
    places = np.flatnonzero(~(is_new & np.r_[is_new[1:], True]))  # in the order: rows not told apart yet
    for feature in range(1, n_features):
        if not len(places):
            break
        values = _values(data, order[places], feature)
        starts = np.flatnonzero(is_new[places])
        run = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(places)]))
        # Equal rows stay together through all features: where nothing differs, nothing is sorted.
        differs = np.logical_or.reduceat(values != values[starts][run], starts)
        moved = np.flatnonzero(differs[run])
        if not len(moved):
            continue
        by_value = moved[np.lexsort((values[moved], run[moved]))]
        order[places[moved]], values[moved] = order[places[by_value]], values[by_value]
        is_new[places[1:]] |= values[1:] != values[:-1]
        first = is_new[places]
        places = places[~(first & np.r_[first[1:], True])]
    starts = np.flatnonzero(is_new)
    ranks = np.empty(n_rows, np.int64)
    ranks[order] = np.repeat(starts, np.diff(np.r_[starts, n_rows]))
    return ranks


def _values(data: Any, rows: NDArray[np.int64], feature: int) -> NDArray[np.float64]:
    """Return a feature of some rows, slice by slice: a GPU that they lie on may be nearly full."""
    slices = [rows[start : start + SLICE_ROWS] for start in range(0, len(rows), SLICE_ROWS)]
    return np.concatenate([np.asarray(data[some, feature], np.float64) for some in slices])


def start_reading(X: Any, rows: Rows, for_prediction: bool) -> Reading | None:
    """Copy rows on a GPU to the host, or sort them by their first feature, in a thread beside the fit.

    None for rows on the host, which are referred to. Call it once the data have been looked at: they are
    then complete on the GPU.

    Returns
    -------
    Future or None
        Of all rows of ``X``, shape (n_rows, n_features), float32 or float64; without prediction of the order
        of the finite rows by their first feature, int64 of shape (n_finite,).
    """
    if isinstance(X, np.ndarray):
        return None
    pool = ThreadPoolExecutor(1)
    if for_prediction:
        reading = pool.submit(copy_to_host, X)
    else:
        reading = pool.submit(np.argsort, _values(rows.data, np.arange(rows.n_finite), 0))
    pool.shutdown(wait=False)  # the thread ends with its work, also where the fit ends by an error
    return reading

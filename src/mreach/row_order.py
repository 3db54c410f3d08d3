"""The rows of a fit as later cuts need them: for the order of clusters of equal size."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.host_rows import SelectedRows
from mreach.validation import Rows
from mreach.validation.cuts import refuse_changed_rows

N_PROBES = 64
"""Rows that are remembered by value, to notice data that were changed after the fit."""

SLICE_ROWS = 1 << 20
"""Rows of which a feature is read at a time."""


class RowsForTies:
    """What a later cut reads where two clusters have equally many rows: their lexicographic order.

    Ranks of all rows (8 bytes each) would always do, but finding them takes 0.05 s for 500 000 rows, a third
    of a fit on a GPU, and few models are ever cut again. So rows on the host are referred to, which costs no
    time and no memory, and a few are remembered by value to notice a change in place; ranks take their place
    where the model leaves the process. Rows on a GPU are ranked in the fit, most of it beside the work of the
    GPU: a model holds no device memory.

    Parameters
    ----------
    data
        Finite rows, on the host: ``[rows]`` and ``[rows, feature]`` give NumPy arrays.
    are_ranks : bool
        Whether they are ranks of rows, in one column.
    """

    def __init__(self, data: Any, are_ranks: bool = False) -> None:
        self._data = data
        self._are_ranks = are_ranks
        self.shape: tuple[int, ...] = data.shape
        self._probes = np.unique(np.linspace(0, data.shape[0] - 1, N_PROBES).astype(np.int64))
        self._probe_values = data[self._probes].copy()

    @classmethod
    def of(cls, X: Any, rows: Rows, sorting: Future[NDArray[np.int64]] | None) -> RowsForTies:
        """Make it during a fit, from the array given, the rows held, and what :func:`start_sorting` gave."""
        if sorting is not None:
            return cls(lexicographic_ranks(rows.data, sorting.result())[:, None], are_ranks=True)
        # X and not what a backend may have copied of it: the copy then goes with the fit.
        return cls(X if rows.finite_rows is None else SelectedRows(X, rows.finite_rows))

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Return the rows of a key ``rows``, or one feature of them for ``(rows, feature)``."""
        if not self._unchanged():
            refuse_changed_rows()
        rows: NDArray[Any] = self._data[key]
        return rows

    def values(self) -> NDArray[Any] | None:
        """Return all rows as they were fitted; None where only ranks are known, or the data have changed."""
        if self._are_ranks or not self._unchanged():
            return None
        values: NDArray[Any] = self._data[np.arange(self.shape[0])]
        return values

    def __getstate__(self) -> dict[str, Any]:
        """Leave with ranks in place of the data (with neither, if these were changed: they have none)."""
        if self._are_ranks:
            return self.__dict__.copy()
        if not self._unchanged():
            return {**self.__dict__, "_data": None}
        return RowsForTies(lexicographic_ranks(self._data)[:, None], are_ranks=True).__dict__

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


def start_sorting(X: Any, rows: Rows) -> Future[NDArray[np.int64]] | None:
    """Sort rows on a GPU by their first feature, in a thread of the host, while the GPU fits them.

    None for rows on the host, which are sorted only when they have to be.
    """
    if isinstance(X, np.ndarray):
        return None
    pool = ThreadPoolExecutor(1)
    sorting = pool.submit(np.argsort, _values(rows.data, np.arange(rows.n_finite), 0))
    pool.shutdown(wait=False)  # the thread ends with its work, also where the fit ends by an error
    return sorting

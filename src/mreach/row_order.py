"""The rows of a fit as later cuts need them: for the order of clusters of equal size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.host_rows import SelectedRows
from mreach.cut_validation import refuse_changed_rows
from mreach.validation import Rows

N_PROBES = 64
"""Rows that are remembered by value, to notice data that were changed after the fit."""


class RowsForTies:
    """What a later cut reads where two clusters have equally many rows: their lexicographic order.

    Ranks of all rows (8 bytes each) would always do, but finding them takes 40 ms for 500 000 rows, a
    quarter of a fit on a GPU, and few models are ever cut again. So rows on the host are referred to, which
    costs no time and no memory, and a few are remembered by value to notice a change in place; ranks take
    their place where the model leaves the process. Rows on a GPU are ranked in the fit: a model holds no
    device memory.

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
    def of(cls, X: Any, rows: Rows) -> RowsForTies:
        """Make it during a fit, from the array given (on the host or a GPU) and the rows that are held."""
        if not isinstance(X, np.ndarray):
            return cls(lexicographic_ranks(rows.data)[:, None], are_ranks=True)
        # X and not what a backend may have copied of it: the copy then goes with the fit.
        return cls(X if rows.finite_rows is None else SelectedRows(X, rows.finite_rows))

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Return the rows of a key ``rows``, or one feature of them for ``(rows, feature)``."""
        if not self._unchanged():
            refuse_changed_rows()
        rows: NDArray[Any] = self._data[key]
        return rows

    def __getstate__(self) -> dict[str, Any]:
        """Leave with ranks in place of the data (with neither, if these were changed: they have none)."""
        if self._are_ranks:
            return self.__dict__.copy()
        if not self._unchanged():
            return {**self.__dict__, "_data": None}
        return RowsForTies(lexicographic_ranks(self._data)[:, None], are_ranks=True).__dict__

    def _unchanged(self) -> bool:
        return self._data is not None and np.array_equal(self._data[self._probes], self._probe_values)


def lexicographic_ranks(data: Any) -> NDArray[np.int64]:
    """Return numbers that order rows as their values do, feature by feature; equal rows have equal numbers.

    Parameters
    ----------
    data
        Shape (n_rows, n_features), without NaN; ``data[rows, feature]`` gives a NumPy array.

    Returns
    -------
    int64 array of shape (n_rows,)
        For each row, how many rows are smaller.
    """
    n_rows, n_features = data.shape
    ranks = np.zeros(n_rows, np.int64)
    rows = np.arange(n_rows)  # those with a rank that others have, too, ascending by rank
    for feature in range(n_features):
        if not len(rows):
            break
        values = np.asarray(data[rows, feature], np.float64)
        shared = ranks[rows]
        starts = np.flatnonzero(np.r_[True, shared[1:] != shared[:-1]])
        sizes = np.diff(np.r_[starts, len(rows)])
        # Equal rows stay together through all features: where nothing differs, nothing is sorted.
        differs = np.logical_or.reduceat(values != np.repeat(values[starts], sizes), starts)
        moved = np.flatnonzero(np.repeat(differs, sizes))
        if not len(moved):
            continue
        # Mostly it is the first feature that sorts most: by one key, which is twice as fast.
        by_value = len(starts) == 1
        order = np.argsort(values) if by_value else moved[np.lexsort((values[moved], shared[moved]))]
        rows[moved], values[moved] = rows[order], values[order]
        split = np.r_[True, (values[1:] != values[:-1]) | (shared[1:] != shared[:-1])]
        runs = np.flatnonzero(split)
        lengths = np.diff(np.r_[runs, len(rows)])
        ranks[rows] = shared + np.repeat(runs, lengths) - np.repeat(starts, sizes)
        rows = rows[np.repeat(lengths > 1, lengths)]
    return ranks

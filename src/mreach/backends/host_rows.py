"""The user's rows in the memory of the host: what backends "cpu" and "reference" hold during a fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDED_WIDTH = 4096
"""Numbers that one minimum is taken over at a time: rows are laid side by side to this width, since NumPy
reduces long rows by vector instructions and short ones by a call each."""

SLAB_BYTES = 1 << 20
"""Bytes that are read for the minima and then again for the maxima: they stay in the processor's cache."""

# These hold exactly in float32; every other numeric type is taken as float64.
_FLOAT32_TYPES = frozenset("?bBhHef")


def row_dtype(dtype: Any) -> type[np.floating[Any]]:
    """Return the type in which a backend gets values of ``dtype``: float32 where it holds them exactly."""
    return np.float32 if dtype.char in _FLOAT32_TYPES else np.float64


class HostRows:
    """Rows of a fit, as :func:`mreach.validation.check_rows` asks for them.

    Parameters
    ----------
    X : C-contiguous float32 or float64 array of shape (n_rows, n_features)
        Read, never changed.
    """

    def __init__(self, X: NDArray[Any]) -> None:
        self._X = X

    @property
    def n_rows(self) -> int:
        """Number of rows that are held."""
        return len(self._X)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self._X.shape[1])

    def column_ranges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and largest value of each column; NaN where it holds a NaN."""
        return column_ranges(self._X)

    def row_marks(self) -> NDArray[np.uint32]:
        """Return a mark for each row: 0 finite, 1 with an infinity, 2 with a NaN (and perhaps both)."""
        marks = np.zeros(len(self._X), np.uint32)
        other_rows = np.flatnonzero(~np.isfinite(self._X).all(axis=1))
        marks[other_rows] = np.where(np.isnan(self._X[other_rows]).any(axis=1), 2, 1)
        return marks

    def select(self, rows: NDArray[np.int64]) -> None:
        """Hold only these rows from now on, in this order."""
        self._X = self._X[rows]

    @property
    def for_points(self) -> NDArray[Any]:
        """The rows as the ``open_points`` of the backend takes them."""
        return self._X

    @property
    def for_labels(self) -> NDArray[Any]:
        """The rows as something on the host to index by ``[rows]`` and ``[rows, feature]``."""
        return self._X


class SelectedRows:
    """Some rows of an array, picked only when they are asked for.

    Parameters
    ----------
    X : array of shape (n_all, n_features)
    rows : int64 array of shape (n_rows,)
        Which rows of ``X``.
    """

    def __init__(self, X: NDArray[Any], rows: NDArray[np.int64]) -> None:
        self._X, self._rows = X, rows
        self.shape = (len(rows), X.shape[1])

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Return ``X[rows][key]`` for a key ``rows`` or ``(rows, feature)``."""
        if isinstance(key, tuple):
            return self._X[self._rows[key[0]], key[1]]
        return self._X[self._rows[key]]


@contextmanager
def hold_rows(X: NDArray[Any], *, device: int | None = None, min_samples: int = 1) -> Iterator[HostRows]:
    """Hold rows on the host; the keywords are accepted as every backend accepts them, and not used."""
    yield HostRows(X)


def column_ranges(X: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest and largest value of each column; NaN where it holds a NaN.

    Parameters
    ----------
    X : C-contiguous float array of shape (n_rows, n_features), n_rows and n_features at least 1

    Returns
    -------
    low, high : float64 array of shape (n_features,)
    """
    n_rows, n_features = X.shape
    fold = max(1, FOLDED_WIDTH // n_features)
    n_folded = n_rows // fold
    folded = X[: n_folded * fold].reshape(n_folded, fold * n_features)
    n_at_once = max(1, SLAB_BYTES // (folded.shape[1] * X.itemsize))
    lows, highs = [X[n_folded * fold :]], [X[n_folded * fold :]]
    with np.errstate(invalid="ignore"):
        for start in range(0, n_folded, n_at_once):
            slab = folded[start : start + n_at_once]
            lows.append(slab.min(axis=0).reshape(fold, n_features))
            highs.append(slab.max(axis=0).reshape(fold, n_features))
        low, high = np.vstack(lows).min(axis=0), np.vstack(highs).max(axis=0)
    return low.astype(np.float64), high.astype(np.float64)

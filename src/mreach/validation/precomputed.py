"""Distances that the user computed: a square matrix, its upper triangle, or a sparse graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from mreach.backends.cuda.inputs import on_device
from mreach.backends.distances import CondensedMatrix, SquareMatrix
from mreach.backends.graph import NeighbourGraph

RELATIVE_TOLERANCE = 1e-7
ABSOLUTE_TOLERANCE = 1e-9
"""How far the two distances of a pair may differ: as scikit-learn takes a matrix for symmetric."""

BLOCK_ROWS = 1024
"""Rows and columns of a matrix that are looked at together: both ways of a pair, each piece of it once."""


def check_distances(estimator: Any, X: Any) -> Any:
    """Check distances, and return the source of them.

    Parameters
    ----------
    estimator : HDBSCAN
        Gets ``n_features_in_``, the number of rows, as scikit-learn has it.
    X : array-like of shape (n, n) or (n * (n - 1) / 2,), or SciPy sparse matrix or array of shape (n, n)
        Never changed.

    Returns
    -------
    SquareMatrix, CondensedMatrix or NeighbourGraph

    Raises
    ------
    ValueError
        Another shape; NaN or a negative distance (the message names the entry); a matrix that is not
        symmetric up to rounding.
    TypeError
        An array on a GPU.
    """
    if on_device(X):
        raise TypeError(
            "metric='precomputed' is read on the host, and X lies on a GPU: copy it to the host first "
            "(CuPy: X.get(), PyTorch: X.cpu().numpy())"
        )
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(
            "X is a masked array: X.filled(numpy.inf) says that the pairs masked are not connected"
        )
    if scipy.sparse.issparse(X):
        _check_square(X.shape)
        # What scikit-learn says about formats and types, and no copy of a matrix in rows.
        graph = validate_data(estimator, X, accept_sparse=("csr", "csc", "coo"), ensure_all_finite=False)
        return _graph(graph)
    if not hasattr(X, "shape"):
        X = np.asarray(X)
    if len(X.shape) == 1:
        return _condensed(estimator, np.asarray(X))
    matrix = validate_data(estimator, X, dtype="numeric", ensure_all_finite=False)
    _refuse_type(matrix)
    _check_square(matrix.shape)
    _refuse_overflow(matrix)
    return check_matrix(matrix)


def check_matrix(
    matrix: NDArray[Any], computed_by: str | None = None, numbers: NDArray[np.int64] | None = None
) -> SquareMatrix:
    """Check the entries of a square matrix; the diagonal may hold anything.

    Parameters
    ----------
    matrix : real array of shape (n, n)
    computed_by : str, optional
        The metric that gave it; None: the user did.
    numbers : int64 array of shape (n,), optional
        The user's numbers of its rows.
    """
    n = len(matrix)
    symmetric = True
    starts = range(0, n, BLOCK_ROWS)
    for first, second in ((one, other) for one in starts for other in starts if one <= other):
        rows, columns = slice(first, first + BLOCK_ROWS), slice(second, second + BLOCK_ROWS)
        one_way = np.array(matrix[rows, columns], np.float64, order="C")
        other_way = np.array(matrix[columns, rows].T, np.float64, order="C")
        if first == second:
            np.fill_diagonal(one_way, 0.0)
            np.fill_diagonal(other_way, 0.0)

        def names(place: tuple[int, int], first: int = first, second: int = second) -> tuple[str, str]:
            row, column = first + place[0], second + place[1]
            if numbers is not None:
                row, column = int(numbers[row]), int(numbers[column])
            if computed_by is None:
                return f"X[{row}, {column}]", f"X[{column}, {row}]"
            by = f" of X by metric={computed_by!r}"
            return f"the distance from row {row} to {column}{by}", f"that from row {column} to {row}{by}"

        for way, entries in enumerate((one_way, other_way)):
            if not (entries >= 0).all():
                place = _first(~(entries >= 0))
                _refuse_entry(names(place)[way], entries[place], computed_by is not None)
        if (one_way == other_way).all():
            continue
        symmetric = False
        apart = _far_apart(one_way, other_way)
        if apart.any():
            place = _first(apart)
            _refuse_asymmetry(names(place), (one_way[place], other_way[place]))
    return SquareMatrix(matrix, symmetric)


def _first(wrong: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the first place that is true."""
    row, column = np.unravel_index(wrong.argmax(), wrong.shape)
    return int(row), int(column)


def _condensed(estimator: Any, values: NDArray[Any]) -> CondensedMatrix:
    _refuse_type(values)
    n = (1 + math.isqrt(1 + 8 * len(values))) // 2
    if len(values) == 0:
        raise ValueError(
            "X is empty, and a condensed matrix of 0 numbers may stand for one row or for none: give a "
            "square matrix"
        )
    if n * (n - 1) // 2 != len(values):
        raise ValueError(
            f"metric='precomputed' takes a condensed matrix of n * (n - 1) / 2 numbers, got {len(values)}, "
            f"which no n gives (n={n} gives {n * (n - 1) // 2}): scipy.spatial.distance.pdist makes one"
        )
    wrong = np.flatnonzero(~(values >= 0))
    if len(wrong):
        _refuse_entry(f"X[{wrong[0]}]", values[wrong[0]])
    _refuse_overflow(values)
    estimator.n_features_in_ = n
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return CondensedMatrix(values, n)


def _graph(X: Any) -> NeighbourGraph:
    """Return each pair of a sparse matrix once; what is stored for a pair twice has to agree."""
    _refuse_type(X)
    by_rows = X.tocsr()
    if not by_rows.has_canonical_format:  # sums what is stored several times, as SciPy means it
        by_rows = by_rows.copy()
        by_rows.sum_duplicates()
    entries = by_rows.tocoo()
    row, column = entries.row.astype(np.int64), entries.col.astype(np.int64)
    values = entries.data.astype(np.float64) + 0.0
    wrong = np.flatnonzero(~(values >= 0) & (row != column))
    if len(wrong):
        _refuse_entry(f"X[{row[wrong[0]]}, {column[wrong[0]]}]", values[wrong[0]])
    kept = np.flatnonzero((row != column) & np.isfinite(values))
    row, column, values = row[kept], column[kept], values[kept]
    lower, higher = np.minimum(row, column), np.maximum(row, column)
    order = np.lexsort((values, higher, lower))
    lower, higher, values = lower[order], higher[order], values[order]
    same = (lower[1:] == lower[:-1]) & (higher[1:] == higher[:-1])  # the smaller of two comes first
    apart = np.flatnonzero(same & _far_apart(values[:-1], values[1:]))
    if len(apart):
        one, low, high = apart[0], lower[apart[0]], higher[apart[0]]
        names = f"X[{low}, {high}]", f"X[{high}, {low}]"
        _refuse_asymmetry(names, (values[one], values[one + 1]))
    is_larger = np.r_[~same, True][: len(values)]
    return NeighbourGraph(X.shape[0], lower[is_larger], higher[is_larger], values[is_larger])


def _far_apart(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):  # both infinite: not apart
        apart = np.abs(one - other) > ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * np.minimum(one, other)
    return apart | (np.isinf(one) != np.isinf(other))


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(
            f"metric='precomputed' takes a square matrix of distances, got shape {tuple(shape)}: give a row "
            "and a column for each row of the data, or leave metric='euclidean' for features"
        )


def _refuse_type(X: Any) -> None:
    if X.dtype.kind not in "fbiu":
        raise ValueError(f"X has dtype {X.dtype}, and distances are numbers: convert it first")


def _refuse_overflow(values: NDArray[Any]) -> None:
    """Refuse numbers of a type wider than float64 that it cannot hold; they would count as not connected."""
    if values.dtype.kind != "f" or values.dtype.itemsize <= 8:
        return
    if np.any((np.abs(values) > np.finfo(np.float64).max) & np.isfinite(values)):
        raise ValueError(
            f"X has dtype {values.dtype} and holds distances that overflow float64: scale X down first"
        )


def _refuse_entry(entry: str, value: Any, is_computed: bool = False) -> None:
    remedy = "numpy.inf says that two rows are not connected"
    if is_computed:
        remedy = (
            "where the metric is not defined (rows of zeros, features that are constant), leave out these "
            "rows or features, or use another metric"
        )
    if not np.isnan(value):
        remedy = "distances are at least 0 (similarities have to be turned into distances)"
    raise ValueError(f"{entry} is {float(value)!r}, which is no distance: {remedy}")


def _refuse_asymmetry(names: tuple[str, str], values: tuple[Any, Any]) -> None:
    entries = " and ".join(f"{name} is {float(value)!r}" for name, value in zip(names, values, strict=True))
    raise ValueError(
        f"{entries}, and a distance is the same both ways: numpy.maximum(X, X.T) takes the larger"
    )

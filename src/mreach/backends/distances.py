"""Where distances between pairs come from on the host: rows and a metric, or a matrix that the user gave.

A source has ``n``, the number of rows, and ``rows(numbers)``, the distances from some rows to all: float64,
symmetric, 0 from a row to itself, infinite between rows that are not connected. It never holds more than it
was given, and may be asked from several threads at once.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from mreach.metrics import Metric

__all__ = [
    "CondensedMatrix",
    "FeatureRows",
    "RepeatedRows",
    "SquareMatrix",
    "feature_distances",
    "paired_distances",
    "settled",
    "whole_matrix",
]

_SCIPY_NAMES = {
    "manhattan": "cityblock",
    "chebyshev": "chebyshev",
    "minkowski": "minkowski",
    "hamming": "hamming",
    "euclidean": "euclidean",
    "haversine": "euclidean",
    "cosine": "sqeuclidean",
    "correlation": "sqeuclidean",
}

MATRIX_SHARE = 0.5
"""Share of the machine's memory that a matrix made for a metric of the kind "whole" may take."""


def feature_distances(metric: Metric, X: NDArray[Any], Y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the distances between two sets of rows, made ready, as the backends measure them.

    Parameters
    ----------
    metric : Metric
        Filtered, tiled or whole. "haversine" gives chords.
    X, Y : float arrays of shape (n, n_features) and (m, n_features)

    Returns
    -------
    float64 array of shape (n, m)
    """
    if metric.kind == "whole":
        from sklearn.metrics import pairwise_distances  # slow to import, and few fits need it

        called = metric.name if metric.function is None else metric.function
        found = pairwise_distances(*_as_asked(metric, X, Y), metric=called, **metric.parameters)
        return np.asarray(found, np.float64)
    # SciPy adds feature by feature, in order, and rounds each operation once, as the definitions do.
    if metric.name == "jaccard":
        return _jaccard(X, Y)
    distances: NDArray[np.float64] = cdist(X, Y, _SCIPY_NAMES[metric.name], **metric.parameters)
    return np.multiply(distances, 0.5, out=distances) if metric.halved_square else distances


def _jaccard(X: NDArray[Any], Y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the Jaccard distances of rows of 0 and 1, from counts that float64 holds exactly."""
    different = cdist(X, Y, "cityblock")  # SciPy's own takes 6 times as long
    either = (X.sum(axis=1)[:, np.newaxis] + Y.sum(axis=1) + different) * 0.5
    distances: NDArray[np.float64] = np.divide(different, either, out=different, where=either > 0)
    return distances


def paired_distances(
    X: NDArray[Any], source: NDArray[Any], target: NDArray[Any], halved_square: bool
) -> NDArray[np.float64]:
    """Return Euclidean distances (or half their squares) between pairs of rows, as the backends compute them.

    Parameters
    ----------
    X : float array of shape (n, n_features)
    source, target : int arrays of shape (n_pairs,)
    halved_square : bool

    Returns
    -------
    float64 array of shape (n_pairs,)
    """
    squared_distances = np.zeros(len(source))
    for column in X.T:
        values = column.astype(np.float64)
        difference = values[source] - values[target]
        squared_distances += difference * difference
    return squared_distances * 0.5 if halved_square else np.sqrt(squared_distances)


def whole_matrix(metric: Metric, X: NDArray[Any]) -> NDArray[np.float64]:
    """Return all distances between the rows of ``X``, float64 of shape (n, n), by one routine of the host.

    Raises
    ------
    MemoryError
        It would take more than :data:`MATRIX_SHARE` of the machine's memory.
    """
    check_memory(
        8 * len(X) ** 2,
        f"metric={metric.name!r} needs the whole matrix of {len(X)} x {len(X)} distances",
        "Use a metric that is computed by tiles, or fewer rows.",
    )
    distances = feature_distances(metric, X, X)
    np.fill_diagonal(distances, 0.0)
    return distances


def settled(metric: Metric, X: NDArray[Any]) -> Metric:
    """Return the metric with the parameters that scikit-learn takes from the data, where none were given.

    They are taken from all rows at once, in lexicographic order: the order of the rows changes no bit.

    Parameters
    ----------
    metric : Metric
    X : float array of shape (n_points, n_features)
        Each row as often as it counts.
    """
    name = {"seuclidean": "V", "mahalanobis": "VI"}.get(metric.name)
    if name is None or name in metric.parameters or metric.parameters.get("V") is not None:
        return metric
    rows = np.asarray(X, np.float64)
    if len(rows) == 1:
        raise ValueError(
            f"metric={metric.name!r} takes variances from X, and one row has none: give more rows, or {name} "
            "in metric_params"
        )
    rows = rows[np.lexsort(rows.T[::-1])]
    if name == "V":
        value = np.var(rows, axis=0, ddof=1)
    else:
        try:
            value = np.linalg.inv(np.atleast_2d(np.cov(rows.T))).T
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "metric='mahalanobis' needs the inverse of the covariance of X, which has none: features are "
                "constant or depend on each other, or there are few rows. Leave out such features, or give "
                "metric_params={'VI': ...}, for example numpy.linalg.pinv(numpy.cov(X.T))"
            ) from error
    return metric._replace(parameters={**metric.parameters, name: value})


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Refuse what takes more than :data:`MATRIX_SHARE` of the machine's memory, where the system tells it."""
    try:
        installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return
    if needed > MATRIX_SHARE * installed:
        raise MemoryError(
            f"{what}: {needed / 1e9:.1f} GB, and more than {MATRIX_SHARE:.0%} of this machine's "
            f"{installed / 1e9:.1f} GB is not taken. {remedy}"
        )


def _as_asked(metric: Metric, X: NDArray[Any], Y: NDArray[Any]) -> tuple[Any, ...]:
    """One set of rows is given once: scikit-learn then measures each pair once, so that both ways agree."""
    if metric.name in ("dice", "rogerstanimoto", "russellrao", "sokalsneath", "yule"):
        return ((X != 0),) if X is Y else (X != 0, Y != 0)
    if metric.function is not None:  # copies: it may write to the rows that it gets
        return (np.array(X, np.float64),) if X is Y else (np.array(X, np.float64), np.array(Y, np.float64))
    X64 = np.asarray(X, np.float64)
    return (X64,) if X is Y else (X64, np.asarray(Y, np.float64))


class FeatureRows:
    """Rows and a tiled metric.

    Parameters
    ----------
    X : float array of shape (n, n_features)
        Finite. Kept as float64.
    metric : Metric
    """

    def __init__(self, X: NDArray[Any], metric: Metric) -> None:
        self._X = np.ascontiguousarray(X, np.float64)
        self._metric = metric
        self.n = len(X)

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances from some rows to all, shape (len(numbers), n)."""
        return feature_distances(self._metric, self._X[numbers], self._X)


class SquareMatrix:
    """A square matrix: the distance of two rows is the larger of the two numbers given for them.

    Parameters
    ----------
    matrix : real array of shape (n, n)
        Checked; any type and layout. Read, never changed; its diagonal counts as 0.
    symmetric : bool
        Whether both numbers are known to be equal.
    """

    def __init__(self, matrix: NDArray[Any], symmetric: bool) -> None:
        self._matrix, self._symmetric = matrix, symmetric
        self.n = len(matrix)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, twice."""
        return self.n, self.n

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances from some rows to all, shape (len(numbers), n)."""
        distances = np.array(self._matrix[numbers], np.float64, order="C")
        if not self._symmetric:
            np.maximum(distances, self._matrix[:, numbers].T, out=distances)
        distances += 0.0  # no -0.0
        distances[np.arange(len(numbers)), numbers] = 0.0
        return distances


class CondensedMatrix:
    """The upper triangle of a matrix, row by row, as :func:`scipy.spatial.distance.pdist` gives it.

    Parameters
    ----------
    values : real array of shape (n * (n - 1) / 2,)
        Checked. Read, never changed.
    n : int
    """

    def __init__(self, values: NDArray[Any], n: int) -> None:
        self._values = values
        self.n = n

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, twice."""
        return self.n, self.n

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances from some rows to all, shape (len(numbers), n)."""
        distances = np.zeros((len(numbers), self.n))
        others = np.arange(self.n)
        for line, row in zip(distances, numbers.tolist(), strict=True):
            before = others[:row]
            line[:row] = self._values[before * self.n - before * (before + 1) // 2 + row - before - 1]
            start = row * self.n - row * (row + 1) // 2
            line[row + 1 :] = self._values[start : start + self.n - row - 1]
        distances += 0.0
        return distances


class RepeatedRows:
    """Rows of another source, some of them several times.

    Parameters
    ----------
    source
    row_of_point : int64 array of shape (n_points,)
        Which of its rows each one is.
    """

    def __init__(self, source: Any, row_of_point: NDArray[np.int64]) -> None:
        self._source, self._row_of_point = source, row_of_point
        self.n = len(row_of_point)

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances from some points to all, shape (len(numbers), n)."""
        found: NDArray[np.float64] = self._source.rows(self._row_of_point[numbers])[:, self._row_of_point]
        return found

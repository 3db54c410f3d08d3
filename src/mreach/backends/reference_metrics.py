"""The definitions of the metrics, written to be read: plain loops over features, and no code of the fast way.

What has no definition here ("minkowski" with other exponents than 1, 2 and infinity, the kind "whole") is
computed by one routine of the host on every backend.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.distances import feature_distances
from mreach.backends.graph import NeighbourGraph
from mreach.metrics import Metric

__all__ = ["matrix_of", "prepare_rows"]


def matrix_of(X: Any, metric: Metric) -> NDArray[np.float64]:
    """Return all distances: float64 of shape (n, n), symmetric, zeros on its diagonal.

    Parameters
    ----------
    X : float array of shape (n, n_features), or a source of distances (where not "tiled")
    metric : Metric
        Tiled, whole or precomputed.
    """
    if isinstance(X, NeighbourGraph):
        distances = np.full(X.shape, np.inf)
        np.fill_diagonal(distances, 0.0)
        for row, other, distance in zip(X.lower, X.higher, X.distances, strict=True):
            distances[row, other] = distances[other, row] = distance
        return distances
    if metric.kind != "tiled":
        whole: NDArray[np.float64] = X.rows(np.arange(X.n))
        return whole
    if metric.name == "minkowski":
        return feature_distances(metric, X, X)
    columns = np.ascontiguousarray(X.T, np.float64)
    if metric.name in ("manhattan", "chebyshev"):
        distances = np.zeros((len(X), len(X)))
        for column in columns:
            difference = np.abs(column[:, np.newaxis] - column)
            if metric.name == "manhattan":
                distances += difference
            else:
                distances = np.maximum(distances, difference)
        return distances
    n_different, n_either = np.zeros((2, len(X), len(X)))
    for column in columns:
        n_different += column[:, np.newaxis] != column
        n_either += (column[:, np.newaxis] != 0) | (column != 0)
    if metric.name == "hamming":
        return n_different / len(columns)
    # Two rows without a true value are equal.
    return np.divide(n_different, n_either, out=np.zeros_like(n_different), where=n_either > 0)


def prepare_rows(X: NDArray[Any], metric: Metric) -> NDArray[Any]:
    """Return the rows as a filtered metric takes them; see :meth:`mreach.metrics.Metric.prepare`."""
    if not metric.makes_rows_ready:
        return X
    return np.array([_ready(row, metric) for row in X.astype(np.float64).tolist()])


def _ready(row: list[float], metric: Metric) -> list[float]:
    n_numbers = 3 if metric.name == "haversine" else len(row)
    if any(math.isnan(x) for x in row):
        return [math.nan] * n_numbers
    if any(math.isinf(x) for x in row):
        return [math.inf] * n_numbers
    if metric.name == "haversine":
        latitude, longitude = row
        across = math.cos(latitude)
        return [across * math.cos(longitude), across * math.sin(longitude), math.sin(latitude)]
    row = _by_power_of_two(row)
    if metric.name == "correlation":
        total = 0.0
        for x in row:
            total += x
        row = _by_power_of_two([x - total / len(row) for x in row])
    squares = 0.0
    for x in row:
        squares += x * x
    length = math.sqrt(squares) or 1.0
    unit = [x / length for x in row]
    return [0.0 if abs(x) < 2.0**-400 else x for x in unit]


def _by_power_of_two(row: list[float]) -> list[float]:
    largest = max(abs(x) for x in row)
    _, exponent = math.frexp(largest)
    return [math.ldexp(x, -exponent) for x in row]

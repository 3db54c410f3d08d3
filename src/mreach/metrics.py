"""What is measured between rows: the metrics by kind, and the rows that filtered ones work on.

Three kinds of metrics of rows. *Filtered* ones are Euclidean at heart and run on every backend: cosine and
correlation on rows of length one, haversine on points of the unit sphere. *Tiled* ones are computed by tiles
of pairs on the host, in memory linear in the rows. *Whole* ones are any others of scikit-learn, or a
function: they need the whole matrix. A fourth kind, *precomputed*, has no rows.

Only NumPy is needed here; docs/metrics.md holds the definitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["EUCLIDEAN", "SLAB_ROWS", "Metric", "great_circle", "sort_edges", "sphere_rows", "unit_rows"]

SLAB_ROWS = 4096
"""Rows that are made ready at a time: copies of so many stay small beside the data."""

SMALLEST_PART = 2.0**-400
"""Smaller numbers in a row of length one count as 0: then no square of a difference underflows, and the
cosine distance is 0 for equal rows alone."""


class Metric(NamedTuple):
    """A metric, checked.

    Attributes
    ----------
    name : str
        One name for each metric: "manhattan" for "l1" and "cityblock" too; "function" for a function.
    kind : {"filtered", "tiled", "whole", "precomputed"}
    parameters : dict
        ``p`` of "minkowski"; what goes to :func:`sklearn.metrics.pairwise_distances` for the kind "whole".
    function : callable or None
    """

    name: str
    kind: str
    parameters: Mapping[str, Any] = MappingProxyType({})
    function: Callable[..., Any] | None = None

    @property
    def halved_square(self) -> bool:
        """Whether a distance is half the squared Euclidean distance of the rows made ready."""
        return self.name in ("cosine", "correlation")

    @property
    def measure(self) -> dict[str, bool]:
        """Keyword arguments of a backend's ``open_points`` for a filtered metric."""
        return {"halved_square": True} if self.halved_square else {}

    @property
    def makes_rows_ready(self) -> bool:
        """Whether a backend gets other rows than the user's."""
        return self.halved_square or self.name == "haversine"

    def prepare(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the rows as a backend takes them.

        Parameters
        ----------
        X : float32 or float64 array of shape (n, n_features)
            A row with a NaN gives one of NaN, a row with an infinity one of infinities.

        Returns
        -------
        array of shape (n, n_features); float64 of shape (n, 3) for "haversine"
            ``X`` itself where nothing has to be done.
        """
        if self.name == "haversine":
            return sphere_rows(X)
        return unit_rows(X, centred=self.name == "correlation") if self.halved_square else X

    def weights_of(self, found: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return distances in the unit of the metric from those that a backend found."""
        return great_circle(found) if self.name == "haversine" else found


EUCLIDEAN = Metric("euclidean", "filtered")


def unit_rows(X: NDArray[Any], centred: bool) -> NDArray[np.float64]:
    """Return rows of length one: by a power of two, then by the root of the sum of squares.

    With m the largest magnitude in a row and ``2**e`` the least power of two above it, ``y = x * 2**-e``
    (exact), ``s`` is the sum of ``y_f * y_f`` in the order of the features, each operation rounded once, and
    the result is ``y / sqrt(s)``; numbers below 2**-400 become 0. No square overflows or matters by its
    underflow. Zero rows stay as they are.

    Parameters
    ----------
    X : float array of shape (n, n_features)
    centred : bool
        Whether the mean of each row, the sum of ``y_f`` in order over their number, is subtracted first.

    Returns
    -------
    float64 array of shape (n, n_features)
    """
    units = np.empty(X.shape)
    with np.errstate(all="ignore"):
        for start in range(0, len(X), SLAB_ROWS):
            slab = slice(start, start + SLAB_ROWS)
            rows = _scaled(np.asarray(X[slab], np.float64))
            if centred:
                rows = _scaled(rows - (_sum_in_order(rows) / rows.shape[1])[:, np.newaxis])
            length = np.sqrt(_sum_in_order(rows * rows))
            rows /= np.where(length == 0, 1.0, length)[:, np.newaxis]
            rows[np.abs(rows) < SMALLEST_PART] = 0.0
            units[slab] = rows
            _mark_not_finite(units[slab], X[slab])
    return units


def sphere_rows(X: NDArray[Any]) -> NDArray[np.float64]:
    """Return the points of the unit sphere for latitudes and longitudes in radians.

    ``(cos(lat) * cos(lon), cos(lat) * sin(lon), sin(lat))``, by the functions of the C library for one number
    at a time: NumPy's for whole arrays may round by the place in the array.

    Parameters
    ----------
    X : float array of shape (n, 2)

    Returns
    -------
    float64 array of shape (n, 3)
    """
    points = np.full((len(X), 3), np.nan)
    finite = np.flatnonzero(np.isfinite(X).all(axis=1))
    cos, sin = math.cos, math.sin
    for start in range(0, len(finite), SLAB_ROWS):
        rows = finite[start : start + SLAB_ROWS]
        points[rows] = [
            (cos(lat) * cos(lon), cos(lat) * sin(lon), sin(lat))
            for lat, lon in np.asarray(X[rows], np.float64).tolist()
        ]
    _mark_not_finite(points, X)
    return points


def great_circle(chords: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the angles, in radians, of chords of the unit sphere: 2 * asin(min(1, chord / 2))."""
    asin = math.asin
    return np.array([2.0 * asin(min(1.0, 0.5 * chord)) for chord in chords.tolist()], np.float64)


def sort_edges(edges: NDArray[np.void]) -> NDArray[np.void]:
    """Return edges sorted by (weight, source, target)."""
    return edges[np.lexsort((edges["target"], edges["source"], edges["weight"]))]


def _scaled(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bring the largest magnitude of each row to between 1/2 and 1, by a power of two."""
    largest = np.abs(rows).max(axis=1)
    exponent = np.frexp(np.where(np.isfinite(largest), largest, 1.0))[1]
    return np.ldexp(rows, -exponent[:, np.newaxis])


def _sum_in_order(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of each row, feature by feature; NumPy's own sum takes pairs."""
    total = np.zeros(len(rows))
    for column in rows.T:
        total += column
    return total


def _mark_not_finite(rows: NDArray[np.float64], X: NDArray[Any]) -> None:
    """Fill the rows of those with a NaN by NaN, of those with an infinity alone by infinity."""
    other = np.flatnonzero(~np.isfinite(X).all(axis=1))
    rows[other] = np.where(np.isnan(X[other]).any(axis=1), np.nan, np.inf)[:, np.newaxis]

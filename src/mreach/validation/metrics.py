"""The metric asked for, and what it asks of the values of the data."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.callers import users_level
from mreach.metrics import SLAB_ROWS, Metric
from mreach.validation.numbers import InvalidParameterError, real_of

ALIASES = {
    "l2": "euclidean",
    "l1": "manhattan",
    "cityblock": "manhattan",
    "infinity": "chebyshev",
    "p": "minkowski",
}
FILTERED = ("euclidean", "cosine", "correlation", "haversine")
TILED = ("manhattan", "chebyshev", "minkowski", "hamming", "jaccard")
WHOLE = (
    "braycurtis",
    "canberra",
    "dice",
    "mahalanobis",
    "nan_euclidean",
    "rogerstanimoto",
    "russellrao",
    "seuclidean",
    "sokalsneath",
    "yule",
)

ROWS_NAMED = 5
"""Row numbers that an error lists before it only counts."""

MAX_LATITUDE = math.nextafter(math.pi / 2, 2)
"""A latitude in radians that was rounded up is still no latitude in degrees."""


def check_metric(metric: Any, metric_params: Any, p: Any, alpha: float) -> Metric:
    """Return the metric that three parameters ask for.

    Parameters
    ----------
    metric : str or callable
    metric_params : dict or None
        As in scikit-learn.
    p : number or None
        As in hdbscan: of "minkowski" alone.
    alpha : float
        Checked before.

    Raises
    ------
    InvalidParameterError
        (a ValueError and a TypeError)
    """
    if metric_params is not None and not (
        isinstance(metric_params, dict) and all(isinstance(name, str) for name in metric_params)
    ):
        raise InvalidParameterError(
            f"metric_params must be None or a dict of the metric's parameters by name, got {metric_params!r}"
        )
    given = dict(metric_params or {})
    if callable(metric):
        _refuse_p(p, "a function")
        return Metric("function", "whole", given, metric)
    name = ALIASES.get(metric, metric) if isinstance(metric, str) else None
    if name == "minkowski":
        return _minkowski(given, p)
    _refuse_p(p, repr(metric))
    if name == "sqeuclidean":
        raise InvalidParameterError(
            "metric='sqeuclidean' gives the tree of 'euclidean' with squared weights, whose stabilities mean "
            "something else: use metric='euclidean'"
        )
    if name not in (*FILTERED, *TILED, *WHOLE, "precomputed"):
        listed = ", ".join(map(repr, (*FILTERED, *TILED, *WHOLE)))
        raise InvalidParameterError(
            f"metric must be one of {listed}, 'precomputed', or a function of two rows, got {metric!r}"
        )
    if name == "mahalanobis":
        _invert_covariance(given)
    if name == "nan_euclidean" and not given:
        name = "euclidean"  # rows with a NaN have a label of their own: what is left has none
    if name in WHOLE:
        return Metric(name, "whole", given)
    if given:
        raise InvalidParameterError(f"metric={metric!r} takes no metric_params, got {metric_params!r}")
    if name == "haversine" and alpha != 1.0:
        raise InvalidParameterError(
            f"metric='haversine' needs alpha=1.0, got {alpha!r}: rows are ordered by the chords of the "
            "sphere, and a quotient of angles is none of chords"
        )
    kind = "filtered" if name in FILTERED else "tiled" if name in TILED else "precomputed"
    return Metric(name, kind)


def _refuse_p(p: Any, metric: str) -> None:
    if p is not None:
        raise InvalidParameterError(f"p belongs to metric='minkowski': with metric={metric} leave p=None")


def _minkowski(given: dict[str, Any], p: Any) -> Metric:
    hint = "; it is the exponent of metric='minkowski', from 1 to numpy.inf"
    if p is not None and "p" in given and not np.array_equal(given["p"], p):
        raise InvalidParameterError(f"p={p!r} and metric_params={given!r} differ: give one of the two")
    p = given.pop("p", 2) if p is None else p
    if not (isinstance(p, (float, np.floating)) and p == math.inf):
        p = real_of("p", p, hint=hint)
        if p < 1:
            raise InvalidParameterError(f"p must be at least 1, got {p!r}{hint}")
    if given:
        return Metric("minkowski", "whole", {**given, "p": p})
    same = {1.0: ("manhattan", "tiled"), 2.0: ("euclidean", "filtered"), math.inf: ("chebyshev", "tiled")}
    if p in same:
        return Metric(*same[p])
    return Metric("minkowski", "tiled", {"p": p})


def _invert_covariance(given: dict[str, Any]) -> None:
    """Put the inverse of a covariance matrix V in its place, as "VI"."""
    if given.get("V") is None:
        return
    if given.get("VI") is not None:
        raise InvalidParameterError(
            "metric_params of 'mahalanobis' are V, the covariance matrix, or VI, its inverse: give one of "
            "the two"
        )
    try:
        given["VI"] = np.linalg.inv(np.asarray(given.pop("V"), np.float64))
    except (np.linalg.LinAlgError, TypeError, ValueError) as error:
        raise InvalidParameterError(
            f"V of metric='mahalanobis' has no inverse ({error}): give a covariance matrix of full rank, or "
            "VI, for example numpy.linalg.pinv(V)"
        ) from error


def check_values(X: NDArray[Any], metric: Metric) -> None:
    """Check what a metric asks of rows on the host; those that are not finite are passed over.

    Parameters
    ----------
    X : float32 or float64 array of shape (n_samples, n_features)
    metric : Metric

    Raises
    ------
    ValueError
        "cosine": rows of zeros; "correlation": rows that are constant; "haversine": other than two features;
        "jaccard": other values than 0 and 1.

    Warns
    -----
    UserWarning
        "haversine": latitudes beyond a quarter turn, perhaps degrees.
    """
    if metric.name == "haversine":
        _check_angles(X)
    elif metric.halved_square:
        _check_directions(X, metric)
    elif metric.name == "jaccard":
        _check_booleans(X)


def _check_angles(X: NDArray[Any]) -> None:
    if X.shape[1] != 2:
        raise ValueError(
            f"metric='haversine' needs 2 features, latitude and longitude in radians, got {X.shape[1]}"
        )
    with np.errstate(invalid="ignore"):
        beyond = np.flatnonzero(np.isfinite(X).all(axis=1) & (np.abs(X[:, 0]) > MAX_LATITUDE))
    if len(beyond):
        warnings.warn(
            f"latitudes lie beyond pi/2 (rows: {len(beyond)}, the first is row {beyond[0]}): "
            "metric='haversine' takes radians, numpy.radians(X) makes them from degrees",
            UserWarning,
            stacklevel=users_level(),
        )


def _check_directions(X: NDArray[Any], metric: Metric) -> None:
    found = []
    for start in range(0, len(X), SLAB_ROWS):
        slab = X[start : start + SLAB_ROWS]
        high = slab.max(axis=1)
        same = (slab.min(axis=1) == high) & np.isfinite(high)
        found.append(start + np.flatnonzero(same & (high == 0) if metric.name == "cosine" else same))
    rows = np.concatenate(found)
    if len(rows):
        what = "rows of zeros" if metric.name == "cosine" else "constant rows"
        listed = ", ".join(map(str, rows[:ROWS_NAMED].tolist())) + (", ..." if len(rows) > ROWS_NAMED else "")
        raise ValueError(
            f"X holds {what}, which have no direction and no {metric.name} distance (rows: {len(rows)}): "
            f"leave out rows {listed}, or fill them with numpy.nan (label -3)"
        )


def _check_booleans(X: NDArray[Any]) -> None:
    for start in range(0, len(X), SLAB_ROWS):
        slab = X[start : start + SLAB_ROWS]
        wrong = (slab != 0) & (slab != 1) & np.isfinite(slab)
        if wrong.any():
            row, feature = (int(place[0]) for place in np.nonzero(wrong))
            raise ValueError(
                f"metric='jaccard' takes booleans or 0 and 1, X holds {slab[row, feature]} in row "
                f"{start + row}: say what counts as true, for example X != 0"
            )

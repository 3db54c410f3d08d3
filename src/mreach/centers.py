"""Centres of clusters: weighted means, and the rows nearest to all others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.distances import feature_distances
from mreach.metrics import EUCLIDEAN, Metric, sphere_rows

__all__ = ["center", "cluster_centers", "lexicographic_order"]

TILE_BYTES = 1 << 25
"""Bytes of distances that are held at a time: a cluster's whole matrix may not fit."""


def cluster_centers(
    data: Any,
    labels: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    store_centers: str | None,
    metric: Metric = EUCLIDEAN,
) -> dict[str, NDArray[np.float64]]:
    """Compute the centres of all clusters, as scikit-learn defines them.

    Parameters
    ----------
    data : array of shape (n_finite, n_features), or what gives NumPy arrays for ``[rows]``
        Finite rows.
    labels, probabilities : arrays of shape (n_finite,)
        Of a cut.
    store_centers : {None, "centroid", "medoid", "both"}
    metric : Metric
        Of medoids. Centroids are means of the rows whatever the metric, but for haversine, where they are
        means on the sphere.

    Returns
    -------
    dict with those of these two that were asked for, float64 arrays of shape (n_clusters, n_features)
        ``centroids_``: mean of the rows of each cluster, weighted by their probabilities. ``medoids_``: the
        row of each cluster with the least sum of distances to its rows, each weighted by the probability of
        the row it leads to. Among equal sums the lexicographically smallest row.

    Notes
    -----
    The rows of a cluster are taken in lexicographic order: in whichever order they were given, sums come out
    the same, bit for bit. Three copies of the largest cluster are held in float64. Medoids take time that
    grows with the square of a cluster's rows.
    """
    if store_centers is None:
        return {}
    names = {"centroid": ("centroids_",), "medoid": ("medoids_",), "both": ("centroids_", "medoids_")}
    n_clusters = int(labels.max()) + 1
    centers = {name: np.empty((n_clusters, data.shape[1])) for name in names[store_centers]}
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels + 1))[:-1])[1:]
    for label in range(n_clusters):
        rows, weights = _in_order(data[members[label]], probabilities[members[label]])
        for name, values in centers.items():
            values[label] = _center(name, rows, weights, metric)
    return centers


def center(
    rows: NDArray[Any], probabilities: NDArray[np.float64], store_centers: str, metric: Metric
) -> NDArray[np.float64]:
    """Return the "centroid" or "medoid" of one cluster, as :func:`cluster_centers` has it.

    Parameters
    ----------
    rows, probabilities : arrays of shape (n_members, n_features) and (n_members,)
        Of the cluster.
    store_centers : {"centroid", "medoid"}
    metric : Metric
    """
    return _center(store_centers + "s_", *_in_order(rows, probabilities), metric)


def _in_order(
    rows: NDArray[Any], probabilities: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = np.asarray(rows, np.float64) + 0.0  # no -0.0, which equals 0.0
    order = lexicographic_order(rows)
    return rows[order], probabilities[order]


def _center(
    name: str, rows: NDArray[np.float64], weights: NDArray[np.float64], metric: Metric
) -> NDArray[np.float64]:
    if name == "medoids_":
        return rows[medoid(rows, weights, metric)]
    return place_on_sphere(rows, weights) if metric.name == "haversine" else centroid(rows, weights)


def place_on_sphere(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return latitude and longitude of the weighted mean of places, in radians, as a place on the sphere.

    A mean of longitudes would lie on the other side where some are near 0 and others near a full turn. The
    longitude is given within half a turn of the first row's.
    """
    x, y, z = centroid(sphere_rows(rows), weights).tolist()
    latitude, longitude = math.atan2(z, math.hypot(x, y)), math.atan2(y, x)
    turns = round((float(rows[0, 1]) - longitude) / math.tau)
    return np.array([latitude, longitude + turns * math.tau])


def lexicographic_order(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the order that sorts rows by their first feature, then by the second, and so on.

    By few features first: mostly they tell all rows apart, and each more is one more sort.
    """
    n_features = rows.shape[1]
    n_keys = 1
    order = np.argsort(rows[:, 0], kind="stable")
    for _ in range(n_features):
        before, after = order[:-1], order[1:]
        tied = (rows[before, :n_keys] == rows[after, :n_keys]).all(axis=1)
        if n_keys == n_features or (rows[before[tied]] == rows[after[tied]]).all():
            break
        n_keys = min(4 * n_keys, n_features)
        order = np.lexsort(rows[:, :n_keys].T[::-1])
    return order


def centroid(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted mean, float64 array of shape (n_features,).

    Taken from the first row on: sums of large numbers that are nearly equal would lose the differences, or
    overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean = _mean(rows, weights)
    beyond = np.flatnonzero(~np.isfinite(mean))
    if len(beyond):  # of features whose differences, or sums of them, overflow
        rows = rows[:, beyond]
        shift = len(rows).bit_length() + 1  # a difference is below 2**1025
        scaled = np.ldexp(_mean(np.ldexp(rows, -shift), weights), shift)
        mean[beyond] = np.clip(scaled, rows.min(axis=0), rows.max(axis=0))
    return mean


def _mean(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    offsets = (rows - rows[0]) * weights[:, np.newaxis]
    mean: NDArray[np.float64] = rows[0] + offsets.sum(axis=0) / weights.sum()
    return mean


def medoid(rows: NDArray[np.float64], weights: NDArray[np.float64], metric: Metric = EUCLIDEAN) -> int:
    """Return the first row with the least weighted sum of distances to all rows."""
    n_at_once = max(1, TILE_BYTES // (8 * len(rows)))
    ready = metric.prepare(rows)
    sums = np.empty(len(rows))
    for start in range(0, len(rows), n_at_once):
        tile = slice(start, start + n_at_once)
        # Not by a matrix product, which would add in an order of its own.
        distances = feature_distances(metric, ready[tile], ready)
        if metric.name == "haversine":
            distances = np.arcsin(np.minimum(distances * 0.5, 1.0))
        with np.errstate(over="ignore"):  # infinite where it overflows
            sums[tile] = (distances * weights).sum(axis=1)
    return int(sums.argmin())

"""How clusters lose their rows as the density rises."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.plot_data.scale import Scale

__all__ = ["ClusterProfile", "cluster_profile_data"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class ClusterProfile(NamedTuple):
    """How many rows each cluster still holds as the density rises.

    Attributes
    ----------
    rows : int64 array of shape (n_clusters,)
        Number of rows with each label.
    birth, half, end : float64 arrays of shape (n_clusters,)
        The lambda where the cluster is born (0: the root), the one where at most half of its rows are left,
        and the one where the last of them leave; infinite where these are equal rows.
    probability : float64 array of shape (n_clusters,)
        Mean of the rows' probabilities.
    persistence : float64 array of shape (n_clusters,)
        As ``cluster_persistence_``.
    starts : int64 array of shape (n_clusters + 1,)
        Where the curve of each cluster begins in the next two, and the last one ends.
    lambdas : float64 array of shape (n_points,)
        Along each curve, ascending: the birth, then each lambda at which rows leave.
    left : int64 array of shape (n_points,)
        Number of the cluster's rows that are left after that lambda: at first all, at last 0.
    scale : Scale
    """

    rows: Integers
    birth: Floats
    half: Floats
    end: Floats
    probability: Floats
    persistence: Floats
    starts: Integers
    lambdas: Floats
    left: Integers
    scale: Scale


def cluster_profile_data(model: Any, log_lambda: bool = False) -> ClusterProfile:
    """Return when the rows of each cluster leave.

    Parameters
    ----------
    model
        A fitted estimator.
    log_lambda : bool
        Whether ``scale`` is logarithmic.

    Returns
    -------
    ClusterProfile
        In the order of the labels. A row counts until it leaves the hierarchy below the cluster, not only the
        cluster itself.
    """
    condensed, labels = np.asarray(model.condensed_tree_), model.labels_
    n_clusters = len(model.cluster_persistence_)
    root = int(condensed["parent"][0]) if len(condensed) else 0
    born = condensed[condensed["child"] > root]
    birth_of = dict(zip(born["child"].tolist(), born["lambda_val"].tolist(), strict=True))
    birth = np.array([birth_of.get(one, 0.0) for one in model.condensed_tree_.selected.tolist()], np.float64)
    is_row = condensed["child"] < root
    rows, lambdas = condensed["child"][is_row], condensed["lambda_val"][is_row]
    label = labels[rows]
    order = np.lexsort((lambdas, label))
    order = order[np.searchsorted(label[order], 0) :]
    label, lambdas = label[order], lambdas[order]
    rows_of = np.bincount(label, minlength=n_clusters)

    is_last = np.ones(len(label), bool)  # of the rows that leave a cluster at one lambda
    is_last[:-1] = (label[1:] != label[:-1]) | (lambdas[1:] != lambdas[:-1])
    steps = np.flatnonzero(is_last)
    of, until = label[steps], lambdas[steps]
    left = np.cumsum(rows_of)[of] - steps - 1
    n_steps = np.bincount(of, minlength=n_clusters)
    first = np.cumsum(n_steps) - n_steps
    half = until[first + np.bincount(of[2 * left > rows_of[of]], minlength=n_clusters)]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(n_steps + 1)))
    curve_lambdas, curve_left = np.empty(starts[-1]), np.empty(starts[-1], np.int64)
    place = np.arange(len(of)) + of + 1  # after the births of its own cluster and those before
    curve_lambdas[starts[:-1]], curve_left[starts[:-1]] = birth, rows_of
    curve_lambdas[place], curve_left[place] = until, left
    in_cluster = labels >= 0
    probability = np.bincount(labels[in_cluster], model.probabilities_[in_cluster], n_clusters)
    return ClusterProfile(
        rows=rows_of,
        birth=birth,
        half=half,
        end=until[first + n_steps - 1],
        probability=probability / rows_of,
        persistence=model.cluster_persistence_,
        starts=starts,
        lambdas=curve_lambdas,
        left=curve_left,
        scale=Scale.of(curve_lambdas, log_lambda),
    )

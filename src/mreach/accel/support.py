"""What mreach computes in place of the two libraries: one table for each.

A table names every parameter of a library. What it does not name (a newer version has it, say) must have its
default, else the fit is left to the library.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Container, Mapping
from typing import Any

from scipy.sparse import issparse

from mreach.validation.metrics import ALIASES

__all__ = ["HDBSCAN", "SKLEARN", "Unsupported", "mreach_parameters"]

Rule = Callable[[Any, Any], dict[str, Any]]
"""From the value of a parameter and the estimator to parameters of mreach; raises Unsupported."""


class Unsupported(Exception):
    """mreach does not compute this; the text says why."""


def mreach_parameters(estimator: Any, table: Mapping[str, Rule], X: Any) -> dict[str, Any]:
    """Translate the parameters of an estimator, for the data it is to cluster.

    Parameters
    ----------
    estimator : sklearn.cluster.HDBSCAN or hdbscan.HDBSCAN
    table : dict
        :data:`SKLEARN` or :data:`HDBSCAN`.
    X : array-like
        Not looked into.

    Returns
    -------
    dict
        Parameters of :class:`mreach.HDBSCAN`.

    Raises
    ------
    Unsupported
        Naming the parameter, or what is wrong with the kind of data.
    """
    if issparse(X):
        _check_sparse(estimator, table, X)
    translated: dict[str, Any] = {}
    defaults = inspect.signature(type(estimator).__init__).parameters
    for name, value in estimator.get_params(deep=False).items():
        if name in table:
            translated.update(table[name](value, estimator))
        elif name not in defaults or not _is_same(value, defaults[name].default):
            raise Unsupported(f"{name}={value!r} is not known to mreach")
    return translated


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


def _as(name: str) -> Rule:
    """The same value, by the name of mreach."""
    return lambda value, estimator: {name: value}


def _without_effect(value: Any, estimator: Any) -> dict[str, Any]:
    """How the library searches or caches: all ways lead to the same, exact result."""
    return {}


def _off(*off: Any) -> Callable[[str], Rule]:
    """Only the values that switch something off."""

    def because(reason: str) -> Rule:
        def rule(value: Any, estimator: Any) -> dict[str, Any]:
            if value not in off:
                raise Unsupported(reason)
            return {}

        return rule

    return because


QUICK = ("euclidean", "cosine", "correlation", "haversine", "precomputed")
"""Metrics that mreach computes faster than either library."""

ALL_PAIRS = ("manhattan", "chebyshev", "hamming", "jaccard")
"""Here mreach compares all pairs. So does scikit-learn, on one core. hdbscan has trees for them."""


def _metric(name: Any, arguments: Mapping[str, Any], taken: Container[str]) -> dict[str, Any]:
    if not isinstance(name, str):
        raise Unsupported("mreach is no faster with a function as its metric")
    metric, others = ALIASES.get(name, name), dict(arguments)
    if metric == "minkowski":
        same = {1: "manhattan", 2: "euclidean", math.inf: "chebyshev"}
        metric = same.get(others.pop("p", 2), metric)
    if others or metric not in taken:
        with_arguments = f" with {dict(arguments)}" if arguments else ""
        raise Unsupported(f"mreach is no faster with metric {name!r}{with_arguments}")
    return {"metric": metric}


def _metric_of_sklearn(value: Any, estimator: Any) -> dict[str, Any]:
    return _metric(value, estimator.metric_params or {}, QUICK + ALL_PAIRS)


def _metric_of_hdbscan(value: Any, estimator: Any) -> dict[str, Any]:
    arguments = dict(getattr(estimator, "_metric_kwargs", {}))
    if value in ("minkowski", "p"):
        arguments.setdefault("p", estimator.p)
    return _metric(value, arguments, QUICK)


def _check_sparse(estimator: Any, table: Mapping[str, Rule], X: Any) -> None:
    if estimator.metric != "precomputed":
        raise Unsupported("sparse features are not part of mreach.accel")
    if table is not HDBSCAN:
        raise Unsupported("scikit-learn does not count the row itself in a sparse matrix of distances")
    pairs = X.tocoo()
    if (pairs.row == pairs.col).any():
        raise Unsupported("hdbscan counts the stored diagonal of a sparse matrix of distances as neighbours")


def _min_samples_of_hdbscan(value: Any, estimator: Any) -> dict[str, Any]:
    """hdbscan does not count the row itself: one more here. It cuts the number down to what there is."""
    k = estimator.min_cluster_size if value is None else value
    if not isinstance(k, numbers.Integral) or k < 1:
        raise Unsupported(f"min_samples={k!r} is no number of neighbours")  # its own error is better
    return {"min_samples": int(k) + 1}


def _max_cluster_size_of_hdbscan(value: Any, estimator: Any) -> dict[str, Any]:
    return {"max_cluster_size": value or None}


def _jobs_of_hdbscan(value: Any, estimator: Any) -> dict[str, Any]:
    """Its default of 4 was chosen by nobody: all cores, and one inside a joblib worker."""
    return {"n_jobs": None if value == 4 else value}


def _epsilon_max(value: Any, estimator: Any) -> dict[str, Any]:
    return {"cluster_selection_epsilon_max": math.inf if value is None else value}


_BOTH: dict[str, Rule] = {
    "min_cluster_size": _as("min_cluster_size"),
    "cluster_selection_epsilon": _as("cluster_selection_epsilon"),
    "alpha": _as("alpha"),
    "cluster_selection_method": _as("cluster_selection_method"),
    "allow_single_cluster": _as("allow_single_cluster"),
    "algorithm": _without_effect,
    "leaf_size": _without_effect,
}

SKLEARN: dict[str, Rule] = {
    **_BOTH,
    "min_samples": _as("min_samples"),
    "max_cluster_size": _as("max_cluster_size"),
    "metric": _metric_of_sklearn,
    "metric_params": _without_effect,  # read with the metric
    "n_jobs": _as("n_jobs"),
    "store_centers": _as("store_centers"),
    "copy": _without_effect,  # X is never written to
}

HDBSCAN: dict[str, Rule] = {
    **_BOTH,
    "min_samples": _min_samples_of_hdbscan,
    "max_cluster_size": _max_cluster_size_of_hdbscan,
    "metric": _metric_of_hdbscan,
    "p": _without_effect,  # read with the metric
    "core_dist_n_jobs": _jobs_of_hdbscan,
    "cluster_selection_epsilon_max": _epsilon_max,
    "cluster_selection_persistence": _off(0)(
        "cluster_selection_persistence prunes a binary tree, which mreach does not have"
    ),
    "match_reference_implementation": _off(False)(
        "match_reference_implementation changes the labels of border rows in hdbscan's own way"
    ),
    "memory": _without_effect,  # nothing is cached: a fit takes less time than reading it
    "approx_min_span_tree": _without_effect,  # the tree is the minimum one, which an approximation aims at
    # These three say what is kept after the fit.
    "gen_min_span_tree": _without_effect,
    "prediction_data": _without_effect,
    "branch_detection_data": _without_effect,
}

"""Parameters of an estimator, read into plain Python values."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from mreach.backends import BACKENDS
from mreach.metrics import Metric
from mreach.peers import ALGORITHMS, HDBSCAN_ALGORITHMS
from mreach.threads import threads_for
from mreach.validation.metrics import check_metric
from mreach.validation.numbers import (
    InvalidParameterError,
    boolean_of,
    check_progress,
    integer_of,
    is_number,
    one_of,
    real_of,
)

CLUSTER_SELECTION_METHODS = ("eom", "leaf")
CENTERS = ("centroid", "medoid", "both")

# Read as attributes: a subclass may give its own __init__ fewer of them.
_PARAMETERS = (
    "min_cluster_size",
    "min_samples",
    "cluster_selection_epsilon",
    "max_cluster_size",
    "metric",
    "metric_params",
    "p",
    "alpha",
    "cluster_selection_method",
    "allow_single_cluster",
    "store_centers",
    "prediction_data",
    "backend",
    "device",
    "n_jobs",
    "progress",
    "cluster_selection_epsilon_max",
    "algorithm",
    "leaf_size",
    "copy",
)


class Parameters(NamedTuple):
    """The parameters of a fit as plain Python values, checked."""

    min_cluster_size: int
    min_samples: int
    min_samples_given: bool  # else it is min_cluster_size
    cluster_selection_epsilon: float
    cluster_selection_epsilon_max: float
    max_cluster_size: int | None
    metric: Metric
    alpha: float
    cluster_selection_method: str
    allow_single_cluster: bool
    store_centers: str | None
    prediction_data: bool
    backend: str
    device: int | None
    n_threads: int
    progress: Any  # True, False or a function of (stage, done, total)


def given_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator by name, as the user gave them."""
    return {name: getattr(estimator, name) for name in _PARAMETERS}


def check_parameters(estimator: Any) -> Parameters:
    """Check the parameters of an estimator.

    Parameters
    ----------
    estimator : HDBSCAN
        Read only; its attributes keep what the user gave.

    Returns
    -------
    Parameters

    Raises
    ------
    InvalidParameterError
        (a ValueError and a TypeError) naming the parameter, what was given and what is accepted.
    """
    given = given_parameters(estimator)
    min_cluster_size = integer_of("min_cluster_size", given["min_cluster_size"], 2)
    if given["min_samples"] is None:
        min_samples = min_cluster_size
    else:
        hint = "; the point itself counts, so 1 is the smallest (None means min_cluster_size)"
        min_samples = integer_of("min_samples", given["min_samples"], 1, hint=hint)
    max_cluster_size = given["max_cluster_size"]
    if max_cluster_size is not None:
        hint = "; for no limit use max_cluster_size=None"
        max_cluster_size = integer_of("max_cluster_size", max_cluster_size, 1, hint=hint)

    name, off = "cluster_selection_epsilon", "; 0.0 switches it off"
    epsilon = real_of(name, given[name], hint=off)
    if epsilon < 0:
        raise InvalidParameterError(f"{name} must be at least 0, got {epsilon!r}{off}")
    epsilon_max = _epsilon_max(given["cluster_selection_epsilon_max"], epsilon)
    off = "; 1.0 leaves distances as they are"
    alpha = real_of("alpha", given["alpha"], hint=off)
    if alpha <= 0:
        raise InvalidParameterError(f"alpha must be above 0, got {alpha!r}{off}")

    metric = check_metric(given["metric"], given["metric_params"], given["p"], alpha)
    backend = one_of("backend", given["backend"], ("auto", *BACKENDS))
    device = _device(given["device"], backend)
    if metric.kind != "filtered":
        backend = _host_backend(metric, backend, device)
    centers = given["store_centers"]
    if centers is not None:
        centers = one_of("store_centers", centers, CENTERS, hint="; None stores no centres")
        if metric.kind == "precomputed":
            raise InvalidParameterError(
                "store_centers needs rows, and metric='precomputed' has none: leave store_centers=None"
            )
    _check_without_effect(given)
    return Parameters(
        min_cluster_size=min_cluster_size,
        min_samples=min_samples,
        min_samples_given=given["min_samples"] is not None,
        cluster_selection_epsilon=epsilon,
        cluster_selection_epsilon_max=epsilon_max,
        max_cluster_size=max_cluster_size,
        metric=metric,
        alpha=alpha,
        cluster_selection_method=one_of(
            "cluster_selection_method", given["cluster_selection_method"], CLUSTER_SELECTION_METHODS
        ),
        allow_single_cluster=boolean_of("allow_single_cluster", given["allow_single_cluster"]),
        store_centers=centers,
        prediction_data=boolean_of("prediction_data", given["prediction_data"]),
        backend=backend,
        device=device,
        n_threads=_threads(given["n_jobs"]),
        progress=check_progress(given["progress"]),
    )


def _epsilon_max(value: Any, epsilon: float) -> float:
    name = "cluster_selection_epsilon_max"
    if not is_number(value) or math.isnan(value):
        raise InvalidParameterError(f"{name} must be a number, got {value!r}; inf switches it off")
    if value < epsilon:
        raise InvalidParameterError(
            f"{name} must be at least cluster_selection_epsilon={epsilon!r}, got {value!r}; "
            "inf switches it off"
        )
    return float(value)


def _check_without_effect(given: dict[str, Any]) -> None:
    """Check what scikit-learn and hdbscan choose by, so that a slip of the pen is still found."""
    one_of("algorithm", given["algorithm"], ALGORITHMS + HDBSCAN_ALGORITHMS, hint="; it has no effect")
    integer_of("leaf_size", given["leaf_size"], 1, hint="; it has no effect")
    if given["copy"] != "warn":  # scikit-learn's way to say that its default will change
        boolean_of("copy", given["copy"])


def _device(value: Any, backend: str) -> int | None:
    if value is None:
        return None
    if backend not in ("auto", "cuda"):
        raise InvalidParameterError(
            f"device is the index of a GPU and belongs to backend='cuda' or 'auto': "
            f"with backend={backend!r} leave device=None, got {value!r}"
        )
    return integer_of("device", value, 0)


def _host_backend(metric: Metric, backend: str, device: int | None) -> str:
    """Return the backend of a metric that only the host computes."""
    if backend == "cuda" or device is not None:
        asked = "backend='cuda'" if backend == "cuda" else f"device={device}"
        raise InvalidParameterError(
            f"{asked} was asked for, and metric={metric.name!r} is computed on the host: use backend='auto' "
            "or 'cpu', with device=None"
        )
    return "cpu" if backend == "auto" else backend


def _threads(n_jobs: Any) -> int:
    if n_jobs is None:
        return threads_for(None)
    meanings = "None or -1 means all cores, -2 all but one, 3 three threads"
    asked = integer_of("n_jobs", n_jobs, None, hint=f"; {meanings}")
    if asked == 0:
        raise InvalidParameterError(f"n_jobs must not be 0; {meanings}")
    return threads_for(asked)

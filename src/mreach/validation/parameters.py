"""Parameters of an estimator, read into plain Python values."""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

import numpy as np

from mreach.backends import BACKENDS
from mreach.peers import ALGORITHMS, HDBSCAN_ALGORITHMS
from mreach.threads import threads_for

CLUSTER_SELECTION_METHODS = ("eom", "leaf")
METRICS = ("euclidean",)
CENTERS = ("centroid", "medoid", "both")

# Read as attributes: a subclass may give its own __init__ fewer of them.
_PARAMETERS = (
    "min_cluster_size",
    "min_samples",
    "cluster_selection_epsilon",
    "max_cluster_size",
    "metric",
    "alpha",
    "cluster_selection_method",
    "allow_single_cluster",
    "store_centers",
    "backend",
    "device",
    "n_jobs",
    "progress",
    "cluster_selection_epsilon_max",
    "algorithm",
    "leaf_size",
    "copy",
)


class InvalidParameterError(ValueError, TypeError):
    """A parameter has the wrong type or a value outside its range."""


class Parameters(NamedTuple):
    """The parameters of a fit as plain Python values, checked."""

    min_cluster_size: int
    min_samples: int
    min_samples_given: bool  # else it is min_cluster_size
    cluster_selection_epsilon: float
    cluster_selection_epsilon_max: float
    max_cluster_size: int | None
    alpha: float
    cluster_selection_method: str
    allow_single_cluster: bool
    store_centers: str | None
    backend: str
    device: int | None
    n_threads: int
    progress: bool


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

    one_of("metric", given["metric"], METRICS, hint="; other metrics are not part of this version")
    backend = one_of("backend", given["backend"], ("auto", *BACKENDS))
    centers = given["store_centers"]
    if centers is not None:
        centers = one_of("store_centers", centers, CENTERS, hint="; None stores no centres")
    _check_without_effect(given)
    return Parameters(
        min_cluster_size=min_cluster_size,
        min_samples=min_samples,
        min_samples_given=given["min_samples"] is not None,
        cluster_selection_epsilon=epsilon,
        cluster_selection_epsilon_max=epsilon_max,
        max_cluster_size=max_cluster_size,
        alpha=alpha,
        cluster_selection_method=one_of(
            "cluster_selection_method", given["cluster_selection_method"], CLUSTER_SELECTION_METHODS
        ),
        allow_single_cluster=boolean_of("allow_single_cluster", given["allow_single_cluster"]),
        store_centers=centers,
        backend=backend,
        device=_device(given["device"], backend),
        n_threads=_threads(given["n_jobs"]),
        progress=boolean_of("progress", given["progress"]),
    )


def is_number(value: Any) -> bool:
    """Tell a real number from everything else; True, False and time spans are no numbers here."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_, np.timedelta64))


def integer_of(name: str, value: Any, least: int | None, hint: str = "") -> int:
    wanted = "an integer" if least is None else f"an integer of at least {least}"
    refusal = InvalidParameterError(f"{name} must be {wanted}, got {value!r}{hint}")
    if not is_number(value):
        raise refusal
    try:
        number = int(value)
    except (OverflowError, ValueError):  # infinity, NaN
        raise refusal from None
    if number != value:
        raise refusal
    if least is not None and number < least:
        raise refusal
    return number


def real_of(name: str, value: Any, hint: str) -> float:
    if not is_number(value):
        raise InvalidParameterError(f"{name} must be a number, got {value!r}{hint}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidParameterError(f"{name} must be a finite number, got {value!r}{hint}")
    return number


def boolean_of(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidParameterError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def one_of(name: str, value: Any, valid: tuple[str, ...], hint: str = "") -> str:
    if not isinstance(value, str) or value not in valid:
        listed = ", ".join(repr(one) for one in valid)
        some = "one of " if len(valid) > 1 else ""
        raise InvalidParameterError(f"{name} must be {some}{listed}, got {value!r}{hint}")
    return str(value)


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


def _threads(n_jobs: Any) -> int:
    if n_jobs is None:
        return threads_for(None)
    meanings = "None or -1 means all cores, -2 all but one, 3 three threads"
    asked = integer_of("n_jobs", n_jobs, None, hint=f"; {meanings}")
    if asked == 0:
        raise InvalidParameterError(f"n_jobs must not be 0; {meanings}")
    return threads_for(asked)

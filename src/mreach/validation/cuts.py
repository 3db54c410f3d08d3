"""What a user asks of a fitted hierarchy is checked here; nothing else raises on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mreach.validation.numbers import InvalidParameterError, integer_of, real_of

AS_FITTED = "as fitted"
"""Stands for the value of the fit where None is a value itself."""


def asked_parameters(given: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a cut: those of the fit, but for what was asked for.

    Parameters
    ----------
    given : dict
        All parameters as they were when the trees were fitted.
    asked : dict
        Some of them; None means as fitted, for "max_cluster_size" :data:`AS_FITTED` does.

    Raises
    ------
    InvalidParameterError
        Another text for "max_cluster_size".
    """
    asked = dict(asked)
    max_size = asked.pop("max_cluster_size")
    chosen = {**given, **{name: value for name, value in asked.items() if value is not None}}
    if isinstance(max_size, str):
        if max_size != AS_FITTED:
            raise InvalidParameterError(
                f"max_cluster_size must be an integer of at least 1, None (no limit) or {AS_FITTED!r}, "
                f"got {max_size!r}"
            )
    else:
        chosen["max_cluster_size"] = max_size
    if chosen["min_samples"] is None and asked.get("min_cluster_size") is not None:
        # None followed the fit's min_cluster_size: the trees keep that, whatever this cut's is.
        chosen["min_samples"] = given["min_cluster_size"]
    return chosen


def check_n_clusters(n_clusters: Any, epsilon: Any) -> int | None:
    """Check the number of clusters asked for; None where none was.

    Raises
    ------
    InvalidParameterError
        Not an integer of at least 1, or an epsilon given as well.
    """
    if n_clusters is None:
        return None
    if epsilon is not None:
        raise InvalidParameterError(
            "n_clusters looks for the cluster_selection_epsilon that gives so many clusters: give one of the "
            f"two, got n_clusters={n_clusters!r} and cluster_selection_epsilon={epsilon!r}"
        )
    return integer_of("n_clusters", n_clusters, 1)


def refuse_n_clusters(n_clusters: int, nearest: list[int], method: str) -> None:
    """Say that no epsilon gives so many clusters.

    Parameters
    ----------
    n_clusters : int
    nearest : list of int
        The numbers that are possible next to it, ascending.
    method : str
        The ``cluster_selection_method`` of the cut.

    Raises
    ------
    ValueError
        Always.
    """
    found = " and ".join(map(str, nearest))
    more = ""
    if nearest[-1] < n_clusters:
        more = "; a smaller min_cluster_size can give more"
        if method != "leaf":
            more = "; cluster_selection_method='leaf' or a smaller min_cluster_size can give more"
    elif nearest[0] > n_clusters:
        more = "; a larger min_cluster_size can give fewer"
    raise ValueError(
        f"no cluster_selection_epsilon gives n_clusters={n_clusters}; the nearest possible: {found}{more}"
    )


def check_sizes(sizes: Any) -> list[Any]:
    """Return the values of a sweep as a list; each is checked as it is used.

    Raises
    ------
    InvalidParameterError
        Not a sequence.
    """
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Iterable):
        raise InvalidParameterError(
            f"min_cluster_sizes must be a sequence of integers, got {sizes!r}; for one value use cut()"
        )
    return list(sizes)


def check_sweep(values: Any) -> list[Any]:
    """Return the values of ``min_samples`` to fit as a list; each is checked as a parameter.

    Raises
    ------
    InvalidParameterError
        Not a sequence, empty, or with a None, which stands for ``min_cluster_size`` in a fit.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidParameterError(
            f"min_samples must be a sequence of integers, got {values!r}; for one value use fit()"
        )
    values = list(values)
    if not values or None in values:
        raise InvalidParameterError(f"min_samples must hold one integer or more, got {values!r}")
    return values


def check_distance_cut(cut_distance: Any, min_cluster_size: Any) -> tuple[float, int]:
    """Check the parameters of a cut at one distance.

    Raises
    ------
    InvalidParameterError
        A distance that is not a finite number of at least 0, or a size that is not an integer of at least 1.
    """
    distance = real_of("cut_distance", cut_distance, hint="; it is a distance in the unit of the data")
    if distance < 0:
        raise InvalidParameterError(f"cut_distance must be at least 0, got {distance!r}")
    return distance, integer_of("min_cluster_size", min_cluster_size, 1)


def refuse_changed_rows() -> None:
    """Say that the data were changed in place after the fit.

    Raises
    ------
    ValueError
        Always.
    """
    raise ValueError(
        "X was changed in place after the fit, and its rows are asked for again (new rows are searched in "
        "them, clusters of equal size are numbered by their smallest row): fit again, or fit on X.copy() "
        "before changing X"
    )

"""Warnings about results that are right, and hardly what was wanted. They say what to do."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.typing import NDArray

from mreach.callers import users_level
from mreach.validation import Parameters

__all__ = ["NoClustersWarning", "warn_without_clusters", "without_advice"]

_is_silent = ContextVar("_is_silent", default=False)


class NoClustersWarning(UserWarning):
    """All rows came out as noise."""


@contextmanager
def without_advice() -> Iterator[None]:
    """Give no warning of this module inside, in this thread (``warnings.catch_warnings`` is for one only)."""
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


def warn_without_clusters(
    labels: NDArray[np.int64], condensed_tree: NDArray[np.void], n_points: int, parameters: Parameters
) -> None:
    """Warn where no cluster was found, and say why.

    Parameters
    ----------
    labels : int64 array of shape (n_samples,)
    condensed_tree : CONDENSED_DTYPE array
        In the user's row numbers; clusters other than the root from ``n_samples + 1`` on.
    n_points : int
        Number of rows that took part, each as often as its weight counts it.
    parameters : Parameters
        What the labels were made with.
    """
    if labels.max(initial=-1) >= 0 or _is_silent.get():
        return
    limits = []
    if parameters.max_cluster_size is not None:
        limits.append("max_cluster_size")
    if parameters.cluster_selection_epsilon > 0 and parameters.allow_single_cluster:
        limits.append("cluster_selection_epsilon")
    if np.isfinite(parameters.cluster_selection_epsilon_max):
        limits.append("cluster_selection_epsilon_max")
    size, largest = parameters.min_cluster_size, parameters.max_cluster_size
    if n_points < size:
        why = f"min_cluster_size={size} is more than there are: use a smaller one"
    elif largest is not None and largest < size:
        why = f"no cluster has as many as min_cluster_size={size} and at most max_cluster_size={largest}"
    elif (condensed_tree["child"] > len(labels)).any() and limits:
        why = f"clusters split off, but none that may be selected: raise {' and '.join(limits)}"
    elif not parameters.allow_single_cluster:
        why = (
            "nothing splits into two clusters of min_cluster_size. If they may be one cluster, use "
            "allow_single_cluster=True; smaller values of min_cluster_size and min_samples find smaller ones"
        )
    else:
        why = f"nothing splits, and they may not be one cluster: raise {' or '.join(limits)}"
    warnings.warn(f"all {n_points} rows are noise: {why}", NoClustersWarning, stacklevel=users_level())

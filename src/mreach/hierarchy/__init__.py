"""From a spanning tree to flat clusters, by the compiled core. Runs on the host after every fast backend."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.hierarchy.condense import Condensed, condense
from mreach.hierarchy.distance_cut import cut_at_distance
from mreach.hierarchy.forest import spanning_forest
from mreach.hierarchy.labels import number_labels
from mreach.hierarchy.linkage import linkage
from mreach.hierarchy.selection import select
from mreach.records import Cut

__all__ = [
    "clusters_by_epsilon",
    "condense",
    "cut",
    "cut_at_distance",
    "cut_condensed",
    "linkage",
    "number_labels",
    "select",
    "spanning_forest",
]


def cut(
    edges: NDArray[np.void],
    *,
    min_cluster_size: int,
    max_cluster_size: int | None = None,
    cluster_selection_method: str = "eom",
    cluster_selection_epsilon: float = 0.0,
    cluster_selection_epsilon_max: float = math.inf,
    allow_single_cluster: bool = False,
    data: NDArray[Any] | None = None,
) -> Cut:
    """Condense a spanning tree and select flat clusters from it.

    Parameters
    ----------
    edges : EDGE_DTYPE array of shape (n_rows - 1,)
        Minimum spanning tree, sorted by ``(weight, source, target)``. Weights may be infinite: the parts
        that they join are children of the root, born at infinity with lambda 0, or leave it so.
    min_cluster_size : int
        Parts with fewer rows are not clusters; at least 2.
    max_cluster_size, cluster_selection_method, cluster_selection_epsilon, allow_single_cluster
        As in :class:`mreach.HDBSCAN`.
    cluster_selection_epsilon_max : float
        A cluster born above this height is never selected by "eom", and passes its children's sum up. The
        root is born at infinity.
    data : array of shape (n_rows, n_features), optional
        Decides the order of labels that the same number of rows carry; without it their smallest row does.

    Returns
    -------
    Cut
    """
    return cut_condensed(
        condense(edges, min_cluster_size),
        max_cluster_size=max_cluster_size,
        cluster_selection_method=cluster_selection_method,
        cluster_selection_epsilon=cluster_selection_epsilon,
        cluster_selection_epsilon_max=cluster_selection_epsilon_max,
        allow_single_cluster=allow_single_cluster,
        data=data,
    )


def cut_condensed(
    condensed: Condensed,
    *,
    max_cluster_size: int | None,
    cluster_selection_method: str,
    cluster_selection_epsilon: float,
    cluster_selection_epsilon_max: float = math.inf,
    allow_single_cluster: bool,
    data: NDArray[Any] | None,
) -> Cut:
    """Select flat clusters from a condensed tree. Parameters as in :func:`cut`."""
    chosen = select(
        condensed,
        max_cluster_size=max_cluster_size,
        method=cluster_selection_method,
        epsilon=cluster_selection_epsilon,
        epsilon_max=cluster_selection_epsilon_max,
        allow_single_cluster=allow_single_cluster,
    )
    labels, order = number_labels(chosen.cluster_index, len(chosen.clusters), data)
    return Cut(
        labels=labels,
        probabilities=chosen.probabilities,
        condensed_tree=condensed.records,
        stabilities=condensed.stabilities,
        selected=chosen.clusters[order],
        persistence=chosen.persistence[order],
        birth_heights=condensed.birth_heights,
    )


def clusters_by_epsilon(
    edges: NDArray[np.void],
    *,
    min_cluster_size: int,
    max_cluster_size: int | None,
    cluster_selection_method: str,
    cluster_selection_epsilon_max: float = math.inf,
    allow_single_cluster: bool,
) -> Callable[[float], int]:
    """Condense a spanning tree once, and return how many clusters an epsilon selects.

    Parameters as in :func:`cut`.
    """
    condensed = condense(edges, min_cluster_size)

    def count(epsilon: float) -> int:
        chosen = select(
            condensed,
            max_cluster_size=max_cluster_size,
            method=cluster_selection_method,
            epsilon=epsilon,
            epsilon_max=cluster_selection_epsilon_max,
            allow_single_cluster=allow_single_cluster,
        )
        return len(chosen.clusters)

    return count

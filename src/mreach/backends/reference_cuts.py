"""Other ways to cut the trees, by definition, on the naive hierarchy."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.reference_hierarchy import connected_components, cut, label_order

__all__ = ["clusters_by_epsilon", "cut_at_distance"]


def clusters_by_epsilon(edges: NDArray[np.void], **selection: Any) -> Callable[[float], int]:
    """Return how many clusters an epsilon selects; the keywords are those of :func:`cut`."""
    return lambda epsilon: len(cut(edges, cluster_selection_epsilon=epsilon, **selection).selected)


def cut_at_distance(
    edges: NDArray[np.void],
    core: NDArray[np.float64],
    *,
    cut_distance: float,
    min_cluster_size: int,
    data: Any = None,
) -> NDArray[np.int64]:
    """Label the components of the edges of at most ``cut_distance``: DBSCAN* (Campello et al. 2013).

    ``core``, of shape (n,), holds the core distances: rows beyond ``cut_distance`` are noise, and so are
    components of fewer than ``min_cluster_size`` rows. Labels are numbered as in :func:`cut`.
    """
    neighbours: dict[int, set[int]] = {row: set() for row, at in enumerate(core) if at <= cut_distance}
    for source, target, weight in edges.tolist():
        if weight <= cut_distance:
            neighbours[source].add(target)
            neighbours[target].add(source)
    clusters = [rows for rows in connected_components(neighbours) if len(rows) >= min_cluster_size]
    labels = np.full(len(core), -1, dtype=np.int64)
    for label, rows in enumerate(label_order(clusters, data)):
        labels[rows] = label
    return labels

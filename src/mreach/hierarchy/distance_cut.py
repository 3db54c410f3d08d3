"""The clusters at one distance: DBSCAN*."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mreach.hierarchy.labels import number_labels


def cut_at_distance(
    edges: NDArray[np.void],
    core: NDArray[np.float64],
    *,
    cut_distance: float,
    min_cluster_size: int,
    data: Any = None,
) -> NDArray[np.int64]:
    """Label the components of the edges of at most a weight (Campello et al. 2013, DBSCAN*).

    Parameters
    ----------
    edges : EDGE_DTYPE array of shape (n_rows - 1,)
        Minimum spanning tree, sorted by weight.
    core : float64 array of shape (n_rows,)
        Core distances. Rows with a larger one than ``cut_distance`` are noise.
    cut_distance : float
    min_cluster_size : int
        Smaller components are noise; at least 1.
    data : array of shape (n_rows, n_features), optional
        As in :func:`mreach.hierarchy.cut`.

    Returns
    -------
    int64 array of shape (n_rows,)
        Numbered as :func:`mreach.hierarchy.number_labels` does.
    """
    n_rows = len(core)
    kept = edges[: np.searchsorted(edges["weight"], cut_distance, side="right")]
    graph = coo_array((np.ones(len(kept), bool), (kept["source"], kept["target"])), shape=(n_rows, n_rows))
    n_components, component = connected_components(graph, directed=False)
    # An edge weighs at least the core distances of its ends: a row beyond the cut is a component by itself.
    component[core > cut_distance] = n_components
    large = np.bincount(component, minlength=n_components + 1)[:n_components] >= min_cluster_size
    index = np.full(n_components + 1, -1, np.int32)
    index[:-1][large] = np.arange(np.count_nonzero(large))
    labels, _ = number_labels(index[component], int(np.count_nonzero(large)), data)
    return labels

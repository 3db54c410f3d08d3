"""Minimum spanning tree of mutual reachability: Borůvka's rounds, written once for every backend.

A round finds the lightest edge out of each component and contracts along them. Edges are ordered by
``(weight, lower row, higher row)``, so the lightest is one edge and the tree is unique. A backend does a
round in three steps:

``find_listed_edges``
    The lightest edge out of each component among the neighbours kept for the core distances. An edge that
    neither end lists weighs at least ``max(core distance, list radius / alpha)`` of both ends; where the
    lightest listed edge is strictly lighter than that for all rows of a component, the component is settled.
``scan_active_rows``
    The other rows, and only they, are compared with the rows outside their component.
``contract``
    Components are merged along their lightest edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def minimum_spanning_tree(points: Any, alpha: float) -> NDArray[np.void]:
    """Return the minimum spanning tree under mutual reachability distance.

    Parameters
    ----------
    points
        What a backend's ``open_points`` returned, after :func:`mreach.neighbors.core_distances`.
    alpha : float
        Distances are divided by it before they are compared with the core distances.

    Returns
    -------
    EDGE_DTYPE array of shape (n_rows - 1,)
        Sorted by ``(weight, source, target)``.
    """
    if hasattr(points, "minimum_spanning_tree"):  # the reference: Prim on the whole matrix, by definition
        tree: NDArray[np.void] = points.minimum_spanning_tree(alpha)
        return tree
    points.start_tree(alpha)
    n_components = points.n_components
    while n_components > 1:
        left = boruvka_round(points)
        if left >= n_components:  # every round merges; anything else would never end
            raise RuntimeError("a Borůvka round merged nothing: please report this as a bug, with the data")
        n_components = left
    edges: NDArray[np.void] = points.take_edges()
    return edges


def boruvka_round(points: Any) -> int:
    """Run one round; return how many components are left."""
    points.find_listed_edges()
    points.scan_active_rows()
    n_components: int = points.contract()
    return n_components

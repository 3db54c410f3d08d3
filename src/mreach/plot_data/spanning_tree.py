"""A spanning tree over rows in the plane."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SpanningTreeData", "spanning_tree_data"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class SpanningTreeData(NamedTuple):
    """A spanning tree over rows in the plane, the heaviest edges first: light ones are drawn over them.

    Attributes
    ----------
    segments : float64 array of shape (n_edges, 2, 2)
        Both ends of each edge.
    weights : float64 array of shape (n_edges,)
        In the unit of the data; infinite between the parts of a graph that falls apart.
    points : float64 array of shape (n_points, 2)
        The finite rows.
    rows : int64 array of shape (n_points,)
        Their numbers.
    """

    segments: Floats
    weights: Floats
    points: Floats
    rows: Integers


def spanning_tree_data(edges: NDArray[np.void], points: Floats) -> SpanningTreeData:
    """Return the edges as segments, by descending weight, and the finite rows.

    Parameters
    ----------
    edges : EDGE_DTYPE array
        Ascending by weight.
    points : float64 array of shape (n_samples, 2)
    """
    edges = edges[::-1]
    rows = np.flatnonzero(np.isfinite(points).all(axis=1))
    ends = np.stack((points[edges["source"]], points[edges["target"]]), axis=1)
    return SpanningTreeData(ends, edges["weight"].copy(), points[rows], rows)

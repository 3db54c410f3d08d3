"""The condensed tree: what is left of the hierarchy when small parts count as points that leave."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach import _core
from mreach.records import CONDENSED_DTYPE, EDGE_DTYPE


class Condensed:
    """A condensed tree, held by the compiled core.

    Attributes
    ----------
    n_rows : int
    records : CONDENSED_DTYPE array
        Sorted by ``(parent, lambda_val, child)``; clusters are numbered from ``n_rows`` on.
    stabilities : float64 array of shape (n_clusters,)
        Excess of mass of every cluster (Campello et al. 2015), at index ``cluster - n_rows``.
    birth_heights : float64 array of shape (n_clusters,)
        Height at which every cluster is born, infinite for the root.
    """

    def __init__(self, core: Any, n_rows: int) -> None:
        self.core = core
        self.n_rows = n_rows

    @cached_property
    def records(self) -> NDArray[np.void]:
        records = np.empty(self.core.n_records(), CONDENSED_DTYPE)
        self.core.write_records(records.view(np.int64))
        return records

    @cached_property
    def stabilities(self) -> NDArray[np.float64]:
        stabilities: NDArray[np.float64] = self.core.stabilities()
        return stabilities

    @cached_property
    def birth_heights(self) -> NDArray[np.float64]:
        heights: NDArray[np.float64] = self.core.birth_heights()
        return heights


def condense(edges: NDArray[np.void], min_cluster_size: int) -> Condensed:
    """Condense the hierarchy of a spanning tree, all edges of one weight at once.

    Parameters
    ----------
    edges : EDGE_DTYPE array of shape (n_rows - 1,)
        Sorted by weight. How equal weights are ordered does not matter.
    min_cluster_size : int
        When a cluster breaks up, its parts of at least this many rows count: two or more become clusters, a
        single one carries the cluster on. All other rows leave.
    """
    edges = np.ascontiguousarray(edges, EDGE_DTYPE)
    return Condensed(_core.CondensedHierarchy(edges.view(np.int64), min_cluster_size), len(edges) + 1)

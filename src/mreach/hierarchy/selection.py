"""Which clusters of the condensed tree are the result."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.hierarchy.condense import Condensed


class Selection(NamedTuple):
    """Selected clusters, before their labels are numbered.

    Attributes
    ----------
    clusters : int64 array of shape (n_selected,)
        Their numbers in the condensed tree, ascending.
    cluster_index : int32 array of shape (n_rows,)
        Index into ``clusters``, or -1 for noise.
    probabilities : float64 array of shape (n_rows,)
    persistence : float64 array of shape (n_selected,)
    """

    clusters: NDArray[np.int64]
    cluster_index: NDArray[np.int32]
    probabilities: NDArray[np.float64]
    persistence: NDArray[np.float64]


def select(
    condensed: Condensed,
    *,
    max_cluster_size: int | None,
    method: str,
    epsilon: float,
    epsilon_max: float,
    allow_single_cluster: bool,
) -> Selection:
    """Select clusters by excess of mass ("eom", Campello et al. 2015) or the leaves of the tree ("leaf")."""
    clusters, index, probabilities, persistence = condensed.core.select(
        leaf=method == "leaf",
        epsilon=epsilon,
        epsilon_max=epsilon_max,
        max_cluster_size=max_cluster_size or 0,
        allow_single_cluster=allow_single_cluster,
    )
    return Selection(clusters.astype(np.int64) + condensed.n_rows, index, probabilities, persistence)

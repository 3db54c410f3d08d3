"""Core distances: how far each row must reach to find ``min_samples`` rows, itself counted first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def core_distances(points: Any, min_samples: int) -> NDArray[np.float64]:
    """Return the distance of every row to its ``min_samples``-th nearest row, the row itself counted first.

    Parameters
    ----------
    points
        What a backend's ``open_points`` returned. It keeps the neighbours it met for the spanning tree.
    min_samples : int
        From 1 to the number of rows.

    Returns
    -------
    float64 array of shape (n_rows,)
        Core distances in the unit of the data (Campello et al. 2013, definition 5).
    """
    core: NDArray[np.float64] = points.core_distances(min_samples)
    return core

"""How often each row counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.distances import check_memory

BYTES_PER_POINT = 150
"""About what the hierarchy takes for one point: edges, merges, components, the condensed tree."""


def check_sample_weight(sample_weight: Any, n_rows: int) -> NDArray[np.int64] | None:
    """Return whole numbers, one for each row; None where each row counts once.

    Parameters
    ----------
    sample_weight : array-like of shape (n_rows,), a number, or None
    n_rows : int

    Raises
    ------
    ValueError
        Another shape, numbers that are not whole or below 0, or nothing but zeros.
    MemoryError
        The weights add up to more points than the memory of this machine holds.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, np.ma.MaskedArray) and np.ma.is_masked(sample_weight):
        raise ValueError(
            "sample_weight is a masked array: sample_weight.filled(0) leaves out the rows masked"
        )
    given = np.asarray(sample_weight)
    if given.ndim == 0:
        given = np.full(n_rows, given)
    if given.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {given.shape}, expected {(n_rows,)}: give one number for each row"
        )
    if given.dtype.kind not in "fbiu":
        raise ValueError(f"sample_weight must hold numbers, got dtype {given.dtype}")
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(~((given >= 0) & np.isfinite(given) & (given == np.floor(given))))
    if len(wrong):
        raise ValueError(
            f"sample_weight[{wrong[0]}] is {given[wrong[0]].item()!r}, and a row counts as a whole number of "
            "equal rows: give whole numbers of at least 0"
        )
    total = float(given.sum(dtype=np.float64))
    if total == 0:
        raise ValueError("every sample_weight is zero, so that no row counts: give at least one above zero")
    check_memory(
        int(BYTES_PER_POINT * total),
        f"sample_weight adds up to {total:.0f} points, and each takes its place in the hierarchy",
        "Divide the weights by a common factor.",
    )
    weights: NDArray[np.int64] = given.astype(np.int64)
    return None if (weights == 1).all() else weights

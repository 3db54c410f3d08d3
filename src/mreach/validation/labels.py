"""Rows and labels that a user hands in together are checked here, before any work."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

__all__ = ["check_labelled_rows"]


def check_labelled_rows(X: Any, labels: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Check rows and the cluster of each.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    labels : array-like of shape (n_samples,)

    Returns
    -------
    rows : float64 array of shape (n_samples, n_features)
        It may share its memory with X: it is to be read only.
    numbers : int64 array of shape (n_samples,)

    Raises
    ------
    ValueError
        X is no non-empty two-dimensional array of numbers, or a row with a label from 0 on is not finite;
        labels are not whole numbers, one for each row.
    """
    rows = check_array(X, dtype=np.float64, ensure_all_finite=False)
    given = np.asarray(labels)
    if given.shape != (len(rows),):
        raise ValueError(f"labels must hold one number for each of the {len(rows)} rows, got {given.shape}")
    if given.dtype.kind not in "iuf" or not (np.isfinite(given).all() and (given == np.rint(given)).all()):
        raise ValueError(f"labels must be whole numbers (-1 for noise), got {given.dtype} {given}")
    numbers = given.astype(np.int64)
    wrong = np.flatnonzero((numbers >= 0) & ~np.isfinite(rows).all(axis=1))
    if len(wrong):
        raise ValueError(
            f"X holds NaN or infinity in {len(wrong)} rows that belong to clusters, the first is row "
            f"{wrong[0]}: label them -1 (noise) or below"
        )
    return rows, numbers

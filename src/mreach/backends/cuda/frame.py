"""What the filter measures in: a centre, a power of two as scale, leading directions. From a sample.

None of it decides anything: whatever the frame, the filter's margins hold. A good one makes them narrow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.devices import cupy

if TYPE_CHECKING:
    from mreach.backends.cuda.rows import DeviceRows

SAMPLE_ROWS = (128, 1024)
"""Fewest and most rows of the sample, and between them SAMPLE_VALUES values: enough for a covariance."""

SAMPLE_VALUES = 1 << 17

EXACT_DIRECTIONS = 128
"""Up to so many features the directions come from their covariance; beyond, from a few power iterations."""

POWER_ITERATIONS = 3

FAR = 8.0
"""Rows of the sample farther from the centre than this many median distances do not shape the frame."""

NORM_EXPONENT = 10
"""Norms of the sample are scaled below 2^10: halves reach to 2^16, and from 2^-14 on have all bits."""

CLAMP = 2.0**15
"""Coordinates beyond are clamped in halves: 32 times the norms of the sample."""


class Frame(NamedTuple):
    """A frame.

    Attributes
    ----------
    centre : float64 CuPy array of shape (n_features,)
    scale : float
        A power of two.
    basis : float64 CuPy array of shape (n_features, n_leading)
        Orthonormal columns.
    n_leading : int
    """

    centre: Any
    scale: float
    basis: Any
    n_leading: int


def choose_frame(rows: DeviceRows, max_leading: int) -> Frame:
    """Choose a frame from evenly spaced rows."""
    cp = cupy()
    sample = _sample(rows)
    with np.errstate(all="ignore"):
        centre, kept = _middle(sample)
        size = float(np.sqrt(np.square(kept).sum(axis=1)).max(initial=0.0))
        exponent = NORM_EXPONENT - math.frexp(size)[1] if 0.0 < size < math.inf else 0
        scale = math.ldexp(1.0, max(-1000, min(1000, exponent)))
        basis = _directions(kept * scale, min(rows.n_features, max_leading))
    return Frame(cp.asarray(centre), scale, cp.asarray(basis), basis.shape[1])


def _sample(rows: DeviceRows) -> NDArray[np.float64]:
    n = rows.n_rows
    fewest, most = SAMPLE_ROWS
    count = min(n, most, max(fewest, SAMPLE_VALUES // rows.n_features))
    step = max(1, n // count)
    source = rows.for_sample
    sample = source[: count * step : step]
    return np.asarray(sample if isinstance(sample, np.ndarray) else sample.get(), np.float64)


def _middle(sample: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a centre that rows far out do not move, and the other rows relative to it."""
    kept = sample
    centre = _mean(kept)
    for _ in range(3):
        distances = np.sqrt(np.square(kept - centre).sum(axis=1))
        near = kept[distances <= FAR * np.median(distances)]
        # Where most rows are equal, all others are far from them; equal rows alone have no size.
        if len(near) == len(kept) or (near == near[:1]).all():
            break
        kept = near
        centre = _mean(kept)
    return centre, kept - centre


def _mean(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean, brought back into the range of the rows.

    Rounding may move that of a constant column by more than all others are wide, and sums may overflow.
    """
    mean: NDArray[np.float64] = rows.mean(axis=0).clip(rows.min(axis=0), rows.max(axis=0))
    return mean


def _directions(kept: NDArray[np.float64], n_leading: int) -> NDArray[np.float64]:
    """Return orthonormal columns along which the sample is wide."""
    n_features = kept.shape[1]
    start = np.random.default_rng(0).standard_normal((n_features, n_leading))
    if not np.isfinite(kept).all():
        kept = np.zeros((1, n_features))
    if n_features <= EXACT_DIRECTIONS:
        directions = np.linalg.eigh(kept.T @ kept)[1][:, ::-1][:, :n_leading]
    else:
        directions = start
        for _ in range(POWER_ITERATIONS):
            directions = np.linalg.qr(kept.T @ (kept @ directions) + 1e-9 * start)[0]
    basis = np.linalg.qr(directions)[0]
    error = np.abs(basis.T @ basis - np.eye(n_leading)).sum()
    if not error < 1e-6:  # not even NaN: the boxes rely on it
        basis = np.eye(n_features)[:, :n_leading]
    return np.ascontiguousarray(basis)

"""Isolated spikes in one piece of a recording, on the host or on a GPU: comparisons only.

Nothing is rounded here, so NumPy and CuPy find the same spikes, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["PEAK_CHANNELS", "PEAK_SAMPLES", "RIVAL_CHANNELS", "Spikes", "find_spikes"]

PEAK_CHANNELS, PEAK_SAMPLES = 4, 5
"""A peak is the largest of so many channels on either side and samples before and after."""

RIVAL_CHANNELS = 6
"""Isolated: no other peak in so many channels on either side, and half a clip before and after."""

# (samples, channels) to every neighbour of a peak, the nearest first: they rule out most of the others.
_NEIGHBOURS = np.array(
    sorted(
        (
            (samples, channels)
            for samples in range(-PEAK_SAMPLES, PEAK_SAMPLES + 1)
            for channels in range(-PEAK_CHANNELS, PEAK_CHANNELS + 1)
            if (samples, channels) != (0, 0)
        ),
        key=lambda offset: (abs(offset[0]) + abs(offset[1]), offset),
    )
)

COMPARED_AT_ONCE = 1 << 16
"""Comparisons in one call: where many samples exceed the threshold, a few neighbours at a time, which leave
fewer; where few do, all neighbours."""


class Spikes(NamedTuple):
    """Isolated spikes in the order (sample, channel), arrays of shape (n_spikes,)."""

    samples: NDArray[np.int64]
    channels: NDArray[np.int64]
    thresholds: NDArray[np.float64]  # the lowest of the thresholds at which it is isolated


def find_spikes(
    signal: Any, core: slice, thresholds: NDArray[np.float64], rival_samples: int, xp: Any = np
) -> Spikes:
    """Find the isolated spikes of a piece whose peaks lie in the ``core``.

    Parameters
    ----------
    signal : float32 array of shape (n_samples, n_channels)
        On the host or on the GPU. Values that are not finite count as 0.
    core : slice
        Samples in which peaks are wanted. Where the recording goes on beyond the piece, the piece reaches at
        least ``PEAK_SAMPLES + rival_samples`` beyond the core.
    thresholds : float64 array of shape (n_thresholds,), positive, ascending, no repeats
    rival_samples : int
        Half a clip, at least 1.
    xp : module
        NumPy or CuPy, whichever ``signal`` belongs to.

    Notes
    -----
    Whether a sample is the largest around it does not depend on the threshold; only how many such peaks there
    are does. So a spike of height a, whose highest rival has the height r, is isolated at all thresholds in
    [r, a): one search serves them all.
    """
    # The smallest threshold in float32, rounded down: too many peaks do no harm, as heights are compared
    # again below. Not below the normal numbers, which a GPU takes as 0.
    with np.errstate(over="ignore"):
        lowest = np.float32(thresholds[0])
    if float(lowest) > thresholds[0]:
        lowest = np.nextafter(lowest, np.float32(0))
    lowest = max(lowest, np.finfo(np.float32).tiny)

    heights = xp.abs(signal)
    highest = float(heights.max())
    if not np.isfinite(highest):
        heights = xp.where(xp.isfinite(heights), heights, np.float32(0))
    peaks, heights = _peaks(heights, lowest, xp)
    samples, channels = peaks // signal.shape[1], peaks % signal.shape[1]
    rivals = _highest_rivals(samples, channels, heights, rival_samples)
    at = np.searchsorted(thresholds, rivals)
    isolated = (samples >= core.start) & (samples < core.stop) & (at < len(thresholds))
    isolated[isolated] = thresholds[at[isolated]] < heights[isolated]
    return Spikes(samples[isolated], channels[isolated], thresholds[at[isolated]])


def _peaks(heights: Any, lowest: np.float32, xp: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the values above ``lowest`` that are the largest around them.

    Of equal values the one that comes first in the order of samples, then of channels, is the peak.

    Parameters
    ----------
    heights : float32 array of shape (n_samples, n_channels), at least 0

    Returns
    -------
    places : int64 array of shape (n_peaks,), NumPy
        ``sample * n_channels + channel``, ascending.
    heights : float64 array of shape (n_peaks,), NumPy
    """
    n_channels = heights.shape[1]
    flat = xp.ascontiguousarray(heights).ravel()
    places = xp.flatnonzero(flat > lowest)
    n_compared = 0
    while n_compared < len(_NEIGHBOURS) and places.size:
        n_next = max(1, COMPARED_AT_ONCE // int(places.size))
        samples, channels = xp.asarray(_NEIGHBOURS[n_compared : n_compared + n_next].T)
        n_compared += n_next
        here = places[:, np.newaxis]
        beside, channel = here + (samples * n_channels + channels), here % n_channels + channels
        inside = (beside >= 0) & (beside < flat.size) & (channel >= 0) & (channel < n_channels)
        mine, other = flat[here], flat[xp.where(inside, beside, here)]
        comes_first = (samples < 0) | ((samples == 0) & (channels < 0))
        higher = (other > mine) | ((other == mine) & comes_first)
        places = places[~(inside & higher).any(axis=1)]
    return _to_host(places).astype(np.int64), _to_host(flat[places]).astype(np.float64)


def _highest_rivals(
    samples: NDArray[np.int64],
    channels: NDArray[np.int64],
    heights: NDArray[np.float64],
    rival_samples: int,
) -> NDArray[np.float64]:
    """Return the height of the highest peak near each peak, 0 where there is none.

    Parameters
    ----------
    samples, channels, heights : arrays of shape (n_peaks,)
        In the order of samples.
    """
    rivals = np.zeros(len(heights))
    for step in range(1, len(heights)):
        near = samples[step:] - samples[:-step] <= rival_samples
        if not near.any():  # nor is any that is more places apart
            break
        near &= np.abs(channels[step:] - channels[:-step]) <= RIVAL_CHANNELS
        np.maximum(rivals[:-step], heights[step:], out=rivals[:-step], where=near)
        np.maximum(rivals[step:], heights[:-step], out=rivals[step:], where=near)
    return rivals


def _to_host(array: Any) -> NDArray[Any]:
    host: NDArray[Any] = array if isinstance(array, np.ndarray) else array.get()
    return host

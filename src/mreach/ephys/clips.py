"""Cut the clips of isolated spikes out of a recording that may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda import devices
from mreach.ephys.preprocessing import preprocess_recording
from mreach.ephys.problems import report
from mreach.ephys.search import PEAK_SAMPLES, find_spikes
from mreach.ephys.sources import ArraySource, RecordingSource, open_source
from mreach.progress import Progress, ProgressCallback, open_progress
from mreach.validation.numbers import check_progress
from mreach.validation.recordings import Extraction, check_extraction, check_recording

__all__ = ["Clips", "extract_clips"]

PIECE_BYTES = 1 << 22
"""Bytes of float32 signal that the CPU searches at a time: more leaves the processor's cache, and less is too
little for the price of a call. About three times that is held, and up to fifteen times where almost every
sample exceeds the threshold."""

RECORDING_PIECE_BYTES = 1 << 25
"""The same for a recording of SpikeInterface, which may filter a margin around each piece, too."""

CUDA_PIECE_BYTES = 1 << 26
"""The same for a GPU, which wants larger pieces. It takes less where less than twenty times that is free."""

MIN_PIECE_SAMPLES = 1024
"""A piece is not shorter, however many channels there are: its neighbours read its edges, too."""

CUDA_MIN_VALUES = 1 << 27
"""From so many values to search on "auto" takes a GPU: fewer are searched before a GPU is awake."""

USUAL_SD = (1 / 3, 3.0)
"""Where a signal that is called whitened has its standard deviation; elsewhere there is a warning."""

MAD_OF_SD = 0.6745  # median of |x| of a normal distribution with standard deviation 1


class Clips(NamedTuple):
    """Clips, and where each was cut from, in the order (segment, sample, channel)."""

    clips: NDArray[np.float32]
    """float32 array of shape (n_clips, n_timepoints). ``clips * scale`` is the signal."""
    samples: NDArray[np.int64]
    """Sample of the peak, counted from the start of its segment, shape (n_clips,)."""
    channels: NDArray[np.int64]
    """Index of the channel, shape (n_clips,)."""
    segments: NDArray[np.int64]
    """Segment of the recording, shape (n_clips,); all 0 for an array."""
    thresholds: NDArray[np.float64]
    """The lowest threshold at which the spike is isolated, shape (n_clips,)."""
    scale: float
    """What all clips were divided by."""


def extract_clips(
    recording: Any,
    sampling_frequency: float | None = None,
    *,
    threshold: Any = 6.0,
    n_timepoints: int = 61,
    peak_sample: int | None = None,
    nskip: int = 1,
    batch_size: int = 60_000,
    max_clips: int = 500_000,
    preprocess: bool = True,
    backend: str = "auto",
    device: int | None = None,
    progress: bool | ProgressCallback = False,
) -> Clips:
    """Cut out the clips of isolated single-channel spikes, as spike sorters of the Kilosort family do.

    A *peak* is a sample whose magnitude exceeds the threshold and is the largest within 4 channels on either
    side and 5 samples before and after. A *spike* is a peak that is the only one within 6 channels and
    ``n_timepoints // 2`` samples. Its *clip* is ``n_timepoints`` samples of its channel, the peak at
    ``peak_sample``. Channels are neighbours by their index, as they are for a probe whose channels are sorted
    by depth: sort them so first.

    Parameters
    ----------
    recording : array of shape (n_samples, n_channels), or recording of SpikeInterface
        An array may be a NumPy array or memory map, an HDF5 or Zarr data set, or lie on a GPU. Of a recording
        ``get_traces``, ``get_num_frames``, ``get_num_channels`` and ``get_num_segments`` are used. Values are
        taken as float32.
    sampling_frequency : float, optional
        In Hz, of an array; needed with ``preprocess=True`` only.
    threshold : float or sequence of float, default=6.0
        In standard deviations of the whitened signal. With several, the spikes of each are taken, and each
        spike once: at a higher threshold fewer peaks stand beside it.
    n_timepoints : int, default=61
        Samples of a clip.
    peak_sample : int, default=None
        Where in the clip the peak lies. None: ``20 * n_timepoints // 61``, so 20 of 61.
    nskip : int, default=1
        Only every ``nskip``-th batch of ``batch_size`` samples is searched, the first one of the recording
        first. Kilosort4's default is 25, EMUsort's 2. Batches are counted on from segment to segment.
    batch_size : int, default=60000
        Samples of a batch. It says which samples ``nskip`` leaves out, and nothing else: a spike at the edge
        of a batch is found as any other.
    max_clips : int, default=500000
        The search ends when so many clips have been found.
    preprocess : bool, default=True
        Whether SpikeInterface (``pip install 'mreach[ephys]'``) is to high-pass the signal at 300 Hz,
        subtract the median over channels and whiten it. False where that was done before.
    backend : {"auto", "cpu", "cuda"}, default="auto"
        What searches. Both find the same, bit for bit. "auto" takes a GPU where the recording lies on one, a
        ``device`` is given, or one can be used and the recording is long.
    device : int, default=None
        Index of the GPU.
    progress : bool or function of (stage, done, total), default=False
        Whether to show a progress bar, or what to call in its place; the units are samples.

    Returns
    -------
    Clips
        All clips are divided by one number, so that their relative amplitudes stay:
        ``sqrt(std(sum(clips**2, axis=1)))``, computed in float64; 1.0 where all sums are equal. The result
        does not depend on the backend, and that of an array not on the length of pieces either.

    Warns
    -----
    ClipsWarning
        No spike was found; ``max_clips`` ended the search early; clips with a value that is not finite were
        left out; a signal that is called whitened (``preprocess=False``) has a standard deviation far from 1.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range or a recording that is not two-dimensional.
    ImportError
        ``preprocess=True`` without SpikeInterface.
    RuntimeError
        The GPU that was asked for cannot be used.

    Notes
    -----
    Of equal magnitudes the first sample, then the lowest channel, is the peak. So a plateau has one peak, its
    first sample, on whichever batch it lies. Samples that are not finite count as 0; a clip that would hold
    one is left out, and so is one that would reach beyond its segment.

    The recording is read in pieces of 4 MiB of float32 (32 MiB of SpikeInterface, 64 MiB for a GPU), and
    about three times that is held, up to fifteen times where almost every sample exceeds the threshold;
    beside it the clips, for a moment twice (2 * 122 MB for 500 000).

    References
    ----------
    .. [1] Pachitariu, M., Sridhar, S., Pennington, J., Stringer, C. (2024). Spike sorting with Kilosort4.
       Nature Methods 21, 914-921.

    Examples
    --------
    >>> import numpy as np
    >>> from mreach.ephys import extract_clips
    >>> signal = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
    >>> signal[1000, 2] = -12.0
    >>> signal[2000, 5] = 9.0
    >>> found = extract_clips(signal, preprocess=False)
    >>> found.clips.shape, found.samples, found.channels
    ((2, 61), array([1000, 2000]), array([2, 5]))
    """
    parameters = check_extraction(locals())
    recording, sampling_frequency = check_recording(recording, sampling_frequency, preprocess)
    check_progress(progress)
    if preprocess:
        recording = preprocess_recording(recording, sampling_frequency)
    source = open_source(recording)
    with _array_module(parameters, source) as (xp, piece_bytes), open_progress(progress) as shown:
        piece_samples = max(MIN_PIECE_SAMPLES, piece_bytes // (4 * source.n_channels))
        found = cut_clips(source, parameters, piece_samples, xp, shown, check_sd=not preprocess)
    scale = _scale(found.clips)
    np.divide(found.clips, np.float32(scale), out=found.clips)
    return found._replace(scale=scale)


def cut_clips(
    source: ArraySource | RecordingSource,
    parameters: Extraction,
    piece_samples: int,
    xp: Any,
    progress: Progress,
    check_sd: bool = False,
) -> Clips:
    """Cut clips piece by piece; they are not scaled yet.

    Parameters
    ----------
    source : ArraySource or RecordingSource
    parameters : Extraction
    piece_samples : int
        Length of a piece without its edges. The result of an array does not depend on it.
    xp : module
        NumPy or CuPy: what searches.
    progress : Progress
    check_sd : bool
        Whether to warn where the signal does not look whitened.
    """
    rival_samples = parameters.n_timepoints // 2
    before = max(parameters.peak_sample, PEAK_SAMPLES + rival_samples)
    after_peak = parameters.n_timepoints - 1 - parameters.peak_sample
    after = max(after_peak, PEAK_SAMPLES + rival_samples)
    offsets = np.arange(parameters.n_timepoints) - parameters.peak_sample
    pieces = list(_pieces(source.segment_lengths, parameters.batch_size, parameters.nskip, piece_samples))
    n_samples = sum(stop - start for _, start, stop in pieces)
    progress.stage("clips", n_samples)
    found: list[tuple[NDArray[Any], ...]] = [_no_clips(parameters.n_timepoints)]
    n_clips = n_spikes = n_not_finite = n_searched = 0
    for segment, start, stop in pieces:
        if n_clips >= parameters.max_clips:
            break
        length = source.segment_lengths[segment]
        # The clip of a peak nearer to an end would not fit.
        first, last = max(start, parameters.peak_sample), min(stop, length - after_peak)
        if first < last:
            begin = max(0, first - before)
            signal = source.read(segment, begin, min(length, last + after))
            if check_sd and n_searched == 0:
                _warn_unless_whitened(signal)
            core = slice(first - begin, last - begin)
            spikes = find_spikes(xp.asarray(signal), core, parameters.thresholds, rival_samples, xp)
            clips = _gather(signal, spikes.samples, spikes.channels, offsets)
            whole = np.flatnonzero(np.isfinite(clips).all(axis=1))
            n_spikes += len(clips)
            n_not_finite += len(clips) - len(whole)
            whole = whole[: parameters.max_clips - n_clips]
            segments = np.full(len(whole), segment, np.int64)
            of_clips = (spikes.samples[whole] + begin, spikes.channels[whole], segments)
            found.append((clips[whole], *of_clips, spikes.thresholds[whole]))
            n_clips += len(whole)
        n_searched += stop - start
        progress.advance(stop - start)
    clips, samples, channels, segments, of_thresholds = map(np.concatenate, zip(*found, strict=True))
    result = Clips(clips, samples, channels, segments, of_thresholds, 1.0)
    if n_not_finite:
        report(f"{n_not_finite} of {n_spikes} clips hold NaN or infinity and were left out")
    _warn_about_number(result, n_searched < n_samples or n_spikes > n_clips + n_not_finite, parameters)
    return result


def _pieces(
    segment_lengths: list[int], batch_size: int, nskip: int, piece_samples: int
) -> Iterator[tuple[int, int, int]]:
    """Yield segment, first sample and end of each piece whose peaks are wanted."""
    n_batches_before = 0
    for segment, length in enumerate(segment_lengths):
        n_batches = -(-length // batch_size)
        if nskip == 1:
            batches = [(0, length)]
        else:
            chosen = range(-n_batches_before % nskip, n_batches, nskip)
            batches = [(batch * batch_size, min(length, (batch + 1) * batch_size)) for batch in chosen]
        n_batches_before += n_batches
        for start, stop in batches:
            for piece in range(start, stop, piece_samples):
                yield segment, piece, min(stop, piece + piece_samples)


def _no_clips(n_timepoints: int) -> tuple[NDArray[Any], ...]:
    numbers = np.empty(0, np.int64)
    return np.empty((0, n_timepoints), np.float32), numbers, numbers, numbers, np.empty(0)


def _gather(
    signal: Any, samples: NDArray[np.int64], channels: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the clips, float32 array of shape (n_clips, n_timepoints), from where the signal lies."""
    rows, columns = samples[:, np.newaxis] + offsets, channels[:, np.newaxis]
    if isinstance(signal, np.ndarray):
        clips: NDArray[np.float32] = signal[rows, columns]
    else:
        cp = devices.cupy()
        clips = signal[cp.asarray(rows), cp.asarray(columns)].get()
    return clips


def _scale(clips: NDArray[np.float32]) -> float:
    """Return what all clips are divided by."""
    sums = np.einsum("ij,ij->i", clips, clips, dtype=np.float64)
    spread = float(sums.std()) if len(sums) else 0.0
    # One clip, or copies of one, have no spread but for rounding.
    return spread**0.5 if spread > 1e-6 * float(sums.max(initial=0)) else 1.0


def _warn_unless_whitened(signal: Any) -> None:
    """Warn where the standard deviation, judged by the median so that spikes do not count, is not near 1."""
    some = abs(signal[:: 1 + signal.shape[0] // 1000])
    some = some if isinstance(some, np.ndarray) else some.get()
    some = some[np.isfinite(some)]
    sd = float(np.median(some)) / MAD_OF_SD if len(some) else 0.0
    if sd > 0 and not USUAL_SD[0] <= sd <= USUAL_SD[1]:
        report(
            "preprocess=False says that the recording is whitened, but its standard deviation is about "
            f"{sd:.3g}, not 1, and threshold is in such deviations: use preprocess=True, or whiten it first"
        )


def _warn_about_number(found: Clips, ended_early: bool, parameters: Extraction) -> None:
    if len(found.clips) == 0:
        report(
            f"no isolated spike exceeds threshold={parameters.thresholds[0]:g} (in standard deviations): use "
            "a lower threshold, a smaller nskip or a longer recording"
        )
    elif ended_early:
        report(
            f"max_clips={parameters.max_clips} were found by sample {found.samples[-1]} of segment "
            f"{found.segments[-1]}, and the rest was not searched: a larger nskip takes clips from all of "
            "the recording"
        )


@contextmanager
def _array_module(parameters: Extraction, source: ArraySource | RecordingSource) -> Iterator[tuple[Any, int]]:
    """Give the module that searches, NumPy or CuPy on its GPU, and the bytes of a piece."""
    backend, device = parameters.backend, parameters.device
    if source.on_device:
        if backend == "cpu":
            raise TypeError(
                "recording lies on a GPU, and backend='cpu' searches on the host: use backend='cuda', or "
                "copy it to the host first (CuPy: recording.get(), PyTorch: recording.cpu())"
            )
        if device not in (None, source.device):
            raise ValueError(f"device={device} was asked for, but recording lies on GPU {source.device}")
        backend, device = "cuda", source.device
    elif backend == "auto":
        large = sum(source.segment_lengths) // parameters.nskip * source.n_channels >= CUDA_MIN_VALUES
        wanted = device is not None or (large and devices.why_not() is None)
        backend = "cuda" if wanted else "cpu"
    if backend == "cpu":
        yield np, RECORDING_PIECE_BYTES if isinstance(source, RecordingSource) else PIECE_BYTES
        return
    reason = devices.why_not(device)
    if reason is not None:
        raise RuntimeError(f"backend='cuda' cannot run here: {reason}. backend='cpu' gives the same result.")
    cp = devices.cupy()
    with cp.cuda.Device(devices.choose(device)):
        pool = cp.cuda.MemoryPool()  # of its own, so that all of it goes back
        with cp.cuda.using_allocator(pool.malloc):
            free = int(cp.cuda.runtime.memGetInfo()[0])
            yield cp, min(CUDA_PIECE_BYTES, free // 20)
        pool.free_all_blocks()

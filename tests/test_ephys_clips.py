"""Clips of isolated spikes: the streamed search against a definition in plain loops, over all borders."""

from __future__ import annotations

import functools
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import assert_same_bits, skip_unless_available

from mreach.ephys import Clips, ClipsWarning, extract_clips
from mreach.ephys.clips import cut_clips
from mreach.ephys.search import find_spikes
from mreach.ephys.sources import open_source
from mreach.progress import Progress
from mreach.validation import InvalidParameterError
from mreach.validation.recordings import check_extraction

DEFAULTS: dict[str, Any] = {
    "threshold": 3.0,
    "n_timepoints": 15,
    "peak_sample": None,
    "nskip": 1,
    "batch_size": 60_000,
    "max_clips": 500_000,
    "backend": "cpu",
    "device": None,
}


def as_float32(signal: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(signal).astype(np.float32)


def comes_before(magnitude: np.ndarray, one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Tell whether `one` is the peak rather than `other`: larger, or equal and earlier, or lower channel."""
    if magnitude[one] != magnitude[other]:
        return bool(magnitude[one] > magnitude[other])
    return one < other


def spikes_by_definition(signal: Any, threshold: float, n_timepoints: int) -> set[tuple[int, int]]:
    """Return (sample, channel) of the isolated spikes at one threshold, by looking at every value."""
    magnitude = np.abs(as_float32(signal))
    magnitude[~np.isfinite(magnitude)] = 0
    n_samples, n_channels = magnitude.shape

    def around(at: tuple[int, int], channels: int, samples: int) -> list[tuple[int, int]]:
        found = []
        for sample in range(max(0, at[0] - samples), min(n_samples, at[0] + samples + 1)):
            for channel in range(max(0, at[1] - channels), min(n_channels, at[1] + channels + 1)):
                if (sample, channel) != at:
                    found.append((sample, channel))
        return found

    peaks = set()
    for sample in range(n_samples):
        for channel in range(n_channels):
            at = sample, channel
            if float(magnitude[at]) > threshold and all(
                comes_before(magnitude, at, other) for other in around(at, 4, 5)
            ):
                peaks.add(at)
    return {at for at in peaks if not any(other in peaks for other in around(at, 6, n_timepoints // 2))}


def clips_by_definition(signal: Any, **parameters: Any) -> Clips:
    """Return the clips of a recording, unscaled, in the order of samples, then channels."""
    given = {**DEFAULTS, **parameters}
    n_timepoints = given["n_timepoints"]
    peak = given["peak_sample"] if given["peak_sample"] is not None else 20 * n_timepoints // 61
    signal32 = as_float32(signal)
    lowest: dict[tuple[int, int], float] = {}
    for threshold in sorted(np.atleast_1d(given["threshold"]).tolist(), reverse=True):
        lowest.update(dict.fromkeys(spikes_by_definition(signal, threshold, n_timepoints), threshold))
    rows = []
    for sample, channel in sorted(lowest):
        start = sample - peak
        clip = signal32[max(start, 0) : start + n_timepoints, channel]
        searched = (sample // given["batch_size"]) % given["nskip"] == 0
        if start >= 0 and len(clip) == n_timepoints and np.isfinite(clip).all() and searched:
            rows.append((clip, sample, channel, 0, lowest[sample, channel]))
    rows = rows[: given["max_clips"]]
    columns = list(zip(*rows, strict=True)) or [np.empty((0, n_timepoints)), [], [], [], []]
    types = np.float32, np.int64, np.int64, np.int64, np.float64
    return Clips(*(np.array(column, dtype) for column, dtype in zip(columns, types, strict=True)), scale=1.0)


def cut(signal: Any, piece_samples: int = 1 << 20, **parameters: Any) -> Clips:
    """Return what the streamed search finds, unscaled, in pieces of a length."""
    checked = check_extraction({**DEFAULTS, **parameters})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClipsWarning)
        return cut_clips(open_source(signal), checked, piece_samples, np, Progress())


def assert_same_clips(actual: Clips, expected: Clips) -> None:
    for name, one, other in zip(Clips._fields, actual, expected, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other, err_msg=name)


@functools.cache
def recording(kind: str, n_channels: int, n_samples: int = 260) -> np.ndarray:
    """Return a recording with spikes here and there, some of them too near to each other."""
    rng = np.random.default_rng(n_channels)
    signal = rng.normal(size=(n_samples, n_channels)).astype(np.float32)
    for _ in range(max(4, n_samples * n_channels // 250)):
        height = rng.choice([-1, 1]) * rng.uniform(4, 12)
        signal[rng.integers(n_samples), rng.integers(n_channels)] = height
    if kind == "ties":  # few different values: equal peaks everywhere, plateaus in time and across channels
        signal = np.round(signal / 2) * 2
        signal[100:112, : n_channels // 2 + 1] = 6
        signal[150:157, -1] = -8
    elif kind == "int16":
        signal = np.round(signal).astype(np.int16)
        signal[70, 0] = np.iinfo(np.int16).min  # whose magnitude int16 cannot hold
    elif kind == "not finite":
        signal[30:33, 0], signal[120, -1], signal[200, n_channels // 2] = np.nan, np.inf, -np.inf
    elif kind == "float64":
        signal = signal.astype(np.float64) + 1e-12
        signal[50, 0] = 1e300  # infinite in float32
    return signal


KINDS = ["floats", "ties", "int16", "not finite", "float64"]


@pytest.mark.parametrize("n_channels", [1, 2, 5, 9, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_search_follows_the_definition(kind: str, n_channels: int) -> None:
    signal = recording(kind, n_channels)
    expected = clips_by_definition(signal)
    assert len(expected.clips) >= 1
    assert_same_clips(cut(signal), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_no_border_of_a_piece_changes_anything(kind: str) -> None:
    signal = recording(kind, 5)
    expected = clips_by_definition(signal)
    for piece_samples in [*range(1, 40), 64, 129, 259, 260, 261]:
        assert_same_clips(cut(signal, piece_samples), expected)


@pytest.mark.parametrize("n_timepoints", [2, 3, 8, 15, 16, 61])
def test_lengths_of_clips(n_timepoints: int) -> None:
    signal = recording("ties", 5)
    for peak_sample in (None, 0, n_timepoints - 1):
        parameters = {"n_timepoints": n_timepoints, "peak_sample": peak_sample}
        expected = clips_by_definition(signal, **parameters)
        for piece_samples in (7, 50, 1000):
            assert_same_clips(cut(signal, piece_samples, **parameters), expected)


@pytest.mark.parametrize("kind", ["floats", "ties"])
@pytest.mark.parametrize("threshold", [[3, 5, 7], [7, 3, 5, 3], (4.0, 4.000001), np.array([2.5, 9])])
def test_several_thresholds_give_each_spike_once(kind: str, threshold: Any) -> None:
    signal = recording(kind, 9)
    found = cut(signal, 33, threshold=threshold)
    assert_same_clips(found, clips_by_definition(signal, threshold=threshold))
    assert len(set(zip(found.samples, found.channels, strict=True))) == len(found.samples)
    more = [len(cut(signal, threshold=one).clips) for one in np.unique(threshold)]
    assert max(more) <= len(found.clips) <= sum(more)


def test_a_higher_threshold_takes_a_spike_whose_neighbour_is_below_it() -> None:
    signal = np.zeros((200, 3), np.float32)
    signal[100, 1], signal[106, 1] = 10, 5
    assert len(cut(signal, threshold=3).samples) == 0
    found = cut(signal, threshold=[3, 6])
    assert (found.samples.tolist(), found.thresholds.tolist()) == ([100], [6.0])
    assert cut(signal, threshold=[3, 5]).thresholds.tolist() == [5.0]  # 5 does not exceed 5


def test_how_far_peaks_and_rivals_reach() -> None:
    """Two peaks at all distances: within 4 channels and 5 samples one is none, farther both are lost."""
    for samples in range(-9, 10):
        for channels in range(-8, 9):
            signal = np.zeros((60, 17), np.float32)
            signal[30 + samples, 8 + channels] = 8
            signal[30, 8] = 9
            found = cut(signal, n_timepoints=15)
            both = {(30, 8), (30 + samples, 8 + channels)}
            if abs(samples) <= 5 and abs(channels) <= 4:
                expected = {(30, 8)}
            else:
                expected = set() if abs(samples) <= 7 and abs(channels) <= 6 else both
            assert set(zip(found.samples.tolist(), found.channels.tolist(), strict=True)) == expected


@pytest.mark.parametrize("direction", [-1, 1])
def test_what_lies_farthest_from_a_spike_and_matters(direction: int) -> None:
    """A rival at the edge of the window is none, as it has a higher neighbour just beyond its own."""
    signal = np.zeros((200, 3), np.float32)
    signal[[100, 100 + 7 * direction, 100 + 12 * direction], [0, 2, 1]] = 9, 5, 8
    for piece_samples in range(1, 120):
        found = cut(signal, piece_samples)
        assert set(found.samples.tolist()) == {100, 100 + 12 * direction}


def test_a_height_that_equals_a_threshold_does_not_exceed_it() -> None:
    signal = np.zeros((200, 3), np.float32)
    signal[100, 1], signal[106, 1] = 5, 4
    assert len(cut(signal, threshold=[3, 5]).samples) == 0
    assert cut(signal, threshold=[3, 4, 5]).samples.tolist() == [100]
    assert cut(signal, threshold=5.0).samples.tolist() == []


@pytest.mark.parametrize(("batch_size", "nskip"), [(1, 2), (10, 2), (37, 3), (64, 2), (100, 25), (500, 2)])
def test_batches_that_are_skipped(batch_size: int, nskip: int) -> None:
    signal = recording("floats", 5)
    parameters = {"batch_size": batch_size, "nskip": nskip}
    expected = clips_by_definition(signal, **parameters)
    for piece_samples in (5, 1000):
        assert_same_clips(cut(signal, piece_samples, **parameters), expected)


def test_max_clips_takes_the_first_ones_and_says_so() -> None:
    signal = recording("floats", 5)
    everything = clips_by_definition(signal)
    for max_clips in range(1, len(everything.clips) + 2):
        for piece_samples in (11, 60, 1000):
            found = cut(signal, piece_samples, max_clips=max_clips)
            assert_same_clips(found, clips_by_definition(signal, max_clips=max_clips))
    long = np.tile(signal, (20, 1))
    with pytest.warns(
        ClipsWarning, match=r"max_clips=3 were found by sample \d+ of segment 0, .* larger nskip"
    ):
        extract_clips(long, threshold=3, n_timepoints=15, max_clips=3, preprocess=False)


@pytest.mark.parametrize("thresholds", [[3.0], [3.0, 5.0, 8.0]])
def test_sample_and_channel_of_equal_peaks(thresholds: list[float]) -> None:
    """The first sample wins, then the lowest channel, however far a plateau reaches."""
    signal = np.zeros((300, 6), np.float32)
    signal[100:140, 2:5] = 9
    signal[200, 1:4] = -9
    found = find_spikes(signal, slice(0, 300), np.array(thresholds), 7)
    assert list(zip(found.samples, found.channels, strict=True)) == [(100, 2), (200, 1)]
    assert (found.thresholds == 3).all()


@pytest.mark.parametrize("n_samples", [0, 1, 14, 15, 16])
def test_recordings_shorter_than_a_clip(n_samples: int) -> None:
    signal = np.zeros((n_samples, 2), np.float32)
    signal[4:5, 1] = 9
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = extract_clips(signal, threshold=3, n_timepoints=15, preprocess=False)
    assert found.clips.shape == (int(n_samples >= 15), 15)
    assert found.clips.dtype == np.float32
    assert [one.category for one in caught] == [ClipsWarning] * int(n_samples < 15)


def test_no_spike_is_said_and_gives_empty_arrays() -> None:
    with pytest.warns(
        ClipsWarning, match="no isolated spike exceeds threshold=6 .*lower threshold"
    ) as caught:
        found = extract_clips(np.zeros((500, 4)), preprocess=False)
    assert caught[0].filename == __file__
    assert found.clips.shape == (0, 61)
    assert found.scale == 1.0
    assert all(len(one) == 0 for one in found[:5])


def test_clips_that_are_not_finite_are_left_out_and_counted() -> None:
    signal = np.zeros((600, 2), np.float32)
    signal[[100, 300, 500], 0] = 9
    signal[310, 0], signal[480, 0], signal[141, 0] = np.nan, np.inf, -np.inf  # 141: after a clip
    with pytest.warns(ClipsWarning, match="^2 of 3 clips hold NaN or infinity and were left out"):
        found = extract_clips(signal, preprocess=False)
    assert found.samples.tolist() == [100]
    assert np.isfinite(found.clips).all()


def test_all_clips_are_divided_by_one_number() -> None:
    signal = recording("floats", 9, 2000)
    found = extract_clips(signal, threshold=4, preprocess=False)
    cut_there = np.array(
        [signal[t - 20 : t + 41, c] for t, c in zip(found.samples, found.channels, strict=True)]
    )
    energies = (cut_there.astype(np.float64) ** 2).sum(axis=1)
    assert found.scale == pytest.approx(np.sqrt(energies.std()), rel=1e-12)
    np.testing.assert_array_equal(found.clips, cut_there / np.float32(found.scale))
    assert (np.abs(found.clips[:, 20]) == np.abs(found.clips[:, 15:26]).max(axis=1)).all()


@pytest.mark.parametrize("n_spikes", [1, 5])
def test_clips_that_are_all_equal_keep_their_scale(n_spikes: int) -> None:
    signal = np.zeros((200 * n_spikes, 1), np.float32)
    signal[100::200] = 9.7
    found = extract_clips(signal, preprocess=False)
    assert found.scale == 1.0
    assert (found.clips[:, 20] == np.float32(9.7)).all()


def test_the_public_search_does_not_depend_on_the_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    signal = recording("ties", 5, 3000)
    expected = extract_clips(signal, threshold=3, preprocess=False)
    assert len(expected.clips) > 5
    for batch_size in (1, 100, 1000):
        assert_same_clips(
            extract_clips(signal, threshold=3, preprocess=False, batch_size=batch_size), expected
        )
    monkeypatch.setattr("mreach.ephys.clips.PIECE_BYTES", 1)
    monkeypatch.setattr("mreach.ephys.clips.MIN_PIECE_SAMPLES", 50)
    assert_same_clips(extract_clips(signal, threshold=3, preprocess=False), expected)


def test_a_recording_larger_than_memory_is_streamed(tmp_path: Path) -> None:
    n_samples, n_channels = 1_000_000, 16  # 32 MB of int16, 64 MB of float32
    rng = np.random.default_rng(0)
    signal = np.memmap(tmp_path / "recording.raw", np.int16, "w+", shape=(n_samples, n_channels))
    signal[:] = rng.integers(-2, 3, n_channels)
    samples = np.sort(rng.choice(np.arange(100, n_samples - 100, 200), 300, replace=False))
    signal[samples, rng.integers(n_channels, size=300)] = 20
    tracemalloc.start()
    found = extract_clips(signal, threshold=6, preprocess=False, backend="cpu")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.samples.tolist() == samples.tolist()
    assert peak < 4 * (1 << 22)


def test_lists_and_strides_are_taken() -> None:
    signal = recording("floats", 5)
    expected = cut(signal)
    assert_same_clips(cut(np.asfortranarray(signal)), expected)
    assert_same_clips(cut(np.repeat(signal, 2, axis=0)[::2]), expected)
    assert_same_clips(cut(signal.astype(">f4")), expected)
    found = extract_clips(signal.tolist(), threshold=3, n_timepoints=15, preprocess=False)
    np.testing.assert_array_equal(found.samples, expected.samples)


class Segments:
    """What extract_clips asks of a recording of SpikeInterface."""

    def __init__(self, segments: list[np.ndarray]) -> None:
        self.segments = segments
        self.reads: list[tuple[int, int]] = []

    def get_num_segments(self) -> int:
        return len(self.segments)

    def get_num_frames(self, segment_index: int) -> int:
        return len(self.segments[segment_index])

    def get_num_channels(self) -> int:
        return self.segments[0].shape[1]

    def get_sampling_frequency(self) -> float:
        return 30_000.0

    def get_traces(self, segment_index: int, start_frame: int, end_frame: int) -> np.ndarray:
        self.reads.append((start_frame, end_frame))
        return self.segments[segment_index][start_frame:end_frame]


def test_segments_are_searched_one_by_one() -> None:
    segments = [recording("floats", 5), recording("int16", 5)[:9], recording("ties", 5)]
    found = cut(Segments(segments), 50)
    for number, signal in enumerate(segments):
        expected = clips_by_definition(signal)
        of_segment = found.segments == number
        np.testing.assert_array_equal(found.clips[of_segment], expected.clips)
        np.testing.assert_array_equal(found.samples[of_segment], expected.samples)
    assert (np.diff(found.segments) >= 0).all()


def test_batches_are_counted_on_from_segment_to_segment() -> None:
    signal = np.zeros((100, 1), np.float32)
    signal[[20, 70]] = 9
    found = cut(Segments([signal[:50], signal, signal]), batch_size=50, nskip=2)
    # Batches of 50: 0 | 1 2 | 3 4
    assert list(zip(found.segments.tolist(), found.samples.tolist(), strict=True)) == [
        (0, 20),
        (1, 70),
        (2, 70),
    ]


def test_progress_is_told_to_a_function() -> None:
    calls: list[tuple[str, int, int | None]] = []
    extract_clips(
        recording("floats", 5, 3000), threshold=3, preprocess=False, progress=lambda *call: calls.append(call)
    )
    assert calls == [("clips", 0, 3000), ("clips", 3000, 3000)]


def test_progress_may_end_the_search() -> None:
    def stop(stage: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_clips(np.zeros((100, 1)), preprocess=False, progress=stop)


def test_progress_shows_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    extract_clips(recording("floats", 5, 3000), threshold=3, preprocess=False, progress=True)
    assert "clips: 100%" in capsys.readouterr().err


def test_a_signal_that_is_not_whitened_is_noticed() -> None:
    signal = np.random.default_rng(0).normal(size=(5000, 4)) * 40
    signal[1000, 0] = 1000
    with pytest.warns(ClipsWarning, match=r"standard deviation is about (39|40|41)(\.\d)?, not 1"):
        extract_clips(signal, threshold=200, preprocess=False)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"threshold": 0}, "threshold must be above 0, got 0; it is in standard deviations"),
        ({"threshold": []}, "threshold must be above 0"),
        ({"threshold": [6, -1]}, "threshold must be above 0"),
        ({"threshold": "6"}, "threshold must be a number, got '6'"),
        ({"threshold": float("nan")}, "threshold must be a finite number"),
        ({"n_timepoints": 1}, "n_timepoints must be an integer of at least 2"),
        ({"peak_sample": 61}, "peak_sample must be below n_timepoints=61, got 61"),
        ({"peak_sample": -1}, "peak_sample must be an integer of at least 0"),
        ({"nskip": 0}, "nskip must be an integer of at least 1, got 0; 1 searches every batch"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
        ({"max_clips": 0}, "max_clips must be an integer of at least 1"),
        ({"backend": "reference"}, "backend must be one of 'auto', 'cpu', 'cuda'"),
        ({"backend": "cpu", "device": 0}, "with backend='cpu' leave device=None"),
        ({"progress": 1}, "progress must be True, False or a function"),
        ({"preprocess": 1}, "preprocess must be True or False"),
        ({"preprocess": True}, "sampling_frequency must be a number, got None; .* rate in Hz"),
        ({"preprocess": True, "sampling_frequency": -1.0}, "sampling_frequency must be above 0"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        extract_clips(np.zeros((100, 2)), **{"preprocess": False, **parameters})


@pytest.mark.parametrize(
    ("signal", "error", "message"),
    [
        (np.zeros(100), ValueError, r"shape \(n_samples, n_channels\), got \(100,\); for one channel give"),
        (np.zeros((2, 3, 4)), ValueError, r"got \(2, 3, 4\)"),
        (np.zeros((100, 0)), ValueError, r"got \(100, 0\)"),
        (np.zeros((100, 2), complex), TypeError, "recording has dtype complex128: convert"),
        (np.full((100, 2), "a"), TypeError, "recording has dtype <U1: convert"),
        (Segments([np.zeros((100, 0))]), ValueError, "has no channels"),
    ],
)
def test_bad_recordings(signal: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        extract_clips(signal, preprocess=False)


@pytest.mark.filterwarnings("ignore:no isolated spike")
def test_memory_where_almost_all_exceeds_the_threshold() -> None:
    signal = np.random.default_rng(0).normal(size=(400_000, 8)).astype(np.float32)
    tracemalloc.start()
    extract_clips(signal, threshold=1e-3, preprocess=False, backend="cpu")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15 * (1 << 22)


class OnDevice:
    """Stands in for a CuPy array: it meets only its like and numbers, and only get() leads to the host."""

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array)

    shape = property(lambda self: self._array.shape)
    size = property(lambda self: self._array.size)

    def __iter__(self) -> Iterator[OnDevice]:
        return map(OnDevice, self._array)

    def get(self) -> np.ndarray:
        return self._array.copy()

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("implicit conversion to a NumPy array")

    def __float__(self) -> float:
        return float(self._array)


def inside(value: Any) -> Any:
    """Return the array of a stand-in; a NumPy array has no business on the device."""
    if isinstance(value, tuple):
        return tuple(inside(one) for one in value)
    assert not isinstance(value, np.ndarray)
    return value._array if isinstance(value, OnDevice) else value


def on_device(function: Any) -> Any:
    return lambda *values, **named: OnDevice(function(*map(inside, values), **named))


for operation in (
    "gt",
    "ge",
    "lt",
    "le",
    "eq",
    "add",
    "radd",
    "mul",
    "mod",
    "and",
    "or",
    "invert",
    "getitem",
):
    name = f"__{operation}__"
    setattr(OnDevice, name, on_device(lambda array, *others, name=name: getattr(array, name)(*others)))
for name in ("max", "any", "ravel"):
    setattr(
        OnDevice,
        name,
        on_device(lambda array, *given, name=name, **named: getattr(array, name)(*given, **named)),
    )


class DeviceModule:
    """Stands in for the module cupy."""

    def __getattr__(self, name: str) -> Any:
        return OnDevice if name == "asarray" else on_device(getattr(np, name))


@pytest.mark.parametrize("kind", KINDS)
def test_search_on_a_device_stays_there(kind: str) -> None:
    with np.errstate(over="ignore"):
        signal = recording(kind, 5).astype(np.float32)
    thresholds = np.array([3.0, 5.0])
    found = find_spikes(OnDevice(signal), slice(20, 240), thresholds, 7, DeviceModule())
    expected = find_spikes(signal, slice(20, 240), thresholds, 7)
    for name, one, other in zip(expected._fields, found, expected, strict=True):
        assert isinstance(one, np.ndarray)
        assert_same_bits(one, other, name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_finds_the_same(kind: str) -> None:
    skip_unless_available("cuda")
    import cupy

    with np.errstate(over="ignore"):
        signal = recording(kind, 9, 3000).astype(np.float32)
    expected = cut(signal, threshold=[3, 5])
    parameters = {"threshold": [3, 5], "n_timepoints": 15, "preprocess": False}
    there = cupy.asarray(signal)
    for given, backend in (
        (signal, "cuda"),
        (there, "cuda"),
        (there, "auto"),
        (cupy.asfortranarray(there), "auto"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClipsWarning)
            found = extract_clips(given, backend=backend, **parameters)
        np.testing.assert_array_equal(found.clips, expected.clips / np.float32(found.scale))
        for name in ("samples", "channels", "segments", "thresholds"):
            assert_same_bits(getattr(found, name), getattr(expected, name), name)
    with pytest.raises(TypeError, match="recording lies on a GPU, and backend='cpu' searches on the host"):
        extract_clips(there, backend="cpu", preprocess=False)
    with pytest.raises(TypeError, match="preprocess=True computes on the host"):
        extract_clips(there, 30_000.0)


def test_a_gpu_that_cannot_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mreach.backends.cuda.devices.why_not", lambda device=None: "there is no GPU")
    for chosen in ({"backend": "cuda"}, {"device": 0}):
        with pytest.raises(
            RuntimeError, match=r"cannot run here: there is no GPU\. backend='cpu' gives the same"
        ):
            extract_clips(np.zeros((100, 2)), preprocess=False, **chosen)
    monkeypatch.setattr("mreach.ephys.clips.CUDA_MIN_VALUES", 1)
    found = extract_clips(recording("floats", 5, 3000), threshold=3, preprocess=False)
    assert len(found.clips) > 0

"""Recordings of SpikeInterface, where it is installed, and what is said where it is not."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mreach.accel
from mreach.ephys import ClipsWarning, extract_clips, load_templates
from mreach.ephys.preprocessing import preprocess_recording

FIELDS = ("clips", "samples", "channels", "segments", "thresholds")


@pytest.fixture(scope="module")
def si() -> Any:
    return pytest.importorskip("spikeinterface.full", reason="needs SpikeInterface")


@pytest.fixture(scope="module")
def ground_truth(si: Any) -> tuple[Any, Any]:
    """A recording of 16 channels with two segments, and its sorting."""
    return si.generate_ground_truth_recording(
        durations=[4.0, 3.0], sampling_frequency=24_000.0, num_channels=16, num_units=5, seed=0
    )


def test_without_spikeinterface_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spikeinterface", None)
    monkeypatch.setitem(sys.modules, "spikeinterface.preprocessing", None)
    with pytest.raises(ImportError, match=r"preprocess=True needs SpikeInterface .*'mreach\[ephys\]'"):
        extract_clips(np.zeros((1000, 4)), 30_000.0)


def test_a_recording_is_preprocessed_and_searched(ground_truth: tuple[Any, Any]) -> None:
    recording, sorting = ground_truth
    found = extract_clips(recording, threshold=[5, 8])
    assert set(found.segments.tolist()) == {0, 1}
    true = [np.sort(sorting.to_spike_vector(concatenated=False)[n]["sample_index"]) for n in (0, 1)]
    near = []
    for segment in (0, 1):
        samples = found.samples[found.segments == segment]
        at = np.searchsorted(true[segment], samples).clip(1, len(true[segment]) - 1)
        distances = np.abs(true[segment][[at - 1, at]] - samples).min(axis=0)
        near.append(distances <= 15)
    assert len(found.clips) > 20
    assert np.concatenate(near).mean() > 0.9


def test_what_was_preprocessed_before_is_taken_as_it_is(ground_truth: tuple[Any, Any]) -> None:
    whitened = preprocess_recording(ground_truth[0], None)
    expected = extract_clips(ground_truth[0], threshold=5)
    found = extract_clips(whitened, threshold=5, preprocess=False)
    traces = [whitened.get_traces(segment_index=segment) for segment in (0, 1)]
    assert traces[0].dtype == np.float32
    assert 0.5 < np.concatenate(traces).std() < 2
    of_array = extract_clips(traces[0], threshold=5, preprocess=False)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(of_array.samples, found.samples[found.segments == 0])
    np.testing.assert_array_equal(of_array.channels, found.channels[found.segments == 0])


def test_an_array_is_preprocessed_with_its_rate(ground_truth: tuple[Any, Any], tmp_path: Path) -> None:
    recording = ground_truth[0]
    traces = recording.get_traces(segment_index=0)
    on_disk = np.memmap(tmp_path / "traces.raw", np.int16, "w+", shape=traces.shape)
    on_disk[:] = np.round(traces)
    found = extract_clips(on_disk, recording.get_sampling_frequency(), threshold=5)
    assert len(found.clips) > 10
    unsigned = (on_disk.astype(np.int32) + 32768).astype(np.uint16)
    again = extract_clips(unsigned, recording.get_sampling_frequency(), threshold=5)
    np.testing.assert_array_equal(again.samples, found.samples)


@pytest.mark.parametrize("n_channels", [1, 2, 3, 5])
def test_few_channels(si: Any, n_channels: int) -> None:
    rng = np.random.default_rng(0)
    signal = rng.normal(size=(30_000, n_channels)).astype(np.float32) * 20
    shape = -400 * np.exp(-0.5 * ((np.arange(21) - 10) / 2.5) ** 2)
    samples = np.arange(500, 29_500, 500)
    for number, sample in enumerate(samples):
        signal[sample - 10 : sample + 11, number % n_channels] += shape
    found = extract_clips(signal, 30_000.0)
    assert len(found.samples) == len(samples)
    assert np.abs(found.samples - samples).max() <= 2
    np.testing.assert_array_equal(found.channels, np.arange(len(samples)) % n_channels)


def test_a_raw_recording_that_is_called_whitened_is_noticed(ground_truth: tuple[Any, Any]) -> None:
    with pytest.warns(ClipsWarning, match="not 1, and threshold is in such deviations"):
        extract_clips(ground_truth[0], threshold=30, preprocess=False)


def test_the_page_for_users_of_spikeinterface(
    si: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("hdbscan", reason="needs hdbscan")
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parent.parent / "docs" / "spikeinterface.md"
    blocks = re.findall(r"```python\n((?!>>>).*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    try:
        exec("\n".join(blocks), names)
    finally:
        mreach.accel.uninstall()
    assert len(names["kept"]) > 1000
    assert len(names["kept"]) > 0.9 * len(names["mask"])
    assert load_templates("wTEMP.npz").wTEMP.shape == (6, 61)
    assert len(names["found"].clips) > 1000
    assert len(names["peak_labels"]) == len(names["peaks"]) > 1000
    assert len(names["found_labels"]) >= 2
    assert "itself computes" not in caplog.text
    assert "is computed by mreach" in caplog.text

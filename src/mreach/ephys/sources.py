"""Recordings as pieces of float32, whatever they are kept in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.inputs import as_cupy, on_device

__all__ = ["ArraySource", "RecordingSource", "is_recording", "open_source"]


def is_recording(recording: Any) -> bool:
    """Tell a recording of SpikeInterface, or what has the same methods, from an array."""
    return callable(getattr(recording, "get_traces", None))


def open_source(recording: Any) -> ArraySource | RecordingSource:
    """Return what reads pieces of a recording that :mod:`mreach.validation.recordings` has checked."""
    return RecordingSource(recording) if is_recording(recording) else ArraySource(recording)


class ArraySource:
    """An array of shape (n_samples, n_channels): NumPy, memory map, HDF5 or Zarr data set, or on a GPU."""

    def __init__(self, array: Any) -> None:
        self.on_device = on_device(array)
        self._array = as_cupy(array) if self.on_device else array
        self.segment_lengths = [int(array.shape[0])]
        self.n_channels = int(array.shape[1])

    @property
    def device(self) -> int | None:
        """The GPU that holds the array, or None."""
        return int(self._array.device.id) if self.on_device else None

    def read(self, segment: int, start: int, stop: int) -> Any:
        """Return samples ``start`` to ``stop``, a float32 array, on the GPU where the array lies there."""
        piece = self._array[start:stop]
        if self.on_device:
            return piece.astype(np.float32, copy=False)
        return _as_float32(np.asarray(piece))


class RecordingSource:
    """A recording of SpikeInterface, or anything with the same methods."""

    on_device = False
    device = None

    def __init__(self, recording: Any) -> None:
        self._recording = recording
        n_segments = int(recording.get_num_segments()) if hasattr(recording, "get_num_segments") else 1
        self.segment_lengths = [int(recording.get_num_frames(segment)) for segment in range(n_segments)]
        self.n_channels = int(recording.get_num_channels())

    def read(self, segment: int, start: int, stop: int) -> NDArray[np.float32]:
        """Return samples ``start`` to ``stop`` of a segment."""
        traces = self._recording.get_traces(segment_index=segment, start_frame=start, end_frame=stop)
        return _as_float32(np.asarray(traces))


def _as_float32(piece: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is passed over as such
        return np.ascontiguousarray(piece, dtype=np.float32)

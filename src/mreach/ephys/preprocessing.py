"""Filter, reference and whiten a recording, by SpikeInterface."""

from __future__ import annotations

from typing import Any

import numpy as np

from mreach.ephys.sources import is_recording

__all__ = ["preprocess_recording", "spikeinterface_preprocessing"]

HIGH_PASS_HZ = 300.0

MIN_CHANNELS_FOR_REFERENCE = 4
"""With fewer channels there is no common reference: the median of one channel is the channel itself, and that
of two or three takes most of a spike away."""


def spikeinterface_preprocessing() -> Any:
    """Import ``spikeinterface.preprocessing``.

    Raises
    ------
    ImportError
        SpikeInterface is not installed; the message names the extra.
    """
    try:
        import spikeinterface.preprocessing as module
    except ImportError as error:
        raise ImportError(
            f"preprocess=True needs SpikeInterface ({error}): pip install 'mreach[ephys]', or give a "
            "recording that is filtered and whitened already, and preprocess=False (--no-preprocess)"
        ) from error
    return module


def preprocess_recording(recording: Any, sampling_frequency: float | None) -> Any:
    """Return a recording that is high-passed, referenced and whitened as it is read.

    Parameters
    ----------
    recording : array of shape (n_samples, n_channels), or recording of SpikeInterface
    sampling_frequency : float or None
        In Hz, for an array.

    Returns
    -------
    spikeinterface.BaseRecording
        float32. High-pass at 300 Hz (Butterworth, forwards and backwards); minus the median of all channels,
        from ``MIN_CHANNELS_FOR_REFERENCE`` channels on; whitened over all channels by a covariance that is
        estimated from pieces of the recording, always the same ones.
    """
    preprocessing = spikeinterface_preprocessing()
    if not is_recording(recording):
        from spikeinterface.core import NumpyRecording

        recording = NumpyRecording([recording], sampling_frequency)
    if np.dtype(recording.get_dtype()).kind == "u":
        recording = preprocessing.unsigned_to_signed(recording)
    recording = preprocessing.highpass_filter(recording, freq_min=HIGH_PASS_HZ, dtype="float32")
    if recording.get_num_channels() >= MIN_CHANNELS_FOR_REFERENCE:
        recording = preprocessing.common_reference(recording, reference="global", operator="median")
    return preprocessing.whiten(recording, dtype="float32", mode="global", seed=0)

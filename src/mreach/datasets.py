"""Real data that come with the package."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np


def load_emg_clips() -> np.ndarray:
    """Return spike clips cut from a real surface EMG recording.

    The clips come from the sample recording of openhdemg (vastus lateralis, 64 electrodes, 2048 Hz, 32.5 s),
    filtered, whitened and cut around threshold crossings. They keep a spike sorter's repeats: 4852 of the
    rows differ. ``data/NOTICE.md`` in the package holds the licence and the credit.

    Returns
    -------
    float32 array of shape (5247, 61)
        One clip a row: 61 samples at 2048 Hz (29.8 ms), the largest at index 20, in arbitrary units (one
        scale for all clips).

    Examples
    --------
    >>> from mreach.datasets import load_emg_clips
    >>> clips = load_emg_clips()
    >>> clips.shape, clips.dtype
    ((5247, 61), dtype('float32'))
    """
    with as_file(files("mreach") / "data" / "emg_clips.npy") as path:
        clips: np.ndarray = np.load(path, allow_pickle=False)
    return clips

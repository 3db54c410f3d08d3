"""What a user hands to :mod:`mreach.ephys` is checked here; nothing there raises on it before any work."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.inputs import as_cupy, on_device
from mreach.validation.parameters import (
    InvalidParameterError,
    boolean_of,
    integer_of,
    one_of,
    real_of,
)

__all__ = [
    "Extraction",
    "check_clips",
    "check_extraction",
    "check_keep",
    "check_on_problem",
    "check_recording",
    "check_templates",
    "check_templates_file",
]

SEARCH_BACKENDS = ("auto", "cpu", "cuda")
ON_PROBLEM = ("warn", "raise")

_PEAK_SAMPLE, _OF_TIMEPOINTS = 20, 61  # where Kilosort puts the peak, whatever the length of a clip


class Extraction(NamedTuple):
    """The parameters of :func:`mreach.ephys.extract_clips` as plain Python values, checked."""

    thresholds: NDArray[np.float64]  # ascending, no repeats
    n_timepoints: int
    peak_sample: int
    nskip: int
    batch_size: int
    max_clips: int
    backend: str
    device: int | None


def check_extraction(given: dict[str, Any]) -> Extraction:
    """Check the parameters of an extraction, given by name.

    Raises
    ------
    InvalidParameterError
        naming the parameter, what was given and what is accepted.
    """
    n_timepoints = integer_of("n_timepoints", given["n_timepoints"], 2)
    peak_sample = given["peak_sample"]
    if peak_sample is None:
        peak_sample = _PEAK_SAMPLE * n_timepoints // _OF_TIMEPOINTS
    peak_sample = integer_of("peak_sample", peak_sample, 0)
    if peak_sample >= n_timepoints:
        raise InvalidParameterError(
            f"peak_sample must be below n_timepoints={n_timepoints}, got {peak_sample}: it is where in the "
            "clip the peak lies"
        )
    backend = one_of("backend", given["backend"], SEARCH_BACKENDS)
    device = given["device"]
    if device is not None:
        device = integer_of("device", device, 0)
        if backend == "cpu":
            raise InvalidParameterError(
                "device is the index of a GPU and belongs to backend='cuda' or 'auto': with backend='cpu' "
                f"leave device=None, got {device}"
            )
    return Extraction(
        _thresholds(given["threshold"]),
        n_timepoints,
        peak_sample,
        integer_of("nskip", given["nskip"], 1, hint="; 1 searches every batch"),
        integer_of("batch_size", given["batch_size"], 1),
        integer_of("max_clips", given["max_clips"], 1),
        backend,
        device,
    )


def _thresholds(threshold: Any) -> NDArray[np.float64]:
    hint = "; it is in standard deviations of the whitened signal, such as 6.0 or [6, 9, 12]"
    many = isinstance(threshold, Iterable) and not isinstance(threshold, (str, bytes))
    values = [real_of("threshold", value, hint) for value in (threshold if many else [threshold])]
    if not values or min(values) <= 0:
        raise InvalidParameterError(f"threshold must be above 0, got {threshold!r}{hint}")
    return np.unique(values)


def check_recording(recording: Any, sampling_frequency: Any, preprocess: Any) -> tuple[Any, float | None]:
    """Check a recording by its shape and type only; it may be larger than memory.

    Returns
    -------
    recording
        As given; a list becomes an array.
    sampling_frequency : float or None

    Raises
    ------
    TypeError, ValueError
        Not two-dimensional, no channel, not of real numbers; no sampling frequency where one is needed.
    """
    preprocess = boolean_of("preprocess", preprocess)
    if callable(getattr(recording, "get_traces", None)):
        if int(recording.get_num_channels()) < 1:
            raise ValueError("the recording has no channels: there is nothing to search")
        return recording, None
    if not hasattr(recording, "shape") or not hasattr(recording, "dtype"):
        recording = np.asarray(recording)
    shape = tuple(recording.shape)
    if len(shape) != 2 or shape[1] < 1:
        raise ValueError(
            f"recording must have shape (n_samples, n_channels), got {shape}"
            + ("; for one channel give recording[:, numpy.newaxis]" if len(shape) == 1 else "")
        )
    _refuse_type("recording", recording)
    if not preprocess:
        return recording, None
    if on_device(recording):
        raise TypeError(
            "recording lies on a GPU, and preprocess=True computes on the host: filter and whiten it first "
            "and give preprocess=False, or copy it to the host (CuPy: recording.get(), PyTorch: .cpu())"
        )
    hint = "; preprocess=True filters an array by its rate in Hz, and needs to know it"
    rate = real_of("sampling_frequency", sampling_frequency, hint)
    if rate <= 0:
        raise InvalidParameterError(f"sampling_frequency must be above 0, got {rate!r}{hint}")
    return recording, rate


def check_clips(clips: Any) -> tuple[Any, NDArray[np.bool_]]:
    """Check clips, and tell which of them are finite.

    Parameters
    ----------
    clips : array-like of shape (n_clips, n_timepoints), on the host or on a GPU

    Returns
    -------
    clips
        As given, what is no array as a NumPy array.
    finite : bool array of shape (n_clips,), NumPy
        False where a clip holds NaN or infinity.

    Raises
    ------
    TypeError, ValueError
        Not two-dimensional, no samples, not of real numbers; clips, but none of them finite.
    """
    if not hasattr(clips, "shape"):
        clips = np.asarray(clips)
    shape = tuple(clips.shape)
    if len(shape) != 2 or shape[1] < 1:
        raise ValueError(f"clips must have shape (n_clips, n_timepoints), got {shape}")
    if on_device(clips):
        array = as_cupy(clips)
        _refuse_type("clips", array)
        finite = (abs(array) < math.inf).all(axis=1).get()
    else:
        array = np.asarray(clips)
        _refuse_type("clips", array)
        finite = np.isfinite(array).all(axis=1)
    if len(finite) and not finite.any():
        raise ValueError(
            f"each of the {len(finite)} clips holds NaN or infinity, and none is left: look at where they "
            "were cut from, or replace missing samples before"
        )
    return clips, finite


def check_keep(keep: Any, n_clips: int) -> NDArray[np.bool_]:
    """Check a mask of clips.

    Raises
    ------
    ValueError
        Not one bool for each clip.
    """
    mask = np.asarray(keep)
    if mask.dtype != np.bool_ or mask.shape != (n_clips,):
        raise ValueError(
            f"keep must hold True or False for each of the {n_clips} clips, got {mask.dtype} of shape "
            f"{mask.shape}: give the mask of remove_outlier_clips"
        )
    return mask


def check_templates(n_templates: Any, n_pcs: Any, shape: tuple[int, int], n_kept: int) -> tuple[int, int]:
    """Check the numbers of templates and of components against the clips there are.

    Parameters
    ----------
    shape : (n_clips, n_timepoints)
        Of the finite clips.
    n_kept : int
        How many of them are not outliers.

    Raises
    ------
    InvalidParameterError
        Not integers of at least 1, or more than the clips can give.
    """
    n_templates = integer_of("n_templates", n_templates, 1)
    n_pcs = integer_of("n_pcs", n_pcs, 1)
    if n_pcs > min(shape):
        raise InvalidParameterError(
            f"n_pcs={n_pcs} components cannot come from {shape[0]} clips of {shape[1]} samples: give more "
            "clips (a lower threshold finds more) or a smaller n_pcs"
        )
    if n_templates > n_kept:
        raise InvalidParameterError(
            f"n_templates={n_templates} templates cannot come from {n_kept} clips: give more clips (a lower "
            "threshold finds more) or a smaller n_templates"
        )
    return n_templates, n_pcs


def check_templates_file(wPCA: Any, wTEMP: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Check the arrays of a file of templates, and return them as C-contiguous float32 arrays.

    Raises
    ------
    ValueError
        Not two-dimensional arrays of finite real numbers, of one number of timepoints.
    """
    arrays = [np.asarray(wPCA), np.asarray(wTEMP)]
    for name, array in zip(("wPCA", "wTEMP"), arrays, strict=True):
        if (
            array.ndim != 2
            or 0 in array.shape
            or array.dtype.kind not in "fiu"
            or not np.isfinite(array).all()
        ):
            raise ValueError(
                f"{name} must hold finite numbers, of shape (n, n_timepoints), got {array.dtype} of shape "
                f"{array.shape}"
            )
    if arrays[0].shape[1] != arrays[1].shape[1]:
        raise ValueError(
            f"wPCA and wTEMP must have as many timepoints, got {arrays[0].shape[1]} and {arrays[1].shape[1]}"
        )
    return np.ascontiguousarray(arrays[0], np.float32), np.ascontiguousarray(arrays[1], np.float32)


def check_on_problem(on_problem: Any) -> str:
    """Check what is to be done about a problem with the clips."""
    return one_of("on_problem", on_problem, ON_PROBLEM)


def _refuse_type(name: str, array: Any) -> None:
    """Refuse what is not made of real numbers; dtypes of PyTorch have no kind and are read as text."""
    dtype = array.dtype
    kind = getattr(dtype, "kind", None)
    if kind is None:
        kind = "f" if str(dtype).rpartition(".")[2].startswith(("float", "int", "uint", "bool")) else "?"
    if kind not in "fbiu":
        raise TypeError(f"{name} has dtype {dtype}: convert it to real numbers first, such as float32")

"""Drop the clips that belong to no cluster."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.advice import NoClustersWarning
from mreach.backends.cuda.inputs import on_device
from mreach.ephys.problems import report
from mreach.estimator import HDBSCAN
from mreach.progress import ProgressCallback
from mreach.validation.parameters import integer_of
from mreach.validation.recordings import check_clips, check_on_problem

__all__ = ["KeptClips", "keep_clips", "remove_outlier_clips"]

MIN_CLIPS = 20
"""With fewer clips nothing is called an outlier, as in EMUsort: there is no telling."""


class KeptClips(NamedTuple):
    """What :func:`remove_outlier_clips` keeps."""

    clips: Any
    """The clips that are kept, an array of the kind that was given."""
    mask: NDArray[np.bool_]
    """NumPy array of shape (n_clips,): which of the given clips are kept."""
    model: HDBSCAN | None
    """The fitted model, its labels those of the given clips; None where there were too few to fit."""


def remove_outlier_clips(
    clips: Any,
    min_cluster_size: int = 20,
    *,
    on_problem: str = "warn",
    progress: bool | ProgressCallback = False,
    **parameters: Any,
) -> KeptClips:
    """Drop the outliers among spike clips: those that HDBSCAN puts into no cluster.

    It is what EMUsort does before it makes its templates: ``labels = HDBSCAN(min_cluster_size=20)
    .fit_predict(clips)`` and ``clips[labels >= 0]``.

    Parameters
    ----------
    clips : array-like of shape (n_clips, n_timepoints)
        Real numbers, on the host or on a GPU (CuPy, PyTorch, JAX). Never changed. Clips that hold NaN or
        infinity are dropped, with a warning that says how many.
    min_cluster_size : int, default=20
        Smallest number of clips that counts as a cluster.
    on_problem : {"warn", "raise"}, default="warn"
        What to do where there are fewer than ``max(20, min_cluster_size)`` finite clips, or where all are
        called outliers. Then *all finite clips are kept*, since a sorter goes on from them and stops at an
        empty array; that is said by a warning, or by an error instead.
    progress : bool or function of (stage, done, total), default=False
        Whether to show a progress bar, or what to call in its place.
    **parameters
        Further parameters of :class:`mreach.HDBSCAN`, such as ``min_samples``, ``backend`` or ``n_jobs``.

    Returns
    -------
    KeptClips
        ``clips, mask, model``.

    Warns
    -----
    ClipsWarning
        As said for ``on_problem``, and for clips that are not finite.

    Raises
    ------
    ClipsError
        (a ValueError) with ``on_problem="raise"``.
    ValueError, TypeError
        clips are not two-dimensional real numbers, or none is finite; parameters that HDBSCAN refuses.

    Examples
    --------
    >>> from mreach.datasets import load_emg_clips
    >>> from mreach.ephys import remove_outlier_clips
    >>> clips = load_emg_clips()
    >>> kept, mask, model = remove_outlier_clips(clips)
    >>> kept.shape, int((~mask).sum())
    ((5223, 61), 24)
    """
    size = integer_of("min_cluster_size", min_cluster_size, 2)
    check_on_problem(on_problem)
    clips, finite = check_clips(clips)
    n_finite = int(finite.sum())
    if n_finite < len(finite):
        report(f"{len(finite) - n_finite} of {len(finite)} clips hold NaN or infinity and are dropped")
    least = max(MIN_CLIPS, size)
    if n_finite < least:
        report(
            f"{n_finite} clips are too few to tell outliers (at least {least} are needed), so all are kept: "
            "a longer recording or a lower threshold gives more",
            on_problem,
        )
        return KeptClips(keep_clips(clips, finite), finite, None)
    model = HDBSCAN(min_cluster_size=size, progress=progress, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoClustersWarning)  # the report below says more
        mask = model.fit(clips).labels_ >= 0
    if not mask.any():
        report(
            f"all {n_finite} clips are outliers of HDBSCAN(min_cluster_size={size}), so all are kept: try a "
            "smaller min_cluster_size, or allow_single_cluster=True where they may all be of one kind",
            on_problem,
        )
        mask = finite
    return KeptClips(keep_clips(clips, mask), mask, model)


def keep_clips(clips: Any, mask: NDArray[np.bool_]) -> Any:
    """Return ``clips[mask]``, an array of the kind and on the device of ``clips``."""
    kind = type(clips).__module__.partition(".")[0]
    if kind == "torch":
        import torch

        return clips[torch.as_tensor(mask, device=clips.device)]
    if kind == "cupy" or (on_device(clips) and kind not in ("jax", "jaxlib")):
        from mreach.backends.cuda.inputs import as_cupy

        array = as_cupy(clips)
        with array.device:
            return array[np.flatnonzero(mask)]
    return clips[mask]

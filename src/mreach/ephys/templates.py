"""Universal templates and principal components of clips, in the file that Kilosort4 reads."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mreach.backends.cuda.inputs import as_cupy, on_device
from mreach.ephys.outliers import remove_outlier_clips
from mreach.ephys.problems import report
from mreach.files import replacing
from mreach.progress import ProgressCallback, open_progress
from mreach.validation.numbers import check_progress
from mreach.validation.recordings import (
    check_clips,
    check_keep,
    check_on_problem,
    check_templates,
    check_templates_file,
)

__all__ = ["UniversalTemplates", "load_templates", "save_templates", "universal_templates"]

N_INIT = 10
"""Starts of k-means, of which the best is taken; as many as Kilosort4 and EMUsort make."""

ONE_THREAD_VALUES = 1 << 21
"""Up to so many values (34 000 clips) one thread computes: it takes a second or a few, gives the same last
bits on every number of cores, and spares a busy machine threads that wait for each other by spinning (there,
5247 clips: 20 s with two threads, 0.8 s with one)."""


class UniversalTemplates(NamedTuple):
    """What Kilosort4 detects spikes with."""

    wPCA: NDArray[np.float32]
    """float32 array of shape (n_pcs, n_timepoints): orthonormal components, the strongest first."""
    wTEMP: NDArray[np.float32]
    """float32 array of shape (n_templates, n_timepoints): shapes of unit norm, the most frequent first."""


def universal_templates(
    clips: Any,
    n_templates: int = 6,
    n_pcs: int = 6,
    *,
    keep: Any = None,
    min_cluster_size: int = 20,
    on_problem: str = "warn",
    random_state: Any = 0,
    progress: bool | ProgressCallback = False,
    **parameters: Any,
) -> UniversalTemplates:
    """Make the universal templates of Kilosort4 from clips, as EMUsort does.

    Parameters
    ----------
    clips : array-like of shape (n_clips, n_timepoints)
        All clips, as :func:`extract_clips` gives them. Clips that hold NaN or infinity are dropped. An array
        on a GPU is clustered there, and copied to the host for the rest.
    n_templates, n_pcs : int, default=6
        How many of each; the settings of Kilosort4 with these names must have the same values.
    keep : bool array of shape (n_clips,), default=None
        Which clips are no outliers: the ``mask`` of :func:`remove_outlier_clips`. None calls it. All True
        leaves outliers in.
    min_cluster_size, on_problem, **parameters
        As in :func:`remove_outlier_clips`, for ``keep=None``.
    random_state : int, RandomState or None, default=0
        For k-means.
    progress : bool or function of (stage, done, total), default=False
        Whether to show a progress bar, or what to call in its place.

    Returns
    -------
    UniversalTemplates
        ``wPCA``: right singular vectors of *all* finite clips, not centred
        (:class:`sklearn.decomposition.TruncatedSVD`); of each, the entry with the largest magnitude is
        positive. ``wTEMP``: centres of the *kept* clips (:class:`sklearn.cluster.KMeans`), divided by their
        norms; by decreasing number of clips. Their sign is that of the clips.

    Raises
    ------
    ValueError
        Too few clips for so many templates or components; a centre that is 0 and has no shape; and as
        :func:`remove_outlier_clips`.

    Notes
    -----
    The components are exact up to rounding: the random sketch that TruncatedSVD starts from spans all of the
    ``n_timepoints`` dimensions.

    Examples
    --------
    >>> from mreach.datasets import load_emg_clips
    >>> from mreach.ephys import universal_templates
    >>> wPCA, wTEMP = universal_templates(load_emg_clips())
    >>> wPCA.shape, wTEMP.shape, wTEMP.dtype
    ((6, 61), (6, 61), dtype('float32'))
    """
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD

    check_on_problem(on_problem)
    check_progress(progress)
    clips, finite = check_clips(clips)
    if keep is None:
        kept = remove_outlier_clips(
            clips, min_cluster_size, on_problem=on_problem, progress=progress, **parameters
        ).mask
    else:
        kept = check_keep(keep, len(finite)) & finite
        if not finite.all():
            report(f"{(~finite).sum()} of {len(finite)} clips hold NaN or infinity and are dropped")
    rows = as_host(clips)
    all_rows = rows[finite]
    n_templates, n_pcs = check_templates(n_templates, n_pcs, all_rows.shape, int(kept.sum()))
    n_threads = 1 if all_rows.size <= ONE_THREAD_VALUES else None
    with open_progress(progress) as shown, threadpool_limits(n_threads):
        shown.stage("components", 1)
        n_more = max(1, all_rows.shape[1] - n_pcs)
        svd = TruncatedSVD(n_pcs, n_iter=0, n_oversamples=n_more, random_state=0).fit(all_rows)
        shown.advance()
        shown.stage("templates", 1)
        means = KMeans(n_templates, n_init=N_INIT, random_state=random_state).fit(rows[kept])
        shown.advance()
    return UniversalTemplates(_with_sign(svd.components_), _unit_centres(means, n_templates))


def as_host(clips: Any) -> NDArray[Any]:
    """Return clips as a C-contiguous float array on the host, float64 only where they are."""
    host = as_cupy(clips).get() if on_device(clips) else np.asarray(clips)
    return np.ascontiguousarray(host, dtype=np.float64 if host.dtype == np.float64 else np.float32)


def _with_sign(components: NDArray[Any]) -> NDArray[np.float32]:
    """Return components so that of each the entry with the largest magnitude is positive."""
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, np.newaxis], axis=1)
    return np.ascontiguousarray(np.where(largest < 0, -components, components), np.float32)


def _unit_centres(means: Any, n_templates: int) -> NDArray[np.float32]:
    """Return the centres of a fitted k-means with unit norm, by decreasing number of clips."""
    centres = means.cluster_centers_.astype(np.float64)
    norms = np.sqrt((centres**2).sum(axis=1))
    if not norms.all():
        raise ValueError(
            "the mean of a group of clips is 0 and has no shape: give clips that are not constant, or a "
            "smaller n_templates"
        )
    n_clips = np.bincount(means.labels_, minlength=n_templates)
    order = np.lexsort((*centres.T[::-1], -n_clips))
    return np.ascontiguousarray(centres[order] / norms[order, np.newaxis], np.float32)


def save_templates(path: str | os.PathLike[str], templates: UniversalTemplates) -> None:
    """Write templates into a ``.npz`` file with the arrays ``wPCA`` and ``wTEMP``, as Kilosort4 has them.

    Kilosort4 and EMUsort read a file ``wTEMP.npz`` so, in the folder named by the environment variable
    ``KILOSORT_LOCAL_DOWNLOADS_PATH`` (``~/.kilosort`` without it), where ``templates_from_data`` is False.
    They then want 61 timepoints.

    Parameters
    ----------
    path : str or path-like
        Taken as it is; its folder must exist. A file that is there is replaced, once the new one is complete.
    templates : UniversalTemplates
        Or any pair ``(wPCA, wTEMP)``.

    Raises
    ------
    ValueError
        The arrays do not fit each other.
    OSError
        The file cannot be written; what was there before is still there.
    """
    wPCA, wTEMP = check_templates_file(*templates)
    with replacing(path) as file:
        np.savez(file, wPCA=wPCA, wTEMP=wTEMP)


def load_templates(path: str | os.PathLike[str]) -> UniversalTemplates:
    """Read templates from a ``.npz`` file that :func:`save_templates` wrote, or from Kilosort4's own.

    Raises
    ------
    ValueError
        The file does not hold such arrays.
    OSError
        The file cannot be read.
    """
    with np.load(path, allow_pickle=False) as file:
        missing = {"wPCA", "wTEMP"} - set(getattr(file, "files", ()))
        if missing:
            raise ValueError(f"{os.fspath(path)} holds no array {' or '.join(sorted(missing))}")
        wPCA, wTEMP = file["wPCA"], file["wTEMP"]
    return UniversalTemplates(*check_templates_file(wPCA, wTEMP))

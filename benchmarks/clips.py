"""Synthetic spike clips: 61 samples around a spike, as a spike sorter cuts them out of a recording."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.machine import usable_cores

N_TIMEPOINTS = 61
N_TEMPLATES = 40
PEAK_INDEX = 20
MARGIN = 4  # samples a template is longer than a clip, on each side: room for the shifts
NOISE_LEVEL = 0.2  # standard deviation of the noise as a share of the median template peak
NOISE_MEMORY = 0.6  # coefficient of the AR(1) noise
NOISE_WARM_UP = 20  # steps after which the AR(1) noise has forgotten its start
GAIN_JITTER = 0.1
OUTLIER_SHARE = 0.1
ONE_STREAM_ROWS = 1_000_000  # more clips than this are drawn in blocks, each from a stream of its own
BLOCK_ROWS = 100_000


def spike_templates(rng: np.random.Generator) -> np.ndarray:
    """Draw smooth templates of three lobes with log-normal peak amplitudes.

    The first lobe is the trough at the peak sample; the two others lie around it, one even (a "Mexican hat"),
    one odd (the slope of a Gaussian), so that the templates overlap in shape as those of real motor units do.

    Returns
    -------
    ndarray of shape (N_TEMPLATES, N_TIMEPOINTS + 2 * MARGIN), float64
        Largest absolute value of row k: the amplitude of template k.
    """
    time = np.arange(N_TIMEPOINTS + 2 * MARGIN, dtype=np.float64) - (PEAK_INDEX + MARGIN)
    shapes = np.empty((N_TEMPLATES, len(time)))
    for shape in shapes:
        centres = np.array([0.0, *rng.normal(0.0, 6.0, 2)])
        widths = rng.uniform(3.0, 10.0, 3)
        heights = rng.normal(0.0, 1.0, 3)
        heights[0] = -1.0 - abs(heights[0])
        scaled = (time - centres[:, None]) / widths[:, None]
        bell = np.exp(-0.5 * scaled**2)
        trough, slope, hat = (
            (1.0 - scaled[0] ** 2) * bell[0],
            scaled[1] * bell[1],
            (1.0 - scaled[2] ** 2) * bell[2],
        )
        shape[:] = heights[0] * trough + heights[1] * slope + heights[2] * hat
    amplitudes = rng.lognormal(0.0, 0.6, N_TEMPLATES)
    return shapes * (amplitudes / np.abs(shapes).max(axis=1))[:, None]


def coloured_noise(n_clips: int, rng: np.random.Generator) -> np.ndarray:
    """AR(1) noise of unit variance, shape (n_clips, N_TIMEPOINTS), float32."""
    innovation = np.float32(np.sqrt(1.0 - NOISE_MEMORY**2))
    state = rng.standard_normal(n_clips, dtype=np.float32)
    noise = np.empty((N_TIMEPOINTS, n_clips), dtype=np.float32)
    for step in range(NOISE_WARM_UP + N_TIMEPOINTS):
        state = np.float32(NOISE_MEMORY) * state + innovation * rng.standard_normal(n_clips, dtype=np.float32)
        if step >= NOISE_WARM_UP:
            noise[step - NOISE_WARM_UP] = state
    return noise.T


def shifted(templates: np.ndarray, shifts: range) -> np.ndarray:
    """Every template at every shift, float32 of shape (templates * shifts, N_TIMEPOINTS), shift by shift
    within a template."""
    windows = [[template[shift : shift + N_TIMEPOINTS] for shift in shifts] for template in templates]
    return np.array(windows, dtype=np.float32).reshape(-1, N_TIMEPOINTS)


def draw_clips(
    n: int, rng: np.random.Generator, templates: np.ndarray, outlier_share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw n clips of the given templates before they are scaled, and their energies in float64."""
    median_peak = np.median(np.abs(templates).max(axis=1))
    jitters, shifts = range(MARGIN - 1, MARGIN + 2), range(2 * MARGIN + 1)
    jittered, moved = shifted(templates, jitters), shifted(templates, shifts)

    template = rng.integers(0, N_TEMPLATES, n)
    jitter = rng.integers(-1, 2, n) + 1
    gain = (1.0 + GAIN_JITTER * rng.standard_normal(n)).astype(np.float32)
    clips = jittered[template * len(jitters) + jitter]
    clips *= gain[:, None]
    clips += np.float32(NOISE_LEVEL * median_peak) * coloured_noise(n, rng)

    overlapped = np.flatnonzero(rng.random(n) < outlier_share)
    second = rng.integers(0, N_TEMPLATES, len(overlapped))
    second_shift = rng.integers(0, len(shifts), len(overlapped))
    second_gain = rng.uniform(0.5, 1.5, len(overlapped)).astype(np.float32)
    clips[overlapped] += second_gain[:, None] * moved[second * len(shifts) + second_shift]
    return clips, np.einsum("ij,ij->i", clips, clips, dtype=np.float64)


def make_clips(n: int, seed: int, outlier_share: float = OUTLIER_SHARE) -> np.ndarray:
    """Draw clips of templates with gain jitter, time jitter of one sample, coloured noise and overlapped
    outliers.

    One clip in ten has a second template, shifted by up to `MARGIN` samples, on top: these belong to no
    cluster. All clips are scaled by one number, the square root of the standard deviation of their energies,
    as EMUsort scales them.

    Parameters
    ----------
    n : int
        Number of clips. More than `ONE_STREAM_ROWS` are drawn in blocks, on all cores.
    seed : int
        Seed of the random generator; equal seeds give equal clips, whatever the number of cores.
    outlier_share : float
        Share of clips with a second template on top.

    Returns
    -------
    ndarray of shape (n, 61), float32, C-contiguous
    """
    rng = np.random.default_rng(seed)
    templates = spike_templates(rng)
    if n <= ONE_STREAM_ROWS:
        clips, energies = draw_clips(n, rng, templates, outlier_share)
        if n > 1:
            clips /= np.float32(np.sqrt(energies.std()))
        return np.ascontiguousarray(clips)

    clips, energies = np.empty((n, N_TIMEPOINTS), dtype=np.float32), np.empty(n)
    blocks = [slice(start, min(start + BLOCK_ROWS, n)) for start in range(0, n, BLOCK_ROWS)]

    def draw(number: int) -> None:
        block = blocks[number]
        stream = np.random.default_rng([seed, number])
        clips[block], energies[block] = draw_clips(block.stop - block.start, stream, templates, outlier_share)

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(draw, range(len(blocks))))
        scale = np.float32(np.sqrt(energies.std()))
        list(pool.map(lambda block: np.divide(clips[block], scale, out=clips[block]), blocks))
    return clips

"""Small data sets that are hostile on purpose, each made from its own seed.

``DATASETS`` maps a name to a function without arguments that returns a fresh array. Nothing is stored in
files except what ``external`` reads from the folder named by the environment variable ``MREACH_DATA``.
"""

import functools
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Maker = Callable[[], np.ndarray]

DATASETS: dict[str, Maker] = {}
EXTERNAL: dict[str, Maker] = {}


def register(make: Callable[[np.random.Generator], np.ndarray]) -> Callable:
    """Put a data set into the registry under the name of its function, with a generator of its own."""

    @functools.wraps(make)
    def seeded() -> np.ndarray:
        return make(np.random.default_rng(zlib.crc32(make.__name__.encode())))

    DATASETS[make.__name__] = seeded
    return make


def load(name: str) -> np.ndarray:
    """Return a data set by name; skip the running test where its file is not there."""
    return (DATASETS | EXTERNAL)[name]()


# ---------------------------------------------------------------------------------------------------------
# Building blocks
# ---------------------------------------------------------------------------------------------------------


def blobs(rng: np.random.Generator, n: int, d: int, n_blobs: int = 5, noise: float = 0.1) -> np.ndarray:
    """Blobs of varied spread, a part of the rows spread evenly over the box around them."""
    centres = rng.normal(0, 8, (n_blobs, d))
    spread = rng.uniform(0.2, 2.0, n_blobs)
    blob = rng.integers(0, n_blobs, n)
    X = centres[blob] + rng.normal(size=(n, d)) * spread[blob, None]
    is_noise = rng.random(n) < noise
    X[is_noise] = rng.uniform(X.min(0), X.max(0), (int(is_noise.sum()), d))
    return X


def clips(rng: np.random.Generator, n: int, duplicates: float = 0.03) -> np.ndarray:
    """Rows that look like spike clips: 61 samples of a smooth template, coloured noise, some overlapped."""
    n_timepoints, n_templates = 61, 12
    time = np.arange(-34.0, 35.0)  # four samples more on each side than a clip, for shifts
    templates = np.zeros((n_templates, len(time)))
    for template in templates:
        for lobe in range(3):
            centre = 6 * rng.normal() * (lobe > 0)
            z = (time - centre) / rng.uniform(3, 10)
            shape = z if lobe == 1 else 1 - z * z
            template += (rng.normal() - 2 * (lobe == 0)) * shape * np.exp(-z * z / 2)
        template *= rng.lognormal(0, 0.6) / np.abs(template).max()

    def cut_out(which: np.ndarray, shift: np.ndarray) -> np.ndarray:
        return templates[which[:, None], shift[:, None] + np.arange(n_timepoints)]

    X = cut_out(rng.integers(0, n_templates, n), rng.integers(3, 6, n)) * rng.normal(1, 0.1, (n, 1))
    noise = np.zeros(n)
    for timepoint in range(-20, n_timepoints):
        noise = 0.6 * noise + 0.8 * rng.normal(size=n)
        if timepoint >= 0:
            X[:, timepoint] += 0.15 * np.median(np.abs(templates).max(1)) * noise
    overlapped = rng.random(n) < 0.1
    other = cut_out(rng.integers(0, n_templates, n), rng.integers(0, 9, n))
    X += other * overlapped[:, None] * rng.uniform(0.5, 1.5, (n, 1))
    copies = rng.random(n) < duplicates
    X[copies] = X[rng.integers(0, n, int(copies.sum()))]
    return X.astype(np.float32)


# ---------------------------------------------------------------------------------------------------------
# Sizes and numbers of features
# ---------------------------------------------------------------------------------------------------------


@register
def one_row(rng):
    return rng.normal(size=(1, 3))


@register
def two_rows(rng):
    return rng.normal(size=(2, 3))


@register
def two_equal_rows(rng):
    return np.ones((2, 61), dtype=np.float32)


@register
def three_rows_1d(rng):
    return np.array([[0.0], [1.0], [3.0]])


@register
def blobs_63_1d(rng):
    return blobs(rng, 63, 1, n_blobs=3)


@register
def blobs_128_3d(rng):
    return blobs(rng, 128, 3)


@register
def blobs_257_16d(rng):
    return blobs(rng, 257, 16).astype(np.float32)


@register
def blobs_257_17d(rng):
    return blobs(rng, 257, 17)


@register
def blobs_257_64d(rng):
    return blobs(rng, 257, 64)


@register
def blobs_129_65d(rng):
    return blobs(rng, 129, 65).astype(np.float32)


@register
def blobs_127_384d(rng):
    return blobs(rng, 127, 384).astype(np.float32)


@register
def blobs_1000_2d(rng):
    return blobs(rng, 1000, 2, n_blobs=12)


@register
def blobs_3001_2d(rng):
    return blobs(rng, 3001, 2, n_blobs=20)


@register
def clips_1000(rng):
    return clips(rng, 1000)


@register
def clips_3001(rng):
    return clips(rng, 3001)


@register
def clips_257_float64(rng):
    return clips(rng, 257).astype(np.float64) * 1.1


# ---------------------------------------------------------------------------------------------------------
# Ties and equal rows
# ---------------------------------------------------------------------------------------------------------


@register
def rounded_normal(rng):
    return np.round(rng.normal(0, 2, (200, 2)), 1)


@register
def rounded_clips(rng):
    return np.round(clips(rng, 300) * 2) / 2


@register
def piles_of_equal_rows(rng):
    return np.repeat(rng.normal(size=(20, 2)), 8, axis=0)


@register
def zero_rows_and_noise(rng):
    return np.vstack([np.zeros((150, 8)), rng.normal(size=(150, 8))])


@register
def two_piles_and_a_blob(rng):
    return np.vstack([np.zeros((12, 2)), rng.normal(2, 1, (20, 2)), np.full((12, 2), 9.0)])


@register
def all_equal(rng):
    return np.full((130, 17), 0.1)


@register
def all_equal_but_one(rng):
    X = np.full((130, 61), 0.1, dtype=np.float32)
    X[77, 60] = 0.2
    return X


@register
def signed_zeros(rng):
    return rng.choice([-0.0, 0.0, 1.0], size=(150, 2))


@register
def line_even(rng):
    return np.arange(100.0)[:, None] * np.array([0.1, 0.2, 0.3])


@register
def line_uneven(rng):
    return 1e3 + rng.normal(size=(257, 1)) * np.array([[1.0, -2.0, 0.5]])


@register
def lattice_20x20(rng):
    return np.stack(np.indices((20, 20)), -1).reshape(-1, 2).astype(np.float64)


@register
def lattice_3d(rng):
    return 0.1 * np.stack(np.indices((7, 7, 7)), -1).reshape(-1, 3)


@register
def lattice_with_heights(rng):
    floor = np.indices((24, 24)).reshape(2, -1).T
    return np.c_[floor, 2 * np.round(rng.normal(size=len(floor)))]


@register
def one_hot_rows(rng):
    X = np.zeros((300, 100), dtype=np.float32)
    X[np.arange(260), rng.integers(0, 40, 260)] = 1
    return X


@register
def integer_pairs(rng):
    return rng.integers(0, 14, (500, 2))


@register
def binary_rows(rng):
    return rng.integers(0, 2, (200, 9)).astype(np.float64)


# ---------------------------------------------------------------------------------------------------------
# Scales, offsets, shapes
# ---------------------------------------------------------------------------------------------------------


@register
def offset_1e8(rng):
    return blobs(rng, 257, 2) + 1e8


@register
def offset_1e8_61d(rng):
    return clips(rng, 257).astype(np.float64) + 1e8


@register
def offset_1e7_float32(rng):
    return (blobs(rng, 257, 3) + 1e7).astype(np.float32)


@register
def offset_uneven_20d(rng):
    return blobs(rng, 200, 20) + 10.0 ** rng.integers(-3, 9, 20)


@register
def scale_1e30_float32(rng):
    return (blobs(rng, 200, 20) * 1e30).astype(np.float32)


@register
def scale_minus_1e30_float32(rng):
    return (blobs(rng, 200, 20) * 1e-30).astype(np.float32)


@register
def subnormal_float32(rng):
    return (blobs(rng, 128, 17) * 1e-41).astype(np.float32)


@register
def scale_1e150(rng):
    return blobs(rng, 200, 20) * 1e150


@register
def scale_1e_minus_160(rng):
    """Squares are subnormal numbers: few digits are left, and many distances are equal."""
    return blobs(rng, 200, 3) * 1e-160


@register
def scale_1e_minus_162(rng):
    """Most squares are 0 or the smallest number that there is: rows that differ have distance 0."""
    return blobs(rng, 128, 17) * 1e-162


@register
def mixed_scales(rng):
    """Differences between rows from 1e-170 to 1: some rows that differ have distance 0."""
    return rng.choice([-1.0, 1.0], (150, 2)) * 10.0 ** rng.uniform(-170, 0, (150, 2))


@register
def one_far_row(rng):
    X = blobs(rng, 257, 20)
    X[100] = 1e30
    return X


@register
def one_far_row_float32(rng):
    X = clips(rng, 257)
    X[5] = 1e30
    return X


@register
def few_far_rows(rng):
    X = clips(rng, 257)
    X[::40] *= np.float32(3e4)
    return X


@register
def tight_groups_1e_minus_3(rng):
    centres = 1000.0 * rng.integers(-3, 4, (8, 8))
    return centres[rng.integers(0, 8, 257)] + 1e-3 * rng.normal(size=(257, 8))


@register
def tight_groups_1e_minus_6(rng):
    centres = 1000.0 * rng.integers(-3, 4, (8, 61))
    return centres[rng.integers(0, 8, 257)] + 1e-6 * rng.normal(size=(257, 61))


@register
def constant_features(rng):
    X = np.full((200, 24), 7.3)
    X[:, [3, 11, 23]] = blobs(rng, 200, 3)
    return X


@register
def growing_gaps(rng):
    return np.cumsum(1.03 ** np.arange(400.0))[:, None]


@register
def growing_groups(rng):
    return (np.cumsum(1.5 ** np.arange(20.0))[:, None] + 0.01 * np.arange(6.0)).reshape(-1, 1)


@register
def nested_blobs(rng):
    tight = [rng.normal(centre, 0.05, (40, 2)) for centre in ((0, 0), (0.8, 0), (0, 0.8))]
    return np.vstack([*tight, rng.normal(0.3, 0.7, (120, 2)), rng.uniform(-6, 6, (60, 2))])


@register
def plain_normal(rng):
    return rng.normal(size=(300, 2))


# ---------------------------------------------------------------------------------------------------------
# Types and memory layouts
# ---------------------------------------------------------------------------------------------------------


@register
def type_float16(rng):
    return blobs(rng, 200, 17).astype(np.float16)


@register
def type_bool(rng):
    return rng.random((150, 16)) < 0.3


@register
def type_int8(rng):
    return rng.integers(-128, 128, (200, 3)).astype(np.int8)


@register
def type_uint8(rng):
    return np.clip(blobs(rng, 300, 3) * 8 + 128, 0, 255).astype(np.uint8)


@register
def type_uint16(rng):
    return rng.integers(0, 65536, (128, 18)).astype(np.uint16)


@register
def type_int32(rng):
    return rng.integers(-(2**31), 2**31, (128, 4)).astype(np.int32)


@register
def type_int64_large(rng):
    """Numbers beyond 2**53: float64 rounds them, and some rows become equal."""
    return 2**60 + rng.integers(0, 2**11, (200, 2))


@register
def type_longdouble(rng):
    return blobs(rng, 128, 3).astype(np.longdouble) / 3


@register
def type_big_endian(rng):
    return blobs(rng, 128, 3).astype(">f8")


@register
def layout_strided(rng):
    return blobs(rng, 400, 34)[::2, ::2]


@register
def layout_reversed(rng):
    return clips(rng, 200)[::-1, ::-1]


@register
def layout_fortran(rng):
    return np.asfortranarray(blobs(rng, 200, 20).astype(np.float32))


@register
def layout_read_only(rng):
    X = blobs(rng, 200, 20)
    X.flags.writeable = False
    return X


@register
def layout_view_of_buffer(rng):
    buffer = np.full((1000, 61), np.nan, dtype=np.float32)
    buffer[:200] = clips(rng, 200)
    return buffer[:200]


@register
def non_finite_rows(rng):
    X = blobs(rng, 200, 3)
    X[[3, 50], 1] = np.nan
    X[[7, 199], [0, 2]] = np.inf
    X[60, 0] = -np.inf
    X[61] = [np.nan, np.inf, 0]
    return X


# ---------------------------------------------------------------------------------------------------------
# Data that the project does not hold
# ---------------------------------------------------------------------------------------------------------


def external(name: str, file: str, key: str | None, n: int) -> None:
    """Put ``n`` random rows of a file in the MREACH_DATA folder into the registry of external data sets."""

    def make() -> np.ndarray:
        folder = os.environ.get("MREACH_DATA")
        if not folder:
            pytest.skip(f"needs MREACH_DATA: it is not set, and {file} is looked for in the folder it names")
        path = Path(folder) / file
        if not path.exists():
            pytest.skip(f"needs MREACH_DATA: there is no {path}")
        stored = np.load(path)
        X = stored if key is None else stored[key]
        chosen = np.random.default_rng(zlib.crc32(name.encode())).permutation(len(X))[:n]
        return X[np.sort(chosen)]

    EXTERNAL[name] = make


external("emg_clips_1500", "emg_clips.npy", None, 1500)
external("needle_emg_clips_1000", "needle_emg_clips.npz", "X", 1000)
external("hdbscan_clusterable", "hdbscan_clusterable.npz", "X", 2309)
external("pixels_rgb_1500", "pixels_rgb.npz", "X", 1500)
external("trapped_lovers_1200", "bench_shapes.npz", "trapped_lovers_X", 1200)
external("windows_1200", "bench_shapes.npz", "windows_X", 1200)

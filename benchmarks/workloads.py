"""The registered workloads: each a function of the number of rows and a seed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.clips import make_clips

INTEGER_PAIRS_ROWS = 77_911
INTEGER_PAIRS_DISTINCT = 10_167
HUGE_VALUE = 1e30
ANY_WIDTH_NAME = re.compile(r"(gauss|wide)([1-9][0-9]*)")
WIDE_BLOBS = 50
WIDE_CENTRE_SPREAD = 0.35  # of the centres, in units of the rows' own: close enough to leave nearly all noise
COPIED_SHARE, COPIED_ORIGINALS = 0.3, 0.04  # 150 000 of 500 000 rows are copies of 20 000


@dataclass(frozen=True)
class Workload:
    """A data set that can be drawn again, with the clustering parameters it is timed with.

    Attributes
    ----------
    name, description : str
    make : callable ``(n, seed) -> ndarray``
        Draws n rows; equal arguments give equal rows.
    sizes : tuple of int
        Numbers of rows it is timed at unless others are asked for.
    seed : int
        The seed it is timed with.
    min_cluster_size, min_samples : int
        The point itself counts in min_samples, as in mreach and scikit-learn.
    worst : bool
        Whether it is there to break shortcuts, rather than to stand for real data.
    max_rows : int or None
        Largest number of rows there is (real data).
    """

    name: str
    description: str
    make: Callable[[int, int], np.ndarray]
    sizes: tuple[int, ...]
    seed: int = 0
    min_cluster_size: int = 20
    min_samples: int = 20
    worst: bool = False
    max_rows: int | None = None

    def rows(self, n: int) -> np.ndarray:
        """The rows of this workload at size n (at most `max_rows`) with its own seed."""
        if n < 1:
            raise ValueError(f"workload {self.name!r} needs at least one row, got n={n}")
        return self.make(n if self.max_rows is None else min(n, self.max_rows), self.seed)


def make_blobs(n: int, seed: int, *, n_features: int) -> np.ndarray:
    """20 Gaussian clusters of varied spread in the unit cube, 10 % uniform noise; float32 (n, n_features)."""
    rng = np.random.default_rng(seed)
    n_clusters = 20
    centres = rng.uniform(0.1, 0.9, (n_clusters, n_features))
    spreads = 10.0 ** rng.uniform(-2.3, -1.3, n_clusters)
    cluster = rng.integers(0, n_clusters, n)
    rows = centres[cluster] + spreads[cluster, None] * rng.standard_normal((n, n_features))
    noise = rng.random(n) < 0.1
    rows[noise] = rng.random((int(noise.sum()), n_features))
    return rows.astype(np.float32)


def make_emg(n: int, seed: int) -> np.ndarray:
    """The real surface-EMG clips that mreach ships (5247 x 61, float32), or n of them, no one twice."""
    from mreach.datasets import load_emg_clips

    clips = np.ascontiguousarray(load_emg_clips(), dtype=np.float32)
    if n >= len(clips):
        return clips
    return clips[np.sort(np.random.default_rng(seed).choice(len(clips), n, replace=False))]


def make_lattice(n: int, seed: int) -> np.ndarray:
    """n points of a square lattice in random order: ties only, and no cluster; float64 (n, 2)."""
    side = int(np.ceil(np.sqrt(n)))
    points = np.stack(np.divmod(np.arange(n), side), axis=1).astype(np.float64)
    return points[np.random.default_rng(seed).permutation(n)]


def make_integer_pairs(n: int, seed: int) -> np.ndarray:
    """Integer pairs with heavy repeats: at 77 911 rows exactly 10 167 distinct ones; int64 (n, 2).

    The distinct pairs are drawn around a few centres; how often one is repeated falls off as a power of its
    rank.
    """
    rng = np.random.default_rng(seed)
    n_distinct = max(1, n * INTEGER_PAIRS_DISTINCT // INTEGER_PAIRS_ROWS)
    centres = rng.integers(0, 400, (12, 2))
    drawn = centres[rng.integers(0, 12, 40 * n_distinct + 200)]
    drawn = drawn + np.rint(rng.normal(0.0, 25.0, drawn.shape)).astype(np.int64)
    _, first = np.unique(drawn, axis=0, return_index=True)
    # Order of first appearance, so that the pairs kept are drawn by density and not by value.
    distinct = drawn[np.sort(first)[:n_distinct]]
    n_distinct = len(distinct)
    popularity = 1.0 / (1.0 + np.arange(n_distinct)) ** 0.7
    repeats = rng.choice(n_distinct, n - n_distinct, p=popularity / popularity.sum())
    chosen = np.concatenate([np.arange(n_distinct), repeats])
    return np.ascontiguousarray(distinct[rng.permutation(chosen)])


def make_tight_groups(n: int, seed: int) -> np.ndarray:
    """Ten groups 1e-3 wide, 1000 apart, in 61-D, float64: low-precision products cannot see inside."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((10, 61)) * (1000.0 / np.sqrt(2.0 * 61.0))
    return centres[rng.integers(0, 10, n)] + rng.standard_normal((n, 61)) * (1e-3 / np.sqrt(61.0))


def make_one_huge_row(n: int, seed: int) -> np.ndarray:
    """Clips, one row of which is 1e30 in every sample: it must not set the scale of all; float32."""
    rows = make_clips(n, seed)
    rows[n // 2] = np.float32(HUGE_VALUE)
    return rows


def make_gauss(n: int, seed: int, *, n_features: int) -> np.ndarray:
    """Unstructured normal rows, float32 (n, n_features): nothing to prune by."""
    return np.random.default_rng(seed).standard_normal((n, n_features), dtype=np.float32)


def make_wide(n: int, seed: int, *, n_features: int) -> np.ndarray:
    """50 wide normal blobs that overlap: nearly all noise, and nothing to prune by; float32."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((WIDE_BLOBS, n_features), dtype=np.float32) * np.float32(WIDE_CENTRE_SPREAD)
    rows = rng.standard_normal((n, n_features), dtype=np.float32)
    rows += centres[rng.integers(0, WIDE_BLOBS, n)]
    return rows


def make_copies(n: int, seed: int) -> np.ndarray:
    """Clips of which 30 % are copies of 4 % of the rows, in random order; float32."""
    rng = np.random.default_rng(seed)
    n_originals, n_copies = max(1, int(COPIED_ORIGINALS * n)), int(COPIED_SHARE * n)
    distinct = make_clips(n - n_copies, seed)
    chosen = np.concatenate([np.arange(len(distinct)), rng.integers(0, n_originals, n_copies)])
    return distinct[rng.permutation(chosen)]


def make_lattice3d(n: int, seed: int) -> np.ndarray:
    """n points of a cubic lattice in random order: integers, ties only; int64 (n, 3)."""
    side = int(np.ceil(n ** (1.0 / 3.0)))
    points = np.stack(np.unravel_index(np.arange(n), (side + 1, side, side)), axis=1).astype(np.int64)
    return np.ascontiguousarray(points[np.random.default_rng(seed).permutation(n)])


def wide_workload(n_features: int) -> Workload:
    """The workload ``wide<n_features>``."""

    def make(n: int, seed: int) -> np.ndarray:
        return make_wide(n, seed, n_features=n_features)

    name, text = f"wide{n_features}", f"50 wide normal blobs, nearly all noise, {n_features} features"
    return Workload(name, text, make, (5_000,), worst=True)


def gauss_workload(n_features: int) -> Workload:
    """The workload ``gauss<n_features>``."""

    def make(n: int, seed: int) -> np.ndarray:
        return make_gauss(n, seed, n_features=n_features)

    name, text = f"gauss{n_features}", f"unstructured normal rows, {n_features} features"
    return Workload(name, text, make, (10_000,), worst=True, min_cluster_size=5, min_samples=5)


def _registered() -> dict[str, Workload]:
    clips_text = (
        "synthetic spike clips, 61 samples: 40 templates, jitter, AR(1) noise, 10 % overlapped outliers"
    )
    entries = [
        Workload("clips", clips_text, make_clips, (2_000, 20_000)),
        Workload(
            "blobs2d",
            "20 clusters of varied spread + 10 % uniform noise, 2-D",
            lambda n, seed: make_blobs(n, seed, n_features=2),
            (10_000, 100_000),
        ),
        Workload(
            "blobs8d",
            "20 clusters of varied spread + 10 % uniform noise, 8-D",
            lambda n, seed: make_blobs(n, seed, n_features=8),
            (10_000, 100_000),
        ),
        Workload("emg", "real surface-EMG spike clips, 61 samples", make_emg, (5_247,), max_rows=5_247),
        Workload(
            "lattice", "a square lattice: ties only", make_lattice, (10_000,), worst=True, min_samples=5
        ),
        Workload(
            "integer_pairs",
            "integer pairs, 87 % of them repeats",
            make_integer_pairs,
            (INTEGER_PAIRS_ROWS,),
            worst=True,
        ),
        Workload(
            "tight_groups", "groups 1e-3 wide, 1000 apart, 61-D", make_tight_groups, (20_000,), worst=True
        ),
        Workload("one_huge_row", "clips with one row at 1e30", make_one_huge_row, (20_000,), worst=True),
        Workload(
            "lattice3d", "a cubic lattice of integers: ties only", make_lattice3d, (10_000,), worst=True
        ),
        Workload("copies", "clips, 30 % of them copies of 4 %", make_copies, (20_000,), worst=True),
        Workload(
            "outliers30",
            "clips with 30 % overlapped outliers",
            lambda n, seed: make_clips(n, seed, outlier_share=0.3),
            (20_000,),
            worst=True,
        ),
        gauss_workload(16),
        gauss_workload(61),
        wide_workload(384),
    ]
    return {entry.name: entry for entry in entries}


WORKLOADS: dict[str, Workload] = _registered()


def get_workload(name: str) -> Workload:
    """The workload of that name; ``gauss<d>`` and ``wide<d>`` exist for every number of features d.

    Raises
    ------
    ValueError
        If there is none; the message lists those there are.
    """
    if name in WORKLOADS:
        return WORKLOADS[name]
    match = ANY_WIDTH_NAME.fullmatch(name)
    if match:
        of_width = {"gauss": gauss_workload, "wide": wide_workload}[match.group(1)]
        return of_width(int(match.group(2)))
    raise ValueError(
        f"unknown workload {name!r}; there are {', '.join(WORKLOADS)}, and gauss<d> and wide<d> for any d"
    )


def select_workloads(names: list[str]) -> list[Workload]:
    """Workloads by name; ``main``: those like real data, ``worst``: the others, ``all``: both."""
    groups = {
        "main": [entry for entry in WORKLOADS.values() if not entry.worst],
        "worst": [entry for entry in WORKLOADS.values() if entry.worst],
        "all": list(WORKLOADS.values()),
    }
    chosen: dict[str, Workload] = {}
    for name in names:
        for entry in groups.get(name) or [get_workload(name)]:
            chosen[entry.name] = entry
    return list(chosen.values())

"""The compiled core from inside: whatever it is tuned to, it gives the reference's core distances and tree.

The estimator leaves the tuning alone. Here caps are forced down until lists overflow, the filter is switched
off or made to do everything, and every set of kernels runs, each against the reference, bit for bit.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import assert_same_bits
from datasets import blobs, clips

import mreach
from mreach.backends.reference import ReferencePoints
from mreach.neighbors import core_distances
from mreach.progress import Progress
from mreach.spanning_tree import minimum_spanning_tree

if not mreach.available_backends()["cpu"]["available"]:
    pytest.skip("needs the compiled core", allow_module_level=True)

from mreach import _core, hierarchy
from mreach.backends import cpu

kernel_names: Callable[[], list[str]] = _core.kernel_names

SETS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    # Ties
    "lattice_2d": lambda rng: np.stack(np.indices((13, 13)), -1).reshape(-1, 2).astype(np.float64),
    "lattice_16d": lambda rng: rng.integers(0, 2, (150, 16)).astype(np.float32),
    "lattice_17d": lambda rng: np.unique(rng.integers(0, 2, (150, 17)), axis=0).astype(np.float64),
    "integers_2d": lambda rng: rng.integers(0, 12, (201, 2)).astype(np.float64),
    "integers_61d": lambda rng: rng.integers(-1, 2, (121, 61)).astype(np.float32),
    "one_hot_65d": lambda rng: np.eye(65)[rng.integers(0, 65, 200)],
    "one_hot_300d": lambda rng: np.vstack([np.eye(300)[rng.integers(0, 60, 140)], np.zeros((7, 300))]),
    "equal_gaps": lambda rng: rng.permutation(193)[:, None] * np.array([[1.0, 2.0]]),
    # Distances that differ in the ninth digit, which the filter cannot see
    "near_ties_1d": lambda rng: nearly(rng, rng.permutation(300)[:, None]),
    "near_ties_2d": lambda rng: nearly(rng, np.stack(np.indices((17, 17)), -1).reshape(-1, 2)),
    "near_ties_20d": lambda rng: nearly(rng, rng.integers(0, 2, (300, 20))),
    "near_ties_65d": lambda rng: nearly(rng, 3.0 * np.eye(65)[rng.integers(0, 65, 260)]),
    # Equal rows
    "clips_with_copies": lambda rng: clips(rng, 227, duplicates=0.3),
    "piles": lambda rng: np.repeat(rng.normal(size=(25, 16)), 8, axis=0)[rng.permutation(200)],
    "piles_65d": lambda rng: rng.normal(size=(9, 65))[rng.integers(0, 9, 131)].astype(np.float32),
    "all_equal": lambda rng: np.full((98, 17), 0.3),
    # Offsets and scales
    "offset_1e9_2d": lambda rng: blobs(rng, 200, 2) + 1e9,
    "offset_1e8_61d": lambda rng: clips(rng, 131).astype(np.float64) + 1e8,
    "offset_1e7_float32": lambda rng: (blobs(rng, 193, 17) + 1e7).astype(np.float32),
    "one_row_at_1e30": lambda rng: np.vstack([blobs(rng, 160, 61), np.full((1, 61), 1e30)]),
    "one_row_at_1e30_2d": lambda rng: np.vstack([np.full((1, 2), 1e30), blobs(rng, 160, 2)]),
    "tight_groups_2d": lambda rng: tight_groups(rng, 200, 2),
    "tight_groups_65d": lambda rng: tight_groups(rng, 150, 65),
    "subnormal_squares_2d": lambda rng: blobs(rng, 150, 2) * 1e-160,
    "subnormal_squares_65d": lambda rng: blobs(rng, 130, 65) * 1e-161,
    "most_squares_are_zero": lambda rng: blobs(rng, 130, 17) * 1e-162,
    # Sizes beside the multiples of 24, 32 and 96
    "blobs_23_61d": lambda rng: blobs(rng, 23, 61).astype(np.float32),
    "blobs_97_16d": lambda rng: blobs(rng, 97, 16),
    "blobs_289_300d": lambda rng: blobs(rng, 289, 300).astype(np.float32),
    "blobs_577_2d": lambda rng: blobs(rng, 577, 2, n_blobs=9),
    "two_rows": lambda rng: rng.normal(size=(2, 61)),
    "one_row": lambda rng: rng.normal(size=(1, 17)),
}

VALUES: dict[str, tuple] = {
    "prune": (True, False),
    "min_list_length": (1, 2, 32),
    "max_list_length": (1, 2, 5, 256),
    "whole_share": (0.0, 0.25, 1e9),
    "group_blocks": (0, 1, 3, 4, 16),
    "symmetric": (0, 1),
    "near_panels": (0, 1, 16),
    "n_threads": (1, 2, 5),
    "alpha": (0.5, 1.0, 2.0),
    "min_samples": (1, 2, 5, 40, "half", "all"),
    "kernels": tuple(kernel_names()),
}

FITS_FOR_EACH_SET = 16


def nearly(rng: np.random.Generator, lattice: np.ndarray) -> np.ndarray:
    """A lattice whose points are a little off, far from the origin."""
    return 0.1 * (lattice + 1e-8 * rng.normal(size=lattice.shape)) + 70


def tight_groups(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Groups a million times as far apart as they are wide."""
    return 1e3 * rng.integers(-3, 4, (6, d))[rng.integers(0, 6, n)] + 1e-3 * rng.normal(size=(n, d))


@functools.cache
def data(name: str) -> np.ndarray:
    return SETS[name](np.random.default_rng(zlib.crc32(name.encode())))


@functools.cache
def reference_points(name: str) -> ReferencePoints:
    return ReferencePoints(data(name))


@functools.cache
def reference_result(name: str, min_samples: int, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    points = reference_points(name)
    return points.core_distances(min_samples), points.minimum_spanning_tree(alpha)


def cpu_result(
    X: np.ndarray, min_samples: int, alpha: float, n_threads: int, **tuning: Any
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return core distances, tree and statistics of the compiled core."""
    points = cpu.CpuPoints(X, n_threads=n_threads, progress=Progress(), **tuning)
    core = core_distances(points, min_samples)
    edges = minimum_spanning_tree(points, alpha)
    return core, edges, points.statistics()


def rows_asked(min_samples: int | str, n: int) -> int:
    asked = {"half": max(1, n // 2), "all": n}.get(min_samples, min_samples)
    return min(int(asked), n)


def check(name: str, **values: Any) -> dict[str, Any]:
    """Compare one way through the core with the reference; return the core's statistics."""
    X = data(name)
    values = {"n_threads": 2, "alpha": 1.0, "min_samples": 5} | values
    values["min_samples"] = rows_asked(values["min_samples"], len(X))
    core, edges, statistics = cpu_result(X, **values)
    expected_core, expected_edges = reference_result(name, values["min_samples"], values["alpha"])
    assert_same_bits(core, expected_core, f"core distances, {values}")
    assert_same_bits(edges, expected_edges, f"tree, {values}")
    return statistics


def combinations(name: str) -> list[dict[str, Any]]:
    """Ways through the core in which every value occurs; over all sets, all pairs of values do."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    columns = {
        key: [(values * FITS_FOR_EACH_SET)[i] for i in rng.permutation(FITS_FOR_EACH_SET)]
        for key, values in VALUES.items()
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("name", SETS)
def test_every_way_through_the_core_equals_the_reference(name: str) -> None:
    for values in combinations(name):
        check(name, **values)


def test_combinations_cover_all_pairs_of_values() -> None:
    fits = [values for name in SETS for values in combinations(name)]
    for (a, values_of_a), (b, values_of_b) in itertools.combinations(VALUES.items(), 2):
        assert {(fit[a], fit[b]) for fit in fits} == set(itertools.product(values_of_a, values_of_b)), (a, b)
    assert {data(name).shape[1] for name in SETS} >= {2, 16, 17, 61, 65, 300}
    assert all(any(len(data(name)) % size for name in SETS) for size in (24, 32, 96))


# ---------------------------------------------------------------------------------------------------------
# Pruning
# ---------------------------------------------------------------------------------------------------------


def test_pruning_is_exact() -> None:
    X = clips(np.random.default_rng(3), 3000, duplicates=0.1)
    core, edges, pruned = cpu_result(X, 10, 1.0, 2)
    core_whole, edges_whole, whole = cpu_result(X, 10, 1.0, 2, prune=False)
    assert pruned["distinct_rows"] < 2800
    assert pruned["spanning_tree"]["exact"] < whole["spanning_tree"]["exact"] / 20
    assert pruned["neighbors"]["exact"] < whole["neighbors"]["exact"] / 5
    assert_same_bits(core, core_whole, "core distances")
    assert_same_bits(edges, edges_whole, "tree")
    cuts = [hierarchy.cut(tree, min_cluster_size=20, data=X) for tree in (edges, edges_whole)]
    assert_same_bits(cuts[0].labels, cuts[1].labels, "labels")
    assert cuts[0].labels.max() >= 1

    reference = ReferencePoints(X)
    assert_same_bits(core, reference.core_distances(10), "core distances")
    assert_same_bits(edges, reference.minimum_spanning_tree(1.0), "tree")


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", ["integers_2d", "clips_with_copies", "one_hot_65d", "tight_groups_65d"])
def test_pruning_is_exact_on_ties(name: str, alpha: float) -> None:
    for min_samples in (1, 5, 40):
        for prune in (True, False):
            check(name, prune=prune, alpha=alpha, min_samples=min_samples)


@pytest.mark.parametrize("d", [1, 2, 20])
def test_near_ties_between_panels(d: int) -> None:
    """What decides lies below the digits of the filter, at the borders of its boxes, in short lists."""
    rng = np.random.default_rng(6)
    X = nearly(
        rng, rng.permutation(1500)[:, None] if d == 1 else rng.integers(0, 45 if d == 2 else 2, (1500, d))
    )
    reference = ReferencePoints(X)
    for min_samples in (2, 3):
        expected = reference.core_distances(min_samples), reference.minimum_spanning_tree(1.0)
        for kernels in kernel_names():
            core, edges, _ = cpu_result(X, min_samples, 1.0, 2, kernels=kernels, min_list_length=1)
            assert_same_bits(core, expected[0], "core distances")
            assert_same_bits(edges, expected[1], "tree")


def test_thousands_of_equal_weights() -> None:
    """As many edges in one order of rows, and some whose weights differ in the last digits only."""
    rng = np.random.default_rng(7)
    lattice = np.stack(np.indices((55, 55)), -1).reshape(-1, 2)[rng.permutation(55 * 55)].astype(np.float64)
    nearly_equal = lattice + 1e-15 * rng.integers(0, 3, lattice.shape)
    for X in (lattice, nearly_equal, np.vstack([lattice, [[1e30, 0]]])):
        reference = ReferencePoints(X)
        core, edges, _ = cpu_result(X, 5, 1.0, 2)
        assert_same_bits(core, reference.core_distances(5), "core distances")
        assert_same_bits(edges, reference.minimum_spanning_tree(1.0), "tree")


@pytest.mark.parametrize(("scale", "alpha"), [(1e-14, 1e308), (1e-20, 1e308), (1e-100, 1e300)])
@pytest.mark.parametrize("d", [2, 20])
def test_distances_divided_by_a_huge_alpha(d: int, scale: float, alpha: float) -> None:
    """Quotients with few digits, or none: weights are equal though the distances are not."""
    for copies, min_samples in ((1, 1), (2, 2)):
        X = np.repeat(np.random.default_rng(5).normal(size=(300 // copies, d)) * scale, copies, axis=0)
        reference = ReferencePoints(X)
        expected = reference.core_distances(min_samples), reference.minimum_spanning_tree(alpha)
        for cap in (2, 256):
            core, edges, _ = cpu_result(X, min_samples, alpha, 2, max_list_length=cap)
            assert_same_bits(core, expected[0], "core distances")
            assert_same_bits(edges, expected[1], "tree")


@pytest.mark.parametrize("name", ["clips", "integers", "far_offset"])
def test_pairs_evaluated_once_for_both_rows(name: str) -> None:
    """The pass over all pairs, as a fit of this size chooses it, against each group searching for itself."""
    rng = np.random.default_rng(8)
    X = {
        "clips": lambda: clips(rng, 6000, duplicates=0.05),
        "integers": lambda: rng.integers(0, 3, (6000, 18)).astype(np.float64),
        "far_offset": lambda: rng.normal(size=(6000, 24)) + 1e8,
    }[name]()
    core, edges, both = cpu_result(X, 5, 1.0, 2)
    core_alone, edges_alone, alone = cpu_result(X, 5, 1.0, 2, symmetric=0)
    assert_same_bits(core, core_alone, "core distances")
    assert_same_bits(edges, edges_alone, "tree")
    assert sum(both["neighbors"]["tiles"]) < sum(alone["neighbors"]["tiles"])


# ---------------------------------------------------------------------------------------------------------
# Capped lists
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("cap", [1, 2, 5])
@pytest.mark.parametrize("name", ["integers_2d", "integers_61d", "blobs_289_300d", "piles", "lattice_17d"])
def test_truncated_lists(name: str, cap: int, alpha: float) -> None:
    for min_samples in (2, 20, 40):
        statistics = check(name, max_list_length=cap, min_samples=min_samples, alpha=alpha)
        assert statistics["list_length"] == cap


@pytest.mark.parametrize("min_samples", [1, 2, 3])
@pytest.mark.parametrize("name", ["equal_gaps", "lattice_2d", "clips_with_copies", "two_rows"])
def test_shortest_lists(name: str, min_samples: int) -> None:
    asked = rows_asked(min_samples, len(data(name)))
    statistics = check(name, min_list_length=1, min_samples=asked)
    assert statistics["list_length"] == min(asked, len(data(name)) - 1)


@pytest.mark.parametrize("min_samples", [1, 40, "half", "all"])
@pytest.mark.parametrize("name", ["integers_2d", "clips_with_copies", "tight_groups_2d", "piles_65d"])
def test_all_rows_looked_at_or_filtered(name: str, min_samples: int | str) -> None:
    """The two ways to the neighbours: all rows compared exactly, or the filter, up to min_samples = n."""
    whole = check(name, whole_share=0.0, min_samples=min_samples)
    filtered = check(name, whole_share=1e9, min_samples=min_samples)
    assert whole["neighbors"]["panels"] == 0 < filtered["neighbors"]["panels"]


def test_lists_longer_than_the_cap_of_the_estimator() -> None:
    """More neighbours asked for than are kept, at the cap that a fit has."""
    statistics = check("blobs_577_2d", min_samples=300)
    assert statistics["list_length"] == 256
    check("blobs_577_2d", min_samples=300, whole_share=1e9)
    check("blobs_577_2d", min_samples=577, whole_share=1e9, alpha=0.5)


# ---------------------------------------------------------------------------------------------------------
# Kernels, groups, threads
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", ["avx512", "avx2", "baseline"])
def test_kernel_sets(kernels: str, record_property: Callable[[str, object], None]) -> None:
    record_property("kernel sets that can run here", " ".join(kernel_names()))
    if kernels not in kernel_names():
        pytest.skip(f"this processor cannot run the {kernels} kernels; it runs {', '.join(kernel_names())}")
    for name in SETS:
        check(name, kernels=kernels, whole_share=1e9)
        check(name, kernels=kernels, max_list_length=2, alpha=2.0, min_samples=3)


def test_kernel_names() -> None:
    assert kernel_names()[-1] == "baseline"
    with pytest.raises(ValueError, match="'avx1024' cannot run on this processor"):
        cpu.CpuPoints(np.ones((3, 3)), n_threads=1, progress=Progress(), kernels="avx1024")


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("group_blocks", [1, 2, 4, 16])
def test_groups_and_threads(group_blocks: int, n_threads: int) -> None:
    for name in ("blobs_577_2d", "blobs_289_300d", "integers_61d", "clips_with_copies", "blobs_97_16d"):
        check(name, group_blocks=group_blocks, n_threads=n_threads, whole_share=1e9, max_list_length=3)


@pytest.mark.parametrize(("n", "d"), [(9001, 2), (9001, 20)])
def test_deep_tree_of_boxes(n: int, d: int) -> None:
    """Three levels of boxes, which sets that fit into the reference do not have."""
    X = np.round(blobs(np.random.default_rng(4), n, d, n_blobs=30), 1 if d == 2 else 6)
    expected_core, expected_edges, _ = cpu_result(X, 5, 1.0, 2, kernels="baseline", whole_share=0.0)
    sums = np.zeros(n)
    for feature in X.T:
        sums = sums + (feature[17] - feature) ** 2
    assert expected_core[17] == np.sqrt(np.sort(sums)[4])
    for values in ({}, {"max_list_length": 1}, {"group_blocks": 2, "n_threads": 5}):
        core, edges, _ = cpu_result(X, 5, 1.0, **({"n_threads": 2} | values))
        assert_same_bits(core, expected_core, "core distances")
        assert_same_bits(edges, expected_edges, "tree")

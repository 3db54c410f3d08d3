"""Half the squared Euclidean distance: whatever the core is tuned to, it gives the reference's result.

Two things differ from the Euclidean measure: what is computed of an exact sum, and how far the filter has to
look for a distance. Half of a subnormal sum may be rounded, so that different sums have the same half.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from conftest import assert_same_bits
from datasets import DATASETS, clips, load
from test_core import SETS, combinations, cpu_result, data, nearly, rows_asked

from mreach.backends import cpu, reference
from mreach.neighbors import core_distances
from mreach.progress import Progress
from mreach.spanning_tree import minimum_spanning_tree

SMALL = [name for name, make in DATASETS.items() if 1 <= len(make()) <= 600]


def rows_for_a_backend(name: str) -> np.ndarray:
    """Return a data set as a backend gets it: finite rows, float32 or float64, C-contiguous."""
    X = load(name)
    X = X[np.isfinite(X.astype(np.float64)).all(axis=1)]
    keeps = X.dtype in (np.float32, np.float16, np.bool_, np.int8, np.uint8, np.uint16)
    return np.ascontiguousarray(X, np.float32 if keeps else np.float64)


def reference_result(
    points: reference.ReferencePoints, min_samples: int, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    return points.core_distances(min_samples), points.minimum_spanning_tree(alpha)


@pytest.mark.parametrize("name", SETS)
def test_every_way_through_the_core_equals_the_reference(name: str) -> None:
    X = data(name)
    reference_points = reference.open_points(X, halved_square=True)
    for values in combinations(name)[:4]:
        asked = {**values, "min_samples": rows_asked(values["min_samples"], len(X))}
        core, edges, _ = cpu_result(X, halved_square=True, **asked)
        expected = reference_result(reference_points, asked["min_samples"], asked["alpha"])
        assert_same_bits(core, expected[0], f"core distances, {values}")
        assert_same_bits(edges, expected[1], f"tree, {values}")


@pytest.mark.parametrize("name", SMALL)
def test_every_data_set_equals_the_reference(name: str) -> None:
    X = rows_for_a_backend(name)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    reference_points = reference.open_points(X, halved_square=True)
    for alpha in (0.5, 1.0, 2.0):
        min_samples = int(min(len(X), rng.choice([1, 2, 5, 20])))
        points = cpu.open_points(X, n_threads=2, progress=Progress(), halved_square=True)
        expected = reference_result(reference_points, min_samples, alpha)
        assert_same_bits(core_distances(points, min_samples), expected[0], "core distances")
        assert_same_bits(minimum_spanning_tree(points, alpha), expected[1], "tree")


@pytest.mark.parametrize("d", [1, 2, 20])
def test_near_ties_between_panels(d: int) -> None:
    """What decides lies below the digits of the filter: distances that differ in the ninth digit."""
    rng = np.random.default_rng(6)
    X = nearly(rng, rng.integers(0, {1: 1200, 2: 36, 20: 2}[d], (1200, d)))
    reference_points = reference.open_points(X, halved_square=True)
    for min_samples, symmetric in ((2, 0), (3, 1)):
        core, edges, _ = cpu_result(
            X, min_samples, 1.0, 2, halved_square=True, min_list_length=1, symmetric=symmetric
        )
        expected = reference_result(reference_points, min_samples, 1.0)
        assert_same_bits(core, expected[0], "core distances")
        assert_same_bits(edges, expected[1], "tree")


@pytest.mark.parametrize("d", [1, 2, 20])
@pytest.mark.parametrize("scale", [1e-159, 1e-161, 3e-162])
def test_halves_of_subnormal_sums(d: int, scale: float) -> None:
    """Sums of a few of the smallest numbers: halves are rounded, and so are their quotients by alpha."""
    X = np.random.default_rng(d).normal(size=(400, d)) * scale
    reference_points = reference.open_points(X, halved_square=True)
    assert 0 < reference_points.distances.max() < 1e-300
    for alpha in (0.3, 1.0, 3.0):
        for values in ({"max_list_length": 2}, {"symmetric": 1, "whole_share": 1e9}):
            core, edges, _ = cpu_result(X, 4, alpha, 2, halved_square=True, **values)
            expected = reference_result(reference_points, 4, alpha)
            assert_same_bits(core, expected[0], f"core distances, {values}")
            assert_same_bits(edges, expected[1], f"tree, {values}")


@pytest.mark.parametrize(("scale", "alpha"), [(1e-8, 1e308), (1e-10, 1e308), (1e-50, 1e300)])
def test_distances_divided_by_a_huge_alpha(scale: float, alpha: float) -> None:
    """Quotients with few digits, or none."""
    X = np.random.default_rng(5).normal(size=(300, 3)) * scale
    reference_points = reference.open_points(X, halved_square=True)
    for cap in (2, 256):
        core, edges, _ = cpu_result(X, 1, alpha, 2, halved_square=True, max_list_length=cap)
        expected = reference_result(reference_points, 1, alpha)
        assert_same_bits(core, expected[0], "core distances")
        assert_same_bits(edges, expected[1], "tree")


def test_pruning_excludes_as_much_as_with_the_euclidean_distance() -> None:
    X = clips(np.random.default_rng(3), 3000)
    core, _, halved = cpu_result(X, 10, 1.0, 1, halved_square=True)
    euclidean_core, _, euclidean = cpu_result(X, 10, 1.0, 1)
    np.testing.assert_allclose(core, euclidean_core**2 / 2, rtol=1e-14)
    for stage in ("neighbors", "spanning_tree"):
        assert halved[stage]["exact"] == pytest.approx(euclidean[stage]["exact"], rel=0.02)

"""Listed neighbours, and the spanning forest of a graph: trees for fewer neighbours from one search."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import assert_same_bits
from test_core import data

import mreach
from mreach.backends.reference import ReferencePoints
from mreach.progress import Progress
from mreach.records import EDGE_DTYPE

if not mreach.available_backends()["cpu"]["available"]:
    pytest.skip("needs the compiled core", allow_module_level=True)

from mreach import hierarchy
from mreach.backends import cpu
from mreach.spanning_tree import minimum_spanning_tree

NAMES = ["integers_2d", "clips_with_copies", "piles", "blobs_97_16d", "all_equal", "one_row", "lattice_2d"]


def naive_forest(n: int, source: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    component = list(range(n))
    kept = []
    ends = np.sort(np.c_[source, target], axis=1).tolist()
    for w, a, b in sorted((w, a, b) for w, (a, b) in zip(weight.tolist(), ends, strict=True)):
        old, new = component[b], component[a]
        if old != new:
            component = [new if c == old else c for c in component]
            kept.append((a, b, w))
    return np.array(kept, EDGE_DTYPE)


@pytest.mark.parametrize("seed", range(20))
def test_spanning_forest_equals_the_naive_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, n_edges = int(rng.integers(1, 60)), int(rng.choice([0, 5, 40, 3000]))
    source, target = rng.integers(0, n, n_edges), rng.integers(0, n, n_edges)
    weight = rng.choice([0.0, -0.0, np.inf, 5e-324, *rng.lognormal(size=5)], n_edges)
    if seed % 2:
        weight = rng.lognormal(size=n_edges)
    expected = naive_forest(n, source, target, weight + 0.0)
    assert_same_bits(hierarchy.spanning_forest(n, source, target, weight), expected, "forest")


@pytest.mark.parametrize("most", [1, 5, 40])
@pytest.mark.parametrize("name", NAMES)
def test_lists_hold_all_that_is_nearer_than_the_core_distance(name: str, most: int) -> None:
    X = data(name)
    most = min(most, len(X))
    points = cpu.CpuPoints(X, n_threads=2, progress=Progress())
    core = points.core_distances(most)
    listed = points.listed_neighbors()
    distances = ReferencePoints(X).distances
    _, equal, counts = np.unique(X + 0.0, axis=0, return_inverse=True, return_counts=True)
    equal = equal.reshape(-1)
    assert listed.multiplicity.tolist() == counts[equal].tolist()
    first = np.array([np.flatnonzero(equal == group)[0] for group in range(len(counts))])[equal]
    for i in range(len(X)):
        span = slice(listed.indptr[i], listed.indptr[i + 1])
        assert_same_bits(listed.distances[span], distances[i, listed.rows[span]], "distances")
        if first[i] == i:
            nearer = np.flatnonzero((distances[i] < core[i]) & (first != i))
            assert set(first[nearer].tolist()) <= set(listed.rows[span].tolist())
        else:
            assert listed.rows[span].tolist() == [first[i]]


@pytest.mark.parametrize("alpha", [0.7, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_trees_for_fewer_neighbours_weigh_what_a_search_of_their_own_gives(name: str, alpha: float) -> None:
    """CORE-SG (ICDE 2022): the neighbours and the tree for the most together hold a tree for each."""
    X = data(name)
    most = min(20, len(X))
    points = cpu.CpuPoints(X, n_threads=2, progress=Progress())
    points.core_distances(most)
    listed = points.listed_neighbors()
    tree = minimum_spanning_tree(points, alpha)
    reference = ReferencePoints(X)
    distances = reference.distances
    source = np.r_[np.repeat(np.arange(len(X)), np.diff(listed.indptr)), tree["source"]]
    target = np.r_[listed.rows, tree["target"]]
    for fewer in range(1, most + 1, 3):
        core = reference.core_distances(fewer)
        weight = np.maximum(np.maximum(core[source], core[target]), distances[source, target] / alpha)
        found = hierarchy.spanning_forest(len(X), source, target, weight)
        expected = reference.minimum_spanning_tree(alpha)
        assert_same_bits(found["weight"], expected["weight"], f"weights for {fewer}")


def test_lists_come_after_core_distances() -> None:
    points = cpu.CpuPoints(data("piles"), n_threads=1, progress=Progress())
    with pytest.raises(RuntimeError, match="core_distances comes before listed_neighbors"):
        points.listed_neighbors()

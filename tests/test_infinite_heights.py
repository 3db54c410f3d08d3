"""Trees with infinite edges: graphs that fall apart, a hierarchy for each part, joined at infinity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conftest import assert_same_bits, cut_of
from test_exactness import random_tree

from mreach import hierarchy
from mreach.backends import reference, reference_scores
from mreach.records import EDGE_DTYPE
from mreach.scores import exemplars, outlier_scores, relative_validity


def forest(rng: np.random.Generator, n: int, n_weights: int) -> np.ndarray:
    """A random tree of which a part of the edges, from one to all, are infinite."""
    edges = random_tree(rng, n, n_weights)
    share = rng.choice([0.02, 0.2, 0.7, 1.0])
    edges["weight"][rng.random(n - 1) < share] = np.inf
    edges["weight"][rng.integers(n - 1)] = np.inf
    if rng.random() < 0.2:
        edges["weight"][0] = np.finfo(np.float64).max  # the largest height with a lambda above 0
    return np.sort(edges, order=["weight", "source", "target"])


def selection(rng: np.random.Generator, edges: np.ndarray) -> dict[str, Any]:
    finite = edges["weight"][np.isfinite(edges["weight"])]
    return {
        "min_cluster_size": int(rng.integers(2, 7)),
        "max_cluster_size": [None, int(rng.integers(2, 40))][rng.integers(2)],
        "cluster_selection_method": str(rng.choice(["eom", "leaf"])),
        "cluster_selection_epsilon": float(rng.choice([0.0, 0.3, 1e300, *finite[-4:]])),
        "cluster_selection_epsilon_max": float(rng.choice([math.inf, 0.5, 1e300, *finite[-4:]])),
        "allow_single_cluster": bool(rng.integers(2)),
    }


@pytest.mark.parametrize("seed", range(30))
def test_cut_and_scores_equal_the_naive_ones(seed: int, backend: str) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(8):
        n = int(rng.integers(2, 80))
        edges = forest(rng, n, int(rng.choice([1, 2, 5, 20, 200])))
        keywords = selection(rng, edges)
        expected = reference.cut(edges, **keywords)
        actual = cut_of(backend)(edges, **keywords)
        for name in expected._fields:
            assert_same_bits(getattr(actual, name), getattr(expected, name), f"{name}, {keywords}")
            if name != "condensed_tree":
                assert not np.isnan(getattr(actual, name)).any(), name
        assert not np.isnan(actual.condensed_tree["lambda_val"]).any()
        assert_same_bits(hierarchy.linkage(edges), reference.linkage(edges), "linkage")

        scores = outlier_scores(actual.condensed_tree, actual.labels)
        assert_same_bits(
            scores, reference_scores.outlier_scores(edges, keywords["min_cluster_size"]), "scores"
        )
        assert ((scores >= 0) & (scores <= 1)).all()
        assert -1 <= relative_validity(edges, actual.labels) <= 1
        assert all(len(rows) > 0 for rows in exemplars(actual.condensed_tree, actual.labels))


@pytest.mark.parametrize("seed", range(10))
def test_parts_at_infinity_are_children_of_the_root(seed: int, backend: str) -> None:
    """The root is cluster 0, though others are born as high and hold smaller rows."""
    rng = np.random.default_rng(seed)
    n_parts, size = int(rng.integers(2, 6)), 12
    number = rng.permutation(n_parts * size)
    ends = [(part * size + i, part * size + i + 1) for part in range(n_parts) for i in range(size - 1)]
    joins = [(part * size, part * size + size) for part in range(n_parts - 1)]
    edges = np.empty(len(ends) + len(joins), EDGE_DTYPE)
    rows = np.sort(number[np.array(ends + joins)], axis=1)
    edges["source"], edges["target"] = rows.T
    edges["weight"][: len(ends)] = rng.integers(1, 4, len(ends))
    edges["weight"][len(ends) :] = np.inf
    edges = np.sort(edges, order=["weight", "source", "target"])
    cut = cut_of(backend)(edges, min_cluster_size=size)
    children = cut.condensed_tree[:n_parts].tolist()
    n = n_parts * size
    assert children == [(n, n + 1 + part, 0.0, size) for part in range(n_parts)]
    assert np.isinf(cut.birth_heights).all()
    assert cut.stabilities[0] == 0
    assert cut.labels.max() == n_parts - 1
    assert len({tuple(np.flatnonzero(cut.labels == label)) for label in range(n_parts)}) == n_parts
    for label, part in enumerate(np.sort(number.reshape(n_parts, size), axis=1).tolist()):
        assert len(set(cut.labels[part].tolist())) == 1, label


def test_rows_by_themselves_are_noise_at_infinity(any_backend: str) -> None:
    edges = np.array([(0, 1, 1.0), (1, 2, 1.0), (2, 3, np.inf), (3, 4, np.inf)], EDGE_DTYPE)
    cut = cut_of(any_backend)(edges, min_cluster_size=3)
    assert cut.condensed_tree.tolist() == [
        (5, 3, 0, 1),
        (5, 4, 0, 1),
        (5, 0, 1, 1),
        (5, 1, 1, 1),
        (5, 2, 1, 1),
    ]
    assert outlier_scores(cut.condensed_tree, cut.labels).tolist() == [0, 0, 0, 1, 1]
    cut = cut_of(any_backend)(edges, min_cluster_size=3, allow_single_cluster=True)
    assert cut.labels.tolist() == [0, 0, 0, -1, -1]
    alone = np.array([(0, 1, np.inf), (1, 2, np.inf)], EDGE_DTYPE)
    cut = cut_of(any_backend)(alone, min_cluster_size=2, allow_single_cluster=True)
    assert cut.labels.tolist() == [0, 0, 0], "nothing is denser: the root takes all that leaves it last"
    assert cut.probabilities.tolist() == [1, 1, 1]
    assert cut.persistence.tolist() == [0]
    assert outlier_scores(cut.condensed_tree, cut.labels).tolist() == [0, 0, 0]
    assert relative_validity(alone, cut.labels) == 0


def test_cut_at_a_distance(any_backend: str) -> None:
    edges = np.array([(0, 1, 1.0), (1, 2, 4.0), (2, 3, np.inf)], EDGE_DTYPE)
    core = np.array([1.0, 1.0, 4.0, np.inf])
    cut_at = reference.cut_at_distance if any_backend == "reference" else hierarchy.cut_at_distance
    for distance, expected in ((2.0, [0, 0, -1, -1]), (1e300, [0, 0, 0, -1])):
        assert cut_at(edges, core, cut_distance=distance, min_cluster_size=2).tolist() == expected

"""The greatest height at which a cluster that excess of mass selects may be born."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conftest import assert_same_bits, cut_of
from test_exactness import random_tree

from mreach import hierarchy
from mreach.backends import reference
from mreach.records import EDGE_DTYPE

# {0..3} is born at 8 and splits at 2 into two that live shortly; {4, 5} is beside it.
NESTED = np.array(
    [(0, 1, 1.75), (2, 3, 1.75), (4, 5, 1.75), (1, 2, 2.0), (3, 4, 8.0)],
    EDGE_DTYPE,
)


def labels_up_to(any_backend: str, epsilon_max: float, **keywords: Any) -> list[int]:
    cut = cut_of(any_backend)(
        NESTED, min_cluster_size=2, cluster_selection_epsilon_max=epsilon_max, **keywords
    )
    return cut.labels.tolist()


def test_clusters_born_above_epsilon_max_are_not_selected(any_backend: str) -> None:
    assert labels_up_to(any_backend, math.inf) == [0, 0, 0, 0, 1, 1]
    assert labels_up_to(any_backend, 8.0) == [0, 0, 0, 0, 1, 1], "born at it is not born above it"
    assert labels_up_to(any_backend, 7.9) == [0, 0, 1, 1, -1, -1]
    assert labels_up_to(any_backend, 1.9) == [-1] * 6
    assert labels_up_to(any_backend, 1.0, cluster_selection_method="leaf") == [0, 0, 1, 1, 2, 2]


def test_the_root_is_born_above_every_finite_epsilon_max(any_backend: str) -> None:
    keywords = {"allow_single_cluster": True}
    chain = np.array([(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0)], EDGE_DTYPE)
    for epsilon_max, expected in ((math.inf, [0] * 4), (1e300, [-1] * 4)):
        cut = cut_of(any_backend)(
            chain, min_cluster_size=3, cluster_selection_epsilon_max=epsilon_max, **keywords
        )
        assert cut.labels.tolist() == expected


def test_clusters_by_epsilon_know_epsilon_max(any_backend: str) -> None:
    module = reference if any_backend == "reference" else hierarchy
    keywords: dict[str, Any] = {
        "min_cluster_size": 2,
        "max_cluster_size": None,
        "cluster_selection_method": "eom",
        "allow_single_cluster": False,
    }
    counts = [
        module.clusters_by_epsilon(NESTED, cluster_selection_epsilon_max=limit, **keywords)(0.0)
        for limit in (math.inf, 7.9, 1.9)
    ]
    assert counts == [2, 2, 0]


def test_condensed_trees_know_epsilon_max() -> None:
    cut = hierarchy.cut_condensed(
        hierarchy.condense(NESTED, 2),
        max_cluster_size=None,
        cluster_selection_method="eom",
        cluster_selection_epsilon=0.0,
        cluster_selection_epsilon_max=7.9,
        allow_single_cluster=False,
        data=None,
    )
    assert cut.labels.tolist() == [0, 0, 1, 1, -1, -1]


@pytest.mark.parametrize("seed", range(20))
def test_cuts_equal_the_naive_ones(seed: int, backend: str) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        edges = random_tree(rng, int(rng.integers(2, 80)), int(rng.choice([2, 5, 200])))
        keywords = {
            "min_cluster_size": int(rng.integers(2, 7)),
            "max_cluster_size": [None, int(rng.integers(2, 40))][rng.integers(2)],
            "cluster_selection_method": str(rng.choice(["eom", "leaf"])),
            "cluster_selection_epsilon": float(rng.choice([0.0, *edges["weight"][-4:]])),
            "cluster_selection_epsilon_max": float(rng.choice(edges["weight"])),
            "allow_single_cluster": bool(rng.integers(2)),
        }
        expected, actual = reference.cut(edges, **keywords), cut_of(backend)(edges, **keywords)
        for name in expected._fields:
            assert_same_bits(getattr(actual, name), getattr(expected, name), f"{name}, {keywords}")

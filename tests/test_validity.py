"""The validity index, against its definition in plain loops and against hdbscan's where nothing ties."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mreach import HDBSCAN, validity
from mreach.validity import validity_index

HDBSCAN_INDEX = 0.8304528388314123
"""What hdbscan 0.8.44 gives for ``two_chains``, in every order of its rows."""


def naive_index(X: np.ndarray, labels: np.ndarray) -> float:
    """The formulas of Moulavi et al. (2014), with Kruskal's algorithm; at least two clusters of 3 rows."""
    inside: dict[int, tuple[list[np.ndarray], list[float]]] = {}
    sparseness: dict[int, float] = {}
    n_features = X.shape[1]

    def distance(a: Any, b: Any) -> float:
        return float(np.sqrt(((a - b) ** 2).sum()))

    for label in set(labels[labels >= 0].tolist()):
        rows = [np.array(row) for row in sorted(map(tuple, X[labels == label].tolist()))]
        n = len(rows)
        core = []
        for i in range(n):
            others = [distance(rows[i], rows[j]) for j in range(n) if j != i]
            mean = sum((1 / d) ** n_features for d in others) / (n - 1) if min(others) > 0 else np.inf
            core.append(float(mean) ** (-1 / n_features))
        edges = []
        for i, j in itertools.combinations(range(n), 2):
            d = distance(rows[i], rows[j])
            edges.append((max(core[i], core[j], d), d, i, j))
        part = list(range(n))
        tree = []
        for weight, _, i, j in sorted(edges):
            if part[i] != part[j]:
                tree.append((weight, i, j))
                part = [part[i] if one == part[j] else one for one in part]
        degree = [sum(row in edge[1:] for edge in tree) for row in range(n)]
        internal = [row for row in range(n) if degree[row] > 1]
        inner = [weight for weight, i, j in tree if degree[i] > 1 and degree[j] > 1]
        sparseness[label] = max(inner or [edge[0] for edge in tree])
        inside[label] = [rows[row] for row in internal], [core[row] for row in internal]
    index = 0.0
    for label, (rows, core) in inside.items():
        separation = min(
            max(core[i], other_core[j], distance(rows[i], other_rows[j]))
            for other, (other_rows, other_core) in inside.items()
            if other != label
            for i in range(len(rows))
            for j in range(len(other_rows))
        )
        score = (separation - sparseness[label]) / max(separation, sparseness[label])
        index += np.count_nonzero(labels == label) / len(labels) * score
    return index


def three_blobs(seed: int, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(seed)
    X = np.vstack([r.normal(2.5 * k, 1, (25, d)) for k in range(3)] + [r.uniform(-4, 9, (10, d))])
    return X, np.repeat([0, 1, 2, -1], [25, 25, 25, 10])


def two_chains() -> tuple[np.ndarray, np.ndarray]:
    """Gaps that grow, in 40 dimensions: every core distance is nearly the smaller gap, and no weights tie."""
    X = np.zeros((14, 40))
    X[:6, 0] = np.cumsum(1.3 ** np.arange(6))
    X[6:13, 0] = 60 + np.cumsum(1.5 ** np.arange(7))
    X[13] = 30
    return X, np.array([0] * 6 + [1] * 7 + [-1])


@pytest.mark.parametrize("d", [1, 2, 3, 12])
@pytest.mark.parametrize("seed", range(3))
def test_the_definition(seed: int, d: int) -> None:
    X, labels = three_blobs(seed, d)
    assert validity_index(X, labels) == pytest.approx(naive_index(X, labels), rel=1e-10)


def test_the_definition_on_ties_and_equal_rows() -> None:
    X = np.random.default_rng(1).integers(0, 9, (80, 2)).astype(float)
    X[40:] += 12
    labels = np.repeat([0, 1], 40)
    assert len(np.unique(X, axis=0)) < 80
    assert validity_index(X, labels) == pytest.approx(naive_index(X, labels), rel=1e-10)


def test_it_is_that_of_hdbscan_where_no_weights_are_equal() -> None:
    index, scores = validity_index(*two_chains(), per_cluster_scores=True)
    assert index == pytest.approx(HDBSCAN_INDEX, rel=1e-12)
    assert index == pytest.approx((6 * scores[0] + 7 * scores[1]) / 14, rel=1e-15)


def test_by_hand() -> None:
    # One feature: core distances are harmonic means. The two rows in the middle of each cluster are internal.
    X = np.array([0.0, 1, 2, 3, 20, 21, 22, 23])[:, np.newaxis]
    core = 3 / (1 + 1 + 1 / 2)  # of those two, and heavier than the distance between them
    separation = 21 - 2
    expected = (separation - core) / separation
    assert validity_index(X, [0, 0, 0, 0, 1, 1, 1, 1]) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_rows_does_not_matter(seed: int) -> None:
    X, labels = three_blobs(seed)
    X = np.round(X, 1)
    order = np.random.default_rng(seed).permutation(len(X))
    assert validity_index(X[order], labels[order]) == validity_index(X, labels)


def test_noise_first_and_float32() -> None:
    """ValueError; an error about the type."""
    X = np.array([[9.0, 9], [0, 0], [0, 1], [1, 0], [5, 5], [7, 7]], np.float32)
    index, scores = validity_index(X, [-1, 1, 1, 1, 0, -1], per_cluster_scores=True)
    # One row is no cluster, and one cluster has nothing to be separated from.
    assert index == 0.0
    assert scores.tolist() == [0.0, 0.0]
    X, labels = three_blobs(0)
    X = X.astype(np.float32)
    order = np.argsort(labels, kind="stable")  # noise first
    assert validity_index(X[order], labels[order]) == validity_index(X.astype(float), labels)


def test_labels_with_gaps_and_rows_that_are_not_finite() -> None:
    X, labels = three_blobs(0)
    expected, scores = validity_index(X, labels, per_cluster_scores=True)
    index, spread = validity_index(X, np.where(labels == 2, 5, labels), per_cluster_scores=True)
    assert index == expected
    assert spread.tolist() == [*scores[:2], 0, 0, 0, scores[2]]
    X = np.insert(X, 3, np.nan, axis=0)
    assert validity_index(X, np.insert(labels, 3, -3)) == expected
    assert validity_index(X, HDBSCAN(backend="reference").fit(X).labels_) > 0


@pytest.mark.parametrize("exponent", [-700, -40, 700])
def test_the_unit_does_not_matter(exponent: int) -> None:
    X, labels = three_blobs(2, 12)
    assert validity_index(np.ldexp(X, exponent), labels) == validity_index(X, labels)


def test_equal_rows_and_pairs() -> None:
    piles = np.repeat([[0.0], [4.0]], 3, axis=0)
    assert validity_index(piles, [0, 0, 0, 1, 1, 1]) == 1.0
    piles = np.repeat([[0.0], [4.0]], 4, axis=0)
    assert validity_index(piles, [0, 1] * 4) == -1.0  # both clusters reach over the gap and share the piles
    assert validity_index(np.zeros((6, 1)), [0, 1, 0, 1, 0, 1]) == 0.0
    # Two rows have no internal row: both count. Core distances 1, separation 9.
    assert validity_index([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1]) == pytest.approx(8 / 9)
    assert validity_index([[0.0], [1.0]], [-1, -1]) == 0.0
    assert validity_index([[0.0], [1.0]], [-2, -3]) == 0.0


def test_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = three_blobs(4)
    expected = validity_index(X, labels)
    monkeypatch.setattr(validity, "TILE_BYTES", 8 * 25 * 3)
    assert validity_index(X, labels) == expected


def test_what_is_given_is_not_changed() -> None:
    X, labels = three_blobs(1)
    before = X.copy(), labels.copy()
    validity_index(X, labels)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(labels, before[1])


@pytest.mark.parametrize(
    ("X", "labels", "message"),
    [
        (np.ones((3, 2)), [0, 1], "labels must hold one number for each of the 3 rows"),
        (np.ones((2, 2)), [0.5, 1], "labels must be whole numbers"),
        (np.ones((2, 2)), ["a", "b"], "labels must be whole numbers"),
        (np.ones((2, 2)), [np.nan, 1], "labels must be whole numbers"),
        ([[np.nan], [1.0], [np.inf]], [0, 0, -1], "1 rows that belong to clusters, the first is row 0"),
        ([1.0, 2.0], [0, 1], "Expected 2D array"),
    ],
)
def test_what_is_refused(X: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validity_index(X, labels)

"""Distances that the user computed: whole, condensed, sparse, and graphs that fall apart."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.cluster
from conftest import FITTED_ATTRIBUTES, assert_same_bits
from scipy.spatial.distance import pdist, squareform

from mreach import HDBSCAN
from mreach.backends import reference
from mreach.backends.pairwise import open_pairwise
from mreach.metrics import Metric
from mreach.progress import Progress
from mreach.spanning_tree import minimum_spanning_tree
from mreach.validation import precomputed
from mreach.validation.precomputed import check_distances

RNG = np.random.default_rng(0)
X = np.vstack([RNG.normal(0, 1, (40, 2)), RNG.normal(8, 1, (40, 2)), [[0, 30], [30, 0]]]).round(1)
MATRIX = squareform(pdist(X))
PRECOMPUTED = Metric("precomputed", "precomputed")


def fit(distances: Any, **parameters: Any) -> HDBSCAN:
    return HDBSCAN(**{"metric": "precomputed", "backend": "reference", **parameters}).fit(distances)


def assert_same_fit(actual: HDBSCAN, expected: HDBSCAN) -> None:
    for name in FITTED_ATTRIBUTES:
        assert_same_bits(getattr(actual, name), getattr(expected, name), name)


def graph_of(matrix: np.ndarray, radius: float) -> scipy.sparse.coo_array:
    """Keep the distances up to a radius, of equal rows too."""
    row, column = np.nonzero((matrix <= radius) & ~np.eye(len(matrix), dtype=bool))
    return scipy.sparse.coo_array((matrix[row, column], (row, column)), shape=matrix.shape)


def stages(distances: Any, backend: str, min_samples: int, alpha: float = 1.0) -> tuple[Any, ...]:
    """Return core distances and tree, without the hierarchy."""
    source = check_distances(HDBSCAN(), distances)
    open_points = reference.open_pairwise if backend == "reference" else open_pairwise
    points = open_points(source, PRECOMPUTED, n_threads=2, progress=Progress())
    return points.core_distances(min_samples), minimum_spanning_tree(points, alpha)


@pytest.mark.parametrize("min_samples", [1, 5, len(X)])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_matrix_in_every_form(backend: str, min_samples: int) -> None:
    expected = HDBSCAN(min_samples=min_samples, backend="reference").fit(X)
    forms = [
        MATRIX,
        MATRIX.tolist(),
        np.asfortranarray(MATRIX),
        MATRIX[::-1, ::-1][::-1, ::-1],
        MATRIX.astype(">f8"),
        pdist(X),
        graph_of(MATRIX, np.inf),
        graph_of(MATRIX, np.inf).tocsr(),
    ]
    for form in forms:
        model = fit(form, min_samples=min_samples, backend=backend)
        assert_same_fit(model, fit(MATRIX, min_samples=min_samples))
        assert model.n_features_in_ == len(X)
    for name in ("core_distances_", "probabilities_", "minimum_spanning_tree_", "single_linkage_tree_"):
        assert_same_bits(getattr(model, name), getattr(expected, name), name)


# Case 25
def test_precomputed_against_features() -> None:
    rows = np.repeat(np.array([[0, 0, 1, 1, 3, 6, 10.0]]).T, 2, axis=1)
    for min_samples in (1, 2, 3):
        given = fit(squareform(pdist(rows)), min_cluster_size=2, min_samples=min_samples)
        expected = HDBSCAN(min_cluster_size=2, min_samples=min_samples, backend="reference").fit(rows)
        assert_same_fit(given, expected)


# Case 24
def test_the_input_is_never_changed() -> None:
    small = squareform(pdist(X[::17]))
    np.fill_diagonal(small, 7.0)
    small[0, 1] += 1e-10
    for given in (small, pdist(X[::17]), graph_of(small, 20.0), graph_of(small, 20.0).tocsr()):
        data = given.data if scipy.sparse.issparse(given) else given
        before = np.array(data)
        if not scipy.sparse.issparse(given):
            given.flags.writeable = False
        fit(given, min_samples=2, backend="cpu")
        assert_same_bits(np.array(data), before, "input")


def test_the_diagonal_and_rounding() -> None:
    given = MATRIX.copy()
    np.fill_diagonal(given, np.nan)
    assert_same_fit(fit(given), fit(MATRIX))
    given = MATRIX * (1 + np.tril(np.full(MATRIX.shape, 1e-12)))
    larger = np.maximum(given, given.T)
    for backend in ("cpu", "reference"):
        assert_same_fit(fit(given, backend=backend), fit(larger))
    assert_same_fit(fit(np.round(MATRIX).astype(np.uint8), backend="cpu"), fit(np.round(MATRIX)))


def changed(row: int, column: int, value: float, both: bool = True) -> np.ndarray:
    matrix = MATRIX.copy()
    matrix[row, column] = value
    if both:
        matrix[column, row] = value
    return matrix


REFUSED = [
    (changed(7, 3, np.nan), "X[3, 7] is nan, which is no distance: numpy.inf says"),
    (changed(7, 3, -1.0), "X[3, 7] is -1.0, which is no distance: distances are at least 0"),
    (changed(7, 3, -1.0, both=False), "X[7, 3] is -1.0"),
    (changed(7, 3, np.inf, both=False), "numpy.maximum(X, X.T) takes the larger"),
    (changed(7, 3, 55.0, both=False), "X[7, 3] is 55.0, and a distance is the same both ways"),
    (np.where(np.arange(3321) == 5, -1.0, pdist(X)), "X[5] is -1.0"),
    (MATRIX[:, :5], "takes a square matrix of distances, got shape (82, 5)"),
    (pdist(X)[1:], "condensed matrix of n * (n - 1) / 2 numbers, got 3320"),
    (scipy.sparse.csr_array(changed(7, 3, np.nan)), "X[3, 7] is nan"),
    (scipy.sparse.csr_array(changed(7, 3, 55.0, both=False)), "and X[7, 3] is 55.0"),
    (scipy.sparse.csr_array(MATRIX[:5]), "takes a square matrix"),
    (MATRIX.astype(complex), "Complex data not supported"),
]


@pytest.mark.parametrize(("distances", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(distances: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        fit(distances)


@pytest.mark.parametrize("min_samples", [1, 2, 4, 30])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("radius", [0.0, 0.5, 1.0, 3.0, 12.0])
def test_graphs_that_fall_apart(radius: float, alpha: float, min_samples: int) -> None:
    graph = graph_of(MATRIX, radius)
    dense = np.where(radius >= MATRIX, MATRIX, np.inf)
    expected = stages(dense, "reference", min_samples, alpha)
    one_sided = scipy.sparse.triu(graph.tocsr(), format="csr")
    for distances in (graph, one_sided, dense):
        for backend in ("reference", "cpu"):
            found = stages(distances, backend, min_samples, alpha)
            for actual, wanted in zip(found, expected, strict=True):
                assert_same_bits(actual, wanted, backend)
    assert len(expected[1]) == len(X) - 1
    n_components = scipy.sparse.csgraph.connected_components(graph, directed=False)[0]
    assert (expected[1]["weight"] == np.inf).sum() >= n_components - 1
    infinite = expected[1][np.isinf(expected[1]["weight"])]
    assert (infinite["source"] == 0).all()


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_one_hierarchy_for_each_component(backend: str) -> None:
    graph = graph_of(MATRIX, 3.0)
    model = fit(graph, min_samples=3, backend=backend)
    assert set(model.labels_) == {-1, 0, 1}
    assert set(model.labels_[:40]) <= {-1, 0}
    assert model.core_distances_[-1] == np.inf
    assert model.probabilities_.max() == 1.0
    for name in ("labels_", "probabilities_", "cluster_persistence_", "outlier_scores_"):
        assert not np.isnan(getattr(model, name)).any(), name
    assert not np.isnan(model.condensed_tree_["lambda_val"]).any()
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = fit(graph.tocsr()[order][:, order], min_samples=3, backend=backend)
    assert_same_bits(shuffled.probabilities_, model.probabilities_[order], "probabilities")


def test_labels_of_equal_sizes_follow_row_numbers() -> None:
    matrix = squareform(pdist(np.repeat([[9.0], [0.0]], 6, axis=0) + np.tile(np.arange(6.0), 2)[:, None] / 9))
    assert fit(matrix, min_samples=2).labels_.tolist() == [0] * 6 + [1] * 6
    assert HDBSCAN(min_samples=2, backend="reference").fit(np.zeros((6, 1))).labels_.tolist() == [-1] * 6


def test_what_is_stored_twice() -> None:
    row, column = np.array([0, 1, 0, 2, 3]), np.array([1, 0, 2, 3, 3])
    values = np.array([1.0, 1.0 + 1e-12, 0.0, 2.0, 9.0])
    source = check_distances(HDBSCAN(), scipy.sparse.coo_array((values, (row, column)), shape=(4, 4)))
    pairs = zip(source.lower.tolist(), source.higher.tolist(), source.distances.tolist(), strict=True)
    assert list(pairs) == [(0, 1, 1.0 + 1e-12), (0, 2, 0.0), (2, 3, 2.0)]


def test_weights_agree_with_scikit_learn() -> None:
    # In a graph scikit-learn counts what is stored, so not the row itself.
    for distances, min_samples in ((MATRIX, 4), (graph_of(MATRIX, 30.0).tocsr(), 3)):
        theirs = sklearn.cluster.HDBSCAN(metric="precomputed", min_samples=min_samples, copy=True)
        theirs.fit(distances)
        weights = np.sort(theirs._single_linkage_tree_["value"])
        ours = fit(distances, min_samples=4).minimum_spanning_tree_["weight"]
        np.testing.assert_allclose(ours, weights, rtol=1e-12)


def test_cuts_of_precomputed_distances() -> None:
    model = fit(MATRIX, min_samples=4)
    cut = model.cut(min_cluster_size=10, cluster_selection_method="leaf")
    assert_same_fit(cut, fit(MATRIX, min_samples=4, min_cluster_size=10, cluster_selection_method="leaf"))
    assert HDBSCAN(metric="precomputed").__sklearn_tags__().input_tags.pairwise


def test_a_matrix_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precomputed, "BLOCK_ROWS", 10)
    rounded = MATRIX * (1 + np.tril(np.full(MATRIX.shape, 1e-12)))
    assert_same_fit(fit(rounded), fit(np.maximum(rounded, rounded.T)))
    for row, column, value in ((71, 3, -1.0), (3, 71, np.nan), (71, 3, 55.0), (45, 44, -1.0)):
        with pytest.raises(ValueError, match=re.escape(f"X[{row}, {column}] is {value}")):
            fit(changed(row, column, value, both=False))


def test_pairs_that_are_stored_several_times() -> None:
    # SciPy means their sum, in every format.
    values, columns, starts = np.array([0.5, 0.5, 1.0, 2.0, 3.0]), [1, 1, 0, 2, 3], [0, 2, 4, 5, 5]
    for kind in (scipy.sparse.csr_array, scipy.sparse.csc_array):
        graph = kind((values, columns, starts), shape=(4, 4))
        assert fit(graph, min_cluster_size=2).core_distances_.tolist() == [1.0, 1.0, 2.0, 3.0]
        np.testing.assert_array_equal(graph.data, values)


def test_masked_and_oversized_distances() -> None:
    for masked in (np.ma.masked_equal(MATRIX, MATRIX[3, 4]), np.ma.masked_equal([1.0, 2.0, 3.0], 3.0)):
        with pytest.raises(ValueError, match=r"X\.filled\(numpy\.inf\)"):
            fit(masked, min_cluster_size=2)
    if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        for wide in (np.longdouble([1, 2, 3]), np.ones((3, 3), np.longdouble)):
            with pytest.raises(ValueError, match="overflow float64: scale X down first"):
                fit(wide * np.longdouble("1e4000"), min_cluster_size=2)
    with pytest.raises(ValueError, match=r"X is empty.*give a square matrix"):
        fit(np.empty(0), min_cluster_size=2)

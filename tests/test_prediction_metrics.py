"""New rows under every kind of metric, with weights, and for precomputed distances."""

from typing import Any

import numpy as np
import pytest
from conftest import assert_same_bits, skip_unless_available
from scipy.spatial.distance import cdist

from mreach import HDBSCAN

rng = np.random.default_rng

METRICS: list[dict[str, Any]] = [
    {"metric": "cosine"},
    {"metric": "correlation"},
    {"metric": "haversine"},
    {"metric": "manhattan"},
    {"metric": "chebyshev"},
    {"metric": "minkowski", "p": 3},
    {"metric": "hamming"},
    {"metric": "jaccard"},
    {"metric": "canberra"},
    {"metric": "seuclidean"},
]


def rows_for(metric: str, n: int = 120, seed: int = 0) -> np.ndarray:
    """Return rows with groups, ties and equal rows, as the metric takes them."""
    X = rng(seed).normal(size=(n, 2 if metric == "haversine" else 5))
    X[: n // 2] += 4
    X = np.round(X, 1)
    X[-5:] = X[:5]
    if metric == "haversine":
        return np.clip(X / 8, -1.5, 1.5)
    if metric in ("hamming", "jaccard"):
        return (X > 1).astype(float)
    return X


@pytest.fixture(params=["reference", "cpu", "cuda"])
def filtered_backend(request: pytest.FixtureRequest) -> str:
    return skip_unless_available(request.param)


def assert_predicts_its_own_rows(model: HDBSCAN, X: Any) -> None:
    labels, strengths = model.approximate_predict(X)
    np.testing.assert_array_equal(labels, model.labels_)
    assert_same_bits(strengths, model.probabilities_, "strengths")
    assert_same_bits(model.outlier_scores(X), model.outlier_scores_, "outlier scores")
    assert_same_bits(model.membership_vector(X), model.all_points_membership_vectors(), "vectors")


@pytest.mark.parametrize("parameters", METRICS, ids=lambda one: one["metric"])
@pytest.mark.parametrize("options", [{}, {"min_samples": 2, "cluster_selection_method": "leaf"}], ids=str)
def test_rows_of_the_fit(parameters: dict[str, Any], options: dict[str, Any]) -> None:
    X = rows_for(parameters["metric"])
    results = []
    for backend in ("reference", "cpu"):
        model = HDBSCAN(backend=skip_unless_available(backend), **parameters, **options).fit(X)
        assert_predicts_its_own_rows(model, X)
        new = rows_for(parameters["metric"], 60, seed=1)
        results.append((*model.approximate_predict(new), model.outlier_scores(new)))
    for ours, expected in zip(*results, strict=True):
        assert_same_bits(ours, expected, "new rows")
    assert set(results[0][0]) - {-1}


@pytest.mark.parametrize("metric", ["cosine", "haversine"])
def test_filtered_metrics(metric: str, filtered_backend: str) -> None:
    X = rows_for(metric)
    X[7, 1] = np.nan
    assert_predicts_its_own_rows(HDBSCAN(metric=metric, backend=filtered_backend).fit(X), X)


def test_noise_is_assigned_in_the_unit_of_the_metric() -> None:
    """On the equator angles are differences of longitudes: two groups 0.95 apart, and a row beyond each."""
    longitudes = np.r_[np.arange(6) * 0.01, 1 + np.arange(6) * 0.01, -1.2, 2.4]
    model = HDBSCAN(metric="haversine", min_samples=2).fit(np.c_[np.zeros(14), longitudes])
    assert model.labels_.tolist() == [0] * 6 + [1] * 6 + [-1] * 2
    core = model.core_distances_[12:]
    np.testing.assert_allclose(core, [1.2, 1.35], rtol=1e-12)
    assert model.assign_noise().tolist()[12:] == [0, 1]
    assert model.assign_noise(max_distance=core[0]).tolist()[12:] == [0, -1]
    assert model.assign_noise(max_distance=np.nextafter(core[0], 0)).tolist()[12:] == [-1, -1]


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_weighted_rows_count_as_often_for_new_ones(metric: str) -> None:
    X, new = rows_for(metric), rows_for(metric, 60, seed=1)
    weights = rng(2).integers(0, 4, len(X))
    weighted = HDBSCAN(metric=metric).fit(X, sample_weight=weights)
    repeated = HDBSCAN(metric=metric).fit(np.repeat(X, weights, axis=0))
    for of_weighted, of_repeated in zip(
        weighted.approximate_predict(new), repeated.approximate_predict(new), strict=True
    ):
        assert_same_bits(of_weighted, of_repeated, "new rows")
    counts = weights > 0
    labels, strengths = weighted.approximate_predict(X)
    np.testing.assert_array_equal(labels[counts], weighted.labels_[counts])
    assert_same_bits(strengths[counts], weighted.probabilities_[counts], "strengths")
    first = np.cumsum(weights) - weights
    vectors = weighted.all_points_membership_vectors()
    assert_same_bits(vectors[counts], repeated.all_points_membership_vectors()[first[counts]], "vectors")
    assert not vectors[~counts].any()
    np.testing.assert_array_equal(weighted.assign_noise()[counts], repeated.assign_noise()[first[counts]])


def test_precomputed() -> None:
    X, new = rows_for("manhattan"), rows_for("manhattan", 60, seed=1)
    distances = cdist(X, X, "cityblock")
    model = HDBSCAN(metric="precomputed").fit(distances)
    assert_predicts_its_own_rows(model, distances)
    by_rows = HDBSCAN(metric="manhattan").fit(X)
    np.testing.assert_array_equal(model.predict(cdist(new, X, "cityblock")) >= 0, by_rows.predict(new) >= 0)
    with pytest.raises(ValueError, match="X has 5 features, but HDBSCAN is expecting 120"):
        model.predict(new)
    with pytest.raises(ValueError, match=r"X holds -1.0 at \[0, 3\]: .* at least 0"):
        model.predict(np.where(np.arange(120) == 3, -1.0, distances[:1]))
    with pytest.raises(ValueError, match="give predict the lines of the matrix"):
        model.assign_noise()
    assert model.generate_prediction_data() is model


def test_a_new_row_that_nothing_connects_is_noise() -> None:
    """Two parts, joined at infinity: what is connected to neither leaves the root at once."""
    distances = np.full((12, 12), np.inf)
    for part in (slice(0, 6), slice(6, 12)):
        distances[part, part] = 1.0
    model = HDBSCAN(metric="precomputed", min_samples=3).fit(distances)
    assert model.labels_.tolist() == [0] * 6 + [1] * 6
    assert_predicts_its_own_rows(model, distances)
    alone = np.full((1, 12), np.inf)
    labels, strengths = model.approximate_predict(alone)
    assert (labels.tolist(), strengths.tolist()) == ([-1], [0.0])
    assert not np.isnan(model.membership_vector(alone)).any()
    assert not np.isnan(model.outlier_scores(alone)).any()


@pytest.mark.parametrize("metric", ["dice", "sokalsneath", "rogerstanimoto", "yule", "braycurtis"])
def test_a_row_of_zeros_is_at_distance_0_from_itself(metric: str) -> None:
    X = (rng(3).random((40, 4)) < 0.4).astype(float)
    X[(X == 0).all(axis=1)] = 1.0
    X[3] = 0.0
    model = HDBSCAN(metric=metric, min_cluster_size=3, min_samples=2).fit(X)
    labels, strengths = model.approximate_predict(X)
    assert_same_bits(labels, model.labels_, metric)
    assert_same_bits(strengths, model.probabilities_, metric)
    assert_same_bits(model.outlier_scores(X), model.outlier_scores_, metric)


def test_nan_euclidean_is_euclidean() -> None:
    X = rows_for("euclidean")
    X[7, 1] = np.nan
    model = HDBSCAN(metric="nan_euclidean").fit(X)
    expected = HDBSCAN().fit(X)
    assert_same_bits(model.core_distances_, expected.core_distances_, "core distances")
    assert_same_bits(model.probabilities_, expected.probabilities_, "probabilities")
    for row in range(len(X)):  # by itself, where a product of matrices would be rounded otherwise
        assert_same_bits(
            model.outlier_scores(X[row : row + 1]), expected.outlier_scores_[row : row + 1], str(row)
        )


def test_a_function_that_gives_no_distance_to_a_new_row() -> None:
    X = rows_for("euclidean")

    def along(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.abs(a - b).sum()) if max(a[0], b[0]) < 100 else float("nan")

    model = HDBSCAN(metric=along).fit(X)
    model.predict(X[:3])
    with pytest.raises(
        ValueError, match=r"the function given as metric gives nan between the finite rows 1 of"
    ):
        model.predict([X[0], np.full(5, 200.0)])

"""Fits for several numbers of neighbours from one search equal fits by themselves."""

from typing import Any

import numpy as np
import pytest
from conftest import assert_same_bits
from datasets import DATASETS, load

from mreach import HDBSCAN, sweep

VALUES = [5, 1, 2, 13, 8, 5]
EQUAL = (
    "labels_",
    "probabilities_",
    "core_distances_",
    "condensed_tree_",
    "cluster_persistence_",
    "outlier_scores_",
)
SIZED = [name for name in DATASETS if 13 <= np.isfinite(load(name)).all(axis=1).sum() <= 600]


def assert_equals_fits(estimator: HDBSCAN, X: Any, values: list[int], **fitted: Any) -> None:
    models = estimator.fit_many(X, values, **fitted)
    assert [model.min_samples for model in models] == values
    for value, model in zip(values, models, strict=True):
        alone = HDBSCAN(**{**estimator.get_params(), "min_samples": value}).fit(X, **fitted)
        for name in EQUAL:
            assert_same_bits(getattr(model, name), getattr(alone, name), f"{name} for {value}")
        weights, expected = (one.minimum_spanning_tree_["weight"] for one in (model, alone))
        assert_same_bits(weights, expected, f"weights for {value}")


@pytest.mark.parametrize("name", SIZED)
def test_data_sets(name: str) -> None:
    assert_equals_fits(HDBSCAN(backend="cpu", alpha=0.5), load(name), VALUES)
    assert_equals_fits(HDBSCAN(backend="cpu", cluster_selection_method="leaf"), load(name), VALUES)


def blobs() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(97, 16)) + np.repeat([[0.0], [5.0]], [50, 47], axis=0)


def count_searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the most neighbours of each search that is shared."""
    shared: list[int] = []
    whole = sweep._fit_shared

    def noting(models: Any, checked: Any, most: int, *others: Any) -> None:
        shared.append(checked[most].min_samples)
        whole(models, checked, most, *others)

    monkeypatch.setattr(sweep, "_fit_shared", noting)
    return shared


@pytest.mark.parametrize(
    ("parameters", "is_shared"),
    [
        ({}, True),
        ({"metric": "cosine"}, True),
        ({"metric": "correlation", "alpha": 0.7}, True),
        ({"metric": "haversine"}, True),
        ({"alpha": 2.0}, False),
        ({"metric": "manhattan"}, False),
        ({"metric": "canberra"}, False),
        ({"backend": "reference"}, False),
    ],
    ids=str,
)
def test_what_shares_a_search(
    parameters: dict[str, Any], is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = count_searches(monkeypatch)
    n_features = 2 if parameters.get("metric") == "haversine" else 4
    X = np.round(np.random.default_rng(0).normal(size=(150, n_features)), 1) / 4 + 0.05
    X[:75] /= 4
    X[20, 1] = np.nan
    assert_equals_fits(HDBSCAN(**{"backend": "cpu", **parameters}), X, VALUES)
    assert shared == [13] * is_shared


def test_more_neighbours_than_lists_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = count_searches(monkeypatch)
    X = blobs().repeat(4, axis=0)[:300]
    assert_equals_fits(HDBSCAN(backend="cpu"), X, [3, 256])
    assert_equals_fits(HDBSCAN(backend="cpu"), X, [3, 257])
    assert shared == [256]


def test_weights_and_centres(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = count_searches(monkeypatch)
    X = np.round(np.random.default_rng(0).normal(size=(150, 2)), 1)
    weights = np.random.default_rng(1).integers(0, 3, 150)
    assert_equals_fits(HDBSCAN(backend="cpu"), X, VALUES, sample_weight=weights)
    assert not shared
    (model,) = HDBSCAN(backend="cpu", store_centers="both", min_cluster_size=20).fit_many(X, [3])
    alone = HDBSCAN(backend="cpu", store_centers="both", min_cluster_size=20, min_samples=3).fit(X)
    assert_same_bits(model.centroids_, alone.centroids_, "centroids")
    assert_same_bits(model.medoids_, alone.medoids_, "medoids")
    assert shared == [3]


def test_models_are_whole() -> None:
    """They cut, predict and know their features as after a fit of their own."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X = pandas.DataFrame(blobs()[:, :2])
    X.columns = ["a", "b"]
    estimator = HDBSCAN(backend="cpu")
    models = estimator.fit_many(X, (2, 5))
    assert not hasattr(estimator, "labels_")
    for model in models:
        assert model.feature_names_in_.tolist() == ["a", "b"]
        np.testing.assert_array_equal(model.predict(X), model.labels_)
        np.testing.assert_array_equal(model.cut().labels_, model.labels_)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (5, "must be a sequence of integers, got 5; for one value use fit"),
        ("12", "must be a sequence of integers"),
        ([], "one integer or more, got"),
        ([2, None], "one integer or more, got"),
        ([2, 0], "min_samples must be an integer of at least 1, got 0"),
        ([2, 98], "n_samples=97 is fewer than min_samples=98"),
    ],
    ids=str,
)
def test_values_out_of_range(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HDBSCAN(backend="cpu").fit_many(blobs(), values)

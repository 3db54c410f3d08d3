"""Outlier scores, exemplars, centres and relative validity of a fit."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import joblib
import numpy as np
import pytest
import sklearn.cluster
from conftest import assert_same_bits
from datasets import DATASETS, blobs, load
from parameters import Parameters, combinations
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from mreach import HDBSCAN
from mreach.backends import reference_hierarchy, reference_scores
from mreach.backends.host_rows import SelectedRows
from mreach.centers import centroid, cluster_centers, lexicographic_order, medoid

pytestmark = pytest.mark.filterwarnings("ignore:.*allow_single_cluster")

CASES = [
    pytest.param(dataset, parameters, id=f"{dataset}-{parameters}")
    for dataset in DATASETS
    for parameters in combinations(dataset)
]

# Three rows 1 apart, twice; two more a little farther off; one in the middle of nowhere.
LINE = np.array([0.0, 1, 2, 4, 20, 21, 22, 26, 60])[:, np.newaxis]


def line_model(backend: str, **keywords: Any) -> HDBSCAN:
    return HDBSCAN(3, min_samples=2, backend=backend, **keywords).fit(LINE)


def three_blobs(seed: int) -> np.ndarray:
    r = np.random.default_rng(seed)
    tight = [r.normal(centre, 0.5, (40, 2)) for centre in ((0, 0), (6, 0), (0, 4))]
    return np.vstack([*tight, r.uniform(-4, 9, (30, 2))])


def finite_edges(model: HDBSCAN) -> tuple[np.ndarray, np.ndarray]:
    """Return the finite rows and the spanning tree in numbers of their own."""
    finite = np.flatnonzero(~np.isnan(model.core_distances_))
    edges = model.minimum_spanning_tree_.copy()
    for end in ("source", "target"):
        edges[end] = np.searchsorted(finite, edges[end])
    return finite, edges


# ---------------------------------------------------------------------------------------------------------
# Outlier scores
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dataset", "parameters"), CASES)
def test_outlier_scores_equal_the_definition(dataset, parameters, reference_fit):
    model = reference_fit(dataset, parameters)
    finite, edges = finite_edges(model)
    # As in a fit: no cluster is larger than all rows.
    naive = reference_scores.outlier_scores(edges, min(parameters.min_cluster_size, len(finite) + 1))
    assert_same_bits(model.outlier_scores_[finite], naive, "outlier_scores_")
    assert ((naive >= 0) & (naive <= 1)).all()


def test_outlier_scores_by_hand(any_backend: str) -> None:
    # Rows 0 to 2 and 4 to 6 leave their clusters at distance 1, row 3 at 2, row 7 at 4, row 8 the root at 34.
    expected = [0, 0, 0, 1 - 1 / 2, 0, 0, 0, 1 - 1 / 4, 1 - 1 / 34]
    assert line_model(any_backend).outlier_scores_.tolist() == expected


def test_outlier_scores_do_not_follow_the_selection(any_backend: str) -> None:
    expected = line_model(any_backend).outlier_scores_
    for keywords in ({"cluster_selection_method": "leaf"}, {"cluster_selection_epsilon": 30.0}):
        assert_same_bits(line_model(any_backend, **keywords).outlier_scores_, expected, str(keywords))


def test_outlier_scores_beside_piles_of_equal_rows(any_backend: str) -> None:
    """NaN."""
    r = np.random.default_rng(0)
    X = np.vstack([np.zeros((12, 2)), r.normal(2, 1, (20, 2)), np.full((12, 2), 9.0)])
    scores = HDBSCAN(backend=any_backend).fit(X).outlier_scores_
    assert np.isfinite(scores).all()
    assert ((scores >= 0) & (scores <= 1)).all()
    np.testing.assert_array_equal(scores[:12], 0.0)
    np.testing.assert_array_equal(scores[32:], 0.0)
    assert scores[12:32].max() > 0.5
    assert HDBSCAN(backend=any_backend).fit(np.zeros((9, 2))).outlier_scores_.tolist() == [0.0] * 9


def test_outlier_scores_use_the_whole_subtree(any_backend: str) -> None:
    """Wrong: the last lambda of the loose cluster alone, not of the tight ones in it."""
    X = load("nested_blobs")  # 3 x 40 rows in tight blobs, 120 in a loose one around them, 60 spread out
    n = len(X)
    model = HDBSCAN(10, backend=any_backend).fit(X)
    tree, scores = model.condensed_tree_, model.outlier_scores_
    rows = tree[tree["child"] < n]
    cluster = dict(zip(rows["child"].tolist(), rows["parent"].tolist(), strict=True))
    lambdas = dict(zip(rows["child"].tolist(), rows["lambda_val"].tolist(), strict=True))
    # The root holds everything: its rows are compared with the densest row of all.
    of_root = [row for row in range(n) if cluster[row] == n]
    assert len(of_root) > 20
    densest, own = max(lambdas.values()), max(lambdas[row] for row in of_root)
    assert densest > 4 * own
    assert scores[of_root].tolist() == [1 - lambdas[row] / densest for row in of_root]
    assert scores[of_root].min() > 0.75
    assert np.median(scores[:120]) < 0.5


def test_outlier_scores_of_rows_that_are_not_finite(any_backend: str) -> None:
    X = np.insert(LINE, [0, 4, 9], [[np.nan], [np.inf], [-np.inf]], axis=0)
    model = HDBSCAN(3, min_samples=2, backend=any_backend).fit(X)
    assert model.labels_[[0, 5, 11]].tolist() == [-3, -2, -2]
    np.testing.assert_array_equal(model.outlier_scores_[[0, 5, 11]], [np.nan, 1.0, 1.0])
    finite = np.isfinite(X[:, 0])
    assert_same_bits(model.outlier_scores_[finite], line_model(any_backend).outlier_scores_, "finite rows")
    assert [rows.tolist() for rows in model.exemplars_] == [[1, 2, 3], [6, 7, 8]]
    assert model.relative_validity_ == line_model(any_backend).relative_validity_


def test_one_row(any_backend: str) -> None:
    model = HDBSCAN(min_samples=1, store_centers="both", backend=any_backend).fit([[2.0, 1.0]])
    assert model.outlier_scores_.tolist() == [0.0]
    assert model.exemplars_ == []
    assert model.relative_validity_ == 0.0
    assert model.centroids_.shape == model.medoids_.shape == (0, 2)


# ---------------------------------------------------------------------------------------------------------
# Computed when asked for
# ---------------------------------------------------------------------------------------------------------


def test_scores_need_a_fit() -> None:
    for name in ("outlier_scores_", "exemplars_", "relative_validity_"):
        assert not hasattr(HDBSCAN(), name)
        with pytest.raises(NotFittedError, match="not fitted"):
            getattr(HDBSCAN(), name)


def test_scores_are_kept_and_belong_to_their_fit(any_backend: str) -> None:
    model = line_model(any_backend)
    first = model.outlier_scores_
    assert model.outlier_scores_ is first
    assert model.exemplars_ is model.exemplars_
    # The same trees with other labels, and another fit.
    other = copy.copy(model)
    other.labels_ = np.full(9, -1)
    assert other.exemplars_ == []
    assert len(model.exemplars_) == 2
    model.fit(2 * LINE[:4])
    assert len(model.outlier_scores_) == 4
    assert not hasattr(clone(model), "outlier_scores_")


@pytest.mark.parametrize("accessed", [False, True])
def test_scores_after_pickling(accessed: bool, any_backend: str, tmp_path: Any) -> None:
    model = line_model(any_backend, store_centers="both")
    size = len(pickle.dumps(model))
    expected = model.outlier_scores_ if accessed else line_model(any_backend).outlier_scores_
    assert len(pickle.dumps(model)) == size  # what can be computed again is not stored
    joblib.dump(model, tmp_path / "model")
    for loaded in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model"), copy.deepcopy(model)):
        assert_same_bits(loaded.outlier_scores_, expected, "outlier_scores_")
        assert [rows.tolist() for rows in loaded.exemplars_] == [[0, 1, 2], [4, 5, 6]]
        assert_same_bits(loaded.centroids_, model.centroids_, "centroids_")


# ---------------------------------------------------------------------------------------------------------
# Exemplars
# ---------------------------------------------------------------------------------------------------------


def naive_exemplars(edges: np.ndarray, data: np.ndarray, keywords: dict[str, Any]) -> list[list[int]]:
    """Exemplars by going down from each selected cluster."""
    n = len(edges) + 1
    keywords = {name: value for name, value in keywords.items() if name not in ("min_samples", "alpha")}
    cut = reference_hierarchy.cut(edges, data=data, **keywords)
    clusters = reference_hierarchy.condense(
        reference_hierarchy.hierarchy(edges), keywords["min_cluster_size"]
    )
    found = []
    for number in cut.selected:
        subtree = [clusters[number - n]]
        rows: list[int] = []
        for cluster in subtree:  # grows while it is walked
            subtree += cluster.children
            if not cluster.children:
                largest = max(lam for _, lam in cluster.leaving_rows)
                rows += [row for row, lam in cluster.leaving_rows if lam == largest]
        # Only where the root is selected can a row below a selected cluster be noise.
        found.append(sorted(row for row in rows if number > n or cut.labels[row] >= 0))
    return found


@pytest.mark.parametrize("dataset", [name for name in DATASETS if len(load(name)) <= 400])
def test_exemplars_equal_the_definition(dataset, reference_fit):
    for parameters in combinations(dataset):
        model = reference_fit(dataset, parameters)
        finite, edges = finite_edges(model)
        X = load(dataset)
        expected = naive_exemplars(edges, X[finite], parameters.for_data(X))
        assert [rows.tolist() for rows in model.exemplars_] == [finite[rows].tolist() for rows in expected]
        for label, rows in enumerate(model.exemplars_):
            assert len(rows) > 0
            assert (model.labels_[rows] == label).all()
            assert (model.probabilities_[rows] == 1).all()


def test_exemplars_by_hand(any_backend: str) -> None:
    model = line_model(any_backend)
    assert all(rows.dtype == np.int64 for rows in model.exemplars_)
    assert [rows.tolist() for rows in model.exemplars_] == [[0, 1, 2], [4, 5, 6]]
    # As one cluster they come from both of its leaves.
    model = line_model(any_backend, cluster_selection_epsilon=30.0, allow_single_cluster=True)
    assert [rows.tolist() for rows in model.exemplars_] == [[0, 1, 2, 4, 5, 6]]
    assert HDBSCAN(backend=any_backend).fit(LINE).exemplars_ == []  # all noise


# ---------------------------------------------------------------------------------------------------------
# Centres
# ---------------------------------------------------------------------------------------------------------


def test_centers_by_hand(any_backend: str) -> None:
    model = line_model(any_backend, store_centers="both")
    assert model.labels_.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, -1]
    # Weights 1, 1, 1 and 1/2 (1/4 in the other cluster).
    np.testing.assert_allclose(model.centroids_, [[(0 + 1 + 2 + 4 / 2) / 3.5], [(63 + 26 / 4) / 3.25]])
    assert model.medoids_.tolist() == [[1.0], [21.0]]
    assert model.medoids_.dtype == model.centroids_.dtype == np.float64


@pytest.mark.parametrize("store_centers", [None, "centroid", "medoid", "both"])
def test_only_the_centers_asked_for(store_centers: str | None, any_backend: str) -> None:
    model = line_model(any_backend, store_centers="both")
    model.set_params(store_centers=store_centers).fit(LINE)
    assert hasattr(model, "centroids_") == (store_centers in ("centroid", "both"))
    assert hasattr(model, "medoids_") == (store_centers in ("medoid", "both"))


@pytest.mark.parametrize("seed", [0, 2, 8])
def test_centers_agree_with_scikit_learn(seed: int, any_backend: str) -> None:
    X = three_blobs(seed)
    model = HDBSCAN(store_centers="both", backend=any_backend).fit(X)
    other = sklearn.cluster.HDBSCAN(store_centers="both", copy=True).fit(X)
    np.testing.assert_allclose(model.probabilities_, other.probabilities_, rtol=1e-12)
    # Their labels are numbered otherwise.
    theirs = [int(other.labels_[model.labels_ == label][0]) for label in range(3)]
    assert [(other.labels_ == one).sum() for one in theirs] == np.bincount(model.labels_ + 1)[1:].tolist()
    np.testing.assert_allclose(model.centroids_, other.centroids_[theirs], rtol=1e-12)
    np.testing.assert_array_equal(model.medoids_, other.medoids_[theirs])


def test_centers_with_rows_that_are_not_finite(any_backend: str) -> None:
    """IndexError."""
    X = np.insert(LINE, [0, 4], [[np.nan], [np.inf]], axis=0)
    model = HDBSCAN(3, min_samples=2, store_centers="both", backend=any_backend).fit(X)
    expected = line_model(any_backend, store_centers="both")
    assert_same_bits(model.centroids_, expected.centroids_, "centroids_")
    assert_same_bits(model.medoids_, expected.medoids_, "medoids_")


@pytest.mark.parametrize("dataset", [name for name in DATASETS if len(load(name)) <= 1000])
def test_shuffled_rows_give_the_same_scores_and_centers(dataset, backend):
    X = load(dataset)
    keywords = {"store_centers": "both", "backend": backend, **Parameters().for_data(X)}
    order = np.random.default_rng(3).permutation(len(X))
    model, again = HDBSCAN(**keywords).fit(X), HDBSCAN(**keywords).fit(X[order])
    assert_same_bits(again.outlier_scores_, model.outlier_scores_[order], "outlier_scores_")
    exemplars = [np.sort(order[rows]).tolist() for rows in again.exemplars_]
    assert exemplars == [rows.tolist() for rows in model.exemplars_]
    for name in ("centroids_", "medoids_"):
        assert_same_bits(getattr(again, name), getattr(model, name), name)
        assert np.isfinite(getattr(model, name)).all()
        assert getattr(model, name).shape == (model.labels_.max() + 1, X.shape[1])


def test_centers_of_rows_that_are_picked_when_asked_for() -> None:
    """As backend "cuda" holds the finite rows among others on the host."""
    r = np.random.default_rng(2)
    X, rows = r.normal(size=(60, 3)), np.arange(0, 60, 2)
    labels, probabilities = r.integers(-1, 2, 30), r.random(30)
    picked, plain = (
        cluster_centers(data, labels, probabilities, "both") for data in (SelectedRows(X, rows), X[rows])
    )
    for name in ("centroids_", "medoids_"):
        assert_same_bits(picked[name], plain[name], name)


def test_medoids_are_rows_and_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    r = np.random.default_rng(4)
    rows, weights = r.normal(size=(101, 5)), r.random(101)
    distances = np.sqrt(((rows[:, np.newaxis] - rows) ** 2).sum(axis=2))
    expected = int((distances * weights).sum(axis=1).argmin())
    assert medoid(rows, weights) == expected
    monkeypatch.setattr("mreach.centers.TILE_BYTES", 8 * 101 * 7)
    assert medoid(rows, weights) == expected
    np.testing.assert_allclose(centroid(rows, weights), np.average(rows, axis=0, weights=weights))


@pytest.mark.parametrize("values", [1, 2, 3, 50, 10**9])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (40, 1), (200, 2), (200, 9), (200, 23)])
def test_lexicographic_order(shape: tuple[int, int], values: int) -> None:
    rows = np.random.default_rng(values).integers(0, values, shape).astype(float)
    assert rows[lexicographic_order(rows)].tolist() == sorted(rows.tolist())


def test_centroids_of_huge_numbers() -> None:
    rows = np.array([[1.5e308, -1.5e308], [1.5e308, -1.5e308]])
    np.testing.assert_array_equal(centroid(rows, np.ones(2)), rows[0])
    wide = np.array([[-1.5e308, 5e-324], [1.5e308, 5e-324], [1.5e308, 5e-324]])
    np.testing.assert_allclose(centroid(wide, np.ones(3)), [5e307, 5e-324], rtol=1e-15)
    many = np.linspace(0, 1.7e308, 101)[:, np.newaxis]  # their sum overflows
    np.testing.assert_allclose(centroid(many, np.ones(101)), [8.5e307], rtol=1e-14)


def test_centres_of_huge_rows_are_finite(any_backend: str) -> None:
    X = np.array([[1.0, 2.0, 4.0], [1.1, 2.0, 4.0], [1.0, 2.1, 4.0], [1.0, 2.0, 4.2]]) * 4e307
    X = np.vstack([X, X - 1.7e308])  # correlation takes no heed of what is added
    keywords: dict[str, Any] = {
        "metric": "correlation",
        "allow_single_cluster": True,
        "store_centers": "both",
    }
    model = HDBSCAN(3, 2, cluster_selection_epsilon=3.0, backend=any_backend, **keywords).fit(X)
    assert model.labels_.tolist() == [0] * 8
    assert ((model.centroids_ > X.min(axis=0)) & (model.centroids_ < X.max(axis=0))).all()
    assert np.isfinite(model.medoids_).all()


# ---------------------------------------------------------------------------------------------------------
# Relative validity
# ---------------------------------------------------------------------------------------------------------

# What hdbscan 0.8.44 gives for min_cluster_size=5, min_samples=4 (it does not count the row itself).
RELATIVE_VALIDITY = {1: 0.26226354243009525, 2: 0.3416235296547227}
RELATIVE_VALIDITY_OF_ONE = {3: 0.18693218069405546, 4: 0.36933485094437835}


@pytest.mark.parametrize("seed", RELATIVE_VALIDITY)
def test_relative_validity_is_that_of_hdbscan(seed: int, any_backend: str) -> None:
    model = HDBSCAN(backend=any_backend).fit(three_blobs(seed))
    assert model.relative_validity_ == pytest.approx(RELATIVE_VALIDITY[seed], rel=1e-12)


@pytest.mark.parametrize("seed", RELATIVE_VALIDITY_OF_ONE)
def test_relative_validity_of_one_cluster_is_that_of_hdbscan(seed: int, any_backend: str) -> None:
    r = np.random.default_rng(seed)
    X = np.vstack([r.normal(size=(80, 2)), r.uniform(-6, 6, (20, 2))])
    model = HDBSCAN(allow_single_cluster=True, backend=any_backend).fit(X)
    assert model.labels_.max() == 0
    assert model.relative_validity_ == pytest.approx(RELATIVE_VALIDITY_OF_ONE[seed], rel=1e-12)


def test_relative_validity_by_hand(any_backend: str) -> None:
    # Heaviest edges inside 2 and 4, the edge between the clusters 16, 9 rows of which one is noise.
    expected = (4 * (16 - 2) / 16 + 4 * (16 - 4) / 16) / 9
    assert line_model(any_backend).relative_validity_ == pytest.approx(expected, rel=1e-15)
    assert isinstance(line_model(any_backend).relative_validity_, float)


@pytest.mark.parametrize("dataset", DATASETS)
def test_relative_validity_is_a_number(dataset, reference_fit):
    for parameters in combinations(dataset):
        assert -1 <= reference_fit(dataset, parameters).relative_validity_ <= 1


def test_scores_on_every_kind_of_number(any_backend: str) -> None:
    X = blobs(np.random.default_rng(1), 120, 3).astype(np.float32)
    one, other = (
        HDBSCAN(store_centers="both", backend=any_backend).fit(data) for data in (X, X.astype(np.float64))
    )
    for name in ("outlier_scores_", "centroids_", "medoids_"):
        assert_same_bits(getattr(one, name), getattr(other, name), name)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_centres_of_single_clusters_by_the_names_of_hdbscan(metric: str) -> None:
    X = np.random.default_rng(0).normal(size=(120, 3)) + np.repeat([[6.0, 0, 0], [0, 6.0, 0]], 60, axis=0)
    X[4] = np.nan
    weights = np.random.default_rng(1).integers(0, 3, 120)
    for given in ({}, {"sample_weight": weights}):
        model = HDBSCAN(metric=metric, store_centers="both").fit(X, **given)
        assert len(model.centroids_)
        for label in range(len(model.centroids_)):
            assert_same_bits(model.weighted_cluster_centroid(label), model.centroids_[label], "centroid")
            assert_same_bits(model.weighted_cluster_medoid(label), model.medoids_[label], "medoid")
        with pytest.raises(ValueError, match=f"the labels are 0 to {len(model.centroids_) - 1}"):
            model.weighted_cluster_centroid(-1)
        with pytest.raises(ValueError, match="cluster_id=99 is no label"):
            model.weighted_cluster_medoid(99)


def test_no_centres_without_rows() -> None:
    model = HDBSCAN(metric="precomputed").fit(np.ones((12, 12)) - np.eye(12))
    with pytest.raises(ValueError, match="no cluster was found"):
        model.weighted_cluster_centroid(0)
    model = HDBSCAN(metric="precomputed", allow_single_cluster=True).fit(np.ones((12, 12)) - np.eye(12))
    with pytest.raises(ValueError, match="exemplars_ names typical rows"):
        model.weighted_cluster_medoid(0)


def test_centroids_of_places_lie_among_them() -> None:
    """Longitudes on both sides of 0, written from 0 to a full turn: their plain mean is on the other side."""
    degrees = np.random.default_rng(0).normal(0, 0.3, (40, 2)) + np.repeat(
        [[10.0, 0.0], [60.0, 90.0]], 20, axis=0
    )
    for turn in (0.0, 360.0):
        X = np.radians(np.c_[degrees[:, 0], degrees[:, 1] % 360.0 if turn else degrees[:, 1]])
        model = HDBSCAN(metric="haversine", store_centers="both", min_samples=3).fit(X)
        assert model.labels_.max() == 1
        for label in (0, 1):
            rows = degrees[model.labels_ == label]
            latitude, longitude = np.degrees(model.centroids_[label])
            assert abs(latitude - rows[:, 0].mean()) < 0.05
            assert abs((longitude - rows[:, 1].mean() + 180) % 360 - 180) < 0.05
            assert_same_bits(model.weighted_cluster_centroid(label), model.centroids_[label], "centroid")

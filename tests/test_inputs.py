"""Data frames, sparse features, memory maps, and rows that count several times."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn
from conftest import FITTED_ATTRIBUTES, assert_same_bits
from scipy.spatial.distance import pdist, squareform
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mreach import HDBSCAN
from mreach.backends import cpu

RNG = np.random.default_rng(0)
X = np.vstack([RNG.normal(0, 1, (30, 3)), RNG.normal(8, 1, (30, 3)), [[30, 0, 30]]]).round(1)
WEIGHTS = RNG.choice([0, 1, 1, 2, 5, 40], len(X))


def assert_same_fit(actual: HDBSCAN, expected: HDBSCAN) -> None:
    for name in FITTED_ATTRIBUTES:
        assert_same_bits(getattr(actual, name), getattr(expected, name), name)


# ---------------------------------------------------------------------------------------------------------
# Arrays of other kinds
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, bool])
@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array", "lil_array", "dok_array"])
def test_sparse_features(kind: str, dtype: type) -> None:
    dense = np.where(X > 7.5, X, 0).astype(dtype)
    sparse = getattr(scipy.sparse, kind)(dense)
    model = HDBSCAN(backend="cpu").fit(sparse)
    assert_same_fit(model, HDBSCAN(backend="reference").fit(dense))
    assert_same_bits(sparse.toarray(), dense, "input")
    assert_same_fit(HDBSCAN(metric="l1").fit(sparse), HDBSCAN(metric="l1").fit(dense))


def test_sparse_features_beyond_the_memory() -> None:
    wide = scipy.sparse.csr_array((10**6, 10**7))
    with pytest.raises(MemoryError, match=r"1000000 x 10000000 numbers: \d+\.\d GB"):
        HDBSCAN().fit(wide)


def test_sparse_features_with_missing_values() -> None:
    dense = X.copy()
    dense[3, 1] = np.nan
    model = HDBSCAN(backend="reference").fit(scipy.sparse.csr_array(dense))
    assert_same_fit(model, HDBSCAN(backend="reference").fit(dense))


def test_pandas_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abc")).astype({"b": "float32"})
    model = HDBSCAN().fit(frame)
    assert model.feature_names_in_.tolist() == list("abc")
    assert_same_fit(model, HDBSCAN().fit(frame.to_numpy()))
    matrix = pandas.DataFrame(squareform(pdist(X)))
    model = HDBSCAN(metric="precomputed").fit(matrix)
    assert_same_fit(model, HDBSCAN(metric="precomputed").fit(matrix.to_numpy()))
    weights = pandas.Series(WEIGHTS, index=frame.index[::-1])
    assert_same_fit(
        HDBSCAN().fit(frame, sample_weight=weights), HDBSCAN().fit(frame.to_numpy(), sample_weight=WEIGHTS)
    )


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars")
    model = HDBSCAN().fit(polars.DataFrame(X, schema=list("abc")))
    assert model.feature_names_in_.tolist() == list("abc")
    assert_same_fit(model, HDBSCAN().fit(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_maps_are_not_copied(dtype: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "rows.npy", X.astype(dtype))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    opened = []
    open_points = cpu.open_points

    def noting(rows: np.ndarray, **keywords: Any) -> Any:
        opened.append(rows)
        return open_points(rows, **keywords)

    monkeypatch.setattr(cpu, "open_points", noting)
    model = HDBSCAN(backend="cpu").fit(mapped)
    assert np.shares_memory(opened[0], mapped)
    assert_same_fit(model, HDBSCAN(backend="reference").fit(X.astype(dtype)))


def test_a_memory_mapped_matrix(tmp_path: Path) -> None:
    np.save(tmp_path / "matrix.npy", squareform(pdist(X)))
    mapped = np.load(tmp_path / "matrix.npy", mmap_mode="r")
    model = HDBSCAN(metric="precomputed").fit(mapped)
    assert_same_fit(model, HDBSCAN(metric="precomputed").fit(np.array(mapped)))


# ---------------------------------------------------------------------------------------------------------
# Weights
# ---------------------------------------------------------------------------------------------------------


def first_copies(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of positive weight and the place of the first copy of each."""
    kept = np.flatnonzero(weights)
    return kept, np.cumsum(weights[kept]) - weights[kept]


def assert_acts_as_repeated(model: HDBSCAN, repeated: HDBSCAN, weights: np.ndarray) -> None:
    kept, first = first_copies(weights)
    for name in ("labels_", "probabilities_", "core_distances_", "outlier_scores_"):
        assert_same_bits(getattr(model, name)[kept], getattr(repeated, name)[first], name)
    assert_same_bits(model.cluster_persistence_, repeated.cluster_persistence_, "persistence")
    left_out = np.flatnonzero(weights == 0)
    assert (model.labels_[left_out] == -1).all()
    assert (model.probabilities_[left_out] == 0).all()
    assert np.isnan(model.core_distances_[left_out]).all()
    # The condensed tree: the same records, but one for all copies of a row.
    n, n_points = len(weights), int(weights.sum())
    theirs = repeated.condensed_tree_
    is_point = theirs["child"] < n_points
    theirs = theirs[~is_point | np.isin(theirs["child"], first)]
    is_point = theirs["child"] < n_points
    place = np.searchsorted(first, theirs["child"][is_point])
    expected = theirs.copy()
    expected["child"][is_point] = kept[place]
    expected["child_size"][is_point] = weights[kept][place]
    expected["child"][~is_point] += n - n_points
    expected["parent"] += n - n_points
    assert_same_bits(model.condensed_tree_, expected, "condensed tree")
    rows = [np.searchsorted(first, np.intersect1d(one, first)) for one in repeated.exemplars_]
    assert [one.tolist() for one in model.exemplars_] == [kept[one].tolist() for one in rows]


@pytest.mark.parametrize("min_samples", [1, 3, 12])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "precomputed"])
def test_a_weight_acts_as_equal_rows(metric: str, backend: str, min_samples: int) -> None:
    if metric == "precomputed":
        given = squareform(pdist(X))
        order = np.repeat(np.arange(len(X)), WEIGHTS)
        repeated_data = given[np.ix_(order, order)]
    else:
        given, repeated_data = X, np.repeat(X, WEIGHTS, axis=0)
    model = HDBSCAN(min_cluster_size=20, min_samples=min_samples, metric=metric, backend=backend)
    repeated = sklearn.base.clone(model).fit(repeated_data)
    model.fit(given, sample_weight=WEIGHTS)
    assert_acts_as_repeated(model, repeated, WEIGHTS)
    tree = model.minimum_spanning_tree_
    assert len(tree) == np.count_nonzero(WEIGHTS) - 1
    assert set(np.unique(np.r_[tree["source"], tree["target"]])) == set(np.flatnonzero(WEIGHTS))
    assert model.single_linkage_tree_.shape == (len(X) - 1, 4)
    for size in (2, 50):
        for parameters in ({"allow_single_cluster": True}, {"cluster_selection_method": "leaf"}):
            cuts = [one.cut(min_cluster_size=size, **parameters) for one in (model, repeated)]
            assert_acts_as_repeated(*cuts, WEIGHTS)
    kept, first = first_copies(WEIGHTS)
    for distance in (0.3, 1.0, 20.0):
        for size in (1, 30):
            labels = [one.dbscan_clustering(distance, size) for one in (model, repeated)]
            assert_same_bits(labels[0][kept], labels[1][first], "dbscan")


def test_the_validity_counts_weights() -> None:
    data, weights = np.random.default_rng(5).normal(size=(60, 2)), np.tile([1, 2, 3], 20)
    data[30:] += 9
    model = HDBSCAN(min_samples=5).fit(data, sample_weight=weights)
    repeated = HDBSCAN(min_samples=5).fit(np.repeat(data, weights, axis=0))
    assert model.relative_validity_ == pytest.approx(repeated.relative_validity_, rel=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "seuclidean"])
def test_centres_count_weights(metric: str) -> None:
    model = HDBSCAN(metric=metric, min_samples=3, store_centers="both", backend="reference")
    data = X + 40
    repeated = sklearn.base.clone(model).fit(np.repeat(data, WEIGHTS, axis=0))
    model.fit(data, sample_weight=WEIGHTS)
    for name in ("centroids_", "medoids_"):
        assert_same_bits(getattr(model, name), getattr(repeated, name), name)


def test_weights_beside_rows_that_are_not_finite() -> None:
    data = np.vstack([X, [[np.nan, 0, 0], [np.inf, 0, 0], [np.nan, 0, 0]]])
    weights = np.r_[WEIGHTS, [3, 2, 0]]
    model = HDBSCAN(min_cluster_size=20, backend="reference").fit(data, sample_weight=weights)
    alone = HDBSCAN(min_cluster_size=20, backend="reference").fit(X, sample_weight=WEIGHTS)
    assert model.labels_[-3:].tolist() == [-3, -2, -3]
    assert_same_bits(model.labels_[:-3], alone.labels_, "labels")
    assert_same_bits(model.minimum_spanning_tree_, alone.minimum_spanning_tree_, "tree")
    assert_same_bits(model.cut(min_cluster_size=5).labels_[:-3], alone.cut(min_cluster_size=5).labels_, "cut")


def test_weights_of_a_graph_and_a_condensed_matrix() -> None:
    dense = squareform(pdist(X))
    expected = HDBSCAN(metric="precomputed", min_samples=6).fit(dense, sample_weight=WEIGHTS)
    row, column = np.nonzero(~np.eye(len(X), dtype=bool))
    graph = scipy.sparse.coo_array((dense[row, column], (row, column)), shape=dense.shape)
    for given in (pdist(X), graph):
        for backend in ("cpu", "reference"):
            model = HDBSCAN(metric="precomputed", min_samples=6, backend=backend)
            assert_same_fit(model.fit(given, sample_weight=WEIGHTS), expected)


def test_weights_of_one_change_nothing() -> None:
    for weights in (np.ones(len(X)), [1] * len(X), 1, np.ones(len(X), bool)):
        assert_same_fit(HDBSCAN().fit(X, sample_weight=weights), HDBSCAN().fit(X))


def test_one_row_that_counts_often() -> None:
    model = HDBSCAN(min_cluster_size=3, allow_single_cluster=True).fit([[1.0, 2.0]], sample_weight=[7])
    repeated = HDBSCAN(min_cluster_size=3, allow_single_cluster=True).fit(np.repeat([[1.0, 2.0]], 7, axis=0))
    assert model.labels_.tolist() == repeated.labels_[:1].tolist()
    assert model.minimum_spanning_tree_.shape == (0,)


REFUSED = [
    (np.full(len(X), 0.5), ValueError, "sample_weight[0] is"),
    (np.r_[np.ones(len(X) - 1), -1], ValueError, "give whole numbers of at least 0"),
    (np.r_[np.ones(len(X) - 1), np.nan], ValueError, "give whole numbers of at least 0"),
    (np.ones(3), ValueError, "sample_weight.shape == (3,), expected (61,)"),
    (np.ones((len(X), 2)), ValueError, "sample_weight.shape == (61, 2)"),
    (np.full(len(X), "a"), ValueError, "sample_weight must hold numbers"),
    (np.zeros(len(X)), ValueError, "every sample_weight is zero"),
    (np.arange(61) < 3, ValueError, "n_samples=61 which count as 3 is fewer than min_samples=5"),
    (np.full(len(X), 1e15), MemoryError, "adds up to"),
    (np.ma.masked_equal(np.arange(61), 3), ValueError, "sample_weight.filled(0) leaves out the rows masked"),
]


@pytest.mark.parametrize(("weights", "kind", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(weights: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        HDBSCAN().fit(X, sample_weight=weights)


def test_metadata_routing() -> None:
    expected = HDBSCAN(min_samples=3).fit(StandardScaler().fit_transform(X), sample_weight=WEIGHTS)
    with sklearn.config_context(enable_metadata_routing=True):
        model = HDBSCAN(min_samples=3).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, model).fit(X, sample_weight=WEIGHTS)
    assert_same_fit(pipeline[-1], expected)

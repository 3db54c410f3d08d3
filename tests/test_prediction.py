"""New rows in the hierarchy of a fit, and membership vectors."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from conftest import assert_same_bits
from datasets import load
from parameters import Parameters, combinations
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import mreach
from mreach import HDBSCAN, prediction
from mreach.backends import reference, reference_prediction
from mreach.backends.host_rows import row_dtype
from mreach.prediction import membership, search

pytestmark = pytest.mark.filterwarnings("ignore:.*allow_single_cluster")

SMALL = (
    "one_row",
    "two_equal_rows",
    "three_rows_1d",
    "blobs_63_1d",
    "blobs_128_3d",
    "rounded_normal",
    "piles_of_equal_rows",
    "two_piles_and_a_blob",
    "all_equal",
    "signed_zeros",
    "line_even",
    "lattice_20x20",
    "lattice_3d",
    "scale_1e_minus_160",
    "scale_1e_minus_162",
    "mixed_scales",
    "growing_gaps",
    "growing_groups",
    "nested_blobs",
    "type_bool",
    "type_int8",
    "type_longdouble",
    "non_finite_rows",
)

FITTED = [
    pytest.param(dataset, parameters, id=f"{dataset}-{parameters}")
    for dataset in SMALL
    for parameters in combinations(dataset)[:4]
]


def finite_rows(X: Any) -> np.ndarray:
    """Return the finite rows as a backend holds them."""
    X = np.asarray(X)
    X = X.astype(row_dtype(X.dtype))
    return X[np.isfinite(X).all(axis=1)]


def new_rows(X: Any, seed: int) -> np.ndarray:
    """Rows of the fit, rows half way between two, a little beside one, and next to one by one bit."""
    r = np.random.default_rng(seed)
    X = finite_rows(X).astype(np.float64)
    one, other = r.integers(0, len(X), (2, 12))
    beside = r.normal(size=(12, X.shape[1])) * r.choice([0.3, 0.01, 1e-4], (12, 1)) * np.ptp(X, axis=0).max()
    return np.vstack([X[one[:4]], (X[one] + X[other]) / 2, X[other] + beside, np.nextafter(X[one[:4]], 9)])


def adjacent_lattice(seed: int) -> np.ndarray:
    """Groups of three rows on a lattice, 1.875 apart but for a bit or a few: births at adjacent heights."""
    r = np.random.default_rng(seed)
    places = np.stack(np.indices((6, 6)), -1).reshape(-1, 2) * [2.375, 1.875]
    groups = np.c_[places, r.integers(0, 20, len(places)) * 1e-8]
    return r.permutation((groups[:, np.newaxis] + np.outer([0.0, 0.25, 0.5], [1, 0, 0])).reshape(-1, 3))


def four_blobs() -> np.ndarray:
    r = np.random.default_rng(0)
    centres = np.array([(0, 0), (0, 9), (9, 0), (9, 9)])
    return np.repeat(centres, 40, axis=0) + r.normal(0, 0.8, (160, 2))


def definition(model: HDBSCAN, X: Any, X_new: np.ndarray) -> reference_prediction.Prediction:
    """Return what the naive code says of new rows, from the tree of a fit."""
    given = model.get_params()
    data = finite_rows(X)
    n = len(data)
    finite = ~np.isnan(model.core_distances_)
    edges = model.minimum_spanning_tree_.copy()
    for end in ("source", "target"):
        edges[end] = np.searchsorted(np.flatnonzero(finite), edges[end])
    with np.errstate(all="ignore"):
        nearest = reference.nearest_rows(
            data,
            X_new,
            core_distances=model.core_distances_[finite],
            alpha=given["alpha"],
            min_samples=given["min_samples"] or given["min_cluster_size"],
        )
    limit = given["max_cluster_size"]
    return reference_prediction.predict(
        edges,
        nearest,
        data=data,
        min_cluster_size=min(given["min_cluster_size"], n + 1),
        max_cluster_size=None if limit is None else min(limit, n),
        cluster_selection_method=given["cluster_selection_method"],
        cluster_selection_epsilon=given["cluster_selection_epsilon"],
        allow_single_cluster=given["allow_single_cluster"],
    )


def assert_training_rows_keep_their_places(model: HDBSCAN, X: Any) -> None:
    labels, strengths = model.approximate_predict(X)
    assert_same_bits(labels, model.labels_, "labels")
    assert_same_bits(strengths, model.probabilities_, "strengths")
    assert_same_bits(model.outlier_scores(X), model.outlier_scores_, "outlier scores")
    assert_same_bits(model.membership_vector(X), model.all_points_membership_vectors(), "vectors")


def assert_sound_vectors(model: HDBSCAN) -> None:
    vectors = model.all_points_membership_vectors()
    labels = model.labels_
    assert vectors.shape == (len(labels), len(model.cluster_persistence_))
    assert np.isnan(vectors[labels == -3]).all()
    assert (vectors[labels == -2] == 0).all()
    finite = vectors[labels >= -1]
    assert ((finite >= 0) & (finite <= 1)).all()
    for order in (finite, finite[:, ::-1], np.sort(finite, axis=1)):  # whatever the order of the terms
        assert (np.cumsum(order, axis=1) <= 1).all()
    clustered = (labels >= 0) & (model.probabilities_ > 0)
    own = vectors[clustered, labels[clustered]].copy()
    rounding = 1e-15 * (vectors.shape[1] + 1)
    np.testing.assert_allclose(vectors[clustered].sum(axis=1), model.probabilities_[clustered], rtol=rounding)
    vectors[clustered, labels[clustered]] = -1.0
    assert (own > 0).all()
    if vectors.shape[1] > 1:
        assert (vectors[clustered].max(axis=1) <= own / 2).all()


# ---------------------------------------------------------------------------------------------------------
# Against the fit, and against the definition
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dataset", "parameters"), FITTED)
def test_rows_of_the_fit_keep_their_places(
    dataset: str, parameters: Parameters, any_backend: str, reference_fit: Callable[..., HDBSCAN]
) -> None:
    X = load(dataset)
    if any_backend == "reference":
        model = reference_fit(dataset, parameters)
    else:
        model = HDBSCAN(backend=any_backend, **parameters.for_data(X)).fit(X)
    assert_training_rows_keep_their_places(model, X)
    assert_sound_vectors(model)


@pytest.mark.parametrize("dataset", [name for name in SMALL if name != "lattice_3d"])
def test_new_rows_equal_the_definition(dataset: str, any_backend: str) -> None:
    X = load(dataset)
    for seed, parameters in enumerate(combinations(dataset)[:2]):
        model = HDBSCAN(backend=any_backend, **parameters.for_data(X)).fit(X)
        new = new_rows(X, seed)
        if np.asarray(X).dtype == np.longdouble:
            new = new[4:]  # the definition is asked about what float64 holds
        expected = definition(model, X, new)
        labels, strengths = model.approximate_predict(new)
        assert_same_bits(labels, expected.labels, "labels")
        assert_same_bits(strengths, expected.strengths, "strengths")
        assert_same_bits(model.predict(new), expected.labels, "predict")
        assert_same_bits(model.outlier_scores(new), expected.outlier_scores, "outlier scores")
        assert_same_bits(model.membership_vector(new), expected.vectors, "vectors")


@pytest.mark.parametrize("dataset", ["blobs_128_3d", "rounded_normal", "non_finite_rows"])
def test_a_cut_predicts_as_a_fit(dataset: str, any_backend: str) -> None:
    X = load(dataset)
    new = new_rows(X, 5)
    model = HDBSCAN(9, 3, backend=any_backend).fit(X)
    for arguments in ({"min_cluster_size": 4}, {"cluster_selection_method": "leaf", "max_cluster_size": 60}):
        cut = model.cut(**arguments)
        assert_training_rows_keep_their_places(cut, X)
        fit = HDBSCAN(**cut.get_params()).fit(X)
        for one, other in zip(cut.approximate_predict(new), fit.approximate_predict(new), strict=True):
            assert_same_bits(one, other, "prediction")
        assert_same_bits(cut.membership_vector(new), fit.membership_vector(new), "vectors")


def test_the_order_of_rows_changes_nothing(any_backend: str) -> None:
    X = load("rounded_normal")
    new = np.vstack([new_rows(X, 1), [[np.nan, 0], [0, np.inf]]])
    r = np.random.default_rng(0)
    order, new_order = r.permutation(len(X)), r.permutation(len(new))
    one = HDBSCAN(4, 3, backend=any_backend).fit(X)
    other = HDBSCAN(4, 3, backend=any_backend).fit(X[order])
    assert len(one.cluster_persistence_) > 3
    for name in ("predict", "outlier_scores", "membership_vector"):
        expected = getattr(one, name)(new)
        assert_same_bits(getattr(other, name)(new[new_order]), expected[new_order], name)
        alone = np.concatenate([getattr(one, name)(row[np.newaxis]) for row in new])
        assert_same_bits(alone, expected, f"{name}, row by row")


def test_types_and_searches_in_parts(any_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types are widened exactly, in either direction; the number of rows searched at a time is no matter."""
    X = np.round(load("blobs_128_3d"), 1).astype(np.float32)
    new = np.round(new_rows(X, 2), 2).astype(np.float32)
    fits = [HDBSCAN(4, backend=any_backend).fit(X.astype(dtype)) for dtype in (np.float32, np.float64)]
    expected = fits[1].membership_vector(new.astype(np.float64))
    assert expected.shape[1] > 1
    for fit in fits:
        assert_same_bits(fit.membership_vector(new), expected, "float32")
        assert_same_bits(fit.membership_vector(np.asfortranarray(new.astype(">f8"))), expected, "float64")
    monkeypatch.setattr(search, "SEARCH_ROWS", 1)
    many = np.repeat(new, 10, axis=0)
    assert_same_bits(fits[0].membership_vector(many), np.repeat(expected, 10, axis=0), "many")
    noise = fits[0].labels_ == -1
    assert noise.any()
    before = many.copy()
    fits[0].predict(many)
    np.testing.assert_array_equal(many, before)


def test_rows_that_are_not_finite(any_backend: str) -> None:
    model = HDBSCAN(backend=any_backend).fit(four_blobs())
    new = np.array([[np.nan, np.inf], [0, 0], [-np.inf, 0], [0, np.nan], [1e3, 1e3]])
    labels, strengths = model.approximate_predict(new)
    assert labels.tolist() == [-3, model.labels_[0], -2, -3, -1]
    np.testing.assert_array_equal(strengths[[0, 2, 3, 4]], [np.nan, 0, np.nan, 0])
    np.testing.assert_array_equal(model.outlier_scores(new)[[0, 2, 3]], [np.nan, 1, np.nan])
    vectors = model.membership_vector(new)
    assert np.isnan(vectors[[0, 3]]).all()
    assert vectors[2].tolist() == [0, 0, 0, 0]
    assert vectors[1].argmax() == labels[1]
    for name in ("predict", "outlier_scores", "membership_vector"):
        of_them = getattr(model, name)(new[[0, 2]])
        assert_same_bits(of_them, getattr(model, name)(new)[[0, 2]], name)


# ---------------------------------------------------------------------------------------------------------
# Membership vectors
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_largest_membership_is_the_label(seed: int, any_backend: str) -> None:
    """Seen elsewhere: the largest is another cluster's. Here heights differ by a bit, and lambdas do not."""
    X = adjacent_lattice(seed)
    several = 0
    for size, samples, method, limit in ((3, 1, "eom", None), (3, 2, "leaf", None), (4, 1, "eom", 12)):
        model = HDBSCAN(
            size,
            samples,
            max_cluster_size=limit,
            cluster_selection_method=method,
            backend=any_backend,
        ).fit(X)
        heights = np.unique(model._birth_heights)
        several += len(model.cluster_persistence_) > 2 and len(np.unique(1 / heights)) < len(heights)
        assert_sound_vectors(model)
        assert_training_rows_keep_their_places(model, X)
    assert several


def test_membership_by_hand(any_backend: str) -> None:
    # Three rows 1 apart three times: 20 between the first two groups, 80 to the third; one row far out.
    X = np.array([0.0, 1, 2, 22, 23, 24, 104, 105, 106, 306])[:, np.newaxis]
    model = HDBSCAN(3, 2, cluster_selection_method="leaf", backend=any_backend).fit(X)
    assert model.labels_.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, -1]
    vectors = model.all_points_membership_vectors()
    # The first group leaves at lambda 1, parts from the second at 1/20 and, a step higher, from the third.
    expected = np.array([1, (1 / 20) / 2, (1 / 80) / 4])
    np.testing.assert_allclose(vectors[0], expected / expected.sum(), rtol=1e-14)
    # The third parts from both at one place.
    expected = np.array([(1 / 80) / 2, (1 / 80) / 2, 1])
    np.testing.assert_allclose(vectors[6], expected / expected.sum(), rtol=1e-14)
    # The last row is above all three, at lambda 1/200, where rows of the clusters leave at 1.
    np.testing.assert_allclose(vectors[9], np.full(3, 1 / 200 / 3), rtol=1e-14)
    # Half way between the first two groups, 10 from the rows at 2 and 22: core distance and height 10.
    assert model.predict([[12.0]]).tolist() == [0]
    expected = np.array([1, 1 / 4, 1 / 32])
    np.testing.assert_allclose(model.membership_vector([[12.0]])[0], 0.1 * expected / expected.sum())


def test_membership_in_a_deep_tree() -> None:
    """Hundreds of clusters, each in the next one: no recursion, and no weights that all vanish."""
    gaps = np.cumsum(1.01 ** np.arange(700.0))
    X = np.sort(np.r_[gaps, gaps + 0.01, -1e6 + np.arange(40.0)])[:, np.newaxis]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        for largest in (None, 30):
            model = HDBSCAN(
                2, 1, cluster_selection_method="eom", max_cluster_size=largest, backend="cpu"
            ).fit(X)
            assert_sound_vectors(model)
    finally:
        sys.setrecursionlimit(limit)
    assert len(model.cluster_persistence_) > 500
    assert len(model._cluster_tree().jumps) > 9
    noise = model.labels_ == -1
    assert noise.any()
    assert (model.all_points_membership_vectors()[noise].max(axis=1) > 0).all()


def test_memory_of_membership_vectors(any_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen elsewhere: memory exhausted."""
    r = np.random.default_rng(0)
    n = 240 if any_backend == "reference" else 8000
    monkeypatch.setattr(membership, "WORK_BYTES", 1 << 16)
    centres = r.uniform(0, 1000, (n // 20, 2))
    X = np.repeat(centres, 20, axis=0) + r.normal(size=(n, 2))
    model = HDBSCAN(10, 5, backend=any_backend).fit(X)
    n_clusters = len(model.cluster_persistence_)
    whole = model.all_points_membership_vectors()
    n_bytes = whole.nbytes
    for table in (1 << 28, 0):
        monkeypatch.setattr(membership, "TABLE_BYTES", table)
        seen = 0
        tracemalloc.start()
        for rows, vectors in model.membership_batches(batch_rows=100):
            assert rows.start == seen
            assert_same_bits(vectors, whole[rows], "batch")
            seen = rows.stop
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert seen == n
        assert any_backend == "reference" or peak < n_bytes / 2
    new = X[:50] + 0.1
    expected = model.membership_vector(new)
    batches = list(model.membership_batches(new, batch_rows=np.int64(7)))
    assert [rows.stop - rows.start for rows, _ in batches] == [7] * 7 + [1]
    assert_same_bits(np.concatenate([vectors for _, vectors in batches]), expected, "new rows")
    monkeypatch.setattr(prediction, "BATCH_BYTES", 8 * n_clusters * 9)
    assert next(model.membership_batches(new))[0] == slice(0, 9)

    monkeypatch.setattr(prediction, "VECTORS_BYTES", n_bytes)
    assert_same_bits(model.all_points_membership_vectors(), whole, "within the budget")
    monkeypatch.setattr(prediction, "VECTORS_BYTES", 8 * n_clusters * 49)
    size = re.escape(f"of {n} rows in {n_clusters} clusters take {n_bytes / 1e9:.1f} GB")
    with pytest.raises(MemoryError, match=f"{size}.*membership_batches"):
        model.all_points_membership_vectors()
    with pytest.raises(MemoryError, match="of 50 rows"):
        model.membership_vector(new)


# ---------------------------------------------------------------------------------------------------------
# Seen elsewhere
# ---------------------------------------------------------------------------------------------------------


def test_case_16_epsilon(any_backend: str) -> None:
    """Most labels wrong."""
    for X in (four_blobs(), load("nested_blobs")):
        for single in (False, True):
            model = HDBSCAN(
                cluster_selection_epsilon=1.5, allow_single_cluster=single, backend=any_backend
            ).fit(X)
            assert_training_rows_keep_their_places(model, X)


def test_case_17_one_cluster(any_backend: str) -> None:
    """KeyError."""
    X = np.random.default_rng(0).normal(size=(54, 2))
    model = HDBSCAN(allow_single_cluster=True, backend=any_backend).fit(X)
    vectors = model.all_points_membership_vectors()
    assert vectors.shape == (54, 1)
    assert_same_bits(vectors[model.labels_ == 0, 0], model.probabilities_[model.labels_ == 0], "one cluster")
    assert_training_rows_keep_their_places(model, X)
    assert model.membership_vector([[0.0, 0.0]]).shape == (1, 1)


def test_case_18_piles(any_backend: str) -> None:
    """NaN; ZeroDivisionError for a new row exactly on a pile."""
    piles = np.array([(0.0, 0), (0, 9), (9, 0), (7, 9)])
    model = HDBSCAN(min_samples=2, backend=any_backend).fit(np.repeat(piles, 6, axis=0))
    assert len(model.cluster_persistence_) == 4
    assert_sound_vectors(model)
    labels, strengths = model.approximate_predict(piles)
    assert labels.tolist() == model.labels_[::6].tolist()
    assert strengths.tolist() == [1.0] * 4
    np.testing.assert_array_equal(model.membership_vector(piles), np.eye(4)[labels])
    assert model.outlier_scores(piles).tolist() == [0.0] * 4
    beside = model.membership_vector(piles + 0.5)
    assert (beside.argmax(axis=1) == labels).all()
    assert (beside.sum(axis=1) <= 1).all()
    assert (beside < 1).all()


def test_case_19_no_cluster_and_one_row(any_backend: str) -> None:
    """IndexError."""
    X = np.random.default_rng(0).random((30, 3))
    model = HDBSCAN(20, backend=any_backend).fit(X)
    labels, strengths = model.approximate_predict(X[:7] + 0.01)
    assert labels.tolist() == [-1] * 7
    assert strengths.tolist() == [0.0] * 7
    assert model.membership_vector(X[:7] + 0.01).shape == (7, 0)
    assert model.all_points_membership_vectors().shape == (30, 0)
    assert [vectors.shape for _, vectors in model.membership_batches(batch_rows=20)] == [(20, 0), (10, 0)]
    for method in ("predict", "approximate_predict", "outlier_scores", "membership_vector"):
        with pytest.raises(ValueError, match=re.escape("reshape(1, -1)")):
            getattr(model, method)(X[0])
    alone = HDBSCAN(min_samples=1, allow_single_cluster=True, backend=any_backend).fit(X[:1])
    assert alone.predict(X[:3]).tolist() == [-1] * 3
    assert alone.outlier_scores(X[:3]).tolist() == [0.0] * 3


def test_case_21_another_process(tmp_path: Path) -> None:
    """Core dump."""
    X = four_blobs()
    available = [name for name, one in mreach.available_backends().items() if one["available"]]
    models = [HDBSCAN(backend=name).fit(X) for name in available]
    new = new_rows(X, 0)
    (tmp_path / "models.pickle").write_bytes(pickle.dumps(models))
    np.save(tmp_path / "new.npy", new)
    script = (
        "import pickle, sys, numpy; models = pickle.load(open(sys.argv[1] + '/models.pickle', 'rb'));"
        "new = numpy.load(sys.argv[1] + '/new.npy');"
        "vectors = [model.membership_vector(new) for model in models];"
        "numpy.save(sys.argv[1] + '/vectors.npy', vectors)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    for vectors in np.load(tmp_path / "vectors.npy"):
        assert_same_bits(vectors, models[0].membership_vector(new), "vectors")


# ---------------------------------------------------------------------------------------------------------
# Noise
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["rounded_normal", "blobs_128_3d", "non_finite_rows", "type_uint8"])
def test_assign_noise(dataset: str, any_backend: str) -> None:
    X = np.asarray(load(dataset), np.float64)
    model = HDBSCAN(6, 4, alpha=1.5, backend=any_backend).fit(X)
    core, labels = model.core_distances_, model.labels_
    noise, clustered = np.flatnonzero(labels == -1), np.flatnonzero(labels >= 0)
    assert len(noise)
    nearest, weight = {}, {}
    for row in noise:
        distances = reference.distances_between(X[row : row + 1], X[clustered])[0]
        weights = np.maximum(np.maximum(core[row], core[clustered]), distances / 1.5)
        best = min(range(len(clustered)), key=lambda i: (weights[i], distances[i], *X[clustered[i]]))
        nearest[row], weight[row] = labels[clustered[best]], weights[best]
    for limit in (None, *np.quantile(list(weight.values()), [0.3, 0.7], method="lower"), 0.0):
        expected = labels.copy()
        for row in noise:
            if limit is None or weight[row] <= limit:
                expected[row] = nearest[row]
        assert_same_bits(model.assign_noise(limit), expected, f"up to {limit}")
    assert_same_bits(model.assign_noise(max_distance=np.float32(0)), labels, "up to 0")
    assert not np.shares_memory(model.assign_noise(), model.labels_)


def test_assign_noise_where_there_is_nothing_to_assign(any_backend: str) -> None:
    X = np.random.default_rng(0).random((30, 3))
    assert HDBSCAN(20, backend=any_backend).fit(X).assign_noise().tolist() == [-1] * 30
    pile = np.zeros((8, 2))
    model = HDBSCAN(allow_single_cluster=True, backend=any_backend).fit(pile)
    assert model.assign_noise().tolist() == [0] * 8


# ---------------------------------------------------------------------------------------------------------
# The rows that are kept, and errors
# ---------------------------------------------------------------------------------------------------------


def test_round_trips(tmp_path: Path, any_backend: str) -> None:
    X = load("non_finite_rows")
    new = new_rows(X, 0)
    model = HDBSCAN(4, backend=any_backend).fit(X)
    expected = model.membership_vector(new)
    joblib.dump(model, tmp_path / "model.joblib")
    cut = model.cut(min_cluster_size=4)
    for one in (
        joblib.load(tmp_path / "model.joblib"),
        pickle.loads(pickle.dumps(cut)),
        copy.deepcopy(model),
        clone(model).fit(X),
    ):
        assert_same_bits(one.membership_vector(new), expected, "vectors")
        assert_training_rows_keep_their_places(one, X)
        assert_same_bits(one.assign_noise(), model.assign_noise(), "assign_noise")
        assert one.generate_prediction_data() is one


def test_a_pickle_holds_the_finite_rows_once() -> None:
    X = np.random.default_rng(0).normal(size=(400, 200))
    X[::2] = np.nan
    model = HDBSCAN(backend="reference").fit(X)
    assert X.nbytes / 2 < len(pickle.dumps(model)) < X.nbytes * 0.8


def test_rows_that_were_not_kept(any_backend: str) -> None:
    X = four_blobs()
    model = HDBSCAN(prediction_data=False, backend=any_backend).fit(X)
    for one in (model, model.cut(min_cluster_size=9), pickle.loads(pickle.dumps(model))):
        for method, arguments in (
            ("predict", [X]),
            ("membership_vector", [X]),
            ("outlier_scores", [X]),
            ("generate_prediction_data", []),
        ):
            with pytest.raises(ValueError, match="fit with prediction_data=True"):
                getattr(one, method)(*arguments)
    assert model.all_points_membership_vectors().shape == (160, 4)


def test_rows_that_were_changed(any_backend: str) -> None:
    X = four_blobs()
    model = HDBSCAN(backend=any_backend).fit(X)
    X[:] = 0
    for one in (model, pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match="X was changed in place after the fit, and its rows are asked"):
            one.predict(four_blobs())


def test_wrong_rows(any_backend: str) -> None:
    X = four_blobs()
    model = HDBSCAN(backend=any_backend).fit(X)
    with pytest.raises(ValueError, match="X has 3 features, but HDBSCAN is expecting 2 features as input"):
        model.predict(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="holds text"):
        model.predict(np.array([["1", "2"]], dtype=object))
    with pytest.raises(ValueError, match="masked"):
        model.predict(np.ma.masked_equal(X, X[0, 0]))
    message = r"X, together with those of the fit, are too large: .* Multiply both, before the fit, by 2\*\*-"
    with pytest.raises(ValueError, match=message):
        model.predict([[0.0, 1e160]])
    assert model.predict([[0.0, 1e150]]).tolist() == [-1]
    narrow = HDBSCAN(alpha=1e-160, backend=any_backend).fit(X)
    with pytest.raises(ValueError, match="alpha=1e-160 is too small"):
        narrow.predict([[0.0, 1e150]])


def test_feature_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(four_blobs(), columns=["a", "b"])
    model = HDBSCAN(backend="reference").fit(frame)
    assert_same_bits(model.predict(frame), model.labels_, "labels")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a"]])


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("assign_noise", (-1.0,), "max_distance must be at least 0, got -1.0; None means any distance"),
        ("assign_noise", ("far",), "max_distance must be a number, got 'far'; None means any distance"),
        ("assign_noise", (np.nan,), "max_distance must be a finite number"),
        ("membership_batches", (None,), "batch_rows must be an integer of at least 1, got 0"),
    ],
)
def test_wrong_arguments(method: str, arguments: tuple[Any, ...], message: str) -> None:
    model = HDBSCAN(backend="reference").fit(four_blobs())
    keywords = {"batch_rows": 0} if method == "membership_batches" else {}
    with pytest.raises(ValueError, match=re.escape(message)):
        getattr(model, method)(*arguments, **keywords)


def test_before_a_fit() -> None:
    X = four_blobs()
    for method in ("predict", "approximate_predict", "membership_vector", "outlier_scores"):
        with pytest.raises(NotFittedError):
            getattr(HDBSCAN(), method)(X)
    for method in (
        "all_points_membership_vectors",
        "membership_batches",
        "assign_noise",
        "generate_prediction_data",
    ):
        with pytest.raises(NotFittedError):
            getattr(HDBSCAN(), method)()


def test_names_of_hdbscan(any_backend: str) -> None:
    X = four_blobs()
    new = new_rows(X, 3)
    model = HDBSCAN(backend=any_backend).fit(X)
    labels, strengths = mreach.approximate_predict(model, new)
    assert_same_bits(labels, model.predict(new), "approximate_predict")
    assert_same_bits(strengths, model.approximate_predict(new)[1], "approximate_predict")
    vectors = mreach.membership_vector(model, new)
    assert_same_bits(vectors, model.membership_vector(new), "membership_vector")
    vectors = mreach.all_points_membership_vectors(model)
    assert_same_bits(vectors, model.all_points_membership_vectors(), "all_points_membership_vectors")
    scores = mreach.approximate_predict_scores(model, new)
    assert_same_bits(scores, model.outlier_scores(new), "approximate_predict_scores")
    assert_same_bits(scores, model.approximate_predict_scores(new), "approximate_predict_scores")


def test_new_rows_change_nothing(any_backend: str) -> None:
    X = four_blobs()
    model = HDBSCAN(backend=any_backend, progress=False).fit(X)
    before = dict(model.__dict__)
    expected = model.predict(new_rows(X, 0))
    assert model.__dict__.keys() == before.keys()
    assert all(model.__dict__[name] is value for name, value in before.items())
    model.set_params(min_samples=40, alpha=9.0, cluster_selection_epsilon=5.0)  # not fitted with them
    assert_same_bits(model.predict(new_rows(X, 0)), expected, "labels")


def test_two_threads_at_once(any_backend: str) -> None:
    X = four_blobs()
    model = HDBSCAN(backend=any_backend).fit(X)
    expected = copy.deepcopy(model).all_points_membership_vectors()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(model.membership_vector, X) for _ in range(8)]
        for one in asked:
            assert_same_bits(one.result(), expected, "vectors")

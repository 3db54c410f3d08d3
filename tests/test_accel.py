"""The classes of scikit-learn and hdbscan, computed by mreach: in this process, and in programs run so."""

import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import sklearn.cluster
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.cluster import HDBSCAN as SklearnHDBSCAN
from sklearn.metrics import pairwise_distances
from sklearn.utils.estimator_checks import parametrize_with_checks

import mreach
import mreach.accel
import mreach.accel.for_hdbscan
import mreach.accel.for_sklearn
from mreach.accel.trees import binary_condensed_tree, place_numbers
from mreach.records import CONDENSED_DTYPE


def two_groups(n_rows: int = 120) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.vstack([rng.normal(size=(n_rows // 2, 3)), rng.normal(9, 1, (n_rows // 2, 3))])


@pytest.fixture
def installed() -> Iterator[None]:
    mreach.accel.install(quiet=True)
    yield
    mreach.accel.uninstall()


@pytest.fixture
def hdbscan(installed: None) -> Any:
    return pytest.importorskip("hdbscan", reason="needs hdbscan")


@pytest.fixture
def original() -> Any:
    return pytest.importorskip("hdbscan.hdbscan_", reason="needs hdbscan").HDBSCAN


def same_partition(one: np.ndarray, other: np.ndarray) -> bool:
    pairs = set(zip(one.tolist(), other.tolist(), strict=True))
    return len(pairs) == len(set(one.tolist())) == len(set(other.tolist()))


# The name, before, in between and after


def test_install_and_uninstall() -> None:
    mreach.accel.install(quiet=True)
    mreach.accel.install(quiet=True)
    try:
        made = sklearn.cluster.HDBSCAN(min_cluster_size=7)
        assert type(made) is mreach.accel.for_sklearn.HDBSCAN
        assert isinstance(made, SklearnHDBSCAN)
        assert isinstance(SklearnHDBSCAN(), sklearn.cluster.HDBSCAN)  # made of the name taken before
        assert not isinstance(sklearn.cluster.DBSCAN(), sklearn.cluster.HDBSCAN)
        assert sklearn.cluster._hdbscan.hdbscan.HDBSCAN is SklearnHDBSCAN
    finally:
        mreach.accel.uninstall()
        mreach.accel.uninstall()
    assert sklearn.cluster.HDBSCAN is SklearnHDBSCAN
    assert isinstance(made, sklearn.cluster.HDBSCAN)
    assert not any(type(one).__module__.startswith("mreach") for one in sys.meta_path)


def test_a_users_subclass_takes_no_others(installed: None) -> None:
    class Mine(sklearn.cluster.HDBSCAN):
        pass

    assert isinstance(Mine(), SklearnHDBSCAN)
    assert not isinstance(SklearnHDBSCAN(), Mine)
    assert hasattr(Mine().fit(two_groups()), "mreach_")


def test_modules_that_took_the_class_before(caplog: pytest.LogCaptureFixture) -> None:
    itself = SklearnHDBSCAN  # "all" replaces this module's name, too
    before = types.ModuleType("took_it_before")
    before.Cluster = itself  # type: ignore[attr-defined]
    sys.modules["took_it_before"] = before
    try:
        mreach.accel.install()
        assert before.Cluster is itself
        assert "took_it_before" in caplog.text
        assert "install(modules=[...])" in caplog.text
        mreach.accel.install(modules=["took_it_before", "not.imported"])
        assert before.Cluster is sklearn.cluster.HDBSCAN is not itself
        mreach.accel.uninstall()
        assert before.Cluster is itself
        mreach.accel.install(modules="all")
        assert before.Cluster is SklearnHDBSCAN is sklearn.cluster.HDBSCAN
        assert sklearn.cluster._hdbscan.hdbscan.HDBSCAN is itself
    finally:
        mreach.accel.uninstall()
        del sys.modules["took_it_before"]
    assert SklearnHDBSCAN is sklearn.cluster.HDBSCAN is itself


@pytest.mark.parametrize(("modules", "error"), [("numpy", ValueError), ([3], TypeError)])
def test_modules_must_be_modules(modules: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="modules must"):
        mreach.accel.install(modules=modules)
    assert sklearn.cluster.HDBSCAN is SklearnHDBSCAN


def test_what_something_else_has_replaced_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Other:
        pass

    monkeypatch.setattr(sklearn.cluster, "HDBSCAN", Other)
    try:
        mreach.accel.install()
        assert sklearn.cluster.HDBSCAN is Other
        assert "something else has replaced" in caplog.text
    finally:
        mreach.accel.uninstall()
    assert sklearn.cluster.HDBSCAN is Other


def test_from_many_threads() -> None:
    def work(results: list[Any]) -> None:
        for _ in range(5):
            mreach.accel.install(quiet=True)
            results.append(sklearn.cluster.HDBSCAN().fit(two_groups(20)).labels_)
            mreach.accel.uninstall()

    results: list[np.ndarray] = []
    threads = [threading.Thread(target=work, args=(results,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    assert sklearn.cluster.HDBSCAN is SklearnHDBSCAN
    assert not any(type(one).__module__.startswith("mreach") for one in sys.meta_path)


def test_everything_is_said_once(installed: None, caplog: pytest.LogCaptureFixture) -> None:
    mreach.accel.install()
    mreach.accel.install()
    for _ in range(2):
        sklearn.cluster.HDBSCAN(metric="braycurtis", copy=True).fit(two_groups())
    said = [record.getMessage() for record in caplog.records if record.name == "mreach.accel"]
    assert sum("is computed by mreach from here on" in one for one in said) == 1
    assert sum("no faster with metric 'braycurtis'" in one for one in said) == 1
    assert len(said) == len(set(said))
    assert all(record.levelno == logging.WARNING for record in caplog.records)


# scikit-learn


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"min_cluster_size": 10, "min_samples": 4},
        {"metric": "l2"},
        {"metric": "minkowski", "metric_params": {"p": 2}},
        {"metric": "cityblock"},
        {"metric": "minkowski", "metric_params": {"p": np.inf}},
        {"alpha": 0.5, "cluster_selection_method": "leaf"},
        {"allow_single_cluster": True, "max_cluster_size": 70},
        {"algorithm": "ball_tree", "leaf_size": 3, "n_jobs": 2},
    ],
    ids=str,
)
def test_scikit_learn_as_mreach_and_as_itself(installed: None, given: dict[str, Any]) -> None:
    X = two_groups().astype(np.float32)
    X[5, 1], X[6, 0], X[7] = np.nan, np.inf, [np.inf, np.nan, 0]
    model = sklearn.cluster.HDBSCAN(**given).fit(X)
    expected = mreach.HDBSCAN(**given).fit(X)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.probabilities_, expected.probabilities_)
    itself = SklearnHDBSCAN(copy=True, **given).fit(X)
    assert same_partition(model.labels_, itself.labels_)
    np.testing.assert_array_equal(model.labels_[[5, 6, 7]], itself.labels_[[5, 6, 7]])
    assert same_partition(model.dbscan_clustering(2.0), itself.dbscan_clustering(2.0))
    assert model.n_features_in_ == 3
    assert model.get_params() == {**itself.get_params(), "copy": model.copy}
    np.testing.assert_array_equal(model.fit_predict(X), model.labels_)


def test_centres_and_names_of_scikit_learn(installed: None) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    X = pandas.DataFrame(two_groups(), columns=["a", "b", "c"])
    model = sklearn.cluster.HDBSCAN(store_centers="both").fit(X)
    itself = SklearnHDBSCAN(store_centers="both", copy=True).fit(X)
    order = np.argsort(model.centroids_[:, 0]), np.argsort(itself.centroids_[:, 0])
    np.testing.assert_allclose(model.centroids_[order[0]], itself.centroids_[order[1]])
    np.testing.assert_array_equal(model.medoids_[order[0]], itself.medoids_[order[1]])
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    model.set_params(store_centers=None).fit(X.to_numpy())
    assert not hasattr(model, "centroids_")
    assert not hasattr(model, "feature_names_in_")


def test_what_mreach_does_not_do_is_left_to_scikit_learn(
    installed: None, caplog: pytest.LogCaptureFixture
) -> None:
    X = two_groups()
    model = sklearn.cluster.HDBSCAN().fit(X)
    assert hasattr(model, "mreach_")
    model.set_params(metric="braycurtis", copy=True).fit(X)
    assert not hasattr(model, "mreach_")
    expected = SklearnHDBSCAN(metric="braycurtis", copy=True).fit(X)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    assert "no faster with metric 'braycurtis'" in caplog.text
    model.set_params(metric=lambda x, y: float(np.abs(x - y).sum())).fit(X[::4])
    assert not hasattr(model, "mreach_")


@pytest.mark.parametrize(
    ("given", "X"),
    [
        ({"min_cluster_size": 1}, two_groups()),
        ({"min_samples": 3.5}, two_groups()),
        ({"min_samples": 500}, two_groups()),
        ({"alpha": 0}, two_groups()),
        ({"metric": "no such metric"}, two_groups()),
        ({"min_samples": 1}, np.zeros((1, 3))),
        ({}, np.zeros(7)),
        ({}, np.full((9, 2), np.nan)),
        ({}, [["a", "b"]] * 9),
    ],
    ids=str,
)
def test_errors_are_those_of_scikit_learn(installed: None, given: dict[str, Any], X: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as of_itself:
        SklearnHDBSCAN(copy=True, **given).fit(X)
    with pytest.raises(of_itself.type) as error:
        sklearn.cluster.HDBSCAN(copy=True, **given).fit(X)
    assert str(error.value) == str(of_itself.value)


def test_nothing_is_said_of_noise(installed: None, recwarn: pytest.WarningsRecorder) -> None:
    assert sklearn.cluster.HDBSCAN(min_cluster_size=50).fit(two_groups()[:60]).labels_.max() == -1
    assert not recwarn.list
    with pytest.warns(mreach.NoClustersWarning):
        mreach.HDBSCAN(min_cluster_size=50).fit(two_groups()[:60])


@parametrize_with_checks([mreach.accel.for_sklearn.HDBSCAN(min_samples=1, copy=True)])
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("library", ["sklearn.cluster", "hdbscan"])
@pytest.mark.parametrize("method", ["eom", "leaf"])
def test_distances_given(library: str, method: str, installed: None, original: Any) -> None:
    X = pairwise_distances(two_groups())
    given = {"metric": "precomputed", "min_cluster_size": 8, "cluster_selection_method": method}
    model = sys.modules[library].HDBSCAN(**given).fit(X)
    assert hasattr(model, "mreach_")
    itself = original(**given) if library == "hdbscan" else SklearnHDBSCAN(copy=True, **given)
    assert same_partition(model.labels_, itself.fit(X).labels_)
    if library == "sklearn.cluster":
        with pytest.raises(ValueError, match="Expected 2D array"):
            model.fit(X[np.triu_indices(len(X), 1)])


def test_a_sparse_graph(hdbscan: Any, original: Any, caplog: pytest.LogCaptureFixture) -> None:
    X = pairwise_distances(two_groups(60))
    graph = csr_matrix(X)  # all pairs but the diagonal
    given = {"metric": "precomputed", "min_samples": 4}
    model, itself = hdbscan.HDBSCAN(**given).fit(graph), original(**given).fit(graph)
    assert hasattr(model, "mreach_")
    assert same_partition(model.labels_, itself.labels_)
    np.testing.assert_allclose(
        model.single_linkage_tree_.to_numpy()[:, 2], itself.single_linkage_tree_.to_numpy()[:, 2]
    )
    assert not caplog.text
    with_diagonal = csr_matrix(X + np.eye(60))
    assert not hasattr(hdbscan.HDBSCAN(**given).fit(with_diagonal), "mreach_")
    assert "stored diagonal" in caplog.text
    assert not hasattr(sklearn.cluster.HDBSCAN(copy=True, **given).fit(graph), "mreach_")
    features = csr_matrix(two_groups())
    assert not hasattr(hdbscan.HDBSCAN().fit(features), "mreach_")
    assert "sparse features are not part" in caplog.text


@pytest.mark.parametrize("metric", ["cosine", "correlation", "haversine"])
def test_quick_metrics_of_hdbscan(hdbscan: Any, original: Any, metric: str) -> None:
    rng = np.random.default_rng(5)
    X = np.vstack([rng.normal(size=(40, 4)) * 0.05 + one for one in np.eye(4)[:3]])
    X = X[:, :2] if metric == "haversine" else X
    model = hdbscan.HDBSCAN(metric=metric).fit(X)
    itself = original(metric=metric, algorithm="generic").fit(X)  # the only one that knows cosine
    assert hasattr(model, "mreach_")
    of_sklearn = sklearn.cluster.HDBSCAN(metric=metric, min_samples=6).fit(X)
    assert hasattr(of_sklearn, "mreach_")
    assert same_partition(of_sklearn.labels_, model.labels_)
    np.testing.assert_allclose(
        model.single_linkage_tree_.to_numpy()[:, 2],
        itself.single_linkage_tree_.to_numpy()[:, 2],
        rtol=1e-9,
    )
    assert same_partition(model.labels_, itself.labels_)


# clone, pickle, worker processes


@pytest.mark.parametrize("library", ["sklearn.cluster", "hdbscan"])
def test_clone_and_pickle(library: str, installed: None, original: type) -> None:
    cluster = sys.modules[library].HDBSCAN
    before = {"hdbscan": original, "sklearn.cluster": SklearnHDBSCAN}[library](min_cluster_size=9)
    model = cluster(min_cluster_size=9).fit(two_groups())
    for one in (model, before):
        copy = pickle.loads(pickle.dumps(clone(one)))
        assert type(copy) is type(one)
        assert copy.get_params()["min_cluster_size"] == 9
        assert not hasattr(copy, "labels_")
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.labels_, model.labels_)
    assert repr(copy) == repr(before) == "HDBSCAN(min_cluster_size=9)"
    mreach.accel.uninstall()
    assert type(pickle.loads(pickle.dumps(model))) is type(model)
    assert isinstance(model, sys.modules[library].HDBSCAN)


# hdbscan


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"min_cluster_size": 10, "min_samples": 4},
        {"min_cluster_size": np.int64(20), "allow_single_cluster": True, "core_dist_n_jobs": 1},
        {"metric": "minkowski", "p": 2},
        {"cluster_selection_method": "leaf", "min_samples": 1},
        {"cluster_selection_epsilon": 0.5, "max_cluster_size": 70, "approx_min_span_tree": False},
        {"algorithm": "prims_kdtree", "leaf_size": 3, "cluster_selection_persistence": 0.0},
        {"gen_min_span_tree": True, "cluster_selection_epsilon_max": np.inf},
    ],
    ids=str,
)
def test_hdbscan_as_mreach_and_as_itself(hdbscan: Any, original: Any, given: dict[str, Any]) -> None:
    X = two_groups()
    model = hdbscan.HDBSCAN(**given).fit(X)
    itself = original(**{**given, "approx_min_span_tree": False}).fit(X)
    assert model.mreach_.min_samples == 1 + (given.get("min_samples") or given.get("min_cluster_size", 5))
    assert same_partition(model.labels_, model.mreach_.labels_)
    assert same_partition(model.labels_, itself.labels_)
    np.testing.assert_allclose(
        model.single_linkage_tree_.to_numpy()[:, 2], itself.single_linkage_tree_.to_numpy()[:, 2], rtol=1e-12
    )
    for name in ("labels_", "probabilities_", "cluster_persistence_", "outlier_scores_"):
        assert getattr(model, name).shape == np.shape(getattr(itself, name)), name
    assert len(model.exemplars_) == model.labels_.max() + 1
    for label, exemplars in enumerate(model.exemplars_):
        rows = model.mreach_.exemplars_[model.mreach_.labels_[np.flatnonzero(model.labels_ == label)[0]]]
        np.testing.assert_array_equal(np.unique(exemplars, axis=0), np.unique(X[rows], axis=0))
    if given.get("gen_min_span_tree"):
        assert model.relative_validity_ == pytest.approx(itself.relative_validity_)
        assert model.minimum_spanning_tree_.to_numpy().shape == (len(X) - 1, 3)
    else:
        with pytest.raises(AttributeError):
            model.minimum_spanning_tree_  # noqa: B018


@pytest.mark.parametrize("n_rows", [1, 2, 3, 5, 9, 10])
@pytest.mark.parametrize("min_samples", [None, 10])
def test_few_rows_are_noise_in_hdbscan(hdbscan: Any, n_rows: int, min_samples: int | None) -> None:
    X = np.random.default_rng(1).normal(size=(n_rows, 2))
    given = {"min_cluster_size": 10 if min_samples is None else 2, "min_samples": min_samples}
    for prediction_data in (False, True):
        model = hdbscan.HDBSCAN(prediction_data=prediction_data, **given).fit(X)
        assert hasattr(model, "mreach_")
        assert model.labels_.tolist() == [-1] * n_rows
        assert model.probabilities_.tolist() == [0.0] * n_rows
        assert model.outlier_scores_.shape == (n_rows,)


def test_rows_that_are_not_finite_in_hdbscan(hdbscan: Any, original: Any) -> None:
    X = two_groups()
    X[5, 1], X[6, 0] = np.nan, -np.inf
    model, itself = hdbscan.HDBSCAN().fit(X), original().fit(X)
    assert model.labels_[5] == model.labels_[6] == -1
    assert same_partition(model.labels_, itself.labels_)
    np.testing.assert_array_equal(model.probabilities_[[5, 6]], 0.0)
    np.testing.assert_array_equal(model.outlier_scores_[[5, 6]], itself.outlier_scores_[[5, 6]])
    assert model.single_linkage_tree_.to_numpy().shape == itself.single_linkage_tree_.to_numpy().shape
    of_model, of_itself = model.condensed_tree_.to_pandas(), itself.condensed_tree_.to_pandas()
    np.testing.assert_array_equal(np.sort(of_model.child), np.sort(of_itself.child))
    assert set(of_model.child[of_model.lambda_val == 0]) == {5, 6}


def test_what_hdbscan_does_with_a_fitted_model(hdbscan: Any, original: Any) -> None:
    X = np.vstack([two_groups(), two_groups()[::-1] - np.array([30, 0, 0])])
    given = {"min_cluster_size": 12, "prediction_data": True, "branch_detection_data": True}
    given["core_dist_n_jobs"] = 1  # else the branch detector starts processes
    model, itself = hdbscan.HDBSCAN(**given).fit(X), original(approx_min_span_tree=False, **given).fit(X)
    assert same_partition(model.labels_, itself.labels_)
    first = [np.flatnonzero(model.labels_ == label)[0] for label in range(model.labels_.max() + 1)]
    its = itself.labels_[first]  # its number of each label: which part stands left in the tree is a choice
    X_new = np.random.default_rng(2).normal(8, 9, (40, 3))
    of_model, of_itself = (hdbscan.approximate_predict(one, X_new) for one in (model, itself))
    np.testing.assert_array_equal(np.append(its, -1)[of_model[0]], of_itself[0])
    np.testing.assert_allclose(of_model[1], of_itself[1])
    np.testing.assert_allclose(*(hdbscan.approximate_predict_scores(one, X_new) for one in (model, itself)))
    for vectors in (hdbscan.all_points_membership_vectors, lambda one: hdbscan.membership_vector(one, X_new)):
        np.testing.assert_allclose(vectors(model), vectors(itself)[:, its])
    np.testing.assert_allclose(model.weighted_cluster_centroid(1), itself.weighted_cluster_centroid(its[1]))
    assert same_partition(model.dbscan_clustering(1.5), itself.dbscan_clustering(1.5))
    for tree in ("condensed_tree_", "single_linkage_tree_"):
        assert type(getattr(model, tree)) is type(getattr(itself, tree))
    branches = hdbscan.BranchDetector().fit(model)
    assert len(branches.labels_) == len(X)


def test_the_function_of_hdbscan(hdbscan: Any, original: Any, caplog: pytest.LogCaptureFixture) -> None:
    X = two_groups()
    itself = sys.modules["hdbscan.hdbscan_"].hdbscan
    assert hdbscan.hdbscan is not itself
    assert pickle.loads(pickle.dumps(hdbscan.hdbscan)) is hdbscan.hdbscan
    assert not caplog.text
    for args, given in (((), {}), ((20, 3), {"gen_min_span_tree": True}), ((), {"metric": "l2"})):
        of_mreach, of_itself = hdbscan.hdbscan(X, *args, **given), itself(X, *args, **given)
        model = original(*args, **given).fit(X)
        for one, other in zip(of_mreach, of_itself, strict=True):
            assert (one is None) == (other is None)
            assert one is None or one.ndim == other.ndim
        assert same_partition(of_mreach[0], model.labels_)
        assert of_mreach[3].dtype == of_itself[3].dtype
        np.testing.assert_allclose(of_mreach[4][:, 2], of_itself[4][:, 2])
    assert "itself computes" not in caplog.text
    for one, other in zip(hdbscan.hdbscan(X, p=1), itself(X, p=1), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (
        "hdbscan itself computes where mreach cannot: mreach is no faster with metric 'minkowski'"
        in caplog.text
    )
    with pytest.raises(ValueError, match="positive integers"):
        hdbscan.hdbscan(X, min_samples=0)
    mreach.accel.uninstall()
    assert hdbscan.hdbscan is itself


def test_another_fit_forgets_the_one_before(hdbscan: Any) -> None:
    model = hdbscan.HDBSCAN(gen_min_span_tree=True).fit(two_groups())
    assert len(model.outlier_scores_) == 120
    assert model.relative_validity_ > 0
    X = two_groups(40)
    for metric in ("euclidean", "braycurtis", "euclidean"):
        model.set_params(metric=metric).fit(X)
        assert hasattr(model, "mreach_") == (metric == "euclidean")
        assert len(model.outlier_scores_) == len(model.labels_) == 40
        assert model.condensed_tree_.to_numpy()["child"].max() >= 40


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"metric": "braycurtis"}, "mreach is no faster with metric 'braycurtis'"),
        ({"metric": "minkowski", "p": 0.5}, "mreach is no faster with metric 'minkowski' with {'p': 0.5}"),
        ({"cluster_selection_persistence": 0.1}, "cluster_selection_persistence prunes a binary tree"),
        ({"match_reference_implementation": True}, "match_reference_implementation changes the labels"),
    ],
    ids=str,
)
def test_what_mreach_does_not_do_is_left_to_hdbscan(
    hdbscan: Any, original: Any, caplog: pytest.LogCaptureFixture, given: dict[str, Any], reason: str
) -> None:
    X = two_groups()
    model = hdbscan.HDBSCAN(**given).fit(X)
    assert not hasattr(model, "mreach_")
    assert f"hdbscan itself computes where mreach cannot: {reason}" in caplog.text
    np.testing.assert_array_equal(model.labels_, original(**given).fit(X).labels_)


@pytest.mark.parametrize("given", [{"min_samples": 0}, {"min_cluster_size": 1}, {"alpha": -1.0}], ids=str)
def test_errors_are_those_of_hdbscan(hdbscan: Any, original: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as of_itself:
        original(**given).fit(two_groups())
    with pytest.raises(of_itself.type) as error:
        hdbscan.HDBSCAN(**given).fit(two_groups())
    assert str(error.value) == str(of_itself.value)


def test_a_parameter_of_a_newer_version_is_left_to_it(
    installed: None, caplog: pytest.LogCaptureFixture
) -> None:
    class Newer(sklearn.cluster.HDBSCAN):
        def __init__(self, min_cluster_size: int = 5, brand_new: str = "off") -> None:
            super().__init__(min_cluster_size=min_cluster_size, copy=True)
            self.brand_new = brand_new

        _parameter_constraints: ClassVar = {**SklearnHDBSCAN._parameter_constraints, "brand_new": [str]}

    assert hasattr(Newer().fit(two_groups()), "mreach_")
    assert not hasattr(Newer(brand_new="on").fit(two_groups()), "mreach_")
    assert "brand_new='on' is not known to mreach" in caplog.text


# Trees in the form of hdbscan


def many_way_tree() -> tuple[np.ndarray, np.ndarray]:
    """Row 0 leaves the root 12 before it parts into three; the middle one parts into four."""
    records = [(12, 0, 0.1, 1), (12, 13, 0.5, 2), (12, 14, 0.5, 8), (12, 15, 0.5, 1)]
    records[3] = (12, 15, 0.5, 2)
    sizes = {13: [1, 2], 15: [11, 12]}
    records += [(13, row, 0.9, 1) for row in sizes[13]]
    records += [(14, 16 + part, 0.7, 2) for part in range(4)]
    records += [(15, row, 0.8, 1) for row in sizes[15]]
    records += [(16 + part, 3 + 2 * part + i, 2.0, 1) for part in range(4) for i in (0, 1)]
    return np.array(records, CONDENSED_DTYPE), np.zeros(13, np.int64)


def test_clusters_are_put_between_where_many_part_at_once() -> None:
    condensed, labels = many_way_tree()
    condensed["parent"] += 1  # 13 rows
    condensed["child"][condensed["child"] > 12] += 1
    tree = binary_condensed_tree(condensed, labels)
    clusters = tree[tree["child"] > 13]
    parents, counts = np.unique(clusters["parent"], return_counts=True)
    assert counts.tolist() == [2] * len(parents)
    assert (tree["child"][tree["child"] > 13] > tree["parent"][tree["child"] > 13]).all()
    assert (np.diff(tree["parent"]) >= 0).all()
    numbers = np.sort(np.append(clusters["child"], 13))
    assert numbers.tolist() == list(range(13, 13 + len(numbers)))  # 8 clusters, and 1 + 2 put between
    assert len(numbers) == 11
    for record in clusters:
        inside = tree[tree["parent"] == record["child"]]
        assert inside["child_size"].sum() == record["child_size"]
        assert inside["lambda_val"].min() >= record["lambda_val"]
    np.testing.assert_array_equal(np.sort(tree["child"][tree["child"] < 13]), np.arange(13))
    rows = condensed["child"] < 13
    of_rows = {record["child"]: record["lambda_val"] for record in tree if record["child"] < 13}
    assert of_rows == dict(zip(condensed["child"][rows], condensed["lambda_val"][rows], strict=True))


def test_a_binary_tree_stays_as_it_is() -> None:
    model = mreach.HDBSCAN().fit(two_groups())
    assert binary_condensed_tree(model.condensed_tree_, model.labels_) is model.condensed_tree_


def test_labels_by_place() -> None:
    numbers, order = place_numbers(np.array([9, 4, 7]))
    assert numbers.tolist() == [2, 0, 1, -1]
    assert order.tolist() == [1, 2, 0]


def test_hdbscan_draws_and_predicts_where_three_clusters_part_at_once(hdbscan: Any) -> None:
    corner = np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]])
    at = np.array([[0, 0], [10, 0], [20, 0], [30, 0]])  # all 9 apart, and all parts as large
    X = (at[:, None] + corner).reshape(-1, 2)
    model = hdbscan.HDBSCAN(min_cluster_size=4, min_samples=2, prediction_data=True).fit(X)
    assert len(np.unique(model.mreach_.condensed_tree_["parent"])) == 5
    assert model.labels_.max() == 3
    data = model.condensed_tree_.get_plot_data()
    assert len(data["line_xs"]) == 6
    labels, strengths = hdbscan.approximate_predict(model, X)
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_array_equal(strengths, 1.0)


# Programs

PROGRAM = """
import atexit, json, multiprocessing, os, pickle, sys
loaded = [name for name in ("sklearn.cluster", "hdbscan") if name in sys.modules]
class Thing:
    pass
def in_worker(X):
    from sklearn.cluster import HDBSCAN
    return hasattr(HDBSCAN().fit(X), "mreach_")
def fit(model, X):
    return model.fit(X)
if __name__ == "__main__":
    import importlib.util
    importlib.util.find_spec("sklearn.cluster")
    import sklearn.cluster
    from sklearn.cluster import HDBSCAN
    import numpy as np
    print(HDBSCAN.__module__)
    print(json.dumps({
        "argv": sys.argv[1:], "argv0": os.path.basename(sys.argv[0]), "path0": sys.path[0],
        "name": __name__, "file": os.path.basename(__file__), "doc": __doc__, "package": __package__,
        "spec": None if __spec__ is None else __spec__.name, "builtins": hasattr(__builtins__, "len"),
        "main": sys.modules["__main__"].Thing is Thing, "loaded": loaded,
        "pickles": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
        "loader": type(sklearn.cluster.__loader__).__name__,
        "loader of spec": type(sklearn.cluster.__spec__.loader).__name__,
    }))
    atexit.register(lambda: print("at exit", Thing.__name__))
    if sys.argv[1] == "exit":
        sys.exit(7)
    import mreach.accel
    X = np.arange(40.0).reshape(-1, 1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(hasattr(pool.apply(fit, (HDBSCAN(), X)), "mreach_"))
        print(pool.apply(in_worker, (X,)))
        pool.apply(mreach.accel.install)
        print(pool.apply(in_worker, (X,)))
    raise ValueError("the program fails")
"""


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)


def test_a_script_finds_its_file_from_another_folder(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os\nos.chdir('/')\nprint(open(__file__).read(), __file__)")
    plain = run("script.py", folder=tmp_path)
    assert plain.returncode == 0
    assert run("-m", "mreach.accel", "script.py", folder=tmp_path).stdout == plain.stdout


@pytest.mark.skipif(not os.path.exists("/dev/stdin"), reason="needs /dev/stdin")
def test_a_script_comes_through_a_pipe(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mreach.accel", "/dev/stdin"],
        input="print('by a pipe')", cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "by a pipe\n")


def test_reasons_are_one_short_line(installed: None, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="Expected 2D array"):
        sklearn.cluster.HDBSCAN().fit(np.arange(500.0))
    said = [record.getMessage() for record in caplog.records if record.name == "mreach.accel"]
    assert [one for one in said if "Expected 2D array" in one]
    assert all("\n" not in one and len(one) < 400 for one in said)


def test_a_script_runs_as_it_does_without(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "program.py").write_text(PROGRAM)
    script = str(Path("inside") / "program.py")
    plain = run(script, "exit", "-x", folder=tmp_path)
    by_mreach = run("-m", "mreach.accel", script, "exit", "-x", folder=tmp_path)
    assert plain.returncode == by_mreach.returncode == 7, by_mreach.stderr
    assert plain.stdout.startswith("sklearn.cluster._hdbscan.hdbscan\n")
    assert by_mreach.stdout.startswith("mreach.accel.for_sklearn\n")
    assert plain.stdout.splitlines()[1:] == by_mreach.stdout.splitlines()[1:]
    assert '"loaded": []' in by_mreach.stdout
    assert by_mreach.stderr.count("\n") == 1
    assert "is computed by mreach from here on" in by_mreach.stderr


def test_a_module_runs_and_what_its_workers_do(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "program.py").write_text(PROGRAM)
    done = run("-m", "mreach.accel", "-m", "package.program", "workers", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("ValueError: the program fails")
    _, says, sent, imported, imported_after_install, last = done.stdout.splitlines()
    for name, value in {
        "argv": ["workers"],
        "argv0": "program.py",
        "path0": str(tmp_path),
        "name": "__main__",
        "package": "package",
        "spec": "package.program",
        "main": True,
        "pickles": True,
    }.items():
        assert json.loads(says)[name] == value, name
    # An estimator that is sent keeps its class; what a worker imports by itself is patched there.
    assert [sent, imported, imported_after_install] == ["True", "False", "True"]
    assert last == "at exit Thing"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), ([], 2), (["-m"], 2), (["--unknown"], 2), (["no such file"], 2)],
    ids=str,
)
def test_how_to_call_it(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    from mreach.accel.__main__ import main

    if code:
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == code
    else:
        main(arguments)
    printed = capsys.readouterr()
    if arguments == ["no such file"]:
        assert printed.err == "there is no file 'no such file' to run\n"
        return
    assert "usage: python -m mreach.accel SCRIPT" in (printed.err if code else printed.out)

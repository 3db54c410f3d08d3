"""The estimator: scikit-learn's conventions, attributes, rows that are not finite, backends, threads."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from typing import Any

import joblib
import numpy as np
import pytest
from conftest import assert_same_bits
from scipy.cluster.hierarchy import is_valid_linkage
from sklearn.base import clone, is_clusterer
from sklearn.utils.estimator_checks import parametrize_with_checks

import mreach
from mreach import HDBSCAN
from mreach.backends import select_backend
from mreach.progress import Progress
from mreach.records import CONDENSED_DTYPE, EDGE_DTYPE
from mreach.validation import check_parameters

TESTED = [name for name in ("reference", "cpu") if mreach.available_backends()[name]["available"]]


def two_blobs(dtype: Any = np.float64) -> np.ndarray:
    rng = np.random.default_rng(5)
    return np.vstack([rng.normal(0, 1, (40, 3)), rng.normal(9, 1, (60, 3)), [[4.5, -20, 30]]]).astype(dtype)


@parametrize_with_checks([HDBSCAN(backend=name) for name in TESTED])
def test_scikit_learn_checks(estimator: HDBSCAN, check: Any) -> None:
    check(estimator)


def test_signature_and_clone() -> None:
    expected = {
        "min_cluster_size": 5,
        "min_samples": None,
        "cluster_selection_epsilon": 0.0,
        "max_cluster_size": None,
        "metric": "euclidean",
        "metric_params": None,
        "p": None,
        "alpha": 1.0,
        "cluster_selection_method": "eom",
        "allow_single_cluster": False,
        "store_centers": None,
        "prediction_data": True,
        "backend": "auto",
        "device": None,
        "n_jobs": None,
        "progress": False,
        "cluster_selection_epsilon_max": np.inf,
        "algorithm": "auto",
        "leaf_size": 40,
        "copy": False,
    }
    assert {name: p.default for name, p in inspect.signature(HDBSCAN).parameters.items()} == expected
    assert HDBSCAN().get_params() == expected
    assert clone(HDBSCAN(alpha=2, min_samples=3)).get_params() == {**expected, "alpha": 2, "min_samples": 3}
    assert is_clusterer(HDBSCAN())
    tags = HDBSCAN().__sklearn_tags__()
    assert tags.input_tags.allow_nan
    assert tags.input_tags.sparse
    assert not tags.input_tags.pairwise


def test_attributes(any_backend: str) -> None:
    X = two_blobs()
    n = len(X)
    model = HDBSCAN(backend=any_backend)
    assert model.fit(X) is model
    assert model.labels_.dtype == np.int64
    assert model.labels_.tolist() == [1] * 40 + [0] * 60 + [-1]  # numbered by decreasing size
    assert model.fit_predict(X).tolist() == model.labels_.tolist()
    assert model.probabilities_.dtype == model.core_distances_.dtype == np.float64
    assert model.probabilities_[-1] == 0.0
    assert model.probabilities_[:-1].min() > 0.0
    assert model.probabilities_.max() == 1.0
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)
    np.testing.assert_allclose(model.core_distances_, np.sort(distances, axis=1)[:, 4], rtol=1e-12)
    assert model.minimum_spanning_tree_.dtype == EDGE_DTYPE
    assert model.minimum_spanning_tree_.shape == (n - 1,)
    assert (model.minimum_spanning_tree_["source"] < model.minimum_spanning_tree_["target"]).all()
    assert (np.diff(model.minimum_spanning_tree_["weight"]) >= 0).all()
    assert model.single_linkage_tree_.shape == (n - 1, 4)
    assert is_valid_linkage(model.single_linkage_tree_)
    assert model.condensed_tree_.dtype == CONDENSED_DTYPE
    assert model.condensed_tree_["parent"].min() == n
    assert sorted(model.condensed_tree_["child"][model.condensed_tree_["child"] < n]) == list(range(n))
    assert model.cluster_persistence_.shape == (2,)
    assert ((model.cluster_persistence_ > 0) & (model.cluster_persistence_ <= 1)).all()
    assert model.backend_ == any_backend
    assert model.n_features_in_ == 3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_that_are_not_finite(any_backend: str, dtype: type) -> None:
    clean = two_blobs(dtype)
    n = len(clean) + 4
    other = np.array([0, 7, 8, n - 1])
    finite = np.setdiff1d(np.arange(n), other)
    X = np.empty((n, 3), dtype)
    X[finite] = clean
    X[other] = [[np.nan, 0, 0], [0, np.inf, 0], [np.inf, 1, np.nan], [-np.inf, 0, 0]]
    model, expected = (HDBSCAN(backend=any_backend, min_samples=3).fit(data) for data in (X, clean))

    assert model.labels_[other].tolist() == [-3, -2, -3, -2]
    np.testing.assert_array_equal(model.labels_[finite], expected.labels_)
    np.testing.assert_array_equal(model.probabilities_[other], [np.nan, 0, np.nan, 0])
    np.testing.assert_array_equal(model.probabilities_[finite], expected.probabilities_)
    assert np.isnan(model.core_distances_[other]).all()
    np.testing.assert_array_equal(model.core_distances_[finite], expected.core_distances_)
    np.testing.assert_array_equal(model.cluster_persistence_, expected.cluster_persistence_)

    tree, tree_expected = model.minimum_spanning_tree_, expected.minimum_spanning_tree_
    assert len(tree) == len(clean) - 1
    np.testing.assert_array_equal(tree["source"], finite[tree_expected["source"]])
    np.testing.assert_array_equal(tree["target"], finite[tree_expected["target"]])
    np.testing.assert_array_equal(tree["weight"], tree_expected["weight"])

    numbers = np.r_[finite, np.arange(n, n + 100)]  # points by row, then clusters from n on
    for field in ("parent", "child"):
        np.testing.assert_array_equal(model.condensed_tree_[field], numbers[expected.condensed_tree_[field]])
    np.testing.assert_array_equal(model.condensed_tree_["lambda_val"], expected.condensed_tree_["lambda_val"])

    merges = model.single_linkage_tree_
    assert is_valid_linkage(merges)
    assert merges.shape == (n - 1, 4)
    assert np.isinf(merges[-4:, 2]).all()
    assert np.isfinite(merges[:-4, 2]).all()
    np.testing.assert_array_equal(merges[-4:, 0], other)
    np.testing.assert_array_equal(merges[-4:, 3], [n - 3, n - 2, n - 1, n])


def test_one_finite_row(any_backend: str) -> None:
    X = np.array([[np.nan, 1.0], [np.inf, 1.0], [2.0, 1.0], [np.nan, 1.0]])
    model = HDBSCAN(min_samples=1, backend=any_backend).fit(X)
    assert model.labels_.tolist() == [-3, -2, -1, -3]
    assert model.minimum_spanning_tree_.shape == (0,)
    assert model.single_linkage_tree_.tolist() == [[0, 2, np.inf, 2], [1, 4, np.inf, 3], [3, 5, np.inf, 4]]
    assert is_valid_linkage(model.single_linkage_tree_)


def test_one_row(any_backend: str) -> None:
    model = HDBSCAN(min_samples=1, backend=any_backend).fit([[2.0, 1.0]])
    assert model.labels_.tolist() == [-1]
    assert model.core_distances_.tolist() == [0.0]
    assert model.single_linkage_tree_.shape == (0, 4)
    assert model.cluster_persistence_.shape == (0,)


def test_all_noise(any_backend: str) -> None:
    X = np.random.default_rng(0).random((5, 128))
    for method in ("eom", "leaf"):
        model = HDBSCAN(3, cluster_selection_method=method, backend=any_backend).fit(X)
        assert set(model.labels_) == {-1}
        assert model.probabilities_.tolist() == [0.0] * 5
        assert model.cluster_persistence_.shape == (0,)


def test_pickle(any_backend: str) -> None:
    model = HDBSCAN(backend=any_backend).fit(two_blobs())
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    np.testing.assert_array_equal(loaded.condensed_tree_, model.condensed_tree_)


def test_progress_shows_one_bar(any_backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = HDBSCAN(backend=any_backend).fit(two_blobs())
    assert capsys.readouterr() == ("", "")
    model = HDBSCAN(backend=any_backend, progress=True).fit(two_blobs())
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    np.testing.assert_array_equal(model.labels_, quiet.labels_)


def test_the_bar_of_every_stage_ends_full(monkeypatch: pytest.MonkeyPatch, any_backend: str) -> None:
    stages: list[list[Any]] = []

    class Recorded(Progress):
        def stage(self, name: str, total: int | None = None) -> None:
            stages.append([name, total, 0])

        def advance(self, k: int = 1) -> None:
            stages[-1][2] += k

    monkeypatch.setattr("mreach.estimator.open_progress", lambda show: Recorded())
    HDBSCAN(backend=any_backend, progress=True).fit(np.random.default_rng(0).normal(size=(300, 3)))
    assert stages[-1] == ["hierarchy", 1, 1]
    assert all(done == total for _, total, done in stages)


def test_available_backends_say_why_not() -> None:
    backends = mreach.available_backends()
    assert list(backends) == ["reference", "cpu", "cuda"]
    for entry in backends.values():
        assert entry["available"] is (entry["reason"] is None)
        assert entry["description"]
    assert backends["reference"]["available"]
    assert all(entry["available"] is (entry["reason"] is None) for entry in backends["cuda"]["devices"])


def test_a_named_backend_that_cannot_run_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(RuntimeError, match=r"backend='cuda' cannot run here: .* needs CuPy"):
        HDBSCAN(backend="cuda").fit(two_blobs())


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_without_the_compiled_core(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = importlib.import_module

    def import_without_core(module: str, package: str | None = None) -> Any:
        if module == "mreach.backends.cpu":
            raise ImportError("no mreach._core for this machine")
        return real_import(module, package)

    monkeypatch.setattr(importlib, "import_module", import_without_core)
    with pytest.raises(RuntimeError, match=f"backend='{name}'.* cannot run here: .*no mreach._core for this"):
        select_backend(name, None, 100, 3)
    assert select_backend("reference", None, 100, 3).NAME == "reference"


def test_auto_chooses_the_compiled_core() -> None:
    # An installed mreach has its core. Without it this fails; the numeric tests on "cpu" are only skipped.
    assert HDBSCAN().fit(two_blobs()).backend_ == "cpu"


def test_reference_refuses_what_does_not_fit_into_memory() -> None:
    with pytest.raises(MemoryError, match=r"for 10000000 rows.* Use backend='cpu'"):
        select_backend("reference", None, 10_000_000, 3)


def threads_of(n_jobs: int | None) -> int:
    return check_parameters(HDBSCAN(n_jobs=n_jobs)).n_threads


def test_threads_outside_joblib() -> None:
    cores = joblib.cpu_count()
    assert [threads_of(n) for n in (None, -1, 1, 3)] == [cores, cores, 1, 3]
    assert threads_of(-2) == max(1, cores - 1)
    with joblib.parallel_config(n_jobs=2):  # asks for workers, but this is not one of them
        assert threads_of(None) == cores
    assert joblib.Parallel(n_jobs=1)(joblib.delayed(threads_of)(None) for _ in range(2)) == [cores] * 2


@pytest.mark.parametrize("kind", ["loky", "threading", "multiprocessing"])
def test_threads_inside_joblib_workers(kind: str) -> None:
    if kind == "multiprocessing" and sys.platform == "win32":
        pytest.skip("joblib's multiprocessing backend wants fork")
    cores = joblib.cpu_count()
    parallel = joblib.Parallel(n_jobs=2, backend=kind)
    assert parallel(joblib.delayed(threads_of)(None) for _ in range(4)) == [1] * 4
    assert max(parallel(joblib.delayed(threads_of)(16) for _ in range(4))) <= max(1, cores // 2)


@pytest.mark.parametrize("kind", ["loky", "threading"])
def test_fits_inside_joblib_workers(kind: str, any_backend: str) -> None:
    X = two_blobs()
    expected = HDBSCAN(backend=any_backend).fit_predict(X)
    parallel = joblib.Parallel(n_jobs=2, backend=kind)
    for labels in parallel(
        joblib.delayed(HDBSCAN(backend=any_backend, n_jobs=16).fit_predict)(X) for _ in "ab"
    ):
        np.testing.assert_array_equal(labels, expected)


def test_progress_told_to_a_function(any_backend: str) -> None:
    """Each stage from nothing to all of it; what the function raises ends the fit, and fits go on after."""
    X = np.random.default_rng(0).normal(size=(3000, 20))
    calls: list[tuple[str, int, int | None]] = []
    model = HDBSCAN(backend=any_backend, progress=lambda *call: calls.append(call)).fit(X)
    assert calls[-1] == ("hierarchy", 1, 1)
    for name in {name for name, _, _ in calls}:
        done = [count for stage, count, _ in calls if stage == name]
        assert done[0] == 0
        assert done == sorted(done)
    calls.clear()
    model.predict(X[:200])
    assert (calls != []) == (any_backend != "reference")

    def cancel(stage: str, done: int, total: int | None) -> None:
        raise InterruptedError(f"no {stage}")

    with pytest.raises(InterruptedError, match="no "):
        model.set_params(progress=cancel).fit(X)
    assert_same_bits(
        model.set_params(progress=False).fit(X).core_distances_,
        HDBSCAN(backend=any_backend).fit(X).core_distances_,
        "core distances",
    )

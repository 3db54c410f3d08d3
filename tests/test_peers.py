"""Parameter names of other libraries, and warnings about results without a cluster."""

import pickle
import re
from typing import Any

import numpy as np
import pytest
from joblib import Memory
from sklearn.base import clone

import mreach
from mreach import HDBSCAN, NoClustersWarning


def two_groups() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.vstack([rng.normal(size=(30, 2)), rng.normal(12, 1, (30, 2))])


@pytest.mark.parametrize(
    "given",
    [
        {"algorithm": "kd_tree"},
        {"algorithm": "best"},
        {"algorithm": "boruvka_balltree"},
        {"leaf_size": 3},
        {"copy": True},
        {"copy": "warn"},
        {"gen_min_span_tree": True},
        {"approx_min_span_tree": True},
        {"approx_min_span_tree": False},
        {"core_dist_n_jobs": 2},
        {"match_reference_implementation": False},
        {"branch_detection_data": False},
        {"cluster_selection_persistence": 0.0},
        {"memory": None},
        {"memory": Memory(location=None)},
        {"cluster_selection_epsilon_max": np.inf},
    ],
    ids=str,
)
def test_names_that_change_nothing(given: dict[str, Any]) -> None:
    X = two_groups()
    model = clone(HDBSCAN(backend="reference", **given)).fit(X)
    expected = HDBSCAN(backend="reference").fit(X)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    assert expected.labels_.max() == 1


def test_threads_by_the_name_of_hdbscan() -> None:
    assert HDBSCAN(core_dist_n_jobs=3).n_jobs == 3
    assert clone(HDBSCAN(core_dist_n_jobs=3)).n_jobs == 3
    with pytest.raises(TypeError, match="give one of the two"):
        HDBSCAN(core_dist_n_jobs=3, n_jobs=2)


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ({"cluster_selection_persistence": 0.1}, "leave out clusters with small cluster_persistence_"),
        ({"match_reference_implementation": True}, "leave it out"),
        ({"branch_detection_data": True}, "out of the scope of mreach"),
        ({"memory": Memory(location="cache", verbose=0)}, "pickle the fitted model"),
        ({"metric_kwds": {}}, "use metric_params"),
        ({"eps": 1.0}, "dbscan_clustering(cut_distance)"),
        ({"verbose": True}, "progress=True"),
        ({"min_cluster_sizes": 5}, "did you mean 'min_cluster_size'?"),
        ({"xyz": 5}, "HDBSCAN has no parameter 'xyz'; it has min_cluster_size, min_samples"),
    ],
    ids=str,
)
def test_names_that_mean_nothing_here(given: dict[str, Any], instead: str) -> None:
    with pytest.raises(TypeError, match=re.escape(instead)):
        HDBSCAN(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"algorithm": "fastest"}, "algorithm must be one of 'auto', 'brute'"),
        ({"leaf_size": 0}, "leaf_size must be an integer of at least 1, got 0"),
        ({"copy": 1}, "copy must be True or False, got 1"),
        ({"cluster_selection_epsilon_max": None}, "inf switches it off"),
        ({"cluster_selection_epsilon_max": np.nan}, "must be a number, got nan"),
        (
            {"cluster_selection_epsilon": 2.0, "cluster_selection_epsilon_max": 1.0},
            "must be at least cluster_selection_epsilon=2.0, got 1.0",
        ),
    ],
    ids=str,
)
def test_values_out_of_range(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        HDBSCAN(backend="reference", **given).fit(two_groups())


def test_branches_are_out_of_scope() -> None:
    with pytest.raises(AttributeError, match="branches inside clusters are out of the scope of mreach"):
        mreach.BranchDetector  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        mreach.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"min_cluster_size": 20, "min_samples": 5}, "all 30 rows are noise: .*allow_single_cluster=True"),
        ({"min_cluster_size": 31, "min_samples": 5}, "min_cluster_size=31 is more than there are"),
        ({"max_cluster_size": 4}, "as many as min_cluster_size=5 and at most max_cluster_size=4"),
        ({"max_cluster_size": 20, "allow_single_cluster": True}, "raise max_cluster_size"),
    ],
    ids=str,
)
def test_everything_noise_is_said(given: dict[str, Any], advice: str) -> None:
    X = two_groups()[:30]
    with pytest.warns(NoClustersWarning, match=advice) as caught:
        model = HDBSCAN(backend="reference", **given).fit(X)
    assert model.labels_.max() == -1
    assert caught[0].filename == __file__
    pickle.loads(pickle.dumps(model))


def test_a_cut_says_so_too_and_a_sweep_does_not(recwarn: pytest.WarningsRecorder) -> None:
    model = HDBSCAN(backend="reference").fit(two_groups())
    model.cut_many([5, 61])
    assert not recwarn.list
    with pytest.warns(NoClustersWarning, match="min_cluster_size=61 is more than there are") as caught:
        model.cut(min_cluster_size=61)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_nothing_is_selected_above_epsilon_max(backend: str) -> None:
    """Four groups in two pairs: above the distance of a pair only its groups may be selected."""
    X = np.concatenate([np.arange(8.0) + start for start in (0, 20, 200, 220)])[:, np.newaxis]
    model = HDBSCAN(min_samples=2, allow_single_cluster=True, backend=backend)
    assert model.set_params(cluster_selection_epsilon=50.0).fit(X).labels_.max() == 1
    limited = model.set_params(cluster_selection_epsilon=0.0, cluster_selection_epsilon_max=20.0).fit(X)
    assert np.bincount(limited.labels_).tolist() == [8, 8, 8, 8]
    heights = limited.cut(cluster_selection_epsilon_max=np.inf, cluster_selection_epsilon=50.0)
    assert heights.labels_.max() == 1

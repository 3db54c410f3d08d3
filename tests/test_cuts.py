"""Other cuts of the trees of a fit: each equals, bit for bit, a separate fit with its parameters."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
from conftest import FITTED_ATTRIBUTES, assert_same_bits, skip_unless_available
from datasets import load
from parameters import VALUES, Parameters, combinations
from sklearn.cluster import DBSCAN
from sklearn.exceptions import NotFittedError

from mreach import HDBSCAN, hierarchy, row_order
from mreach.backends import reference
from mreach.row_order import N_PROBES, KeptRows, lexicographic_ranks, start_reading
from mreach.validation import Rows

UGLY = (
    "one_row",
    "two_equal_rows",
    "blobs_128_3d",
    "clips_257_float64",
    "rounded_normal",
    "piles_of_equal_rows",
    "all_equal",
    "signed_zeros",
    "lattice_20x20",
    "one_hot_rows",
    "growing_groups",
    "nested_blobs",
    "type_float16",
    "layout_fortran",
    "non_finite_rows",
)

CUT_VALUES = ("min_cluster_size", "method", "epsilon", "max_cluster_size", "allow_single_cluster")


def mirrored(seed: int = 3) -> np.ndarray:
    """Six blobs of 20 rows each: the labels follow from the smallest rows alone."""
    rng = np.random.default_rng(seed)
    blob = rng.normal(size=(20, 2))
    centres = rng.permutation([[0, 0], [0, 30], [30, 0], [30, 30], [-30, 60], [60, -30]])
    return rng.permutation(np.vstack([blob + centre for centre in centres]))


def cut_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Leave out of the parameters of a fit what a cut cannot change."""
    return {name: value for name, value in given.items() if name not in ("min_samples", "alpha")}


def assert_same_fit(actual: HDBSCAN, expected: HDBSCAN) -> None:
    for name in FITTED_ATTRIBUTES:
        assert_same_bits(getattr(actual, name), getattr(expected, name), name)
    assert actual.get_params() == expected.get_params()
    assert actual.backend_ == expected.backend_


def refit(model: HDBSCAN, X: np.ndarray) -> HDBSCAN:
    """Fit anew with the parameters of a cut."""
    return HDBSCAN(**model.get_params()).fit(X)


# ---------------------------------------------------------------------------------------------------------
# cut
# ---------------------------------------------------------------------------------------------------------


def test_a_number_of_clusters_within_epsilon_max(any_backend: str) -> None:
    # Pairs of groups that join at 1, groups of pairs that join at 9.
    X = np.array([0.0, 0.1, 1.1, 1.2, 10.2, 10.3, 11.3, 11.4])[:, np.newaxis]
    keywords: dict[str, Any] = {"min_cluster_size": 2, "backend": any_backend, "allow_single_cluster": True}
    model = HDBSCAN(cluster_selection_epsilon_max=4.0, cluster_selection_method="leaf", **keywords).fit(X)
    assert model.cut(n_clusters=4).labels_.max() == 3
    two = model.cut(n_clusters=2)
    assert two.cluster_selection_epsilon == 4.0  # any up to 8.9, and a fit takes none above 4
    assert_same_fit(two, refit(two, X))
    with pytest.raises(ValueError, match="the nearest possible: 2"):
        model.cut(n_clusters=1)


@pytest.mark.parametrize("dataset", UGLY)
def test_a_cut_equals_a_fit(dataset: str, any_backend: str) -> None:
    """The trees of one fit, cut by the parameters of others, directly and after pickling."""
    X = load(dataset)
    asked = [parameters.for_data(X) for parameters in combinations(dataset)]
    first = asked[0]
    model = HDBSCAN(backend=any_backend, **first).fit(X)
    before = {name: getattr(model, name).copy() for name in FITTED_ATTRIBUTES}
    loaded = pickle.loads(pickle.dumps(model))
    for other in asked:
        arguments = cut_arguments(other)
        samples = first["min_samples"] or first["min_cluster_size"]
        if first["min_samples"] is None and other["min_cluster_size"] is None:
            samples = None
        expected = HDBSCAN(backend=any_backend, min_samples=samples, alpha=first["alpha"], **arguments).fit(X)
        assert_same_fit(model.cut(**arguments), expected)
        assert_same_fit(loaded.cut(**arguments), expected)
    for name in FITTED_ATTRIBUTES:
        assert_same_bits(getattr(model, name), before[name], name)
    assert model.get_params() == HDBSCAN(backend=any_backend, **first).get_params()


def test_the_parameters_cover_all_pairs() -> None:
    seen = set()
    for dataset in UGLY:
        for parameters in combinations(dataset):
            values = [(name, getattr(parameters, name)) for name in CUT_VALUES]
            seen |= {(one, other) for one in values for other in values}
    every = [(name, value) for name in CUT_VALUES for value in VALUES[name]]
    assert {(one, other) for one in every for other in every if one[0] != other[0]} <= seen


def test_none_means_as_fitted(any_backend: str) -> None:
    X = load("nested_blobs")
    given = Parameters(5, 3, 1.5, "leaf", True, True, True).for_data(X)
    model = HDBSCAN(backend=any_backend, **given).fit(X)
    assert_same_fit(model.cut(), model)
    assert_same_fit(model.cut(None, None, None, None), model)
    assert model.cut(max_cluster_size=None).max_cluster_size is None
    assert model.cut().max_cluster_size == given["max_cluster_size"]
    assert model.cut(cluster_selection_method="eom").cluster_selection_epsilon > 0

    model.set_params(min_cluster_size=2, cluster_selection_method="eom", alpha=1.0)  # not fitted with them
    assert model.cut().get_params() == HDBSCAN(backend=any_backend, **given).get_params()


def test_min_samples_stays_that_of_the_trees(any_backend: str) -> None:
    X = load("blobs_128_3d")
    model = HDBSCAN(min_cluster_size=4, backend=any_backend).fit(X)
    assert model.cut(cluster_selection_method="leaf").min_samples is None
    cut = model.cut(min_cluster_size=9)
    assert (cut.min_cluster_size, cut.min_samples) == (9, 4)
    assert_same_fit(cut, refit(cut, X))
    again = cut.cut(min_cluster_size=6)
    assert (again.min_cluster_size, again.min_samples) == (6, 4)
    assert_same_fit(again, refit(again, X))
    assert_same_fit(again.fit(X), refit(again, X))  # it is an estimator like any other


def test_trees_are_shared_and_clusters_are_not(any_backend: str) -> None:
    model = HDBSCAN(backend=any_backend).fit(load("non_finite_rows"))
    cut = model.cut()
    for name in ("core_distances_", "minimum_spanning_tree_", "single_linkage_tree_"):
        assert getattr(cut, name) is getattr(model, name)
    for name in ("labels_", "probabilities_", "condensed_tree_"):
        assert not np.shares_memory(getattr(cut, name), getattr(model, name))
    assert cut.n_features_in_ == model.n_features_in_


def test_numbers_beyond_64_bits(any_backend: str) -> None:
    X = load("blobs_128_3d")
    model = HDBSCAN(backend=any_backend).fit(X)
    cut = model.cut(min_cluster_size=10**30, max_cluster_size=10**30)
    assert set(cut.labels_) == {-1}
    assert cut.min_samples == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_cluster_size": 1}, "min_cluster_size must be an integer of at least 2, got 1"),
        ({"cluster_selection_method": "best"}, "cluster_selection_method must be one of 'eom', 'leaf'"),
        ({"cluster_selection_epsilon": -1.0}, "cluster_selection_epsilon must be at least 0"),
        ({"allow_single_cluster": 1}, "allow_single_cluster must be True or False, got 1"),
        ({"max_cluster_size": 0}, "for no limit use max_cluster_size=None"),
        ({"max_cluster_size": "fitted"}, "None (no limit) or 'as fitted', got 'fitted'"),
        ({"n_clusters": 0}, "n_clusters must be an integer of at least 1, got 0"),
        ({"n_clusters": 2, "cluster_selection_epsilon": 1.0}, "give one of the two"),
    ],
)
def test_wrong_parameters(arguments: dict[str, Any], message: str) -> None:
    model = HDBSCAN(backend="reference").fit(load("blobs_63_1d"))
    with pytest.raises(ValueError, match=re.escape(message)):
        model.cut(**arguments)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.cut_many([5], **arguments) if "min_cluster_size" not in arguments else model.cut_many([1])


def test_before_a_fit() -> None:
    with pytest.raises(NotFittedError):
        HDBSCAN().cut()
    with pytest.raises(NotFittedError):
        HDBSCAN().cut_many([5])
    with pytest.raises(NotFittedError):
        HDBSCAN().dbscan_clustering(1.0)


def test_cases_7_14_15(any_backend: str) -> None:
    """Seen elsewhere: another cut than the fit's; noise left below epsilon; epsilon ignored, TypeError."""
    rng = np.random.default_rng(0)
    X = rng.random((300, 2))
    model = HDBSCAN(min_cluster_size=15, backend=any_backend).fit(X)
    assert_same_fit(model.cut(), model)
    cut = model.cut(cluster_selection_epsilon=10.0, allow_single_cluster=True)
    assert set(cut.labels_) == {0}
    corners = np.array([(0, 0), (1, 0), (0, 1), (10, 10), (11, 10), (10, 11)], float)
    X = np.repeat(corners, 10, axis=0) + rng.normal(0, 0.02, (60, 2))
    model = HDBSCAN(min_cluster_size=5, backend=any_backend).fit(X)
    assert model.labels_.max() + 1 == 6
    for cut in (model.cut(cluster_selection_epsilon=1.5), model.cut(n_clusters=2)):
        assert sorted(map(set, (cut.labels_[:30], cut.labels_[30:])), key=min) == [{0}, {1}]
        assert_same_fit(cut, refit(cut, X))


# ---------------------------------------------------------------------------------------------------------
# Clusters of equal size, and the data that order them
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prediction_data", [False, True])
@pytest.mark.parametrize("not_finite", [False, True])
def test_equal_sizes_follow_the_rows(not_finite: bool, prediction_data: bool, any_backend: str) -> None:
    X = mirrored()
    if not_finite:
        X = np.insert(X, [0, 50, 120], [[np.nan, 0], [0, np.inf], [-np.inf, np.nan]], axis=0)
    model = HDBSCAN(121, 3, prediction_data=prediction_data, backend=any_backend).fit(X)
    for one in (model, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        cut = one.cut(min_cluster_size=5)
        smallest = [tuple(X[cut.labels_ == label].min(axis=0)) for label in range(6)]
        first = [min(map(tuple, X[cut.labels_ == label])) for label in range(6)]
        assert len(set(smallest)) == 6
        assert first == sorted(first)
        assert np.bincount(cut.labels_[cut.labels_ >= 0]).tolist() == [20] * 6
        assert_same_fit(cut, refit(cut, X))
        labels = one.dbscan_clustering(15.0)
        assert labels.tolist() == cut.labels_.tolist()


@pytest.mark.parametrize("change", ["scaled", "reused", "nan"])
@pytest.mark.parametrize("prediction_data", [False, True])
def test_data_changed_in_place_are_noticed(change: str, prediction_data: bool, any_backend: str) -> None:
    """No wrong order of labels; and where the order does not matter, no error."""
    X = mirrored()
    model = HDBSCAN(min_samples=3, prediction_data=prediction_data, backend=any_backend).fit(X)
    expected = copy.deepcopy(model).cut(min_cluster_size=20)
    saved = pickle.dumps(model)
    if change == "scaled":
        X *= -1
    elif change == "reused":
        X[:] = np.random.default_rng(0).normal(size=X.shape)
    else:
        X[:, 1] = np.nan
    message = re.escape("X was changed in place after the fit")
    for one in (model, pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match=message):
            one.cut(min_cluster_size=20)
        with pytest.raises(ValueError, match=message):
            one.dbscan_clustering(15.0)
        assert set(one.cut(min_cluster_size=121).labels_) == {-1}
        assert set(one.dbscan_clustering(1e3)) == {0}
    assert_same_fit(pickle.loads(saved).cut(min_cluster_size=20), expected)


def test_a_pickle_without_prediction_holds_no_rows() -> None:
    X = np.random.default_rng(0).normal(size=(300, 200))
    model = HDBSCAN(prediction_data=False, backend="reference").fit(X)
    assert len(pickle.dumps(model)) < X.nbytes / 4
    assert model._rows.finite is None


def test_data_on_a_gpu_are_not_kept() -> None:
    skip_unless_available("cuda")
    import cupy as cp

    for X in (mirrored(), np.insert(mirrored(), 7, np.nan, axis=0)):
        for prediction_data in (False, True):
            model = HDBSCAN(min_samples=3, prediction_data=prediction_data, backend="cuda").fit(cp.asarray(X))
            assert isinstance(model._rows.data._data, np.ndarray)
            assert_same_fit(model.cut(min_cluster_size=20), model.cut(min_cluster_size=20).fit(X))


def test_rows_that_cannot_be_kept_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        """Rows that the fit reads on the host when asked, as those on a GPU."""

        def __init__(self, X: np.ndarray) -> None:
            self.X, self.shape = X, X.shape

        def __getitem__(self, key: Any) -> np.ndarray:
            return self.X[key]

    X = mirrored()
    none = np.empty(0, np.int64)
    rows = Rows(None, Elsewhere(X), len(X), None, none, none)
    monkeypatch.setattr(row_order, "SLICE_ROWS", 50)
    ties = KeptRows.of(object(), rows, start_reading(object(), rows, False), False)
    edges = HDBSCAN(min_samples=3, backend="reference").fit(X).minimum_spanning_tree_
    expected = reference.cut(edges, min_cluster_size=5, data=X)
    X *= -1
    for data in (ties, pickle.loads(pickle.dumps(ties))):
        for cut in (reference.cut, hierarchy.cut):
            assert_same_bits(cut(edges, min_cluster_size=5, data=data).labels, expected.labels, "labels")


@pytest.mark.parametrize("dataset", [name for name in UGLY if name != "non_finite_rows"])
def test_ranks_order_rows(dataset: str) -> None:
    X = np.asarray(load(dataset), np.float64)
    rows = [tuple(row) for row in X.tolist()]
    assert lexicographic_ranks(X).tolist() == [sum(other < row for other in rows) for row in rows]


def test_few_rows_are_remembered() -> None:
    X = np.zeros((10_000, 30))
    assert KeptRows(X)._probe_values.shape == (N_PROBES, 30)


# ---------------------------------------------------------------------------------------------------------
# A number of clusters
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["eom", "leaf"])
@pytest.mark.parametrize("allow_single_cluster", [False, True])
@pytest.mark.parametrize("dataset", ["blobs_128_3d", "rounded_normal", "piles_of_equal_rows", "nested_blobs"])
def test_n_clusters(dataset: str, method: str, allow_single_cluster: bool, any_backend: str) -> None:
    """Against every epsilon that could matter, one by one."""
    X = load(dataset)
    if any_backend == "reference":
        X = X[::4]  # it takes its time
    model = HDBSCAN(4, 3, cluster_selection_method=method, backend=any_backend).fit(X)
    arguments: dict[str, Any] = {"allow_single_cluster": allow_single_cluster}
    weights = np.unique(model.minimum_spanning_tree_["weight"])
    possible: dict[int, float] = {}
    for epsilon in (0.0, *weights, np.nextafter(weights[-1], np.inf)):
        cut = model.cut(cluster_selection_epsilon=float(epsilon), **arguments)
        possible[int(cut.labels_.max()) + 1] = float(epsilon)
    assert len(possible) > 1 or dataset != "nested_blobs" or any_backend == "reference"
    for n_clusters in range(1, max(possible) + 2):
        if n_clusters not in possible:
            near = [max((n for n in possible if n < n_clusters), default=None)]
            near += [min((n for n in possible if n > n_clusters), default=None)]
            listed = " and ".join(str(n) for n in near if n is not None)
            message = f"gives n_clusters={n_clusters}; the nearest possible: {listed}"
            with pytest.raises(ValueError, match=f"{message}(;|$)"):
                model.cut(n_clusters=n_clusters, **arguments)
            continue
        cut = model.cut(n_clusters=n_clusters, **arguments)
        assert cut.labels_.max() + 1 == n_clusters
        expected = model.cut(cluster_selection_epsilon=possible[n_clusters], **arguments)
        assert_same_bits(cut.labels_, expected.labels_, "labels_")
        assert_same_bits(cut.probabilities_, expected.probabilities_, "probabilities_")
        assert_same_fit(cut, refit(cut, X))
    if allow_single_cluster:
        assert set(model.cut(n_clusters=1, **arguments).labels_) == {0}


def test_what_n_clusters_says_to_do() -> None:
    model = HDBSCAN(min_samples=3, backend="reference").fit(mirrored())
    with pytest.raises(ValueError, match="possible: 6; cluster_selection_method='leaf' or a smaller"):
        model.cut(n_clusters=50)
    with pytest.raises(ValueError, match="; a smaller min_cluster_size can give more"):
        model.cut(n_clusters=50, cluster_selection_method="leaf")
    with pytest.raises(ValueError, match=r"possible: [23]; a larger min_cluster_size can give fewer"):
        model.cut(n_clusters=1)
    one = HDBSCAN(2, 1, backend="reference").fit([[1.0]])
    with pytest.raises(ValueError, match="the nearest possible: 0"):
        one.cut(n_clusters=1)


# ---------------------------------------------------------------------------------------------------------
# Sweeps
# ---------------------------------------------------------------------------------------------------------


def test_a_sweep_equals_single_cuts(any_backend: str) -> None:
    X = load("non_finite_rows")
    model = HDBSCAN(backend=any_backend).fit(X)
    sizes = [20, np.int64(3), 5, 5, 2, 10**9]
    cuts = model.cut_many(sizes, cluster_selection_method="leaf", max_cluster_size=30)
    assert [cut.min_cluster_size for cut in cuts] == sizes
    for cut, size in zip(cuts, sizes, strict=True):
        assert_same_fit(cut, model.cut(size, "leaf", max_cluster_size=30))
        assert_same_fit(cut, refit(cut, X))
    assert model.cut_many([]) == []
    assert [cut.min_cluster_size for cut in model.cut_many(range(4, 6))] == [4, 5]


@pytest.mark.parametrize("sizes", [5, "57", None])
def test_a_sweep_needs_a_sequence(sizes: Any) -> None:
    model = HDBSCAN(backend="reference").fit(load("blobs_63_1d"))
    with pytest.raises(ValueError, match="min_cluster_sizes must be a sequence of integers"):
        model.cut_many(sizes)


# ---------------------------------------------------------------------------------------------------------
# dbscan_clustering
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("min_cluster_size", [1, 2, 5])
@pytest.mark.parametrize("dataset", UGLY)
def test_dbscan_clustering_by_its_definition(dataset: str, min_cluster_size: int, any_backend: str) -> None:
    """The same from both hierarchies, and from the distances by hand."""
    X = load(dataset)
    n_finite = int(np.isfinite(np.asarray(X, np.float64)).all(axis=1).sum())
    model = HDBSCAN(min_samples=min(4, n_finite), alpha=1.5, backend=any_backend).fit(X)
    finite = np.flatnonzero(~np.isnan(model.core_distances_))
    core = model.core_distances_[finite]
    mutual = mutual_reachability(np.asarray(X, np.float64)[finite], core, 1.5)
    weights = model.minimum_spanning_tree_["weight"]
    for distance in (
        (0.0, *np.quantile(weights, [0.1, 0.5, 0.9, 1], method="lower")) if len(weights) else (0,)
    ):
        labels = model.dbscan_clustering(float(distance), min_cluster_size)
        assert labels.dtype == np.int64
        expected = np.array(model.labels_)
        rows = np.asarray(X, np.float64)[finite]
        expected[finite] = dbscan_star(rows, core, mutual, distance, min_cluster_size)
        np.testing.assert_array_equal(labels, expected)
        loaded = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(loaded.dbscan_clustering(distance, min_cluster_size), expected)


def mutual_reachability(X: np.ndarray, core: np.ndarray, alpha: float) -> np.ndarray:
    squared = np.zeros((len(X), len(X)))
    for column in X.T:
        difference = column[:, None] - column
        squared = squared + difference * difference
    return np.maximum(np.maximum(core[:, None], core), np.sqrt(squared) / alpha)


def dbscan_star(
    X: np.ndarray, core: np.ndarray, mutual: np.ndarray, distance: float, min_cluster_size: int
) -> np.ndarray:
    """Spread labels over the matrix until nothing changes."""
    component = np.arange(len(X))
    linked = mutual <= distance
    np.fill_diagonal(linked, True)
    while True:
        spread = np.where(linked, component, len(X)).min(axis=1)
        if (spread == component).all():
            break
        component = spread
    found = []
    for number in np.unique(component[core <= distance]):
        rows = np.flatnonzero(component == number)
        if len(rows) >= min_cluster_size:
            found.append((-len(rows), min(tuple(X[row].tolist()) for row in rows), rows))
    labels = np.full(len(X), -1)
    for label, (_, _, rows) in enumerate(sorted(found, key=lambda one: one[:2])):
        labels[rows] = label
    return labels


@pytest.mark.parametrize("seed", range(5))
def test_dbscan_clustering_equals_scikit_learn(seed: int, any_backend: str) -> None:
    """The core samples of DBSCAN fall into the same clusters; its border rows are noise here."""
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.normal(centre, 1.0, (60, 2)) for centre in rng.uniform(0, 20, (5, 2))])
    model = HDBSCAN(min_samples=6, backend=any_backend).fit(X)
    for distance in np.quantile(model.core_distances_, [0.05, 0.3, 0.7, 0.95]) * 1.0001:  # between distances
        peer = DBSCAN(eps=distance, min_samples=6).fit(X)
        labels = model.dbscan_clustering(distance, min_cluster_size=1)
        np.testing.assert_array_equal(np.flatnonzero(labels >= 0), peer.core_sample_indices_)
        pairs = set(zip(labels[labels >= 0].tolist(), peer.labels_[labels >= 0].tolist(), strict=True))
        assert len(pairs) == labels.max() + 1 == peer.labels_.max() + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0,), "cut_distance must be at least 0, got -1.0"),
        ((np.inf,), "cut_distance must be a finite number"),
        (("1",), "cut_distance must be a number, got '1'"),
        ((1.0, 0), "min_cluster_size must be an integer of at least 1, got 0"),
        ((1.0, 2.5), "min_cluster_size must be an integer of at least 1, got 2.5"),
    ],
)
def test_wrong_distance_cuts(arguments: tuple[Any, ...], message: str) -> None:
    model = HDBSCAN(backend="reference").fit(load("blobs_63_1d"))
    with pytest.raises(ValueError, match=re.escape(message)):
        model.dbscan_clustering(*arguments)


def test_a_cut_has_scores_of_its_own_and_no_centres() -> None:
    X = np.random.default_rng(1).normal(size=(300, 2))
    X[:100] += 8
    model = HDBSCAN(min_cluster_size=10, store_centers="both", backend="reference").fit(X)
    scores = model.outlier_scores_
    cut = model.cut(min_cluster_size=40)
    separate = HDBSCAN(**cut.get_params()).fit(X)
    assert not hasattr(cut, "centroids_")
    assert not hasattr(cut, "medoids_")
    assert np.array_equal(cut.outlier_scores_, separate.outlier_scores_)
    assert cut.relative_validity_ == separate.relative_validity_
    assert [one.tolist() for one in cut.exemplars_] == [one.tolist() for one in separate.exemplars_]
    assert model.outlier_scores_ is scores
    assert model.centroids_.shape == model.medoids_.shape == (len(model.cluster_persistence_), 2)

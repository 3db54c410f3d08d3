"""Metrics: the fast way equals the definitions bit for bit, in any order of rows; scikit-learn agrees."""

from __future__ import annotations

import math
import pickle
import re
import threading
from typing import Any

import numpy as np
import pytest
import sklearn.cluster
from conftest import FITTED_ATTRIBUTES, assert_same_bits
from sklearn.base import clone
from sklearn.metrics import pairwise_distances

from mreach import HDBSCAN
from mreach.backends import distances, pairwise, reference_metrics
from mreach.backends.distances import FeatureRows
from mreach.backends.pairwise import PairwisePoints
from mreach.backends.reference import nearest_rows as plain_nearest_rows
from mreach.metrics import Metric, great_circle
from mreach.progress import Progress
from mreach.spanning_tree import minimum_spanning_tree

RNG = np.random.default_rng(0)
SETS = {
    "normal": RNG.normal(size=(150, 3)),
    "lattice": np.indices((11, 11)).reshape(2, -1).T * 0.1,
    "duplicates": RNG.integers(0, 3, (120, 4)) * 1.0,
    "blobs": np.vstack([RNG.normal(c, 0.3, (40, 7)) for c in (0, 3, 7)]).astype(np.float32),
    "two values": RNG.integers(0, 2, (90, 6)) * 1.0,
}
TILED = [("manhattan", None), ("chebyshev", None), ("minkowski", 3), ("hamming", None), ("jaccard", None)]


def city_blocks(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum())


def data_for(metric: Any, name: str) -> np.ndarray:
    X = SETS[name]
    if metric == "jaccard":
        return np.median(X, axis=0) < X
    return X[:, :2] / 3 if metric == "haversine" else X


def assert_same_fit(actual: HDBSCAN, expected: HDBSCAN, what: str = "") -> None:
    for name in FITTED_ATTRIBUTES:
        assert_same_bits(getattr(actual, name), getattr(expected, name), f"{what} {name}")


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(("metric", "p"), TILED)
def test_tiled_metrics_equal_the_definition(metric: str, p: float | None, name: str) -> None:
    X = data_for(metric, name)
    for min_samples, alpha in ((1, 1.0), (5, 0.5), (len(X) // 2, 2.0), (len(X), 1.0)):
        model = HDBSCAN(metric=metric, p=p, min_samples=min_samples, alpha=alpha)
        expected = clone(model).set_params(backend="reference").fit(X)
        assert_same_fit(model.set_params(backend="auto").fit(X), expected, f"{min_samples} {alpha}")
        assert model.backend_ == "cpu"


@pytest.mark.parametrize("metric", ["canberra", city_blocks])
def test_whole_matrix_metrics(metric: Any) -> None:
    X = SETS["lattice"][:60]
    expected = HDBSCAN(metric=metric, backend="reference").fit(X)
    assert_same_fit(HDBSCAN(metric=metric).fit(X), expected)
    if callable(metric):
        np.testing.assert_allclose(expected.core_distances_, HDBSCAN(metric="l1").fit(X).core_distances_)


@pytest.mark.parametrize("metric", ["cosine", "correlation", "haversine"])
def test_rows_made_ready_equal_the_definition(metric: str) -> None:
    X = np.vstack([SETS["normal"], 1e200 * SETS["normal"], 1e-310 * SETS["normal"], [[1, 1e-200, 0]]])
    X = np.vstack([X, [[np.nan, np.inf, 1], [1, np.inf, 2]]])
    if metric == "haversine":
        X = data_for(metric, "normal")
    checked = Metric(metric, "filtered")
    assert_same_bits(checked.prepare(X), reference_metrics.prepare_rows(X, checked), metric)
    rows = checked.prepare(X)[: len(SETS["normal"])]
    np.testing.assert_allclose((rows**2).sum(axis=1), 1, rtol=1e-14)


@pytest.mark.parametrize(
    "metric",
    ["cosine", "correlation", "haversine", "manhattan", "jaccard", "canberra", "seuclidean", "mahalanobis"],
)
def test_order_of_rows_changes_nothing(metric: str) -> None:
    X = data_for(metric, "duplicates") * 1.0
    if metric in ("cosine", "correlation"):
        X += np.arange(1, 5)
    order = np.random.default_rng(1).permutation(len(X))
    model = HDBSCAN(metric=metric, backend="reference").fit(X)
    shuffled = HDBSCAN(metric=metric, backend="reference").fit(X[order])
    for name in ("labels_", "probabilities_", "core_distances_", "outlier_scores_"):
        assert_same_bits(getattr(shuffled, name), getattr(model, name)[order], name)
    assert_same_bits(
        shuffled.minimum_spanning_tree_["weight"], model.minimum_spanning_tree_["weight"], "weights"
    )


@pytest.mark.parametrize(
    ("metric", "parameters"),
    [
        ("l1", {}),
        ("chebyshev", {}),
        ("minkowski", {"p": 1.5}),
        ("minkowski", {"p": 2}),
        ("hamming", {}),
        ("jaccard", {}),
        ("cosine", {}),
        ("haversine", {}),
        ("braycurtis", {}),
        ("seuclidean", {"V": np.array([1.0, 2.0, 3.0])}),
        ("seuclidean", {}),
        ("mahalanobis", {}),
    ],
)
def test_weights_agree_with_scikit_learn(metric: str, parameters: dict[str, Any]) -> None:
    X = data_for(metric, "normal")
    ours = HDBSCAN(metric=metric, metric_params=parameters, backend="reference").fit(X)
    theirs = sklearn.cluster.HDBSCAN(metric=metric, metric_params=parameters, algorithm="brute", copy=True)
    if metric in ("cosine", "haversine"):  # scikit-learn's own cosine rounds otherwise; it has no haversine
        matrix = pairwise_distances(X, metric=metric)
        theirs.set_params(metric="precomputed", metric_params=None).fit((matrix + matrix.T) / 2)
    else:
        theirs.fit(X)
    weights = np.sort(theirs._single_linkage_tree_["value"])
    atol = 1e-15 if metric in ("cosine", "haversine") else 0
    np.testing.assert_allclose(ours.minimum_spanning_tree_["weight"], weights, rtol=1e-12, atol=atol)


def test_great_circles() -> None:
    assert great_circle(np.array([0.0, 1.0, 2.0, 2.0 + 1e-15])).tolist() == [
        0.0,
        2 * math.asin(0.5),
        math.pi,
        math.pi,
    ]
    model = HDBSCAN(metric="haversine", min_cluster_size=2, min_samples=1, backend="reference")
    model.fit([[0.0, 0.0], [math.pi / 2, 1.0], [0.0, math.pi]])
    np.testing.assert_allclose(model.minimum_spanning_tree_["weight"], [math.pi / 2] * 2, rtol=1e-15)


@pytest.mark.parametrize("metric", ["cosine", "correlation", "haversine"])
def test_filtered_metrics_equal_the_definition(metric: str, backend: str) -> None:
    rng = np.random.default_rng(3)
    sets = [np.radians(rng.normal([50, 10], 2, (400, 2)).round(1))]
    if metric != "haversine":
        sets = [
            rng.random((300, 8)),
            rng.integers(1, 4, (300, 4)) * np.arange(1.0, 5),  # many rows of equal directions
            np.vstack([rng.normal(c, 0.1, (80, 61)) for c in (-1, 0, 1)]).astype(np.float32),
            np.c_[np.ones(60), np.zeros(60), rng.normal(size=60) * 1e-170],  # differ by what does not count
            np.c_[np.ones(60), np.zeros(60), rng.normal(size=60) * 1e-110],
        ]
    for X in sets:
        for alpha in (1.0,) if metric == "haversine" else (1.0, 0.5):
            model = HDBSCAN(metric=metric, min_samples=4, alpha=alpha, backend="reference")
            expected = clone(model).fit(X)
            assert_same_fit(model.set_params(backend=backend).fit(X), expected, f"{alpha} {X[0]}")


def test_minkowski_with_a_metric_of_its_own() -> None:
    X = SETS["normal"]
    for p, name in ((1, "manhattan"), (2.0, "euclidean"), (np.inf, "chebyshev")):
        assert_same_fit(HDBSCAN(metric="minkowski", p=p).fit(X), HDBSCAN(metric=name).fit(X))
    assert_same_fit(HDBSCAN(metric="minkowski").fit(X), HDBSCAN().fit(X))


# Case 23
def test_cosine_with_a_row_of_zeros() -> None:
    X = np.random.default_rng(0).random((200, 8))
    model = HDBSCAN(metric="cosine", backend="reference").fit(X)
    assert np.isfinite(model.probabilities_).all()
    assert_same_bits(HDBSCAN(metric="cosine", backend="reference").fit(4 * X).labels_, model.labels_, "x 4")
    X[[7, 31]] = 0
    with pytest.raises(ValueError, match=r"holds rows of zeros.*\(rows: 2\): leave out rows 7, 31"):
        HDBSCAN(metric="cosine").fit(X)
    X[[7, 31]] = np.nan
    assert (HDBSCAN(metric="cosine", backend="reference").fit(X).labels_[[7, 31]] == -3).all()
    X[[7, 31]] = 1.5
    with pytest.raises(ValueError, match="holds constant rows"):
        HDBSCAN(metric="correlation").fit(X)


@pytest.mark.parametrize("metric", ["cosine", "correlation", "haversine", "l1", "hamming", "jaccard", "dice"])
def test_rows_that_are_not_finite(metric: str) -> None:
    X = data_for(metric, "normal") * 1.0
    whole = HDBSCAN(metric=metric, backend="reference").fit(X[2:])
    X[0, 0], X[1, 1] = np.nan, -np.inf
    model = HDBSCAN(metric=metric, backend="reference").fit(X)
    assert model.labels_[:2].tolist() == [-3, -2]
    assert_same_bits(model.labels_[2:], whole.labels_, metric)
    assert_same_bits(model.core_distances_[2:], whole.core_distances_, metric)


REFUSED = [
    ({"metric": "sqeuclidean"}, "use metric='euclidean'"),
    ({"metric": "euclid"}, "metric must be one of 'euclidean', 'cosine'"),
    ({"metric": 3}, "or a function of two rows, got 3"),
    ({"metric": "l1", "metric_params": {"w": [1]}}, "metric='l1' takes no metric_params"),
    ({"metric_params": [1]}, "metric_params must be None or a dict"),
    ({"p": 3}, "p belongs to metric='minkowski'"),
    ({"metric": "minkowski", "p": 0.5}, "p must be at least 1, got 0.5"),
    ({"metric": "minkowski", "p": 3, "metric_params": {"p": 4}}, "give one of the two"),
    ({"metric": "haversine", "alpha": 2.0}, "needs alpha=1.0"),
    ({"metric": "haversine"}, "needs 2 features"),
    ({"metric": "l1", "backend": "cuda"}, "computed on the host: use backend='auto'"),
    ({"metric": "l1", "device": 0}, "device=0 was asked for"),
    ({"metric": "jaccard"}, "say what counts as true"),
]


@pytest.mark.parametrize(("parameters", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        HDBSCAN(**parameters).fit(SETS["normal"])


def test_latitudes_in_degrees() -> None:
    X = np.random.default_rng(0).uniform(-80, 80, (30, 2))
    for fit in (HDBSCAN(metric="haversine").fit, HDBSCAN(metric="haversine").fit_predict):
        with pytest.warns(UserWarning, match=r"latitudes lie beyond pi/2.*numpy.radians") as caught:
            fit(X)
        assert {warning.filename for warning in caught} == {__file__}  # where the user called


def test_a_whole_matrix_beyond_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "MATRIX_SHARE", 1e-9)
    with pytest.raises(MemoryError, match="needs the whole matrix of 150 x 150 distances"):
        HDBSCAN(metric="canberra").fit(SETS["normal"])


def test_a_function_that_is_no_distance() -> None:
    with pytest.raises(ValueError, match="which is no distance"):
        HDBSCAN(metric=lambda one, other: -1.0).fit(SETS["normal"][:20])


# Case 27, for sums of differences
def test_distances_beyond_float64() -> None:
    X = np.array([[1.5e308, 0.0], [-1.5e308, 0.0], [0.0, 1.0], [0.0, 2.0]])
    for metric in ("l1", "chebyshev", "minkowski"):
        with pytest.raises(ValueError, match=r"Multiply X by 2\*\*-\d+"):
            HDBSCAN(metric=metric, p=3 if metric == "minkowski" else None, min_samples=2).fit(X)
    tiny = HDBSCAN(metric="l1", min_samples=2, min_cluster_size=2).fit([[5e-324], [0.0], [1e-323]])
    assert tiny.core_distances_.tolist() == [5e-324] * 3


# Case 37
def test_clone_keeps_metric_parameters() -> None:
    model = HDBSCAN(metric="minkowski", metric_params={"p": 3})
    copied = clone(model)
    assert copied.metric_params == {"p": 3}
    X = SETS["normal"]
    assert_same_fit(copied.fit(X), HDBSCAN(metric="minkowski", p=3).fit(X))
    assert model.metric_params == {"p": 3}


@pytest.mark.parametrize("metric", ["manhattan", "cosine", "haversine"])
def test_medoids_by_the_metric(metric: str) -> None:
    X = np.abs(SETS["normal"][:, :2]) / 4
    model = HDBSCAN(metric=metric, min_samples=3, store_centers="both", backend="reference").fit(X)
    for label, medoid in enumerate(model.medoids_):
        rows = X[model.labels_ == label]
        sums = pairwise_distances(rows, metric=metric) @ model.probabilities_[model.labels_ == label]
        np.testing.assert_allclose(sums[(rows == medoid).all(axis=1)].min(), sums.min(), rtol=1e-9)
    assert model.centroids_.shape == (model.labels_.max() + 1, 2)


def test_short_lists_and_small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    X = SETS["duplicates"]
    expected = HDBSCAN(metric="l1", min_samples=6).fit(X)
    monkeypatch.setattr(pairwise, "TILE_BYTES", 8 * len(X) * 3)
    monkeypatch.setattr(pairwise, "LIST_BYTES", 16 * len(X) * 2)
    assert_same_fit(HDBSCAN(metric="l1", min_samples=6, n_jobs=3).fit(X), expected)


def test_an_error_in_a_tile_is_raised_by_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(FeatureRows):
        def rows(self, numbers: np.ndarray) -> np.ndarray:
            raise RuntimeError("broken")

    monkeypatch.setattr(pairwise, "FeatureRows", Broken)
    with pytest.raises(RuntimeError, match="broken"):
        HDBSCAN(metric="l1").fit(SETS["normal"])


def test_a_bar_that_is_interrupted_ends_the_threads() -> None:
    class Interrupts(Progress):
        def advance(self, k: int = 1) -> None:
            raise KeyboardInterrupt

    points = PairwisePoints(
        FeatureRows(SETS["normal"], Metric("manhattan", "tiled")), n_threads=2, progress=Interrupts()
    )
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        points.core_distances(3)
    assert threading.active_count() == before


def test_few_rows_are_scanned() -> None:
    X = np.random.default_rng(0).normal(size=(3000, 2))
    points = PairwisePoints(FeatureRows(X, Metric("manhattan", "tiled")), n_threads=2, progress=Progress())
    points.core_distances(5)
    scanned = []
    scan = points._scan
    points._scan = lambda rows: scanned.append(len(rows)) or scan(rows)  # type: ignore[method-assign]
    assert len(minimum_spanning_tree(points, 1.0)) == len(X) - 1
    assert sum(scanned) < len(X) / 2


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("known_core", [False, True])
def test_nearest_rows_mean_the_same(alpha: float, known_core: bool) -> None:
    X, new = SETS["lattice"], np.vstack([SETS["lattice"][::7], SETS["normal"][:9, :2]])
    core = HDBSCAN(backend="reference").fit(X).core_distances_
    known = np.linspace(0, 0.3, len(new)) if known_core else None
    keywords = {"core_distances": core, "alpha": alpha, "min_samples": 4, "new_core_distances": known}
    expected = plain_nearest_rows(X, new, **keywords, candidates=core < 0.3)
    allowed = np.flatnonzero(core < 0.3)
    euclidean = Metric("euclidean", "filtered")
    found = pairwise.nearest_rows(
        lambda some: distances.feature_distances(euclidean, new[some], X),
        len(new),
        order=allowed[np.lexsort((allowed, *X[allowed].T[::-1]))],
        n_threads=2,
        **keywords,
    )
    for name in ("core_distances", "rows", "weights"):
        assert_same_bits(getattr(found, name), getattr(expected, name), name)


def test_equal_rows_that_a_metric_puts_apart() -> None:
    # By "russellrao" rows of zeros are at distance 1 from each other, copies of one row at 0: clusters of
    # equal size have equal smallest rows, and the smallest row number comes first.
    X, weights = np.zeros((7, 2)), [2, 4, 3, 2, 4, 3, 2]
    model = HDBSCAN(2, metric="russellrao", cluster_selection_method="leaf")
    expected = clone(model).set_params(backend="reference").fit(X, sample_weight=weights)
    assert expected.labels_.tolist() == [4, 0, 2, 5, 1, 3, 6]
    model.fit(X, sample_weight=weights)
    assert_same_fit(model, expected)
    assert pickle.loads(pickle.dumps(model)).cut().labels_.tolist() == expected.labels_.tolist()


def test_a_function_may_write_to_its_rows() -> None:
    def distance(one: np.ndarray, other: np.ndarray) -> float:
        found = city_blocks(one, other)
        one[:] = 0.0
        return found

    X = SETS["lattice"][:20].copy()
    HDBSCAN(metric=distance).fit(X)
    np.testing.assert_array_equal(X, SETS["lattice"][:20])


def test_a_metric_that_is_not_defined_names_the_users_rows() -> None:
    X = [[np.nan, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    with pytest.raises(
        ValueError, match=r"from row 1 to 3 of X by metric='dice' is nan.*leave out these rows"
    ):
        HDBSCAN(2, metric="dice").fit(X)


def test_parameters_of_mahalanobis() -> None:
    X = SETS["normal"]
    covariance = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 1.0]])
    given = HDBSCAN(metric="mahalanobis", metric_params={"V": covariance}).fit(X)
    inverse = {"VI": np.linalg.inv(covariance)}
    assert_same_fit(given, HDBSCAN(metric="mahalanobis", metric_params=inverse).fit(X))
    for parameters in ({"V": covariance, **inverse}, {"V": np.ones((3, 3))}, {"V": "x"}):
        with pytest.raises(ValueError, match=r"one of the two|give a covariance matrix of full rank, or VI"):
            HDBSCAN(metric="mahalanobis", metric_params=parameters).fit(X)
    with pytest.raises(ValueError, match=r"constant or depend on each other.*metric_params"):
        HDBSCAN(metric="mahalanobis").fit(np.column_stack((X, X[:, 0])) * [1, 0, 1, 1])
    for metric in ("mahalanobis", "seuclidean"):
        with pytest.raises(ValueError, match="takes variances from X, and one row has none: give more rows"):
            HDBSCAN(metric=metric, min_samples=1).fit(X[:1])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_alpha_too_small_for_bounded_distances(backend: str) -> None:
    for metric in ("cosine", "correlation", "hamming", "jaccard"):
        with pytest.raises(ValueError, match="alpha=1e-320 is too small for these data"):
            HDBSCAN(metric=metric, alpha=1e-320, backend=backend).fit(np.eye(20, dtype=bool))


def test_quotients_that_overflow_are_not_connected() -> None:
    X = SETS["normal"][:40]
    for metric in (city_blocks, "canberra"):
        model = HDBSCAN(metric=metric, alpha=1e-320, min_samples=2)  # a warning would be an error
        expected = clone(model).set_params(backend="reference").fit(X)
        assert np.isinf(expected.minimum_spanning_tree_["weight"]).all()
        assert_same_fit(model.fit(X), expected)


def test_metrics_of_a_wrong_type() -> None:
    with pytest.raises(ValueError, match="metric must be one of"):
        HDBSCAN(metric=np.zeros(3)).fit(SETS["normal"])
    for p, parameters in ((3, {"p": np.array([3, 4])}), (np.nan, None)):
        with pytest.raises(ValueError, match=r"give one of the two|p must be a finite number"):
            HDBSCAN(metric="minkowski", p=p, metric_params=parameters).fit(SETS["normal"])

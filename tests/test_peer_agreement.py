"""scikit-learn and hdbscan on the same data with the same options, case by case: equal, or why not.

``min_samples`` is given to hdbscan as one less: it does not count the row itself. Where a partition
differs, the reference's hierarchy says whether a tie explains it (``test_sklearn_agreement`` tells of the
two kinds); what no tie explains is a fault or a convention of the peer, named in the table. A verdict that
changes fails.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import sklearn.cluster
from scipy.spatial.distance import cdist
from test_sklearn_agreement import find_ties, partition_without

from mreach import HDBSCAN

rng = np.random.default_rng


def blobs() -> np.ndarray:
    centres = np.array([[0, 0], [8, 0], [0, 8], [9, 9.0]])
    return (centres[:, None] + rng(0).normal(size=(4, 60, 2))).reshape(-1, 2)


def near_blobs() -> np.ndarray:
    corner = np.array([[0, 0], [1, 0], [0, 1]])
    centres = np.vstack([corner, corner + 10])
    return (centres[:, None] + 0.02 * rng(0).normal(size=(6, 20, 2))).reshape(-1, 2)


def not_finite() -> np.ndarray:
    X = blobs()
    X[3, 0], X[5, 1] = np.nan, np.inf
    return X


def one_blob() -> np.ndarray:
    return rng(0).normal(size=(30, 2))


def lattice() -> np.ndarray:
    return np.indices((20, 20)).reshape(2, -1).T.astype(float)


def piles() -> np.ndarray:
    return np.repeat(rng(0).normal(size=(20, 2)), 8, axis=0)


def triangles() -> np.ndarray:
    return np.array([[0, 0], [1, 0], [0, 1], [10, 0], [11, 0], [10, 1.0]])


def uniform() -> np.ndarray:
    return rng(0).random((300, 2))


def wide() -> np.ndarray:
    return rng(0).normal(size=(100, 128))


def directions() -> np.ndarray:
    return rng(0).normal(size=(90, 8)) + 3 * np.repeat(np.eye(8)[:3], 30, axis=0)


def places() -> np.ndarray:
    return blobs() / 10 - 0.5


def matrix() -> np.ndarray:
    return cdist(blobs(), blobs())


class Case(NamedTuple):
    """Options in the words of this library, and the verdict on each peer: what, and for "differs" why."""

    data: Callable[[], np.ndarray]
    options: dict[str, Any]
    scikit_learn: str
    hdbscan: str


TIED = "tied rows"
INVENTED = "a cluster of ties"
LEAF_ROOT = "differs: it never selects a root without children by 'leaf'"
NO_ROW_BUT_ITSELF = "ValueError: it does not count the row itself, so min_samples=1 is its 0"
WITHOUT_ALPHA = "other weights: its default, Borůvka's algorithm, pays no heed to alpha"
NO_COSINE = "ValueError: it has no cosine distance between rows"
WITHOUT_P = "other weights: its searches by trees differ from its whole matrix, which equals ours"
TYPE_ERROR = "TypeError: it takes an array for a number when epsilon merges clusters"

CASES = {
    "defaults": Case(blobs, {}, TIED, TIED),
    "larger clusters": Case(blobs, {"min_cluster_size": 15}, TIED, TIED),
    "min_samples": Case(blobs, {"min_cluster_size": 10, "min_samples": 3}, TIED, TIED),
    "min_samples 1": Case(blobs, {"min_cluster_size": 10, "min_samples": 1}, "equal", NO_ROW_BUT_ITSELF),
    "leaf": Case(blobs, {"min_cluster_size": 10, "cluster_selection_method": "leaf"}, TIED, TIED),
    "alpha 0.5": Case(blobs, {"min_cluster_size": 10, "alpha": 0.5}, "equal", WITHOUT_ALPHA),
    "alpha 2": Case(blobs, {"min_cluster_size": 10, "alpha": 2.0}, TIED, WITHOUT_ALPHA),
    "epsilon": Case(blobs, {"min_samples": 2, "cluster_selection_epsilon": 0.2}, "equal", "equal"),
    "epsilon merges": Case(near_blobs, {"cluster_selection_epsilon": 1.5}, TYPE_ERROR, "equal"),
    "one cluster": Case(one_blob, {"min_cluster_size": 20, "allow_single_cluster": True}, "equal", "equal"),
    "one cluster by leaf": Case(
        one_blob,
        {"min_cluster_size": 20, "allow_single_cluster": True, "cluster_selection_method": "leaf"},
        LEAF_ROOT,
        LEAF_ROOT,
    ),
    "one cluster by epsilon": Case(
        uniform,
        {"min_cluster_size": 15, "cluster_selection_epsilon": 10.0, "allow_single_cluster": True},
        "equal",
        "equal",
    ),
    "max_cluster_size": Case(blobs, {"max_cluster_size": 70}, TIED, TIED),
    "lattice": Case(lattice, {}, INVENTED, INVENTED),
    "rows that are not finite": Case(not_finite, {"min_cluster_size": 10}, TIED, TIED),
    "piles of equal rows": Case(piles, {}, "equal", "equal"),
    "triangles": Case(triangles, {"min_cluster_size": 3, "min_samples": 3}, "equal", "equal"),
    "manhattan": Case(blobs, {"metric": "manhattan"}, TIED, TIED),
    "chebyshev": Case(blobs, {"metric": "chebyshev"}, TIED, TIED),
    "minkowski": Case(blobs, {"metric": "minkowski", "p": 3}, TIED, WITHOUT_P),
    "cosine": Case(directions, {"metric": "cosine", "min_samples": 1}, "equal", NO_COSINE),
    "haversine": Case(places, {"metric": "haversine"}, TIED, TIED),
    "precomputed": Case(matrix, {"metric": "precomputed"}, TIED, TIED),
    "leaf without leaves": Case(
        wide, {"min_cluster_size": 40, "cluster_selection_method": "leaf"}, "equal", "equal"
    ),
}


def fit_scikit_learn(X: np.ndarray, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and sorted tree weights."""
    options = dict(options)
    if "p" in options:
        options["metric_params"] = {"p": options.pop("p")}
    model = sklearn.cluster.HDBSCAN(copy=True, **options).fit(X)
    return model.labels_, np.sort(model._single_linkage_tree_["value"])


def fit_hdbscan(X: np.ndarray, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and sorted tree weights, of the exact tree."""
    samples = options.get("min_samples", options.get("min_cluster_size", 5)) - 1
    options = {"max_cluster_size": 0, **options, "min_samples": samples}
    hdbscan = pytest.importorskip("hdbscan", reason="needs hdbscan")
    model = hdbscan.HDBSCAN(approx_min_span_tree=False, core_dist_n_jobs=1, **options).fit(X)
    return model.labels_, np.sort(model.single_linkage_tree_.to_numpy()[:, 2])


def verdict_on(
    fit: Callable[..., tuple[np.ndarray, np.ndarray]], X: np.ndarray, options: dict[str, Any]
) -> str:
    """Say how a peer's result compares with ours, in the words of the table."""
    ours = HDBSCAN(backend="cpu", **options).fit(X)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels, weights = fit(X.copy(), options)
    except (TypeError, ValueError) as error:
        return type(error).__name__
    finite = len(ours.minimum_spanning_tree_)
    if not np.allclose(ours.minimum_spanning_tree_["weight"], weights[:finite], rtol=1e-12, atol=0):
        return "other weights"
    if same_partition(ours.labels_, labels):
        return "equal"
    # The reference's hierarchy numbers the finite rows alone.
    finite_rows = np.flatnonzero(np.isfinite(X).all(axis=1))
    finite = ours if len(finite_rows) == len(X) else HDBSCAN(backend="cpu", **options).fit(X[finite_rows])
    tree = finite.minimum_spanning_tree_
    ties = find_ties(tree, ours.min_cluster_size)
    tied_rows = np.r_[finite_rows[ties.tied_rows], np.setdiff1d(np.arange(len(X)), finite_rows)]
    if partition_without(ours.labels_, tied_rows) == partition_without(labels, tied_rows):
        return TIED
    return INVENTED if ties.may_invent else "differs"


def same_partition(one: np.ndarray, other: np.ndarray) -> bool:
    none = np.empty(0, np.intp)
    return partition_without(one, none) == partition_without(other, none)


@pytest.mark.parametrize("name", CASES)
def test_scikit_learn(name: str) -> None:
    case = CASES[name]
    assert verdict_on(fit_scikit_learn, case.data(), case.options) == case.scikit_learn.partition(":")[0]


@pytest.mark.parametrize("name", CASES)
def test_hdbscan(name: str) -> None:
    case = CASES[name]
    assert verdict_on(fit_hdbscan, case.data(), case.options) == case.hdbscan.partition(":")[0]

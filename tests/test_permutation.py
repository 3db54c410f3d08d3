"""The order of the rows changes nothing but the numbers of the rows."""

import zlib

import numpy as np
import pytest
from conftest import assert_same_bits, cut_of
from datasets import DATASETS, EXTERNAL, load
from parameters import Parameters, combinations

import mreach

pytestmark = pytest.mark.filterwarnings("ignore:.*allow_single_cluster")


def shuffle(X: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return shuffled rows and, for each, the number it had before."""
    order = np.random.default_rng(seed).permutation(len(X))
    return X[order], order


def condensed_by_content(model: mreach.HDBSCAN, n: int, row_names: np.ndarray) -> np.ndarray:
    """Return the condensed tree with each cluster named by its smallest row, its birth and its size.

    Which number a cluster has follows the row numbers where births are equal; what it is does not.
    """
    tree = model.condensed_tree_
    clusters = tree[tree["child"] >= n]
    birth = {n: 0.0, **dict(zip(clusters["child"].tolist(), clusters["lambda_val"].tolist(), strict=True))}
    size = dict(zip(clusters["child"].tolist(), clusters["child_size"].tolist(), strict=True))
    smallest: dict[int, int] = {}
    # Children have higher numbers than their parents, and records are sorted by parent.
    for parent, child in zip(tree["parent"][::-1].tolist(), tree["child"][::-1].tolist(), strict=True):
        row = smallest[child] if child >= n else int(row_names[child])
        smallest[parent] = min(smallest.get(parent, row), row)

    def name(node: int) -> tuple[float, ...]:
        if node < n:
            return int(row_names[node]), -1.0, 1
        return smallest[node], birth[node], size.get(node, n)

    records = [
        (*name(parent), lam, *name(child))
        for parent, child, lam in zip(
            tree["parent"].tolist(), tree["child"].tolist(), tree["lambda_val"].tolist(), strict=True
        )
    ]
    return np.array(sorted(records), dtype=np.float64).reshape(-1, 7)


def stabilities_of(model: mreach.HDBSCAN, X: np.ndarray, keywords: dict, backend: str) -> np.ndarray:
    """Return the stabilities of all clusters of the condensed tree, sorted."""
    finite = np.flatnonzero(~np.isnan(model.core_distances_))
    edges = model.minimum_spanning_tree_.copy()
    for end in ("source", "target"):
        edges[end] = np.searchsorted(finite, edges[end])
    keywords = {name: value for name, value in keywords.items() if name not in ("min_samples", "alpha")}
    return np.sort(cut_of(backend)(edges, **keywords).stabilities)


def check_shuffled(X: np.ndarray, keywords: dict, backend: str, seed: int) -> None:
    shuffled, order = shuffle(X, seed)
    model = mreach.HDBSCAN(backend=backend, **keywords).fit(X)
    again = mreach.HDBSCAN(backend=backend, **keywords).fit(shuffled)
    for attribute in ("labels_", "probabilities_", "core_distances_"):
        assert_same_bits(getattr(again, attribute), getattr(model, attribute)[order], attribute)
    assert_same_bits(again.cluster_persistence_, model.cluster_persistence_, "cluster_persistence_")
    assert_same_bits(
        again.minimum_spanning_tree_["weight"], model.minimum_spanning_tree_["weight"], "tree weights"
    )
    assert_same_bits(
        stabilities_of(again, shuffled, keywords, backend),
        stabilities_of(model, X, keywords, backend),
        "stabilities",
    )
    n = len(X)
    assert_same_bits(
        condensed_by_content(again, n, order), condensed_by_content(model, n, np.arange(n)), "condensed_tree_"
    )


@pytest.mark.parametrize("dataset", DATASETS)
def test_shuffled_rows_give_the_same_result(dataset, any_backend):
    X = load(dataset)
    seed = zlib.crc32(dataset.encode())
    check_shuffled(X, Parameters().for_data(X), any_backend, seed)
    if len(X) <= 1000:
        check_shuffled(X, combinations(dataset)[0].for_data(X), any_backend, seed + 1)


@pytest.mark.parametrize("dataset", EXTERNAL)
def test_shuffled_rows_of_external_data_give_the_same_result(dataset, any_backend):
    X = load(dataset)
    check_shuffled(X, Parameters(min_cluster_size=10).for_data(X), any_backend, 0)


def test_twenty_shuffles(any_backend):
    X = np.random.default_rng(0).normal(size=(300, 2))
    for seed in range(20):
        check_shuffled(X, {"min_cluster_size": 8}, any_backend, seed)


@pytest.mark.parametrize("min_cluster_size", [2, 3, 5, 10, 50])
@pytest.mark.parametrize("method", ["eom", "leaf"])
def test_lattice_has_no_clusters(min_cluster_size, method, any_backend):
    X = load("lattice_20x20")
    keywords = {"min_cluster_size": min_cluster_size, "cluster_selection_method": method}
    keywords["min_samples"] = min(min_cluster_size, 3)
    for order in (np.arange(len(X)), np.random.default_rng(1).permutation(len(X))):
        model = mreach.HDBSCAN(backend=any_backend, **keywords).fit(X[order])
        assert (model.labels_ == -1).all()
        assert (model.condensed_tree_["parent"] == len(X)).all()


@pytest.mark.parametrize(
    "dataset", ["rounded_normal", "integer_pairs", "piles_of_equal_rows", "rounded_clips"]
)
def test_equal_rows_have_equal_results(dataset, any_backend):
    X = load(dataset)
    model = mreach.HDBSCAN(backend=any_backend).fit(X)
    _, row_kind = np.unique(X, axis=0, return_inverse=True)
    row_kind = row_kind.ravel()
    first = np.unique(row_kind, return_index=True)[1][row_kind]
    assert (first != np.arange(len(X))).any(), "the data set has equal rows"
    for attribute in ("labels_", "probabilities_", "core_distances_"):
        values = getattr(model, attribute)
        assert_same_bits(values, values[first], attribute)

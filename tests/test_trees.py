"""The trees of a fit as objects: arrays that remember their fit, and what they are turned into."""

from __future__ import annotations

import copy
import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pytest
from conftest import assert_same_bits
from scipy.cluster import hierarchy as scipy_hierarchy

from mreach import HDBSCAN
from mreach.records import CONDENSED_DTYPE, EDGE_DTYPE
from mreach.trees import CondensedTree, MinimumSpanningTree, SingleLinkageTree

# Three groups of three, equally far from each other: the root breaks up into three clusters at once.
THREE = np.array([0.0, 1, 2, 10, 11, 12, 20, 21, 22])[:, np.newaxis]
TREES = ("condensed_tree_", "single_linkage_tree_", "minimum_spanning_tree_")
CLASSES = dict(zip(TREES, (CondensedTree, SingleLinkageTree, MinimumSpanningTree), strict=True))


def three(**options: Any) -> HDBSCAN:
    return HDBSCAN(3, min_samples=2, backend="reference", **options).fit(THREE)


def with_other_rows() -> HDBSCAN:
    """Return a fit whose rows 0 and 4 are not finite."""
    X = np.insert(np.insert(THREE, 3, np.nan, axis=0), 0, np.inf, axis=0)
    return HDBSCAN(3, min_samples=2, backend="reference").fit(X)


@pytest.fixture(params=TREES)
def tree(request: pytest.FixtureRequest) -> Any:
    return getattr(three(), request.param)


# ---------------------------------------------------------------------------------------------------------
# Arrays
# ---------------------------------------------------------------------------------------------------------


def test_the_trees_are_arrays_of_a_class_of_their_own(any_backend):
    model = HDBSCAN(3, min_samples=2, backend=any_backend).fit(THREE)
    for name in TREES:
        assert type(getattr(model, name)) is CLASSES[name]
    assert model.condensed_tree_.dtype == CONDENSED_DTYPE
    assert model.minimum_spanning_tree_.dtype == EDGE_DTYPE
    assert model.single_linkage_tree_.dtype == np.float64
    assert model.condensed_tree_["lambda_val"].tolist() == [1 / 8] * 3 + [1.0] * 9
    assert model.single_linkage_tree_[:, 2].tolist() == [1.0] * 6 + [8.0] * 2
    assert model.minimum_spanning_tree_["weight"].tolist() == [1.0] * 6 + [8.0] * 2


PARTS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda tree: tree[1:],
    "whole slice": lambda tree: tree[:],
    "ellipsis": lambda tree: tree[...],
    "mask": lambda tree: tree[np.ones(len(tree), bool)],
    "iteration": lambda tree: np.asarray(next(iter(tree))),
    "equal": lambda tree: tree == tree,
    "not equal": lambda tree: tree != tree,
    "equal to an array": lambda tree: np.asarray(tree) == tree,
    "T": lambda tree: tree.T,
    "real": lambda tree: tree.real,
    "flat": lambda tree: tree.flat[:2],
    "argsort": lambda tree: tree.argsort(axis=0),
    "argpartition": lambda tree: np.argpartition(tree, 1, axis=0),
    "reshape": lambda tree: tree.reshape(-1),
    "ravel": lambda tree: tree.ravel(),
    "flatten": lambda tree: tree.flatten(),
    "transpose": lambda tree: tree.transpose(),
    "swapaxes": lambda tree: tree.swapaxes(0, -1),
    "squeeze": lambda tree: tree.squeeze(),
    "take": lambda tree: tree.take([0], axis=0),
    "repeat": lambda tree: tree.repeat(2, axis=0),
    "compress": lambda tree: tree.compress([True], axis=0),
    "astype": lambda tree: tree.astype(tree.dtype),
    "view": lambda tree: tree.view(),
    "bytes": lambda tree: tree.view(np.uint8),
    "concatenate": lambda tree: np.concatenate((tree, tree)),
    "split": lambda tree: np.split(tree, [1])[0],
    "sort": lambda tree: np.sort(tree, axis=0),
    "copy to an array": lambda tree: np.array(tree),
    "asarray": lambda tree: np.asarray(tree),
    "ascontiguousarray": lambda tree: np.ascontiguousarray(tree),
    "where": lambda tree: np.where(np.ones(tree.shape, bool), tree, tree),
    "zeros_like": lambda tree: np.zeros_like(tree),
    "stack": lambda tree: np.stack([tree, tree]),
}


@pytest.mark.parametrize("part", PARTS)
def test_parts_and_results_are_plain_arrays(tree, part):
    assert type(PARTS[part](tree)) is np.ndarray
    assert_same_bits(PARTS[part](tree), PARTS[part](np.array(tree)), part)


def test_arithmetic_gives_what_it_gives_for_an_array():
    tree = three().single_linkage_tree_
    same = np.array(tree)
    for operation in (np.sqrt, np.negative, lambda one: one + one, lambda one: 2 * one, lambda one: one > 1):
        assert type(operation(tree)) is np.ndarray
        np.testing.assert_array_equal(operation(tree), operation(same))
    for reduction in (
        np.max,
        np.sum,
        lambda one: one.mean(),
        lambda one: one.max(),
        lambda one: np.add.reduce(one, None),
    ):
        assert type(reduction(tree)) is np.float64
        assert reduction(tree) == reduction(same)
    assert type(tree.cumsum(axis=0)) is np.ndarray
    assert type(np.add(same, same, out=tree.copy())) is SingleLinkageTree  # what was handed in comes back
    assert np.array_equal(tree, same)
    assert np.allclose(tree, same)
    for of_lines in (
        lambda one: one.dot(np.ones(4)),
        lambda one: one.conj(),
        lambda one: one.imag,
        lambda one: np.linalg.svd(one)[0],
        lambda one: np.linalg.pinv(one),
    ):
        assert type(of_lines(tree)) is np.ndarray
        np.testing.assert_array_equal(of_lines(tree), of_lines(same))
    assert (tree @ np.ones(4)).tolist() == (same @ np.ones(4)).tolist()


def test_changing_a_copy_in_place_keeps_the_class():
    tree = three().single_linkage_tree_.copy()
    tree *= 2
    tree[0, 2] = 7.0
    assert type(tree) is SingleLinkageTree
    assert tree[:3, 2].tolist() == [7.0, 2.0, 2.0]
    records = three().condensed_tree_.copy()
    records["lambda_val"] = 1.0
    assert set(records["lambda_val"]) == {1.0}


def test_trees_are_not_hashable(tree):
    with pytest.raises(TypeError, match="unhashable"):
        hash(tree)


def through_joblib(tree: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(tree, file)
    file.seek(0)
    return joblib.load(file)


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy method": lambda tree: tree.copy(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {p}": lambda tree, p=p: pickle.loads(pickle.dumps(tree, p)) for p in range(6)},
    "joblib": through_joblib,
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_and_pickles_keep_class_values_and_memory(way):
    model = three()
    for name in TREES:
        tree = getattr(model, name)
        again = COPIES[way](tree)
        assert type(again) is type(tree)
        assert again is not tree
        assert_same_bits(again, tree, name)
        assert repr(again) == repr(tree)
        assert again.flags.writeable
    condensed = COPIES[way](model.condensed_tree_)
    assert condensed.selected.tolist() == model.condensed_tree_.selected.tolist() == [10, 11, 12]
    assert condensed.labels.tolist() == model.labels_.tolist()
    linkage = COPIES[way](model.single_linkage_tree_)
    assert linkage.get_clusters(1.0, 3).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_model_keeps_its_trees_through_a_pickle():
    model = three()
    again = pickle.loads(pickle.dumps(model))
    for name in TREES:
        assert type(getattr(again, name)) is CLASSES[name]
        assert_same_bits(getattr(again, name), getattr(model, name), name)
    assert again.outlier_scores_.tolist() == model.outlier_scores_.tolist()
    assert again.condensed_tree_.selected.tolist() == [10, 11, 12]


def test_scores_are_kept_for_the_very_trees_they_were_made_of():
    model = three()
    scores = model.outlier_scores_
    assert model.outlier_scores_ is scores
    model.condensed_tree_ = model.condensed_tree_.copy()
    assert model.outlier_scores_ is not scores


def test_a_cut_has_a_condensed_tree_of_its_own_and_shares_the_others():
    model = three()
    one = model.cut(9, allow_single_cluster=True)
    assert one.condensed_tree_.selected.tolist() == [9]
    assert set(one.condensed_tree_.labels) == {0}
    assert model.condensed_tree_.selected.tolist() == [10, 11, 12]
    assert one.single_linkage_tree_ is model.single_linkage_tree_
    assert one.minimum_spanning_tree_ is model.minimum_spanning_tree_


def test_scipy_takes_the_linkage():
    tree = three().single_linkage_tree_
    assert scipy_hierarchy.is_valid_linkage(tree)
    flat = scipy_hierarchy.fcluster(tree, 1.0, "distance")
    assert flat.tolist() == np.repeat(flat[::3], 3).tolist()
    assert len(set(flat)) == 3
    assert len(scipy_hierarchy.dendrogram(tree, no_plot=True)["leaves"]) == 9


def test_repr_says_what_it_is():
    model = three()
    first = [repr(getattr(model, name)).splitlines()[0] for name in TREES]
    assert first == [
        "<CondensedTree: 9 rows, 4 clusters, 3 selected>",
        "<SingleLinkageTree: 8 merges of 9 rows>",
        "<MinimumSpanningTree: 8 edges>",
    ]
    assert "(0, 1, 1.)" in repr(model.minimum_spanning_tree_)
    one = HDBSCAN(min_samples=1, backend="reference").fit([[1.0]])
    assert [repr(getattr(one, name)).splitlines()[0] for name in TREES] == [
        "<CondensedTree: no records, of one row>",
        "<SingleLinkageTree: 0 merges of 1 row>",
        "<MinimumSpanningTree: 0 edges>",
    ]


# ---------------------------------------------------------------------------------------------------------
# Arrays, data frames, graphs
# ---------------------------------------------------------------------------------------------------------


def test_to_numpy_is_a_plain_copy_with_the_columns_of_hdbscan():
    model = three()
    condensed = model.condensed_tree_.to_numpy()
    assert type(condensed) is np.ndarray
    assert condensed.dtype.names == ("parent", "child", "lambda_val", "child_size")
    assert_same_bits(condensed, model.condensed_tree_, "condensed")
    assert not np.shares_memory(condensed, model.condensed_tree_)
    assert_same_bits(model.single_linkage_tree_.to_numpy(), model.single_linkage_tree_, "linkage")
    edges = model.minimum_spanning_tree_.to_numpy()
    assert edges.dtype == np.float64
    assert edges[[0, -1]].tolist() == [[0, 1, 1.0], [5, 6, 8.0]]


def test_to_pandas_has_the_columns_of_hdbscan():
    pytest.importorskip("pandas")
    model = with_other_rows()
    condensed = model.condensed_tree_.to_pandas()
    assert condensed.columns.tolist() == ["parent", "child", "lambda_val", "child_size"]
    assert [str(kind) for kind in condensed.dtypes] == ["int64", "int64", "float64", "int64"]
    assert condensed.to_numpy().tolist() == [list(map(float, one)) for one in model.condensed_tree_.tolist()]
    linkage = model.single_linkage_tree_.to_pandas()
    assert linkage.columns.tolist() == ["parent", "left_child", "right_child", "distance", "size"]
    assert [str(kind) for kind in linkage.dtypes] == ["int64", "int64", "int64", "float64", "int64"]
    assert linkage["parent"].tolist() == list(range(11, 21))
    assert linkage.iloc[-1].tolist() == [20, 4, 19, np.inf, 11]
    np.testing.assert_array_equal(linkage.iloc[:, 1:].to_numpy(), model.single_linkage_tree_)
    edges = model.minimum_spanning_tree_.to_pandas()
    assert edges.columns.tolist() == ["from", "to", "distance"]
    assert edges.to_numpy().tolist() == model.minimum_spanning_tree_.to_numpy().tolist()
    for frame, name in ((condensed, "condensed_tree_"), (edges, "minimum_spanning_tree_")):
        frame.iloc[:, 0] = -1
        assert getattr(model, name).tolist()[0][0] != -1  # a frame of its own


def test_the_condensed_tree_as_a_graph():
    networkx = pytest.importorskip("networkx")
    model = three()
    graph = model.condensed_tree_.to_networkx()
    assert graph.is_directed()
    assert networkx.is_arborescence(graph)
    assert sorted(graph.successors(9)) == [10, 11, 12]
    assert dict(graph.nodes(data="size")) == {9: 9, 10: 3, 11: 3, 12: 3, **dict.fromkeys(range(9), 1)}
    assert graph.edges[9, 11]["weight"] == 1 / 8
    assert {graph.edges[11, row]["weight"] for row in (3, 4, 5)} == {1.0}
    assert all(type(node) is int for node in graph)


def test_the_linkage_as_a_graph():
    networkx = pytest.importorskip("networkx")
    model = with_other_rows()
    graph = model.single_linkage_tree_.to_networkx()
    assert networkx.is_arborescence(graph)
    assert len(graph) == 21
    assert sorted(graph.successors(20)) == [4, 19]
    assert graph.edges[20, 4]["weight"] == np.inf
    assert graph.nodes[20]["size"] == 11
    assert graph.nodes[4]["size"] == 1
    for parent, left, right, distance, size in model.single_linkage_tree_.to_pandas().to_numpy().tolist():
        assert sorted(graph.successors(parent)) == sorted((left, right))
        assert graph.edges[parent, right]["weight"] == distance
        assert graph.nodes[parent]["size"] == size


def test_the_spanning_tree_as_a_graph():
    networkx = pytest.importorskip("networkx")
    model = with_other_rows()
    graph = model.minimum_spanning_tree_.to_networkx()
    assert not graph.is_directed()
    assert networkx.is_tree(graph)
    assert sorted(graph) == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert graph.edges[7, 8]["weight"] == 8.0


def test_graphs_of_one_row():
    pytest.importorskip("networkx")
    model = HDBSCAN(min_samples=1, backend="reference").fit([[1.0]])
    assert len(model.condensed_tree_.to_networkx()) == 0
    assert list(model.single_linkage_tree_.to_networkx()) == [0]
    assert list(model.minimum_spanning_tree_.to_networkx()) == [0]


def test_sizes_of_rows_may_be_above_one():
    pytest.importorskip("networkx")
    records = np.array([(3, 0, 0.5, 2), (3, 1, 1.0, 4), (3, 2, 1.0, 1)], CONDENSED_DTYPE)
    tree = records.view(CondensedTree)
    assert dict(tree.to_networkx().nodes(data="size")) == {3: 7, 0: 2, 1: 4, 2: 1}
    assert repr(tree).startswith("<CondensedTree: 3 rows, 1 cluster>\n")


@pytest.mark.parametrize("package", ["pandas", "networkx", "matplotlib"])
def test_a_missing_package_is_named_with_its_extra(tree, package, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    method = {"pandas": "to_pandas", "networkx": "to_networkx", "matplotlib": "plot"}[package]
    extra = "plot" if package == "matplotlib" else "frames"
    options = (
        {"X": np.zeros((9, 2))} if package == "matplotlib" and "source" in (tree.dtype.names or ()) else {}
    )
    with pytest.raises(ImportError, match=rf"needs {package}, .* pip install 'mreach\[{extra}\]'"):
        getattr(tree, method)(**options)


# ---------------------------------------------------------------------------------------------------------
# Clusters at a distance
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [three, with_other_rows])
@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("distance", [0.0, 0.5, 1.0, 7.9, 8.0, 100.0])
def test_get_clusters_equals_dbscan_clustering(make, distance, size):
    model = make()
    labels = model.single_linkage_tree_.get_clusters(distance, size)
    assert_same_bits(labels, model.dbscan_clustering(distance, size), "labels")


def test_get_clusters_defaults_as_hdbscan():
    tree = three().single_linkage_tree_
    assert tree.get_clusters(1.0).tolist() == [-1] * 9
    assert tree.get_clusters(cut_distance=8.0, min_cluster_size=5).tolist() == [0] * 9


def test_get_clusters_refuses():
    tree = three().single_linkage_tree_
    with pytest.raises(ValueError, match="cut_distance must be at least 0"):
        tree.get_clusters(-1)
    with pytest.raises(ValueError, match="min_cluster_size must be an integer of at least 1"):
        tree.get_clusters(1.0, 0)
    with pytest.raises(ValueError, match="take it from the model"):
        np.array(tree).view(SingleLinkageTree).get_clusters(1.0)


# ---------------------------------------------------------------------------------------------------------
# Deep trees
# ---------------------------------------------------------------------------------------------------------


def test_a_chain_of_100_000_rows_is_turned_into_everything():
    groups = np.cumsum(np.arange(1.0, 50_001))
    model = HDBSCAN(2, min_samples=1, backend="cpu").fit(np.stack((groups, groups + 0.1), 1).reshape(-1, 1))
    tree = model.condensed_tree_
    assert len(tree.selected) == 50_000
    again = pickle.loads(pickle.dumps(tree))
    assert again.selected[-1] == tree.selected[-1]
    assert len(model.single_linkage_tree_.get_clusters(100.0)) == 100_000
    pytest.importorskip("pandas")
    assert len(tree.to_pandas()) == len(tree)
    pytest.importorskip("networkx")
    assert len(tree.to_networkx()) == len(tree) + 1

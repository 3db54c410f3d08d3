"""What the pictures show, by value; and that they are drawn into the axes given, and nowhere else."""

from __future__ import annotations

import functools
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import skip_unless_available
from scipy.cluster import hierarchy as scipy_hierarchy
from sklearn.exceptions import NotFittedError

import mreach
from mreach import HDBSCAN, plots
from mreach.plot_data import (
    Scale,
    cluster_profile_data,
    condensed_tree_bars,
    condensed_tree_data,
    linkage_data,
    spanning_tree_data,
)
from mreach.records import CONDENSED_DTYPE, EDGE_DTYPE

# Row 0 leaves the root (10) at lambda 1. At 2 the root breaks up into three clusters and row 9. Of cluster
# 12 two rows leave at 3, one at infinity.
TREE = np.array(
    [
        (10, 0, 1.0, 1),
        (10, 9, 2.0, 1),
        (10, 11, 2.0, 3),
        (10, 12, 2.0, 3),
        (10, 13, 2.0, 2),
        (11, 1, 4.0, 1),
        (11, 2, 5.0, 1),
        (11, 3, 5.0, 1),
        (12, 4, 3.0, 1),
        (12, 5, 3.0, 1),
        (12, 6, np.inf, 1),
        (13, 7, 2.5, 1),
        (13, 8, 2.5, 1),
    ],
    CONDENSED_DTYPE,
)
BEYOND = 5 * 1.06  # where infinity is drawn

BLOBS = ((0, 0), (6, 0), (0, 5))


def blobs(n: int = 40, seed: int = 0) -> np.ndarray:
    r = np.random.default_rng(seed)
    return np.vstack([*(r.normal(at, 0.4, (n, 2)) for at in BLOBS), r.uniform(-3, 8, (n // 2, 2))])


@pytest.fixture(scope="module")
def model() -> HDBSCAN:
    return HDBSCAN(5, backend="reference").fit(blobs())


@functools.cache
def models() -> dict[str, HDBSCAN]:
    """Return fits with all that may be odd about a tree."""
    r = np.random.default_rng(0)
    piles = np.repeat(r.normal(size=(20, 2)), 8, axis=0)
    other_rows = blobs()
    other_rows[::7, 0], other_rows[3, 1] = np.inf, np.nan

    def fit(X: np.ndarray, *parameters: Any, **options: Any) -> HDBSCAN:
        with warnings.catch_warnings():  # of no clusters
            warnings.simplefilter("ignore")
            return HDBSCAN(*parameters, backend="reference", **options).fit(X)

    return {
        "blobs": fit(blobs(), 5),
        "piles": fit(piles),
        "rows not finite": fit(other_rows, 5),
        "equal rows": fit(np.zeros((12, 2))),
        "one row": fit(np.zeros((1, 2)), min_samples=1),
        "one finite row": fit([[0.0, 0.0], [np.nan, 0.0]], min_samples=1),
        "two rows": fit([[0.0, 0.0], [1.0, 0.0]], 2, 1),
        "no cluster": fit(r.normal(size=(10, 2)), 8),
        "one cluster": fit(r.normal(size=(30, 2)), 20, allow_single_cluster=True),
        "leaf": fit(blobs(), 3, cluster_selection_method="leaf"),
        "ties": fit(np.indices((9, 9)).reshape(2, -1).T * 1.0, 3),
        "tiny": fit(blobs() * 1e-150, 5),
        "epsilon": fit(blobs(), 5, cluster_selection_epsilon=8.0, allow_single_cluster=True),
    }


ODD = tuple(models())


@pytest.fixture(scope="module")
def odd_models() -> dict[str, HDBSCAN]:
    return models()


# ---------------------------------------------------------------------------------------------------------
# Scales
# ---------------------------------------------------------------------------------------------------------


def test_a_scale_has_a_place_for_infinity_and_zero():
    scale = Scale.of(np.array([0.0, 2.0, 5.0, np.inf]))
    assert scale == Scale(0.0, BEYOND, True, False)
    assert scale.place(np.array([0.0, 5.0, np.inf])).tolist() == [0.0, 5.0, BEYOND]
    log = Scale.of(np.array([0.0, 1.0, 1e6, np.inf]), is_log=True)
    assert log.is_log
    np.testing.assert_allclose((log.start, log.infinity), (10**-0.36, 10**6.36))
    assert log.place(np.array([0.0, 1.0])).tolist() == [log.start, 1.0]


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize(
    "values", [[], [0.0], [np.inf], [0.0, np.inf], [1.7e308], [5e-324, 1.7e308], [3.0, 3.0]]
)
def test_a_scale_is_finite_whatever_it_is_for(values, is_log):
    given = np.array(values, np.float64)
    scale = Scale.of(given, is_log)
    assert 0 <= scale.start < scale.infinity < np.inf
    places = scale.place(given)
    assert np.isfinite(places).all()
    assert (places >= scale.start).all()
    assert (places <= scale.infinity).all()


# ---------------------------------------------------------------------------------------------------------
# The condensed tree
# ---------------------------------------------------------------------------------------------------------


def bars_of(data: Any) -> list[tuple[int, float, float, int]]:
    return list(
        zip(
            data.bar_cluster.tolist(),
            data.bar_start.tolist(),
            data.bar_end.tolist(),
            data.bar_rows.tolist(),
            strict=True,
        )
    )


def test_bars_and_slots_of_a_tree_with_three_children():
    data = condensed_tree_data(TREE, np.array([12, 11, 13]), leaf_separation=0.0)
    assert bars_of(data) == [
        (0, 0.0, 1.0, 10),
        (0, 1.0, 2.0, 9),
        (1, 2.0, 4.0, 3),
        (1, 4.0, 5.0, 2),
        (2, 2.0, 3.0, 3),
        (2, 3.0, BEYOND, 1),
        (3, 2.0, 2.5, 2),
    ]
    assert data.bar_width.tolist() == data.bar_rows.tolist()
    # The children, 8 rows wide, stand in the middle of the 10 of the root, the larger ones first.
    assert data.left.tolist() == [0.0, 1.0, 4.0, 7.0]
    assert data.right.tolist() == [10.0, 4.0, 7.0, 9.0]
    assert data.bar_center.tolist() == [5.0, 5.0, 2.5, 2.5, 5.5, 5.5, 8.0]
    assert data.birth.tolist() == [0.0, 2.0, 2.0, 2.0]
    assert data.end.tolist() == [BEYOND, 5.0, BEYOND, 2.5]
    assert (data.split_left.tolist(), data.split_right.tolist(), data.split_lambda.tolist()) == (
        [2.5],
        [8.0],
        [2.0],
    )
    assert data.selected.tolist() == [2, 1, 3]
    assert data.label.tolist() == [-1, 1, 0, 2]
    assert data.scale == Scale(0.0, BEYOND, True, False)


def test_leaves_are_set_apart():
    data = condensed_tree_data(TREE, leaf_separation=2.0)
    gap = 2.0 * 0.15 * 10 / 2
    np.testing.assert_allclose(data.left[1:], [0.0, 3 + gap, 6 + 2 * gap])
    np.testing.assert_allclose(data.right, [8 + 2 * gap, 3.0, 6 + gap, 8 + 2 * gap])
    assert data.left[0] == 0.0
    assert len(data.selected) == 0
    assert set(data.label) == {-1}


def test_logarithmic_widths_and_lambdas():
    data = condensed_tree_data(TREE, log_size=True, log_lambda=True)
    np.testing.assert_allclose(data.bar_width, np.log1p(data.bar_rows))
    assert data.scale.is_log
    assert 0.8 < data.scale.start < 1.0  # just below the smallest lambda
    assert data.birth[0] == data.bar_start[0] == data.scale.start
    assert (data.bar_end - data.bar_start > 0).all()


def test_sizes_of_rows_count():
    heavy = TREE.copy()
    heavy["child_size"][0] = 7
    data = condensed_tree_data(heavy)
    assert bars_of(data)[:2] == [(0, 0.0, 1.0, 16), (0, 1.0, 2.0, 9)]


def test_clusters_born_at_infinite_distance_begin_at_lambda_zero():
    apart = np.array(
        [(4, 5, 0.0, 2), (4, 6, 0.0, 2), (5, 0, 1.0, 1), (5, 1, 1.0, 1), (6, 2, 2.0, 1), (6, 3, 2.0, 1)]
    )
    records = np.array(list(map(tuple, apart)), CONDENSED_DTYPE)
    assert bars_of(condensed_tree_data(records)) == [(1, 0.0, 1.0, 2), (2, 0.0, 2.0, 2)]
    data = condensed_tree_data(records, log_lambda=True)
    assert data.birth.tolist() == [data.scale.start] * 3


def test_the_names_of_hdbscan():
    bars = condensed_tree_bars(TREE, leaf_separation=0.0)
    assert list(bars) == [
        "bar_centers",
        "bar_tops",
        "bar_bottoms",
        "bar_widths",
        "line_xs",
        "line_ys",
        "cluster_bounds",
    ]
    assert bars["bar_bottoms"][:3] == [0.0, 1.0, 2.0]
    assert bars["bar_tops"][:3] == [1.0, 1.0, 2.0]  # heights
    assert bars["line_xs"] == [[2.5, 8.0]]
    assert bars["line_ys"] == [[2.0, 2.0]]
    assert bars["cluster_bounds"][11] == (1.0, 4.0, 2.0, 5.0)


@pytest.mark.parametrize("name", ODD)
def test_bars_hold_the_stability_of_each_cluster(odd_models, name):
    """Rows times lambda: what hdbscan calls excess of mass, with infinity at its place."""
    tree = odd_models[name].condensed_tree_
    data = condensed_tree_data(tree, tree.selected, max_rectangles=10**6)
    if not len(tree):
        assert len(data.bar_rows) == 0
        return
    cluster = tree["parent"] - tree["parent"][0]
    lasts = data.scale.place(tree["lambda_val"]) - data.birth[cluster]
    mass = np.bincount(cluster, lasts * tree["child_size"])
    drawn = np.bincount(data.bar_cluster, data.bar_rows * (data.bar_end - data.bar_start), len(mass))
    np.testing.assert_allclose(drawn, mass, rtol=1e-10)


@pytest.mark.parametrize("log_size", [False, True])
@pytest.mark.parametrize("name", ODD)
def test_slots_never_overlap(odd_models, name, log_size):
    tree = odd_models[name].condensed_tree_
    data = condensed_tree_data(tree, log_size=log_size)
    slack = 1e-9 * (data.right[0] - data.left[0])
    half = data.bar_width / 2
    assert (data.bar_center - half >= data.left[data.bar_cluster] - slack).all()
    assert (data.bar_center + half <= data.right[data.bar_cluster] + slack).all()
    if not len(tree):
        return
    children = tree[tree["child"] > tree["parent"][0]]
    parent, child = (children[end] - tree["parent"][0] for end in ("parent", "child"))
    assert (data.left[child] >= data.left[parent] - slack).all()
    assert (data.right[child] <= data.right[parent] + slack).all()
    for one in np.unique(parent):
        family = child[parent == one]
        order = family[np.argsort(data.left[family])]
        assert (data.left[order[1:]] >= data.right[order[:-1]] - slack).all()


@pytest.mark.parametrize("most", [1, 3, 20])
def test_merged_bars_are_wrong_by_a_part_at_most(model, most):
    tree = model.condensed_tree_
    exact = condensed_tree_data(tree, max_rectangles=10**6)
    merged = condensed_tree_data(tree, max_rectangles=most)
    assert np.bincount(merged.bar_cluster).max() <= most
    for bar in range(len(exact.bar_rows)):
        covers = (merged.bar_cluster == exact.bar_cluster[bar]) & (merged.bar_start <= exact.bar_start[bar])
        rows = merged.bar_rows[covers][-1]
        born_with = exact.bar_rows[exact.bar_cluster == exact.bar_cluster[bar]][0]
        assert 0 <= rows - exact.bar_rows[bar] <= born_with / most


def test_labels_of_the_tree_are_those_of_the_rows(model):
    tree = model.condensed_tree_
    data = condensed_tree_data(tree, tree.selected)
    rows = tree[tree["child"] < len(model.labels_)]
    np.testing.assert_array_equal(
        data.label[rows["parent"] - len(model.labels_)], model.labels_[rows["child"]]
    )


# ---------------------------------------------------------------------------------------------------------
# The linkage
# ---------------------------------------------------------------------------------------------------------


def scipy_links(linkage: np.ndarray, mode: str | None, p: int) -> Any:
    drawn = scipy_hierarchy.dendrogram(linkage, truncate_mode=mode, p=p, no_plot=True)
    return sorted(zip(drawn["icoord"], drawn["dcoord"], strict=True)), drawn["leaves"], drawn["ivl"]


@pytest.mark.parametrize(
    ("mode", "p"), [(None, 0), ("lastp", 2), ("lastp", 12), ("lastp", 500), ("level", 1), ("level", 3)]
)
@pytest.mark.parametrize("seed", range(3))
def test_links_are_those_of_scipy(mode, p, seed):
    linkage = np.array(HDBSCAN(5, backend="reference").fit(blobs(15, seed)).single_linkage_tree_)
    data = linkage_data(linkage, mode, p)
    links, leaves, names = scipy_links(linkage, mode, p)
    assert sorted(zip(data.x.tolist(), data.y.tolist(), strict=True)) == links
    assert data.leaves.tolist() == leaves
    counts = zip(data.leaves.tolist(), data.leaf_rows.tolist(), strict=True)
    assert [str(node) if count == 1 else f"({count})" for node, count in counts] == names
    assert data.leaf_rows.sum() == len(linkage) + 1
    np.testing.assert_array_equal(data.child_rows.sum(axis=1), data.link_rows)


def test_infinite_heights_have_a_place():
    linkage = (
        HDBSCAN(2, min_samples=1, backend="reference").fit([[0.0], [2.0], [np.nan]]).single_linkage_tree_
    )
    data = linkage_data(np.asarray(linkage))
    assert data.y.tolist() == [[0.0, 2.0, 2.0, 0.0], [0.0, 2.12, 2.12, 2.0]]
    assert data.scale.has_infinity
    assert data.leaves.tolist() == [2, 0, 1]


def test_a_linkage_of_one_row_has_one_leaf():
    data = linkage_data(np.empty((0, 4)))
    assert (data.x.shape, data.leaves.tolist(), data.leaf_rows.tolist()) == ((0, 4), [0], [1])


# ---------------------------------------------------------------------------------------------------------
# The spanning tree
# ---------------------------------------------------------------------------------------------------------


def test_segments_come_with_the_heaviest_first():
    edges = np.array([(0, 1, 1.0), (1, 3, 2.0)], EDGE_DTYPE)
    points = np.array([[0.0, 0], [1, 0], [np.nan, np.nan], [1, 2]])
    data = spanning_tree_data(edges, points)
    assert data.segments.tolist() == [[[1, 0], [1, 2]], [[0, 0], [1, 0]]]
    assert data.weights.tolist() == [2.0, 1.0]
    assert data.rows.tolist() == [0, 1, 3]
    assert data.points.tolist() == [[0, 0], [1, 0], [1, 2]]


# ---------------------------------------------------------------------------------------------------------
# The profile
# ---------------------------------------------------------------------------------------------------------


def test_a_profile_follows_the_rows_of_each_cluster(model):
    data = cluster_profile_data(model)
    tree, labels = model.condensed_tree_, model.labels_
    leaves_at = np.full(len(labels), np.nan)
    is_row = tree["child"] < len(labels)
    leaves_at[tree["child"][is_row]] = tree["lambda_val"][is_row]
    assert data.rows.tolist() == np.bincount(labels[labels >= 0]).tolist()
    assert len(data.starts) == len(data.rows) + 1
    for label, cluster in enumerate(tree.selected):
        own = leaves_at[labels == label]
        curve = slice(data.starts[label], data.starts[label + 1])
        lambdas, left = data.lambdas[curve], data.left[curve]
        assert lambdas[0] == data.birth[label] == tree["lambda_val"][tree["child"] == cluster]
        assert left.tolist() == [len(own), *((own > one).sum() for one in lambdas[1:])]
        assert lambdas[1:].tolist() == np.unique(own).tolist()
        assert data.half[label] == min(one for one in np.unique(own) if 2 * (own > one).sum() <= len(own))
        assert data.end[label] == own.max()
        np.testing.assert_allclose(data.probability[label], model.probabilities_[labels == label].mean())
    assert data.persistence is model.cluster_persistence_


def test_a_profile_of_piles_and_of_the_root(odd_models):
    data = cluster_profile_data(odd_models["piles"])
    assert set(data.half) == set(data.end) == {np.inf}
    assert data.scale.has_infinity
    data = cluster_profile_data(odd_models["one cluster"])
    assert data.birth.tolist() == [0.0]
    data = cluster_profile_data(odd_models["no cluster"])
    assert (len(data.rows), data.starts.tolist()) == (0, [0])


# ---------------------------------------------------------------------------------------------------------
# Drawing
# ---------------------------------------------------------------------------------------------------------

DRAW = {
    "condensed_tree": plots.condensed_tree,
    "single_linkage_tree": plots.single_linkage_tree,
    "minimum_spanning_tree": plots.minimum_spanning_tree,
    "cluster_profile": plots.cluster_profile,
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "condensed_tree": [
        {},
        {"cmap": None, "log_size": True, "log_lambda": True, "select_clusters": True, "label_clusters": True},
    ],
    "single_linkage_tree": [
        {},
        {"truncate_mode": None, "vary_line_width": False},
        {"truncate_mode": "level", "p": 2},
    ],
    "minimum_spanning_tree": [{}, {"log_distance": False, "node_size": 0.0, "colorbar": False}],
    "cluster_profile": [{}, {"log_lambda": True, "max_clusters": 1}],
}


@pytest.fixture
def new_axes() -> Any:
    """Return a function that makes axes, in a figure of their own that pyplot does not know of."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    return lambda: Figure(figsize=(4, 3)).add_subplot()


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("what", DRAW)
def test_everything_can_be_drawn(new_axes, odd_models, what, name):
    for options in OPTIONS[what]:
        ax = new_axes()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert DRAW[what](odd_models[name], ax, **options) is ax
            assert np.isfinite([ax.get_xlim(), ax.get_ylim()]).all()
            ax.figure.canvas.draw()


def test_nothing_is_shown_and_nothing_global_changes(new_axes, model, monkeypatch):
    import matplotlib
    import matplotlib.pyplot as plt

    plt.close("all")
    monkeypatch.setattr(plt, "show", lambda *args, **keywords: pytest.fail("shown"))
    settings = dict(matplotlib.rcParams)
    for draw in DRAW.values():
        draw(model, new_axes())
    assert plt.get_fignums() == []
    made = [draw(model) for draw in DRAW.values()]
    assert len(plt.get_fignums()) == len(made)
    assert dict(matplotlib.rcParams) == settings
    plt.close("all")


def test_the_methods_draw_the_same(new_axes, model):
    ax, other, third = new_axes(), new_axes(), new_axes()
    assert model.condensed_tree_.plot(axis=ax, log_size=True) is ax
    assert model.single_linkage_tree_.plot(ax=other, truncate_mode="level", p=3) is other
    assert model.minimum_spanning_tree_.plot(third) is third
    with pytest.raises(TypeError, match="give one of the two"):
        model.condensed_tree_.plot(ax, axis=ax)


def test_frames_and_labels_mark_the_selected_clusters(new_axes, model):
    ax = plots.condensed_tree(model, new_axes())
    _, frames = (one for one in ax.collections if type(one).__name__ == "PolyCollection")
    assert len(frames.get_paths()) == len(model.cluster_persistence_) == 3
    assert [text.get_text() for text in ax.texts] == ["0", "1", "2"]
    assert ax.get_ylabel() == "lambda = 1 / distance"
    low, high = ax.get_ylim()
    assert low > high == 0.0  # the root on top
    ax = plots.condensed_tree(model, new_axes(), select_clusters=False)
    assert [type(one).__name__ for one in ax.collections].count("PolyCollection") == 1
    assert not ax.texts


def test_infinity_is_marked(new_axes, odd_models):
    for draw in (plots.condensed_tree, plots.cluster_profile):
        texts = [text.get_text() for text in draw(odd_models["piles"], new_axes()).texts]
        assert r"$\infty$" in texts
    ax = plots.single_linkage_tree(odd_models["rows not finite"], new_axes())
    assert r"$\infty$" in [text.get_text() for text in ax.texts]
    ax = plots.single_linkage_tree(odd_models["blobs"], new_axes())
    assert r"$\infty$" not in [text.get_text() for text in ax.texts]


def test_clusters_are_coloured_by_label_without_a_colour_map(new_axes, model):
    from matplotlib.colors import to_rgba

    palette = ["red", "lime", "blue"]
    ax = plots.condensed_tree(model, new_axes(), cmap=None, selection_palette=palette)
    tree = model.condensed_tree_
    data = condensed_tree_data(tree, tree.selected)
    label = data.label[data.bar_cluster]
    colors = ax.collections[0].get_facecolor()
    assert set(label) == {-1, 0, 1, 2}
    for one, name in enumerate(palette):
        assert {tuple(color) for color in colors[label == one]} == {to_rgba(name)}
    assert to_rgba("red") not in {tuple(color) for color in colors[label < 0]}


def test_colour_bars_name_their_unit(new_axes, model):
    for draw, unit in (
        (plots.condensed_tree, "number of rows"),
        (plots.single_linkage_tree, "number of rows"),
        (plots.minimum_spanning_tree, "mutual reachability distance"),
    ):
        ax = draw(model, new_axes())
        assert unit in [other.get_ylabel() for other in ax.figure.axes if other is not ax]
        assert len(draw(model, new_axes(), colorbar=False).figure.axes) == 1


def test_a_spanning_tree_over_other_columns(new_axes):
    X = np.column_stack((blobs(), blobs(seed=1)))
    fitted = HDBSCAN(5, backend="reference").fit(X)
    with pytest.raises(ValueError, match="these have 4: reduce them to two columns"):
        fitted.minimum_spanning_tree_.plot(new_axes())
    with pytest.raises(ValueError, match=r"got \(140, 4\): reduce the rows to two columns"):
        fitted.minimum_spanning_tree_.plot(new_axes(), X=X)
    with pytest.raises(ValueError, match="140 rows, got 139"):
        plots.minimum_spanning_tree(fitted, new_axes(), X=X[1:, :2])
    ax = plots.minimum_spanning_tree(fitted, new_axes(), X=X[:, 2:])
    edges = fitted.minimum_spanning_tree_
    heaviest = ax.collections[0].get_segments()[0]
    np.testing.assert_array_equal(heaviest, X[[edges["source"][-1], edges["target"][-1]], 2:])
    with pytest.raises(ValueError, match="these have 1: reduce"):
        HDBSCAN(5, backend="reference").fit(X[:, :1]).minimum_spanning_tree_.plot(new_axes())


def test_a_spanning_tree_whose_rows_are_not_at_hand(new_axes):
    X = blobs()
    fitted = HDBSCAN(5, backend="reference").fit(X)
    ax = new_axes()
    assert plots.minimum_spanning_tree(pickle.loads(pickle.dumps(fitted)), ax) is ax
    fitted = HDBSCAN(5, backend="reference", prediction_data=False).fit(X)
    loaded = pickle.loads(pickle.dumps(fitted))
    with pytest.raises(ValueError, match="pass them as X"):
        plots.minimum_spanning_tree(loaded, new_axes())
    ax = new_axes()
    assert plots.minimum_spanning_tree(loaded, ax, X=X) is ax
    X += 1
    with pytest.raises(ValueError, match="pass them as X"):
        plots.minimum_spanning_tree(fitted, new_axes())


def test_a_spanning_tree_of_distances_needs_columns(new_axes):
    X = blobs()
    distances = np.abs(X[:, :1] - X[:, 0])
    fitted = HDBSCAN(5, metric="precomputed", backend="reference").fit(distances)
    for draw in (fitted.minimum_spanning_tree_.plot, lambda ax: plots.minimum_spanning_tree(fitted, ax)):
        with pytest.raises(ValueError, match="no rows to draw: pass two columns as X"):
            draw(new_axes())
    ax = new_axes()
    assert plots.minimum_spanning_tree(fitted, ax, X=X) is ax


def test_rows_are_coloured_by_label(new_axes, model):
    by_model = plots.minimum_spanning_tree(model, new_axes()).collections[-1].get_facecolor()
    assert len({tuple(color) for color in by_model}) == 4
    tree = model.minimum_spanning_tree_
    assert len(tree.plot(new_axes()).collections[-1].get_facecolor()) == 1
    by_hand = tree.plot(new_axes(), labels=model.labels_).collections[-1].get_facecolor()
    np.testing.assert_array_equal(by_hand, by_model)
    with pytest.raises(ValueError, match=r"pass model\.labels_"):
        tree.plot(new_axes(), labels=[0, 1])


def test_a_spanning_tree_by_the_options_of_hdbscan(new_axes, model):
    options = {
        "edge_cmap": "viridis",
        "edge_alpha": 0.6,
        "edge_linewidth": 4,
        "node_color": "k",
        "node_alpha": 0.8,
    }
    ax = model.minimum_spanning_tree_.plot(new_axes(), node_size=80, **options)
    edges, nodes = ax.collections[0], ax.collections[-1]
    assert edges.get_cmap().name == "viridis"
    assert edges.get_alpha() == 0.6
    assert max(edges.get_linewidths()) == 4
    np.testing.assert_array_equal(nodes.get_facecolor(), [(0, 0, 0, 0.8)])
    assert nodes.get_sizes().tolist() == [80]


def test_infinite_edges_are_dotted(new_axes):
    edges = np.array([(0, 1, 1.0), (1, 2, np.inf)], EDGE_DTYPE)
    ax = plots.minimum_spanning_tree(edges, new_axes(), X=[[0, 0], [1, 0], [5, 5]])
    finite, infinite = ax.collections[:2]
    assert (len(finite.get_segments()), len(infinite.get_segments())) == (1, 1)
    assert finite.get_linestyle() != infinite.get_linestyle()


def test_plain_arrays_can_be_drawn(new_axes, model):
    ax = plots.condensed_tree(np.array(model.condensed_tree_), new_axes())
    assert not ax.texts  # what was selected is not known
    ax = new_axes()
    assert plots.single_linkage_tree(np.array(model.single_linkage_tree_), ax) is ax


@pytest.mark.parametrize(
    ("what", "options", "message"),
    [
        ("condensed_tree", {"leaf_separation": -1}, "leaf_separation must be at least 0"),
        ("condensed_tree", {"leaf_separation": "wide"}, "leaf_separation must be a number"),
        ("condensed_tree", {"log_size": "yes"}, "log_size must be True or False"),
        ("condensed_tree", {"log_lambda": 1}, "log_lambda must be True or False"),
        ("condensed_tree", {"max_rectangles_per_icicle": 0}, "an integer of at least 1"),
        ("single_linkage_tree", {"truncate_mode": "mlab"}, "truncate_mode must be one of 'lastp', 'level'"),
        ("single_linkage_tree", {"p": 0}, "p must be an integer of at least 1"),
        ("minimum_spanning_tree", {"node_size": None}, "node_size must be a number"),
        ("minimum_spanning_tree", {"node_size": np.nan}, "node_size must be a finite number"),
        ("minimum_spanning_tree", {"log_distance": "x"}, "log_distance must be True or False"),
        ("cluster_profile", {"max_clusters": 0}, "max_clusters must be an integer of at least 1"),
        ("cluster_profile", {"log_lambda": "x"}, "log_lambda must be True or False"),
    ],
)
def test_options_out_of_range_are_refused(new_axes, model, what, options, message):
    with pytest.raises(ValueError, match=message):
        DRAW[what](model, new_axes(), **options)


@pytest.mark.parametrize("what", DRAW)
def test_a_model_has_to_be_fitted(what):
    with pytest.raises(NotFittedError):
        DRAW[what](HDBSCAN())


@pytest.mark.parametrize("what", DRAW)
def test_what_is_another_tree_or_none_is_named(model, what):
    trees = ("condensed_tree_", "single_linkage_tree_", "minimum_spanning_tree_")
    others = [getattr(model, one) for one in trees if what != one[:-1]]
    for other in (*others, blobs(), model.labels_):
        with pytest.raises(TypeError, match="is not what this draws: give the fitted model, or its"):
            DRAW[what](other)


def test_plots_belong_to_the_package():
    assert mreach.plots is plots


# ---------------------------------------------------------------------------------------------------------
# Deep and wide trees
# ---------------------------------------------------------------------------------------------------------


def test_a_chain_of_100_000_rows_is_drawn(new_axes):
    skip_unless_available("cpu")
    groups = np.cumsum(np.arange(1.0, 50_001))
    deep = HDBSCAN(2, min_samples=1, backend="cpu").fit(np.stack((groups, groups + 0.1), 1).reshape(-1, 1))
    bars = plots.condensed_tree(deep, new_axes()).collections[0]
    assert len(bars.get_array()) > 90_000
    plots.single_linkage_tree(deep, new_axes())
    plots.cluster_profile(deep, new_axes())
    data = linkage_data(np.asarray(deep.single_linkage_tree_), None)
    assert np.array_equal(np.sort(data.leaves), np.arange(100_000))
    data = linkage_data(np.asarray(deep.single_linkage_tree_), "level", 70_000)
    assert len(data.leaves) > 70_000


def test_real_clips_are_drawn(new_axes):
    skip_unless_available("cpu")
    fitted = HDBSCAN(20, backend="cpu").fit(mreach.datasets.load_emg_clips())
    assert len(plots.condensed_tree(fitted, new_axes()).texts) == 2
    profile = plots.cluster_profile(fitted, new_axes())
    assert profile.texts[0].get_text().startswith("4387 rows, ")

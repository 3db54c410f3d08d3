"""Every backend gives exactly what the reference gives: every attribute, bit for bit."""

import itertools

import numpy as np
import pytest
from conftest import assert_same_bits, cut_of
from datasets import DATASETS, EXTERNAL, load
from parameters import VALUES, Parameters, combinations

import mreach
from mreach.backends import reference
from mreach.records import EDGE_DTYPE

ATTRIBUTES = (
    "core_distances_",
    "minimum_spanning_tree_",
    "single_linkage_tree_",
    "condensed_tree_",
    "labels_",
    "probabilities_",
    "cluster_persistence_",
)

CASES = [
    pytest.param(dataset, parameters, id=f"{dataset}-{parameters}")
    for dataset in DATASETS
    for parameters in combinations(dataset)
]

# Sets of more than a thousand rows cost the reference seconds: two fits each.
EXTERNAL_CASES = [
    pytest.param(dataset, parameters, id=f"{dataset}-{parameters}")
    for dataset in EXTERNAL
    for parameters in combinations(dataset)[:2]
]

pytestmark = pytest.mark.filterwarnings("ignore:.*allow_single_cluster")


def assert_same_fit(actual: mreach.HDBSCAN, expected: mreach.HDBSCAN) -> None:
    for attribute in ATTRIBUTES:
        assert_same_bits(getattr(actual, attribute), getattr(expected, attribute), attribute)


@pytest.mark.parametrize(("dataset", "parameters"), CASES)
def test_backend_equals_reference(dataset, parameters, backend, reference_fit):
    X = load(dataset)
    model = mreach.HDBSCAN(backend=backend, **parameters.for_data(X)).fit(X)
    assert model.backend_ == backend
    assert_same_fit(model, reference_fit(dataset, parameters))


@pytest.mark.parametrize(("dataset", "parameters"), EXTERNAL_CASES)
def test_backend_equals_reference_on_external_data(dataset, parameters, backend, reference_fit):
    X = load(dataset)
    model = mreach.HDBSCAN(backend=backend, **parameters.for_data(X)).fit(X)
    assert_same_fit(model, reference_fit(dataset, parameters))


@pytest.mark.parametrize("n_jobs", [1, 2, 3, 5])
@pytest.mark.parametrize("dataset", ["clips_1000", "rounded_clips", "integer_pairs", "blobs_1000_2d"])
def test_number_of_threads_changes_nothing(dataset, n_jobs, backend, reference_fit):
    X = load(dataset)
    model = mreach.HDBSCAN(backend=backend, n_jobs=n_jobs).fit(X)
    assert_same_fit(model, reference_fit(dataset, Parameters()))


@pytest.mark.parametrize("dataset", DATASETS)
def test_input_is_not_changed(dataset, any_backend):
    X = load(dataset)
    before = X.copy()
    mreach.HDBSCAN(backend=any_backend, **Parameters().for_data(X)).fit(X)
    assert_same_bits(X, before, "X")


@pytest.mark.parametrize(
    "dataset", [name for name in DATASETS if name.startswith(("type_", "layout_")) or "signed" in name]
)
def test_types_and_layouts_give_what_a_plain_float64_copy_gives(dataset, any_backend):
    X = load(dataset)
    plain = np.array(X, dtype=np.float64, order="C") + 0.0
    keywords = {"backend": any_backend, **Parameters().for_data(X)}
    assert_same_fit(mreach.HDBSCAN(**keywords).fit(X), mreach.HDBSCAN(**keywords).fit(plain))


def random_tree(rng: np.random.Generator, n: int, n_weights: int) -> np.ndarray:
    """Return a random tree, sorted, with few weights (0 sometimes among them)."""
    weights = rng.lognormal(0, 2, n_weights)
    weights[rng.random(n_weights) < 0.1] = 0.0
    order = rng.permutation(n)
    edges = np.empty(n - 1, dtype=EDGE_DTYPE)
    nearness = rng.integers(1, 4)  # 1 gives chains, more gives bushes
    for i in range(1, n):
        a, b = order[i], order[rng.integers(max(0, i - nearness**3), i)]
        edges[i - 1] = min(a, b), max(a, b), weights[rng.integers(n_weights)]
    return np.sort(edges, order=["weight", "source", "target"])


@pytest.mark.parametrize("seed", range(40))
def test_cut_and_linkage_equal_the_naive_ones_on_random_trees(seed, backend):
    """Trees of all shapes and ties, which data would seldom give, with parameters drawn at random."""
    from mreach import hierarchy

    rng = np.random.default_rng(seed)
    for _ in range(10):
        n = int(rng.integers(2, 80))
        edges = random_tree(rng, n, int(rng.choice([1, 2, 5, 20, 200])))
        keywords = {
            "min_cluster_size": int(rng.integers(2, 9)),
            "max_cluster_size": [None, int(rng.integers(2, 40))][rng.integers(2)],
            "cluster_selection_method": str(rng.choice(["eom", "leaf"])),
            # Often exactly a height, where "below" and "at or above" part.
            "cluster_selection_epsilon": float(rng.choice([0.0, 0.3, *edges["weight"][-4:]])),
            "allow_single_cluster": bool(rng.integers(2)),
            # Rows that differ: equal rows always share a cluster, which a random tree does not know.
            "data": [None, np.c_[rng.integers(0, 3, n), rng.permutation(n)].astype(float)][rng.integers(2)],
        }
        expected = reference.cut(edges, **keywords)
        actual = cut_of(backend)(edges, **keywords)
        for name in expected._fields:
            assert_same_bits(
                getattr(actual, name), getattr(expected, name), f"{name} of {n} rows, {keywords}"
            )
        assert_same_bits(hierarchy.linkage(edges), reference.linkage(edges), "linkage")


@pytest.mark.parametrize("n_weights", [1, 3, 5000])
def test_cut_of_trees_with_thousands_of_rows(n_weights, backend):
    """Long runs of equal weights, and weights so near each other that they share a lambda."""
    rng = np.random.default_rng(n_weights)
    edges = random_tree(rng, 5000, n_weights)
    near = edges.copy()
    near["weight"] = 2 - edges["weight"] * 1e-15
    near = np.sort(near, order=["weight", "source", "target"])
    assert n_weights < 5000 or len(np.unique(1 / near["weight"])) < len(np.unique(near["weight"]))
    for tree in (edges, near):
        for min_cluster_size in (2, 20):
            expected = reference.cut(tree, min_cluster_size=min_cluster_size)
            actual = cut_of(backend)(tree, min_cluster_size=min_cluster_size)
            for name in expected._fields:
                assert_same_bits(getattr(actual, name), getattr(expected, name), name)


def test_edges_of_any_layout(backend):
    """Every second of an array's edges, which cannot be written to."""
    from mreach import hierarchy

    edges = random_tree(np.random.default_rng(0), 60, 20)
    spread = np.repeat(edges, 2)[::2]
    spread.setflags(write=False)
    expected, actual = (cut_of(backend)(tree, min_cluster_size=3) for tree in (edges, spread))
    for name in expected._fields:
        assert_same_bits(getattr(actual, name), getattr(expected, name), name)
    assert_same_bits(hierarchy.linkage(spread), reference.linkage(edges), "linkage")


@pytest.mark.parametrize(("dataset", "parameters"), CASES)
def test_stabilities_equal_the_reference(dataset, parameters, backend, reference_fit):
    expected_fit = reference_fit(dataset, parameters)
    keywords = parameters.for_data(load(dataset))
    del keywords["min_samples"], keywords["alpha"]
    edges = finite_rows_only(expected_fit.minimum_spanning_tree_, expected_fit.core_distances_)
    expected = reference.cut(edges, **keywords)
    actual = cut_of(backend)(edges, **keywords)
    assert_same_bits(actual.stabilities, expected.stabilities, "stabilities")
    assert_same_bits(actual.selected, expected.selected, "selected")


def finite_rows_only(edges: np.ndarray, core_distances: np.ndarray) -> np.ndarray:
    """Number the rows of a tree by finite rows only, as a cut takes them."""
    finite = np.flatnonzero(np.isfinite(core_distances))
    edges = edges.copy()
    for end in ("source", "target"):
        edges[end] = np.searchsorted(finite, edges[end])
    return edges


def test_combinations_cover_all_pairs_of_values():
    fits = [fit for dataset in DATASETS for fit in combinations(dataset)]
    for (a, values_of_a), (b, values_of_b) in itertools.combinations(VALUES.items(), 2):
        seen = {(getattr(fit, a), getattr(fit, b)) for fit in fits}
        assert seen == set(itertools.product(values_of_a, values_of_b)), (a, b)
    for dataset in DATASETS:
        for name, values in VALUES.items():
            assert {getattr(fit, name) for fit in combinations(dataset)} == set(values), (dataset, name)


def test_data_sets_have_the_sizes_and_widths_that_matter():
    shapes = [load(name).shape for name in DATASETS]
    assert {1, 2, 63, 128, 257, 1000, 3001} <= {n for n, _ in shapes}
    assert {1, 2, 3, 16, 17, 61, 64, 65, 384} <= {d for _, d in shapes}

"""The reference against hand-worked cases, and against the definition worked out in other ways."""

import itertools
import math

import numpy as np
import pytest
from conftest import assert_same_bits
from scipy.cluster.hierarchy import is_valid_linkage
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from test_exactness import random_tree

from mreach.backends import reference
from mreach.records import EDGE_DTYPE, Cut

SQUARES = np.array([[1.0], [2.0], [4.0], [9.0], [16.0], [25.0]])


def tree(*edges: tuple[int, int, float]) -> np.ndarray:
    return np.sort(np.array(list(edges), dtype=EDGE_DTYPE), order=["weight", "source", "target"])


def fit(X: np.ndarray, min_samples: int, alpha: float = 1.0, **keywords) -> Cut:
    points = reference.open_points(X)
    points.core_distances(min_samples)
    return reference.cut(points.minimum_spanning_tree(alpha), data=X, **keywords)


# ---------------------------------------------------------------------------------------------------------
# Distances and the tree
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("min_samples", "expected"),
    [
        (1, [0, 0, 0, 0, 0, 0]),
        (2, [1, 1, 2, 5, 7, 9]),
        (3, [3, 2, 3, 7, 9, 16]),
        (6, [24, 23, 21, 16, 15, 24]),
    ],
)
def test_core_distance_counts_the_point_itself(min_samples, expected):
    assert reference.open_points(SQUARES).core_distances(min_samples).tolist() == expected


@pytest.mark.parametrize(
    ("min_samples", "alpha", "weights"),
    [
        (1, 1.0, [1, 2, 5, 7, 9]),
        (2, 1.0, [1, 2, 5, 7, 9]),
        (3, 1.0, [3, 3, 7, 9, 16]),
        (3, 0.5, [3, 4, 10, 14, 18]),
        (3, 2.0, [3, 3, 7, 9, 16]),
        (1, 2.0, [0.5, 1, 2.5, 3.5, 4.5]),
    ],
)
def test_tree_weights(min_samples, alpha, weights):
    points = reference.open_points(SQUARES)
    points.core_distances(min_samples)
    assert points.minimum_spanning_tree(alpha)["weight"].tolist() == weights


def test_equal_edges_are_taken_in_the_order_of_their_rows():
    square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    points = reference.open_points(square)
    points.core_distances(2)
    assert points.minimum_spanning_tree(1.0).tolist() == [(0, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0)]


def test_tree_needs_core_distances_first():
    with pytest.raises(RuntimeError, match="core_distances"):
        reference.open_points(SQUARES).minimum_spanning_tree(1.0)


@pytest.mark.parametrize("seed", range(12))
def test_distances_cores_and_tree_follow_the_definition(seed):
    """Plain Python numbers, one operation after another, and Kruskal's algorithm in place of Prim's."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 40)), int(rng.integers(1, 20))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-160, 150)
    if seed % 2:
        X = rng.integers(0, 3, (n, d)).astype(np.float32)
    rows = X.astype(np.float64).tolist()
    distances = [[0.0] * n for _ in rows]
    for a, b in itertools.product(range(n), repeat=2):
        squared = 0.0
        for x, y in zip(rows[a], rows[b], strict=True):
            difference = x - y
            squared = squared + difference * difference
        distances[a][b] = math.sqrt(squared)
    min_samples, alpha = int(rng.integers(1, n + 1)), [0.5, 1.0, 2.0, 0.7][seed % 4]
    core = [sorted(row)[min_samples - 1] for row in distances]

    edges = sorted(
        (max(core[a], core[b], distances[a][b] / alpha), a, b) for a, b in itertools.combinations(range(n), 2)
    )
    component = list(range(n))
    expected = []
    for weight, a, b in edges:
        old, new = component[b], component[a]
        if old != new:
            component = [new if c == old else c for c in component]
            expected.append((a, b, weight))

    points = reference.open_points(X)
    assert points.distances.tolist() == distances
    assert points.core_distances(min_samples).tolist() == core
    assert points.minimum_spanning_tree(alpha).tolist() == expected


def test_linkage_by_hand():
    edges = tree((0, 1, 1.0), (2, 3, 1.0), (1, 4, 2.0), (3, 4, 3.0))
    assert reference.linkage(edges).tolist() == [[0, 1, 1, 2], [2, 3, 1, 2], [4, 5, 2, 3], [6, 7, 3, 5]]
    assert is_valid_linkage(reference.linkage(edges))
    assert reference.linkage(edges[:0]).shape == (0, 4)


# ---------------------------------------------------------------------------------------------------------
# Condensed tree, stabilities, labels by hand
# ---------------------------------------------------------------------------------------------------------

TWO_CHAINS = tree((0, 1, 1.0), (1, 2, 1.0), (3, 4, 2.0), (4, 5, 2.0), (2, 3, 8.0))


def test_two_chains():
    cut = reference.cut(TWO_CHAINS, min_cluster_size=3)
    assert cut.condensed_tree.tolist() == [
        (6, 7, 0.125, 3),
        (6, 8, 0.125, 3),
        (7, 0, 1.0, 1),
        (7, 1, 1.0, 1),
        (7, 2, 1.0, 1),
        (8, 3, 0.5, 1),
        (8, 4, 0.5, 1),
        (8, 5, 0.5, 1),
    ]
    assert cut.stabilities.tolist() == [6 * 0.125, 3 * 0.875, 3 * 0.375]
    assert cut.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert cut.selected.tolist() == [7, 8]
    assert cut.probabilities.tolist() == [1] * 6
    assert cut.persistence.tolist() == [0.875, 0.375]
    assert cut.birth_heights.tolist() == [math.inf, 8, 8]


def test_equal_label_sizes_are_ordered_by_the_smallest_row_of_data():
    data = np.array([[5.0, 0], [5, 1], [5, 2], [7, 0], [7, 0], [5, -1]])
    assert reference.cut(TWO_CHAINS, min_cluster_size=3, data=data).labels.tolist() == [1, 1, 1, 0, 0, 0]
    assert reference.cut(TWO_CHAINS, min_cluster_size=3, data=-data).labels.tolist() == [1, 1, 1, 0, 0, 0]
    data[5] = 6
    assert reference.cut(TWO_CHAINS, min_cluster_size=3, data=data).labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_larger_clusters_have_lower_labels():
    edges = tree((0, 1, 1.0), (2, 3, 2.0), (3, 4, 2.0), (1, 2, 8.0))
    assert reference.cut(edges, min_cluster_size=2).labels.tolist() == [1, 1, 0, 0, 0]


def test_probability_of_a_point_that_leaves_early():
    edges = tree((0, 1, 1.0), (1, 2, 1.0), (2, 6, 4.0), (3, 4, 2.0), (4, 5, 2.0), (2, 3, 8.0))
    cut = reference.cut(edges, min_cluster_size=3)
    assert cut.labels.tolist() == [0, 0, 0, 1, 1, 1, 0]
    assert cut.probabilities.tolist() == [1, 1, 1, 1, 1, 1, 0.25]
    # Root 7 dies at 1/8; cluster 8 loses row 6 at 1/4 and ends at 1.
    assert cut.stabilities.tolist() == [7 * 0.125, 1 * (0.25 - 0.125) + 3 * (1 - 0.125), 3 * (0.5 - 0.125)]


def test_a_point_between_two_clusters_belongs_to_neither():
    """Row 6 hangs on both chains at one height: any binary tree gives it to one of them."""
    between = tree((0, 1, 1.0), (1, 2, 1.0), (3, 4, 2.0), (4, 5, 2.0), (2, 6, 8.0), (3, 6, 8.0))
    cut = reference.cut(between, min_cluster_size=3)
    assert cut.labels.tolist() == [0, 0, 0, 1, 1, 1, -1]
    assert cut.probabilities[6] == 0
    assert (7, 6, 0.125, 1) in cut.condensed_tree.tolist()


def test_three_clusters_born_at_once():
    edges = tree((0, 1, 1.0), (2, 3, 1.0), (4, 5, 2.0), (1, 2, 4.0), (3, 4, 4.0))
    cut = reference.cut(edges, min_cluster_size=2)
    assert cut.condensed_tree[:3].tolist() == [(6, 7, 0.25, 2), (6, 8, 0.25, 2), (6, 9, 0.25, 2)]
    assert cut.labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_clusters_are_numbered_by_birth_and_then_by_row():
    # Left: {0..3}, split at 4 into {0, 1} and {2, 3}; right: {4..7}, split at 6 into {4, 5} and {6, 7}.
    edges = tree(
        (0, 1, 1.0), (2, 3, 1.0), (4, 5, 1.0), (6, 7, 1.0), (1, 2, 4.0), (5, 6, 6.0), (3, 4, 8.0)
    )  # fmt: skip
    records = reference.cut(edges, min_cluster_size=2).condensed_tree.tolist()
    clusters = [record for record in records if record[1] >= 8]
    assert clusters == [
        (8, 9, 1 / 8, 4),
        (8, 10, 1 / 8, 4),
        (9, 13, 1 / 4, 2),
        (9, 14, 1 / 4, 2),
        (10, 11, 1 / 6, 2),
        (10, 12, 1 / 6, 2),
    ]


def test_one_row():
    cut = reference.cut(np.empty(0, EDGE_DTYPE), min_cluster_size=2, allow_single_cluster=True)
    assert cut.labels.tolist() == [-1]
    assert cut.probabilities.tolist() == [0]
    assert cut.stabilities.tolist() == [0]
    assert cut.birth_heights.tolist() == [math.inf]
    assert len(cut.condensed_tree) == len(cut.selected) == len(cut.persistence) == 0


# ---------------------------------------------------------------------------------------------------------
# Selection by hand
# ---------------------------------------------------------------------------------------------------------


def nested(outer: float = 8.0, middle: float = 4.0, inner: float = 1.0) -> np.ndarray:
    """{0..3} born at ``outer`` splits at ``middle`` into {0, 1} and {2, 3}; {4, 5} is beside it."""
    return tree((0, 1, inner), (2, 3, inner), (1, 2, middle), (4, 5, inner), (3, 4, outer))


def test_children_win_only_if_they_are_more_stable():
    # Parent: 4 (1/middle - 1/outer). Children: 2 * 2 (1/inner - 1/middle).
    assert reference.cut(nested(8, 4, 2), min_cluster_size=2).labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert reference.cut(nested(8, 2, 1.75), min_cluster_size=2).labels.tolist() == [0, 0, 0, 0, 1, 1]
    equal = reference.cut(nested(1 / 0.5, 1 / 1.0, 1 / 1.5), min_cluster_size=2)
    assert equal.stabilities[1] == equal.stabilities[3] + equal.stabilities[4] == 2.0
    assert equal.labels.tolist() == [0, 0, 0, 0, 1, 1]


def test_leaves():
    edges = nested(8, 2, 1.75)
    cut = reference.cut(edges, min_cluster_size=2, cluster_selection_method="leaf")
    assert cut.labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_max_cluster_size_passes_the_value_of_the_children_up():
    edges = nested(8, 2, 1.75)
    assert reference.cut(edges, min_cluster_size=2, max_cluster_size=4).labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert reference.cut(edges, min_cluster_size=2, max_cluster_size=3).labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert reference.cut(edges, min_cluster_size=4, max_cluster_size=3).labels.tolist() == [-1] * 6


def test_epsilon_is_compared_on_heights():
    edges = nested(8, 4, 1)

    def labels(epsilon: float, **keywords) -> list[int]:
        cut = reference.cut(edges, min_cluster_size=2, cluster_selection_epsilon=epsilon, **keywords)
        return cut.labels.tolist()

    assert labels(4.0) == [0, 0, 1, 1, 2, 2], "born at epsilon is not born below it"
    assert labels(np.nextafter(4.0, 5.0)) == [0, 0, 0, 0, 1, 1]
    assert labels(8.0) == [0, 0, 0, 0, 1, 1]
    assert labels(9.0) == [0, 0, 0, 0, 1, 1], "without allow_single_cluster it stops below the root"
    assert labels(9.0, allow_single_cluster=True) == [0] * 6
    assert labels(4.5, cluster_selection_method="leaf") == [0, 0, 0, 0, 1, 1]


def test_topmost_of_nested_results_stays():
    # {0..3} | {4..9}; {4..9} splits at 6 into {4..7} and {8, 9}, {4..7} at 2 into two.
    edges = tree(
        (0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (4, 5, 1.0), (6, 7, 1.0), (5, 6, 2.0), (8, 9, 1.0),
        (7, 8, 6.0), (3, 4, 8.0),
    )  # fmt: skip
    cut = reference.cut(edges, min_cluster_size=2, cluster_selection_method="leaf")
    assert cut.labels.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    cut = reference.cut(
        edges, min_cluster_size=2, cluster_selection_method="leaf", cluster_selection_epsilon=3.0
    )
    assert cut.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    cut = reference.cut(
        edges, min_cluster_size=2, cluster_selection_method="leaf", cluster_selection_epsilon=7.0
    )
    assert cut.labels.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]


def chain() -> np.ndarray:
    return tree((0, 1, 1.0), (1, 2, 1.0), (2, 3, 2.0), (3, 4, 4.0))


def test_root_only():
    def labels(**keywords) -> list[int]:
        return reference.cut(chain(), min_cluster_size=3, **keywords).labels.tolist()

    assert labels() == [-1] * 5
    assert labels(cluster_selection_method="leaf") == [-1] * 5
    assert labels(allow_single_cluster=True) == [0, 0, 0, -1, -1]
    assert labels(allow_single_cluster=True, cluster_selection_method="leaf") == [0, 0, 0, -1, -1]
    assert labels(allow_single_cluster=True, cluster_selection_epsilon=2.0) == [0, 0, 0, 0, -1]
    assert labels(allow_single_cluster=True, cluster_selection_epsilon=1.9) == [0, 0, 0, -1, -1]
    assert labels(allow_single_cluster=True, cluster_selection_epsilon=4.0) == [0, 0, 0, 0, 0]
    assert labels(allow_single_cluster=True, cluster_selection_epsilon=0.5) == [-1] * 5
    assert labels(allow_single_cluster=True, max_cluster_size=4) == [-1] * 5
    assert labels(allow_single_cluster=True, max_cluster_size=5) == [0, 0, 0, -1, -1]
    leaf = {"cluster_selection_method": "leaf", "max_cluster_size": 4}
    assert labels(allow_single_cluster=True, **leaf) == [0, 0, 0, -1, -1], "max_cluster_size acts in eom only"


def test_root_probabilities_and_persistence():
    cut = reference.cut(chain(), min_cluster_size=3, allow_single_cluster=True, cluster_selection_epsilon=4.0)
    assert cut.probabilities.tolist() == [1, 1, 1, 0.5, 0.25]
    assert cut.stabilities.tolist() == [0.25 + 0.5 + 3.0]
    assert cut.persistence.tolist() == [3.75 / 5]


def test_a_root_without_members_has_no_label():
    cut = reference.cut(chain(), min_cluster_size=3, allow_single_cluster=True, cluster_selection_epsilon=0.5)
    assert len(cut.selected) == len(cut.persistence) == 0


def test_root_with_children_takes_what_is_as_dense_as_the_split():
    # Row 6 leaves at 1/16, before the split at 1/8; the root wins as it lives long.
    edges = tree((0, 1, 7.0), (1, 2, 7.0), (3, 4, 7.0), (4, 5, 7.0), (2, 3, 8.0), (5, 6, 16.0))
    cut = reference.cut(edges, min_cluster_size=3, allow_single_cluster=True)
    assert cut.selected.tolist() == [7]
    assert cut.labels.tolist() == [0, 0, 0, 0, 0, 0, -1]
    assert cut.probabilities.tolist() == [1] * 6 + [0]


# ---------------------------------------------------------------------------------------------------------
# Infinite and extreme densities
# ---------------------------------------------------------------------------------------------------------


def test_piles_of_equal_rows():
    # Two piles; row 6 lies next to the first.
    edges = tree((0, 1, 0.0), (1, 2, 0.0), (3, 4, 0.0), (4, 5, 0.0), (2, 6, 2.0), (2, 3, 8.0))
    cut = reference.cut(edges, min_cluster_size=3)
    assert cut.labels.tolist() == [0, 0, 0, 1, 1, 1, 0]
    assert cut.stabilities.tolist() == [7 / 8, math.inf, math.inf]
    assert cut.probabilities.tolist() == [1, 1, 1, 1, 1, 1, 1.0]
    assert cut.persistence.tolist() == [1, 1]


def test_rows_next_to_a_pile_keep_graded_probabilities():
    edges = tree((0, 1, 0.0), (1, 2, 0.0), (2, 6, 2.0), (6, 7, 4.0), (3, 4, 1.0), (4, 5, 1.0), (2, 3, 8.0))
    cut = reference.cut(edges, min_cluster_size=3)
    assert cut.labels.tolist() == [0, 0, 0, 1, 1, 1, 0, 0]
    assert cut.probabilities.tolist() == [1, 1, 1, 1, 1, 1, 1, 0.5]


def test_all_rows_equal():
    edges = tree((0, 1, 0.0), (0, 2, 0.0), (0, 3, 0.0))
    cut = reference.cut(edges, min_cluster_size=2)
    assert cut.labels.tolist() == [-1] * 4
    cut = reference.cut(edges, min_cluster_size=2, allow_single_cluster=True)
    assert cut.labels.tolist() == [0] * 4
    assert cut.probabilities.tolist() == [1] * 4
    assert cut.stabilities.tolist() == [math.inf]
    assert cut.persistence.tolist() == [1]


def test_lambda_of_the_smallest_heights_is_finite():
    tiny = 5e-324
    edges = tree((0, 1, tiny), (2, 3, 2 * tiny), (1, 2, 1.0))
    cut = reference.cut(edges, min_cluster_size=2)
    largest = np.finfo(np.float64).max
    assert cut.condensed_tree["lambda_val"].tolist() == [1.0, 1.0] + [largest] * 4
    assert cut.labels.tolist() == [0, 0, 1, 1]
    assert cut.probabilities.tolist() == [1] * 4
    assert not np.isnan(cut.persistence).any()


def test_chain_as_deep_as_it_is_long():
    n = 3001
    weights = np.cumsum(np.ones(n - 1))
    edges = np.array(list(zip(range(n - 1), range(1, n), weights, strict=True)), dtype=EDGE_DTYPE)
    cut = reference.cut(edges, min_cluster_size=2, allow_single_cluster=True)
    assert cut.labels[:3].tolist() == [0, 0, -1]
    assert len(reference.linkage(edges)) == n - 1


# ---------------------------------------------------------------------------------------------------------
# The definition worked out in another way
# ---------------------------------------------------------------------------------------------------------


def components_at(edges: np.ndarray, n: int, height: float, *, inclusive: bool) -> np.ndarray:
    """Return the component of each row in the graph of edges with weight <= height (or < height)."""
    kept = edges[edges["weight"] <= height] if inclusive else edges[edges["weight"] < height]
    graph = csr_array((np.ones(len(kept)), (kept["source"], kept["target"])), shape=(n, n))
    return connected_components(graph, directed=False)[1]


@pytest.mark.parametrize("seed", range(40))
def test_condensed_tree_follows_from_the_components_at_each_height(seed):
    rng = np.random.default_rng(seed)
    n, min_cluster_size = int(rng.integers(2, 60)), int(rng.integers(2, 8))
    edges = random_tree(rng, n, int(rng.choice([2, 5, 20, 200])))
    cut = reference.cut(edges, min_cluster_size=min_cluster_size)
    tree_of_cut = cut.condensed_tree

    # A row leaves its last cluster at the lowest height at which it is in a large component.
    heights = np.unique(edges["weight"])
    expected = np.full(n, heights[-1])
    for height in heights[::-1]:
        component = components_at(edges, n, height, inclusive=True)
        expected[np.bincount(component)[component] >= min_cluster_size] = height
    points = tree_of_cut[tree_of_cut["child"] < n]
    assert sorted(points["child"]) == list(range(n))
    with np.errstate(divide="ignore"):
        assert_same_bits(points["lambda_val"], 1 / expected[points["child"]], "lambda of the points")

    # Where a component falls into two or more large parts, each of them is a cluster born there.
    born = [(math.inf, frozenset(range(n)))]
    for height in heights[::-1]:
        whole = components_at(edges, n, height, inclusive=True)
        part = components_at(edges, n, height, inclusive=False)
        for component in range(whole.max() + 1):
            parts, sizes = np.unique(part[whole == component], return_counts=True)
            large = parts[sizes >= min_cluster_size]
            if len(large) >= 2:
                born += [(float(height), frozenset(np.flatnonzero(part == p).tolist())) for p in large]
    born.sort(key=lambda cluster: (-cluster[0], min(cluster[1])))
    assert rows_of_clusters(tree_of_cut, n) == [rows for _, rows in born]
    assert cut.birth_heights.tolist() == [height for height, _ in born]
    children = tree_of_cut[tree_of_cut["child"] >= n]
    for _, child, lam, size in children.tolist():
        height, rows = born[child - n]
        assert lam == 1 / height
        assert size == len(rows)

    # Stability: each point of a cluster counts from the cluster's birth to where it leaves it.
    for number, (_, rows) in enumerate(born):
        records = tree_of_cut[tree_of_cut["parent"] == n + number]
        birth = 0.0 if number == 0 else children["lambda_val"][children["child"] == n + number][0]
        assert records["child_size"].sum() == len(rows)
        area = math.fsum(records["child_size"] * (records["lambda_val"] - birth))
        assert cut.stabilities[number] == pytest.approx(area, rel=1e-12)


def rows_of_clusters(condensed_tree: np.ndarray, n: int) -> list[frozenset[int]]:
    """Return the rows below each cluster of a condensed tree, by cluster number."""
    n_clusters = int(condensed_tree["parent"].max(initial=n)) - n + 1
    rows: list[set[int]] = [set() for _ in range(n_clusters)]
    for parent, child, _, _ in condensed_tree.tolist()[::-1]:
        rows[parent - n] |= rows[child - n] if child >= n else {child}
    return [frozenset(found) for found in rows]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("allow_single_cluster", [False, True])
def test_excess_of_mass_is_the_largest_of_all_choices(seed, allow_single_cluster):
    """Try every set of clusters of which none lies in another."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(10, 60))
    edges = random_tree(rng, n, 500)
    edges["weight"] += 0.1
    max_cluster_size = [None, n // 2][seed % 2]
    cut = reference.cut(
        edges,
        min_cluster_size=4,
        allow_single_cluster=allow_single_cluster,
        max_cluster_size=max_cluster_size,
    )
    rows = rows_of_clusters(cut.condensed_tree, n)
    allowed = [
        i
        for i, found in enumerate(rows)
        if (i or allow_single_cluster) and len(found) <= (max_cluster_size or n)
    ]
    assert len(allowed) <= 15
    best = 0.0
    for size in range(1, len(allowed) + 1):
        for chosen in itertools.combinations(allowed, size):
            if all(rows[a].isdisjoint(rows[b]) for a, b in itertools.combinations(chosen, 2)):
                best = max(best, math.fsum(cut.stabilities[list(chosen)]))
    assert math.fsum(cut.stabilities[cut.selected - n]) == pytest.approx(best, rel=1e-12)


# ---------------------------------------------------------------------------------------------------------
# Complaints about HDBSCAN libraries, small enough for the reference
# ---------------------------------------------------------------------------------------------------------


def test_two_triangles():
    triangle = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert fit(np.vstack([triangle, triangle + 10]), 3, min_cluster_size=3).labels.tolist() == [
        0,
        0,
        0,
        1,
        1,
        1,
    ]


@pytest.mark.parametrize("method", ["eom", "leaf"])
def test_single_cluster_of_the_last_survivors(method):
    X = np.random.default_rng(0).normal(size=(30, 2))
    cut = fit(X, 20, min_cluster_size=20, allow_single_cluster=True, cluster_selection_method=method)
    assert (cut.labels == 0).sum() == 20
    assert (cut.labels == -1).sum() == 10


def test_epsilon_merges_blobs():
    rng = np.random.default_rng(0)
    corners = np.array([[0, 0], [1, 0], [0, 1], [10, 10], [11, 10], [10, 11]], dtype=float)
    X = np.vstack([corner + rng.normal(0, 0.02, (20, 2)) for corner in corners])
    assert fit(X, 5, min_cluster_size=5).labels.max() == 5
    labels = fit(X, 5, min_cluster_size=5, cluster_selection_epsilon=1.5).labels
    assert labels.tolist() == [labels[0]] * 60 + [labels[60]] * 60
    assert set(labels) == {0, 1}


def test_large_epsilon_and_single_cluster_take_everything():
    X = np.random.default_rng(0).random((300, 2))
    cut = fit(X, 15, min_cluster_size=15, cluster_selection_epsilon=10.0, allow_single_cluster=True)
    assert (cut.labels == 0).all()


def test_geometric_gaps_are_noise():
    X = np.r_[np.cumsum(1.2 ** np.arange(8)), 100.0][:, None]
    assert (fit(X, 1, min_cluster_size=2).labels == -1).all()

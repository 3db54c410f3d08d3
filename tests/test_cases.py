"""Complaints that users of HDBSCAN libraries filed, as small inputs with the right answer written out.

What went wrong elsewhere is in each docstring: NaN where rows are equal, labels that follow the order of the
rows, off-by-one core distances, crashes. Each stands for a kind of input.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import joblib
import numpy as np
import pytest
from conftest import FITTED_ATTRIBUTES, assert_same_bits

from mreach import HDBSCAN
from mreach.progress import Progress

pytestmark = pytest.mark.filterwarnings("ignore:.*allow_single_cluster")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def four_blobs(spread: float = 0.3) -> np.ndarray:
    centres = 8.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    return (centres[:, None] + spread * rng().normal(size=(4, 30, 2))).reshape(-1, 2)


def assert_same_fit(actual: HDBSCAN, expected: HDBSCAN) -> None:
    for attribute in FITTED_ATTRIBUTES:
        assert_same_bits(getattr(actual, attribute), getattr(expected, attribute), attribute)


# ---------------------------------------------------------------------------------------------------------
# Equal rows and ties
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["eom", "leaf"])
def test_piles_of_equal_rows(method: str, any_backend: str) -> None:
    """Infinite and NaN probabilities."""
    X = np.repeat(rng().normal(size=(20, 2)), 8, axis=0)
    model = HDBSCAN(cluster_selection_method=method, backend=any_backend).fit(X)
    # Piles of equal size: their labels ascend with their rows in lexicographic order.
    place = np.lexsort(X[::8].T[::-1]).argsort()
    np.testing.assert_array_equal(model.labels_, np.repeat(place, 8))
    np.testing.assert_array_equal(model.probabilities_, 1.0)
    np.testing.assert_array_equal(model.cluster_persistence_, 1.0)
    assert not any(np.isnan(model.condensed_tree_[name]).any() for name in model.condensed_tree_.dtype.names)
    rows = model.condensed_tree_["child"] < len(X)
    np.testing.assert_array_equal(model.condensed_tree_["lambda_val"][rows], np.inf)


def test_rows_next_to_a_pile_keep_a_graded_probability(any_backend: str) -> None:
    """All probabilities but those of the equal rows were 0."""
    one = np.array([0.0] * 8 + [0.25, 0.5])
    X = np.concatenate([one, one + 64])[:, None]
    model = HDBSCAN(backend=any_backend).fit(X)
    np.testing.assert_array_equal(model.labels_, [0] * 10 + [1] * 10)
    # The rows leave at distances 1/4 and 1/2, lambda 4 and 2; 4 is the largest that is finite.
    np.testing.assert_array_equal(model.probabilities_, ([1.0] * 9 + [0.5]) * 2)


def test_equal_rows_have_equal_labels(any_backend: str) -> None:
    """Equal rows on both sides of a cluster's border."""
    X = np.round(rng(7).normal(0, 2, (200, 2)), 1)
    model = HDBSCAN(min_cluster_size=5, backend=any_backend).fit(X)
    groups: dict[tuple[float, ...], set[tuple[int, float]]] = {}
    for row, label, probability in zip(X.tolist(), model.labels_, model.probabilities_, strict=True):
        groups.setdefault(tuple(row), set()).add((int(label), float(probability)))
    assert len(groups) == 196
    assert all(len(results) == 1 for results in groups.values())
    assert np.bincount(model.labels_ + 1).tolist() == [85, 104, 11]


def test_many_zero_rows(any_backend: str) -> None:
    """The process aborted."""
    X = np.vstack([np.zeros((500, 8)), rng().normal(size=(500, 8))])
    model = HDBSCAN(min_samples=5, backend=any_backend).fit(X)
    np.testing.assert_array_equal(model.labels_[:500], 0)
    np.testing.assert_array_equal(model.probabilities_[:500], 1.0)
    assert np.bincount(model.labels_ + 1).tolist() == [439, 556, 5]


def test_row_order_does_not_matter(any_backend: str) -> None:
    """14 of 20 shuffles gave another result."""
    X = rng().normal(size=(300, 2))
    model = HDBSCAN(min_cluster_size=8, backend=any_backend).fit(X)
    assert np.bincount(model.labels_ + 1).tolist() == [218, 43, 39]
    for seed in range(20):
        order = rng(seed).permutation(300)
        again = HDBSCAN(min_cluster_size=8, backend=any_backend).fit(X[order])
        np.testing.assert_array_equal(again.labels_, model.labels_[order])
        assert_same_bits(again.probabilities_, model.probabilities_[order], "probabilities")


def test_one_hot_rows(any_backend: str) -> None:
    """Never returned. All different rows are 1 or sqrt(2) apart: each pile of at least 5 is a cluster."""
    place = rng().integers(0, 301, 2000)
    place[:700] = rng(1).integers(0, 40, 700)
    X = np.vstack([np.eye(300), np.zeros(300)])[place]
    model = HDBSCAN(backend=any_backend).fit(X)
    values, pile, size = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    by_label = sorted(np.flatnonzero(size >= 5), key=lambda p: (-size[p], tuple(values[p])))
    label = np.full(len(values), -1)
    label[by_label] = np.arange(len(by_label))
    np.testing.assert_array_equal(model.labels_, label[pile.ravel()])
    np.testing.assert_array_equal(model.probabilities_, model.labels_ >= 0)
    assert set(model.minimum_spanning_tree_["weight"]) == {0.0, 1.0}


# For each min_samples: rows of noise and of each cluster; tree edges with the smallest squared weights.
GRID: dict[int, tuple[list[int], dict[float, int]]] = {
    100: ([3600], {34: 104, 36: 486, 37: 277, 38: 254}),
    5: ([2974, 384, 242], {1: 6, 2: 411, 4: 903, 5: 1749}),
    2: ([2506, 409, 181, 168, 115, 112, 109], {1: 1777, 2: 867, 4: 427, 5: 451}),
}


@pytest.mark.parametrize("min_samples", GRID)
def test_grid_with_heights(min_samples: int, any_backend: str) -> None:
    """Wrong labels: nearly all distances have equals."""
    heights = 2 * np.round(rng().normal(size=3600))
    X = np.c_[np.indices((60, 60)).reshape(2, -1).T, heights]
    model = HDBSCAN(100, min_samples=min_samples, backend=any_backend).fit(X)
    counts, edges = GRID[min_samples]
    assert np.bincount(model.labels_ + 1).tolist() == counts
    squares, numbers = np.unique(np.rint(model.minimum_spanning_tree_["weight"] ** 2), return_counts=True)
    assert dict(zip(squares[:4].tolist(), numbers[:4].tolist(), strict=True)) == edges


# ---------------------------------------------------------------------------------------------------------
# Core distances and tree
# ---------------------------------------------------------------------------------------------------------

WEIGHTS = {1: [1, 2, 5, 7, 9], 2: [1, 2, 5, 7, 9], 3: [3, 3, 7, 9, 16], 4: [7, 7, 8, 12, 21]}


@pytest.mark.parametrize("min_samples", WEIGHTS)
def test_tree_weights_by_hand(min_samples: int, any_backend: str) -> None:
    """The algorithms of one library differed by one in what min_samples counts. The row itself counts."""
    X = [[1], [2], [4], [9], [16], [25]]
    model = HDBSCAN(2, min_samples=min_samples, backend=any_backend).fit(X)
    assert model.minimum_spanning_tree_["weight"].tolist() == WEIGHTS[min_samples]
    assert model.single_linkage_tree_[:, 2].tolist() == WEIGHTS[min_samples]


@pytest.mark.parametrize(
    "tuning", [{}, {"prune": False}, {"whole_share": 1e9}, {"max_list_length": 1}], ids=str
)
@pytest.mark.parametrize("min_samples", WEIGHTS)
def test_tree_weights_by_hand_on_every_path(min_samples: int, tuning: dict[str, Any]) -> None:
    cpu = pytest.importorskip("mreach.backends.cpu", reason="needs the compiled core")
    from mreach.spanning_tree import minimum_spanning_tree

    X = np.array([[1.0], [2], [4], [9], [16], [25]])
    points = cpu.CpuPoints(X, n_threads=1, progress=Progress(), **tuning)
    points.core_distances(min_samples)
    assert minimum_spanning_tree(points, 1.0)["weight"].tolist() == WEIGHTS[min_samples]


def test_the_point_counts_itself(any_backend: str) -> None:
    """All noise where it does not."""
    triangle = np.array([[0, 0], [1, 0], [0, 1]])
    X = np.vstack([triangle, triangle + 10])
    model = HDBSCAN(min_cluster_size=3, min_samples=3, backend=any_backend).fit(X)
    assert model.labels_.tolist() == [0, 0, 0, 1, 1, 1]
    assert model.core_distances_.tolist() == [1.0, 2**0.5, 2**0.5] * 2


@pytest.mark.parametrize("min_samples", [751, 1100, 1500])
def test_very_many_neighbours(min_samples: int, any_backend: str) -> None:
    """Limits at 1023 neighbours, at half of the rows, and errors where all of them are asked for."""
    X = rng().normal(size=(1500, 2))
    model = HDBSCAN(min_samples=min_samples, backend=any_backend).fit(X)
    t, u = X[:, None, 0] - X[None, :, 0], X[:, None, 1] - X[None, :, 1]
    distances = np.sqrt(t * t + u * u)
    expected = np.sort(distances, axis=1)[:, min_samples - 1]
    assert_same_bits(model.core_distances_, expected, "core distances")
    # Each row but one hangs on the tree by its own core distance: there is always a row with a smaller one.
    weights = np.sort(expected)[1:] if min_samples == 1500 else None
    if weights is not None:
        assert_same_bits(model.minimum_spanning_tree_["weight"], weights, "tree weights")


def test_growing_gaps(any_backend: str) -> None:
    """RecursionError, stack overflow: each group is nested one deeper than the one before."""
    n = 300 if any_backend == "reference" else 100_000
    gaps = 4 + np.arange(n // 4) / 64
    X = (np.cumsum(gaps)[:, None] + np.arange(4) / 4).reshape(-1, 1)
    keywords = {"min_samples": 2, "cluster_selection_method": "leaf", "backend": any_backend}
    model = HDBSCAN(4, **keywords).fit(X)
    np.testing.assert_array_equal(model.labels_, np.repeat(np.arange(n // 4), 4))
    np.testing.assert_array_equal(model.probabilities_, 1.0)


# ---------------------------------------------------------------------------------------------------------
# Too few rows, no clusters, one cluster
# ---------------------------------------------------------------------------------------------------------


def test_too_few_rows(any_backend: str) -> None:
    """An error of the tree of neighbours that nobody had heard of."""
    with pytest.raises(ValueError, match=r"n_samples=1 .*min_samples=5"):
        HDBSCAN(backend=any_backend).fit(np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"n_samples=6 .*min_samples=7"):
        HDBSCAN(min_samples=7, backend=any_backend).fit(np.ones((6, 3)))
    model = HDBSCAN(2, min_samples=2, backend=any_backend).fit([[0.0, 0.0], [3.0, 4.0]])
    assert model.labels_.tolist() == [-1, -1]
    assert model.minimum_spanning_tree_.tolist() == [(0, 1, 5.0)]


@pytest.mark.parametrize(("shape", "min_cluster_size"), [((5, 2), 3), ((100, 128), 40)])
def test_leaf_without_leaves(shape: tuple[int, int], min_cluster_size: int, any_backend: str) -> None:
    """Zero-size reduction."""
    X = rng().normal(size=shape)
    model = HDBSCAN(min_cluster_size, cluster_selection_method="leaf", backend=any_backend).fit(X)
    assert (model.labels_ == -1).all()
    assert (model.probabilities_ == 0).all()


@pytest.mark.parametrize("method", ["eom", "leaf"])
def test_single_cluster(method: str, any_backend: str) -> None:
    """Leaf ignored the option."""
    X = rng().normal(size=(30, 2))
    model = HDBSCAN(20, allow_single_cluster=True, cluster_selection_method=method, backend=any_backend).fit(
        X
    )
    assert np.bincount(model.labels_ + 1).tolist() == [10, 20]
    assert HDBSCAN(20, cluster_selection_method=method, backend=any_backend).fit(X).labels_.max() == -1


def test_gaps_that_grow_are_no_clusters(any_backend: str) -> None:
    X = np.r_[np.cumsum(1.2 ** np.arange(8)), 100.0][:, None]
    assert HDBSCAN(2, min_samples=1, backend=any_backend).fit(X).labels_.tolist() == [-1] * 9


def test_epsilon_wider_than_the_data(any_backend: str) -> None:
    """Noise was left."""
    X = rng().random((300, 2))
    keywords = {"cluster_selection_epsilon": 10, "allow_single_cluster": True, "backend": any_backend}
    for method in ("eom", "leaf"):
        model = HDBSCAN(15, cluster_selection_method=method, **keywords).fit(X)
        np.testing.assert_array_equal(model.labels_, 0)


def test_epsilon_merges_near_blobs(any_backend: str) -> None:
    """TypeError, or ignored."""
    corner = np.array([[0, 0], [1, 0], [0, 1]])
    centres = np.vstack([corner, corner + 10])
    X = (centres[:, None] + 0.02 * rng().normal(size=(6, 20, 2))).reshape(-1, 2)
    for method in ("eom", "leaf"):
        keywords = {"cluster_selection_method": method, "backend": any_backend}
        model = HDBSCAN(5, cluster_selection_epsilon=1.5, **keywords).fit(X)
        np.testing.assert_array_equal(model.labels_, np.repeat([0, 1], 60))
        split = HDBSCAN(5, cluster_selection_epsilon=0.5, **keywords).fit(X)
        assert [len(set(split.labels_[i : i + 20]) - {-1}) for i in range(0, 120, 20)] == [1] * 6
        assert split.labels_.max() == 5


@pytest.mark.parametrize(("limit", "expected"), [(None, 0), (10, 0), (9, -1), (5, -1), (1, -1)])
def test_largest_size_below_the_number_of_rows(limit: int | None, expected: int, any_backend: str) -> None:
    """KeyError. Ten rows with equal gaps are one cluster, the root, unless that is too large."""
    X = np.arange(10.0)[:, None]
    model = HDBSCAN(
        5, min_samples=1, max_cluster_size=limit, allow_single_cluster=True, backend=any_backend
    ).fit(X)
    assert model.labels_.tolist() == [expected] * 10


@pytest.mark.parametrize(
    ("limit", "expected"), [(6, [0, 0, 0, 1, 1, 1]), (3, [0, 0, 0, 1, 1, 1]), (2, [-1] * 6)]
)
def test_largest_size_and_the_clusters_below(limit: int, expected: list[int], any_backend: str) -> None:
    X = np.array([[0.0], [1], [2], [20], [21], [22]])
    model = HDBSCAN(3, max_cluster_size=limit, allow_single_cluster=True, backend=any_backend).fit(X)
    assert model.labels_.tolist() == expected


# ---------------------------------------------------------------------------------------------------------
# Numbers: scales, offsets, types, parameters
# ---------------------------------------------------------------------------------------------------------


def test_squares_beyond_float64(any_backend: str) -> None:
    """An endless loop that ate all memory."""
    X = rng().normal(size=(60, 3))
    one_huge = X.copy()
    one_huge[0] = 1.5e308
    for data, low, high in ((one_huge, -1026, -1020), (X * 1e200, -668, -660), (X * 1e-200, 660, 668)):
        with pytest.raises(ValueError, match=r"numpy\.ldexp\(X, -?\d+\)") as caught:
            HDBSCAN(backend=any_backend).fit(data)
        power = int(re.findall(r"2\*\*(-?\d+)", str(caught.value))[0])
        assert low <= power <= high
        scaled = HDBSCAN(backend=any_backend).fit(np.ldexp(data, power))
        assert np.isfinite(scaled.minimum_spanning_tree_["weight"]).all()


@pytest.mark.parametrize("power", [83, -99])
def test_float32_at_the_ends_of_its_range(power: int, any_backend: str) -> None:
    """Squares of 1e25 and 1e-30 do not fit into float32. Powers of two change the scale and nothing else."""
    X = four_blobs().astype(np.float32)
    expected = HDBSCAN(backend=any_backend).fit(X)
    model = HDBSCAN(backend=any_backend).fit(np.ldexp(X, power))
    np.testing.assert_array_equal(model.labels_, np.repeat(label_of_blob(X), 30))
    assert_same_bits(model.labels_, expected.labels_, "labels")
    assert_same_bits(model.probabilities_, expected.probabilities_, "probabilities")
    assert_same_bits(model.core_distances_, np.ldexp(expected.core_distances_, power), "core distances")


def label_of_blob(X: np.ndarray) -> np.ndarray:
    """Blobs of equal size are labelled in the order of their lexicographically smallest rows."""
    smallest = [min(map(tuple, X[start : start + 30].tolist())) for start in range(0, 120, 30)]
    return np.array([sorted(smallest).index(row) for row in smallest])


@pytest.mark.parametrize(("offset", "dtype"), [(1e7, np.float32), (1e8, np.float64), (-3e9, np.float64)])
def test_offsets(offset: float, dtype: type, any_backend: str) -> None:
    """Clusters were lost. What the type holds of the data beside the offset is clustered as it is."""
    X = (four_blobs() + offset).astype(dtype)
    centred = X.astype(np.float64) - offset  # exact: the digits are there
    model = HDBSCAN(backend=any_backend).fit(X)
    assert_same_fit(model, HDBSCAN(backend=any_backend).fit(centred))
    if dtype is np.float64:
        assert [len(set(model.labels_[i : i + 30]) - {-1}) for i in range(0, 120, 30)] == [1] * 4
        assert model.labels_.max() == 3


TYPES_AND_LAYOUTS = {
    "strided": lambda X: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
    "fortran": np.asfortranarray,
    "big-endian": lambda X: X.astype(">f8"),
    "big-endian integers": lambda X: X.astype(">i4"),
    "int8": lambda X: X.astype(np.int8),
    "bool": lambda X: X > 0,
    "float16": lambda X: X.astype(np.float16),
    "longdouble": lambda X: X.astype(np.longdouble),
    "list": lambda X: X.tolist(),
}


def test_read_only(any_backend: str) -> None:
    X = four_blobs()
    expected = HDBSCAN(backend=any_backend).fit(X)
    X.setflags(write=False)
    assert_same_fit(HDBSCAN(backend=any_backend).fit(X), expected)


@pytest.mark.parametrize("layout", TYPES_AND_LAYOUTS)
def test_types_and_layouts(layout: str, any_backend: str) -> None:
    """Wrong trees from strided input; errors of type."""
    X = TYPES_AND_LAYOUTS[layout](np.rint(5 * four_blobs()))
    plain = np.array(X, dtype=np.float64, order="C")
    assert_same_fit(HDBSCAN(backend=any_backend).fit(X), HDBSCAN(backend=any_backend).fit(plain))


@pytest.mark.parametrize("number", [int, np.int64, np.int32, float, np.float64, np.float32])
def test_numbers_as_parameters(number: type, any_backend: str) -> None:
    """np.float64 and np.int64 were rejected."""
    given = {
        "min_cluster_size": 10,
        "min_samples": 4,
        "max_cluster_size": 40,
        "cluster_selection_epsilon": 1,
        "alpha": 2,
        "n_jobs": 1,
    }
    X = four_blobs()
    model = HDBSCAN(**{name: number(value) for name, value in given.items()}, backend=any_backend).fit(X)
    assert_same_fit(model, HDBSCAN(**given, backend=any_backend).fit(X))
    assert np.bincount(model.labels_[model.labels_ >= 0]).tolist() == [30] * 4


def test_off_is_spelled_as_the_error_says(any_backend: str) -> None:
    """Each library has another value for "off": it is accepted, or the error names the right one."""
    X = four_blobs()
    expected = HDBSCAN(backend=any_backend).fit(X)
    for accepted in (
        {"min_samples": None},
        {"max_cluster_size": None},
        {"max_cluster_size": sys.maxsize},
        {"cluster_selection_epsilon": 0},
        {"cluster_selection_epsilon": 0.0},
        {"alpha": 1},
        {"n_jobs": None},
        {"n_jobs": -1},
        {"device": None},
    ):
        assert_same_fit(HDBSCAN(**accepted, backend=any_backend).fit(X), expected)
    for refused, remedy in (
        ({"max_cluster_size": 0}, "use max_cluster_size=None"),
        ({"max_cluster_size": np.inf}, "use max_cluster_size=None"),
        ({"cluster_selection_epsilon": None}, "0.0 switches it off"),
        ({"alpha": None}, "1.0 leaves distances as they are"),
        ({"min_samples": 0}, "None means min_cluster_size"),
        ({"n_jobs": 0}, "None or -1 means all cores"),
    ):
        with pytest.raises(ValueError, match=re.escape(remedy)):
            HDBSCAN(**refused, backend=any_backend).fit(X)


# ---------------------------------------------------------------------------------------------------------
# Processes and threads
# ---------------------------------------------------------------------------------------------------------


def fit_and_count_threads(backend: str, X: np.ndarray) -> tuple[HDBSCAN, int]:
    """Fit with more threads than there are cores; return the most threads that were asked for."""
    from mreach.validation import check_parameters

    model = HDBSCAN(backend=backend, n_jobs=16)
    return model.fit(X), check_parameters(model).n_threads


@pytest.mark.parametrize("kind", ["loky", "threading", "multiprocessing"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.skipif(sys.platform == "win32", reason="joblib's multiprocessing backend wants fork")
def test_threads_of_fits_in_joblib_workers(kind: str, any_backend: str) -> None:
    """A process bomb: each worker started as many threads as were asked for."""
    if (any_backend, kind) == ("cuda", "multiprocessing"):
        pytest.skip(
            "these workers are forked, and CUDA does not work in a forked child: see test_fit_after_fork"
        )
    X = four_blobs()
    expected = HDBSCAN(backend=any_backend).fit(X)
    parallel = joblib.Parallel(n_jobs=2, backend=kind)
    for model, n_threads in parallel(joblib.delayed(fit_and_count_threads)(any_backend, X) for _ in "abc"):
        assert n_threads <= max(1, joblib.cpu_count() // 2)
        assert_same_fit(model, expected)


def test_two_fits_at_once(any_backend: str) -> None:
    """Crashes: a tree of neighbours that two threads shared."""
    sets = [four_blobs(), four_blobs()[::-1] * 3, rng(5).normal(size=(400, 7))]
    expected = [HDBSCAN(backend=any_backend).fit(X) for X in sets]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(5):
            fits = pool.map(lambda X: HDBSCAN(backend=any_backend, n_jobs=2).fit(X), sets)
            for model, wanted in zip(fits, expected, strict=True):
                assert_same_fit(model, wanted)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_fit_after_fork(any_backend: str) -> None:
    """Hung: the threads of the parent do not exist in the child."""
    import multiprocessing

    X = four_blobs()
    expected = HDBSCAN(backend=any_backend, n_jobs=2).fit(X)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        if any_backend == "cuda":  # CUDA does not work in a forked child: said, not crashed
            with pytest.raises(RuntimeError, match="spawn"):
                pool.apply_async(fit_and_count_threads, (any_backend, X)).get(timeout=60)
            return
        model, _ = pool.apply_async(fit_and_count_threads, (any_backend, X)).get(timeout=60)
    assert_same_fit(model, expected)

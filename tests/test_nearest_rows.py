"""The fitted rows nearest to new rows: the compiled core gives what the reference gives, bit for bit."""

from __future__ import annotations

import signal
import threading
import zlib
from typing import Any

import numpy as np
import pytest
from conftest import assert_same_bits
from datasets import blobs, clips
from test_core import SETS, data, kernel_names, nearly, rows_asked

from mreach.backends import cpu, reference
from mreach.progress import Progress
from mreach.records import NearestRows

# The way through the points, and the way that looks at every row.
WAYS: tuple[dict[str, Any], ...] = ({"few_rows": 0, "whole_share": 1e9}, {"whole_share": 0.0})

VALUES: dict[str, tuple] = {
    "way": WAYS,
    "prune": (True, False),
    "min_list_length": (1, 2, 32),
    "group_blocks": (0, 1, 3, 16),
    "n_threads": (1, 2, 5),
    "alpha": (0.5, 1.0, 2.0),
    "min_samples": (1, 2, 5, 40, "half", "all"),
    "kernels": tuple(kernel_names()),
    "halved_square": (False, True),
    "core": ("fitted", "searched", "given"),
    "candidates": ("all", "half", "few", "none"),
}


def new_rows(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows beside fitted ones: equal to them, between them, near them, far off, and equal to each other."""
    n, d = X.shape
    some = X[rng.integers(0, n, 16)]
    between = (some[:8] + X[rng.integers(0, n, 8)]) / 2
    spread = np.abs(X.astype(np.float64)).max()
    near = some[8:] + (spread * 1e-3 * rng.normal(size=(8, d))).astype(X.dtype)
    far = np.vstack([np.zeros((1, d)), np.full((1, d), 3 * spread), -some[:2] * 7.0])
    rows = np.vstack([some, between, near, far.astype(X.dtype)])
    rows = np.vstack([rows, rows[rng.integers(0, len(rows), 6)]]).astype(X.dtype)
    return rows[rng.permutation(len(rows))]


def both_results(X: np.ndarray, X_new: np.ndarray, asked: dict[str, Any], **tuning: Any) -> list[NearestRows]:
    found = cpu.nearest_rows(X, X_new, progress=Progress(), **asked, **({"n_threads": 2} | tuning))
    with np.errstate(over="ignore"):
        expected = reference.nearest_rows(X, X_new, **asked)
    return [found, expected]


def assert_equal_results(found: NearestRows, expected: NearestRows, what: object) -> None:
    for name in expected._fields:
        assert_same_bits(getattr(found, name), getattr(expected, name), f"{name}, {what}")


def fitted_core(X: np.ndarray, min_samples: int, halved_square: bool = False) -> np.ndarray:
    return reference.open_points(X, halved_square=halved_square).core_distances(min_samples)


def check(name: str, values: dict[str, Any], rng: np.random.Generator) -> None:
    X = data(name)
    n = len(X)
    X_new = new_rows(X, rng)
    min_samples = rows_asked(values["min_samples"], n)
    core = fitted_core(X, min_samples, values["halved_square"])
    asked = {
        "core_distances": core,
        "alpha": values["alpha"],
        "min_samples": min_samples,
        "halved_square": values["halved_square"],
    }
    if values["core"] == "given":
        asked["new_core_distances"] = rng.choice([0.0, *core], len(X_new))
    if values["candidates"] != "all":
        share = {"half": 0.5, "few": 0.03, "none": 0.0}[values["candidates"]]
        asked["candidates"] = rng.random(n) < share
    tuning = {key: values[key] for key in ("prune", "min_list_length", "group_blocks", "kernels")}
    found, expected = both_results(X, X_new, asked, n_threads=values["n_threads"], **tuning, **values["way"])
    assert_equal_results(found, expected, values)
    if values["candidates"] == "none":
        assert (found.rows == -1).all()
        assert np.isinf(found.weights).all()


@pytest.mark.parametrize("name", SETS)
def test_every_way_equals_the_reference(name: str) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    columns = {key: [(values * 6)[i] for i in rng.permutation(6)] for key, values in VALUES.items()}
    for row in zip(*columns.values(), strict=True):
        check(name, dict(zip(columns, row, strict=True)), rng)


@pytest.mark.parametrize("d", [1, 2, 4, 17, 61, 200])
def test_every_number_of_features(d: int) -> None:
    rng = np.random.default_rng(d)
    X = np.round(blobs(rng, 300, d), 2)
    X_new = np.round(blobs(np.random.default_rng(d), 70, d), 2)
    for min_samples in (1, 7, 299, 300):
        asked = {"core_distances": fitted_core(X, min_samples), "alpha": 1.0, "min_samples": min_samples}
        for tuning in WAYS:
            assert_equal_results(*both_results(X, X_new, asked, **tuning), (min_samples, tuning))


@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_lattices(offset: float) -> None:
    """Ties everywhere: of rows at one weight and one distance the lexicographically smallest counts."""
    rng = np.random.default_rng(1)
    lattice = rng.permutation(np.stack(np.indices((15, 15)), -1).reshape(-1, 2)).astype(np.float64)
    middles = np.stack(np.indices((31, 31)), -1).reshape(-1, 2) / 2 - 0.5
    for min_samples, alpha in ((1, 1.0), (4, 1.0), (5, 0.5), (9, 2.0)):
        X, X_new = lattice + offset, middles + offset
        asked = {"core_distances": fitted_core(X, min_samples), "alpha": alpha, "min_samples": min_samples}
        for tuning in ({"min_list_length": 1}, {}):
            found, expected = both_results(X, X_new, asked, few_rows=0, whole_share=1e9, **tuning)
            assert_equal_results(found, expected, (min_samples, alpha))


def test_order_of_the_rows_changes_only_their_numbers() -> None:
    rng = np.random.default_rng(2)
    X, X_new = rng.integers(0, 12, (400, 2)).astype(float), rng.integers(-2, 25, (200, 2)) / 2
    order = rng.permutation(len(X))
    asked = {"alpha": 1.0, "min_samples": 5, "n_threads": 2, "progress": Progress(), "few_rows": 0}
    one = cpu.nearest_rows(X, X_new, core_distances=fitted_core(X, 5), **asked)
    other = cpu.nearest_rows(X[order], X_new, core_distances=fitted_core(X[order], 5), **asked)
    assert_same_bits(other.core_distances, one.core_distances, "core distances")
    assert_same_bits(other.weights, one.weights, "weights")
    assert_same_bits(X[order][other.rows], X[one.rows], "rows")


@pytest.mark.parametrize("scale", [1e-160, 1e-162])
@pytest.mark.parametrize("halved_square", [False, True])
def test_subnormal_squares(scale: float, halved_square: bool) -> None:
    rng = np.random.default_rng(3)
    X, X_new = rng.normal(size=(300, 3)) * scale, rng.normal(size=(120, 3)) * scale
    for alpha in (0.5, 3.0, 1e300):
        asked = {"core_distances": fitted_core(X, 3, halved_square), "alpha": alpha, "min_samples": 3}
        found, expected = both_results(X, X_new, {**asked, "halved_square": halved_square}, few_rows=0)
        assert_equal_results(found, expected, alpha)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_new_rows_so_far_away_that_squares_overflow(dtype: type) -> None:
    """Infinitely far from all rows: the lexicographically smallest row, whatever its number."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(200, 2)).astype(dtype)
    largest = np.finfo(dtype).max
    X_new = np.vstack([X[:60] * 1.5, [[largest, -largest], [-largest, -largest], [1e30, 1e30]]]).astype(dtype)
    asked = {"core_distances": fitted_core(X, 4), "alpha": 1.0, "min_samples": 4}
    for tuning in WAYS:
        found, expected = both_results(X, X_new, asked, **tuning)
        assert_equal_results(found, expected, tuning)
        assert not np.isnan(found.weights).any()


def test_more_new_rows_than_fitted_ones() -> None:
    """Whole panels hold no fitted row."""
    rng = np.random.default_rng(5)
    for d in (2, 20):
        X, X_new = blobs(rng, 40, d), blobs(rng, 1500, d)
        asked = {"core_distances": fitted_core(X, 6), "alpha": 1.0, "min_samples": 6}
        candidates = np.arange(40) % 7 == 3
        for chosen in (None, candidates):
            found, expected = both_results(X, X_new, {**asked, "candidates": chosen}, whole_share=1e9)
            assert_equal_results(found, expected, d)


def test_few_rows_or_none() -> None:
    X = blobs(np.random.default_rng(6), 50, 3)
    asked = {"core_distances": fitted_core(X, 5), "alpha": 1.0, "min_samples": 5}
    for X_new in (X[:0], X[:1] + 0.1, X[:2]):
        for few_rows in (-1, 0):
            found, expected = both_results(X, X_new, asked, few_rows=few_rows)
            assert_equal_results(found, expected, len(X_new))
    only = np.array([[1.5]])
    found, expected = both_results(
        only, np.array([[2.0], [1.5]]), {"core_distances": np.zeros(1), "alpha": 1.0}
    )
    assert_equal_results(found, expected, "one fitted row")
    assert found.weights.tolist() == [0.5, 0.0]


def test_fitted_rows_as_new_ones_with_their_core_distances() -> None:
    """Each finds itself, or an equal row, at its core distance."""
    X = clips(np.random.default_rng(7), 500, duplicates=0.1)
    core = fitted_core(X, 5)
    asked = {"core_distances": core, "alpha": 1.0, "new_core_distances": core}
    found, expected = both_results(X, X, asked)
    assert_equal_results(found, expected, "fitted rows")
    assert_same_bits(found.weights, core, "weights")
    assert (X[found.rows] == X).all()


def test_pruning_leaves_out_most_pairs() -> None:
    rng = np.random.default_rng(8)
    X = nearly(rng, rng.integers(0, 60, (6000, 3)))
    X_new = nearly(rng, rng.integers(0, 60, (2000, 3)))
    core = np.full(len(X), 0.15)
    asked: dict[str, Any] = {"core_distances": core, "alpha": 1.0, "min_samples": 5, "n_threads": 1}
    results = [
        cpu.nearest_rows(X, X_new, progress=Progress(), prune=prune, **asked) for prune in (True, False)
    ]
    assert_equal_results(*results, "pruned or not")


class Recorder(Progress):
    def __init__(self) -> None:
        self.total = self.done = 0

    def stage(self, name: str, total: int | None = None) -> None:
        assert name == "nearest rows"
        self.total += total or 0

    def advance(self, k: int = 1) -> None:
        self.done += k


@pytest.mark.parametrize("way", WAYS)
def test_progress_adds_up(way: dict[str, Any]) -> None:
    X = blobs(np.random.default_rng(9), 3000, 20)
    progress = Recorder()
    asked: dict[str, Any] = {"core_distances": np.ones(3000), "alpha": 1.0, "min_samples": 3, "n_threads": 1}
    cpu.nearest_rows(X, X[:500] + 0.1, progress=progress, **asked, **way)
    assert progress.done == progress.total == 500


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_ends_the_search(way: dict[str, Any]) -> None:
    """Without pruning it takes minutes; a signal after a moment is looked for between two pieces of work."""
    X = np.random.default_rng(10).normal(size=(60_000, 40))
    asked: dict[str, Any] = {
        "core_distances": np.ones(len(X)),
        "alpha": 1.0,
        "min_samples": 3,
        "n_threads": 2,
    }
    timer = threading.Timer(0.6, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        cpu.nearest_rows(X, X + 0.1, progress=Progress(), prune=False, **asked, **way)
    timer.join()

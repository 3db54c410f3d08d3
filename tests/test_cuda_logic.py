"""The CUDA backend without a GPU: its kernels, emulated, give what the reference gives, bit for bit.

The estimator leaves the tuning alone. Here caps are forced down until buffers overflow, both tiers run on
all data, and tensor cores err as much as they are allowed to. CI runs a selection; MREACH_LONG_TESTS=1 all.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cuda_emulator
import numpy as np
import pytest
from conftest import FITTED_ATTRIBUTES, assert_same_bits
from cuda_emulator import fake_cupy
from datasets import DATASETS, blobs, clips, load
from parameters import combinations as parameter_combinations

import mreach
from mreach import row_order
from mreach.backends import cuda
from mreach.backends.cuda import inputs, kernels, order, pace, session, tiles
from mreach.backends.reference import ReferencePoints
from mreach.neighbors import core_distances
from mreach.progress import Progress
from mreach.spanning_tree import minimum_spanning_tree

if not (shutil.which("g++") or shutil.which("c++")):
    pytest.skip("needs a C++ compiler to emulate CUDA", allow_module_level=True)
if "cupy" in sys.modules:
    pytest.skip("the real CuPy is imported: its GPU runs these kernels", allow_module_level=True)

LONG = os.environ.get("MREACH_LONG_TESTS", "0") != "0"

DEVICE_FOLDER = str(Path(cuda.__file__).parent.parent / "cuda_kernels")

ARCHITECTURES = (900, 800, 750)

OTHER_CODE = {
    800: ("nearest_half", "outgoing_half"),
    750: ("nearest_half", "outgoing_half", "nearest_frame", "outgoing_frame"),
}
"""Units that are other code there than on 900: products of one warp, not four; copies that are waited for."""

PROVEN_ERROR = 0.95 * 2.0**-18
"""What a product 16 deep may err by, relative to the sum and the products: the filter allows for 16 times
2^-22 for each and one more, and for the rounding of what the sum starts from."""


# ---------------------------------------------------------------------------------------------------------
# The emulated GPU
# ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[int, dict[tuple[Any, ...], Any]]]:
    """All units compiled for the Euclidean distance, by architecture: what a session keeps of them."""
    fake_cupy.FOLDERS.append(DEVICE_FOLDER)
    cuda_emulator.install()

    def options_of(architecture: int) -> tuple[str, ...]:
        return kernels.module_options(kernels.Shape(architecture // 10))

    def compiled(architecture: int, unit: str) -> Any:
        options = (*options_of(architecture), f"-arch=sm_{architecture // 10}")
        module = fake_cupy.RawModule(code=kernels.module_source(unit), options=options)
        module.compile()
        return module

    units = [(900, unit) for unit in kernels.UNITS]
    units += [(architecture, unit) for architecture, names in OTHER_CODE.items() for unit in names]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = dict(zip(units, pool.map(lambda key: compiled(*key), units), strict=True))
    kept = dict(session._modules), dict(session._functions)
    yield {
        architecture: {
            (0, unit, options_of(architecture)): made.get((architecture, unit), made[900, unit])
            for unit in kernels.UNITS
        }
        for architecture in ARCHITECTURES
    }
    forget_kernels()
    session._modules.update(kept[0])
    session._functions.update(kept[1])
    fake_cupy.FOLDERS.remove(DEVICE_FOLDER)
    cuda_emulator.uninstall()


def forget_kernels() -> None:
    """As in a new process."""
    session._modules.clear()
    session._functions.clear()
    session._properties_of.cache_clear()


class Machine:
    """An emulated GPU that can be changed between fits."""

    def __init__(
        self, modules: dict[int, dict[tuple[Any, ...], Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._modules, self._monkeypatch = modules, monkeypatch
        self.change()

    def change(
        self,
        *,
        arch: int = 900,
        schedule: str = "forward",
        rounding: str = "truncate",
        launches: str = "whole",
    ) -> None:
        """Choose the generation, the order of threads, how tensor cores round, and how long launches are."""
        forget_kernels()
        session._modules.update(self._modules[arch])
        fake_cupy.settings.arch = arch
        self._monkeypatch.setenv("MREACH_EMULATOR_SCHEDULE", schedule)
        self._monkeypatch.setenv("MREACH_EMULATOR_ROUNDING", rounding)
        self._monkeypatch.setenv("MREACH_EMULATOR_MMA_ERROR", repr(PROVEN_ERROR))
        pieces = launches == "pieces"  # one row tile at one place
        self._monkeypatch.setattr(pace, "TARGET_LAUNCH_SECONDS", 1e-12 if pieces else 1e12)
        self._monkeypatch.setattr(pace, "PLACES_AT_ONCE", 1 if pieces else 256)


@pytest.fixture
def machine(
    modules: dict[int, dict[tuple[Any, ...], Any]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    fake_cupy.install()
    yield Machine(modules, monkeypatch)
    fake_cupy.settings.reset()


# ---------------------------------------------------------------------------------------------------------
# Data
# ---------------------------------------------------------------------------------------------------------


def nearly(rng: np.random.Generator, lattice: np.ndarray) -> np.ndarray:
    """A lattice whose points are a little off, far from the origin."""
    return 0.1 * (lattice + 1e-8 * rng.normal(size=lattice.shape)) + 70


def tight_groups(rng: np.random.Generator, n: int, d: int, width: float = 1e-3) -> np.ndarray:
    """Groups far apart."""
    return 1e3 * rng.integers(-3, 4, (6, d))[rng.integers(0, 6, n)] + width * rng.normal(size=(n, d))


def with_far_rows(X: np.ndarray, far: np.ndarray) -> np.ndarray:
    return np.vstack([X, np.atleast_2d(far).astype(X.dtype)])


def unit_rows(X: np.ndarray) -> np.ndarray:
    X = X.astype(np.float64)
    return X / np.linalg.norm(X, axis=1)[:, None]


SETS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    # Sizes beside the multiples of a tile, features beside those of 16 and 64
    "one_row": lambda rng: rng.normal(size=(1, 17)),
    "two_rows": lambda rng: rng.normal(size=(2, 61)),
    "clips_127": lambda rng: clips(rng, 127),
    "blobs_128_65d": lambda rng: blobs(rng, 128, 65),
    "blobs_129_64d": lambda rng: blobs(rng, 129, 64).astype(np.float32),
    "blobs_300_130d": lambda rng: blobs(rng, 300, 130).astype(np.float32),
    "blobs_300_16d": lambda rng: blobs(rng, 300, 16),
    "blobs_515_2d": lambda rng: blobs(rng, 515, 2, n_blobs=9),
    "blobs_257_3d": lambda rng: blobs(rng, 257, 3).astype(np.float32),
    "clips_515": lambda rng: clips(rng, 515, duplicates=0.0),
    # Ties
    "line": lambda rng: rng.permutation(300)[:, None].astype(np.float32),
    "lattice_2d": lambda rng: np.stack(np.indices((18, 18)), -1).reshape(-1, 2).astype(np.float64),
    "lattice_17d": lambda rng: rng.integers(0, 2, (300, 17)).astype(np.float32),
    "integers_61d": lambda rng: rng.integers(-1, 2, (257, 61)).astype(np.float32),
    "one_hot_130d": lambda rng: np.vstack([np.eye(130)[rng.integers(0, 100, 260)], np.zeros((7, 130))]),
    "near_ties_1d": lambda rng: nearly(rng, rng.permutation(300)[:, None]),
    "near_ties_2d": lambda rng: nearly(rng, np.stack(np.indices((17, 17)), -1).reshape(-1, 2)),
    "near_ties_20d": lambda rng: nearly(rng, rng.integers(0, 2, (300, 20))),
    "below_float32_61d": lambda rng: (2**40 + rng.integers(0, 1 << 9, (260, 61))).astype(np.float64),
    # Equal rows
    "clips_with_copies": lambda rng: clips(rng, 300, duplicates=0.4),
    "piles": lambda rng: np.repeat(rng.normal(size=(40, 16)), 8, axis=0)[rng.permutation(320)],
    "mostly_one_pile": lambda rng: np.vstack([np.zeros((200, 61)), rng.normal(size=(150, 61))]),
    "all_equal": lambda rng: np.full((130, 17), 0.3),
    # Offsets and scales
    "offset_1e7_float32": lambda rng: (blobs(rng, 257, 17) + 1e7).astype(np.float32),
    "offset_1e8_61d": lambda rng: clips(rng, 257).astype(np.float64) + 1e8,
    "tight_groups_2d": lambda rng: tight_groups(rng, 300, 2, 1e-6),
    "tight_groups_65d": lambda rng: tight_groups(rng, 300, 65),
    "one_row_at_1e30": lambda rng: with_far_rows(clips(rng, 300), np.full(61, 1e30)),
    "one_row_at_1e60_3d": lambda rng: with_far_rows(blobs(rng, 300, 3), np.full(3, 1e60)),
    "rows_out_of_range": lambda rng: blobs(rng, 300, 20) * 10.0 ** rng.choice([0, 0, 0, 3, 6, 40], (300, 1)),
    "subnormal_float32": lambda rng: (blobs(rng, 200, 17) * 1e-41).astype(np.float32),
    "subnormal_squares_2d": lambda rng: blobs(rng, 200, 2) * 1e-160,
    "most_squares_are_zero": lambda rng: blobs(rng, 200, 17) * 1e-162,
    "all_scales": lambda rng: (
        rng.choice([-1.0, 1.0], (260, 20))
        * 10.0 ** rng.uniform(-170, 0, (260, 1))
        * rng.normal(size=(260, 20))
    ),
    # Rows as the metric "cosine" has them
    "unit_clips": lambda rng: unit_rows(clips(rng, 260, duplicates=0.2)),
    "unit_lattice_3d": lambda rng: unit_rows(rng.integers(-3, 4, (280, 3)) + np.array([0, 0, 0.5])),
    "unit_float32_20d": lambda rng: unit_rows(blobs(rng, 200, 20)).astype(np.float32),
}

VALUES: dict[str, tuple] = {
    "tier": ("half", "frame"),
    "prune": (True, False),
    "min_list_length": (1, 2, 24),
    "max_list_length": (1, 2, 5, 64),
    "limit": (None, 1, 40, 200),
    "entry_bytes": (1, 768 << 20),
    "queue_capacity": (None, 1),
    "alpha": (0.5, 1.0, 2.0),
    "min_samples": (1, 2, 5, 70, "half", "all"),
    "arch": ARCHITECTURES,
    "schedule": ("forward", "reverse", "random:1"),
    "rounding": ("truncate", "random", "down", "up"),
    "launches": ("whole", "whole", "pieces"),
}
"""Ways through the backend. limit: candidates of a row at which it is tightened, or given up where all are
near; beyond 128 they do not fit into registers. entry_bytes=1: a launch for each tile. queue_capacity=1: the
scans of the tree repeat."""

OF_THE_MACHINE = ("arch", "schedule", "rounding", "launches")

N_WAYS = 24 if LONG else 2


@functools.cache
def data(name: str) -> np.ndarray:
    return SETS[name](np.random.default_rng(zlib.crc32(name.encode())))


@functools.cache
def reference_points(name: str, halved_square: bool) -> ReferencePoints:
    return ReferencePoints(data(name), halved_square)


@functools.cache
def reference_result(
    name: str, min_samples: int, alpha: float, halved_square: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    points = reference_points(name, halved_square)
    return points.core_distances(min_samples), points.minimum_spanning_tree(alpha)


def cuda_result(
    X: np.ndarray, min_samples: int, alpha: float, **tuning: Any
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return core distances, tree and statistics of the backend."""
    with cuda.hold_rows(X) as held:
        assert held.session.shape.options == kernels.Shape(fake_cupy.settings.arch // 10).options
        points = cuda.open_points(held, n_threads=1, progress=Progress(), **tuning)
        core = core_distances(points, min_samples)
        edges = minimum_spanning_tree(points, alpha)
        return core, edges, points.statistics()


def rows_asked(min_samples: int | str, n: int) -> int:
    asked = {"half": max(1, n // 2), "all": n}.get(min_samples, min_samples)
    return min(int(asked), n)


def check(machine: Machine, name: str, **values: Any) -> dict[str, Any]:
    """Compare one way through the backend with the reference; return the backend's statistics."""
    X = data(name)
    values = {"alpha": 1.0, "min_samples": 5} | values
    values["min_samples"] = rows_asked(values["min_samples"], len(X))
    machine.change(**{key: values.pop(key) for key in OF_THE_MACHINE if key in values})
    tuning = {key: value for key, value in values.items() if value is not None}
    core, edges, statistics = cuda_result(X, **tuning)
    expected_core, expected_edges = reference_result(
        name, values["min_samples"], values["alpha"], values.get("halved_square", False)
    )
    assert_same_bits(core, expected_core, f"core distances, {values}")
    assert_same_bits(edges, expected_edges, f"tree, {values}")
    return statistics


def ways(name: str) -> list[dict[str, Any]]:
    """Ways through the backend, each with values at random; over all sets, all pairs of values occur."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    columns = {key: [(values * 24)[i] for i in rng.permutation(24)] for key, values in VALUES.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)][:N_WAYS]


@pytest.mark.parametrize("name", SETS)
def test_every_way_through_the_backend_equals_the_reference(name: str, machine: Machine) -> None:
    for values in ways(name):
        check(machine, name, **values)


HALVED: dict[str, dict[str, Any]] = {
    "unit_clips": {"tier": "half", "alpha": 2.0, "max_list_length": 2},
    "unit_lattice_3d": {"tier": "frame", "alpha": 0.5, "max_list_length": 1, "min_list_length": 1},
    "unit_float32_20d": {"tier": "frame", "alpha": 2.0, "queue_capacity": 1, "max_list_length": 2},
    "lattice_17d": {"tier": "half", "alpha": 0.5, "queue_capacity": 1, "min_list_length": 1},
    "piles": {"tier": "half", "alpha": 1.0, "min_samples": 12, "max_list_length": 2},
    "subnormal_squares_2d": {"tier": "frame", "alpha": 0.5, "max_list_length": 2},
    "all_scales": {"tier": "half", "alpha": 2.0, "limit": 1, "min_list_length": 1},
}
"""Short lists, so that the tree has rows to scan."""


@pytest.mark.parametrize("name", HALVED)
def test_half_the_squared_distance_equals_the_reference(name: str, machine: Machine) -> None:
    check(machine, name, halved_square=True, rounding="random", **HALVED[name])
    if LONG:
        for values in ways(name):
            check(machine, name, halved_square=True, **values)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("tier", ["half", "frame"])
def test_pruning_is_exact(tier: str) -> None:
    """Skipped tile pairs change nothing: against the same search without boxes, and against the reference."""
    X = clips(np.random.default_rng(3), 500, duplicates=0.1)
    X = np.vstack([X, X[:140] + 1e3])  # a group far from the others
    core, edges, pruned = cuda_result(X, 10, 1.0, tier=tier)
    core_whole, edges_whole, whole = cuda_result(X, 10, 1.0, tier=tier, prune=False)
    assert pruned["distinct_rows"] < len(X)
    assert pruned["tile_pairs_share"] < whole["tile_pairs_share"]
    assert_same_bits(core, core_whole, "core distances")
    assert_same_bits(edges, edges_whole, "tree")
    reference = ReferencePoints(X)
    assert_same_bits(core, reference.core_distances(10), "core distances")
    assert_same_bits(edges, reference.minimum_spanning_tree(1.0), "tree")


LABELLED = ("clips_1000", "non_finite_rows", "two_piles_and_a_blob", "type_int64_large", "layout_reversed")


@pytest.mark.usefixtures("machine")
@pytest.mark.filterwarnings("ignore:.*allow_single_cluster")
@pytest.mark.parametrize("name", DATASETS if LONG else LABELLED)
def test_the_estimator_gives_what_the_reference_gives(name: str, reference_fit: Callable[..., Any]) -> None:
    X = load(name)
    for parameters in parameter_combinations(name)[: None if LONG else 1]:
        model = mreach.HDBSCAN(backend="cuda", **parameters.for_data(X)).fit(X)
        assert model.backend_ == "cuda"
        for attribute in FITTED_ATTRIBUTES:
            assert_same_bits(
                getattr(model, attribute), getattr(reference_fit(name, parameters), attribute), attribute
            )


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("prediction_data", [False, True])
@pytest.mark.parametrize("name", ["rounded_normal", "piles_of_equal_rows", "non_finite_rows"])
def test_a_fit_of_a_device_array_can_be_cut(
    name: str, prediction_data: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters of equal size are numbered by rows that are gone: ranks were taken in the fit, or a copy."""
    monkeypatch.setattr(row_order, "SLICE_ROWS", 64)
    X = np.asarray(load(name), np.float64)
    model = mreach.HDBSCAN(min_samples=3, prediction_data=prediction_data, backend="cuda")
    model.fit(fake_cupy.asarray(X))
    expected = mreach.HDBSCAN(min_samples=3, backend="reference").fit(X)
    assert isinstance(model._rows.data._data, np.ndarray)
    for size in (2, 4, 8):
        one, other = (fit.cut(size, "leaf") for fit in (model, expected))
        for attribute in FITTED_ATTRIBUTES:
            assert_same_bits(getattr(one, attribute), getattr(other, attribute), attribute)
        distance = float(np.median(expected.minimum_spanning_tree_["weight"]))
        labels = model.dbscan_clustering(distance, size)
        assert_same_bits(labels, expected.dbscan_clustering(distance, size), "dbscan_clustering")


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("layout", ["C", "F", "strided", "int8", "float16"])
def test_rows_on_a_device_are_copied_for_prediction(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "SLICE_BYTES", 1000)
    X = np.round(load("non_finite_rows"))
    device = {
        "C": lambda: fake_cupy.asarray(X),
        "F": lambda: fake_cupy.asarray(np.asfortranarray(X)),
        "strided": lambda: fake_cupy.asarray(np.repeat(X, 2, axis=1))[:, ::2],
        "int8": lambda: fake_cupy.asarray(np.nan_to_num(X, posinf=9, neginf=-9).astype(np.int8)),
        "float16": lambda: fake_cupy.asarray(X.astype(np.float16)),
    }[layout]()
    expected = device.get()[np.isfinite(device.get()).all(axis=1)]
    narrow = layout in ("int8", "float16")
    model = mreach.HDBSCAN(min_samples=3, backend="cuda").fit(device)
    kept = model._rows.data.whole()
    assert_same_bits(kept, np.ascontiguousarray(expected, np.float32 if narrow else np.float64), "rows")
    assert kept.flags.c_contiguous
    assert_same_bits(model.predict(device), model.labels_, "labels")


# ---------------------------------------------------------------------------------------------------------
# Where numbers end
# ---------------------------------------------------------------------------------------------------------


def check_data(X: np.ndarray, *, min_samples: int = 5, alpha: float = 1.0, **tuning: Any) -> dict[str, Any]:
    """Compare with the reference on an array."""
    core, edges, statistics = cuda_result(X, min_samples, alpha, **tuning)
    expected = ReferencePoints(X)
    assert_same_bits(core, expected.core_distances(min_samples), "core distances")
    assert_same_bits(edges, expected.minimum_spanning_tree(alpha), "tree")
    return statistics


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("seed", range(3))
def test_rows_given_up_are_not_taken_up_again_by_a_sum_that_is_nan(seed: int) -> None:
    """Too many rows too near to one another to tell apart; and a tile beyond single precision."""
    rng = np.random.default_rng(seed)
    near = rng.normal(size=(1, 3)) + 1e-12 * rng.normal(size=(230, 3))
    X = np.vstack([rng.normal(size=(500, 3)), near, 1e60 * rng.normal(size=(3, 3))])
    assert check_data(X, tier="frame", limit=180)["overflow_rows"] > 0


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(("tier", "d"), [("half", 24), ("frame", 3)])
@pytest.mark.parametrize("far", [1e4, 1e9, 1e60])
def test_rows_far_out_cost_no_more_than_themselves(tier: str, d: int, far: float) -> None:
    """The others are told apart as before, also those that share a tile with one of them."""
    X = np.random.default_rng(0).normal(size=(700, d))
    X[[5, 60, 600]] *= far
    assert check_data(X, tier=tier)["overflow_rows"] <= 3


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("tier", ["half", "frame"])
@pytest.mark.parametrize(("scale", "alpha"), [(1e-14, 1e308), (1e-20, 1e308), (1e-100, 1e300)])
def test_distances_divided_by_a_huge_alpha(scale: float, alpha: float, tier: str) -> None:
    """Quotients with few digits, or none: weights are equal though the distances are not."""
    for copies, min_samples in ((1, 1), (2, 2)):
        X = np.repeat(np.random.default_rng(5).normal(size=(200 // copies, 20)) * scale, copies, axis=0)
        check_data(X, min_samples=min_samples, alpha=alpha, tier=tier, max_list_length=2)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("exponent", range(-86, -60, 5))
def test_squares_that_underflow_in_single_precision(exponent: int) -> None:
    """A group so tight that the squares of its distances have few digits, beside one as wide as the scale."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(128, 60)) + 5, 2.0**exponent * rng.normal(size=(256, 60))])
    check_data(X, tier="frame", min_list_length=1)
    check_data(X, tier="frame", min_list_length=1, max_list_length=1, min_samples=1)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("value", [1e15, 1e300, 1e308])
def test_a_constant_column_far_out(value: float) -> None:
    """Its mean is rounded by more than the other columns are wide; the sum of the largest overflows."""
    X = clips(np.random.default_rng(4), 200, duplicates=0.0).astype(np.float64)
    X[:, 7] = value
    assert check_data(X)["overflow_rows"] == 0


@pytest.mark.usefixtures("machine")
def test_a_pile_of_equal_rows_does_not_choose_the_scale() -> None:
    rng = np.random.default_rng(0)
    X = np.vstack([1e-18 * rng.normal(size=(250, 40)), np.zeros((400, 40))])[rng.permutation(650)]
    assert check_data(X)["overflow_rows"] == 0


# ---------------------------------------------------------------------------------------------------------
# Margins: enough, and needed
# ---------------------------------------------------------------------------------------------------------


def groups_of_integers(rng: np.random.Generator) -> np.ndarray:
    """Groups a little wide and far from the centre, in numbers that halves hold: only the sums err."""
    centres = rng.integers(-60, 61, (4, 64))
    X = centres[rng.integers(0, 4, 60)] + (rng.random((60, 64)) < 0.05) * rng.integers(-1, 2, (60, 64))
    return np.vstack([X, -X]).astype(np.float32)


def sphere(rng: np.random.Generator) -> np.ndarray:
    """The centre and points nearly equally far from it, which rounding to halves orders anew."""
    X = np.zeros((100, 17))
    for row in X:
        row[rng.choice(17, 2, replace=False)] = rng.choice([-1, 1], 2) * (650 + rng.uniform(-0.3, 0.3, 2))
    X *= (1000 + rng.uniform(-0.05, 0.05, (100, 1))) / np.linalg.norm(X, axis=1)[:, None]
    return np.vstack([X, np.zeros((1, 17))])


def coarse_squares(rng: np.random.Generator) -> np.ndarray:
    """Squares of differences are 0 or the smallest number: computed distances measure little."""
    return rng.uniform(0, 1.4, (60, 17)) * 2.0**-537


THIN: dict[str, tuple[Callable[[np.random.Generator], np.ndarray], float, dict[str, Any]]] = {
    "accumulation": (groups_of_integers, 1 / 16, {"tier": "half", "min_samples": 3, "limit": 16}),
    "residual": (sphere, 1 / 2, {"tier": "half", "min_samples": 10}),
    "distance_slack": (coarse_squares, 2.0**-14, {"tier": "half", "min_samples": 10}),
    "distance_slack of frames": (coarse_squares, 2.0**-14, {"tier": "frame", "min_samples": 10}),
}
"""Of each margin: data that need it, and a part of it with which they come out wrong. That of the sums allows
for more than any order of additions brings about; that of underflow for thousands of features."""


def thin_out(monkeypatch: pytest.MonkeyPatch, margin: str, part: float) -> None:
    """Leave only a part of a margin."""
    if margin == "accumulation":
        made = tiles.Filter.__init__

        def thin_filter(self: tiles.Filter, *arguments: Any) -> None:
            made(self, *arguments)
            self.accumulation *= part

        monkeypatch.setattr(tiles.Filter, "__init__", thin_filter)
    elif margin == "residual":
        rounded = tiles.TileSet._halves

        def thin_halves(self: tiles.TileSet, *arguments: Any) -> tuple[Any, ...]:
            arrays = rounded(self, *arguments)
            for array in (arrays[3], arrays[4], arrays[6]):
                array[...] = array * np.float32(part)
            return arrays

        monkeypatch.setattr(tiles.TileSet, "_halves", thin_halves)
    else:
        whole = order.Layout.distance_slack.fget
        monkeypatch.setattr(order.Layout, "distance_slack", property(lambda self: whole(self) * part))


@pytest.mark.parametrize("margin", THIN)
def test_margins_are_enough_and_a_part_of_them_is_not(
    margin: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, part, values = THIN[margin]
    machine.change(rounding="random")
    sets = [make(np.random.default_rng(seed)) for seed in range(4)]
    for X in sets:
        check_data(X, min_list_length=1, **values)
    thin_out(monkeypatch, margin.split()[0], part)
    # A wrong list may also lead to a tree that is none, which ends in an error.
    wrong = 0
    for X in sets:
        try:
            check_data(X, min_list_length=1, **values)
        except (pytest.fail.Exception, RuntimeError):
            wrong += 1
    assert wrong

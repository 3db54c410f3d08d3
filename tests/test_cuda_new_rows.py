"""New rows against a fit on an emulated GPU: what the reference gives, bit for bit."""

from __future__ import annotations

import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import cuda_emulator
import numpy as np
import pytest
from conftest import assert_same_bits
from cuda_emulator import fake_cupy, fake_memory
from datasets import blobs, clips

from mreach.backends import cuda, reference
from mreach.backends.cuda import new_rows, pace, session
from mreach.progress import Progress
from mreach.records import NearestRows

pytestmark = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("c++")), reason="needs a C++ compiler to emulate CUDA"
)

MODULES: dict[Any, Any] = {}

LARGE = 400
"""Fitted rows: several tiles, of which the last is not full, and more than a part has room for."""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if hasattr(sys.modules.get("cupy"), "show_config"):
        pytest.skip("CuPy itself is imported, which the emulator stands in for")
    folder = str(files("mreach.backends") / "cuda_kernels")
    monkeypatch.setattr(fake_cupy, "FOLDERS", [*fake_cupy.FOLDERS, folder])
    monkeypatch.setattr(session, "_modules", MODULES)
    cuda_emulator.install()
    yield
    cuda_emulator.uninstall()


def unit_rows(X: np.ndarray) -> np.ndarray:
    X = X.astype(np.float64)
    return X / np.linalg.norm(X, axis=1)[:, None]


def subnormal_squares(rng: np.random.Generator) -> np.ndarray:
    X = blobs(rng, LARGE + 10, 3) * 1e-160
    X[::3] *= 1e-2
    return X


SETS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "clips": lambda rng: clips(rng, LARGE + 70, duplicates=0.3),
    "unit_clips": lambda rng: unit_rows(clips(rng, LARGE + 10, duplicates=0.3)),
    "blobs_33d": lambda rng: blobs(rng, LARGE + 10, 33).astype(np.float32),
    "lattice_3d": lambda rng: rng.integers(0, 4, (LARGE + 10, 3)).astype(np.float64),
    "lattice_1d_float32": lambda rng: rng.integers(-6, 7, (LARGE + 10, 1)).astype(np.float32),
    "unit_lattice_2d": lambda rng: unit_rows(rng.integers(-2, 3, (LARGE + 10, 2)) + np.array([0.25, 0])),
    "all_equal": lambda rng: np.full((LARGE + 3, 2), 0.3),
    "zeros_of_both_signs": lambda rng: rng.choice([0.0, -0.0, 1.0], (LARGE + 10, 2)),
    "subnormal_float32": lambda rng: (blobs(rng, LARGE + 10, 2) * 1e-41).astype(np.float32),
    "subnormal_squares": subnormal_squares,
    "ever_nearer": lambda rng: np.abs(np.linspace(-9, 0.1, LARGE + 10)[:, None]) ** [1, 2],
    "beyond_float64": lambda rng: blobs(rng, LARGE + 10, 2) * 10.0 ** rng.choice([0, 200], (LARGE + 10, 1)),
    "one_fitted_row": lambda rng: rng.normal(size=(4, 2)),
}

WAYS: dict[str, dict[str, float]] = {
    "whole": {},
    "pieces": {"TARGET_LAUNCH_SECONDS": 1e-12, "PLACES_AT_ONCE": 1, "MAX_PARTS": 1},
    "parts": {"MAX_PARTS": 3, "BLOCKS_PER_MULTIPROCESSOR": 1000},
    "batches": {"TARGET_LAUNCH_SECONDS": 1e-12, "PLACES_AT_ONCE": 2, "ENTRY_BYTES": 1},
}
"""How the pairs are gone through: launches for one tile of fitted rows; parts that are merged; one tile of
new rows at a time."""


def set_way(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(pace if hasattr(pace, name) else new_rows, name, value)


@np.errstate(over="ignore")
def check(X: np.ndarray, X_new: np.ndarray, **parameters: Any) -> None:
    assert_same_found(cuda.nearest_rows(X, X_new, **parameters), X, X_new, **parameters)


def assert_same_found(found: NearestRows, X: np.ndarray, X_new: np.ndarray, **parameters: Any) -> None:
    expected = reference.nearest_rows(X, X_new, **parameters)
    for name in found._fields:
        assert_same_bits(getattr(found, name), getattr(expected, name), name)


@np.errstate(over="ignore")
@pytest.mark.parametrize("name", SETS)
def test_new_rows_find_what_the_reference_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    rows = SETS[name](rng)
    n = min(LARGE, len(rows) - 3)
    X, X_new = rows[:n], rows[n:]
    ways = list(WAYS)
    for case, (halved_square, alpha) in enumerate([(False, 1.0), (True, 0.5), (True, 2.0), (False, 2.0)]):
        min_samples = min(n, int(rng.choice([1, 5, n])))
        core = reference.ReferencePoints(X, halved_square).core_distances(min_samples)
        shared = {"alpha": alpha, "halved_square": halved_square, "core_distances": core}
        known = rng.choice([0.0, 0.5, 3.0, np.inf], len(X_new))
        with monkeypatch.context() as patched:
            set_way(patched, ways[(case + len(name)) % len(ways)])
            check(X, X_new, min_samples=min_samples, **shared)
            check(X, X_new, new_core_distances=known, candidates=rng.random(n) < 0.3, **shared)


def example() -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    X = blobs(np.random.default_rng(0), 200, 3)
    core = reference.ReferencePoints(X).core_distances(5)
    return X, X[:70] + 0.01, {"core_distances": core, "alpha": 1.0, "min_samples": 5}


def test_nothing_to_find() -> None:
    X, X_new, parameters = example()
    check(X, X_new[:0], **parameters)
    check(X, X_new, candidates=np.zeros(200, bool), **parameters)
    check(X, X_new[:1], candidates=np.arange(200) == 17, **parameters)
    launched = fake_memory.settings.n_launches
    known, nobody = np.ones(70), np.zeros(200, bool)
    found = cuda.nearest_rows(X, X_new, new_core_distances=known, candidates=nobody, **parameters)
    assert fake_memory.settings.n_launches == launched
    assert_same_bits(found.core_distances, known, "core distances")
    assert (found.rows == -1).all()


def test_the_state_of_a_part_carries_over_under_any_order_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    X, X_new, parameters = example()
    set_way(monkeypatch, "pieces")
    for schedule in ("reverse", "random:1"):
        monkeypatch.setenv("MREACH_EMULATOR_SCHEDULE", schedule)
        check(np.round(X), np.round(X_new), **parameters)


def test_rows_on_a_device_stay_as_they_are() -> None:
    X, X_new, parameters = example()
    held, held_new = fake_cupy.asarray(X), fake_cupy.asarray(X_new)
    assert_same_found(cuda.nearest_rows(held, held_new, **parameters), X, X_new, **parameters)
    assert_same_bits(held.get(), X, "fitted rows")
    assert_same_bits(held_new.get(), X_new, "new rows")


def test_progress_counts_each_new_row_once_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[list[Any]] = []

    class Watched(Progress):
        def stage(self, name: str, total: int | None = None) -> None:
            stages.append([name, total, 0])

        def advance(self, k: int = 1) -> None:
            stages[-1][2] += k

    X, X_new, parameters = example()
    set_way(monkeypatch, "batches")
    cuda.nearest_rows(X, X_new, progress=Watched(), **parameters)
    cuda.nearest_rows(X, X_new, progress=Watched(), new_core_distances=np.ones(70), **parameters)
    assert stages == [["new rows", 140, 140], ["new rows", 70, 70]]


def test_too_little_memory_is_said_before_and_all_of_it_goes_back() -> None:
    X, X_new, parameters = example()
    settings = fake_memory.settings
    settings.memory_bytes = 100_000
    with pytest.raises(MemoryError, match=r"a search among 200 rows x 3 features takes at least 0.1 MB"):
        cuda.nearest_rows(X, X_new, **parameters)
    settings.reset()
    settings.fail_allocation_after(3)
    with pytest.raises(MemoryError, match="ran out of memory in a search of 200 rows x 3 features") as held:
        cuda.nearest_rows(X, X_new, **parameters)
    assert sum(settings.allocated.values()) == 0
    assert held.value.__context__ is None
    check(X, X_new, **parameters)


@pytest.mark.parametrize("min_samples", [1, 100])
def test_a_batch_takes_no_more_than_is_planned(min_samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    malloc = fake_memory.MemoryPool.malloc

    def count(pool: Any, size: int) -> Any:
        nonlocal most
        pointer = malloc(pool, size)
        most = max(most, pool.used_bytes())
        return pointer

    X, _, parameters = example()
    X_new = np.repeat(X, 3, axis=0)
    monkeypatch.setattr(fake_memory.MemoryPool, "malloc", count)
    monkeypatch.setattr(new_rows, "ENTRY_BYTES", 1_000_000)
    cuda.nearest_rows(X, X_new, **parameters | {"min_samples": min_samples})
    fitted = X.nbytes + 8 * len(X)
    assert 600_000 < most <= 1_000_000 + fitted + 16 * 512

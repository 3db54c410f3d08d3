"""Backend "cuda" and its memory: planned, given back whatever happens, and launches of measured length.

On emulated devices, so that memory can be as little, and fail as often, as a test wants.
"""

from __future__ import annotations

import gc
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import cuda_emulator
import numpy as np
import pytest
from conftest import FITTED_ATTRIBUTES, assert_same_bits
from cuda_emulator import fake_cupy, fake_memory
from datasets import blobs
from test_device_arrays import Exchanged, Interface

from mreach import HDBSCAN, estimator
from mreach.backends import cuda
from mreach.backends.cuda import memory, pace, session
from mreach.metrics import EUCLIDEAN
from mreach.progress import Progress
from mreach.validation import check_rows

pytestmark = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("c++")), reason="needs a C++ compiler to emulate CUDA"
)

settings = fake_memory.settings
MODULES: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def cp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in for CuPy, with two devices."""
    if hasattr(sys.modules.get("cupy"), "show_config"):
        pytest.skip("CuPy itself is imported, which the emulator stands in for")
    folder = str(files("mreach.backends") / "cuda_kernels")
    monkeypatch.setattr(fake_cupy, "FOLDERS", [*fake_cupy.FOLDERS, folder])
    monkeypatch.setattr(session, "_modules", MODULES)
    cuda_emulator.install()
    settings.n_devices = 2
    yield sys.modules["cupy"]
    cuda_emulator.uninstall()


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    """What is freed only by the garbage collector is part of a reference cycle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def example(n: int = 150, n_features: int = 2, seed: int = 0) -> np.ndarray:
    return blobs(np.random.default_rng(seed), n, n_features).astype(np.float32)


def fit(X: Any, **parameters: Any) -> HDBSCAN:
    return HDBSCAN(**{"backend": "cuda", "min_samples": 5} | parameters).fit(X)


def assert_same_fit(actual: HDBSCAN, expected: HDBSCAN) -> None:
    for attribute in FITTED_ATTRIBUTES:
        assert_same_bits(getattr(actual, attribute), getattr(expected, attribute), attribute)


def taken() -> int:
    """Return what all pools of all devices hold."""
    return sum(settings.allocated.values())


# ---------------------------------------------------------------------------------------------------------
# The plan
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "n_features", "dtype", "min_samples", "tier"),
    [
        (300, 2, "float32", 5, "frame"),
        (2000, 1, "float64", 20, "frame"),
        (700, 61, "float32", 5, "half"),
        (300, 61, "float64", 100, "half"),
        (300, 100, "float32", 5, "frame"),
    ],
)
def test_the_estimate_is_what_a_fit_takes(
    n: int, n_features: int, dtype: str, min_samples: int, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    malloc = fake_memory.MemoryPool.malloc

    def count(pool: Any, size: int) -> Any:
        nonlocal most
        pointer = malloc(pool, size)
        most = max(most, pool.used_bytes())
        return pointer

    X = np.random.default_rng(0).normal(size=(n, n_features)).astype(dtype)
    monkeypatch.setattr(fake_memory.MemoryPool, "malloc", count)
    monkeypatch.setattr(session.Session, "reserve", lambda *_: None)
    with cuda.hold_rows(X, min_samples=min_samples) as held:
        points = cuda.open_points(held, n_threads=1, progress=Progress(), tier=tier)
        points.core_distances(min_samples)
        estimator.minimum_spanning_tree(points, 1.0)
    plan = memory.ROOMY if tier == "frame" else memory.WITH_HALVES
    assert most <= memory.peak_bytes(held.job, plan) <= 1.15 * most


def test_the_estimate_at_half_a_million_rows() -> None:
    job = memory.Job(500_000, 61, 4, 20, copied=True)
    assert memory.peak_bytes(job, memory.ROOMY) < 1.4e9
    assert memory.peak_bytes(job, memory.LEAST) < 0.8e9


def test_most_is_taken_at_once(cp: Any) -> None:
    X = example(1000)
    with cuda.hold_rows(X, min_samples=5) as held:
        reserved = held.session.pool.total_bytes()
        points = cuda.open_points(held, n_threads=1, progress=Progress())
        points.core_distances(5)
        estimator.minimum_spanning_tree(points, 1.0)
        peak = held.session.pool.total_bytes()
    assert 0 < reserved < peak < 1.15 * memory.peak_bytes(held.job, memory.ROOMY)
    assert taken() == 0


def test_little_memory_changes_no_result(cp: Any) -> None:
    X = example(6000)
    job = memory.Job(*X.shape, 4, 5, copied=True)
    roomy, least = (memory.peak_bytes(job, plan) for plan in (memory.ROOMY, memory.LEAST))
    assert least < 0.7 * roomy
    other = cp.empty(settings.memory_bytes - int(1.1 * least), np.uint8)  # somebody else holds most of it
    before = taken()
    with cuda.hold_rows(X, min_samples=5) as held:
        assert held.plan == memory.LEAST
    assert taken() == before
    assert_same_fit(fit(X), fit(X, backend="cpu"))
    assert taken() == before
    del other


def test_more_neighbours_than_are_listed_take_no_more_than_planned(cp: Any) -> None:
    """Nearly all rows are scanned then, and most of their neighbours are as light as the best."""
    X, min_samples = example(3000, 3), 200
    job = memory.Job(*X.shape, 4, min_samples, copied=True)
    other = cp.empty(settings.memory_bytes - int(1.1 * memory.peak_bytes(job, memory.LEAST)), np.uint8)
    assert_same_fit(fit(X, min_samples=min_samples), fit(X, min_samples=min_samples, backend="cpu"))
    del other


def test_far_too_little_memory(cp: Any) -> None:
    X = example(6000)
    settings.memory_bytes = 6_000_000
    n_before = settings.n_allocations
    with pytest.raises(
        MemoryError, match=r"a fit of 6000 rows x 2 features takes at least 7\.\d MB"
    ) as caught:
        fit(X)
    assert settings.n_allocations == n_before  # it did not even start
    message = str(caught.value)
    assert "on device=0, which has 6.0 MB free of 6.0 MB" in message
    assert "backend='cpu' gives the same result" in message
    found = re.search(r"enough for about (\d+) rows", message)
    assert found
    n = int(found[1])
    assert n > 1000
    fit(X[:n])


# ---------------------------------------------------------------------------------------------------------
# Whatever happens, memory goes back and the next fit works
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_garbage_collector")
def test_a_fit_leaves_nothing(cp: Any) -> None:
    for X in (example(), cp.asarray(example()), np.ones((5, 2)), np.array([[0.0], [np.nan], [1.0], [3.0]])):
        before = taken()
        with cuda.hold_rows(X) as held:
            rows = check_rows(held, SimpleNamespace(min_samples=1, alpha=1.0, metric=EUCLIDEAN))
            points = cuda.open_points(rows.finite, n_threads=1, progress=Progress())
            points.core_distances(1)
            edges = estimator.minimum_spanning_tree(points, 1.0)
            assert held.session.pool.used_bytes() > 0
        assert held.session.pool.total_bytes() == 0  # though this test still holds all of its objects
        assert taken() == before
        assert len(edges) == rows.n_rows - len(rows.other_rows) - 1


@pytest.mark.usefixtures("no_garbage_collector")
@pytest.mark.parametrize("kind", ["allocation", "launch"])
def test_a_failure_in_the_middle(kind: str) -> None:
    X = np.vstack([example(), example()[:20]])  # with copies
    expected = fit(X)
    count = {"allocation": lambda: settings.n_allocations, "launch": lambda: settings.n_launches}[kind]
    n_before = count()
    assert_same_fit(fit(X), expected)
    total = count() - n_before
    assert total > 50
    raised = 0
    step = 3  # it does not divide what repeats: each kind of step fails somewhere
    for k in range(0, total, step):
        getattr(settings, f"fail_{kind}_after")(k)
        held = None
        try:
            model = fit(X)
        except Exception as error:
            held = error
        assert taken() == 0  # while the error is still held
        if held is None:  # where memory was to be taken at once
            assert_same_fit(model, expected)
        elif kind == "launch":
            assert "CUDA_ERROR_LAUNCH_FAILED" in str(held)
        else:
            assert type(held) is MemoryError
            assert "device=0 ran out of memory in a fit of 170 rows x 2 features" in str(held)
        raised += held is not None
        if k % 10 == 0:  # the next fit works
            assert_same_fit(fit(X), expected)
    assert raised >= total // step - 1


class Interrupting(Progress):
    """Ctrl-C at the advance number ``at``."""

    def __init__(self, at: int) -> None:
        self.at = at

    def advance(self, k: int = 1) -> None:
        self.at -= 1
        if self.at < 0:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("no_garbage_collector")
def test_an_interrupt(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "TARGET_LAUNCH_SECONDS", 1e-9)
    X = example(300)
    expected = fit(X, device=0)
    mine = cp.cuda.Stream()
    with cp.cuda.Device(1), mine:
        for at in range(6):
            with monkeypatch.context() as patch:
                patch.setattr(estimator, "open_progress", lambda _, at=at: Interrupting(at))
                with pytest.raises(KeyboardInterrupt) as caught:
                    fit(X, device=0)
            assert caught.value is not None
            assert taken() == 0
            assert cp.cuda.Device().id == 1
            assert cp.cuda.get_current_stream() is mine
        assert_same_fit(fit(X, device=0), expected)
        assert cp.cuda.Device().id == 1


@pytest.mark.usefixtures("cp")
def test_an_error_that_the_caller_is_handling_keeps_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting() -> Iterator[Exception]:
        try:
            raise KeyError("of the caller")
        except KeyError as error:
            handled = error
        yield handled
        yield handled

    monkeypatch.setattr(estimator, "open_progress", lambda _: Interrupting(0))
    generator = waiting()
    try:
        raise next(generator)
    except KeyError:
        with pytest.raises(KeyboardInterrupt):
            fit(example(50))
    assert next(generator, None) is not None  # clearing its frame would have ended it


# ---------------------------------------------------------------------------------------------------------
# Launches of measured length
# ---------------------------------------------------------------------------------------------------------


class Recording(Progress):
    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None, list[int]]] = []

    def stage(self, name: str, total: int | None = None) -> None:
        self.stages.append((name, total, []))

    def advance(self, k: int = 1) -> None:
        assert k >= 0
        self.stages[-1][2].append(k)


def pieces(n_tiles: int, n_places: int, work: float, **keywords: Any) -> tuple[list[pace.Piece], list[int]]:
    stream = SimpleNamespace(synchronize=lambda: None)
    progress = Recording()
    progress.stage("pieces", 1000)
    paced = pace.Pace(SimpleNamespace(stream=stream), n_tiles * work)
    found = list(paced.pieces(n_tiles, n_places, work, progress, 1000, **keywords))
    return found, progress.stages[0][2]


@pytest.mark.parametrize("target", [1e-12, 1e-4, 0.25])
@pytest.mark.parametrize(("n_tiles", "n_places"), [(1, 1), (7, 300), (300, 1000), (2, 5000)])
def test_pieces_cover_everything_once(
    target: float, n_tiles: int, n_places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "TARGET_LAUNCH_SECONDS", target)
    found, advances = pieces(n_tiles, n_places, 1e10, most=100)
    seen = np.zeros((n_tiles, n_places), int)
    for piece in found:
        seen[piece.first : piece.end, piece.first_place : piece.end_place] += 1
        assert 0 < piece.end - piece.first <= 100
        assert piece.first_place % pace.PLACES_AT_ONCE == 0
        assert (piece.first_place == 0) == piece.opens
        assert (piece.end_place == n_places) == piece.closes
    assert (seen == 1).all()
    assert len(advances) == len(found)
    assert sum(advances) == 1000
    if target == 0.25:
        assert len(found) == -(-n_tiles // 100)


def test_a_slow_device_gets_short_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches come near the target, whatever the first guess: by fewer tiles, then by fewer places."""
    now = 0.0
    monkeypatch.setattr(pace.time, "perf_counter", lambda: now)
    stream = SimpleNamespace(synchronize=lambda: None)
    n_tiles, n_places, work = 1000, 4096, 1e12
    for rate in (1e10, 1e12, 1e14):
        paced = pace.Pace(SimpleNamespace(stream=stream), n_tiles * work)
        seconds = []
        for piece in paced.pieces(n_tiles, n_places, work, Progress(), 0):
            share = (piece.end_place - piece.first_place) / n_places
            taken = (piece.end - piece.first) * share * work / rate
            now += taken
            if piece.first > 0:  # the first tiles are a guess
                seconds.append(taken)
        least = work * pace.PLACES_AT_ONCE / n_places / rate
        assert max(seconds) <= 1.01 * max(pace.TARGET_LAUNCH_SECONDS, least)
        assert np.median(seconds) >= 0.45 * pace.TARGET_LAUNCH_SECONDS


@pytest.mark.parametrize(
    "X",
    [
        example(600),
        example(600, 20),
        np.random.default_rng(0).integers(0, 2, size=(600, 18)).astype(np.float32),  # ties: rows given up
        np.repeat(example(300), 2, axis=0)[:600],
    ],
    ids=["frames", "halves", "ties", "copies"],
)
def test_launches_as_short_as_can_be(X: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """One tile at one place a launch: what a row has found goes on to the next, and progress moves."""
    monkeypatch.setattr(pace, "TARGET_LAUNCH_SECONDS", 1e-9)
    monkeypatch.setattr(pace, "PLACES_AT_ONCE", 1)
    monkeypatch.setattr(memory, "ROOMY", memory.Plan(entry_bytes=1))  # strips of one tile
    progress = Recording()
    monkeypatch.setattr(estimator, "open_progress", lambda _: progress)
    model = fit(X)
    launches = [name for name, *_ in settings.launches]
    n_tiles = -(-len(np.unique(X, axis=0)) // 128)
    assert sum(name.startswith("nearest") for name in launches) >= n_tiles**2
    for name, total, advances in progress.stages:
        assert sum(advances) == total, name
    names = [name for name, _, _ in progress.stages]
    assert names[:2] == ["neighbours", "spanning tree, round 1"]
    assert names[-1] == "hierarchy"
    assert len(progress.stages[0][2]) >= n_tiles**2
    assert_same_fit(model, fit(X, backend="cpu"))


# ---------------------------------------------------------------------------------------------------------
# Beside other work on the devices
# ---------------------------------------------------------------------------------------------------------


def test_fits_in_threads(cp: Any) -> None:
    """Two on each of two devices at once; what is current in the callers' threads stays."""
    data = [example(400, seed=seed) for seed in range(4)]
    expected = [fit(X, backend="cpu") for X in data]

    def work(i: int) -> tuple[HDBSCAN, bool]:
        mine = cp.cuda.Stream()
        with cp.cuda.Device((i + 1) % 2), mine:
            model = fit(data[i], device=i % 2)
            return model, cp.cuda.Device().id == (i + 1) % 2 and cp.cuda.get_current_stream() is mine

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(work, range(4)))
    for (model, unchanged), reference in zip(found, expected, strict=True):
        assert_same_fit(model, reference)
        assert unchanged
    assert settings.allocated.keys() == {0, 1}
    assert taken() == 0


@pytest.mark.parametrize("wrap", [lambda x: x, Exchanged, Interface], ids=["CuPy", "DLPack", "interface"])
def test_rows_on_a_device_stay_there(cp: Any, wrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither copied on the device, nor through the host; the device is that of the rows."""
    X = example(400, 30)
    expected = fit(X, backend="cpu")
    most = 0
    download = fake_cupy.ndarray.get

    def get(array: Any, *arguments: Any, **keywords: Any) -> np.ndarray:
        nonlocal most
        # The rows that stand for each cluster are read, and a sample; in data this small it is all of them.
        most = max(most, 0 if array.shape == X.shape else array.nbytes)
        return download(array, *arguments, **keywords)

    def uploaded(*_: Any) -> None:
        raise AssertionError("rows on a device were uploaded")

    with cp.cuda.Device(1):
        on_device = cp.asarray(X)
    settings.allocation_sizes.clear()
    settings.launches.clear()
    monkeypatch.setattr(fake_cupy.ndarray, "get", get)
    monkeypatch.setattr("mreach.backends.cuda.rows.upload", uploaded)
    assert_same_fit(fit(wrap(on_device), backend="auto"), expected)
    assert most < X.nbytes
    assert cp.cuda.Device().id == 0
    assert settings.allocated.get(0, 0) == 0
    with cuda.hold_rows(on_device, device=1) as held:
        assert held.array is on_device
        assert not held.job.copied
    with cuda.hold_rows(on_device[:, ::2], device=1) as held:
        assert held.job.copied


@pytest.mark.usefixtures("no_garbage_collector")
def test_rows_that_have_to_be_copied_are_not_kept(cp: Any) -> None:
    """Integers, every other column, some rows not finite: labels still ask for values as they were given."""
    X = np.random.default_rng(0).integers(0, 4, size=(300, 6))
    wide = np.where(X == 3, np.nan, X)[:, ::2]
    for host, on_device in (
        (X[:, ::2], cp.asarray(X)[:, ::2]),
        (wide, cp.asarray(np.where(X == 3, np.nan, X))[:, ::2]),
    ):
        before = taken()
        assert_same_fit(fit(on_device, min_samples=3), fit(host, backend="cpu", min_samples=3))
        assert taken() == before


def test_rows_made_ready_and_rows_that_count_often(cp: Any) -> None:
    X = example(120)
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    places = np.radians(X.astype(np.float64))
    weighted = HDBSCAN(backend="reference", min_samples=5).fit(X, sample_weight=weights)
    expected = HDBSCAN(metric="haversine", backend="reference", min_samples=5).fit(places)
    by_direction = HDBSCAN(metric="cosine", backend="reference", min_samples=5).fit(X)
    for rows, radians in ((X, places), (cp.asarray(X), cp.asarray(places))):
        before = taken()
        model = HDBSCAN(backend="cuda", min_samples=5)
        assert_same_fit(model.fit(rows, sample_weight=weights), weighted)
        assert_same_fit(fit(radians, metric="haversine"), expected)
        assert_same_fit(fit(rows, metric="cosine"), by_direction)
        assert taken() == before
    on_host = fit(cp.asarray(X), metric="l1", backend="auto")  # computed there, wherever the data lie
    assert on_host.backend_ == "cpu"
    assert_same_fit(on_host, HDBSCAN(metric="l1", backend="reference", min_samples=5).fit(X))

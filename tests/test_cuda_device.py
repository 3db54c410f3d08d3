"""What only a real GPU can show: code for other generations of GPUs, and rows by the hundred thousand."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import FITTED_ATTRIBUTES, assert_same_bits, skip_unless_available

from benchmarks.workloads import get_workload
from mreach import HDBSCAN
from mreach.backends import cuda, reference
from mreach.backends.cuda import session
from mreach.backends.cuda.kernels import Shape
from mreach.backends.reference import ReferencePoints
from mreach.neighbors import core_distances
from mreach.progress import Progress
from mreach.spanning_tree import minimum_spanning_tree


class OfTuring(Shape):
    """What a Turing GPU runs."""

    capability = 75

    def __init__(self, compute_capability: int) -> None:
        super().__init__(self.capability)


class OfAmpere(OfTuring):
    """What an Ampere GPU runs."""

    capability = 80


@pytest.fixture(autouse=True)
def real_gpu() -> None:
    skip_unless_available("cuda")


@pytest.fixture(params=[OfTuring, OfAmpere])
def other_gpu(
    real_gpu: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Compile for the virtual architecture of another GPU: the driver translates that for the one in hand."""
    shape = request.param
    # An option would not do: of two architectures NVRTC takes the last, and CuPy appends that of this GPU.
    virtual = (f"-arch=compute_{shape.capability}", "ptx")
    monkeypatch.setattr("cupy.cuda.compiler._get_arch_for_options_for_nvrtc", lambda arch=None: virtual)
    monkeypatch.setattr(session, "Shape", shape)
    monkeypatch.setattr(session, "_modules", {})
    monkeypatch.setattr(session, "_functions", {})
    yield
    assert {kernel.ptx_version for kernel in session._functions.values()} == {shape.capability}


def assert_equals_cpu(X: np.ndarray, **parameters: object) -> None:
    expected = HDBSCAN(backend="cpu", **parameters).fit(X)  # type: ignore[arg-type]
    fitted = HDBSCAN(backend="cuda", **parameters).fit(X)  # type: ignore[arg-type]
    for name in FITTED_ATTRIBUTES:
        assert_same_bits(getattr(fitted, name), getattr(expected, name), name)


@pytest.mark.parametrize("n_features", [3, 61, 130])
def test_code_for_other_gpus(n_features: int, other_gpu: None) -> None:
    X = np.random.default_rng(0).normal(size=(3001, n_features)).astype(np.float32)
    X[::5] += 4
    assert_equals_cpu(X, min_cluster_size=10)


@pytest.mark.parametrize("name", ["lattice3d", "copies"])
def test_ties_and_copies_for_other_gpus(name: str, other_gpu: None) -> None:
    assert_equals_cpu(get_workload(name).rows(8000), min_cluster_size=8)


def assert_halved_equals_reference(X: np.ndarray, min_samples: int, alpha: float) -> None:
    """Core distances and tree under half the squared distance, of unit rows as the metric "cosine" has."""
    X = X / np.linalg.norm(X, axis=1)[:, None]
    with cuda.hold_rows(X) as held:
        points = cuda.open_points(held, n_threads=1, progress=Progress(), halved_square=True)
        core = core_distances(points, min_samples)
        edges = minimum_spanning_tree(points, alpha)
    expected = ReferencePoints(X, halved_square=True)
    assert_same_bits(core, expected.core_distances(min_samples), "core distances")
    assert_same_bits(edges, expected.minimum_spanning_tree(alpha), "tree")


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("n_features", [3, 61, 130])
def test_half_the_squared_distance(n_features: int, alpha: float) -> None:
    X = np.random.default_rng(0).normal(size=(5001, n_features))
    X[::5] += 4
    X[100:200] = X[:100]
    assert_halved_equals_reference(X, 5, alpha)
    assert_halved_equals_reference(np.round(X) + 0.25, 20, alpha)


@pytest.mark.parametrize("n_features", [3, 61])
def test_half_the_squared_distance_for_other_gpus(n_features: int, other_gpu: None) -> None:
    assert_halved_equals_reference(np.random.default_rng(0).normal(size=(2001, n_features)), 5, 2.0)


def assert_new_rows_equal_reference(X: np.ndarray, X_new: np.ndarray, **parameters: object) -> None:
    found = cuda.nearest_rows(X, X_new, **parameters)  # type: ignore[arg-type]
    expected = reference.nearest_rows(X, X_new, **parameters)  # type: ignore[arg-type]
    for name in found._fields:
        assert_same_bits(getattr(found, name), getattr(expected, name), name)


@pytest.mark.parametrize("halved_square", [False, True])
@pytest.mark.parametrize("n_features", [1, 4, 61, 130])
def test_new_rows(n_features: int, halved_square: bool) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(8200, n_features)).astype(np.float32)
    rows[:200] = rows[200:400]
    for all_rows in (rows, np.round(2 * rows), rows.astype(np.float64) * 1e-160):
        X, X_new = all_rows[:8000], all_rows[8000:]
        core = rng.choice([0.5, 1.0, 3.0], 8000) * float(np.abs(X).max()) / 3
        shared = {"core_distances": core, "halved_square": halved_square}
        for min_samples, alpha in ((1, 1.0), (20, 0.5), (4096, 2.0)):
            assert_new_rows_equal_reference(X, X_new, min_samples=min_samples, alpha=alpha, **shared)
        known, some = rng.choice(core, len(X_new)), rng.random(8000) < 0.1
        assert_new_rows_equal_reference(
            X, X_new, new_core_distances=known, candidates=some, alpha=2.0, **shared
        )
        assert_new_rows_equal_reference(X, X_new[:1], min_samples=5, alpha=1.0, **shared)


def test_new_rows_for_other_gpus(other_gpu: None) -> None:
    X = np.round(np.random.default_rng(0).normal(size=(3000, 5)))
    core = np.ones(2700)
    assert_new_rows_equal_reference(X[:2700], X[2700:], core_distances=core, min_samples=5, alpha=1.0)


def test_two_hundred_thousand_clips() -> None:
    assert_equals_cpu(get_workload("clips").rows(200_000), min_cluster_size=20)


def test_a_million_points() -> None:
    assert_equals_cpu(get_workload("blobs2d").rows(1_000_000), min_cluster_size=20)


INTERRUPTED = """
    import os, signal, threading, time
    import cupy
    import numpy as np
    import mreach.estimator
    from mreach import HDBSCAN
    from mreach.backends import cuda, reference
    from mreach.progress import Progress

    sent = []

    def interrupt():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    class Watched(Progress):
        def stage(self, name, total=None):
            if name == "neighbours" and len(X) > 1000:
                threading.Timer(0.6, interrupt).start()

    mreach.estimator.open_progress = lambda show: Watched()
    open_points = cuda.open_points
    cuda.open_points = lambda X, **keywords: open_points(X, tier="frame", **keywords)  # slow enough
    X = small = np.random.default_rng(0).normal(size=(500, 3))
    expected = HDBSCAN(backend="reference").fit(small)
    HDBSCAN(backend="cuda").fit(small)
    free, _ = cupy.cuda.Device().mem_info
    X = np.random.default_rng(0).standard_normal((300_000, 300), dtype=np.float32)
    try:
        HDBSCAN(backend="cuda").fit(X)
        print("finished", end=" ")
    except KeyboardInterrupt:
        print(time.perf_counter() - sent[0], end=" ")
    X = small
    left, _ = cupy.cuda.Device().mem_info
    again = HDBSCAN(backend="cuda").fit(small)
    print((again.labels_ == expected.labels_).all(), free - left)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT as POSIX does")
def test_ctrl_c_between_launches() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED)], capture_output=True, text=True, check=True
    )
    seconds, same, kept = done.stdout.split()
    assert seconds != "finished"
    assert float(seconds) < 2.0  # a launch should take 0.25 s
    assert same == "True"
    assert int(kept) < 64 << 20  # kernels loaded meanwhile, and no more


def test_many_features_and_neighbours() -> None:
    rng = np.random.default_rng(0)
    assert_equals_cpu(rng.normal(size=(1500, 4096)), min_cluster_size=5)
    assert_equals_cpu(rng.normal(size=(6001, 20)).astype(np.float32), min_cluster_size=5, min_samples=4096)
    assert_equals_cpu(rng.normal(size=(9001, 3)), min_cluster_size=5, min_samples=200)

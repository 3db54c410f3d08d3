"""What only a real GPU can show: code for other generations of GPUs, and rows by the hundred thousand."""

import numpy as np
import pytest
from conftest import FITTED_ATTRIBUTES, assert_same_bits, skip_unless_available

from benchmarks.workloads import get_workload
from mreach import HDBSCAN
from mreach.backends.cuda import session
from mreach.backends.cuda.kernels import Shape


class OfAnotherGpu(Shape):
    """What another generation runs, compiled for its virtual architecture: the driver translates that."""

    capability = 75

    def __init__(self, compute_capability: int) -> None:
        super().__init__(self.capability)

    @property
    def options(self) -> tuple[str, ...]:
        return (f"-arch=compute_{self.capability}", *super().options)


class Ampere(OfAnotherGpu):
    capability = 80


@pytest.fixture(autouse=True)
def real_gpu() -> None:
    skip_unless_available("cuda")


def assert_equals_cpu(X: np.ndarray, **parameters: object) -> None:
    expected = HDBSCAN(backend="cpu", **parameters).fit(X)  # type: ignore[arg-type]
    fitted = HDBSCAN(backend="cuda", **parameters).fit(X)  # type: ignore[arg-type]
    for name in FITTED_ATTRIBUTES:
        assert_same_bits(getattr(fitted, name), getattr(expected, name), name)


@pytest.mark.parametrize("shape", [OfAnotherGpu, Ampere], ids=["compute_75", "compute_80"])
@pytest.mark.parametrize("n_features", [3, 61, 130])
def test_code_for_other_gpus(shape: type[Shape], n_features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "Shape", shape)
    X = np.random.default_rng(0).normal(size=(3001, n_features)).astype(np.float32)
    X[::5] += 4
    assert_equals_cpu(X, min_cluster_size=10)


@pytest.mark.parametrize("name", ["lattice3d", "copies"])
def test_ties_and_copies_for_other_gpus(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "Shape", OfAnotherGpu)
    assert_equals_cpu(get_workload(name).rows(8000), min_cluster_size=8)


def test_two_hundred_thousand_clips() -> None:
    assert_equals_cpu(get_workload("clips").rows(200_000), min_cluster_size=20)


def test_a_million_points() -> None:
    assert_equals_cpu(get_workload("blobs2d").rows(1_000_000), min_cluster_size=20)

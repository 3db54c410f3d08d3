"""Which GPUs there are, why one cannot be used, and what is chosen: with stand-ins, so on every machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mreach
from mreach import backends
from mreach.backends import select_backend
from mreach.backends.cuda import devices

TURING, PASCAL, HOPPER = (7, 5), (6, 1), (9, 0)


class FakeError(RuntimeError):
    """As CuPy's CUDARuntimeError: a number beside the words."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}: some words")
        self.status = status


def fake_cupy(
    *capabilities: tuple[int, int], error: Exception | None = None, driver: int = 13000, runtime: int = 13000
) -> Any:
    """Return a module that has as much of CuPy as looking for devices needs."""

    def count() -> int:
        if error is not None:
            raise error
        return len(capabilities)

    def properties(index: int) -> dict[str, Any]:
        if capabilities[index] == (0, 0):
            raise FakeError(46)
        major, minor = capabilities[index]
        return {"name": f"GPU of {major}".encode(), "totalGlobalMem": 8 << 30, "major": major, "minor": minor}

    cupy: Any = ModuleType("cupy")
    cupy.cuda = ModuleType("cupy.cuda")
    cupy.cuda.runtime = ModuleType("cupy.cuda.runtime")
    cupy.cuda.runtime.getDeviceCount = count
    cupy.cuda.runtime.getDeviceProperties = properties
    cupy.cuda.runtime.getDevice = lambda: 0
    cupy.cuda.runtime.driverGetVersion = lambda: driver
    cupy.cuda.runtime.runtimeGetVersion = lambda: runtime
    return cupy


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda *given, **named: monkeypatch.setitem(sys.modules, "cupy", fake_cupy(*given, **named))


def test_devices_are_listed(install: Callable[..., None]) -> None:
    install(HOPPER, PASCAL, (0, 0), TURING)
    assert mreach.available_backends()["cuda"]["available"]
    assert mreach.available_backends()["cuda"]["reason"] is None
    listed = mreach.available_backends()["cuda"]["devices"]
    assert [entry["index"] for entry in listed] == [0, 1, 2, 3]
    assert [entry["available"] for entry in listed] == [True, False, False, True]
    assert listed[0] == {
        "index": 0,
        "name": "GPU of 9",
        "memory": 8 << 30,
        "compute_capability": "9.0",
        "available": True,
        "reason": None,
    }
    assert "compute capability 6.1, at least 7.5 is needed" in listed[1]["reason"]
    assert "CUDA cannot read its properties" in listed[2]["reason"]
    listed.clear()  # is a copy
    assert len(devices.list_devices()) == 4


def test_one_device_that_cannot_be_used(install: Callable[..., None]) -> None:
    install(HOPPER, PASCAL)
    assert devices.why_not() is None
    assert devices.why_not(0) is None
    assert "device=1 (GPU of 6): it is too old" in str(devices.why_not(1))
    assert devices.why_not(2) == "there is no device=2: CUDA sees 2 GPUs, 0 to 1"
    with pytest.raises(RuntimeError, match=r"backend='cuda' with device=1 cannot run here: .*too old"):
        select_backend("cuda", 1, 10**6, 61)
    with pytest.raises(
        RuntimeError, match=r"'auto' with device=7 chooses 'cuda', which cannot .* no device=7"
    ):
        select_backend("auto", 7, 10, 2)
    install(PASCAL)
    assert not mreach.available_backends()["cuda"]["available"]
    assert "too old" in mreach.available_backends()["cuda"]["reason"]
    assert devices.why_not(1) == "there is no device=1: CUDA sees 1 GPU, device=0"


@pytest.mark.parametrize(
    ("given", "visible", "reason"),
    [
        ({"driver": 0, "error": FakeError(35)}, None, "no NVIDIA driver is installed"),
        (
            {"driver": 12040, "error": FakeError(35)},
            None,
            "CUDA 12.4, and this CuPy is made for CUDA 13.0: update the driver, or use mreach[cuda12]",
        ),
        ({"driver": 11080, "runtime": 12090, "error": FakeError(35)}, None, "CUDA 12.9: update the driver"),
        ({"error": FakeError(100)}, "", "CUDA_VISIBLE_DEVICES='' leaves no GPU"),
        ({"error": FakeError(100)}, None, "CUDA finds no GPU: cudaError100"),
        ({"error": FakeError(3)}, None, "start it by 'spawn'"),
        ({}, None, "the NVIDIA driver sees no GPU"),
    ],
)
def test_no_device_at_all(
    given: dict[str, Any],
    visible: str | None,
    reason: str,
    install: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(**given)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    entry = mreach.available_backends()["cuda"]
    assert entry["devices"] == []
    assert reason in entry["reason"]
    with pytest.raises(RuntimeError, match="backend='cuda' cannot run here"):
        select_backend("cuda", None, 10**6, 61)
    assert select_backend("auto", None, 10**6, 61).NAME == "cpu"


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    entry = mreach.available_backends()["cuda"]
    assert "CuPy, which is not installed: the extra mreach[cuda13] brings it," in entry["reason"]
    with pytest.raises(ImportError, match=r"mreach\[cuda13\]"):
        devices.cupy()


def test_a_cupy_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text(
        "raise ImportError('''\n====\nCuPy is not correctly installed.\n====''')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    reason = mreach.available_backends()["cuda"]["reason"]
    assert "importing it failed (CuPy is not correctly installed.)" in reason


def test_the_device_of_a_fit(install: Callable[..., None]) -> None:
    install(HOPPER, HOPPER)
    assert devices.choose(None) is None  # the current one
    assert devices.choose(1) == 1
    install(HOPPER, PASCAL)
    assert devices.choose(None) is None
    install(PASCAL, HOPPER)
    assert devices.choose(None) == 1  # the current one cannot be used
    assert devices.choose(0) == 0


def test_auto_takes_a_gpu_for_large_data_only(install: Callable[..., None]) -> None:
    install(HOPPER)
    rows, few = backends.CUDA_MIN_ROWS, backends.FEW_FEATURES
    assert select_backend("auto", None, rows, 61).NAME == "cuda"
    assert select_backend("auto", None, rows - 1, 61).NAME == "cpu"
    assert select_backend("auto", None, rows, few).NAME == "cpu"
    assert select_backend("auto", None, backends.CUDA_MIN_ROWS_FEW_FEATURES, few).NAME == "cuda"
    assert select_backend("auto", 0, 10, 2).NAME == "cuda"  # asked for, or where the data lie
    assert select_backend("cpu", None, 10**7, 61).NAME == "cpu"


def test_small_data_do_not_import_cupy() -> None:
    script = (
        "import sys, numpy; from mreach import HDBSCAN; "
        "HDBSCAN().fit(numpy.random.default_rng(0).normal(size=(500, 3))); print('cupy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_more_neighbours_than_a_gpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends.devices, "why_not", lambda device=None: None)
    most = backends.CUDA_MAX_MIN_SAMPLES
    assert backends.select_backend("auto", None, 100_000, 61, most).NAME == "cuda"
    assert backends.select_backend("auto", None, 100_000, 61, most + 1).NAME == "cpu"
    with pytest.raises(RuntimeError, match=f"min_samples up to {most}, got {most + 1}"):
        backends.select_backend("cuda", None, 100_000, 61, most + 1)
    assert backends.select_backend("cuda", None, 100, 61, most + 1).NAME == "cuda"  # refused for its rows


def test_more_features_than_the_margins_are_proved_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends.devices, "why_not", lambda device=None: None)
    most = backends.CUDA_MAX_FEATURES
    assert backends.select_backend("auto", None, 100_000, most).NAME == "cuda"
    assert backends.select_backend("auto", None, 100_000, most + 1).NAME == "cpu"
    with pytest.raises(RuntimeError, match=f"{most} features at most, X has {most + 1}"):
        backends.select_backend("cuda", None, 100_000, most + 1)

"""Which GPUs there are, and why one of them cannot be used; the only place that says whether CuPy is there.

Nothing here creates a CUDA context or allocates on a GPU. As CUDA itself has it, a process that has looked
for GPUs cannot hand them to a child that it forks later; children that are spawned look for themselves.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

MIN_COMPUTE_CAPABILITY = (7, 5)
"""Turing (RTX 20, GTX 16, T4): the first with the tensor core instruction that the filter is made of."""

HOW_TO_INSTALL = (
    "the extra mreach[cuda13] brings it, mreach[cuda12] where the driver is older than CUDA 13 "
    "(docs/gpu.md; by itself: pip install cupy-cuda13x 'nvidia-cuda-nvrtc==13.*')"
)

_INITIALIZATION_ERROR = 3
"""cudaErrorInitializationError: what CUDA says in a forked child, when it gets to say it."""

FORKED = (
    "CUDA does not start in this process; where it was forked from one that has used a GPU, start it by "
    "'spawn' or 'forkserver' instead"
)

_processes_that_looked: set[int] = set()  # a forked child finds its parent in it


class Found(NamedTuple):
    """The GPUs of this process; ``reason`` says why there are none."""

    devices: list[dict[str, Any]]
    reason: str | None


def cupy() -> Any:
    """Import CuPy.

    Raises
    ------
    ImportError
        CuPy is not installed, or does not start; the message says what to do.
    """
    try:
        import cupy as module
    except Exception as error:  # a CuPy that does not fit its NumPy fails with errors of many kinds
        raise ImportError(_why_no_cupy(error)) from error
    _find_nvrtc(getattr(module, "__version__", ""))
    return module


def list_devices() -> list[dict[str, Any]]:
    """List the GPUs that this process sees; never raises.

    Returns
    -------
    list of dict
        For each GPU ``index`` (as CUDA counts, after CUDA_VISIBLE_DEVICES), ``name``, ``memory`` (bytes),
        ``compute_capability`` (such as "9.0"), ``available`` (bool) and ``reason`` (str, or None where it is
        available). Empty where there is none, or where there is no telling: see :func:`why_not`.
    """
    return [dict(device) for device in find_devices().devices]


def why_not(device: int | None = None) -> str | None:
    """Say why a GPU cannot be used here, or None if it can; never raises.

    Parameters
    ----------
    device : int or None
        Index of the GPU; None: any.
    """
    devices, reason = find_devices()
    if reason is not None:
        return reason
    if device is not None:
        if device < len(devices):
            return _reason_of(devices[device])
        seen = "1 GPU, device=0" if len(devices) == 1 else f"{len(devices)} GPUs, 0 to {len(devices) - 1}"
        return f"there is no device={device}: CUDA sees {seen}"
    if any(entry["available"] for entry in devices):
        return None
    return "; ".join(str(_reason_of(entry)) for entry in devices)


def choose(device: int | None) -> int | None:
    """Return the GPU of a fit: the one asked for, else the caller's current one, else the first usable one.

    None stands for the current one. It is passed over only where it cannot be used.
    """
    devices = find_devices().devices
    if device is not None or all(entry["available"] for entry in devices):
        return device
    usable = [entry["index"] for entry in devices if entry["available"]]
    current = cupy().cuda.runtime.getDevice()
    return None if current in usable or not usable else int(usable[0])


def find_devices() -> Found:
    """Return the GPUs of this process, or why there are none; never raises."""
    if _processes_that_looked - {os.getpid()}:  # CUDA answers here as if all were well, and fails later
        return Found([], FORKED)
    try:
        cp = cupy()
    except ImportError as error:
        return Found([], str(error))
    try:
        return _devices_of(cp, os.getpid())
    except Exception as error:
        return Found([], _why_no_devices(cp, error))


@functools.lru_cache(maxsize=1)
def _devices_of(cp: Any, process: int) -> Found:
    """List the devices; remembered for this process, as they cannot change in it. An error is not."""
    runtime = cp.cuda.runtime
    devices = [_describe(index, runtime) for index in range(int(runtime.getDeviceCount()))]
    _processes_that_looked.add(process)
    return Found(devices, None if devices else "the NVIDIA driver sees no GPU")


def _describe(index: int, runtime: Any) -> dict[str, Any]:
    try:
        properties = runtime.getDeviceProperties(index)
    except Exception as error:
        unknown = {"index": index, "name": "unknown", "memory": 0, "compute_capability": "unknown"}
        return {**unknown, "available": False, "reason": f"CUDA cannot read its properties ({error})"}
    name = properties["name"]
    capability = (int(properties["major"]), int(properties["minor"]))
    shown, oldest = ("{}.{}".format(*pair) for pair in (capability, MIN_COMPUTE_CAPABILITY))
    reason = None
    if capability < MIN_COMPUTE_CAPABILITY:
        reason = f"it is too old: compute capability {shown}, at least {oldest} is needed"
    return {
        "index": index,
        "name": name.decode(errors="replace") if isinstance(name, bytes) else str(name),
        "memory": int(properties["totalGlobalMem"]),
        "compute_capability": shown,
        "available": reason is None,
        "reason": reason,
    }


def _reason_of(entry: dict[str, Any]) -> str | None:
    reason = entry["reason"]
    return None if reason is None else f"device={entry['index']} ({entry['name']}): {reason}"


def _why_no_cupy(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
        return f"the GPU backend needs CuPy, which is not installed: {HOW_TO_INSTALL}"
    # CuPy's own message is a page with a frame of equals signs; its first words say what it is about.
    lines = [line.strip() for line in str(error).splitlines()]
    first = next((line for line in lines if line.strip("=")), type(error).__name__)
    return f"CuPy is installed, but importing it failed ({first}); {HOW_TO_INSTALL}"


def _why_no_devices(cp: Any, error: Exception) -> str:
    if getattr(error, "status", None) == _INITIALIZATION_ERROR:
        return FORKED
    try:
        driver, needed = int(cp.cuda.runtime.driverGetVersion()), int(cp.cuda.runtime.runtimeGetVersion())
    except Exception:
        return f"CUDA does not start: {error}"
    if driver == 0:
        return "no NVIDIA driver is installed"
    if driver // 1000 < needed // 1000:
        use = "update the driver" if driver < 12000 else "update the driver, or use mreach[cuda12]"
        return (
            f"the NVIDIA driver is too old: it supports CUDA {_version(driver)}, and this CuPy is made for "
            f"CUDA {_version(needed)}: {use}"
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"CUDA_VISIBLE_DEVICES={visible!r} leaves no GPU to this process ({error})"
    return f"CUDA finds no GPU: {error}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


@functools.cache
def _find_nvrtc(version: str) -> None:
    """Load the compiler of kernels from its wheel for CuPy 13, which looks for it in the system only."""
    if not version.startswith("13.") or not sys.platform.startswith("linux"):
        return
    for package in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            spec = find_spec(package)
        except ImportError:  # there is no package "nvidia" at all
            return
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for library in sorted(Path(folder, "lib").glob("libnvrtc.so.*")):
                try:
                    ctypes.CDLL(str(library))
                except OSError:
                    continue

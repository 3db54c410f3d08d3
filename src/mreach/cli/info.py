"""What can run here, and what is missing."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import Any

import mreach
from mreach.cli.running import Outcome

__all__ = ["describe"]

NEEDED = ("numpy", "scipy", "scikit-learn", "tqdm", "typer")

OPTIONAL = {
    "cupy": ("an NVIDIA GPU", "pip install 'mreach[cuda13]' (or [cuda12] for an older driver)"),
    "matplotlib": ("plots", "pip install 'mreach[plot]'"),
    "spikeinterface": ("recordings", "pip install 'mreach[ephys]'"),
    "pandas": ("CSV files", "pip install pandas"),
    "pyarrow": ("Parquet files", "pip install pyarrow"),
    "h5py": ("HDF5 files", "pip install h5py"),
    "zarr": ("Zarr files", "pip install zarr"),
}
"""What a library is for here, and how to get it."""

GIB = 1 << 30


def describe() -> Outcome:
    """Return versions, backends with their devices, and libraries that are there or missing."""
    backends = mreach.available_backends()
    versions = {name: _version_of(name) for name in NEEDED}
    optional = {
        name: {"version": _version_of(name), "for": what, "install": how}
        for name, (what, how) in OPTIONAL.items()
    }
    data: dict[str, Any] = {
        "mreach_version": mreach.__version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "n_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": versions,
        "backends": backends,
        "optional": optional,
    }
    lines = [
        ("mreach", mreach.__version__),
        ("python", f"{data['python']}, {data['n_cores']} cores, {data['platform']}"),
        ("libraries", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    for name, backend in backends.items():
        state = "ready" if backend["available"] else f"not here: {backend['reason']}"
        lines.append((f"backend {name}", state))
        for device in backend.get("devices", ()):
            usable = "" if device["available"] else f", not usable: {device['reason']}"
            size = device["memory"] / GIB
            lines.append((f"  gpu {device['index']}", f"{device['name']}, {size:.0f} GiB{usable}"))
    for name, one in optional.items():
        state = one["version"] or f"missing, for {one['for']}: {one['install']}"
        lines.append((name, state))
    return Outcome(lines, data)


def _version_of(name: str) -> str | None:
    """Return the version of an installed distribution without importing it; None where it is missing."""
    names = (name, f"{name}-cuda12x", f"{name}-cuda13x") if name == "cupy" else (name,)
    for one in names:
        try:
            return metadata.version(one)
        except metadata.PackageNotFoundError:
            continue
    return None

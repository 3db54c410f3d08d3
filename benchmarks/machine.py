"""What machine and which versions a measurement was made with. No host or user names."""

from __future__ import annotations

import datetime
import os
import platform
import re
from importlib import metadata
from pathlib import Path

LIBRARIES = (
    "mreach",
    "numpy",
    "scipy",
    "scikit-learn",
    "hdbscan",
    "fast-hdbscan",
    "pynndescent",
    "numba",
    "hdbscan-rs",
    "quitefastmst",
    "cupy-cuda12x",
    "cupy-cuda13x",
)
ROOT = Path(__file__).resolve().parents[1]
INSTRUCTION_SETS = ("avx2", "fma", "avx512f", "avx512_vnni", "asimd")


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_field(*names: str) -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in names:
            return value.strip()
    return None


def cpu_model() -> str:
    """Name of the processor, with family and model number where the system tells them."""
    name = _cpu_field("model name") or platform.processor() or platform.machine()
    numbers = [_cpu_field("cpu family"), _cpu_field("model")]
    return f"{name} (family {numbers[0]}, model {numbers[1]})" if all(numbers) else name


def slug(text: str) -> str:
    """Lower case letters and digits joined by hyphens, for file names."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        # mreach may be used from its source tree, not installed.
        if name != "mreach":
            return None
    try:
        import mreach
    except ImportError:
        return None
    return mreach.__version__


def git_commit(root: Path = ROOT) -> str | None:
    """The commit that is checked out at `root`, read from its files; None if there is none."""
    folder = root / ".git"
    try:
        if folder.is_file():
            folder = (root / folder.read_text().partition(":")[2].strip()).resolve()
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.partition(":")[2].strip()
        common = folder / "commondir"
        shared = (folder / common.read_text().strip()).resolve() if common.is_file() else folder
        for place in (folder, shared):
            if (place / name).is_file():
                return (place / name).read_text().strip()
        for line in (shared / "packed-refs").read_text().splitlines():
            if line.endswith(f" {name}"):
                return line.split()[0]
    except OSError:
        pass
    return None


def describe() -> dict[str, object]:
    """Processor, cores, memory, operating system, versions, commit and time (UTC)."""
    flags = (_cpu_field("flags", "Features") or "").split()
    memory = None
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
        "memory_bytes": memory,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": {name: version for name in LIBRARIES if (version := _version(name))},
        "commit": git_commit(),
    }

"""Time and memory of one process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
STAT = Path("/proc/stat")
RESET_PEAK = "5"  # what to write to clear_refs to set VmHWM back to VmRSS, see proc(5)

REPEAT_BUDGET_SECONDS = 6.0
MAX_REPEATS = 25
FEW_REPEATS = 3
LONG_SECONDS = 8.0  # above this the one run that memory is measured on has to do


class Timing(NamedTuple):
    """Seconds of each repeat, and how many cores were busy on average."""

    seconds: list[float]
    cores_busy: float


def repeats_for(seconds: float, requested: int | None = None) -> int:
    """How often to repeat a fit that took that long, 0: not at all; `requested` overrules."""
    if requested is not None:
        return max(1, requested)
    if seconds > LONG_SECONDS:
        return 0
    return min(MAX_REPEATS, max(FEW_REPEATS, int(REPEAT_BUDGET_SECONDS / max(seconds, 1e-9))))


def time_repeats(run: Callable[[], Any], repeats: int) -> tuple[Timing, list[Any]]:
    """Time `run` that many times.

    Returns
    -------
    timing : Timing
    outcomes : list
        What the first and the last run gave (one entry if there was one run).
    """
    seconds: list[float] = []
    outcomes: list[Any] = []
    cpu = 0.0
    for repeat in range(repeats):
        cpu_before, before = time.process_time(), time.perf_counter()
        outcome = run()
        seconds.append(time.perf_counter() - before)
        cpu += time.process_time() - cpu_before
        if repeat in (0, repeats - 1):
            outcomes.append(outcome)
    return Timing(seconds, cpu / max(sum(seconds), 1e-9)), outcomes


def median(seconds: list[float]) -> float:
    """Median of a list that is not empty."""
    return float(statistics.median(seconds))


def _status_bytes(key: str) -> int | None:
    try:
        text = STATUS.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def resident_bytes() -> int | None:
    """Resident size of this process in bytes, or None where the system does not tell."""
    return _status_bytes("VmRSS")


def reset_peak() -> bool:
    """Forget the highest resident size so far. False where the system has no such thing."""
    try:
        CLEAR_REFS.write_text(RESET_PEAK)
    except OSError:
        return False
    return True


def peak_bytes() -> int | None:
    """Highest resident size of this process in bytes since `reset_peak`, or since its start."""
    measured = _status_bytes("VmHWM")
    if measured is not None:
        return measured
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def return_free_memory() -> None:
    """Give what the C library keeps of freed memory back to the system, where it can: a later peak would
    hide in it."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def thread_count() -> int | None:
    """Threads that this process has now, or None where the system does not tell."""
    try:
        text = STATUS.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("Threads:"):
            return int(line.split()[1])
    return None


def peak_of(run: Callable[[], Any]) -> tuple[Any, Timing, int | None]:
    """Run once and measure the memory it needs.

    Returns
    -------
    outcome : object
    timing : Timing
        Of that one run.
    peak : int or None
        Highest resident size during the run minus the resident size before it, in bytes. Where the peak
        cannot be reset it is that of the whole process so far, which is the same unless something before the
        run was larger.
    """
    before = resident_bytes()
    reset_peak()
    timing, outcomes = time_repeats(run, 1)
    after = peak_bytes()
    return outcomes[0], timing, None if before is None or after is None else max(0, after - before)


@dataclass
class Elsewhere:
    """Cores that other processes kept busy on average; None where the system does not tell."""

    cores: float | None = None


def _machine_seconds() -> float | None:
    """Seconds that all cores of the machine have worked since its start."""
    try:
        fields = STAT.read_text().splitlines()[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, *interrupts = map(int, fields)
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    """How busy other processes are meanwhile: known when the block ends."""
    seen = Elsewhere()
    all_before, own_before, before = _machine_seconds(), time.process_time(), time.perf_counter()
    yield seen
    own, wall = time.process_time() - own_before, time.perf_counter() - before
    all_after = _machine_seconds()
    if all_before is not None and all_after is not None:
        seen.cores = max(0.0, (all_after - all_before - own) / wall)

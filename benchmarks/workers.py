"""Starts the processes that measure, and looks after their files."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import ROOT, usable_cores
from benchmarks.peers import COMPETITORS, Result, Settings
from benchmarks.worker import JOB_FILE, REPORT_FILE, RESULT_FILE, load_result

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


@dataclass
class Options:
    """How to run: see ``python -m benchmarks run --help``."""

    peers: tuple[str, ...] = COMPETITORS
    backend: str = "auto"
    threads: int = field(default_factory=usable_cores)
    repeats: int | None = None
    rounds: int = 1
    skip_slow: bool = False
    limit: float = 600.0
    cold: bool = True


class WorkerError(RuntimeError):
    """A measurement's process failed or ran out of time."""


class Workers:
    """Starts the processes and looks after their files."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder
        self.options = options
        self._count = 0

    def save(self, rows: np.ndarray, name: str) -> Path:
        """Write rows where the processes read them."""
        path = self.folder / f"{name}.npy"
        np.save(path, rows)
        return path

    def work(
        self, peer: str, data: Path, settings: Settings, mode: str
    ) -> tuple[dict[str, Any], Result | None]:
        """Run one job on a library; the report, and the result where the mode gives one.

        Raises
        ------
        WorkerError
            As `start`.
        """
        job = {
            "peer": peer,
            "data": str(data),
            "settings": settings._asdict(),
            "mode": mode,
            "repeats": self.options.repeats,
        }
        return self.start(job, settings.n_threads)

    def start(self, job: dict[str, Any], n_threads: int) -> tuple[dict[str, Any], Result | None]:
        """Do a job in a new process; the report, and the result where there is one.

        Raises
        ------
        WorkerError
            If the process fails, or takes longer than the options allow.
        """
        self._count += 1
        # A process makes several fits, and may have to compile first.
        limit = 4.0 * self.options.limit + 60.0
        folder = self.folder / f"job{self._count}"
        folder.mkdir()
        environment = dict(os.environ)
        environment.update(dict.fromkeys(THREAD_VARIABLES, str(n_threads)))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
        (folder / JOB_FILE).write_text(json.dumps(job | {"started": time.monotonic()}))
        command = [sys.executable, "-m", "benchmarks.worker", str(folder)]
        try:
            done = subprocess.run(command, env=environment, timeout=limit, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            raise WorkerError(f"over the limit of {limit:.0f} s") from None
        report_path = folder / REPORT_FILE
        if not report_path.exists():
            raise WorkerError(f"process ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
        report = json.loads(report_path.read_text())
        if "error" in report:
            raise WorkerError(report["error"])
        result_path = folder / RESULT_FILE
        return report, load_result(result_path) if result_path.exists() else None

    def fit(self, peer: str, data: Path, settings: Settings) -> Result:
        """The result of one fit, not timed.

        Raises
        ------
        WorkerError
            As `work`.
        """
        _, result = self.work(peer, data, settings, "result")
        if result is None:
            raise WorkerError("no result")
        return result


@contextlib.contextmanager
def open_workers(options: Options) -> Iterator[Workers]:
    """Workers with a folder of their own, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="mreach-benchmarks-") as folder:
        yield Workers(Path(folder), options)

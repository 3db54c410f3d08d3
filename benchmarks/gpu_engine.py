"""What the GPU benchmark asks of mreach: whole fits, the stages one by one, a first fit in a new process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import ROOT
from benchmarks.peers import Result, Settings, get_peer

CACHE_VARIABLES = ("CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "XDG_CACHE_HOME")  # where compiled kernels may lie
FIRST_FIT_LIMIT = 300.0  # seconds


@dataclass
class Stages:
    """One pass through the stages.

    Attributes
    ----------
    device_seconds : float
        Rows in, sorted tree on the host.
    tail_seconds : float
        Tree to labels, on the host.
    statistics : dict
        What the backend says of itself: ``stage_seconds``, ``tile_pairs_share``, ``hits_per_row``,
        ``rounds``, ``tier``, ``peak_bytes``, ``overflow_rows``.
    """

    device_seconds: float
    tail_seconds: float
    statistics: dict[str, Any] = field(default_factory=dict)


def checksum(result: Result) -> str:
    """Digest of everything a fit found: equal on every backend, or a backend is wrong."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(result.arrays):
        array = np.ascontiguousarray(result.arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


class CudaEngine:
    """mreach on the GPU."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads

    def settings(self, min_cluster_size: int, min_samples: int, backend: str) -> Settings:
        """The settings of a fit."""
        return Settings(min_cluster_size, min_samples, self.n_threads, backend)

    def missing(self) -> str | None:
        """Why nothing can be measured here, or None."""
        from mreach import available_backends

        reason: str | None = available_backends()["cuda"]["reason"]
        return reason

    def describe(self) -> dict[str, Any]:
        """Name, compute capability, memory (bytes), driver and CUDA versions of the device."""
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(0)
        return {
            "name": properties["name"].decode(),
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "multiprocessors": int(properties["multiProcessorCount"]),
            "memory_bytes": int(properties["totalGlobalMem"]),
            "driver": int(cupy.cuda.runtime.driverGetVersion()),
            "cuda": int(cupy.cuda.runtime.runtimeGetVersion()),
            "cupy": cupy.__version__,
        }

    def prepare(self, rows: np.ndarray, settings: Settings) -> Any:
        """What `Peer.prepare` gives: a callable that fits, and one that makes a `Result` of what it gave."""
        return get_peer("mreach").prepare(rows, settings)

    def stages(self, rows: np.ndarray, settings: Settings) -> Stages:
        """Go through the stages as a fit does, with the device's times kept."""
        from mreach import hierarchy
        from mreach.backends import cuda
        from mreach.neighbors import core_distances
        from mreach.progress import Progress
        from mreach.spanning_tree import minimum_spanning_tree

        if rows.dtype not in (np.float32, np.float64):
            rows = rows.astype(np.float64)
        start = time.perf_counter()
        with cuda.hold_rows(rows, device=None) as held:
            points = cuda.open_points(held, n_threads=settings.n_threads, progress=Progress(), timings=True)
            core_distances(points, settings.min_samples)
            edges = minimum_spanning_tree(points, 1.0)
            on_device = time.perf_counter()
            statistics = points.statistics()
        before_tail = time.perf_counter()
        hierarchy.linkage(edges)
        hierarchy.cut(edges, min_cluster_size=settings.min_cluster_size, data=rows)
        return Stages(on_device - start, time.perf_counter() - before_tail, statistics)

    def first_fit(
        self, rows: np.ndarray, settings: Settings, *, empty_caches: bool = False
    ) -> dict[str, Any]:
        """The first fit of a new process, in parts; with empty caches every kernel is compiled."""
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
        with tempfile.TemporaryDirectory(prefix="mreach-first-fit-") as name:
            folder = Path(name)
            np.save(folder / "rows.npy", rows)
            given = {
                "min_cluster_size": settings.min_cluster_size,
                "min_samples": settings.min_samples,
                "backend": settings.backend,
                "n_jobs": settings.n_threads,
            }
            (folder / "settings.json").write_text(json.dumps(given))
            if empty_caches:
                environment.update({variable: str(folder / variable) for variable in CACHE_VARIABLES})
            command = [sys.executable, "-m", "benchmarks.gpu_first"]
            command += [str(folder / "rows.npy"), str(folder / "settings.json")]
            started = time.perf_counter()
            done = subprocess.run(
                command, env=environment, timeout=FIRST_FIT_LIMIT, capture_output=True, text=True
            )
            process_seconds = time.perf_counter() - started
        if done.returncode != 0:
            raise RuntimeError(f"the first fit failed: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout.splitlines()[-1]) | {"process_seconds": process_seconds}

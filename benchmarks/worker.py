"""One measurement in a process of its own: ``python -m benchmarks.worker FOLDER``.

The folder holds ``job.json`` (what to do) and receives ``report.json`` and, if a result is wanted,
``result.npz``. A process for each measurement keeps the peers' threads and memory apart, gives a cold start,
and can be ended.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.peers import Result, Settings, get_peer

JOB_FILE, REPORT_FILE, RESULT_FILE = "job.json", "report.json", "result.npz"
SMALL_ROWS = 300  # rows of the fit that brings lazily loaded libraries into memory


def save_result(path: Path, result: Result) -> None:
    """Write a result; `load_result` reads it back."""
    stored = {f"array_{name}": value for name, value in result.arrays.items()}
    stored["labels"] = result.labels
    if result.weights is not None:
        stored["weights"] = result.weights
    np.savez(path, notes=np.array(json.dumps(result.notes)), **stored)  # type: ignore[arg-type]


def load_result(path: Path) -> Result:
    """Read a result that `save_result` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name[len("array_") :]: stored[name] for name in stored.files if name.startswith("array_")}
        weights = stored["weights"] if "weights" in stored.files else None
        return Result(stored["labels"], weights, arrays, json.loads(str(stored["notes"])))


def same_results(one: Result, other: Result) -> bool:
    """Whether two results are equal bit for bit (NaN equal to NaN)."""
    pairs = [(one.labels, other.labels)]
    pairs += [(one.arrays[name], other.arrays[name]) for name in one.arrays]
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def _measure(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Memory of the first fit of that size, then the median of warm fits."""
    peer, settings = get_peer(job["peer"]), Settings(**job["settings"])
    rows = np.load(job["data"])
    small_n = min(len(rows), max(SMALL_ROWS, settings.min_samples + 1))
    small = np.ascontiguousarray(rows[:: max(1, len(rows) // small_n)][:small_n])
    run_small, _ = peer.prepare(small, settings)
    run_small()
    run, collect = peer.prepare(rows, settings)
    outcome, timing, peak = measure.peak_of(run)
    first_seconds = timing.seconds[0]
    outcomes: list[Any] = []
    report: dict[str, Any] = {
        "first_seconds": first_seconds,
        "peak_bytes": peak,
        "threads": measure.thread_count(),
    }
    repeats = measure.repeats_for(first_seconds, job["repeats"])
    if repeats:
        timing, outcomes = measure.time_repeats(run, repeats)
    results = [collect(given) for given in (outcome, *outcomes)]
    report |= {
        "seconds": timing.seconds,
        "cores_busy": timing.cores_busy,
        "repeatable": all(same_results(results[0], result) for result in results[1:]),
    }
    save_result(folder / RESULT_FILE, results[-1])
    return report


def _result(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One fit for its result alone."""
    run, collect = get_peer(job["peer"]).prepare(np.load(job["data"]), Settings(**job["settings"]))
    save_result(folder / RESULT_FILE, collect(run()))
    return {}


def _cold(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The first fit of a new process; the clock has been running since the process was asked for."""
    rows = np.load(job["data"])
    before_import = time.perf_counter()
    run, _ = get_peer(job["peer"]).prepare(rows, Settings(**job["settings"]))
    before_fit = time.perf_counter()
    run()
    end = time.perf_counter()
    return {
        "cold_seconds": time.monotonic() - job["started"],
        "import_seconds": before_fit - before_import,
        "first_fit_seconds": end - before_fit,
    }


def _case(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One case: its result for the gate, or its times and its memory."""
    from benchmarks.cases import work  # here, so that it is no part of a cold start

    report, result = work(job)
    if result is not None:
        save_result(folder / RESULT_FILE, result)
    return report


MODES = {"measure": _measure, "result": _result, "cold": _cold, "case": _case}


def main(folder: Path) -> int:
    """Do the job in that folder; 0 if it was done, 1 if it failed (the report says how)."""
    job = json.loads((folder / JOB_FILE).read_text())
    warnings.simplefilter("ignore")
    try:
        report = MODES[job["mode"]](job, folder)
    except Exception as error:
        traceback.print_exc()
        report = {"error": f"{type(error).__name__}: {error}"}
    (folder / REPORT_FILE).write_text(json.dumps(report))
    return 1 if "error" in report else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

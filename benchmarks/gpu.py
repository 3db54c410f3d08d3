"""``python -m benchmarks gpu``: the figures to reach on a GPU, each workload gated before it is timed."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gate, gpu_report, machine, measure
from benchmarks.gpu_cases import FIRST_FIT_ROWS, GROUPS, MIN_CLUSTER_SIZE, MIN_SAMPLES, select
from benchmarks.gpu_engine import CudaEngine, checksum
from benchmarks.peers import Result
from benchmarks.workloads import Workload, get_workload

GATE_ROWS = 50_000  # up to so many rows, the whole result is compared with a CPU fit
REPEATS, FEW_REPEATS = 5, 3
LONG_SECONDS = 2.0  # fits longer than this are repeated `FEW_REPEATS` times
FIRST_FITS = 3  # processes started to measure a first fit


@dataclass
class Record:
    """One workload at one size. Times in seconds, memory in bytes; None or empty: not measured.

    Attributes
    ----------
    status : str
        "timed", or why not.
    checks : list of dict
        What was compared with a CPU fit: ``rows``, ``how``, ``passed``, ``detail``.
    seconds : list of float
        Whole fits, host rows in, labels out, after one that is not timed (`warm_up_seconds`).
    checksum : str or None
        Of everything found; equal on every machine and backend.
    device_seconds, tail_seconds : float or None
        A pass through the stages: rows in to sorted tree, and tree to labels.
    statistics : dict
        What the backend says of that pass.
    """

    workload: str
    n: int
    n_features: int
    dtype: str
    seed: int
    min_cluster_size: int
    min_samples: int
    status: str = "not run"
    checks: list[dict[str, Any]] = field(default_factory=list)
    warm_up_seconds: float | None = None
    seconds: list[float] = field(default_factory=list)
    checksum: str | None = None
    clusters: int | None = None
    noise: int | None = None
    device_seconds: float | None = None
    tail_seconds: float | None = None
    statistics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """How to measure: see ``python -m benchmarks gpu --help``."""

    repeats: int | None = None
    check_all: bool = False
    stop_after: float = float("inf")
    first_fits: int = FIRST_FITS
    compile_too: bool = False


class Deadline:
    """Whether the time for the whole command is up."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self.seconds = seconds

    def passed(self) -> bool:
        """Whether nothing new should be begun."""
        return self._clock() >= self._end


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Benchmark:
    """Measures with an engine, and keeps the records. `save` is called after each."""

    def __init__(
        self, engine: Any, options: Options, deadline: Deadline, save: Callable[[], None] = lambda: None
    ) -> None:
        self.engine = engine
        self.options = options
        self.deadline = deadline
        self.save = save
        self.records: list[Record] = []
        self.first: dict[str, Any] = {}

    def fit(self, rows: np.ndarray, backend: str) -> Result:
        """The result of one fit."""
        run, collect = self.engine.prepare(rows, self.engine.settings(MIN_CLUSTER_SIZE, MIN_SAMPLES, backend))
        result: Result = collect(run())
        return result

    def check(self, workload: Workload, n: int) -> dict[str, Any]:
        """Compare a GPU fit of n rows with a CPU fit, array by array, bit for bit."""
        rows = workload.rows(n)
        _say(f"{workload.name} n={len(rows)}: check")
        try:
            verdict = gate.check_reference(self.fit(rows, "cuda"), self.fit(rows, "cpu"), "cpu")
        except Exception as error:
            return _check(len(rows), "every array", False, f"{type(error).__name__}: {error}")
        return _check(len(rows), "every array", verdict.passed, verdict.detail)

    def run(self, workload: Workload, sizes: list[int]) -> None:
        """Check the workload at every size up to `GATE_ROWS`, or at that many rows; then time each size."""
        records = []
        for n in sizes:
            few = workload.make(2, workload.seed)
            records.append(
                Record(
                    workload.name,
                    n if workload.max_rows is None else min(n, workload.max_rows),
                    few.shape[1],
                    str(few.dtype),
                    workload.seed,
                    MIN_CLUSTER_SIZE,
                    MIN_SAMPLES,
                )
            )
        self.records += records
        checks = []
        for n in sorted({min(record.n, GATE_ROWS) for record in records}):
            if self.deadline.passed():
                self._stop(records)
                return
            checks.append(self.check(workload, n))
        failed = [check for check in checks if not check["passed"]]
        for record in records:
            record.checks = list(checks)
            if failed:
                record.status = f"refused by the gate: {failed[0]['detail']} at {failed[0]['rows']} rows"
            elif self.deadline.passed():
                self._stop([record])
            else:
                self._measure(workload, record)
            self.save()

    def _stop(self, records: list[Record]) -> None:
        for record in records:
            record.status = f"not run: stopped after {self.deadline.seconds:.0f} s"
        self.save()

    def _measure(self, workload: Workload, record: Record) -> None:
        rows = workload.rows(record.n)
        _say(f"{record.workload} n={record.n}: time")
        try:
            self._time(rows, record)
            if record.status == "timed" and self.options.check_all and record.n > GATE_ROWS:
                self._check_sum(rows, record)
        except Exception as error:
            record.status = f"failed: {type(error).__name__}: {error}"
            record.seconds = []
            return
        if record.status != "timed" or self.deadline.passed():
            return
        try:
            self._stages(rows, record)
        except Exception as error:
            record.statistics = {"error": f"{type(error).__name__}: {error}"}

    def _time(self, rows: np.ndarray, record: Record) -> None:
        settings = self.engine.settings(record.min_cluster_size, record.min_samples, "cuda")
        run, collect = self.engine.prepare(rows, settings)
        timing, outcomes = measure.time_repeats(run, 1)
        record.warm_up_seconds = timing.seconds[0]
        result: Result = collect(outcomes.pop())
        record.checksum = checksum(result)
        record.clusters, record.noise = int(result.labels.max(initial=-1)) + 1, int((result.labels < 0).sum())
        del result
        wanted = self.options.repeats or REPEATS
        while len(record.seconds) < wanted:
            outcomes.clear()  # freeing the last result is no part of the next fit
            timing, outcomes = measure.time_repeats(run, 1)
            record.seconds += timing.seconds
            if self.options.repeats is None and min(record.seconds) > LONG_SECONDS:
                wanted = FEW_REPEATS
            if self.deadline.passed():
                break
        record.status = "timed"
        if checksum(collect(outcomes.pop())) != record.checksum:
            record.status, record.seconds = "failed: repeats of one fit differ", []

    def _check_sum(self, rows: np.ndarray, record: Record) -> None:
        if self.deadline.passed():
            record.checks.append(_check(record.n, "checksum", None, "not compared: time is up"))
            return
        _say(f"{record.workload} n={record.n}: fit on the CPU")
        same = checksum(self.fit(rows, "cpu")) == record.checksum
        record.checks.append(
            _check(record.n, "checksum", same, "equal" if same else "differs from the CPU's")
        )
        if not same:
            record.status, record.seconds = "refused by the gate: checksum differs from the CPU's", []

    def _stages(self, rows: np.ndarray, record: Record) -> None:
        """The middle of three passes, or one where passes are long."""
        settings = self.engine.settings(record.min_cluster_size, record.min_samples, "cuda")
        passes = 1 if measure.median(record.seconds) > LONG_SECONDS else 3
        taken = [self.engine.stages(rows, settings) for _ in range(passes)]
        stages = sorted(taken, key=lambda one: one.device_seconds)[len(taken) // 2]
        record.device_seconds = stages.device_seconds
        record.tail_seconds = measure.median([one.tail_seconds for one in taken])
        record.statistics = stages.statistics

    def measure_first_fit(self) -> None:
        """First fits in new processes; kernels were compiled and cached by the ones that are told apart."""
        if not self.options.first_fits or self.deadline.passed():
            return
        try:
            self._first_fits()
        except Exception as error:
            self.first["error"] = f"{type(error).__name__}: {error}"
        self.save()

    def _first_fits(self) -> None:
        rows = get_workload("clips").rows(FIRST_FIT_ROWS)
        settings = self.engine.settings(MIN_CLUSTER_SIZE, MIN_SAMPLES, "cuda")
        self.first.update(rows=len(rows), cached=[], compiled=[])
        expected = hashlib.sha256(self.fit(rows, "cuda").labels.tobytes()).hexdigest()
        for kind in ["cached"] * self.options.first_fits + ["compiled"] * self.options.compile_too:
            if self.deadline.passed():
                return
            _say(f"clips n={len(rows)}: first fit of a new process, kernels {kind}")
            parts = self.engine.first_fit(rows, settings, empty_caches=kind == "compiled")
            if parts.pop("labels") != expected:
                raise RuntimeError("the first fit of a new process found other labels")
            self.first[kind].append(parts)


def _check(rows: int, how: str, passed: bool | None, detail: str) -> dict[str, Any]:
    return {"rows": rows, "how": how, "passed": passed, "detail": detail}


def add_parser(commands: Any, positive: Callable[[str], int]) -> None:
    """Add the command ``gpu`` to the command line."""
    parser = commands.add_parser("gpu", help="the figures to reach on a GPU, beside what is measured")
    parser.add_argument(
        "--workloads",
        nargs="+",
        default=["main"],
        metavar="NAME",
        help=f"names, or {', '.join(GROUPS)} (default: main)",
    )
    parser.add_argument("--sizes", nargs="+", type=positive, metavar="N", help="rows of every workload")
    parser.add_argument(
        "--repeats",
        type=positive,
        help=f"timed fits (default: {REPEATS}, or {FEW_REPEATS} above {LONG_SECONDS:.0f} s)",
    )
    parser.add_argument("--seed", type=int, help="in place of each workload's own")
    parser.add_argument("--threads", type=positive, default=machine.usable_cores(), help="of the host's part")
    parser.add_argument(
        "--check-all", action="store_true", help=f"compare with a CPU fit above {GATE_ROWS} rows too"
    )
    parser.add_argument(
        "--stop-after", type=float, default=float("inf"), metavar="SECONDS", help="begin nothing new then"
    )
    parser.add_argument(
        "--first",
        type=int,
        default=FIRST_FITS,
        metavar="K",
        help=f"processes started to measure a first fit (default: {FIRST_FITS}; 0: none)",
    )
    parser.add_argument("--compile", action="store_true", help="also a first fit with no kernel cached")
    parser.add_argument("--commit", help="commit of the sources, where they are no git checkout")
    parser.add_argument("--json", type=Path, metavar="FILE", help="kept up to date while it runs")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write a JSON and a Markdown file there")
    parser.add_argument(
        "--join",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="measure nothing: put the JSON files of several runs together, later ones counting",
    )


def main(arguments: argparse.Namespace, engine: Any = None) -> int:
    """Run the command; 0, or 1 if anything failed.

    Raises
    ------
    ValueError
        If there is no such workload.
    """
    if arguments.join:
        parts = [json.loads(path.read_text()) for path in arguments.join]
        return _finish(arguments, gpu_report.joined(parts))
    chosen = select(arguments.workloads, arguments.sizes, arguments.seed)
    engine = CudaEngine(arguments.threads) if engine is None else engine
    missing = engine.missing()
    if missing is not None:
        print(f"no GPU to measure: {missing}")
        return 1
    described = machine.describe()
    described["commit"] = arguments.commit or described["commit"]
    document: dict[str, Any] = {"machine": described, "device": engine.describe(), "records": [], "first": {}}
    options = Options(
        arguments.repeats, arguments.check_all, arguments.stop_after, arguments.first, arguments.compile
    )

    def save() -> None:
        document["records"] = [asdict(record) for record in benchmark.records]
        document["first"] = benchmark.first
        if arguments.json is not None:
            arguments.json.write_text(gpu_report.json_text(document))

    benchmark = Benchmark(engine, options, Deadline(options.stop_after), save)
    print(gpu_report.device_text(document), flush=True)
    try:
        for workload, sizes in chosen:
            benchmark.run(workload, sizes)
            print(gpu_report.progress_text(benchmark.records[-len(sizes) :]), flush=True)
        benchmark.measure_first_fit()
    except KeyboardInterrupt:
        _say("interrupted: what has been measured is kept")
    save()
    return _finish(arguments, document)


def _finish(arguments: argparse.Namespace, document: dict[str, Any]) -> int:
    print(gpu_report.text(document))
    if arguments.join and arguments.json is not None:
        arguments.json.write_text(gpu_report.json_text(document))
    if arguments.output is not None:
        for path in gpu_report.write(arguments.output, document):
            print(f"written: {path}")
    wrong = [
        f"{record['workload']} n={record['n']}: {record['status']}"
        for record in document["records"]
        if record["status"].startswith(("failed", "refused"))
    ]
    if "error" in document["first"]:
        wrong.append(f"first fit: {document['first']['error']}")
    for line in wrong:
        print(f"FAILED: {line}")
    return 1 if wrong else 0

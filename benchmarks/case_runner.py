"""The gate and the measurements of the cases, each in a process of its own, and the figures they give."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks import gate, machine, report
from benchmarks.cases import CASES, MEMBER_ROWS, SKLEARN, Case
from benchmarks.figures import Figure
from benchmarks.peers import MREACH, Settings
from benchmarks.workers import WorkerError, Workers, open_workers

MIB = report.MIB
CUT_SECONDS = 0.2
# The batch before and the new one, the table between batches, and the place, label and strength of each row.
MEMBERSHIP_BYTES = (2 * 64 + 256) * MIB + 64 * MEMBER_ROWS
GROWTH = 1.1  # of the bytes per row, from the smallest size to the largest
CHOICE_SLACK = 1.2  # two times of one and the same fit differ by so much


@dataclass
class CaseRun:
    """A case at one size: what the gate said, times in seconds, peaks in bytes, how busy the machine was."""

    case: str
    text: str
    n: int
    seed: int
    min_cluster_size: int
    min_samples: int
    threads: int
    load_before: list[float]
    verdicts: list[gate.Verdict] = field(default_factory=list)
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    backend: str | None = None
    cores_busy_elsewhere: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the gate let everything pass."""
        return bool(self.verdicts) and all(verdict.passed for verdict in self.verdicts)

    def seconds(self, step: str) -> float | None:
        """Median seconds of a step."""
        return self.steps[step]["median_seconds"] if step in self.steps else None

    def peak(self, step: str) -> int | None:
        """Bytes that a step needed at most."""
        return self.steps[step]["peak_bytes"] if step in self.steps else None

    def as_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        verdicts = [entry._asdict() for entry in self.verdicts]
        return asdict(self) | {"passed": self.passed, "verdicts": verdicts}

    def lines(self) -> str:
        """The run as Markdown."""
        load = " ".join(f"{value:.2f}" for value in self.load_before)
        elsewhere = ""
        if self.cores_busy_elsewhere is not None:
            elsewhere = f"; other processes kept {self.cores_busy_elsewhere:.2f} cores busy"
        head = [
            f"### {self.case}, {self.n} rows",
            "",
            f"{self.text}: seed {self.seed}, min_cluster_size {self.min_cluster_size}, min_samples "
            f"{self.min_samples}, backend {self.backend or '-'}, {self.threads} threads; load average before "
            f"{load}{elsewhere}; gate {'passed' if self.passed else 'FAILED'}",
            "",
        ]
        for entry in self.verdicts:
            mark = "ok" if entry.passed else "FAILED"
            head.append(f"- {entry.subject}: {entry.against} at {entry.rows} rows: {mark} ({entry.detail})")
        steps = [
            [
                name,
                f"{report.seconds_text(step['median_seconds'])} (of {step['repeats']})",
                "-" if step["peak_bytes"] is None else f"{step['peak_bytes'] / MIB:.1f} MiB",
            ]
            for name, step in self.steps.items()
        ]
        table = ["", report.table(("step", "median", "peak"), steps)] if steps else []
        return "\n".join([*head, *table]) + "\n"


def run_case(case: Case, n: int, workers: Workers) -> CaseRun:
    """Hold a case against the reference at a small size, then measure it; a wrong one keeps no times."""
    options = workers.options
    settings = Settings(case.min_cluster_size, case.min_samples, options.threads, options.backend)
    load = list(os.getloadavg())
    own = case.text, n, case.seed, case.min_cluster_size, case.min_samples, options.threads, load
    run = CaseRun(case.name, *own)
    job = {"mode": "case", "case": case.name, "repeats": options.repeats, "peers": options.peers}

    def work(rows: int, backend: str, gated: bool) -> tuple[dict[str, Any], Any]:
        chosen = settings._replace(backend=backend)._asdict()
        given = job | {"n": rows, "settings": chosen, "gate": gated}
        done, result = workers.start(given, options.threads)
        for what, passed, detail in done["checks"]:
            run.verdicts.append(gate.Verdict(f"mreach[{backend}]", what, rows, passed, detail))
        return done, result

    try:
        print(f"{case.name} n={n}: gate", file=sys.stderr, flush=True)
        small = min(n, case.gate_rows)
        _, found = work(small, options.backend, True)
        _, expected = work(small, "reference", True)
        run.verdicts.append(gate.check_reference(found, expected)._replace(rows=small))
        if run.passed:
            print(f"{case.name} n={n}: measure", file=sys.stderr, flush=True)
            done, _ = work(n, options.backend, False)
            if run.passed:
                run.steps, run.backend = done["steps"], done["backend"]
                run.cores_busy_elsewhere = done["cores_busy_elsewhere"]
    except WorkerError as error:
        run.verdicts.append(gate.Verdict(MREACH, "itself", n, False, str(error)))
    return run


def ratio(
    title: str, target: float | None, above: tuple[CaseRun, str], below: tuple[CaseRun, str], at_least: bool
) -> Figure:
    """How many times as long one step takes as another."""
    one, other = above[0].seconds(above[1]), below[0].seconds(below[1])
    if one is None or not other:
        return Figure(title, target, None, at_least, "x")
    how = f"{above[1]} {report.seconds_text(one)} / {below[1]} {report.seconds_text(other)}"
    return Figure(title, target, one / other, at_least, "x", how)


def _slowest(title: str, target: float | None, run: CaseRun, steps: Sequence[str]) -> Figure:
    times = {name: run.seconds(name) for name in steps}
    known = {name: value for name, value in times.items() if value is not None}
    if not known:
        return Figure(title, target, None, False, "s")
    worst = max(known, key=lambda name: known[name])
    return Figure(title, target, known[worst], False, "s", f"the slowest of {len(known)}: {worst}")


def _new_rows(runs: Sequence[CaseRun]) -> list[Figure]:
    run = runs[-1]
    return [ratio(f"{run.text}, against the fit", 1.0, (run, "new rows"), (run, "fit"), False)]


def _memberships(runs: Sequence[CaseRun]) -> list[Figure]:
    run = runs[-1]
    peak, seconds = run.peak("batches"), run.seconds("batches")
    how = "" if seconds is None else f"in batches, {report.seconds_text(seconds)}"
    value = None if peak is None else peak / 1e6
    return [Figure(f"{run.text}: peak memory", MEMBERSHIP_BYTES / 1e6, value, False, "MB", how)]


def _memory(runs: Sequence[CaseRun]) -> list[Figure]:
    title = f"{runs[-1].text}: bytes a row of a fit, largest against smallest size"
    peaks = {run.n: peak / run.n for run in runs if (peak := run.peak("fit")) is not None}
    if len(peaks) < 2:
        return [Figure(title, GROWTH, None, False, "x")]
    how = ", ".join(f"{n}: {value:.0f}" for n, value in sorted(peaks.items()))
    return [Figure(title, GROWTH, peaks[max(peaks)] / peaks[min(peaks)], False, "x", how)]


def _choice(runs: Sequence[CaseRun]) -> list[Figure]:
    run = runs[-1]
    times = {name: run.seconds(name) for name in run.steps if name != "auto"}
    fastest = min(times, key=lambda name: times[name] or 0.0, default="cpu")
    title = f"{run.text}, against the fastest backend"
    return [ratio(title, CHOICE_SLACK, (run, "auto"), (run, fastest), False)]


def _cut(runs: Sequence[CaseRun]) -> list[Figure]:
    run = runs[-1]
    steps = [name for name in run.steps if name.startswith("cut")]
    return [_slowest(f"{run.text}, one cut", CUT_SECONDS, run, steps)]


def _fit_many(runs: Sequence[CaseRun]) -> list[Figure]:
    run = runs[-1]
    title = f"{run.text}: separate fits against fit_many"
    return [ratio(title, 1.0, (run, "separate fits"), (run, "fit_many"), True)]


def _against_sklearn(runs: Sequence[CaseRun]) -> list[Figure]:
    run = runs[-1]
    return [ratio(f"{run.text}: faster than scikit-learn", 1.0, (run, SKLEARN), (run, "fit"), True)]


def _cosine(runs: Sequence[CaseRun]) -> list[Figure]:
    run = runs[-1]
    return [ratio(f"{run.text}, against euclidean", None, (run, "cosine"), (run, "euclidean"), False)]


def _chain(runs: Sequence[CaseRun]) -> list[Figure]:
    run = runs[-1]
    return [_slowest(run.text, None, run, [name for name in run.steps if name != "fit"])]


FIGURES: dict[str, Callable[[Sequence[CaseRun]], list[Figure]]] = {
    "new-rows": _new_rows,
    "new-clips": _new_rows,
    "memberships": _memberships,
    "memory": _memory,
    "large-clusters": _memory,
    "choice": _choice,
    "cut": _cut,
    "fit-many": _fit_many,
    "precomputed": _against_sklearn,
    "cosine": _cosine,
    "manhattan": _against_sklearn,
    "chain": _chain,
}


def measure_cases(
    workers: Workers, names: Sequence[str], *, divisor: int = 1
) -> tuple[list[CaseRun], list[Figure]]:
    """Measure cases. `divisor` makes each that much smaller: a trial run, not a figure."""
    runs: list[CaseRun] = []
    figures: list[Figure] = []
    for name in names:
        case = CASES[name]
        sizes = dict.fromkeys(max(case.gate_rows, size // divisor) for size in case.sizes)
        measured = [run_case(case, n, workers) for n in sizes]
        for run in measured:
            print(run.lines(), flush=True)
        runs += measured
        figures += FIGURES[name](measured)
    return runs, figures


def add_parser(commands: Any, positive: Callable[[str], int], shared: argparse.ArgumentParser) -> None:
    """The command ``cases``."""
    parser = commands.add_parser(
        "cases", parents=[shared], help="what libraries failed at by size, and what one hierarchy gives"
    )
    parser.add_argument(
        "--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME", help="default: all"
    )
    parser.add_argument("--divisor", type=positive, default=1, help="make the cases smaller: a trial run")


def main(arguments: argparse.Namespace, options: Any) -> int:
    """Measure, print, write; 0, or 1 if a case failed the gate."""
    described = machine.describe() | {"load_average": list(os.getloadavg())}
    with open_workers(options) as workers:
        runs, measured = measure_cases(workers, arguments.cases, divisor=arguments.divisor)
    figures = [figure.line() for figure in measured]
    load = " ".join(f"{value:.2f}" for value in described["load_average"])
    parts = [f"load average at the start {load}\n", report.figures_text(figures)]
    print(parts[-1])
    if arguments.output is not None:
        document = {"cases": [run.as_json() for run in runs], "figures": figures}
        parts += [run.lines() for run in runs]
        for path in report.write_files(arguments.output, "cases", described, document, parts):
            print(f"written: {path}")
    failed = [f"{run.case} n={run.n}" for run in runs if not run.passed]
    if failed:
        print(f"gate FAILED: {', '.join(failed)}")
    return 1 if failed else 0

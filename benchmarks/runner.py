"""The gate and the measurements of one workload: a process for each fit, nothing timed that is wrong."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gate, measure
from benchmarks.peers import MREACH, PRODUCT, Peer, Result, Settings, get_peer
from benchmarks.ties import Ties
from benchmarks.workers import Options, WorkerError, Workers
from benchmarks.workloads import Workload

COLD_ROWS = 5_000  # workloads of at most so many rows are also timed as the first fit of a new process
SLOW_SECONDS = 20.0  # what --skip-slow leaves out


@dataclass
class Measurement:
    """One library on one workload. Times in seconds, memory in bytes; None: not measured."""

    peer: str
    exactness: str
    status: str
    median_seconds: float | None = None
    min_seconds: float | None = None
    repeats: int = 0
    first_seconds: float | None = None
    cold_seconds: float | None = None
    cold_import_seconds: float | None = None
    peak_bytes: int | None = None
    cores_busy: float | None = None
    threads: int | None = None
    clusters: int | None = None
    noise: int | None = None
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def timed(self) -> bool:
        """Whether there is a time."""
        return self.median_seconds is not None


@dataclass
class Run:
    """One workload at one size: the gate's verdicts and the measurements."""

    workload: str
    n: int
    n_features: int
    dtype: str
    seed: int
    min_cluster_size: int
    min_samples: int
    threads: int
    verdicts: list[gate.Verdict] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the gate let everything pass."""
        return all(verdict.passed for verdict in self.verdicts)

    def measurement(self, peer: str) -> Measurement | None:
        """The measurement of that library, if it was asked for."""
        return next((entry for entry in self.measurements if entry.peer == peer), None)

    def as_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists, for the JSON file."""
        return asdict(self) | {
            "passed": self.passed,
            "verdicts": [entry._asdict() for entry in self.verdicts],
        }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _why_not(peer: Peer, rows: np.ndarray, options: Options) -> str | None:
    """Why a library is not even started, or None."""
    missing = peer.missing()
    if missing is not None:
        return missing
    estimate = peer.estimate(*rows.shape)
    most = min(options.limit, SLOW_SECONDS) if options.skip_slow else options.limit
    return f"skipped: about {estimate:.0f} s" if estimate > most else None


def _settings(workload: Workload, options: Options) -> Settings:
    return Settings(workload.min_cluster_size, workload.min_samples, options.threads, options.backend)


def _gate_reference(rows: np.ndarray, settings: Settings, workers: Workers) -> gate.Verdict:
    sample = gate.subsample(rows, gate.REFERENCE_ROWS)
    data = workers.save(sample, "gate-reference")

    try:
        found = workers.fit(MREACH, data, settings)
        expected = workers.fit(MREACH, data, settings._replace(backend="reference"))
    except WorkerError as error:
        return gate.Verdict(MREACH, "reference", len(sample), False, str(error))
    return gate.check_reference(found, expected)


def _gate_peers(
    workload: Workload, rows: np.ndarray, settings: Settings, workers: Workers
) -> list[gate.Verdict]:
    # The workload itself at a smaller size, not a thinned one: its groups keep their density.
    small = rows if len(rows) <= gate.PEER_ROWS else workload.rows(gate.PEER_ROWS)
    # Libraries too slow at full size are compared here all the same.
    installed = [peer for peer in map(get_peer, workers.options.peers) if peer.missing() is None]
    exactness = {peer.name: peer.exactness(small.shape[1]) for peer in installed}
    compared = [name for name in exactness if exactness[name] in ("exact", "unverified")]
    if not compared:
        return []
    data = workers.save(small, "gate-peers")
    try:
        ours = workers.fit(MREACH, data, settings)
    except WorkerError as error:
        return [gate.Verdict(MREACH, "itself", len(small), False, str(error))]
    ties = gate.ties_of(ours, settings.min_cluster_size)

    def verdict_on(name: str) -> gate.Verdict:
        try:
            theirs = workers.fit(name, data, settings)
        except WorkerError as error:
            # Not mreach's fault: it has been held against the reference already.
            return gate.Verdict(
                MREACH, name, len(small), True, f"not compared: {name} gave no result: {error}"
            )
        return gate.check_peer(ours, theirs, name, exactness[name], ties)

    return [verdict_on(name) for name in compared]


def gate_before(workload: Workload, rows: np.ndarray, workers: Workers) -> list[gate.Verdict]:
    """The gate at sizes that take seconds: mreach against its reference, and against each exact peer."""
    settings = _settings(workload, workers.options)
    verdict = _gate_reference(rows, settings, workers)
    return [verdict, *(_gate_peers(workload, rows, settings, workers) if verdict.passed else [])]


def _time_one(
    peer: Peer, data: Path, rows: np.ndarray, settings: Settings, workers: Workers
) -> tuple[Measurement, Result | None]:
    """All that is measured of one library; its result, for the gate."""
    exactness = peer.exactness(rows.shape[1])
    options = workers.options
    reason = _why_not(peer, rows, options)
    if reason is not None:
        return Measurement(peer.name, exactness, reason), None
    entry = Measurement(peer.name, exactness, "timed")
    try:
        report, result = workers.work(peer.name, data, settings, "measure")
        if options.cold and len(rows) <= COLD_ROWS and exactness != "yardstick":
            cold, _ = workers.work(peer.name, data, settings, "cold")
            entry.cold_seconds, entry.cold_import_seconds = cold["cold_seconds"], cold["import_seconds"]
    except WorkerError as error:
        entry.status = f"failed: {error}"
        return entry, None
    assert result is not None
    _enter(entry, report)
    entry.notes = result.notes
    if exactness != "yardstick":
        entry.clusters, entry.noise = int(result.labels.max(initial=-1)) + 1, int((result.labels < 0).sum())
    if peer.name == MREACH and not report["repeatable"]:
        entry.status = "failed: repeats of one fit differ"
        return entry, None
    return entry, result


def _enter(entry: Measurement, report: dict[str, Any]) -> None:
    entry.median_seconds, entry.min_seconds = measure.median(report["seconds"]), min(report["seconds"])
    entry.repeats, entry.cores_busy, entry.threads = (
        len(report["seconds"]),
        report["cores_busy"],
        report["threads"],
    )
    entry.first_seconds, entry.peak_bytes = report["first_seconds"], report["peak_bytes"]


def _forget_time(entry: Measurement, reason: str) -> None:
    entry.status = f"refused by the gate: {reason}"
    entry.median_seconds = entry.min_seconds = entry.first_seconds = entry.cold_seconds = None
    entry.peak_bytes = None


def _more_rounds(run: Run, data: Path, settings: Settings, workers: Workers) -> None:
    """Time again in turn, so that a busy spell of the machine does not hit one library alone."""
    samples: dict[str, list[float]] = {entry.peer: [] for entry in run.measurements if entry.timed}
    peaks: dict[str, list[int]] = {name: [] for name in samples}
    for _ in range(workers.options.rounds):
        for name in samples:
            _say(f"{run.workload} n={run.n}: {name} again")
            report, _ = workers.work(name, data, settings, "measure")
            samples[name] += report["seconds"]
            if report["peak_bytes"] is not None:
                peaks[name].append(report["peak_bytes"])
    for entry in run.measurements:
        if entry.peer in samples:
            seconds = samples[entry.peer]
            entry.repeats = len(seconds)
            entry.median_seconds, entry.min_seconds = measure.median(seconds), min(seconds)
            entry.peak_bytes = max(peaks[entry.peer], default=entry.peak_bytes)


def _time_all(run: Run, rows: np.ndarray, names: list[str], settings: Settings, workers: Workers) -> None:
    """Time each library and pass the result of the timed fit itself, at full size, through the gate."""
    data = workers.save(rows, "rows")
    ours: Result | None = None
    ties: Ties | None = None
    for name in names:
        _say(f"{run.workload} n={run.n}: {name}")
        entry, result = _time_one(get_peer(name), data, rows, settings, workers)
        run.measurements.append(entry)
        if name == MREACH:
            if result is None:
                run.verdicts.append(gate.Verdict(MREACH, "itself", run.n, False, entry.status))
                return
            ours, ties = result, gate.ties_of(result, settings.min_cluster_size)
        elif result is not None and ours is not None and ties is not None and entry.exactness != "yardstick":
            verdict = gate.check_peer(ours, result, name, entry.exactness, ties)
            run.verdicts.append(verdict._replace(stage="timed fit"))
            entry.notes["agreement"] = verdict.detail
    if run.passed and workers.options.rounds > 1:
        try:
            _more_rounds(run, data, settings, workers)
        except WorkerError as error:
            run.verdicts.append(gate.Verdict(MREACH, "itself", run.n, False, f"in a later round: {error}"))


def run_workload(
    workload: Workload, n: int, workers: Workers, *, gate_only: bool = False, yardstick: bool = False
) -> Run:
    """Gate, then time, mreach and its peers on one workload at one size.

    What fails the gate before the timing is not timed at all. The results of the timed fits themselves, at
    full size, go through the gate again, and the times of a workload that fails there are dropped.
    """
    options = workers.options
    rows = workload.rows(n)
    settings = _settings(workload, options)
    run = Run(
        workload.name,
        len(rows),
        rows.shape[1],
        str(rows.dtype),
        workload.seed,
        settings.min_cluster_size,
        settings.min_samples,
        settings.n_threads,
    )
    _say(f"{workload.name} n={len(rows)}: gate")
    run.verdicts = gate_before(workload, rows, workers)
    if gate_only or not run.passed:
        return run

    names = [MREACH, *options.peers, *([PRODUCT] if yardstick else [])]
    _time_all(run, rows, names, settings, workers)
    if not run.passed:
        reasons = "; ".join(verdict.detail for verdict in run.verdicts if not verdict.passed)
        for entry in run.measurements:
            if entry.timed:
                _forget_time(entry, reasons)
    return run

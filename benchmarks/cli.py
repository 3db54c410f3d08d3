"""The commands of ``python -m benchmarks``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks import case_runner, gpu, machine, report
from benchmarks.figures import measure_figures
from benchmarks.peers import COMPETITORS, PEERS, get_peer
from benchmarks.runner import Run, run_workload
from benchmarks.workers import Options, open_workers
from benchmarks.workloads import WORKLOADS, select_workloads


def _positive(text: str) -> int:
    value = int(text.replace("_", ""))
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Benchmarks of mreach.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="workloads and peers, and which of them are installed")

    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--peers",
        nargs="*",
        default=list(COMPETITORS),
        metavar="PEER",
        help="default: all; none: mreach alone",
    )
    shared.add_argument("--backend", default="auto", help="mreach's backend (default: auto)")
    shared.add_argument(
        "--threads", type=_positive, default=machine.usable_cores(), help="default: all usable cores"
    )
    shared.add_argument(
        "--repeats", type=_positive, help="timed fits of each library (default: by their duration)"
    )
    shared.add_argument(
        "--skip-slow", action="store_true", help="leave out peers that would take more than 20 s a fit"
    )
    shared.add_argument(
        "--limit",
        type=float,
        default=600.0,
        help="leave out what would take more seconds a fit (default: 600)",
    )
    shared.add_argument("--output", type=Path, metavar="DIR", help="write a JSON and a Markdown file there")

    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument(
        "--workloads",
        nargs="+",
        default=["main"],
        metavar="NAME",
        help="names, gauss<d>, wide<d>, or main, worst, all (default: main)",
    )
    chosen.add_argument(
        "--sizes", nargs="+", type=_positive, metavar="N", help="rows (default: each workload's own)"
    )

    timed = commands.add_parser(
        "run", parents=[shared, chosen], help="gate, then time, workloads side by side"
    )
    timed.add_argument(
        "--rounds", type=_positive, default=1, help="let the libraries take turns so often (default: 1)"
    )
    timed.add_argument("--no-cold", action="store_true", help="leave out the first fit of a new process")
    timed.add_argument("--product", action="store_true", help="also time one float32 product pass by NumPy")
    commands.add_parser("gate", parents=[shared, chosen], help="the correctness gate alone")
    figures = commands.add_parser(
        "figures", parents=[shared], help="the figures to reach, beside what is measured"
    )
    figures.add_argument(
        "--divisor", type=_positive, default=1, help="make the workloads smaller: a trial run"
    )
    case_runner.add_parser(commands, _positive, shared)
    gpu.add_parser(commands, _positive)
    return parser


def _options(arguments: argparse.Namespace) -> Options:
    for name in arguments.peers:
        get_peer(name)
    return Options(
        peers=tuple(arguments.peers),
        backend=arguments.backend,
        threads=arguments.threads,
        repeats=arguments.repeats,
        rounds=getattr(arguments, "rounds", 1),
        skip_slow=arguments.skip_slow,
        limit=arguments.limit,
        cold=not getattr(arguments, "no_cold", False),
    )


def list_text() -> str:
    """Workloads and peers as two tables."""
    workloads = [
        [
            entry.name,
            ", ".join(map(str, entry.sizes)),
            str(entry.seed),
            f"{entry.min_cluster_size} / {entry.min_samples}",
            "worst" if entry.worst else "main",
            entry.description,
        ]
        for entry in WORKLOADS.values()
    ]
    header = ("workload", "rows", "seed", "min_cluster_size / min_samples", "group", "what")
    peers = [
        [peer.name, peer.missing() or "installed", f"{peer.exactness(2)} / {peer.exactness(61)}"]
        for peer in PEERS.values()
    ]
    return (
        report.table(header, workloads)
        + "\n\n(gauss<d> and wide<d> exist for every number of features d)\n\n"
        + report.table(("library", "state", "2-D / 61-D"), peers)
    )


def _write(arguments: argparse.Namespace, runs: Sequence[Run], figures: list[dict[str, object]]) -> None:
    if arguments.output is None:
        return
    for path in report.write(arguments.output, arguments.command, machine.describe(), runs, figures):
        print(f"written: {path}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0, or 1 if a workload failed the gate, or 2 if the command line is wrong."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command == "list":
        print(list_text())
        return 0
    try:
        if arguments.command == "gpu":
            return gpu.main(arguments)
        options = _options(arguments)
        workloads = select_workloads(getattr(arguments, "workloads", []))
    except ValueError as error:
        parser.error(str(error))
    print(report.machine_text(machine.describe()), flush=True)
    if arguments.command == "cases":
        return case_runner.main(arguments, options)
    runs: list[Run] = []
    figures: list[dict[str, object]] = []
    with open_workers(options) as workers:
        if arguments.command == "figures":
            runs, measured = measure_figures(workers, divisor=arguments.divisor)
            figures = [figure.line() for figure in measured]
            for run in runs:
                print(report.run_text(run))
            print(report.figures_text(figures))
        else:
            for workload in workloads:
                for n in arguments.sizes or workload.sizes:
                    gate_only = arguments.command == "gate"
                    yardstick = getattr(arguments, "product", False)
                    runs.append(run_workload(workload, n, workers, gate_only=gate_only, yardstick=yardstick))
                    print(report.run_text(runs[-1]), flush=True)
    _write(arguments, runs, figures)
    failed = [f"{run.workload} n={run.n}" for run in runs if not run.passed]
    if failed:
        print(f"gate FAILED: {', '.join(failed)}")
    return 1 if failed else 0

"""Tables and JSON files of measurements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import slug
from benchmarks.peers import MREACH, get_peer
from benchmarks.runner import Measurement, Run

MIB = 1024.0 * 1024.0


def seconds_text(seconds: float | None) -> str:
    """Seconds with three significant digits, or a dash."""
    if seconds is None:
        return "-"
    if seconds >= 100.0:
        return f"{seconds:.0f} s"
    return f"{seconds:.3g} s" if seconds >= 1.0 else f"{1e3 * seconds:.3g} ms"


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    widths = [max(len(line[column]) for line in (header, *lines)) for column in range(len(header))]

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([row(header), rule, *map(row, lines)])


def _ratio(entry: Measurement, ours: Measurement | None, n_features: int) -> str:
    if ours is None or ours.median_seconds is None or entry.median_seconds is None or entry is ours:
        return "-"
    text = f"{entry.median_seconds / ours.median_seconds:.3g}x"
    return text if get_peer(entry.peer).counts_for_ratio(n_features) else f"({text})"


def _measurement_line(run: Run, entry: Measurement) -> list[str]:
    name = entry.peer if entry.exactness == "exact" else f"{entry.peer} ({entry.exactness})"
    if "backend" in entry.notes:
        name = f"{entry.peer} [{entry.notes['backend']}]"
    if not entry.timed:
        return [name, entry.status, "-", "-", "-", "-", "-"]
    return [
        name,
        f"{seconds_text(entry.median_seconds)} (of {entry.repeats})",
        _ratio(entry, run.measurement(MREACH), run.n_features),
        seconds_text(entry.cold_seconds),
        "-" if entry.peak_bytes is None else f"{entry.peak_bytes / MIB:.1f} MiB",
        "-" if entry.cores_busy is None else f"{entry.cores_busy:.1f} of {run.threads}",
        "-" if entry.clusters is None else f"{entry.clusters} / {entry.noise}",
    ]


def run_text(run: Run) -> str:
    """One run as Markdown: what it was, the gate, the table."""
    lines = [
        f"### {run.workload}, {run.n} x {run.n_features} {run.dtype}",
        "",
        f"seed {run.seed}, min_cluster_size {run.min_cluster_size}, min_samples {run.min_samples}, "
        f"{run.threads} threads; gate {'passed' if run.passed else 'FAILED'}",
        "",
    ]
    for verdict in run.verdicts:
        mark = "ok" if verdict.passed else "FAILED"
        where = f"{verdict.against} at {verdict.rows} rows, {verdict.stage}"
        lines.append(f"- {verdict.subject} = {where}: {mark} ({verdict.detail})")
    if run.measurements:
        header = (
            "library",
            "median",
            "against mreach",
            "cold",
            "peak",
            "cores busy",
            "clusters / noise",
        )
        lines += ["", table(header, [_measurement_line(run, entry) for entry in run.measurements])]
    return "\n".join(lines) + "\n"


def machine_text(machine: dict[str, object]) -> str:
    """The machine in a few lines of Markdown."""
    libraries = machine["libraries"]
    assert isinstance(libraries, dict)
    memory = machine["memory_bytes"]
    size = f", {memory / MIB / 1024:.1f} GiB" if isinstance(memory, int) else ""
    sets = machine["instruction_sets"]
    assert isinstance(sets, list)
    return (
        f"{machine['cpu']}, {machine['cores']} cores{size}, {' '.join(sets)}; {machine['system']}; "
        f"Python {machine['python']}; "
        + ", ".join(f"{name} {version}" for name, version in libraries.items())
        + f"; commit {machine['commit'] or 'unknown'}; {machine['time']}\n"
    )


def write(
    folder: Path, kind: str, machine: dict[str, object], runs: Sequence[Run], figures: list[dict[str, object]]
) -> list[Path]:
    """Write a JSON and a Markdown file named after the date, the command and the processor."""
    parts = [*([figures_text(figures)] if figures else []), *map(run_text, runs)]
    return write_files(
        folder, kind, machine, {"runs": [run.as_json() for run in runs], "figures": figures}, parts
    )


def write_files(
    folder: Path, kind: str, machine: dict[str, object], document: dict[str, object], parts: Sequence[str]
) -> list[Path]:
    """Write a document as JSON and its parts as Markdown, each below what machine it was."""
    folder.mkdir(parents=True, exist_ok=True)
    day = str(machine["time"])[:10]
    stem = f"{day}_{kind}_{slug(str(machine['cpu']))}_{machine['cores']}-cores"
    json_path, text_path = folder / f"{stem}.json", folder / f"{stem}.md"
    json_path.write_text(json.dumps({"machine": machine} | document, indent=1) + "\n")
    text_path.write_text("\n".join([machine_text(machine), *parts]))
    return [json_path, text_path]


def figures_text(figures: Sequence[dict[str, object]]) -> str:
    """Targets beside measured values, as a Markdown table."""
    header = ("figure", "target", "measured", "reached", "how")
    lines = [[str(figure[name]) for name in header] for figure in figures]
    return table(header, lines) + "\n"

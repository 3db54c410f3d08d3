"""Tables of the GPU benchmark, made of the plain dictionaries that its JSON file holds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.gpu_cases import (
    MAX_DEVICE_BYTES,
    MAX_FIRST_FIT_SECONDS,
    MAX_TAIL_SECONDS,
    MEMORY_ROWS,
    PEAK_FP16_FLOPS,
    TAIL_ROWS,
    target_of,
)
from benchmarks.machine import slug
from benchmarks.report import figures_text, machine_text, seconds_text, table

FILTER_STAGE = "filter"  # in stage_seconds: the pass over the tile pairs that finds the neighbours
WIDE_FEATURES = 64  # above this the filter's share of the fp16 peak is told

Document = dict[str, Any]
Entry = dict[str, Any]


def median_of(record: Entry) -> float | None:
    """Median seconds of a record's fits; None if there are none."""
    return float(statistics.median(record["seconds"])) if record["seconds"] else None


def filter_flops(record: Entry) -> float | None:
    """Achieved floating point operations a second of the filter: 2 n n d share / seconds of the filter."""
    seconds = record["statistics"].get("stage_seconds", {}).get(FILTER_STAGE)
    share = record["statistics"].get("tile_pairs_share")
    if not seconds or share is None:
        return None
    return float(2.0 * record["n"] ** 2 * record["n_features"] * share / seconds)


def _name(record: Entry) -> str:
    return f"{record['workload']} {record['n']} x {record['n_features']}"


def _number(value: Any, pattern: str = ".3g") -> str:
    return "-" if value is None else format(value, pattern)


def _verdict(measured: float | None, most: float | None) -> str:
    if measured is None or most is None:
        return "-"
    return "yes" if measured <= most else "NO"


def times_text(records: Sequence[Entry]) -> str:
    """The table of the figures to reach."""
    header = (
        "workload",
        "seed",
        "cuML",
        "cuhc",
        "reach",
        "aim",
        "median",
        "least - most",
        "reached",
        "aim met",
        "clusters / noise",
    )
    lines = []
    for record in records:
        target, median, seconds = (
            target_of(record["workload"], record["n"]),
            median_of(record),
            record["seconds"],
        )
        spread = (
            f"{seconds_text(min(seconds))} - {seconds_text(max(seconds))} of {len(seconds)}"
            if seconds
            else "-"
        )
        lines.append(
            [
                _name(record),
                str(record["seed"]),
                seconds_text(target.cuml),
                seconds_text(target.cuhc),
                seconds_text(target.reach),
                seconds_text(target.aim),
                record["status"] if median is None else seconds_text(median),
                spread,
                _verdict(median, target.reach),
                _verdict(median, target.aim),
                "-" if record["clusters"] is None else f"{record['clusters']} / {record['noise']}",
            ]
        )
    return table(header, lines)


def stages_text(records: Sequence[Entry]) -> str:
    """Milliseconds of each stage."""
    measured = [record for record in records if record["device_seconds"] is not None]
    names = list(
        dict.fromkeys(name for record in measured for name in record["statistics"].get("stage_seconds", {}))
    )
    lines = []
    for record in measured:
        seconds = record["statistics"].get("stage_seconds", {})
        shown = [seconds.get(name) for name in names]
        shown += [record["device_seconds"], record["tail_seconds"]]
        lines.append([_name(record), *("-" if one is None else f"{1e3 * one:.2f}" for one in shown)])
    return table(("milliseconds", *names, "rows to tree", "host tail"), lines) if lines else ""


def work_text(records: Sequence[Entry]) -> str:
    """What the filter computed and what it left over."""
    lines = []
    for record in records:
        found = record["statistics"]
        if not found:
            continue
        if "error" in found:
            lines.append([_name(record), f"failed: {found['error']}", *["-"] * 6])
            continue
        flops = filter_flops(record) if record["n_features"] > WIDE_FEATURES else None
        share, peak = found.get("tile_pairs_share"), found.get("peak_bytes")
        lines.append(
            [
                _name(record),
                str(found.get("tier", "-")),
                "-" if share is None else f"{100.0 * share:.1f} %",
                _number(found.get("hits_per_row")),
                _number(found.get("overflow_rows"), "d"),
                "-" if peak is None else f"{peak / 1e9:.2f} GB",
                "-" if flops is None else f"{flops / 1e12:.0f}",
                "-" if flops is None else f"{100.0 * flops / PEAK_FP16_FLOPS:.1f} %",
            ]
        )
    header = (
        "work",
        "tier",
        "tile pairs",
        "hits per row",
        "overflow rows",
        "peak memory",
        "filter TFLOP/s",
        "of fp16 peak",
    )
    return table(header, lines) if lines else ""


def rounds_text(records: Sequence[Entry]) -> str:
    """Every Borůvka round."""
    lines = []
    for record in records:
        for number, found in enumerate(record["statistics"].get("rounds", []), start=1):
            share = found.get("tile_pairs_share")
            lines.append(
                [
                    _name(record) if number == 1 else "",
                    str(number),
                    *(_number(found.get(name), "d") for name in ("components", "settled", "active_rows")),
                    "-" if share is None else f"{100.0 * share:.3f} %",
                    _number(found.get("exact_distances"), "d"),
                ]
            )
    header = ("rounds", "round", "components", "settled", "active rows", "tile pairs", "exact distances")
    return table(header, lines) if lines else ""


def first_text(first: Entry) -> str:
    """The parts of a first fit in a new process."""
    parts = {
        "sklearn_seconds": "import scikit-learn",
        "cupy_seconds": "import CuPy",
        "context_seconds": "create the context",
        "mreach_seconds": "import mreach",
        "fit_seconds": "first fit",
        "beyond_seconds": "import mreach + first fit",
        "second_fit_seconds": "second fit",
        "process_seconds": "whole process, both fits",
    }
    lines = [
        [f"kernels {kind}", *(seconds_text(found.get(part)) for part in parts)]
        for kind in ("cached", "compiled")
        for found in first.get(kind, [])
    ]
    return table(("first fit of a new process", *parts.values()), lines) if lines else ""


def _record_of(records: Sequence[Entry], workload: str, n: int) -> Entry | None:
    return next((one for one in records if (one["workload"], one["n"]) == (workload, n)), None)


def other_figures(document: Document) -> list[Figure]:
    """Memory, host tail and first fit, beside what they may be."""
    records, first = document["records"], document["first"]
    large, tailed = _record_of(records, "clips", MEMORY_ROWS), _record_of(records, "clips", TAIL_ROWS)
    peak = None if large is None else large["statistics"].get("peak_bytes")
    beyond = [found["beyond_seconds"] for found in first.get("cached", [])]
    return [
        Figure(
            f"clips {MEMORY_ROWS}: peak device memory",
            MAX_DEVICE_BYTES / 1e9,
            None if peak is None else peak / 1e9,
            False,
            "GB",
            "of the fit's own pool",
        ),
        Figure(
            f"clips {TAIL_ROWS}: host tail, tree to labels",
            MAX_TAIL_SECONDS,
            None if tailed is None else tailed["tail_seconds"],
            False,
            "s",
            "median of the passes",
        ),
        Figure(
            f"clips {first.get('rows', 20_000)}: first fit of a new process, kernels cached",
            MAX_FIRST_FIT_SECONDS,
            statistics.median(beyond) if beyond else None,
            False,
            "s",
            f"import mreach + fit, beyond scikit-learn, CuPy and context; median of {len(beyond)}",
        ),
    ]


def checks_text(records: Sequence[Entry]) -> str:
    """What was compared with a CPU fit."""
    marks = {True: "ok", False: "FAILED", None: "-"}
    lines = [
        f"- {record['workload']}, {check['rows']} rows: {check['how']}, cuda against cpu: "
        f"{marks[check['passed']]} ({check['detail']})"
        for record in records
        for check in record["checks"]
    ]
    return "\n".join(dict.fromkeys(lines))  # the sizes of a workload share their checks


def raw_text(records: Sequence[Entry]) -> str:
    """Seconds of every fit, and the checksum of what it found."""
    lines = []
    for record in records:
        if record["warm_up_seconds"] is not None:
            seconds = " ".join(f"{one:.4f}" for one in record["seconds"])
            lines.append(
                f"- {_name(record)} {record['dtype']}, seed {record['seed']}: warm-up "
                f"{record['warm_up_seconds']:.4f} s; {seconds} s; checksum {record['checksum']}"
            )
    return "\n".join(lines)


def json_text(document: Document) -> str:
    """The document as JSON; a backend's statistics may hold NumPy's numbers."""
    return json.dumps(document, indent=1, default=lambda value: value.item()) + "\n"


def device_text(document: Document) -> str:
    """The device, and the machine around it."""
    device = document["device"]
    return (
        f"{device['name']}, compute capability {device['compute_capability']}, "
        f"{device['multiprocessors']} multiprocessors, {device['memory_bytes'] / 1e9:.1f} GB; "
        f"CUDA {device['cuda']}, driver {device['driver']}, CuPy {device['cupy']}\n\n"
        + machine_text(document["machine"])
    )


def progress_text(records: Sequence[Any]) -> str:
    """A line for each record, while the others are still to come."""
    entries = [asdict(record) for record in records]
    return "\n".join(
        f"{_name(entry)}: {entry['status']} {seconds_text(median_of(entry))}" for entry in entries
    )


def text(document: Document) -> str:
    """The whole report as Markdown."""
    records = document["records"]
    settings = sorted({(record["min_cluster_size"], record["min_samples"]) for record in records})
    parts = [
        device_text(document),
        "Host NumPy array in, labels out, warm; "
        + ", ".join(f"min_cluster_size {size}, min_samples {samples}" for size, samples in settings)
        + ". cuML 26.10 is not exact, cuhc 0.1.0 rounds distances to float32; "
        "both were measured on an H200.\n",
        times_text(records) + "\n",
        figures_text([figure.line() for figure in other_figures(document)]),
    ]
    if "error" in document["first"]:
        parts.append(f"First fit of a new process: failed: {document['first']['error']}\n")
    rest = [
        stages_text,
        work_text,
        rounds_text,
        lambda _: first_text(document["first"]),
        checks_text,
        raw_text,
    ]
    parts += [f"{part}\n" for part in (make(records) for make in rest) if part]
    return "\n".join(parts)


def joined(parts: Sequence[Document]) -> Document:
    """Put the documents of several runs on one device together; of two records of the same, the later counts.

    Raises
    ------
    ValueError
        If they are of different devices or commits.
    """
    for what, values in (
        ("devices", {part["device"]["name"] for part in parts}),
        ("commits", {part["machine"]["commit"] for part in parts}),
    ):
        if len(values) > 1:
            raise ValueError(f"these are runs of different {what}: {', '.join(sorted(map(str, values)))}")
    records: dict[tuple[str, int, int], Entry] = {}
    for record in (record for part in parts for record in part["records"]):
        key = record["workload"], record["n"], record["seed"]
        if key not in records or not record["status"].startswith("not run"):
            records[key] = record
    first: Entry = next((part["first"] for part in reversed(parts) if part["first"]), {})
    return parts[-1] | {"records": list(records.values()), "first": first}


def write(folder: Path, document: Document) -> list[Path]:
    """Write a JSON and a Markdown file named after the date and the device."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{str(document['machine']['time'])[:10]}_gpu_{slug(document['device']['name'])}"
    json_path, text_path = folder / f"{stem}.json", folder / f"{stem}.md"
    json_path.write_text(json_text(document))
    text_path.write_text(text(document))
    return [json_path, text_path]

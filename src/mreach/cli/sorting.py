"""Clips from a recording, and templates from clips."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import mreach
from mreach.cli.reading import opened_array, read_table
from mreach.cli.running import NOTHING_FOUND, InputError, Outcome, blames_input
from mreach.cli.summary import plain, written_text
from mreach.cli.writing import Folder, output_folder
from mreach.ephys import extract_clips, save_templates, universal_templates

__all__ = ["run_extract", "run_templates"]


def run_extract(
    source: Path, output: Path | None, dataset: str | None, parameters: dict[str, Any]
) -> Outcome:
    """Open a recording, cut clips out of it, write them."""
    folder = Folder(output_folder(output, source, "extract"), "extract", [source])
    start = time.perf_counter()
    with _opened_recording(source, dataset) as recording, blames_input():
        is_array = not hasattr(recording, "get_traces")
        if is_array and parameters["preprocess"] and parameters["sampling_frequency"] is None:
            raise InputError(
                f"{source} is an array, and a high-pass needs its rate: give --sampling-frequency in Hz, or "
                "--no-preprocess if it is filtered and whitened"
            )
        found = extract_clips(recording, **parameters)
    seconds = {"extract": time.perf_counter() - start}
    n_clips = len(found.clips)
    if n_clips:
        folder.array("clips", found.clips)
        of_clips = found._asdict()
        del of_clips["clips"]
        folder.arrays("spikes", of_clips)
    summary = _summary("extract", source, parameters, seconds) | {"n_clips": n_clips, "scale": found.scale}
    if n_clips:
        summary["files"] = {name: str(path) for name, path in folder.written.items()}
        folder.summary(summary)
    lines = [
        ("clips", f"{n_clips} of {found.clips.shape[1]} samples"),
        ("time", f"{seconds['extract']:.2f} s"),
    ]
    if n_clips:
        lines.append(("written", written_text(folder.written)))
    return Outcome(lines, summary, 0 if n_clips else NOTHING_FOUND)


def run_templates(
    source: Path, output: Path | None, dataset: str | None, keep: Path | None, parameters: dict[str, Any]
) -> Outcome:
    """Read clips, make templates, write them."""
    inputs = [source] if keep is None else [source, keep]
    folder = Folder(output_folder(output, source, "templates"), "templates", inputs)
    clips = read_table(source, dataset).data
    kept = None if keep is None else np.asarray(read_table(keep).data)
    start = time.perf_counter()
    with blames_input():
        made = universal_templates(clips, keep=kept, **parameters)
    seconds = {"templates": time.perf_counter() - start}
    folder.by("templates", "wTEMP.npz", functools.partial(save_templates, templates=made))
    summary = _summary("templates", source, parameters, seconds) | {"n_clips": len(clips)}
    summary["files"] = {name: str(path) for name, path in folder.written.items()}
    folder.summary(summary)
    lines = [
        ("clips", f"{len(clips)} of {clips.shape[1]} samples"),
        ("wTEMP", f"{len(made.wTEMP)} templates"),
        ("wPCA", f"{len(made.wPCA)} components"),
        ("time", f"{seconds['templates']:.2f} s"),
        ("written", written_text(folder.written)),
    ]
    return Outcome(lines, summary)


def _summary(
    command: str, source: Path, parameters: dict[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    return {
        "command": command,
        "mreach_version": mreach.__version__,
        "input": {"path": str(source)},
        "parameters": plain(parameters),
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
    }


@contextmanager
def _opened_recording(path: Path, dataset: str | None) -> Iterator[Any]:
    """Open a recording without reading it: a folder of SpikeInterface, or an array in a file."""
    if not path.exists():
        raise FileNotFoundError(2, "No such file", str(path))
    if path.is_dir() and (path.suffix.lower() != ".zarr" or (path / "traces_seg0").exists()):
        if dataset is not None:
            raise InputError(f"{path} is a folder of SpikeInterface: leave out --dataset")
        yield _load_recording(path)
        return
    with opened_array(path, dataset) as array:
        yield array


def _load_recording(path: Path) -> Any:
    try:
        from spikeinterface import core
    except ModuleNotFoundError:
        raise ImportError(
            f"{path} is a folder, which SpikeInterface reads: pip install 'mreach[ephys]', or give an array "
            "(samples x channels) as .npy, .h5 or .zarr"
        ) from None
    load = getattr(core, "load", None) or core.load_extractor  # its name before version 0.102
    try:
        recording = load(path)
    except Exception as error:  # of many classes
        raise InputError(
            f"{path} is no recording that SpikeInterface can load ({error}): save one there by "
            "recording.save(folder=...)"
        ) from None
    if not hasattr(recording, "get_traces"):
        raise InputError(f"{path} holds a {type(recording).__name__}, not a recording")
    return recording

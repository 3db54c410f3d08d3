"""The files that a command leaves, each whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.cli.reading import require
from mreach.cli.running import InputError
from mreach.files import replacing

__all__ = ["Folder", "check_table_path", "check_writable", "output_folder", "write_table"]

TABLE_ENDINGS = (".csv", ".tsv", ".parquet")

ROWS_AT_ONCE = 100_000
"""Rows of a text table that are put together in memory at a time."""


SUFFIXES = {
    "cluster": "clusters",
    "clips": "kept",
    "predict": "predicted",
    "extract": "clips",
    "templates": "templates",
}
"""What the name of the default folder ends in: one command never writes over the results of another."""


_OF_A_FIT = ("labels.npy", "probabilities.npy", "outlier_scores.npy", "model.npz", "summary.json")

FILES = {
    "cluster": _OF_A_FIT,
    "clips": ("kept.npy", "kept_clips.npy", *_OF_A_FIT),
    "predict": ("labels.npy", "probabilities.npy", "outlier_scores.npy", "membership.npy", "summary.json"),
    "extract": ("clips.npy", "spikes.npz", "summary.json"),
    "templates": ("wTEMP.npz", "summary.json"),
}
"""What each command may write into its folder."""


def output_folder(asked: Path | None, source: Path, command: str) -> Path:
    """Return the folder for the results: as asked, or named after the data, in the working folder."""
    if asked is not None:
        return asked
    return Path(f"{source.resolve().name.split('.')[0] or 'data'}-{SUFFIXES[command]}")


class Folder:
    """A folder of results, made when the first one is written.

    Parameters
    ----------
    path : Path
    command : str
        Who writes.
    inputs : iterable of Path
        What it reads: never written over.
    others : iterable of Path
        Files outside of the folder that are to be written, too.
    """

    def __init__(self, path: Path, command: str, inputs: Iterable[Path], others: Iterable[Path] = ()) -> None:
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file: name a folder with --output")
        there = path
        while not there.exists() and there != there.parent:
            there = there.parent
        check_writable(there)
        _refuse_overwriting([path / name for name in FILES[command]], others, inputs)
        self.path = path
        self.written: dict[str, Path] = {}

    def array(self, name: str, array: NDArray[Any]) -> None:
        """Write an array as ``NAME.npy``."""
        self._write(name, f"{name}.npy", lambda file: np.save(file, array, allow_pickle=False))

    def arrays(self, name: str, arrays: dict[str, Any]) -> None:
        """Write several arrays as ``NAME.npz``."""
        self._write(name, f"{name}.npz", lambda file: np.savez(file, **arrays))

    def by(self, name: str, file_name: str, write: Callable[[Path], None]) -> None:
        """Let ``write`` write a file of that name; it does so whole or not at all by itself."""
        self.path.mkdir(parents=True, exist_ok=True)
        write(self.path / file_name)
        self.written[name] = self.path / file_name

    def summary(self, data: dict[str, Any]) -> None:
        """Write what the command says as ``summary.json``, the last file: with it all are there."""
        text = json.dumps(data, indent=2, allow_nan=False) + "\n"
        self._write("summary", "summary.json", lambda file: file.write(text.encode()))

    def _write(self, name: str, file_name: str, write: Callable[[Any], Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with replacing(self.path / file_name) as file:
            write(file)
        self.written[name] = self.path / file_name


def _refuse_overwriting(inside: list[Path], others: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Refuse results that would take the place of what is read, or of each other, before any work is done."""
    sources = list(inputs)
    taken = {os.path.realpath(path) for path in inside}
    for path in inside:
        if any(_is_same(path, source) for source in sources):
            raise InputError(
                f"{path} is read, and a result would be written over it: name another folder with --output"
            )
    for path in others:
        if any(_is_same(path, source) for source in sources):
            raise InputError(f"{path} is read, and a result would be written over it: name another file")
        if path.is_file() or not path.exists():  # /dev/stdout and the like take more than one
            if os.path.realpath(path) in taken:
                raise InputError(f"{path} would be written over by another result: name another file")
            taken.add(os.path.realpath(path))


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def check_writable(folder: Path) -> None:
    """Refuse a folder that nothing can be written to before any work is done.

    Raises
    ------
    InputError
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder: make it, or name another one")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: nothing can be written there: name another folder with --output")


def check_table_path(path: Path | None) -> None:
    """Refuse a table of an unknown kind before any work is done.

    Raises
    ------
    InputError
        The ending is none that is known.
    ImportError
        A Parquet file without pyarrow.
    """
    if path is None:
        return
    if path.suffix.lower() not in TABLE_ENDINGS:
        raise InputError(f"--table {path}: the ending must be one of {', '.join(TABLE_ENDINGS)}")
    if path.suffix.lower() == ".parquet":
        require("pyarrow", "writing Parquet")


def write_table(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    """Write columns of equal length as a table.

    Numbers are written so that they are read again bit for bit; NaN as an empty field in text.
    """
    if path.suffix.lower() == ".parquet":
        pyarrow, parquet = (
            require("pyarrow", "writing Parquet"),
            require("pyarrow.parquet", "writing Parquet"),
        )
        with replacing(path) as file:
            parquet.write_table(pyarrow.table(columns), file)
        return
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    n_rows = len(next(iter(columns.values())))
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, delimiter=separator, lineterminator="\n")
        writer.writerow(columns)
        for start in range(0, n_rows, ROWS_AT_ONCE):
            listed = [_as_text(column[start : start + ROWS_AT_ONCE]) for column in columns.values()]
            writer.writerows(zip(*listed, strict=True))
        text.flush()
        text.detach()  # the file itself is closed by who opened it


def _as_text(column: NDArray[Any]) -> list[Any]:
    values = column.tolist()
    if column.dtype.kind != "f":
        return values
    return ["" if value != value else repr(value) for value in values]

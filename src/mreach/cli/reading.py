"""Data from files of many kinds, by one function. Libraries are imported where they are used."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.cli.running import InputError

__all__ = ["Table", "has_columns", "opened_array", "read_table", "require"]

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")

PARQUET_ENDINGS = (".parquet", ".pq")
SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": r"\s+"}


class Table(NamedTuple):
    """Data that were read."""

    data: NDArray[Any]
    """Numbers, of any type; an ``.npy`` file is mapped into memory, not read."""
    columns: list[str] | None
    """Names of the columns, where the file has some."""


def require(package: str, what: str) -> Any:
    """Import a library that only some files need.

    Raises
    ------
    ImportError
        In one line, with what to install.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        name = package.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != name:
            raise
        raise ImportError(f"{what} needs {name}, which is not installed: pip install {name}") from None


def read_table(
    path: Path, dataset: str | None = None, columns: Sequence[str] = (), header: bool | None = None
) -> Table:
    """Read numbers from a file; its ending says how.

    Parameters
    ----------
    path : Path
        ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.txt`` (also compressed), ``.parquet``, ``.h5``, ``.hdf5``,
        ``.zarr``.
    dataset : str, optional
        Which array of a file that may hold several; needed only where more than one could be meant.
    columns : sequence of str
        Which columns of a table with named ones, in this order; none: all.
    header : bool, optional
        Whether the first line of a text file holds names. None: it does, unless all of it are numbers.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        An unknown ending, a name that is not there, several arrays to choose from, text among the numbers.
    FileNotFoundError, OSError
        The file is not there or cannot be read.
    ImportError
        The library that reads such files is not installed.
    """
    if not path.exists():
        raise FileNotFoundError(2, "No such file", str(path))
    ending = _ending_of(path)
    if ending not in (*SEPARATORS, *PARQUET_ENDINGS, *_OPENERS):
        known = ", ".join([".npy", ".npz", *SEPARATORS, ".parquet", ".h5", ".hdf5", ".zarr"])
        raise InputError(f"{path}: the ending of the name does not say what it is; known are {known}")
    if dataset is not None and ending not in _OPENERS:
        raise InputError(f"{path} holds one table: leave out --dataset")
    if columns and ending in _OPENERS:
        raise InputError(f"{path} has no named columns: leave out --columns")
    if ending in SEPARATORS:
        return _read_text(path, ending, columns, header)
    if ending in PARQUET_ENDINGS:
        return _read_parquet(path, columns)
    with opened_array(path, dataset) as array:
        return Table(array if isinstance(array, np.ndarray) else np.asarray(array[()]), None)


def has_columns(path: Path) -> bool:
    """Tell whether files of this kind have names for their columns."""
    return _ending_of(path) in (*SEPARATORS, *PARQUET_ENDINGS)


def _ending_of(path: Path) -> str:
    """Return the ending that says what the file is, before those of compression."""
    endings = [one.lower() for one in path.suffixes]
    while endings and endings[-1] in COMPRESSIONS:
        endings.pop()
    return endings[-1] if endings else ""


@contextmanager
def opened_array(path: Path, dataset: str | None = None) -> Iterator[Any]:
    """Open an array in a file without reading it: parts of it are NumPy arrays.

    Parameters
    ----------
    path : Path
        ``.npy``, ``.npz`` (which is read), HDF5 or Zarr.
    dataset : str, optional
        As in :func:`read_table`.
    """
    if not path.exists():
        raise FileNotFoundError(2, "No such file", str(path))
    if _ending_of(path) not in _OPENERS:
        raise InputError(f"{path} is no array that can be opened: known are {', '.join(_OPENERS)}")
    if dataset is not None and _ending_of(path) == ".npy":
        raise InputError(f"{path} holds one array: leave out --dataset")
    with _OPENERS[_ending_of(path)](path, dataset) as array:
        yield array


@contextmanager
def _open_npy(path: Path, dataset: str | None) -> Iterator[Any]:
    try:
        data = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path} is no array of numbers that NumPy can read ({error})") from None
    if not isinstance(data, np.ndarray):
        raise InputError(f"{path} is no .npy file: give it the ending of what it is")
    yield data


@contextmanager
def _open_npz(path: Path, dataset: str | None) -> Iterator[Any]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            names = [name for name in arrays.files if name != "mreach.json"]
            data = arrays[_choose(path, dataset, names, lambda one: arrays[one].shape)]
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path} is no .npz file of numbers that NumPy can read ({error})") from None
    yield data


@contextmanager
def _open_hdf5(path: Path, dataset: str | None) -> Iterator[Any]:
    h5py = require("h5py", "reading HDF5")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"{path} is no HDF5 file, or is damaged ({error})") from None
    found: dict[str, Any] = {}
    with file:
        file.visititems(lambda name, one: found.update({name: one}) if hasattr(one, "dtype") else None)
        yield found[_choose(path, dataset, list(found), lambda one: found[one].shape)]


@contextmanager
def _open_zarr(path: Path, dataset: str | None) -> Iterator[Any]:
    zarr = require("zarr", "reading Zarr")
    try:
        root = zarr.open(str(path), mode="r")
    except Exception as error:  # its classes differ from version to version
        raise InputError(f"{path} is no Zarr array or group, or is damaged ({error})") from None
    if hasattr(root, "shape"):
        if dataset is not None:
            raise InputError(f"{path} holds one array: leave out --dataset")
        yield root
        return
    found: dict[str, Any] = {}
    groups = [("", root)]
    while groups:
        above, group = groups.pop()
        found |= {above + name: array for name, array in group.arrays()}
        groups += [(f"{above}{name}/", inner) for name, inner in group.groups()]
    yield found[_choose(path, dataset, sorted(found), lambda one: found[one].shape)]


_OPENERS: dict[str, Callable[[Path, str | None], AbstractContextManager[Any]]] = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".h5": _open_hdf5,
    ".hdf5": _open_hdf5,
    ".hdf": _open_hdf5,
    ".zarr": _open_zarr,
}


def _choose(
    path: Path, asked: str | None, names: list[str], shape_of: Callable[[str], tuple[int, ...]]
) -> str:
    """Return the name of the array that was asked for, or of the only one with two dimensions."""
    if not names:
        raise InputError(f"{path} holds no array")
    if asked is not None and asked.strip("/") in names:
        return asked.strip("/")
    shapes = {name: tuple(shape_of(name)) for name in names}
    listed = ", ".join(f"{name} {shape}" for name, shape in list(shapes.items())[:12])
    listed += ", ..." if len(shapes) > 12 else ""
    if asked is not None:
        raise InputError(f"{path} holds no array {asked!r}; it has {listed}")
    likely = [name for name, shape in shapes.items() if len(shape) == 2] or list(shapes)
    if len(likely) > 1:
        raise InputError(f"{path} holds several arrays: choose one with --dataset; it has {listed}")
    return likely[0]


def _read_text(path: Path, ending: str, columns: Sequence[str], header: bool | None) -> Table:
    pandas = require("pandas", "reading text")
    options: dict[str, Any] = {"sep": SEPARATORS[ending], "skipinitialspace": True}
    try:
        first = pandas.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
        fields = [str(one) for one in first.iloc[0]]
        if ending == ".csv" and len(fields) == 1 and ";" in fields[0]:
            options["sep"], fields = ";", fields[0].split(";")
        named = _are_names(fields) if header is None else header
        frame = pandas.read_csv(path, header=0 if named else None, **options, **_exactly(pandas))
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no table of numbers ({error})") from None
    if named and fields and not fields[0].strip() and not columns:
        frame = frame.iloc[:, 1:]  # row numbers, as pandas and R write them: a column without a name
    frame.columns = [str(one) for one in frame.columns]
    names = list(frame.columns)
    chosen = _columns(path, names, columns)
    _refuse_text(path, {name: frame[name].dtype.kind for name in chosen})
    return Table(frame[chosen].to_numpy(), chosen if named else None)


def _exactly(pandas: Any) -> dict[str, Any]:
    """Return what makes pandas read numbers bit for bit; from version 3.1 on it does by itself."""
    version = tuple(int(one) for one in re.findall(r"\d+", pandas.__version__)[:2])
    return {} if version >= (3, 1) else {"float_precision": "round_trip"}


def _are_names(fields: list[str]) -> bool:
    """Tell names from numbers; 0, 1, 2, ... are names, which pandas gives to columns that have none."""
    if len(fields) > 2 and fields == [str(one) for one in range(len(fields))]:
        return True
    return not all(_is_number(one) for one in fields)


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return text.strip().lower() in ("na", "n/a", "null", "none")
    return True


def _read_parquet(path: Path, columns: Sequence[str]) -> Table:
    require("pyarrow", "reading Parquet")
    parquet = import_module("pyarrow.parquet")
    pyarrow = import_module("pyarrow")
    try:
        names = [one for one in parquet.read_schema(path).names if not one.startswith("__index_level_")]
        chosen = _columns(path, names, columns)
        table = parquet.read_table(path, columns=chosen)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise InputError(f"{path} is no Parquet file, or is damaged ({error})") from None
    arrays = {name: table.column(name).to_numpy() for name in chosen}
    _refuse_text(path, {name: array.dtype.kind for name, array in arrays.items()})
    return Table(np.column_stack(list(arrays.values())), chosen)


def _columns(path: Path, names: list[str], asked: Sequence[str]) -> list[str]:
    """Return the columns asked for; "a,b" asks for two."""
    wanted = [one for some in asked for one in ([some] if some in names else some.split(","))]
    missing = [one for one in wanted if one not in names]
    if missing:
        listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise InputError(f"{path} has no column {missing[0]!r}; it has {listed}")
    return wanted or names


def _refuse_text(path: Path, kinds: dict[str, str]) -> None:
    text = [name for name, kind in kinds.items() if kind not in "biuf"]
    if text:
        numbers = [name for name in kinds if name not in text]
        hint = f": choose others with --columns {','.join(numbers[:8])}" if numbers else ""
        raise InputError(f"{path}: column {text[0]!r} does not hold numbers{hint}")

"""Fitted models as files: arrays and text, nothing that runs when it is read.

A model file is an ``.npz`` file: each array can be read by ``numpy.load(path)[name]``. Beside the arrays it
holds ``mreach.json``: version, parameters, and which arrays there are.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mreach.estimator import HDBSCAN
from mreach.files import replacing
from mreach.metrics import Metric
from mreach.row_order import KeptRows
from mreach.trees import CondensedTree, FitOfTree, MinimumSpanningTree, SingleLinkageTree
from mreach.validation import Rows, given_parameters
from mreach.validation.model_files import (
    FORMAT,
    FORMAT_VERSION,
    check_array_size,
    check_header,
    check_model,
    check_model_arrays,
    check_parameter_value,
    damaged,
    refuse_lost_rows,
)

__all__ = ["load_model", "save_model"]

HEADER = "mreach.json"

ARRAYS = (
    "labels_",
    "probabilities_",
    "core_distances_",
    "minimum_spanning_tree_",
    "single_linkage_tree_",
    "condensed_tree_",
    "cluster_persistence_",
    "_selected",
    "_birth_heights",
    "_measured_core_distances",
)
"""Attributes of every fitted model that are arrays."""

OPTIONAL_ARRAYS = ("centroids_", "medoids_")

ARRAY = "array in this file"
"""Stands in the JSON for an array among the parameters."""

NOT_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""How numbers that JSON does not have are written; no parameter has such a word as its value."""


def save_model(model: HDBSCAN, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file, from which :func:`load_model` makes it again, bit for bit.

    The file holds parameters, labels, core distances, trees, and the rows of the fit where new ones can be
    predicted (else their ranks). It is written whole or not at all: an older file stays as it is until then.

    Parameters
    ----------
    model : HDBSCAN
        Fitted. Of a subclass only what is the base's is saved.
    path : str or path-like
        By convention ending in ``.npz``; nothing is added to it.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        Before a fit.
    TypeError
        Not an ``HDBSCAN``, or one with a parameter that is a function: pickle it instead.
    ValueError
        The data were changed in place after the fit, so that the model no longer knows its rows.
    OSError
        The file could not be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import mreach
    >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [20.0]])
    >>> model = mreach.HDBSCAN(min_cluster_size=3, min_samples=2, backend="reference").fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mreach.save_model(model, os.path.join(folder, "model.npz"))
    ...     again = mreach.load_model(os.path.join(folder, "model.npz"))
    >>> again.cut(min_cluster_size=4, allow_single_cluster=True).labels_
    array([ 0,  0,  0,  0,  0,  0, -1])
    """
    check_model(model, HDBSCAN)
    check_is_fitted(model)
    rows, are_ranks = _rows_of(model)
    arrays = {name: getattr(model, name) for name in ARRAYS}
    arrays |= {name: model.__dict__[name] for name in OPTIONAL_ARRAYS if name in model.__dict__}
    arrays["other_rows"] = model._rows.other_rows
    arrays |= {name: one for name, one in (("rows", rows), ("copies", model._rows.copies)) if one is not None}
    names = getattr(model, "feature_names_in_", None)
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "mreach_version": _version(),
        "backend": model.backend_,
        "n_features": int(model.n_features_in_),
        "feature_names": None if names is None else list(names),
        "rows_are_ranks": are_ranks,
        "parameters": _to_json(model.get_params(deep=False), "parameters", arrays),
        "fitted_parameters": _to_json(model._given_parameters, "fitted_parameters", arrays),
        "metric": _to_json(model._metric._replace(function=None)._asdict(), "metric", arrays),
    }
    header["arrays"] = list(arrays)
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(HEADER), json.dumps(header, indent=1, allow_nan=False))
        for name, array in arrays.items():
            # A time of its own would make two files of one model differ.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                npy.write_array(member, np.asanyarray(array).view(np.ndarray), allow_pickle=False)


def load_model(path: str | os.PathLike[str]) -> HDBSCAN:
    """Read a fitted model from a file that :func:`save_model` wrote.

    Nothing in the file is run: a file from a stranger can hold wrong numbers, no code.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    HDBSCAN
        Fitted; labels, trees, cuts and predictions equal those of the model that was saved, bit for bit.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        It is not a model of mreach, is damaged, or was written by a newer version; the message says which.
    """
    name = os.fspath(path)
    with _as_archive(name) as archive:
        with damaged(name):
            header = json.loads(archive.read(HEADER))
        header = check_header(name, header)
        arrays = {}
        for one in header["arrays"]:
            with damaged(name, one), archive.open(f"{one}.npy") as member:
                _check_size(archive, one, member)
                array = npy.read_array(member, allow_pickle=False)
                arrays[one] = array.astype(array.dtype.newbyteorder("="), copy=False)
    check_model_arrays(name, header, arrays)
    return _model_of(name, header, arrays)


def _check_size(archive: zipfile.ZipFile, name: str, member: IO[bytes]) -> None:
    """Check that the header of an array fits its bytes, and go back to the start."""
    major, _ = npy.read_magic(member)
    read = npy.read_array_header_1_0 if major == 1 else npy.read_array_header_2_0
    shape, _, dtype = read(member)
    n_bytes = archive.getinfo(f"{name}.npy").file_size - member.tell()
    if not dtype.hasobject:  # those have a refusal of their own
        check_array_size(dtype, shape, n_bytes)
    member.seek(0)


@contextmanager
def _as_archive(name: str) -> Iterator[zipfile.ZipFile]:
    with open(name, "rb") as file:
        with damaged(name):
            archive = zipfile.ZipFile(file)
        with archive:
            yield archive


def _model_of(name: str, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> HDBSCAN:
    """Put a model together from what was read and checked."""
    with damaged(name, "parameters"):
        model: Any = HDBSCAN(**_from_json(header["parameters"], arrays))
        given = _from_json(header["fitted_parameters"], arrays)
        metric = _from_json(header["metric"], arrays)
        model._metric = Metric(metric["name"], metric["kind"], metric["parameters"])
    labels, other, rows = arrays["labels_"], arrays["other_rows"], arrays.get("rows")
    are_ranks = header["rows_are_ranks"]
    finite_rows = np.setdiff1d(np.arange(len(labels)), other, assume_unique=True)
    model._rows = Rows(
        finite=None,
        data=None if rows is None else KeptRows(rows, not are_ranks, are_ranks),
        n_rows=len(labels),
        finite_rows=finite_rows if len(other) else None,
        other_rows=other,
        other_labels=labels[other],
        copies=arrays.get("copies"),
    )
    model._given_parameters = {**given_parameters(HDBSCAN()), **given}
    for one in (*ARRAYS, *OPTIONAL_ARRAYS):
        if one in arrays:
            setattr(model, one, arrays[one])
    model.backend_ = header["backend"]
    core, edges = arrays["core_distances_"], arrays["minimum_spanning_tree_"]
    model.minimum_spanning_tree_ = MinimumSpanningTree.of(edges, rows=model._rows)
    fit = FitOfTree(model.backend_, core, edges, model._rows)
    model.single_linkage_tree_ = SingleLinkageTree.of(arrays["single_linkage_tree_"], fit=fit)
    model.condensed_tree_ = CondensedTree.of(
        arrays["condensed_tree_"], labels=labels, selected=arrays["_selected"]
    )
    model._scores = {}
    model.n_features_in_ = header["n_features"]
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    fitted: HDBSCAN = model
    return fitted


def _rows_of(model: HDBSCAN) -> tuple[NDArray[Any] | None, bool]:
    """Return the rows that the model keeps, as a pickle would hold them, and whether they are ranks."""
    if model._rows.data is None:  # of precomputed distances
        return None, True
    state = model._rows.data.__getstate__()
    if state["_data"] is None:
        refuse_lost_rows()
    return state["_data"], state["_are_ranks"]


def _to_json(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return a value as JSON can say it; arrays inside of it join the others of the file, by their place."""
    if isinstance(value, dict):
        return {key: _to_json(one, f"{name}/{key}", arrays) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(one, f"{name}/{place}", arrays) for place, one in enumerate(value)]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        arrays[name] = value
        return {ARRAY: name}
    value = check_parameter_value(name.rpartition("/")[2], value)
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _from_json(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, dict):
        if set(value) == {ARRAY}:
            return arrays[value[ARRAY]]
        return {name: _from_json(one, arrays) for name, one in value.items()}
    if isinstance(value, list):
        return [_from_json(one, arrays) for one in value]
    return NOT_NUMBERS.get(value, value) if isinstance(value, str) else value


def _version() -> str:
    version: str = import_module("mreach").__version__  # of the package, which imports this module
    return version

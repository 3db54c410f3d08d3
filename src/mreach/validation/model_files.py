"""What a model file holds is checked here; nothing else raises on it.

The compiled core takes numbers of rows from the trees without looking, so that those of a file are looked at
before it gets them.
"""

from __future__ import annotations

import errno
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mreach.backends import BACKENDS
from mreach.records import CONDENSED_DTYPE, EDGE_DTYPE

FORMAT = "mreach model"
FORMAT_VERSION = 1

# What reading a file raises where its bytes are not what was written.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OverflowError,
    ValueError,
    TypeError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,  # NumPy reads the header of an array as a Python expression
    tokenize.TokenError,
)

_HEADER_TYPES: dict[str, type | tuple[type, ...]] = {
    "mreach_version": str,
    "backend": str,
    "n_features": int,
    "feature_names": (list, type(None)),
    "rows_are_ranks": bool,
    "parameters": dict,
    "fitted_parameters": dict,
    "metric": dict,
    "arrays": list,
}


def check_model(model: Any, estimator: type) -> None:
    """Check that there is a model to save.

    Raises
    ------
    TypeError
        Something else.
    """
    if not isinstance(model, estimator):
        raise TypeError(f"a fitted {estimator.__name__} can be saved, got {type(model).__name__}")


def check_parameter_value(name: str, value: Any) -> bool | int | float | str | None:
    """Return the value of a parameter as a plain Python one.

    Raises
    ------
    TypeError
        It is none that a file can hold as text.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float, str, type(None))):
        raise TypeError(
            f"{name}={value!r} cannot be saved: a model file holds numbers and text only. Pickle the model"
        )
    return value


def refuse_lost_rows() -> NoReturn:
    """Say that a model does not know its rows any more.

    Raises
    ------
    ValueError
        Always.
    """
    raise ValueError(
        "X was changed in place after the fit, and a model file holds its rows: fit again, or fit on X.copy()"
    )


@contextmanager
def damaged(path: str, part: str | None = None) -> Iterator[None]:
    """Turn what reading a broken file raises into one message.

    Raises
    ------
    ValueError
        Naming the file, the part of it, and what was wrong.
    """
    try:
        yield
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # that one: a place before the start
            raise
        if part is not None:
            _refuse_damage(path, f"{part} cannot be read ({_first_line(error)})")
        raise ValueError(
            f"{path} is not a model of mreach, or is damaged ({_first_line(error)}): "
            "mreach.save_model and 'mreach cluster' write models"
        ) from None


def check_array_size(dtype: np.dtype[Any], shape: tuple[int, ...], n_bytes: int) -> None:
    """Check that an array is as large as what the file holds of it, before memory is taken for it.

    Parameters
    ----------
    dtype, shape
        As its header says.
    n_bytes : int
        Bytes that follow the header.

    Raises
    ------
    ValueError
        The header speaks of more or fewer; :func:`damaged` names the file.
    """
    if dtype.itemsize * math.prod(shape) != n_bytes:
        raise ValueError(f"{n_bytes} bytes are there, not those of {dtype} numbers of shape {shape}")


def check_header(path: str, header: Any) -> dict[str, Any]:
    """Check what the file says about itself.

    Raises
    ------
    ValueError
        Another format, a newer version, or fields that are missing or of another type.
    """
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{path} is not a model of mreach: its mreach.json names another format")
    version = header.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        _refuse_damage(path, f"format_version is {version!r}")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path} was written by mreach {header.get('mreach_version')}, format version {version}; "
            f"this mreach reads up to {FORMAT_VERSION}: install a newer one (pip install -U mreach)"
        )
    for name, kind in _HEADER_TYPES.items():
        if not isinstance(header.get(name), kind):
            _refuse_damage(path, f"{name} in mreach.json is {header.get(name)!r}")
    if header["backend"] not in BACKENDS:
        _refuse_damage(path, f"backend in mreach.json is {header['backend']!r}")
    if header["metric"].get("kind") not in ("filtered", "tiled", "whole", "precomputed"):
        _refuse_damage(path, f"metric in mreach.json is {header['metric']!r}")
    if not all(isinstance(one, str) for one in header["arrays"]):
        _refuse_damage(path, "arrays in mreach.json are not all named")
    names = header["feature_names"]
    if names is not None and not (
        len(names) == header["n_features"] and all(isinstance(n, str) for n in names)
    ):
        _refuse_damage(path, f"feature_names in mreach.json are not {header['n_features']} names")
    return header


def check_model_arrays(path: str, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Check types, shapes and row numbers of the arrays in a model file.

    Raises
    ------
    ValueError
        The first that does not fit, with what it should be.
    """
    _expect(path, arrays, "labels_", np.int64, (None,))
    _expect(path, arrays, "other_rows", np.int64, (None,))
    labels, other = arrays["labels_"], arrays["other_rows"]
    n_rows, n_features = len(labels), header["n_features"]
    n_finite = n_rows - len(other)
    if n_finite < 1 or ((other < 0) | (other >= n_rows)).any() or (other[1:] <= other[:-1]).any():
        _refuse_damage(path, "other_rows are not rows of the fit")
    is_finite = np.ones(n_rows, bool)
    is_finite[other] = False
    n_clusters = max(int(labels.max()), -1) + 1
    if (
        labels.min() < -3
        or labels[is_finite].min() < -1
        or n_clusters > n_finite
        or (labels[other] > -1).any()
    ):
        _refuse_damage(path, "labels_ are not labels of the rows")
    needed: list[tuple[str, Any, tuple[int | None, ...]]] = [
        ("probabilities_", np.float64, (n_rows,)),
        ("core_distances_", np.float64, (n_rows,)),
        ("minimum_spanning_tree_", EDGE_DTYPE, (n_finite - 1,)),
        ("single_linkage_tree_", np.float64, (n_rows - 1, 4)),
        ("condensed_tree_", CONDENSED_DTYPE, (None,)),
        ("cluster_persistence_", np.float64, (n_clusters,)),
        ("_selected", np.int64, (n_clusters,)),
        ("_measured_core_distances", np.float64, (n_finite,)),
    ]
    possible: list[tuple[str, Any, tuple[int | None, ...]]] = [
        ("copies", np.int64, (n_finite,)),
        ("centroids_", np.float64, (n_clusters, n_features)),
        ("medoids_", np.float64, (n_clusters, n_features)),
    ]
    if header["rows_are_ranks"]:
        possible.append(("rows", np.int64, (n_finite, 1)))
    else:
        possible.append(("rows", (np.float32, np.float64), (n_finite, n_features)))
    for name, dtype, shape in (*needed, *(one for one in possible if one[0] in arrays)):
        _expect(path, arrays, name, dtype, shape)
    if "rows" not in arrays and header["fitted_parameters"].get("metric") != "precomputed":
        _refuse_damage(path, "rows is missing")
    copies = arrays.get("copies", np.ones(n_finite, np.int64))
    if (copies < 1).any():
        _refuse_damage(path, "copies are not all at least 1")
    _check_edges(path, arrays["minimum_spanning_tree_"], is_finite)
    has_tree = n_finite > 1 or int(copies[0]) > 1
    n_records = n_finite if has_tree else 0
    n_in_tree = _check_condensed(path, arrays["condensed_tree_"], arrays["_selected"], n_rows, n_records)
    _expect(path, arrays, "_birth_heights", np.float64, (n_in_tree,))


def _expect(
    path: str, arrays: dict[str, NDArray[Any]], name: str, dtype: Any, shape: tuple[int | None, ...]
) -> None:
    """Check that there is an array of a type (one of some types) and shape; None: of any length."""
    if name not in arrays:
        _refuse_damage(path, f"{name} is missing")
    array = arrays[name]
    types = [np.dtype(one) for one in (dtype if isinstance(dtype, tuple) else (dtype,))]
    if array.dtype not in types:
        _refuse_damage(path, f"{name} has dtype {array.dtype}, not {' or '.join(map(str, types))}")
    fits = len(shape) == array.ndim and all(
        want in (None, have) for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if one is None else str(one) for one in shape)
        _refuse_damage(path, f"{name} has shape {array.shape}, not ({wanted})")


def _check_edges(path: str, edges: NDArray[np.void], is_finite: NDArray[np.bool_]) -> None:
    source, target, weight = edges["source"], edges["target"], edges["weight"]
    n_rows = len(is_finite)
    in_range = (source >= 0) & (source < target) & (target < n_rows)
    if not in_range.all() or not is_finite[source].all() or not is_finite[target].all():
        _refuse_damage(path, "minimum_spanning_tree_ names rows that are not there")
    if np.isnan(weight).any() or (weight < 0).any() or (weight[1:] < weight[:-1]).any():
        _refuse_damage(path, "minimum_spanning_tree_ is not sorted by weights of at least 0")
    graph = coo_array((np.ones(len(edges), np.int8), (source, target)), shape=(n_rows, n_rows))
    n_other = n_rows - int(np.count_nonzero(is_finite))
    if connected_components(graph, directed=False, return_labels=False) != n_other + 1:
        _refuse_damage(path, "minimum_spanning_tree_ does not connect the rows")


def _check_condensed(
    path: str, condensed: NDArray[np.void], selected: NDArray[np.int64], n_rows: int, n_records: int
) -> int:
    """Check the condensed tree of ``n_records`` rows, and return how many clusters it has."""
    parent, child = condensed["parent"], condensed["child"]
    n_clusters = int(parent.max(initial=n_rows)) - n_rows + 1
    is_cluster = child > n_rows
    if (
        len(condensed) != n_records + n_clusters - 1
        or (parent < n_rows).any()
        or (child < 0).any()
        or (child == n_rows).any()
        or (child[is_cluster] <= parent[is_cluster]).any()
        or not np.array_equal(np.sort(child[is_cluster]), np.arange(n_rows + 1, n_rows + n_clusters))
        or (parent[1:] < parent[:-1]).any()
    ):
        _refuse_damage(path, "condensed_tree_ is not a tree of the rows")
    if ((selected < n_rows) | (selected >= n_rows + n_clusters)).any():
        _refuse_damage(path, "_selected names clusters that are not in condensed_tree_")
    return n_clusters


def _refuse_damage(path: str, what: str) -> NoReturn:
    raise ValueError(f"{path} is damaged: {what}. Write the model again, or take another copy of the file")


def _first_line(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text.splitlines()[0]

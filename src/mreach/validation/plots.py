"""What a user asks of the trees as objects is checked here; nothing else raises on it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mreach.records import CONDENSED_DTYPE, EDGE_DTYPE
from mreach.validation.parameters import InvalidParameterError, boolean_of, integer_of, one_of, real_of

EXTRAS = {"matplotlib": "plot", "pandas": "frames", "networkx": "frames"}
"""The extra of this package that brings another one."""

FIELDS = {"condensed_tree_": CONDENSED_DTYPE.names, "minimum_spanning_tree_": EDGE_DTYPE.names}
"""Fields of the trees that are records."""

TRUNCATE_MODES = ("lastp", "level")


def require(package: str, what: str) -> Any:
    """Import a package that is not needed but for this.

    Raises
    ------
    ImportError
        The package is missing; names the extra that brings it.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        name = package.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != name:
            raise  # the package is there, and lacks something itself
        raise ImportError(
            f"{what} needs {name}, which is not installed: pip install 'mreach[{EXTRAS[name]}]'"
        ) from None


def fitted_tree(model: Any, attribute: str) -> Any:
    """Return the tree of a fitted model; a tree stands for itself.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        A model before its fit.
    TypeError
        An array that is another tree, or none.
    """
    if isinstance(model, np.ndarray):
        has_columns = attribute == "single_linkage_tree_" and model.ndim == 2 and model.shape[1] == 4
        if not has_columns and model.dtype.names != FIELDS.get(attribute, ()):
            raise TypeError(
                f"an array of shape {model.shape} and dtype {model.dtype} is not what this draws: give the "
                f"fitted model, or its {attribute}"
            )
        return model
    check_is_fitted(model, attribute)
    return getattr(model, attribute)


def one_axes(ax: Any, axis: Any) -> Any:
    """Return the axes given under this library's name or under hdbscan's.

    Raises
    ------
    TypeError
        Both given.
    """
    if ax is not None and axis is not None:
        raise TypeError("ax and axis (its name in hdbscan) are the same: give one of the two")
    return axis if ax is None else ax


def check_icicle(leaf_separation: Any, log_size: Any, max_rectangles: Any) -> dict[str, Any]:
    """Check how a condensed tree is laid out.

    Raises
    ------
    InvalidParameterError
        A separation below 0 or not finite, a size scale that is no truth value, fewer than 1 rectangles.
    """
    separation = real_of("leaf_separation", leaf_separation, "; 1 is the usual, 0 none")
    if separation < 0:
        raise InvalidParameterError(f"leaf_separation must be at least 0, got {separation!r}")
    return {
        "leaf_separation": separation,
        "log_size": boolean_of("log_size", log_size),
        "max_rectangles": integer_of("max_rectangles_per_icicle", max_rectangles, 1),
    }


def check_truncation(truncate_mode: Any, p: Any) -> tuple[str | None, int]:
    """Check how much of a linkage is drawn.

    Raises
    ------
    InvalidParameterError
        Another mode than None, "lastp" or "level"; p below 1 where it counts.
    """
    if truncate_mode is None:
        return None, 0
    mode = one_of("truncate_mode", truncate_mode, TRUNCATE_MODES, hint="; None draws all merges")
    return mode, integer_of("p", p, 1)


def check_points(X: Any, tree: NDArray[np.void], rows: Any) -> NDArray[np.float64]:
    """Return where the rows of a spanning tree lie in the plane.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2) or None
        None: the rows of the fit.
    tree : EDGE_DTYPE array
    rows : Rows or None
        Of the fit, where the tree knows them.

    Returns
    -------
    float64 array of shape (n_samples, 2)
        NaN in rows that are not finite, if they come from the fit.

    Raises
    ------
    ValueError
        Not two columns, not as many rows as the fit has, or None where the fit's rows are not at hand.
    """
    n_rows = rows.n_rows if rows is not None else int(tree["target"].max(initial=0)) + 1
    if X is None:
        return _points_of_fit(rows, n_rows)
    points = np.asarray(X, np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(
            f"X must have the shape (n_samples, 2), got {points.shape}: reduce the rows to two columns "
            "(two features, or PCA) and pass these as X"
        )
    if len(points) != n_rows if rows is not None else len(points) < n_rows:
        raise ValueError(f"X must have a row for each row of the fit: {n_rows} rows, got {len(points)}")
    return points


def _points_of_fit(rows: Any, n_rows: int) -> NDArray[np.float64]:
    if rows is not None and rows.data is None:
        raise ValueError(
            "metric='precomputed' gives distances, and no rows to draw: pass two columns as X, one row "
            "for each line of the matrix (sklearn.manifold.MDS makes them of distances)"
        )
    finite = None if rows is None else rows.data.values()
    if finite is None:
        raise ValueError(
            "the rows of the fit are not at hand (they were changed in place, or prediction_data=False left "
            "them out of a pickle or on a GPU): pass them as X, reduced to two columns"
        )
    if finite.shape[1] != 2:
        raise ValueError(
            f"only rows of two features can be drawn, these have {finite.shape[1]}: reduce them to two "
            "columns (two features, or PCA) and pass these as X"
        )
    points = np.full((n_rows, 2), np.nan)
    points[slice(None) if rows.finite_rows is None else rows.finite_rows] = finite
    return points


def check_labels(labels: Any, n_rows: int) -> NDArray[np.int64] | None:
    """Return labels of the rows as integers; None stays None.

    Raises
    ------
    ValueError
        Not one for each row, or not whole numbers.
    """
    if labels is None:
        return None
    given = np.asarray(labels)
    if given.shape != (n_rows,) or given.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be whole numbers, one for each of the {n_rows} rows, got an array of shape "
            f"{given.shape} and dtype {given.dtype}: pass model.labels_"
        )
    return given.astype(np.int64)


def refuse_lost_fit(method: str) -> NoReturn:
    """Say that an array was never given what a method needs.

    Raises
    ------
    ValueError
        Always.
    """
    raise ValueError(
        f"{method} needs the tree as a fit made it, and this array was made otherwise: take it from the model"
    )

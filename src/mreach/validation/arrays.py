"""An array of the data, made without ever writing to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.validation import validate_data

from mreach.backends import why_not
from mreach.backends.cuda.inputs import as_cupy, on_device
from mreach.backends.distances import check_memory
from mreach.backends.host_rows import row_dtype
from mreach.metrics import Metric
from mreach.validation.metrics import check_values
from mreach.validation.numbers import InvalidParameterError
from mreach.validation.parameters import Parameters
from mreach.validation.precomputed import check_distances


def check_array_like(
    estimator: Any, X: Any, parameters: Parameters, on_host: bool = False
) -> tuple[Any, int | None]:
    """Make an array of the data, on the host or on the GPU that holds them.

    Parameters
    ----------
    estimator : HDBSCAN
        Gets ``n_features_in_`` (and ``feature_names_in_`` from a data frame), as scikit-learn's estimators
        do.
    X : array-like of shape (n_samples, n_features)
        Any real numeric type, byte order and memory layout. Never changed.
    parameters : Parameters
        From :func:`check_parameters`.
    on_host : bool
        Whether data on a GPU are to be copied to the host.

    Returns
    -------
    X : NumPy or CuPy array of shape (n_samples, n_features), or a source of distances
        On the host C-contiguous, float32 or float64; on a GPU of any layout and numeric type. It may share
        its memory with what was given: it is to be read only. For "precomputed" what
        :func:`mreach.validation.precomputed.check_distances` gives.
    device : int or None
        The GPU that was asked for, or that holds the data.

    Raises
    ------
    ValueError
        Not two-dimensional, empty, complex, text or dates, masked, on another GPU than asked for; values or
        distances that the metric does not take.
    TypeError
        Objects that are not numbers, or an array on a GPU for a backend on the host.
    MemoryError
        Sparse data that are too large when written out.
    RuntimeError
        An array on a GPU where backend "cuda" cannot run.
    """
    metric = parameters.metric
    if metric.kind == "precomputed":
        return check_distances(estimator, X), None
    if on_device(X):
        array, device = _check_device_array(estimator, X, parameters)
        if metric.kind == "filtered" and not metric.makes_rows_ready and not on_host:
            return array, device
        # On the host rows are made ready, tiled and repeated; a backend on a GPU gets what becomes of them.
        floats = _as_float(array.get())
        check_values(floats, metric)
        return floats, device if metric.kind == "filtered" else None
    return check_host_array(estimator, X, metric, reset=True), parameters.device


def check_host_array(estimator: Any, X: Any, metric: Metric, *, reset: bool) -> np.ndarray:
    """Make an array of data on the host, as :func:`check_array_like` does.

    Parameters
    ----------
    estimator : HDBSCAN
    X : array-like of shape (n_samples, n_features)
    metric : Metric
        It may ask something of the values.
    reset : bool
        Whether the estimator gets number and names of the features, or the data have to match those it has.

    Returns
    -------
    C-contiguous float32 or float64 array of shape (n_samples, n_features)
    """
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(
            "X is a masked array: X.filled(numpy.nan) marks the rows as missing (label -3), or leave them out"
        )
    _refuse_text(X)
    try:
        X = validate_data(
            estimator, X, reset=reset, accept_sparse=True, dtype="numeric", ensure_all_finite=False
        )
    except OverflowError as error:
        raise ValueError(f"X holds a number that float64 cannot hold ({error}): scale X down") from error
    floats = _written_out(X) if scipy.sparse.issparse(X) else _as_float(X)
    check_values(floats, metric)
    return floats


def _written_out(X: Any) -> np.ndarray:
    """Return sparse rows as an array, without another dense copy on the way."""
    _refuse_type(X.dtype)
    dtype = np.dtype(row_dtype(X.dtype))
    n_rows, n_features = X.shape
    check_memory(
        n_rows * n_features * dtype.itemsize,
        f"X is sparse, and distances need all of its {n_rows} x {n_features} numbers",
        "Reduce the features first, for example by sklearn.decomposition.TruncatedSVD.",
    )
    written: np.ndarray = X.astype(dtype, copy=False).toarray(order="C")
    return written


def _check_device_array(estimator: Any, X: Any, parameters: Parameters) -> tuple[Any, int]:
    """Take the data that lie on a GPU, without a copy."""
    if parameters.metric.kind == "filtered" and parameters.backend not in ("auto", "cuda"):
        raise TypeError(
            f"X lies on a GPU, and backend={parameters.backend!r} computes on the host: use backend='cuda', "
            "or copy X to the host first (CuPy: X.get(), PyTorch: X.cpu().numpy())"
        )
    reason = why_not("cuda")
    if reason is not None:
        raise RuntimeError(f"X lies on a GPU, and backend='cuda' cannot run here: {reason}")
    dtype = str(getattr(X, "dtype", ""))
    if "bfloat16" in dtype or "float8" in dtype:
        raise ValueError(f"X has dtype {dtype}, which NumPy has not: give it as float32 (PyTorch: X.float())")
    if getattr(X, "requires_grad", False):
        raise ValueError("X requires a gradient, and clustering has none: give X.detach()")
    try:
        array = as_cupy(X)
    except (BufferError, TypeError, ValueError, NotImplementedError) as error:
        raise TypeError(f"X lies on a GPU, but is no array that CuPy can read there ({error})") from error
    # What scikit-learn says about shapes and types it says about an array of one zero, spread to this shape.
    shape_and_type = np.broadcast_to(np.zeros((), array.dtype), array.shape)
    validate_data(estimator, shape_and_type, dtype="numeric", ensure_all_finite=False)
    _refuse_type(array.dtype)
    device = int(array.device.id)
    if parameters.device not in (None, device):
        raise InvalidParameterError(
            f"device={parameters.device} was asked for, but X lies on GPU {device}: leave device=None, "
            "or move X there"
        )
    return array, device


def _refuse_text(X: Any) -> None:
    """Refuse text among objects, which scikit-learn would turn into numbers where it can."""
    if isinstance(X, str):
        raise ValueError(f"X is text ({X!r}): load the data first, for example with numpy.load")
    dtypes = getattr(X, "dtypes", getattr(X, "dtype", None))  # of a frame's columns, or of an array
    if "object" not in map(str, np.atleast_1d(np.asarray(dtypes, dtype=object))):
        return
    for value in np.asarray(X, dtype=object).ravel():
        if isinstance(value, (str, bytes)):
            raise ValueError(f"X holds text ({value!r}): convert it to numbers first")


def _refuse_type(dtype: Any) -> None:
    if dtype.kind not in "fbiu":
        raise ValueError(
            f"X has dtype {dtype}, which has no distances here: convert it to numbers first, "
            "for example with X.astype(numpy.float64)"
        )


def _as_float(X: np.ndarray) -> np.ndarray:
    _refuse_type(X.dtype)
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(X, dtype=row_dtype(X.dtype))
    if X.dtype.itemsize > floats.dtype.itemsize and np.any(np.isinf(floats) & np.isfinite(X)):
        raise ValueError(f"X has dtype {X.dtype} and holds numbers that overflow float64: scale X down first")
    return floats

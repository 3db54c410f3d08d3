"""What a user hands in is checked here, once, before any work; nothing else raises on it.

Three doors: :func:`check_parameters` reads the parameters of an estimator into plain Python values,
:func:`check_array_like` makes an array of the data without ever writing to them, and :func:`check_rows` looks
at their values where a backend holds them.
"""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import validate_data

from mreach.backends import BACKENDS, why_not
from mreach.backends.cuda.inputs import as_cupy, on_device
from mreach.backends.host_rows import row_dtype
from mreach.threads import threads_for

CLUSTER_SELECTION_METHODS = ("eom", "leaf")
METRICS = ("euclidean",)
CENTERS = ("centroid", "medoid", "both")

# Read as attributes: a subclass may give its own __init__ fewer of them.
_PARAMETERS = (
    "min_cluster_size",
    "min_samples",
    "cluster_selection_epsilon",
    "max_cluster_size",
    "metric",
    "alpha",
    "cluster_selection_method",
    "allow_single_cluster",
    "store_centers",
    "backend",
    "device",
    "n_jobs",
    "progress",
)


class InvalidParameterError(ValueError, TypeError):
    """A parameter has the wrong type or a value outside its range."""


class Parameters(NamedTuple):
    """The parameters of a fit as plain Python values, checked."""

    min_cluster_size: int
    min_samples: int
    min_samples_given: bool  # else it is min_cluster_size
    cluster_selection_epsilon: float
    max_cluster_size: int | None
    alpha: float
    cluster_selection_method: str
    allow_single_cluster: bool
    store_centers: str | None
    backend: str
    device: int | None
    n_threads: int
    progress: bool


class Rows(NamedTuple):
    """The rows of a fit: the finite ones as numbers, the others as labels."""

    finite: Any  # the finite rows as the open_points of the backend takes them
    data: Any  # the finite rows to read on the host: [rows] and [rows, feature] give NumPy arrays
    n_rows: int  # rows the user gave
    finite_rows: np.ndarray | None  # (n_finite,) int64, ascending, the user's numbers; None: all rows
    other_rows: np.ndarray  # (n_rows - n_finite,) int64, ascending
    other_labels: np.ndarray  # (n_rows - n_finite,) int64: -3 for a row with NaN, else -2 (infinity)

    @property
    def n_finite(self) -> int:
        """Number of finite rows."""
        return self.n_rows - len(self.other_rows)


def given_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator by name, as the user gave them."""
    return {name: getattr(estimator, name) for name in _PARAMETERS}


def check_parameters(estimator: Any) -> Parameters:
    """Check the parameters of an estimator.

    Parameters
    ----------
    estimator : HDBSCAN
        Read only; its attributes keep what the user gave.

    Returns
    -------
    Parameters

    Raises
    ------
    InvalidParameterError
        (a ValueError and a TypeError) naming the parameter, what was given and what is accepted.
    """
    given = given_parameters(estimator)
    min_cluster_size = _integer("min_cluster_size", given["min_cluster_size"], 2)
    if given["min_samples"] is None:
        min_samples = min_cluster_size
    else:
        hint = "; the point itself counts, so 1 is the smallest (None means min_cluster_size)"
        min_samples = _integer("min_samples", given["min_samples"], 1, hint=hint)
    max_cluster_size = given["max_cluster_size"]
    if max_cluster_size is not None:
        hint = "; for no limit use max_cluster_size=None"
        max_cluster_size = _integer("max_cluster_size", max_cluster_size, 1, hint=hint)

    name, off = "cluster_selection_epsilon", "; 0.0 switches it off"
    epsilon = _real(name, given[name], hint=off)
    if epsilon < 0:
        raise InvalidParameterError(f"{name} must be at least 0, got {epsilon!r}{off}")
    off = "; 1.0 leaves distances as they are"
    alpha = _real("alpha", given["alpha"], hint=off)
    if alpha <= 0:
        raise InvalidParameterError(f"alpha must be above 0, got {alpha!r}{off}")

    _name("metric", given["metric"], METRICS, hint="; other metrics are not part of this version")
    backend = _name("backend", given["backend"], ("auto", *BACKENDS))
    centers = given["store_centers"]
    if centers is not None:
        centers = _name("store_centers", centers, CENTERS, hint="; None stores no centres")
    return Parameters(
        min_cluster_size=min_cluster_size,
        min_samples=min_samples,
        min_samples_given=given["min_samples"] is not None,
        cluster_selection_epsilon=epsilon,
        max_cluster_size=max_cluster_size,
        alpha=alpha,
        cluster_selection_method=_name(
            "cluster_selection_method", given["cluster_selection_method"], CLUSTER_SELECTION_METHODS
        ),
        allow_single_cluster=_boolean("allow_single_cluster", given["allow_single_cluster"]),
        store_centers=centers,
        backend=backend,
        device=_device(given["device"], backend),
        n_threads=_threads(given["n_jobs"]),
        progress=_boolean("progress", given["progress"]),
    )


def check_array_like(estimator: Any, X: Any, parameters: Parameters) -> tuple[Any, int | None]:
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

    Returns
    -------
    X : NumPy or CuPy array of shape (n_samples, n_features)
        On the host C-contiguous, float32 or float64; on a GPU of any layout and numeric type. It may share
        its memory with what was given: it is to be read only.
    device : int or None
        The GPU that was asked for, or that holds the data.

    Raises
    ------
    ValueError
        Not two-dimensional, empty, complex, text or dates, masked, on another GPU than asked for.
    TypeError
        A sparse matrix, objects that are not numbers, or an array on a GPU for a backend on the host.
    RuntimeError
        An array on a GPU where backend "cuda" cannot run.
    """
    if on_device(X):
        return _check_device_array(estimator, X, parameters)
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(
            "X is a masked array: X.filled(numpy.nan) marks the rows as missing (label -3), or leave them out"
        )
    _refuse_text(X)
    try:
        X = validate_data(estimator, X, accept_sparse=False, dtype="numeric", ensure_all_finite=False)
    except OverflowError as error:
        raise ValueError(f"X holds a number that float64 cannot hold ({error}): scale X down") from error
    return _as_float(X), parameters.device


def check_rows(held: Any, parameters: Parameters) -> Rows:
    """Part the finite rows from the others and check them.

    Parameters
    ----------
    held
        What the ``hold_rows`` of a backend gave. It holds the finite rows only from then on.
    parameters : Parameters
        From :func:`check_parameters`.

    Returns
    -------
    Rows

    Raises
    ------
    ValueError
        Too few finite rows for ``min_samples``; distances that overflow or wholly underflow float64.
    """
    n_rows = held.n_rows
    finite_rows, other_rows, other_labels = None, np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = held.column_ranges()  # NaN and infinity show in them, so clean data needs no marks
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        marks = held.row_marks()
        finite_rows, other_rows = np.flatnonzero(marks == 0), np.flatnonzero(marks)
        other_labels = np.where(marks[other_rows] == 2, -3, -2)
    _check_count(n_rows - len(other_rows), n_rows, parameters)
    if finite_rows is not None:
        held.select(finite_rows)
        low, high = held.column_ranges()
    _check_range(low, high, parameters.alpha)
    return Rows(held.for_points, held.for_labels, n_rows, finite_rows, other_rows, other_labels)


def _check_device_array(estimator: Any, X: Any, parameters: Parameters) -> tuple[Any, int]:
    """Take the data that lie on a GPU, without a copy."""
    if parameters.backend not in ("auto", "cuda"):
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


def _is_number(value: Any) -> bool:
    """Tell a real number from everything else; True, False and time spans are no numbers here."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_, np.timedelta64))


def _integer(name: str, value: Any, least: int | None, hint: str = "") -> int:
    wanted = "an integer" if least is None else f"an integer of at least {least}"
    refusal = InvalidParameterError(f"{name} must be {wanted}, got {value!r}{hint}")
    if not _is_number(value):
        raise refusal
    try:
        number = int(value)
    except (OverflowError, ValueError):  # infinity, NaN
        raise refusal from None
    if number != value:
        raise refusal
    if least is not None and number < least:
        raise refusal
    return number


def _real(name: str, value: Any, hint: str) -> float:
    if not _is_number(value):
        raise InvalidParameterError(f"{name} must be a number, got {value!r}{hint}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidParameterError(f"{name} must be a finite number, got {value!r}{hint}")
    return number


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidParameterError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _name(name: str, value: Any, valid: tuple[str, ...], hint: str = "") -> str:
    if not isinstance(value, str) or value not in valid:
        listed = ", ".join(repr(one) for one in valid)
        one_of = "one of " if len(valid) > 1 else ""
        raise InvalidParameterError(f"{name} must be {one_of}{listed}, got {value!r}{hint}")
    return str(value)


def _device(value: Any, backend: str) -> int | None:
    if value is None:
        return None
    if backend not in ("auto", "cuda"):
        raise InvalidParameterError(
            f"device is the index of a GPU and belongs to backend='cuda' or 'auto': "
            f"with backend={backend!r} leave device=None, got {value!r}"
        )
    return _integer("device", value, 0)


def _threads(n_jobs: Any) -> int:
    if n_jobs is None:
        return threads_for(None)
    meanings = "None or -1 means all cores, -2 all but one, 3 three threads"
    asked = _integer("n_jobs", n_jobs, None, hint=f"; {meanings}")
    if asked == 0:
        raise InvalidParameterError(f"n_jobs must not be 0; {meanings}")
    return threads_for(asked)


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


def _check_count(n_finite: int, n_rows: int, parameters: Parameters) -> None:
    if n_finite >= parameters.min_samples:
        return
    found = f"n_samples={n_rows}"
    if n_finite < n_rows:
        found += f" of which {n_finite} without NaN or infinity"
    asked = f"min_samples={parameters.min_samples}"
    if not parameters.min_samples_given:
        asked += " (taken from min_cluster_size, as min_samples=None)"
    remedy = f"set min_samples to at most {n_finite}, or give more rows" if n_finite else "give more rows"
    raise ValueError(f"{found} is fewer than {asked}: {remedy}")


def _check_range(low: np.ndarray, high: np.ndarray, alpha: float) -> None:
    """Refuse data whose squared distances leave float64, saying by which power of two to scale them."""
    with np.errstate(over="ignore", under="ignore"):
        ranges = high - low
        squared_diameter = 0.0
        for one in ranges.tolist():
            squared_diameter += one * one
    if math.isinf(squared_diameter):
        problem = "too large: sums of squared differences overflow"
    elif squared_diameter == 0.0 and bool((low != high).any()):
        problem = "too small: all squared differences underflow to 0 in"
    else:
        if math.isinf(math.sqrt(squared_diameter) / alpha):
            raise ValueError(f"alpha={alpha!r} is too small for these data: distance / alpha overflows")
        return
    widest = float(ranges.max())
    if math.isinf(widest):  # the difference of two large numbers of opposite sign
        exponent = math.frexp(float((high / 2 - low / 2).max()))[1] + 1
    else:
        exponent = math.frexp(widest)[1]
    power = -exponent  # brings the widest range to between 1/2 and 1
    raise ValueError(
        f"the values of X are {problem} float64. Multiply X by 2**{power}, for instance with "
        f"numpy.ldexp(X, {power}); distances then come out multiplied by it, too"
    )

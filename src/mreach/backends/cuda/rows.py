"""The user's rows on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.devices import cupy
from mreach.backends.cuda.memory import Job, make_plan
from mreach.backends.host_rows import SelectedRows, row_dtype

if TYPE_CHECKING:
    from mreach.backends.cuda.session import Session

ALIGNMENT = 16
"""Bytes: the widest load of a kernel. Rows start at a multiple of it, wherever the user's array starts."""

N_THREADS = 256
"""Threads of a block here; rows.cu has the same number."""

MAX_COLUMNS = 128
"""Columns that a block looks at: half its threads, so that few stand idle whatever the number of columns."""

ROWS_PER_THREAD = 32
"""Rows that a thread looks at in small data: enough to pay for its share of the reduction at the end."""

MAX_BLOCKS = 4096
"""More than any GPU runs at once; beyond it threads look at more rows, and fewer blocks meet in one sum."""


class DeviceRows:
    """Rows of a fit on the GPU, as :func:`mreach.validation.check_rows` asks for them.

    Parameters
    ----------
    session : Session
        Open, and current: memory comes from its pool, and work goes to its stream.
    X : NumPy array, C-contiguous float32 or float64, or CuPy array on the session's device
        Shape (n_rows, n_features). Read, never changed.
    min_samples : int

    Attributes
    ----------
    session : Session
    plan : mreach.backends.cuda.memory.Plan
        How the stages go about their memory.
    array : CuPy array of shape (n_rows, n_features), float32 or float64
        C-contiguous and aligned to 16 bytes. It may be the user's own memory: it is to be read only.

    Raises
    ------
    MemoryError
        The GPU has too little memory for a fit.
    """

    def __init__(self, session: Session, X: Any, min_samples: int = 1) -> None:
        self.session = session
        self._given = X
        self._host = X if isinstance(X, np.ndarray) else None
        copied = self._host is not None or not can_be_read(X)
        itemsize = np.dtype(row_dtype(X.dtype)).itemsize
        self.job = Job(int(X.shape[0]), int(X.shape[1]), itemsize, min_samples, copied)
        self.plan = make_plan(session, self.job)
        self._host_rows: NDArray[np.int64] | None = None
        self._shape = (int(X.shape[0]), int(X.shape[1]))
        self._points: Any = None
        self.array = as_rows(X) if self._host is None else upload(self._host)

    @property
    def n_rows(self) -> int:
        """Number of rows that are held."""
        return self._shape[0]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self._shape[1]

    def column_ranges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and largest value of each column; NaN where it holds a NaN."""
        n_rows, n_features = self.n_rows, self.n_features
        n_column_tiles = _ratio(n_features, MAX_COLUMNS)
        columns = _ratio(n_features, n_column_tiles)
        rows_at_once = N_THREADS // columns
        n_row_blocks = min(_ratio(n_rows, rows_at_once * ROWS_PER_THREAD), _ratio(MAX_BLOCKS, n_column_tiles))
        keys = cupy().zeros(2 * n_features, np.uint64)
        self.session.launch(
            f"column_ranges_{self.array.dtype.name}_kernel",
            n_row_blocks * n_column_tiles,
            N_THREADS,
            self.array,
            np.int64(n_rows),
            np.int32(n_features),
            np.int32(columns),
            np.int32(n_column_tiles),
            np.int64(_ratio(n_rows, n_row_blocks)),
            keys,
        )
        found = keys.get()
        return values_of(~found[:n_features]), values_of(found[n_features:])

    def row_marks(self) -> NDArray[np.uint32]:
        """Return a mark for each row: 0 finite, 1 with an infinity, 2 with a NaN (and perhaps both)."""
        n_values = self.n_rows * self.n_features
        marks = cupy().zeros(self.n_rows, np.uint32)
        self.session.launch(
            f"row_marks_{self.array.dtype.name}_kernel",
            min(_ratio(n_values, N_THREADS * ROWS_PER_THREAD), MAX_BLOCKS),
            N_THREADS,
            self.array,
            np.int64(n_values),
            np.int32(self.n_features),
            marks,
        )
        host_marks: NDArray[np.uint32] = marks.get()
        return host_marks

    def select(self, rows: NDArray[np.int64]) -> None:
        """Hold only these rows from now on, in this order."""
        cp = cupy()
        self.array = cp.take(self.array, cp.asarray(rows), axis=0)
        self._host_rows = rows
        self._shape = (len(rows), self._shape[1])

    def fetch(self, rows: NDArray[np.int64], feature: int | None = None) -> NDArray[np.float64]:
        """Copy some rows to the host, shape (len(rows), n_features), or one feature of them, (len(rows),)."""
        cp = cupy()
        held, places = self.array, rows
        if held is None:  # the user's array on the GPU still holds them, and the same values
            held = self._given
            places = rows if self._host_rows is None else self._host_rows[rows]
        source = held if feature is None else held[:, feature]
        fetched: NDArray[np.float64] = cp.take(source, cp.asarray(places), axis=0).get().astype(np.float64)
        return fetched

    def release_values(self) -> None:
        """Let go of the rows once the stages have their own; rows from the host cannot be fetched then."""
        self.array = None

    def open_points(self, points: Any) -> None:
        """Tie the stages of a fit to the rows: both let go of their memory at the same time."""
        self._points = points

    def release(self) -> None:
        """Let go of the memory, the stages' too; nothing can be asked for after it."""
        self.array = self._given = None
        if self._points is not None:
            self._points.release()
            self._points = None

    @property
    def for_points(self) -> DeviceRows:
        """The rows as the ``open_points`` of this backend takes them: this object."""
        return self

    @property
    def for_sample(self) -> Any:
        """The rows where a few of them are read at the least cost: on the host, if they came from there."""
        return self.array if self._host is None or self._host_rows is not None else self._host

    @property
    def for_labels(self) -> Any:
        """The rows, to be read on the host by ``[rows]`` and ``[rows, feature]``."""
        if self._host is None:
            return FetchedRows(self)
        return self._host if self._host_rows is None else SelectedRows(self._host, self._host_rows)


class FetchedRows:
    """Rows on the GPU that are copied to the host when they are asked for."""

    def __init__(self, held: DeviceRows) -> None:
        self._held = held
        self.shape = (held.n_rows, held.n_features)

    def __getitem__(self, key: Any) -> NDArray[np.float64]:
        """Return the rows of a key ``rows``, or their values in one column for ``(rows, feature)``."""
        rows, feature = key if isinstance(key, tuple) else (key, None)
        return self._held.fetch(np.asarray(rows, np.int64), feature)


def can_be_read(X: Any) -> bool:
    """Tell whether the kernels read a CuPy array where it lies."""
    is_dense = X.flags.c_contiguous and X.data.ptr % ALIGNMENT == 0
    return bool(is_dense and X.dtype == np.dtype(row_dtype(X.dtype)))


def as_rows(X: Any) -> Any:
    """Return a CuPy array as C-contiguous, aligned float32 or float64 rows; itself, where it is that."""
    cp = cupy()
    rows = cp.ascontiguousarray(X, dtype=row_dtype(X.dtype))
    if rows.data.ptr % ALIGNMENT == 0:
        return rows
    aligned = cp.empty(rows.shape, rows.dtype)
    aligned[...] = rows
    return aligned


def upload(X: NDArray[Any]) -> Any:
    """Copy rows from the host to the current device, on the current stream.

    Parameters
    ----------
    X : C-contiguous array of shape (n_rows, n_features)
        It may be read-only, or mapped from a file. Not to be changed before the stream is done with it.

    Returns
    -------
    CuPy array of the same shape and type
    """
    rows = cupy().empty(X.shape, X.dtype)
    rows.set(X)  # not cupy.asarray: it takes page-locked memory as large as X, and keeps it
    return rows


def values_of(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Turn the keys of ``rows.cu``, unsigned numbers in the order of the float64 values, back into values."""
    sign = np.uint64(1 << 63)
    return np.where(keys >= sign, keys ^ sign, ~keys).view(np.float64)


def _ratio(a: int, b: int) -> int:
    """Divide, rounding up."""
    return -(-a // b)

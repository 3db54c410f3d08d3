"""Backend "cuda": CUDA kernels through CuPy. Importing it imports no CuPy and touches no GPU."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.devices import choose, why_not
from mreach.progress import Progress
from mreach.records import NearestRows

if TYPE_CHECKING:
    from mreach.backends.cuda.rows import DeviceRows
    from mreach.backends.cuda.session import Session

__all__ = ["NAME", "hold_rows", "nearest_rows", "open_points", "why_not"]

NAME = "cuda"


@contextmanager
def hold_rows(X: Any, *, device: int | None = None, min_samples: int = 1) -> Iterator[DeviceRows]:
    """Open a session on a GPU and hold the rows there until the ``with`` block ends.

    However the block ends, all memory of the fit is free then, and an error that leaves it holds none.

    Parameters
    ----------
    X : NumPy array, C-contiguous float32 or float64, or CuPy array of any layout and real type
        Shape (n_rows, n_features). Read, never changed.
    device : int or None
        Index of the GPU: where ``X`` is a CuPy array, the one that it lies on. None: the current one.
    min_samples : int
        By it the memory of the fit is planned.

    Raises
    ------
    MemoryError
        The GPU has too little memory; from within the block, too.
    """
    from mreach.backends.cuda.rows import DeviceRows

    with _open_session(X, device, "a fit") as session:
        held = DeviceRows(session, X, min_samples)
        try:
            yield held
        finally:
            held.release()


@contextmanager
def _open_session(X: Any, device: int | None, doing: str) -> Iterator[Session]:
    """Open a session for some rows; an error that leaves the ``with`` block is clear, and holds no memory."""
    from mreach.backends.cuda.memory import clear_errors
    from mreach.backends.cuda.session import Session

    handled = sys.exc_info()[1]
    with Session(choose(device)) as session, clear_errors(session, X, doing):
        try:
            yield session
        except BaseException as error:
            _forget_variables(error, handled)
            raise


def _forget_variables(error: BaseException | None, handled: BaseException | None) -> None:
    """Clear the variables of the calls that an error ended: whoever keeps it would keep their arrays.

    ``handled`` is the error that the caller was handling when the fit began; its calls are the caller's own.
    """
    for _ in range(sys.getrecursionlimit()):
        if error is None or error is handled:
            break
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def open_points(
    X: DeviceRows, *, n_threads: int, progress: Progress, halved_square: bool = False, **options: Any
) -> Any:
    """Start the stages of a fit on rows that :func:`hold_rows` holds.

    With ``halved_square`` the distance is half the squared Euclidean one, in place of the Euclidean one.
    """
    from mreach.backends.cuda.points import open_points as open_on_device

    return open_on_device(X, n_threads=n_threads, progress=progress, halved_square=halved_square, **options)


def nearest_rows(
    X: Any,
    X_new: Any,
    *,
    core_distances: NDArray[np.float64],
    alpha: float,
    min_samples: int = 1,
    new_core_distances: NDArray[np.float64] | None = None,
    candidates: NDArray[np.bool_] | None = None,
    halved_square: bool = False,
    n_threads: int = 1,
    progress: Progress | None = None,
    device: int | None = None,
) -> NearestRows:
    """Find the fitted row of least mutual reachability distance to each new row.

    It compares all pairs, exactly: its time grows with ``n * m * d``.

    Parameters
    ----------
    X, X_new : C-contiguous arrays of shape (n, d) and (m, d), both float32 or both float64
        The rows of the fit and the new ones, finite: NumPy arrays, or CuPy arrays on one device.
    core_distances : float64 array of shape (n,)
        Of the rows of the fit.
    alpha : float
        As in the fit.
    min_samples : int
        The core distance of a new row is the distance to its ``min_samples``-th nearest row of the fit; the
        new row itself is not counted. At most n.
    new_core_distances : float64 array of shape (m,), optional
        Core distances of the new rows, where they are known: ``min_samples`` then does not matter.
    candidates : bool array of shape (n,), optional
        Only these rows may be the answer; all count for core distances.
    halved_square : bool
        Whether the distance is half the squared Euclidean one, in place of the Euclidean one.
    n_threads : int
        Accepted as every backend accepts it; nothing here uses it.
    progress : Progress, optional
    device : int, optional
        Index of the GPU. None: the one that holds ``X``, else the current one.

    Returns
    -------
    NearestRows
        As backend "reference" gives it, bit for bit.

    Raises
    ------
    MemoryError
        The GPU has too little memory.
    """
    from mreach.backends.cuda.new_rows import find_nearest_rows

    if device is None and not isinstance(X, np.ndarray):
        device = X.device.id
    with _open_session(X, device, "a search") as session:
        session.halved_square = halved_square
        return find_nearest_rows(
            session, X, X_new, core_distances=core_distances, alpha=alpha, min_samples=min_samples,
            new_core_distances=new_core_distances, candidates=candidates, progress=progress or Progress(),
        )  # fmt: skip

"""Backend "cuda": CUDA kernels through CuPy. Importing it imports no CuPy and touches no GPU."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mreach.backends.cuda.devices import choose, why_not
from mreach.progress import Progress

if TYPE_CHECKING:
    from mreach.backends.cuda.rows import DeviceRows

__all__ = ["NAME", "hold_rows", "open_points", "why_not"]

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
    from mreach.backends.cuda.memory import clear_errors
    from mreach.backends.cuda.rows import DeviceRows
    from mreach.backends.cuda.session import Session

    handled = sys.exc_info()[1]
    with Session(choose(device)) as session, clear_errors(session, X):
        try:
            held = DeviceRows(session, X, min_samples)
            try:
                yield held
            finally:
                held.release()
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

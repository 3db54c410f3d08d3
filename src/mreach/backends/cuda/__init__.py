"""Backend "cuda": CUDA kernels through CuPy. Importing it imports no CuPy and touches no GPU."""

from __future__ import annotations

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
def hold_rows(X: Any, *, device: int | None = None) -> Iterator[DeviceRows]:
    """Open a session on a GPU and hold the rows there until the ``with`` block ends.

    Parameters
    ----------
    X : NumPy array, C-contiguous float32 or float64, or CuPy array of any layout and real type
        Shape (n_rows, n_features). Read, never changed.
    device : int or None
        Index of the GPU: where ``X`` is a CuPy array, the one that it lies on. None: the current one.
    """
    from mreach.backends.cuda.rows import DeviceRows
    from mreach.backends.cuda.session import Session

    with Session(choose(device)) as session:
        held = DeviceRows(session, X)
        try:
            yield held
        finally:
            held.release()


def open_points(X: DeviceRows, *, n_threads: int, progress: Progress, **options: Any) -> Any:
    """Start the stages of a fit on rows that :func:`hold_rows` holds."""
    from mreach.backends.cuda.points import open_points as open_on_device

    return open_on_device(X, n_threads=n_threads, progress=progress, **options)

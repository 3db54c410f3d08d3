"""Arrays that lie on a GPU: how to tell them, and how to read them as CuPy arrays without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.devices import cupy
from mreach.backends.host_rows import row_dtype

_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged

SLICE_BYTES = 1 << 23
"""Bytes that are made dense on the GPU at a time: one that holds the data may be nearly full."""


def on_device(X: Any) -> bool:
    """Tell whether an object is an array on a GPU of CUDA. It imports nothing."""
    if isinstance(X, np.ndarray):
        return False
    try:
        kind = int(X.__dlpack_device__()[0])
    except Exception:  # no such method, or one that fails for this array
        pass
    else:
        return kind in _DLPACK_CUDA
    try:
        return getattr(X, "__cuda_array_interface__", None) is not None
    except Exception:
        return False


def as_cupy(X: Any) -> Any:
    """Return a CuPy array that shares the memory of an array on a GPU.

    What its producer still has to compute is waited for: by the caller's current stream, where the producer
    speaks DLPack; by the host, where it does not.

    Parameters
    ----------
    X
        CuPy array, or an object with ``__dlpack__`` or ``__cuda_array_interface__``.

    Raises
    ------
    BufferError, NotImplementedError, TypeError, ValueError
        From the producer or from CuPy: a layout, a type or a mask that cannot be handed over.
    """
    cp = cupy()
    if isinstance(X, cp.ndarray):
        return X
    if hasattr(type(X), "__dlpack__"):
        try:
            return cp.from_dlpack(X)
        except BufferError:
            if not hasattr(X, "__cuda_array_interface__"):
                raise
    interface = X.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise ValueError("it is masked")
    # On another device than its own, CuPy would make a copy; an array without elements has no device.
    pointer = interface["data"][0]
    device = cp.cuda.runtime.pointerGetAttributes(pointer).device if pointer else cp.cuda.runtime.getDevice()
    with cp.cuda.Device(device) as on:
        if interface.get("version", 0) < 3:  # its producer cannot say which stream to wait for
            on.synchronize()
        return cp.asarray(X)


def copy_to_host(X: Any) -> NDArray[Any]:
    """Copy rows on a GPU to the host, on a stream of their own; what made them has to be done.

    Parameters
    ----------
    X : CuPy array of shape (n_rows, n_features)
        Of any numeric type and layout.

    Returns
    -------
    C-contiguous float32 or float64 array of the same shape
    """
    cp = cupy()
    with cp.cuda.Device(X.device.id), cp.cuda.Stream(non_blocking=True) as stream:
        if X.flags.c_contiguous or X.flags.f_contiguous:
            host = X.get(order="C" if X.flags.c_contiguous else "F")
        else:
            # Memory of its own, so that none stays with CuPy.
            pool = cp.cuda.MemoryPool()
            with cp.cuda.using_allocator(pool.malloc):
                n_at_once = max(1, SLICE_BYTES // (X.shape[1] * X.itemsize))
                slices = [X[start : start + n_at_once] for start in range(0, X.shape[0], n_at_once)]
                host = np.concatenate([cp.ascontiguousarray(one).get() for one in slices])
            stream.synchronize()
            pool.free_all_blocks()
    return np.ascontiguousarray(host, dtype=row_dtype(host.dtype))

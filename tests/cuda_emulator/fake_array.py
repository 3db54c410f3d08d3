"""The array of the stand-in for CuPy: NumPy's arithmetic, CuPy's refusals."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import fake_memory as memory

SCALARS = (bool, int, float, complex, np.generic)


class Foreign:
    """Memory that something else owns."""

    size = 0

    def __init__(self, owner: Any, ptr: int, device: int) -> None:
        self.owner, self.ptr, self.device_id = owner, ptr, device


class Capsule:
    """What ``__dlpack__`` gives and ``from_dlpack`` takes: here, the array."""

    def __init__(self, array: ndarray) -> None:
        self.array = array


class ndarray:
    """An array on an emulated device: only what mreach may use. Host arrays are refused, as CuPy does."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: Any, dtype: Any = float, memptr: memory.MemoryPointer | None = None) -> None:
        dtype = np.dtype(dtype)
        if dtype.kind not in "biufc" or dtype.itemsize > 16 or not dtype.isnative:
            raise ValueError(f"Unsupported dtype {dtype}")
        shape = tuple(int(n) for n in (shape if isinstance(shape, tuple | list) else (shape,)))
        n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._memory = memory.allocate(n_bytes) if memptr is None else memptr
        self._host = host_view(self._memory.ptr, n_bytes).view(dtype).reshape(shape)

    @classmethod
    def _of(cls, host: Any, place: memory.MemoryPointer | None = None) -> ndarray:
        """Return a device array: a copy of a host array, or the host array itself if it lies in ``place``."""
        host = np.asarray(host)
        if place is None:
            order = "F" if host.flags.f_contiguous and not host.flags.c_contiguous else "C"
            new = cls(host.shape[::-1] if order == "F" else host.shape, host.dtype)
            if order == "F":
                new._host = new._host.T
            new._host[...] = host
            return new
        new = cls.__new__(cls)
        new._memory, new._host = place, host
        return new

    # What it is

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    strides = property(lambda self: self._host.strides)
    flags = property(lambda self: self._host.flags)
    T = property(lambda self: self._of(self._host.T, self._memory))
    device = property(lambda self: memory.Device(self._memory.device_id))

    @property
    def data(self) -> memory.MemoryPointer:
        if self._memory.ptr == 0 or self._host.size == 0:
            return memory.MemoryPointer(self._memory.mem, self._memory.ptr - self._memory.mem.ptr)
        return memory.MemoryPointer(self._memory.mem, self._host.ctypes.data - self._memory.mem.ptr)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.data.ptr, False),
            "version": 3,
            "strides": None if self.flags.c_contiguous else self.strides,
            "stream": memory.get_current_stream().ptr or 1,
        }

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Capsule:
        return Capsule(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._memory.device_id

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[ndarray]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return repr(self._host)

    # To the host

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        if out is None:
            return np.array(self._host, order="F" if order == "F" else "C")
        if not isinstance(out, np.ndarray) or out.shape != self.shape or out.dtype != self.dtype:
            raise ValueError("out does not fit")
        out[...] = self._host
        return out

    def set(self, array: np.ndarray, stream: Any = None) -> None:
        if not isinstance(array, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if array.dtype != self.dtype or array.shape != self.shape:
            raise ValueError("dtype or shape does not fit")
        self._host[...] = array

    def item(self, *index: Any) -> Any:
        return self._host.item(*index)

    def tolist(self) -> Any:
        return self._host.tolist()

    def __int__(self) -> int:
        return int(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __bool__(self) -> bool:
        return bool(self._host)

    def __index__(self) -> int:
        return operator.index(self._host)

    # Views and copies

    def view(self, dtype: Any = None) -> ndarray:
        return self._of(self._host.view() if dtype is None else self._host.view(dtype), self._memory)

    def reshape(self, *shape: Any) -> ndarray:
        reshaped = self._host.reshape(*shape)
        if reshaped.size and not np.shares_memory(reshaped, self._host):
            return self._of(reshaped)
        return self._of(reshaped, self._memory)

    def ravel(self) -> ndarray:
        return self.reshape(-1)

    def astype(self, dtype: Any, copy: bool = True) -> ndarray:
        if not copy and np.dtype(dtype) == self.dtype:
            return self
        with np.errstate(invalid="ignore"):
            return self._of(self._host.astype(dtype))

    def copy(self) -> ndarray:
        return self._of(self._host)

    def fill(self, value: Any) -> None:
        self._host.fill(plain(value))

    def _index(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        translated = []
        for part in parts:
            if isinstance(part, ndarray):
                if part.dtype.kind == "b":
                    raise NotImplementedError("boolean masks are not part of the stand-in")
                part = part._host
            elif isinstance(part, np.ndarray | list):
                raise TypeError("index with device arrays, slices or integers")
            translated.append(part)
        return tuple(translated) if isinstance(index, tuple) else translated[0]

    def __getitem__(self, index: Any) -> ndarray:
        index = self._index(index)
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, np.ndarray) and part.ndim for part in parts):
            return self._of(self._host[index])
        whole = (*parts, ...) if not any(part is Ellipsis for part in parts) else parts
        return self._of(self._host[whole], self._memory)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._host[self._index(index)] = plain(value)

    # Reductions and order: arrays, as in CuPy, not scalars

    def _reduce(self, name: str, *arguments: Any, **named: Any) -> ndarray:
        return self._of(getattr(self._host, name)(*arguments, **named))

    def sum(self, axis: Any = None, dtype: Any = None, **named: Any) -> ndarray:
        return self._reduce("sum", axis=axis, dtype=dtype, **named)

    def min(self, axis: Any = None, **named: Any) -> ndarray:
        return self._reduce("min", axis=axis, **named)

    def max(self, axis: Any = None, **named: Any) -> ndarray:
        return self._reduce("max", axis=axis, **named)

    def any(self, axis: Any = None) -> ndarray:
        return self._reduce("any", axis=axis)

    def all(self, axis: Any = None) -> ndarray:
        return self._reduce("all", axis=axis)

    def cumsum(self, axis: Any = None, dtype: Any = None) -> ndarray:
        return self._reduce("cumsum", axis=axis, dtype=dtype)

    def argsort(self) -> ndarray:
        return self._reduce("argsort", kind="stable")

    def take(self, indices: Any, axis: Any = None) -> ndarray:
        return self._of(np.take(self._host, plain(indices), axis=axis))

    def sort(self) -> None:
        self._host.sort(kind="stable")


def host_view(ptr: int, n_bytes: int) -> np.ndarray:
    """Return a byte array over device memory."""
    if n_bytes == 0:
        return np.empty(0, dtype=np.uint8)
    return np.frombuffer((memory.ctypes.c_ubyte * n_bytes).from_address(ptr), dtype=np.uint8)


def plain(value: Any) -> Any:
    """Return what NumPy may work with; raise TypeError for a host array."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, SCALARS):
        return value
    raise TypeError(f"Unsupported type {type(value)}")


def _forward(name: str) -> Any:
    operation = getattr(operator, name)

    def method(self: ndarray, other: Any) -> ndarray:
        with np.errstate(all="ignore"):
            return ndarray._of(operation(self._host, plain(other)))

    def reflected(self: ndarray, other: Any) -> ndarray:
        with np.errstate(all="ignore"):
            return ndarray._of(operation(plain(other), self._host))

    def in_place(self: ndarray, other: Any) -> ndarray:
        with np.errstate(all="ignore"):
            self._host[...] = operation(self._host, plain(other))
        return self

    return method, reflected, in_place


def _unary(name: str) -> Any:
    operation = getattr(operator, name)
    return lambda self: ndarray._of(operation(self._host))


for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
):
    _short = _name.rstrip("_")
    _method, _reflected, _in_place = _forward(_name)
    setattr(ndarray, f"__{_short}__", _method)
    setattr(ndarray, f"__r{_short}__", _reflected)
    setattr(ndarray, f"__i{_short}__", _in_place)
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(ndarray, f"__{_name}__", _forward(_name)[0])
for _name in ("neg", "abs", "invert"):
    setattr(ndarray, f"__{_name}__", _unary(_name))

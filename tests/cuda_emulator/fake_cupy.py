"""A stand-in for CuPy: the names that mreach's cuda backend may use, on NumPy and emulated kernels.

``settings`` (see fake_memory) holds what the emulated machine is like, makes allocations and launches fail,
and lists what was launched. ``install()`` and ``uninstall()`` put this into ``sys.modules`` and take it out.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from . import fake_memory as memory
from .compile import CompileError, Kernel, KernelError, Library, compile_source
from .fake_array import Capsule, Foreign, host_view, ndarray, plain
from .fake_memory import settings

__version__ = "13.6.0"
FOLDERS: list[str] = []


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, blocking: bool = False) -> ndarray:
    """Return a device array: the same one, a view of foreign device memory, or a copy of a host array."""
    if isinstance(a, ndarray):
        return a if dtype is None else a.astype(dtype, copy=False)
    interface = getattr(a, "__cuda_array_interface__", None)
    if interface is not None:
        ptr, kind, shape = interface["data"][0], np.dtype(interface["typestr"]), tuple(interface["shape"])
        strides = interface.get("strides")
        length = (
            sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + kind.itemsize if strides else 0
        )
        length = length or int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        view = host_view(ptr, length if np.prod(shape) else 0)
        view = np.ndarray(shape, kind, view, strides=strides) if strides else view.view(kind).reshape(shape)
        owner = memory.MemoryPointer(Foreign(a, ptr, memory.Device().id), 0)
        return asarray(ndarray._of(view, owner), dtype)
    return ndarray._of(np.asarray(a, dtype=dtype, order=order))  # type: ignore[call-overload]


def array(a: Any, dtype: Any = None, copy: bool = True) -> ndarray:
    return a.copy().astype(dtype or a.dtype, copy=False) if isinstance(a, ndarray) else asarray(a, dtype)


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    a = asarray(a, dtype)
    return a if a.flags.c_contiguous else ndarray._of(np.ascontiguousarray(a._host))


def from_dlpack(array: Any) -> ndarray:
    """Return a view of an array on a device."""
    kind, _ = array.__dlpack_device__()
    if kind != 2:
        raise TypeError(f"CPU arrays cannot be directly imported to CuPy (device type {kind})")
    capsule = array.__dlpack__(stream=memory.get_current_stream().ptr or 1)
    if not isinstance(capsule, Capsule):
        raise BufferError("the stand-in only takes what its own arrays give")
    return capsule.array.view()


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None) -> np.ndarray:
    return a.get(out=out) if isinstance(a, ndarray) else np.asarray(a)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Return an array full of garbage (bytes 0xA5)."""
    if order != "C":
        raise NotImplementedError("order has to be C")
    return ndarray(shape, dtype)


def zeros(shape: Any, dtype: Any = float) -> ndarray:
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any = float) -> ndarray:
    return full(shape, 1, dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> ndarray:
    new = ndarray(shape, np.asarray(plain(fill_value)).dtype if dtype is None else dtype)
    new._host[...] = plain(fill_value)
    return new


def arange(*arguments: Any, dtype: Any = None) -> ndarray:
    return ndarray._of(np.arange(*arguments, dtype=dtype))


def concatenate(arrays: Sequence[ndarray], axis: int = 0) -> ndarray:
    if not all(isinstance(one, ndarray) for one in arrays):
        raise TypeError("only device arrays can be concatenated")
    return ndarray._of(np.concatenate([one._host for one in arrays], axis=axis))


def argsort(a: ndarray, axis: int = -1, kind: str | None = None) -> ndarray:
    return ndarray._of(np.argsort(only_array(a), axis=axis, kind="stable"))


def sort(a: ndarray, axis: int = -1, kind: str | None = None) -> ndarray:
    return ndarray._of(np.sort(only_array(a), axis=axis, kind="stable"))


def cumsum(a: ndarray, axis: Any = None, dtype: Any = None) -> ndarray:
    return ndarray._of(np.cumsum(only_array(a), axis=axis, dtype=dtype))


def take(a: ndarray, indices: Any, axis: Any = None) -> ndarray:
    return ndarray._of(np.take(only_array(a), plain(indices), axis=axis))


def only_array(a: Any) -> np.ndarray:
    if not isinstance(a, ndarray):
        raise TypeError(f"expected a device array, not {type(a)}")
    host: np.ndarray = a._host
    return host


# Kernels

C_TYPES = {
    "i1": ctypes.c_int8,
    "u1": ctypes.c_uint8,
    "i2": ctypes.c_int16,
    "u2": ctypes.c_uint16,
    "i4": ctypes.c_int32,
    "u4": ctypes.c_uint32,
    "i8": ctypes.c_int64,
    "u8": ctypes.c_uint64,
    "f4": ctypes.c_float,
    "f8": ctypes.c_double,
    "b1": ctypes.c_bool,
}


class RawKernel:
    """A kernel that can be called as CuPy's: ``kernel(grid, block, args, shared_mem=0)``."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.name = kernel.name
        self.max_dynamic_shared_size_bytes = 48 << 10
        self.preferred_shared_memory_carveout = -1
        self.max_threads_per_block = kernel.max_threads
        self.shared_size_bytes = self.local_size_bytes = self.const_size_bytes = 0
        self.num_regs = 32
        self.attributes = {"max_threads_per_block": kernel.max_threads, "num_regs": 32, "local_size_bytes": 0}

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int = 0, **_: Any
    ) -> None:
        where = f"{self.name}{tuple(grid)}{tuple(block)}"
        if not isinstance(grid, tuple) or not isinstance(block, tuple):
            raise TypeError(f"{where}: grid and block are tuples")
        if len(args) != len(self._kernel.parameters):
            raise TypeError(f"{where}: {len(args)} arguments for {len(self._kernel.parameters)} parameters")
        n_threads = int(np.prod(block))
        if n_threads < 1 or min(grid) < 1 or n_threads > self.max_threads_per_block:
            raise memory.CUDADriverError(
                f"CUDA_ERROR_INVALID_VALUE: {where}: at most {self.max_threads_per_block} threads"
            )
        allowed = max(48 << 10, self.max_dynamic_shared_size_bytes)
        if not 0 <= shared_mem <= min(allowed, memory.max_shared_bytes()):
            raise memory.CUDADriverError(
                f"CUDA_ERROR_INVALID_VALUE: {where}: {shared_mem} bytes of shared memory, {allowed} allowed"
            )
        here = settings.n_launches
        settings.n_launches += 1
        settings.launches.append((self.name, tuple(grid), tuple(block), int(shared_mem)))
        if settings.fail_launch == here:
            raise memory.CUDADriverError("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")
        values = [
            c_value(kind, value, f"{where}: argument {i}")
            for i, (kind, value) in enumerate(zip(self._kernel.parameters, args, strict=True))
        ]
        self._kernel.launch(grid, block, int(shared_mem), values)
        for i, value in enumerate(args):
            damage = isinstance(value, ndarray) and getattr(value._memory.mem, "damage", lambda: None)()
            if damage:
                raise KernelError(f"{where}: argument {i}: {damage}")


def c_value(kind: str, value: Any, where: str) -> Any:
    """Return a kernel argument as a C value; raise TypeError where its type is not the parameter's."""
    if kind.startswith("P"):
        element, size = kind[1], int(kind[2:])
        if isinstance(value, np.uint64 | np.int64) and value == 0:
            return ctypes.c_void_p(0)
        if not isinstance(value, ndarray):
            raise TypeError(f"{where}: a pointer ({kind}) takes a device array, not {type(value).__name__}")
        if not (value.flags.c_contiguous or value.flags.f_contiguous):
            raise TypeError(f"{where}: the array is not contiguous")
        if value._memory.device_id != memory.Device().id:
            raise TypeError(f"{where}: the array lies on another device")
        given, item = value.dtype.kind, value.dtype.itemsize
        fits = {
            "v": True,
            "f": given == "f" and item == size,
            "s": size % item == 0,
            "b": given in "bu" and item == 1,
        }.get(element, item == size and (given in "iu" or item < 4))
        if not fits:
            raise TypeError(f"{where}: the parameter is {kind}, the array {value.dtype}")
        return ctypes.c_void_p(value.data.ptr)
    if not isinstance(value, np.generic):
        raise TypeError(f"{where}: takes a NumPy scalar ({kind}), not {type(value).__name__}")
    given = f"{value.dtype.kind}{value.dtype.itemsize}"
    if given != kind:
        raise TypeError(f"{where}: the parameter is {kind}, the scalar {given}")
    return C_TYPES[kind](value.item())


class RawModule:
    """Kernels from one source. ``backend`` has to be "nvrtc"."""

    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | None = None,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        **_: Any,
    ) -> None:
        if code is None or path is not None or backend != "nvrtc" or not isinstance(options, tuple):
            raise TypeError("the stand-in takes code=str, options=tuple, backend='nvrtc'")
        self.code, self.options = code, options
        self._library: Library | None = None

    def compile(self, log_stream: Any = None) -> None:
        if self._library is None:
            self._library = compile_source(self.code, self.options, folders=FOLDERS, arch=settings.arch)

    def get_function(self, name: str) -> RawKernel:
        self.compile()
        assert self._library is not None
        if name not in self._library.kernels:
            raise memory.CUDADriverError(f"CUDA_ERROR_NOT_FOUND: named symbol not found: {name}")
        return RawKernel(self._library.kernels[name])


# Modules


def get_device_properties(device: int) -> dict[str, Any]:
    one = memory.Device(device)
    attributes = one.attributes
    return {
        "name": b"Emulated device",
        "totalGlobalMem": settings.memory_bytes,
        "multiProcessorCount": settings.n_multiprocessors,
        "major": settings.arch // 100,
        "minor": settings.arch // 10 % 10,
        "sharedMemPerBlock": attributes["MaxSharedMemoryPerBlock"],
        "sharedMemPerBlockOptin": attributes["MaxSharedMemoryPerBlockOptin"],
        "sharedMemPerMultiprocessor": attributes["MaxSharedMemoryPerMultiprocessor"],
        "maxThreadsPerBlock": 1024,
        "warpSize": 32,
        "l2CacheSize": attributes["L2CacheSize"],
        "kernelExecTimeoutEnabled": 0,
        "integrated": 0,
        "uuid": bytes(15) + bytes([device]),
    }


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(names)
    return made


def build_modules() -> dict[str, ModuleType]:
    """Return the modules of the stand-in by their names in ``sys.modules``."""
    runtime = module(
        "cupy.cuda.runtime",
        CUDARuntimeError=memory.CUDARuntimeError,
        getDeviceCount=lambda: settings.n_devices,
        getDeviceProperties=get_device_properties,
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
        getDevice=lambda: memory.Device().id,
        deviceSynchronize=lambda: None,
        pointerGetAttributes=memory.PointerAttributes,
        is_hip=False,
    )
    memory_module = module(
        "cupy.cuda.memory",
        OutOfMemoryError=memory.OutOfMemoryError,
        MemoryPool=memory.MemoryPool,
        MemoryPointer=memory.MemoryPointer,
    )
    driver = module("cupy.cuda.driver", CUDADriverError=memory.CUDADriverError)
    compiler = module("cupy.cuda.compiler", CompileException=CompileError)
    cuda = module("cupy.cuda", runtime=runtime, memory=memory_module, driver=driver, compiler=compiler)
    names = ["Device", "Stream", "ExternalStream", "Event", "MemoryPool", "MemoryPointer", "using_allocator"]
    for name in [*names, "get_current_stream", "get_elapsed_time", "alloc_pinned_memory"]:
        setattr(cuda, name, getattr(memory, name))
    cuda.is_available = lambda: settings.n_devices > 0  # type: ignore[attr-defined]
    cupy = module("cupy", cuda=cuda, ndarray=ndarray, RawModule=RawModule, __version__=__version__)
    cupy.__path__ = []  # type: ignore[attr-defined]
    cuda.__path__ = []  # type: ignore[attr-defined]
    functions = [asarray, array, ascontiguousarray, from_dlpack, asnumpy, empty, zeros, ones, full, arange]
    functions += [concatenate, argsort, sort, cumsum, take]
    for function in functions:
        setattr(cupy, function.__name__, function)
    integers = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    for name in ["bool_", "float16", "float32", "float64", *integers]:
        setattr(cupy, name, getattr(np, name))
    return {one.__name__: one for one in (cupy, cuda, runtime, memory_module, driver, compiler)}


def install() -> None:
    """Put the stand-in into ``sys.modules`` as ``cupy``, with all settings reset."""
    if "cupy" in sys.modules and not getattr(sys.modules["cupy"], "is_stand_in", False):
        raise RuntimeError("the real CuPy is already imported")
    settings.reset()
    modules = build_modules()
    modules["cupy"].is_stand_in = True  # type: ignore[attr-defined]
    modules["cupy"].settings = settings  # type: ignore[attr-defined]
    sys.modules.update(modules)


def uninstall() -> None:
    """Take the stand-in out of ``sys.modules``."""
    if getattr(sys.modules.get("cupy"), "is_stand_in", False):
        for name in [name for name in sys.modules if name == "cupy" or name.startswith("cupy.")]:
            del sys.modules[name]

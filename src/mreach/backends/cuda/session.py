"""One fit on one GPU: device, stream, memory, kernels. Everything of a fit runs inside of one session."""

from __future__ import annotations

import functools
import threading
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any

from mreach.backends.cuda.devices import cupy
from mreach.backends.cuda.kernels import (
    ROW_THREADS,
    UNIT_OF,
    UNITS_OF_MEASURE,
    Shape,
    module_options,
    module_source,
)

_modules: dict[tuple[Any, ...], Any] = {}
_functions: dict[tuple[Any, ...], Any] = {}
_modules_lock = threading.Lock()

DYNAMIC_SHARED_WITHOUT_ASKING = 48 * 1024
"""Bytes of shared memory that a kernel gets; more has to be asked for once."""


class Session:
    """A context: inside of it, CuPy allocates from this session's pool and works on its stream.

    Parameters
    ----------
    device : int or None
        Index of the GPU; None: the caller's current one.

    Attributes
    ----------
    device : cupy.cuda.Device
    stream : cupy.cuda.Stream
        Waits at the start for what the caller's current stream was given before.
    pool : cupy.cuda.MemoryPool
        Goes back to the driver whole at the end.
    shape : Shape
    n_multiprocessors : int
    halved_square : bool
        Whether kernels take half the squared Euclidean distance for the distance; False until it is set.
    """

    def __init__(self, device: int | None = None) -> None:
        self._index = device
        self.halved_square = False
        self._stack = ExitStack()

    def __enter__(self) -> Session:
        cp = cupy()
        with ExitStack() as stack:
            self.device = cp.cuda.Device(self._index)  # None: the current one
            stack.enter_context(self.device)
            capability, self.n_multiprocessors = _properties_of(self.device.id)
            self.shape = Shape(capability)
            caller = cp.cuda.get_current_stream()
            self.stream = cp.cuda.Stream(non_blocking=True)
            self.stream.wait_event(caller.record())
            self.pool = cp.cuda.MemoryPool()
            stack.callback(self._release)
            stack.enter_context(cp.cuda.using_allocator(self.pool.malloc))
            stack.enter_context(self.stream)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _release(self) -> None:
        # An interrupted fit may still be writing: memory goes back when the stream is done.
        try:
            self.stream.synchronize()
        finally:
            self.pool.free_all_blocks()

    def reserve(self, n_bytes: int) -> None:
        """Take memory from the driver in one piece, as the many arrays that follow would take it in many."""
        with suppress(cupy().cuda.memory.OutOfMemoryError):  # then they do
            self.pool.malloc(n_bytes)

    def launch(self, name: str, n_blocks: int, n_threads: int, *args: Any, shared: int = 0) -> None:
        """Start a kernel.

        Parameters
        ----------
        name : str
            As in the sources, with its ending ``_kernel``.
        n_blocks, n_threads : int
            The grid is flat. No blocks: nothing to do.
        *args : arrays and NumPy scalars
            As the kernel declares them.
        shared : int
            Dynamic shared memory of a block, in bytes.
        """
        if n_blocks == 0:
            return
        key = (self.device.id, name, shared, self.shape.options, self.halved_square)
        kernel = _functions.get(key)
        if kernel is None:
            kernel = self._kernel(name)
            if shared > DYNAMIC_SHARED_WITHOUT_ASKING:
                kernel.max_dynamic_shared_size_bytes = shared
            _functions[key] = kernel
        kernel((n_blocks,), (n_threads,), args, shared_mem=shared)

    def launch_rows(self, name: str, n: int, *args: Any) -> None:
        """Start a kernel with a thread for each of ``n`` (rows, or lanes of warps); see :meth:`launch`."""
        self.launch(name, -(-n // ROW_THREADS), ROW_THREADS, *args)

    def _kernel(self, name: str) -> Any:
        unit = UNIT_OF[name.removesuffix("_kernel")]
        options = module_options(self.shape, self.halved_square and unit in UNITS_OF_MEASURE)
        key = (self.device.id, unit, options)
        module = _modules.get(key)
        if module is None:
            with _modules_lock:  # two fits at once compile a unit once
                module = _modules.get(key)
                if module is None:
                    module = cupy().RawModule(code=module_source(unit), options=options, backend="nvrtc")
                    module.compile()
                    _modules[key] = module
        return module.get_function(name)


@functools.cache
def _properties_of(device: int) -> tuple[int, int]:
    """Return the compute capability (90 for 9.0) and the number of multiprocessors of a GPU."""
    properties = cupy().cuda.runtime.getDeviceProperties(device)
    return 10 * properties["major"] + properties["minor"], properties["multiProcessorCount"]

"""Devices, streams, events and memory of the stand-in for CuPy.

Every allocation ends at a page that nobody may touch, so that a kernel that runs over the end of an array
fails, and is unmapped as soon as nothing holds it, so that a kernel that uses freed memory fails too.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

POISON, CANARY, ROUND, PAGE = 0xA5, 0xC9, 512, mmap.PAGESIZE

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class CUDARuntimeError(RuntimeError):
    """An error of the CUDA runtime."""


class CUDADriverError(RuntimeError):
    """An error of the CUDA driver."""


class OutOfMemoryError(MemoryError):
    """The device or the limit of a pool has no room for an allocation."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        limited = f", limit set to: {limit:,} bytes" if limit else ""
        super().__init__(
            f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes{limited})."
        )


class Settings:
    """What the emulated machine is like, what is to fail, what has happened; ``reset()`` starts anew."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.n_devices = int(os.environ.get("MREACH_EMULATOR_DEVICES", "1"))
        self.arch = int(os.environ.get("MREACH_EMULATOR_ARCH", "900"))
        self.n_multiprocessors = 4
        self.memory_bytes = 2 << 30
        self.allocated: dict[int, int] = {}
        self.n_allocations = 0
        self.fail_allocation: int | None = None
        self.fail_launch: int | None = None
        self.n_launches = 0
        self.launches: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = []
        self.allocation_sizes: list[int] = []

    def fail_allocation_after(self, n: int) -> None:
        """Let ``n`` allocations succeed from now on and the next one, only, raise OutOfMemoryError."""
        self.fail_allocation = self.n_allocations + n

    def fail_launch_after(self, n: int) -> None:
        """Let ``n`` launches succeed from now on and the next one, only, raise CUDADriverError."""
        self.fail_launch = self.n_launches + n


settings = Settings()


class Memory:
    """Device memory of ``size`` bytes at ``ptr``; 0 bytes have the pointer 0."""

    def __init__(self, size: int, device: int, release: Callable[[int], None]) -> None:
        self.size, self.device_id, self._release, self.ptr, self._base = size, device, release, 0, 0
        if size == 0:
            return
        room = -(-size // 16) * 16
        self._pages = -(-room // PAGE) * PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        base = libc.mmap(None, self._pages + PAGE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if base in (None, ctypes.c_void_p(-1).value):
            raise MemoryError("mmap failed")
        libc.mprotect(base + self._pages, PAGE, 0)
        self._base, self.ptr = base, base + self._pages - room
        live.add(self)
        ctypes.memset(base, CANARY, self._pages)
        ctypes.memset(self.ptr, POISON, size)

    @property
    def device(self) -> Device:
        return Device(self.device_id)

    def damage(self) -> str | None:
        """Say whether something wrote beside the array: into the rest of its pages."""
        if self.ptr == 0:
            return None
        for start, end in ((self._base, self.ptr), (self.ptr + self.size, self._base + self._pages)):
            around = ctypes.string_at(start, end - start)
            if around.count(CANARY) != len(around):
                return f"something wrote beside an array of {self.size} bytes"
        return None

    def __del__(self) -> None:
        base = getattr(self, "_base", 0)
        if base:
            self._base = 0
            self._release(self.size)
            libc.munmap(base, self._pages + PAGE)


live: weakref.WeakSet[Memory] = weakref.WeakSet()


class PointerAttributes:
    """What CUDA knows of an address: the device of the memory that it lies in."""

    def __init__(self, ptr: int) -> None:
        self.device = next((one.device_id for one in list(live) if 0 <= ptr - one.ptr < one.size), -2)


class MemoryPointer:
    """A place in a memory; ``mem`` keeps it alive."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset

    @property
    def device_id(self) -> int:
        return int(self.mem.device_id)

    @property
    def device(self) -> Device:
        return Device(self.device_id)

    def copy_from_host(self, host: Any, size: int) -> None:
        ctypes.memmove(self.ptr, getattr(host, "value", host), size)

    def copy_from_host_async(self, host: Any, size: int, stream: Stream | None = None) -> None:
        self.copy_from_host(host, size)

    def copy_to_host(self, host: Any, size: int) -> None:
        ctypes.memmove(getattr(host, "value", host), self.ptr, size)

    def copy_to_host_async(self, host: Any, size: int, stream: Stream | None = None) -> None:
        self.copy_to_host(host, size)

    def copy_from_device(self, source: MemoryPointer, size: int) -> None:
        ctypes.memmove(self.ptr, source.ptr, size)

    def copy_from_device_async(self, source: MemoryPointer, size: int, stream: Stream | None = None) -> None:
        self.copy_from_device(source, size)

    def memset(self, value: int, size: int) -> None:
        ctypes.memset(self.ptr, value, size)

    def memset_async(self, value: int, size: int, stream: Stream | None = None) -> None:
        self.memset(value, size)


class MemoryPool:
    """Counts as CuPy's pool does (blocks of 512 bytes; freed blocks stay until ``free_all_blocks``)."""

    def __init__(self, allocator: Any = None) -> None:
        self._limit = 0
        self._used: dict[int, int] = {}
        self._free: dict[int, int] = {}

    def malloc(self, size: int) -> MemoryPointer:
        if not isinstance(size, int | np.integer) or size < 0:
            raise ValueError(f"cannot allocate {size!r} bytes")
        device = Device().id
        here = settings.n_allocations
        settings.n_allocations += 1
        settings.allocation_sizes.append(int(size))
        block = -(-int(size) // ROUND) * ROUND
        used, free = self._used.get(device, 0), self._free.get(device, 0)
        if settings.fail_allocation == here:
            raise OutOfMemoryError(block, used + free, self._limit)
        taken = block if free >= block else 0
        new = block - taken
        over = self._limit and used + free + new > self._limit
        if over or settings.allocated.get(device, 0) + new > settings.memory_bytes:
            self.free_all_blocks()
            free = taken = 0
            new = block
            over = self._limit and used + new > self._limit
            if over or settings.allocated.get(device, 0) + new > settings.memory_bytes:
                raise OutOfMemoryError(block, used, self._limit)
        self._used[device], self._free[device] = used + block, free - taken
        settings.allocated[device] = settings.allocated.get(device, 0) + new

        def release(_: int) -> None:
            self._used[device] -= block
            self._free[device] = self._free.get(device, 0) + block

        return MemoryPointer(Memory(int(size), device, release), 0)

    def free_all_blocks(self, stream: Stream | None = None) -> None:
        for device, free in self._free.items():
            settings.allocated[device] = settings.allocated.get(device, 0) - free
        self._free.clear()

    def used_bytes(self) -> int:
        return self._used.get(Device().id, 0)

    def free_bytes(self) -> int:
        return self._free.get(Device().id, 0)

    def total_bytes(self) -> int:
        return self.used_bytes() + self.free_bytes()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._limit = int(size) if size is not None else int((fraction or 0) * settings.memory_bytes)

    def get_limit(self) -> int:
        return self._limit

    def __del__(self) -> None:
        if settings is not None:  # else the interpreter is ending
            self.free_all_blocks()


class Here(threading.local):
    """What is current in a thread."""

    def __init__(self) -> None:
        self.devices: list[int] = [0]
        self.streams: list[Stream] = []
        self.allocators: list[Callable[[int], MemoryPointer]] = []


here = Here()
default_pool = MemoryPool()


def allocate(size: int) -> MemoryPointer:
    """Allocate with the current allocator."""
    return (here.allocators[-1] if here.allocators else default_pool.malloc)(size)


class using_allocator:
    """Use an allocator within a ``with`` statement."""

    def __init__(self, allocator: Callable[[int], MemoryPointer] | None = None) -> None:
        self._allocator = allocator or default_pool.malloc

    def __enter__(self) -> None:
        here.allocators.append(self._allocator)

    def __exit__(self, *_: object) -> None:
        here.allocators.pop()


class Device:
    """An emulated device; the current one without an index."""

    def __init__(self, device: int | Device | None = None) -> None:
        self.id = here.devices[-1] if device is None else int(getattr(device, "id", device))

    def _check(self) -> None:
        if not 0 <= self.id < settings.n_devices:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")

    def __enter__(self) -> Device:
        self._check()
        here.devices.append(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        here.devices.pop()

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def use(self) -> None:
        self._check()
        here.devices[-1] = self.id

    def synchronize(self) -> None:
        self._check()

    @property
    def compute_capability(self) -> str:
        self._check()
        return str(settings.arch // 10)

    @property
    def mem_info(self) -> tuple[int, int]:
        self._check()
        return settings.memory_bytes - settings.allocated.get(self.id, 0), settings.memory_bytes

    @property
    def attributes(self) -> dict[str, int]:
        self._check()
        return {
            "ComputeCapabilityMajor": settings.arch // 100,
            "ComputeCapabilityMinor": settings.arch // 10 % 10,
            "MultiProcessorCount": settings.n_multiprocessors,
            "MaxSharedMemoryPerBlock": 48 << 10,
            "MaxSharedMemoryPerBlockOptin": max_shared_bytes(),
            "MaxSharedMemoryPerMultiprocessor": max_shared_bytes() + 1024,
            "ReservedSharedMemoryPerBlock": 1024,
            "MaxThreadsPerBlock": 1024,
            "MaxThreadsPerMultiProcessor": 1024 if settings.arch == 750 else 2048,
            "MaxGridDimX": 2147483647,
            "MaxRegistersPerMultiprocessor": 65536,
            "WarpSize": 32,
            "L2CacheSize": 4 << 20,
            "KernelExecTimeout": 0,
            "ClockRate": 1_500_000,
        }


def max_shared_bytes() -> int:
    """Return the most shared memory of a block."""
    return {750: 64, 800: 163, 860: 99, 890: 99}.get(settings.arch, 227) << 10


class Event:
    """An event: knows when it was recorded."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self._timed, self._time = not disable_timing, None
        self.ptr = id(self)

    def record(self, stream: Stream | None = None) -> None:
        self._time: float | None = time.perf_counter()

    def synchronize(self) -> None:
        pass

    @property
    def done(self) -> bool:
        return True


def get_elapsed_time(start: Event, end: Event) -> float:
    """Return milliseconds between two recorded events."""
    if not (start._timed and end._timed) or start._time is None or end._time is None:
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
    return (end._time - start._time) * 1e3


class Stream:
    """A stream; everything on it is done at once."""

    null: Stream

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
    ):
        self.ptr = 0 if null else id(self)
        self.device_id = Device().id

    def __enter__(self) -> Stream:
        here.streams.append(self)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        left = here.streams.pop()
        if left is not self and kind is None:
            raise RuntimeError("streams were not left in the order they were entered")

    def use(self) -> Stream:
        here.streams[-1:] = [self]
        return self

    def synchronize(self) -> None:
        pass

    @property
    def done(self) -> bool:
        return True

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        if not isinstance(event, Event):
            raise TypeError("wait_event takes an Event")


Stream.null = Stream(null=True)


class ExternalStream(Stream):
    """A stream that something else made."""

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__()
        self.ptr = ptr


def get_current_stream(device_id: int = -1) -> Stream:
    """Return the stream that is current in this thread."""
    return here.streams[-1] if here.streams else Stream.null


def alloc_pinned_memory(size: int) -> Any:
    """Return host memory with ``ptr`` and a buffer; like CuPy's it may be longer than asked for."""
    base = ctypes.c_ubyte * max(ROUND, -(-size // ROUND) * ROUND)
    pinned = type(
        "PinnedMemoryPointer",
        (base,),
        {"ptr": property(ctypes.addressof), "size": lambda self: ctypes.sizeof(self)},
    )()
    ctypes.memset(pinned, POISON, ctypes.sizeof(pinned))
    return pinned

"""How much memory a fit takes on the GPU, known before it starts; what gives way where there is less.

The figures follow the arrays that the stages make, in the order in which they make and drop them; a test
compares them with what a fit takes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from mreach.backends.cuda.devices import cupy
from mreach.backends.cuda.kernels import EXHAUST_ROWS, MAX_LEADING, SPLIT_WIDTH, TILE
from mreach.backends.cuda.neighbors import (
    ENTRY_BYTES,
    EXHAUST_BYTES,
    MAX_LIST_LENGTH,
    MIN_LIST_LENGTH,
    capacity_of,
    exhaust_capacity_of,
    row_bytes_of,
)
from mreach.backends.cuda.order import padded_features
from mreach.backends.cuda.tiles import MIN_HALF_FEATURES, tile_set_bytes
from mreach.backends.cuda.tree import QUEUE_BYTES, queue_capacity_of

if TYPE_CHECKING:
    from mreach.backends.cuda.session import Session

BLOCK = 512
"""Bytes: the pool hands memory out in multiples of this."""

SMALL_ARRAYS = 32 * BLOCK
"""Arrays of a few numbers."""

SHORT_LISTS = 8
"""Neighbours listed at most where memory is short: the tree then has more rows to scan."""

HALVINGS = 7
"""How often the candidates of a launch are halved, from :data:`ENTRY_BYTES` down to 6 MB."""

HALVINGS_BEFORE_SHORT_LISTS = 3

LEFT_TO_DRIVER = 64 << 20
"""Memory that no fit plans with: kernels are loaded into it, and not every gap in the pool can be filled."""

OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY of the driver, and cudaErrorMemoryAllocation of the runtime."""

HOST_INSTEAD = "backend='cpu' gives the same result in the memory of the host."

KEPT_BY_OTHERS = (
    "Memory that PyTorch or CuPy keep without using it counts as taken; torch.cuda.empty_cache() and "
    "cupy.get_default_memory_pool().free_all_blocks() give it back."
)


class Job(NamedTuple):
    """What a fit is asked for.

    Attributes
    ----------
    n, n_features, itemsize : int
        Rows, their features, and the bytes of a value.
    min_samples : int
    copied : bool
        Whether the rows take memory of the fit: not where they are read as the user has them on the GPU.
    """

    n: int
    n_features: int
    itemsize: int
    min_samples: int
    copied: bool


class Plan(NamedTuple):
    """How a fit goes about its memory; no result depends on it.

    Attributes
    ----------
    entry_bytes : int
        Candidates of one launch, and the rows of the tree that are scanned at once.
    max_list_length, max_leading : int
        Neighbours that are listed and leading coordinates that are kept, at most.
    may_take_frames : bool
        Whether single precision may take the place of halves where these exclude too little.
    """

    entry_bytes: int = ENTRY_BYTES
    max_list_length: int = MAX_LIST_LENGTH
    max_leading: int = MAX_LEADING
    may_take_frames: bool = True


ROOMY = Plan()
WITH_HALVES = ROOMY._replace(may_take_frames=False)
LEAST = Plan(ENTRY_BYTES >> HALVINGS, SHORT_LISTS, SPLIT_WIDTH, may_take_frames=False)


def make_plan(session: Session, job: Job) -> Plan:
    """Choose how a fit goes about its memory by what is free; where there is enough, take most of it at once.

    Raises
    ------
    MemoryError
        There is too little whatever gives way.
    """
    free, total = session.device.mem_info
    usable = usable_bytes(free)
    for plan in _plans():
        if peak_bytes(job, plan) <= usable:
            if plan is ROOMY:  # the candidates apart: no gap that other arrays leave would hold them
                session.reserve(peak_bytes(job, WITH_HALVES) - _entries(job, plan))
            return plan
    raise MemoryError(
        f"a fit of {job.n} rows x {job.n_features} features takes at least "
        f"{readable_size(peak_bytes(job, LEAST))} on device={session.device.id}, which has "
        f"{readable_size(free)} free of {readable_size(total)}: enough for about "
        f"{rows_that_fit(job, usable)} rows. {HOST_INSTEAD} {KEPT_BY_OTHERS}"
    )


def usable_bytes(free: int) -> int:
    """Return how much of the memory that is free may be planned with."""
    return free - min(LEFT_TO_DRIVER, free // 16)


@contextmanager
def clear_errors(session: Session, X: Any, doing: str = "a fit") -> Iterator[None]:
    """Raise the errors of CuPy and CUDA about memory as a MemoryError that says what to do."""
    try:
        yield
    except Exception as error:
        if not _is_about_memory(error):
            raise
        clear = MemoryError(
            f"device={session.device.id} ran out of memory in {doing} of {X.shape[0]} rows x {X.shape[1]} "
            f"features; something else may have taken some meanwhile. {HOST_INSTEAD} {KEPT_BY_OTHERS} "
            f"({error})"
        )
        _forget_calls(error)
        try:
            raise clear
        finally:
            clear.__context__ = None


def _is_about_memory(error: Exception) -> bool:
    cuda = cupy().cuda
    if isinstance(error, cuda.memory.OutOfMemoryError):
        return True
    # A kernel that is loaded takes memory, too. Both kinds of errors have the same number for it.
    is_of_cuda = isinstance(error, cuda.runtime.CUDARuntimeError | cuda.driver.CUDADriverError)
    return is_of_cuda and getattr(error, "status", None) == OUT_OF_MEMORY


def _forget_calls(error: BaseException) -> None:
    """Take the traceback of an error apart: the calls that it ended hold arrays, whoever keeps it."""
    part = error.__traceback__
    for _ in range(sys.getrecursionlimit()):
        if part is None:
            break
        following = part.tb_next
        part.tb_next = None
        part = following


def rows_that_fit(job: Job, n_bytes: int) -> int:
    """Return about how many rows of a kind fit into some memory, to two digits."""
    low, high = 0, job.n
    for _ in range(high.bit_length()):
        middle = (low + high + 1) // 2
        fits = peak_bytes(job._replace(n=middle), LEAST) <= n_bytes
        low, high = (middle, high) if fits else (low, middle - 1)
    step = 10 ** max(0, len(str(low)) - 2)
    return low // step * step


def peak_bytes(job: Job, plan: Plan) -> int:
    """Return the most memory that a fit takes at a time.

    All rows are counted as distinct and as active in the tree.
    """
    n, n_features, itemsize, _, copied = job
    if n == 0:
        return SMALL_ARRAYS
    n_padded = -(-n // TILE) * TILE
    n_leading = min(n_features, plan.max_leading)
    rows = _blocks(n * n_features * itemsize) if copied else 0
    values = _blocks(n_padded * padded_features(n_features, itemsize) * itemsize)
    leading = _blocks(4 * n * n_leading, 4 * n)
    # row_of, position_of, identity; where rows are equal the smallest of them, and how many they are
    places = _blocks(4 * n, 4 * n, 4 * n_padded, 4 * n, 4 * n)
    small = SMALL_ARRAYS + _blocks(8 * n_features * (n_leading + 1))
    # A sort takes a copy of its keys, and a second buffer for all that it moves.
    hashing = _blocks(8 * n, 8 * n) + _blocks(8 * n, 16 * n)
    splitting = _blocks(4 * n, 4 * n, 8 * n) + _blocks(4 * n, 12 * n)
    laying_out = max(
        rows + hashing,
        rows + leading + splitting,
        rows + leading + places + values,
        values + 2 * leading + places,
    )
    kept = values + leading + places

    length = min(_ranked(job), plan.max_list_length)
    kept += _blocks(8 * n * length, 4 * n * length, 8 * n)
    tiles, tile = (_tiles(m, n_features, n_leading, plan.may_take_frames) for m in (n, TILE))
    kept += tiles
    searching = kept + _blocks(4 * n) + _entries(job, plan)

    kept += _blocks(8 * n, 8 * n, 4 * n, 8 * n, 8 * n)  # edges, components and their bounds
    queue = _blocks(QUEUE_BYTES * queue_capacity_of(n))
    columns = tiles + _blocks(4 * n, 4 * n, 4 * n) + _blocks(12 * n_padded // TILE)
    strip = min(tiles, max(plan.entry_bytes, tile))
    scanning = kept + _blocks(8 * n, 4 * n) + columns + max(_blocks(8 * n, 8 * n, 8 * n), strip + queue)
    sorting = kept + queue + 8 * _blocks(8 * n)
    return small + max(laying_out, searching, scanning, sorting)


def _plans() -> Iterator[Plan]:
    """Yield plans, each smaller than the one before."""
    yield ROOMY
    for halvings in range(1, HALVINGS_BEFORE_SHORT_LISTS + 1):
        yield ROOMY._replace(entry_bytes=ENTRY_BYTES >> halvings)
    for halvings in range(HALVINGS_BEFORE_SHORT_LISTS, HALVINGS + 1):
        yield LEAST._replace(entry_bytes=ENTRY_BYTES >> halvings)


def _tiles(n: int, n_features: int, n_leading: int, may_take_frames: bool) -> int:
    if n_features < MIN_HALF_FEATURES:
        tiers = ["frame"]
    else:
        tiers = ["half", "frame"] if may_take_frames else ["half"]
    return max(tile_set_bytes(n, n_features, n_leading, tier) for tier in tiers) + 8 * BLOCK


def _ranked(job: Job) -> int:
    return min(job.n, max(job.min_samples + 1, MIN_LIST_LENGTH))


def _entries(job: Job, plan: Plan) -> int:
    """Return the memory of the candidates of a launch, or of the few rows that are compared with all."""
    k = _ranked(job)
    tile = TILE * row_bytes_of(capacity_of(k))
    n_tiles = max(1, min(-(-job.n // TILE), plan.entry_bytes // tile))
    return max(n_tiles * tile, EXHAUST_ROWS * EXHAUST_BYTES * exhaust_capacity_of(k)) + 4 * BLOCK


def _blocks(*sizes: int) -> int:
    return sum(-(-size // BLOCK) * BLOCK for size in sizes)


def readable_size(n_bytes: int) -> str:
    """Return a number of bytes as in "1.3 GB"."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 10**9 else f"{n_bytes / 1e6:.1f} MB"

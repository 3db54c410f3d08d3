"""The device code: which file holds which kernel, how it is compiled, and what a launch takes.

Kernels are compiled by NVRTC for the GPU in hand when a fit first needs them; CuPy keeps the result on disk
(``~/.cupy/kernel_cache``, or ``CUPY_CACHE_DIR``), so that only the first fit on a machine compiles.
"""

from __future__ import annotations

import functools
import re
from importlib.resources import files

# Constants that host and device share; a test compares them with the sources.
TILE = 128
SCAN_THREADS = 256
WARPS = SCAN_THREADS // 32  # of a scan; each owns as many rows of a tile
SMALL_CAPACITY = 256
MAX_LEADING = 64
SPLIT_WIDTH = 16
EXHAUST_ROWS = 8
NEW_TILE = 64
HOPS = 15
RANK_WARPS = 8

ROW_THREADS = 256
"""Threads of a block of kernels that work row by row; these take any number."""

VALUE_TYPES = ("float32", "float64")
"""Types of the values that are clustered; kernels that read them exist once for each."""

UNITS = {
    "rows": tuple(f"{name}_{kind}" for name in ("column_ranges", "row_marks") for kind in VALUE_TYPES),
    "prepare": (
        *(f"{name}_{kind}" for name in ("hash_rows", "mark_distinct", "project_rows", "gather_rows")
          for kind in VALUE_TYPES),
        "split_segments", "split_keys", "permute", "permute_u64", "count_up", "invert", "scatter",
        "collect_groups", "take_int",
    ),
    "tiles": (
        *(f"{name}_{kind}" for name in ("round_rows", "make_frames") for kind in VALUE_TYPES),
        "half_bounds", "half_inflation", "box_tiles",
    ),
    "nearest_half": ("nearest_half", "nearest_half_slabs"),
    "nearest_frame": ("nearest_frame", "nearest_frame_slabs"),
    "outgoing_half": ("outgoing_half", "outgoing_half_slabs"),
    "outgoing_frame": ("outgoing_frame", "outgoing_frame_slabs"),
    "rank": (
        *(f"{name}_{kind}" for name in ("rank_candidates", "exhaust_rows") for kind in VALUE_TYPES),
        "find_given_up", "columns_to_entries",
    ),
    "new_rows": (
        *(f"{name}_{kind}" for name in ("squares_near_new", "lightest_to_new", "lightest_of_parts")
          for kind in VALUE_TYPES),
        "cores_of_new",
    ),
    "forest": (
        "listed_edges", "count_active_rows", "most_active", "gather_active_rows", "component_keys",
        "positions_of_keys", "component_tiles", "listed_pairs", "queued_pairs", "hook", "jump", "mark_roots",
        "relabel", "fill", "pack_edges", "smallest_near", "copy_edges",
    ),
}  # fmt: skip
"""The kernels of each file of ``cuda_kernels``, without the ending ``_kernel``."""

UNITS_OF_MEASURE = ("outgoing_half", "outgoing_frame", "rank", "new_rows")
"""Files that make distances of squares: they are compiled once for each of the two measures."""

HALVED_SQUARE = "MREACH_HALVED_SQUARE=1"
"""Defined where the distance is half the squared Euclidean one."""

UNIT_OF = {kernel: unit for unit, kernels in UNITS.items() for kernel in kernels}

_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"\n', re.MULTILINE)

MUCH_SHARED_MEMORY = (80, 87, 90, 100, 103, 110)
"""Compute capabilities with at least 163 KiB of shared memory a block; the others have 64 (7.5) or 99 KiB."""


class Shape:
    """What differs between generations of GPUs, by compute capability.

    Attributes
    ----------
    warpgroup : bool
        Whether halves are multiplied by four warps at once, from shared memory.
    slab_steps : int
        Products 16 deep that one slab of features takes; with ``stages``, what fits into shared memory.
    stages : int
        Slabs in shared memory at a time: one in use, the others on their way.
    """

    def __init__(self, compute_capability: int) -> None:
        self.warpgroup = compute_capability == 90  # products of four warps at once are Hopper's alone
        self.slab_steps = 2 if compute_capability < 80 else 4
        self.stages = 5 if self.warpgroup else 3 if compute_capability in MUCH_SHARED_MEMORY else 2

    @property
    def options(self) -> tuple[str, ...]:
        """Options of the compiler."""
        stages = f"-DMREACH_STAGES={self.stages}"
        if self.warpgroup:
            return ("-arch=sm_90a", "-DMREACH_WARPGROUP=1", stages)
        return (f"-DMREACH_SLAB_STEPS={self.slab_steps}", stages)

    @property
    def slab(self) -> int:
        """Features of a slab in halves."""
        return 16 * self.slab_steps

    def half_shared_bytes(self, n_slabs: int) -> int:
        """Dynamic shared memory of the kernels on halves."""
        pitch, alignment = (self.slab, 1024) if self.warpgroup else (self.slab + 8, 0)
        tile = TILE * pitch * 2
        barriers = 8 * (2 * self.stages + 1)
        return (
            alignment
            + barriers
            + self.stages * TILE * 4
            + tile * (self.stages + (1 if n_slabs == 1 else self.stages))
        )


FRAME_SLAB, FRAME_STAGES = 16, 2


def frame_shared_bytes(n_slabs: int) -> int:
    """Dynamic shared memory of the kernels on frames."""
    tile = FRAME_SLAB * TILE * 4
    return FRAME_STAGES * (FRAME_SLAB + 1) * 4 + tile * (FRAME_STAGES + (1 if n_slabs == 1 else FRAME_STAGES))


@functools.cache
def module_source(unit: str) -> str:
    """Return the source of a unit with its headers in it, each once."""
    folder = files("mreach.backends") / "cuda_kernels"
    seen: set[str] = set()

    def read(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (folder / name).read_text(encoding="utf-8")
        return _INCLUDE.sub(lambda found: read(found[1]), text)

    return read(f"{unit}.cu")


def module_options(shape: Shape, halved_square: bool = False) -> tuple[str, ...]:
    """Return the options a unit is compiled with: no contraction, so that each rounding is as written.

    ``halved_square`` is for :data:`UNITS_OF_MEASURE`: distances are half the squared Euclidean ones.
    """
    measure = (f"-D{HALVED_SQUARE}",) if halved_square else ()
    return ("--std=c++17", "--fmad=false", *shape.options, *measure)

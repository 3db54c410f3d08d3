"""Sets of rows as the filter reads them: tiles of halves or frames, and the boxes that skip whole pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from mreach.backends.cuda.devices import cupy
from mreach.backends.cuda.frame import CLAMP
from mreach.backends.cuda.kernels import FRAME_SLAB, TILE, frame_shared_bytes
from mreach.backends.cuda.order import Layout, null

HALF_WIDTH = 64
"""Features in halves are padded to a multiple of this: a slab, where copies go on in the background."""

MIN_HALF_FEATURES = 17
"""Fewer features go straight to single precision: products 16 deep would multiply zeros."""

BOX_FACTOR = 1.0 + 2.0**-18
"""Squared distances in leading coordinates are at most this times the squared distance: the directions are
orthonormal to 1e-6 only in the worst case that is let through."""


class TileSet:
    """A set of rows in tiles, in one of two tiers.

    "half" multiplies halves on tensor cores; "frame" takes differences in single precision, each tile in a
    frame of its own. Both only exclude.

    Attributes
    ----------
    n, n_tiles : int
    positions : int32 array or None
        The position of each row of the set; None: row i is position i.
    arguments : tuple
        The arrays that the kernels of the tier take for a set.
    low, high : float32 arrays of shape (n_leading, n_tiles)
        Boxes of the leading coordinates.
    """

    def __init__(self, layout: Layout, tier: str, positions: Any = None) -> None:
        cp = cupy()
        self.n = layout.n if positions is None else len(positions)
        self.n_tiles = -(-self.n // TILE)
        self.positions = positions
        self.tier = tier
        rows_of_set = null if positions is None else positions
        n_padded = self.n_tiles * TILE
        make = self._halves if tier == "half" else self._frames
        self.arguments: tuple[Any, ...] = make(layout, rows_of_set, n_padded)
        n_leading = layout.frame.n_leading
        self.low = cp.empty((n_leading, self.n_tiles), np.float32)
        self.high = cp.empty((n_leading, self.n_tiles), np.float32)
        layout.session.launch_rows(
            "box_tiles_kernel", self.n_tiles * 32,
            layout.leading, np.int32(n_leading), layout.norms, rows_of_set, np.int64(self.n),
            np.int32(self.n_tiles), self.low, self.high,
        )  # fmt: skip

    def _halves(self, layout: Layout, positions: Any, n_padded: int) -> tuple[Any, ...]:
        cp = cupy()
        frame, width = layout.frame, half_width(layout.n_features)
        halves = cp.empty((n_padded, width), np.uint16)
        start, norm, residual, reliable = (cp.empty(n_padded, np.float32) for _ in range(4))
        tile_norm, tile_residual = (cp.empty(self.n_tiles, np.float32) for _ in range(2))
        layout.session.launch_rows(
            f"round_rows_{layout.kind}_kernel", n_padded * 32,
            layout.values, np.int64(layout.pitch), np.int32(layout.n_features), positions, np.int64(self.n),
            np.int64(n_padded), frame.centre, np.float64(frame.scale), np.float64(CLAMP), np.int32(width),
            np.int32(layout.session.shape.warpgroup),
            halves, start, norm, residual, reliable,
        )  # fmt: skip
        layout.session.launch(
            "half_bounds_kernel", self.n_tiles, TILE, norm, residual, tile_norm, tile_residual
        )
        return halves, start, norm, residual, reliable, tile_norm, tile_residual

    def _frames(self, layout: Layout, positions: Any, n_padded: int) -> tuple[Any, ...]:
        cp = cupy()
        d = layout.n_features
        offsets = cp.empty((self.n_tiles, d, TILE), np.float32)
        centre = cp.empty((self.n_tiles, d), np.float64)
        residual = cp.empty(n_padded, np.float32)
        tile_residual = cp.empty(self.n_tiles, np.float32)
        layout.session.launch(
            f"make_frames_{layout.kind}_kernel", self.n_tiles, TILE,
            layout.values, np.int64(layout.pitch), np.int32(d), positions, np.int64(self.n),
            np.float64(layout.frame.scale), offsets, centre, residual, tile_residual,
        )  # fmt: skip
        return offsets, centre, residual, tile_residual


class Filter:
    """How the kernels of a tier are called for a layout: their names, widths, shared memory and margins.

    ``work_per_pair`` is what a pair of rows costs, in products of halves.
    """

    def __init__(self, layout: Layout, tier: str) -> None:
        self.tier = tier
        if tier == "half":
            shape = layout.session.shape
            self.width = half_width(layout.n_features)
            n_slabs = -(-self.width // shape.slab)
            self.shared = shape.half_shared_bytes(n_slabs)
            self.accumulation = (self.width + 16) * 2.0**-22  # tensor cores truncate
            self.work_per_pair = max(64, self.width)
        else:
            self.width = layout.n_features
            n_slabs = -(-self.width // FRAME_SLAB)
            self.shared = frame_shared_bytes(n_slabs)
            self.accumulation = (self.width + 8) * 2.0**-24
            self.work_per_pair = 4 * max(16, self.width)  # one difference takes the time of some products
        self.suffix = f"{tier}_kernel" if n_slabs == 1 else f"{tier}_slabs_kernel"

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Width and accumulated error, as the kernels take them after the arrays of a set."""
        return np.int32(self.width), np.float32(self.accumulation)


def half_width(n_features: int) -> int:
    """Features of a row in halves, with padding."""
    return -(-n_features // HALF_WIDTH) * HALF_WIDTH


def tile_set_bytes(n: int, n_features: int, n_leading: int, tier: str) -> int:
    """Bytes of a :class:`TileSet` of ``n`` rows, without its positions."""
    n_tiles = -(-n // TILE)
    if tier == "half":
        per_tile = TILE * (2 * half_width(n_features) + 16) + 8
    else:
        per_tile = TILE * (4 * n_features + 4) + 8 * n_features + 8
    return n_tiles * (per_tile + 8 * n_leading)

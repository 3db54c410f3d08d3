"""From rows on the GPU to a layout: distinct rows in spatial order, what the filter measures them by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.collapse import Copies, collapse
from mreach.backends.cuda.devices import cupy
from mreach.backends.cuda.frame import Frame, choose_frame
from mreach.backends.cuda.kernels import MAX_LEADING, SPLIT_WIDTH, TILE
from mreach.backends.cuda.stopwatch import Stopwatch

if TYPE_CHECKING:
    from mreach.backends.cuda.rows import DeviceRows
    from mreach.backends.cuda.session import Session

SPLIT_THREADS = 128
"""Threads of split_segments: eight for each of its 16 coordinates."""

MIN_TWO_MEANS_FEATURES = 4
"""Fewer coordinates are split at their widest side; in more, clusters lie across the axes."""

LEADING_LIMIT = 2.0**60
"""Leading coordinates are clamped here: clamping lengthens no distance, and squares stay finite."""


class Layout:
    """Distinct rows in an order in which near rows stand together, ``TILE`` of them a tile.

    Made from the rows of a fit, which go once their values are here; ``max_leading`` coordinates at most.

    Attributes
    ----------
    session : Session
    n : int
        Number of distinct rows; ``n_all``: of all rows. ``n_tiles``: of tiles.
    values : array of shape (n_tiles * TILE, pitch), float32 or float64
        The user's values in tile order, padded with zeros to a multiple of 16 bytes.
    kind : str
        "float32" or "float64".
    row_of : int32 array of shape (n,)
        The user's row at each position.
    leading, norms : float32 arrays of shape (n, n_leading) and (n,)
        Coordinates along the leading directions, and norms, in the units of ``frame``; by position.
    copies : Copies or None
        Rows equal to a distinct one, where there are any.
    """

    def __init__(self, rows: DeviceRows, watch: Stopwatch, max_leading: int = MAX_LEADING) -> None:
        self.session: Session = rows.session
        self.kind = rows.array.dtype.name
        self.n_all, self.n_features = rows.n_rows, rows.n_features
        with watch("equal rows"):
            self.copies: Copies | None = collapse(self.session, rows.array)
        distinct = None if self.copies is None else self.copies.representatives
        self.n = self.n_all if distinct is None else len(distinct)
        self.n_tiles = -(-self.n // TILE)
        with watch("frame"):
            self.frame: Frame = choose_frame(rows, max_leading)
        with watch("order"):
            leading, norms = self._project(rows.array, distinct)
            order = self._split(leading)
        with watch("gather"):
            self._gather(rows, distinct, leading, norms, order)

    def _project(self, X: Any, distinct: Any) -> tuple[Any, Any]:
        cp = cupy()
        frame = self.frame
        leading = cp.empty((self.n, frame.n_leading), np.float32)
        norms = cp.empty(self.n, np.float32)
        self.session.launch(
            f"project_rows_{self.kind}_kernel", -(-self.n // 32), 256,
            X, null if distinct is None else distinct, np.int64(self.n), np.int32(self.n_features),
            frame.centre, np.float64(frame.scale), frame.basis, np.int32(frame.n_leading),
            np.float32(LEADING_LIMIT), leading, norms,
        )  # fmt: skip
        return leading, norms

    def _split(self, leading: Any) -> Any:
        """Order the rows by balanced splits: the leaves of their tree are the tiles.

        Segments of a level all hold the same power of two of tiles, but for the last; so tiles i and j part
        at the highest bit in which they differ, and i XOR 1, 2, 3 ... goes from near to far.
        """
        cp = cupy()
        n, n_leading = self.n, self.frame.n_leading
        order = cp.empty(n, np.int32)
        self.session.launch_rows("count_up_kernel", n, np.int64(n), np.int64(n), order)
        n_levels = (self.n_tiles - 1).bit_length()
        keys = cp.empty(n, np.uint32)
        two_means = self.n_features >= MIN_TWO_MEANS_FEATURES
        for level in range(n_levels):
            segment_rows = TILE << (n_levels - level)
            n_segments = -(-n // segment_rows)
            directions = cp.empty((n_segments, SPLIT_WIDTH), np.float32)
            ranges = cp.empty((n_segments, 2), np.float32)
            self.session.launch(
                "split_segments_kernel", n_segments, SPLIT_THREADS,
                leading, np.int32(n_leading), order, np.int64(n), np.int64(segment_rows),
                np.int32(two_means), directions, ranges,
            )  # fmt: skip
            self.session.launch_rows(
                "split_keys_kernel", n,
                leading, np.int32(n_leading), order, np.int64(n), np.int64(segment_rows), np.int32(level),
                directions, ranges, keys,
            )  # fmt: skip
            by_key = None  # that of the level before goes first
            by_key = cp.argsort(keys)
            permuted = cp.empty(n, np.int32)
            self.session.launch_rows("permute_kernel", n, order, by_key, np.int64(n), permuted)
            order = permuted
        return order

    def _gather(self, rows: DeviceRows, distinct: Any, leading: Any, norms: Any, order: Any) -> None:
        cp = cupy()
        n, session = self.n, self.session
        if distinct is None:
            self.row_of = order
        else:
            self.row_of = cp.empty(n, np.int32)
            session.launch_rows("take_int_kernel", n, distinct, order, np.int64(n), self.row_of)
        self.position_of = cp.empty(self.n_all, np.int32)
        session.launch_rows("invert_kernel", n, self.row_of, np.int64(n), self.position_of)
        self.pitch = padded_features(self.n_features, rows.array.dtype.itemsize)
        self.values = self._gathered(rows.array, self.row_of, n, self.n_tiles * TILE, self.pitch)
        rows.release_values()
        self.leading = self._gathered(leading, order, n, n, leading.shape[1])
        self.norms = self._gathered(norms.reshape(n, 1), order, n, n, 1).reshape(n)
        if self.copies is not None:
            place_of = cp.empty(n, np.int32)
            session.launch_rows("invert_kernel", n, order, np.int64(n), place_of)
            self.copies.locate(session, place_of, order)
        self.identity = cp.empty(self.n_tiles * TILE, np.int32)
        session.launch_rows(
            "count_up_kernel", self.n_tiles * TILE,
            np.int64(n), np.int64(self.n_tiles * TILE), self.identity,
        )  # fmt: skip

    def _gathered(self, source: Any, rows: Any, n: int, n_padded: int, pitch: int) -> Any:
        gathered = cupy().empty((n_padded, pitch), source.dtype)
        self.session.launch_rows(
            f"gather_rows_{source.dtype.name}_kernel", n_padded * pitch,
            source, np.int64(source.shape[1]), rows, np.int64(n), np.int64(n_padded), np.int64(pitch),
            gathered,
        )  # fmt: skip
        return gathered

    def spread(self, by_position: Any) -> NDArray[np.float64]:
        """Copy a float64 number of each position to the host, as one of each of the user's rows."""
        cp = cupy()
        by_row = cp.empty(self.n_all, np.float64)
        self.session.launch_rows(
            "scatter_kernel", self.n,
            by_position, self.identity, self.row_of, np.int64(self.n), by_row,
        )  # fmt: skip
        if self.copies is not None:
            self.session.launch_rows(
                "scatter_kernel", self.copies.n,
                by_position, self.copies.position, self.copies.row, np.int64(self.copies.n), by_row,
            )  # fmt: skip
        spread: NDArray[np.float64] = by_row.get()
        return spread

    @property
    def distance_slack(self) -> float:
        """What float64 may lose of a distance where squares underflow, in the filter's units."""
        return math.ldexp(self.frame.scale, -525)


def padded_features(n_features: int, itemsize: int) -> int:
    """Values of a row with padding: rows start at multiples of 16 bytes."""
    per_load = 16 // itemsize
    return -(-n_features // per_load) * per_load


null = np.uint64(0)
"""A pointer to nothing, for kernels that can do without an array."""

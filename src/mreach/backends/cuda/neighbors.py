"""The nearest neighbours of every row: filter, exact ranking, brute force for what the filter gives up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mreach.backends.cuda.devices import cupy
from mreach.backends.cuda.kernels import (
    EXHAUST_ROWS,
    RANK_WARPS,
    SCAN_THREADS,
    SMALL_CAPACITY,
    TILE,
    WARPS,
)
from mreach.backends.cuda.order import Layout, null
from mreach.backends.cuda.pace import Pace
from mreach.backends.cuda.stopwatch import Stopwatch
from mreach.backends.cuda.tiles import BOX_FACTOR, MIN_HALF_FEATURES, Filter, TileSet
from mreach.progress import Progress

MIN_LIST_LENGTH = 24
"""Neighbours listed at least, the row itself included: longer ones settle more of the tree, and cost more."""

MAX_LIST_LENGTH = 64
"""Neighbours listed at most; core distances beyond come from the same ranking, unlisted."""

ENTRY_BYTES = 768 << 20
"""Memory of the candidates of one launch."""

EXHAUST_BYTES = 44
"""Memory of a candidate where rows are compared with all rows: what is found, and what ranks it."""

EXHAUST_WORK = 64
"""Work of a value there, which is compared in double precision, in the units of the filter."""

SAMPLE_TILES = 8
"""Tiles that the choice of the tier looks at."""

SAMPLE_PLACES = 16
"""Tiles around each of them at least that bound its distances."""

MAX_INFLATION = 1.25
"""The tier of halves is left where its margin lengthens the distances searched by more, in the median."""


class Neighbors:
    """What the search found.

    Attributes
    ----------
    k, list_length : int
        Neighbours ranked, and how many of them are listed; a row is its own first neighbour.
    distance, column : float64 and int32 arrays of shape (n, list_length)
        Distances in ascending order, and positions.
    core : float64 array of shape (n,)
        Core distances by position.
    complete : bool
        Whether the lists hold all rows.
    tiles : TileSet
        All rows, for the tree.
    filter : Filter
    statistics : dict
    """

    def __init__(self, layout: Layout, k: int, list_length: int) -> None:
        cp = cupy()
        self.k, self.list_length = k, list_length
        self.distance = cp.empty((layout.n, list_length), np.float64)
        self.column = cp.empty((layout.n, list_length), np.int32)
        self.core = cp.empty(layout.n, np.float64)
        self.complete = list_length >= layout.n
        self.statistics: dict[str, Any] = {}
        self.tiles: TileSet
        self.filter: Filter


def find_neighbors(
    layout: Layout,
    min_samples: int,
    progress: Progress,
    watch: Stopwatch,
    *,
    tier: str | None = None,
    min_list_length: int = MIN_LIST_LENGTH,
    max_list_length: int = MAX_LIST_LENGTH,
    prune: bool = True,
    limit: int | None = None,
    entry_bytes: int = ENTRY_BYTES,
    may_take_frames: bool = True,
    **_: Any,
) -> Neighbors:
    """Find core distances and neighbours.

    Parameters
    ----------
    layout : Layout
    min_samples : int
        From 1 to the number of rows, copies counted.
    progress : Progress
    watch : Stopwatch
    tier, min_list_length, max_list_length, prune, limit, entry_bytes, may_take_frames
        For tests, measurements and little memory; no result depends on them.
    """
    # One neighbour more than min_samples: then a list provably holds all within the core distance wherever
    # its last distance is strictly greater.
    k = min(layout.n, max(min_samples + 1, min_list_length))
    found = Neighbors(layout, k, min(k, max_list_length))
    search = _Search(layout, found, min_samples, prune, limit, entry_bytes, watch)
    if tier is None:
        tier = search.choose_tier(may_take_frames)
    search.use(tier)
    progress.stage("neighbours", layout.n)
    search.run(progress)
    return found


def capacity_of(k: int) -> int:
    """Candidates that a row has room for: tightened at TILE fewer, which a tile may add until it ends."""
    small = SMALL_CAPACITY - TILE
    limit = small if k + 64 <= small else k + TILE
    return -(-limit // 16) * 16 + TILE


def pitch_of(capacity: int) -> int:
    """Entries of a row: large buffers have as much again to tighten through."""
    return capacity if capacity <= SMALL_CAPACITY else 2 * capacity


def row_bytes_of(capacity: int) -> int:
    """Bytes that a row takes while it is searched: entries, what ranks many of them, reach and count."""
    ranked = 0 if capacity <= SMALL_CAPACITY else 24
    return pitch_of(capacity) * 8 + capacity * ranked + 8


def exhaust_capacity_of(k: int) -> int:
    """Candidates that a row has room for where it is compared with all rows."""
    return k + 2 * SCAN_THREADS


class _Search:
    def __init__(
        self, layout: Layout, found: Neighbors, min_samples: int, prune: bool, limit: int | None,
        entry_bytes: int, watch: Stopwatch,
    ) -> None:  # fmt: skip
        cp = cupy()
        self._layout, self._session = layout, layout.session
        self._found, self._min_samples, self._watch = found, min_samples, watch
        self._capacity = capacity_of(found.k) if limit is None else -(-limit // 16) * 16 + TILE
        self._limit = self._capacity - TILE
        tile_bytes = TILE * row_bytes_of(self._capacity)
        self._batch = max(1, min(layout.n_tiles, entry_bytes // tile_bytes))
        self._entry_bytes = self._batch * tile_bytes
        self._box_factor = BOX_FACTOR if prune else np.inf
        self._counts = cp.zeros(4, np.uint64)  # tile pairs, hits, and two that are read as int32
        self._marks = cp.zeros(2, np.int32)  # rows given up; a row without enough candidates
        self._given_up = cp.empty(layout.n, np.int32)
        self._entries: Any = None

    def use(self, tier: str) -> None:
        with self._watch("tiles"):
            if getattr(self._found, "filter", None) is None or self._found.filter.tier != tier:
                self._found.__dict__.pop("tiles", None)  # that of the other tier goes first
                self._found.tiles = TileSet(self._layout, tier)
                self._found.filter = Filter(self._layout, tier)

    def choose_tier(self, may_take_frames: bool) -> str:
        """Take halves where they exclude well: by the margin they need on a sample, against its distances."""
        layout = self._layout
        if layout.n_features < MIN_HALF_FEATURES:
            return "frame"
        if not may_take_frames:
            return "half"
        self.use("half")
        step = max(1, layout.n_tiles // SAMPLE_TILES)
        n_sample = min(SAMPLE_TILES, self._batch)
        sample = cupy().asarray(np.arange(0, layout.n_tiles, step, dtype=np.int32)[:n_sample])
        with self._watch("tier"):
            state = self._start(len(sample))
            places = max(SAMPLE_PLACES, 2 * -(-self._found.k // TILE))  # with more than k rows in them
            self._scan(sample, 0, places, state)
            inflation = self._inflation(sample, state[0])
        self._counts = cupy().zeros(4, np.uint64)
        return "half" if inflation <= MAX_INFLATION else "frame"

    def _inflation(self, sample: Any, reach: Any) -> float:
        """Return by which factor the margins of halves lengthen the distances searched, in the median."""
        _, _, norm, residual, _, _, _ = self._found.tiles.arguments
        inflation = cupy().empty(reach.shape, np.float32)
        self._session.launch(
            "half_inflation_kernel", len(sample), TILE,
            reach, sample, norm, residual, np.float32(self._found.filter.accumulation),
            np.int64(self._layout.n), inflation,
        )  # fmt: skip
        measured = inflation.get().ravel()
        measured = measured[measured >= 0]  # not of rows that have no bound yet
        return float(np.median(measured)) if len(measured) else math.inf

    def run(self, progress: Progress) -> None:
        self._search(progress)
        self._finish()

    def _search(self, progress: Progress) -> None:
        """Filter and rank all rows, as many at a time as there is memory for."""
        layout, found = self._layout, self._found
        all_tiles = layout.identity  # 0, 1, 2 ...: also the numbers of the tiles
        work = layout.n_tiles * TILE * TILE * found.filter.work_per_pair
        pace = Pace(self._session, layout.n_tiles * work)
        state: Any = None
        for piece in pace.pieces(layout.n_tiles, self._n_places, work, progress, layout.n, self._batch):
            tiles, places = slice(piece.first, piece.end), (piece.first_place, piece.end_place)
            if piece.opens:
                state = self._start(piece.end - piece.first)
            with self._watch("filter"):
                self._scan(all_tiles[tiles], *places, state)
            if piece.closes:
                with self._watch("rank"):
                    rows = layout.identity[piece.first * TILE : piece.end * TILE]
                    self._rank(rows, state[2], state[1], self._capacity, pitch_of(self._capacity))

    @property
    def _n_places(self) -> int:
        return 1 << (self._layout.n_tiles - 1).bit_length()

    def _start(self, n_tiles: int) -> tuple[Any, Any, Any]:
        """Return reach, counts and entries of the rows of some tiles, nothing found yet."""
        cp = cupy()
        counts = cp.zeros((n_tiles, TILE), np.int32)
        reach = cp.empty((n_tiles, TILE), np.float32)
        self._fill(reach.view(np.uint64), np.array([np.inf, np.inf], np.float32).view(np.uint64)[0])
        if self._entries is None:
            self._entries = cp.empty((self._batch, TILE, pitch_of(self._capacity)), np.uint64)
        return reach, counts, self._entries

    def _fill(self, array: Any, value: Any) -> None:
        self._session.launch_rows("fill_kernel", array.size, array, np.int64(array.size), value)

    def _scan(self, tiles: Any, first_place: int, end_place: int, state: tuple[Any, Any, Any]) -> None:
        layout, found = self._layout, self._found
        reach, counts, entries = state
        self._session.launch(
            f"nearest_{found.filter.suffix}", len(tiles), SCAN_THREADS,
            *found.tiles.arguments, *found.filter.arguments, found.tiles.low, found.tiles.high,
            np.int32(layout.n_tiles), np.int32(layout.frame.n_leading), np.int64(layout.n), tiles,
            np.int64(first_place), np.int64(end_place), np.int32(found.k), np.int32(self._limit),
            np.int32(self._capacity), np.float32(layout.distance_slack), np.float32(self._box_factor),
            reach, counts, entries, self._counts, shared=found.filter.shared,
        )  # fmt: skip

    def _rank(self, rows: Any, entries: Any, counts: Any, capacity: int, pitch: int) -> None:
        cp = cupy()
        layout, found = self._layout, self._found
        n = len(rows)
        large = capacity > SMALL_CAPACITY
        work_distance = cp.empty((n, 2, capacity), np.float64) if large else null
        work_column = cp.empty((n, 2, capacity), np.int32) if large else null
        multiplicity = null if layout.copies is None else layout.copies.multiplicity
        self._session.launch(
            f"rank_candidates_{layout.kind}_kernel", -(-n // RANK_WARPS), RANK_WARPS * 32,
            layout.values, np.int64(layout.pitch), rows, np.int64(n), entries, np.int32(pitch), counts,
            np.int32(capacity),
            np.int32(found.k), np.int32(self._min_samples), multiplicity, np.int32(found.list_length),
            found.distance, found.column, found.core, work_distance, work_column, self._marks[1:],
        )  # fmt: skip
        self._session.launch_rows(
            "find_given_up_kernel", n,
            rows, counts, np.int64(n), self._given_up, self._marks,
        )  # fmt: skip

    def _finish(self) -> None:
        layout, found = self._layout, self._found
        self._entries = None
        n_given_up, failed = self._marks.get().tolist()
        if failed:
            raise RuntimeError(
                "a row has fewer candidates than neighbours: please report this as a bug, with the data"
            )
        with self._watch("given up"):
            self._exhaust(n_given_up)
        tile_pairs, hits = self._counts.get()[:2].tolist()
        found.statistics = {
            "tier": found.filter.tier,
            "tile_pairs_share": tile_pairs / WARPS / layout.n_tiles**2,
            "hits_per_row": hits / layout.n,
            "overflow_rows": n_given_up,
            "list_length": found.list_length,
        }

    def _exhaust(self, n_given_up: int) -> None:
        """Compare the rows that the filter gave up with all rows, exactly."""
        layout, found = self._layout, self._found
        capacity = exhaust_capacity_of(found.k)
        batch = max(EXHAUST_ROWS, self._entry_bytes // (capacity * EXHAUST_BYTES))
        pace = Pace(self._session, n_given_up * layout.n * layout.n_features * EXHAUST_WORK)
        for first in range(0, n_given_up, batch):
            self._exhaust_rows(self._given_up[first : min(n_given_up, first + batch)], capacity, pace)

    def _exhaust_rows(self, rows: Any, capacity: int, pace: Pace) -> None:
        cp = cupy()
        layout, found, session, n = self._layout, self._found, self._session, len(rows)
        squared = cp.empty((n, capacity), np.float64)
        columns = cp.empty((n, capacity), np.int32)
        counts = cp.zeros(n, np.int32)
        farthest = cp.empty(n, np.float64)
        self._fill(farthest.view(np.uint64), np.array([np.inf]).view(np.uint64)[0])
        work = n * layout.n * layout.n_features * EXHAUST_WORK
        for piece in pace.pieces(1, layout.n, work, Progress(), 0):
            session.launch(
                f"exhaust_rows_{layout.kind}_kernel", -(-n // EXHAUST_ROWS), SCAN_THREADS,
                layout.values, np.int64(layout.pitch), rows, np.int64(n), np.int64(piece.first_place),
                np.int64(piece.end_place), np.int32(found.k), np.int32(capacity), squared, columns, counts,
                farthest,
            )  # fmt: skip
        entries = cp.empty((n, capacity), np.uint64)
        session.launch_rows(
            "columns_to_entries_kernel", n * capacity,
            columns, np.int64(n * capacity), entries,
        )  # fmt: skip
        self._rank(rows, entries, counts, capacity, capacity)

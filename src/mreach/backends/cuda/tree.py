"""The spanning tree's rounds on the GPU: listed edges, active rows, contraction; then all edges, sorted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.devices import cupy
from mreach.backends.cuda.kernels import HOPS, SCAN_THREADS, TILE, WARPS
from mreach.backends.cuda.neighbors import ENTRY_BYTES, Neighbors
from mreach.backends.cuda.order import Layout, null
from mreach.backends.cuda.pace import Pace
from mreach.backends.cuda.stopwatch import Stopwatch
from mreach.backends.cuda.tiles import BOX_FACTOR, TileSet, tile_set_bytes
from mreach.progress import Progress
from mreach.records import EDGE_DTYPE

NO_WEIGHT = np.array([np.inf]).view(np.uint64)[0]
"""Bits of the weight of no edge."""

NO_PAIR = np.uint64(2**64 - 1)

QUEUE_CAPACITY = 1 << 20
"""Edges of a scan that may turn out the lightest of their component; where they are more it is repeated."""

QUEUE_BYTES = 24
"""Memory of an edge in the queue: component, weight, rows."""

NEAREST_PHASE, ALL_PHASE = 0, 1
"""Launches of a scan: the nearest tiles of all rows, which bring bounds down; then all tiles."""

BLOCKS_PER_MULTIPROCESSOR = 8
"""Blocks of a scan there should be at least: two run at a time, and they take unequal time."""

MIN_PLACES = 32
"""Column tiles of a block at least: fewer do not pay for reading the rows."""


class Columns(NamedTuple):
    """All rows in tiles sorted by component, and what excludes columns and whole tiles.

    Attributes
    ----------
    tiles : TileSet
    component, core : int32 and float32 arrays of shape (n,)
        Component and core distance, rounded down, of each column.
    tile_component, tile_core : int32 and float64 arrays of shape (n_tiles,)
        The component of all rows of a tile, or -1, and the smallest core distance.
    """

    tiles: TileSet
    component: Any
    core: Any
    tile_component: Any
    tile_core: Any


class Forest:
    """Components of the distinct rows, and the edges found so far.

    Attributes
    ----------
    n_components : int
    rounds : list of dict
        What each round met.
    """

    def __init__(
        self, layout: Layout, neighbors: Neighbors, alpha: float, progress: Progress, watch: Stopwatch,
        queue_capacity: int | None = None, strip_bytes: int = ENTRY_BYTES,
    ) -> None:  # fmt: skip
        cp = cupy()
        self._layout, self._neighbors, self._session = layout, neighbors, layout.session
        self._alpha, self._progress, self._watch = alpha, progress, watch
        self._queue_capacity = queue_capacity or queue_capacity_of(layout.n)
        self._queue: Any = None
        self._pair: Any = None
        self._strip_bytes = strip_bytes
        self.n_components = layout.n
        self.rounds: list[dict[str, Any]] = []
        self._component = cp.empty(layout.n, np.int32)
        self._session.launch_rows(
            "count_up_kernel", layout.n, np.int64(layout.n), np.int64(layout.n), self._component
        )
        n_copies = 0 if layout.copies is None else layout.copies.n
        self._edge_weight = cp.empty(max(1, layout.n - 1 + n_copies), np.uint64)
        self._edge_pair = cp.empty(max(1, layout.n - 1 + n_copies), np.uint64)
        self._n_edges = cp.zeros(1, np.uint64)
        self._n_queued = 0

    def find_listed_edges(self) -> None:
        """Find each component's lightest listed edge, and what an edge that is not listed weighs at least."""
        found = self._neighbors
        with self._watch("listed edges"):
            self._best = self._filled(self.n_components, NO_WEIGHT)
            self._bound = self._filled(self.n_components, NO_WEIGHT)
            self._session.launch_rows(
                "listed_edges_kernel", self._layout.n,
                found.distance, found.column, np.int32(found.list_length), np.int32(found.complete),
                np.int64(self._layout.n), found.core, self._component, np.float64(self._alpha), self._best,
                self._bound,
            )  # fmt: skip

    def scan_active_rows(self) -> int:
        """Scan the rows that lists do not settle, but those of the component with the most of them."""
        self._progress.stage(f"spanning tree, round {len(self.rounds) + 1}", self.n_components)
        with self._watch("active rows"):
            keys, n_active = self._active_rows()
        statistics = {
            "components": self.n_components, "active_rows": n_active, "tile_pairs_share": 0.0,
            "exact_distances": 0,
        }  # fmt: skip
        self._n_queued = 0
        if n_active:
            with self._watch("component tiles"):
                positions, columns = self._positions(keys), self._tiles_by_component()
            with self._watch("tree scan"):
                statistics |= self._scan(positions, columns)
        else:
            self._progress.advance(self.n_components)
        self.rounds.append(statistics)
        return n_active

    def contract(self) -> int:
        """Merge components along their lightest edges."""
        cp = cupy()
        layout, found, m = self._layout, self._neighbors, self.n_components
        with self._watch("contract"):
            pair = self._filled(m, NO_PAIR) if self._pair is None else self._pair
            self._pair = None
            self._session.launch_rows(
                "listed_pairs_kernel", layout.n,
                found.distance, found.column, np.int32(found.list_length), np.int64(layout.n), found.core,
                self._component, layout.row_of, np.float64(self._alpha), self._best, pair,
            )  # fmt: skip
            if self._n_queued:
                self._session.launch_rows(
                    "queued_pairs_kernel", self._n_queued,
                    self._queue, np.int64(self._n_queued), self._best, pair,
                )  # fmt: skip
            parent = cp.empty(m, np.int32)
            self._session.launch_rows(
                "hook_kernel", m,
                self._best, pair, np.int32(m), self._component, layout.position_of, parent,
                self._edge_weight, self._edge_pair, self._n_edges,
            )  # fmt: skip
            longest = m  # path to a root
            for _ in range(m.bit_length()):
                self._session.launch_rows("jump_kernel", m, parent, np.int32(m))
                longest = -(-longest // (HOPS + 1))
                if longest <= 1:
                    break
            is_root = cp.empty(m, np.int64)
            self._session.launch_rows("mark_roots_kernel", m, parent, np.int32(m), is_root)
            number = cp.cumsum(is_root)
            self._session.launch_rows(
                "relabel_kernel", layout.n, parent, number, np.int64(layout.n), self._component
            )
            self.n_components = int(number[-1])
        return self.n_components

    def take_edges(self) -> NDArray[np.void]:
        """Return the edges of all rows, copies included, sorted by (weight, source, target)."""
        cp = cupy()
        layout = self._layout
        n = layout.n - 1
        if layout.copies is not None:
            with self._watch("copies"):
                self._join_copies()
            n += layout.copies.n
        edges = np.empty(n, EDGE_DTYPE)
        if n == 0:
            return edges
        with self._watch("sort"):
            by_pair = cp.argsort(self._edge_pair[:n])
            weight = self._permuted(self._edge_weight, by_pair)
            by_weight = cp.argsort(weight)  # stable: equal weights stay in the order of their pairs
            pair = self._permuted(self._edge_pair, by_pair)
            records = cp.empty((n, 3), np.uint64)
            self._session.launch_rows("pack_edges_kernel", n, weight, pair, by_weight, np.int64(n), records)
        with self._watch("download"):
            records.get(out=edges.view(np.uint64).reshape(n, 3))
        return edges

    def _active_rows(self) -> tuple[Any, int]:
        """Return keys (component, position) of the active rows to scan, sorted, and how many there are."""
        cp = cupy()
        n, m, found = self._layout.n, self.n_components, self._neighbors
        active = cp.empty(n, np.uint8)
        n_active_of = cp.zeros(m, np.uint32)
        self._session.launch_rows(
            "count_active_rows_kernel", n,
            found.distance, np.int32(found.list_length), np.int32(found.complete), np.int64(n), found.core,
            self._component, np.float64(self._alpha), self._best, self._bound, active, n_active_of,
        )  # fmt: skip
        counts = cp.zeros(2, np.uint64)
        most, n_gathered = counts[:1], counts[1:]
        self._session.launch_rows("most_active_kernel", m, n_active_of, np.int32(m), most)
        keys = cp.empty(n, np.uint64)
        self._session.launch_rows(
            "gather_active_rows_kernel", n,
            active, self._component, np.int64(n), most, keys, n_gathered, self._best,
        )  # fmt: skip
        n_active = int(n_gathered.get()[0])
        return cp.sort(keys[:n_active]), n_active

    def _tiles_by_component(self) -> Columns:
        """Return all rows as tiles sorted by component."""
        layout, found = self._layout, self._neighbors
        if self.n_components == layout.n:  # every row its own component: the order as it is
            return self._columns(found.tiles, self._component)
        all_keys = cupy().empty(layout.n, np.uint64)
        self._session.launch_rows(
            "component_keys_kernel", layout.n, self._component, np.int64(layout.n), all_keys
        )
        tiles = TileSet(layout, found.filter.tier, self._positions(cupy().sort(all_keys)))
        return self._columns(tiles, self._component)

    def _columns(self, tiles: TileSet, component: Any) -> Columns:
        cp = cupy()
        columns = Columns(
            tiles, cp.empty(tiles.n, np.int32), cp.empty(tiles.n, np.float32),
            cp.empty(tiles.n_tiles, np.int32), cp.empty(tiles.n_tiles, np.float64),
        )  # fmt: skip
        self._session.launch_rows(
            "component_tiles_kernel", tiles.n_tiles * 32,
            null if tiles.positions is None else tiles.positions, np.int64(tiles.n), np.int32(tiles.n_tiles),
            component, self._neighbors.core, columns.tile_component, columns.tile_core, columns.component,
            columns.core,
        )  # fmt: skip
        return columns

    def _positions(self, keys: Any) -> Any:
        positions = cupy().empty(len(keys), np.int32)
        self._session.launch_rows("positions_of_keys_kernel", len(keys), keys, np.int64(len(keys)), positions)
        return positions

    def _row_sets(self, positions: Any) -> Iterator[TileSet]:
        """Yield rows as tiles, in strips where all at once would take too much memory."""
        layout, tier = self._layout, self._neighbors.filter.tier
        strip = self._strip_bytes // tile_set_bytes(TILE, layout.n_features, layout.frame.n_leading, tier)
        step = max(1, strip) * TILE
        for first in range(0, len(positions), step):
            yield TileSet(layout, tier, positions[first : first + step])

    def _scan(self, positions: Any, columns: Columns) -> dict[str, Any]:
        """Compare active rows with all rows; queue the edges that may be lightest."""
        cp = cupy()
        if self._queue is None:
            self._queue = cp.empty((self._queue_capacity, QUEUE_BYTES // 8), np.uint64)
        counts = cp.zeros(3, np.uint64)
        self._search(positions, columns, counts, self._progress)
        pairs, exact, n_queued = counts.get().tolist()
        if n_queued <= self._queue_capacity:
            self._n_queued = n_queued
        else:  # the weights are known now, so that the pairs need no queue
            self._queue = None
            self._pair = self._filled(self.n_components, NO_PAIR)
            counts = cp.zeros(3, np.uint64)
            self._search(positions, columns, counts, Progress())
            more_pairs, more_exact, _ = counts.get().tolist()
            pairs, exact = pairs + more_pairs, exact + more_exact
        return {"tile_pairs_share": pairs / WARPS / self._layout.n_tiles**2, "exact_distances": exact}

    def _search(
        self, positions: Any, columns: Columns, counts: Any, progress: Progress, smallest: Any = null
    ) -> None:  # fmt: skip
        """Compare rows with all columns, the nearest tiles of all rows first."""
        n, units, n_done = len(positions), self.n_components, 0
        for rows in self._row_sets(positions):
            share = units * (n_done + rows.n) // n - units * n_done // n
            if smallest is null and self._pair is None:
                self._search_phase(rows, columns, counts, smallest, NEAREST_PHASE, Progress(), 0)
            self._search_phase(rows, columns, counts, smallest, ALL_PHASE, progress, share)
            n_done += rows.n
            del rows  # before the next strip is made

    def _search_phase(
        self, rows: TileSet, columns: Columns, counts: Any, smallest: Any, phase: int, progress: Progress,
        units: int,
    ) -> None:  # fmt: skip
        layout, found, session, tiles = self._layout, self._neighbors, self._session, columns.tiles
        n_places = tiles.n_tiles if phase == ALL_PHASE else 1
        work = n_places * TILE * TILE * found.filter.work_per_pair
        pace = Pace(session, rows.n_tiles * work)
        queue, pair = (null if array is None else array for array in (self._queue, self._pair))
        for piece in pace.pieces(rows.n_tiles, n_places, work, progress, units):
            n, places = piece.end - piece.first, (piece.first_place, piece.end_place)
            blocks_of_tile, places_of_block = self._blocks_of_tile(n, places[1] - places[0], phase)
            session.launch(
                f"outgoing_{found.filter.suffix}", n * blocks_of_tile, SCAN_THREADS,
                *rows.arguments, *tiles.arguments, *found.filter.arguments, rows.low, rows.high,
                np.int32(rows.n_tiles), tiles.low, tiles.high, np.int32(tiles.n_tiles),
                np.int32(layout.frame.n_leading), layout.values, np.int64(layout.pitch),
                np.int32(layout.kind == "float64"), layout.row_of, found.core, self._component,
                np.float64(self._alpha), np.float64(layout.frame.scale),
                np.float32(layout.distance_slack), self._best, queue, np.uint32(self._queue_capacity),
                counts[2:], pair, smallest, rows.positions, np.int64(rows.n),
                null if tiles.positions is None else tiles.positions, columns.core, columns.component,
                np.int64(tiles.n), columns.tile_component, columns.tile_core, np.float32(BOX_FACTOR),
                np.int32(piece.first), np.int32(phase), np.int32(blocks_of_tile), np.int64(places_of_block),
                *map(np.int64, places), counts, shared=found.filter.shared,
            )  # fmt: skip

    def _blocks_of_tile(self, n_tiles: int, n_places: int, phase: int) -> tuple[int, int]:
        """Return by how many blocks a row tile is compared, and the places of each."""
        if phase == NEAREST_PHASE:
            return 1, 0
        # Few row tiles leave most of the GPU idle, unless each is compared by several blocks.
        wanted = BLOCKS_PER_MULTIPROCESSOR * self._session.n_multiprocessors
        places_of_block = max(MIN_PLACES, -(-n_places // max(1, wanted // n_tiles)))
        return -(-n_places // places_of_block), places_of_block

    def _join_copies(self) -> None:
        """Append the edge of each copy: to the smallest row within its core distance."""
        cp = cupy()
        layout, found, copies = self._layout, self._neighbors, self._layout.copies
        assert copies is not None
        smallest = cp.empty(layout.n, np.uint32)
        unproven = cp.empty(layout.n, np.uint64)
        n_unproven = cp.zeros(1, np.uint64)
        self._session.launch_rows(
            "smallest_near_kernel", layout.n,
            found.distance, found.column, np.int32(found.list_length), np.int32(found.complete),
            np.int64(layout.n), found.core, layout.row_of, copies.multiplicity, np.float64(self._alpha),
            smallest, unproven, n_unproven,
        )  # fmt: skip
        n = int(n_unproven.get()[0])
        if n:
            positions = self._positions(cp.sort(unproven[:n]))
            columns = self._columns(found.tiles, layout.identity)
            self._search(positions, columns, cp.zeros(3, np.uint64), Progress(), smallest)
        start = layout.n - 1
        self._session.launch_rows(
            "copy_edges_kernel", copies.n,
            copies.row, copies.position, np.int64(copies.n), found.core, smallest, self._edge_weight[start:],
            self._edge_pair[start:],
        )  # fmt: skip

    def _permuted(self, values: Any, order: Any) -> Any:
        permuted = cupy().empty(len(order), np.uint64)
        self._session.launch_rows(
            "permute_u64_kernel", len(order), values, order, np.int64(len(order)), permuted
        )
        return permuted

    def _filled(self, n: int, value: np.uint64) -> Any:
        filled = cupy().empty(n, np.uint64)
        self._session.launch_rows("fill_kernel", n, filled, np.int64(n), value)
        return filled


def queue_capacity_of(n: int) -> int:
    """Edges that the queue has room for."""
    return min(QUEUE_CAPACITY, max(1024, 4 * n))

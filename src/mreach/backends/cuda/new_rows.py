"""New rows against the rows of a fit on the GPU: all pairs, exactly, with no filter before them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.devices import cupy
from mreach.backends.cuda.kernels import NEW_TILE, SCAN_THREADS
from mreach.backends.cuda.memory import HOST_INSTEAD, KEPT_BY_OTHERS, readable_size, usable_bytes
from mreach.backends.cuda.neighbors import ENTRY_BYTES, EXHAUST_WORK
from mreach.backends.cuda.order import null
from mreach.backends.cuda.pace import Pace, Piece
from mreach.backends.cuda.rows import as_rows, can_be_read, upload
from mreach.progress import Progress
from mreach.records import NearestRows

if TYPE_CHECKING:
    from mreach.backends.cuda.session import Session

BLOCKS_PER_MULTIPROCESSOR = 16
"""Blocks of a launch there should be: two run at a time, and the last ones leave some of the GPU idle."""

MAX_PARTS = 256
"""Parts of the fitted rows at most: what each has found is merged at the end."""

STATE_BYTES = 32
"""What a part keeps of a new row beside its squares: count, limit; weight, distance, row."""

ROW_BYTES = 48
"""What is kept of a new row beside its values: core distance, weight, row; and where batches end."""


class Batches(NamedTuple):
    """How new rows are gone through; no result depends on it.

    Attributes
    ----------
    rows : int
        New rows on the GPU at a time: whole tiles.
    n_parts : int
        Parts that the fitted rows are shared out to, so that few new rows keep all of the GPU busy.
    """

    rows: int
    n_parts: int


def find_nearest_rows(
    session: Session,
    X: Any,
    X_new: Any,
    *,
    core_distances: NDArray[np.float64],
    alpha: float,
    min_samples: int,
    new_core_distances: NDArray[np.float64] | None,
    candidates: NDArray[np.bool_] | None,
    progress: Progress,
) -> NearestRows:
    """Find the fitted row of least mutual reachability distance to each new row; see the package's function.

    Raises
    ------
    MemoryError
        The GPU has too little memory for the rows of the fit and a tile of new ones.
    """
    m = len(X_new)
    found = NearestRows(np.empty(m), np.full(m, -1, np.int64), np.full(m, np.inf))
    if new_core_distances is not None:
        found.core_distances[:] = new_core_distances
    allowed = None if candidates is None else np.flatnonzero(candidates).astype(np.int32)
    asks_cores, asks_rows = new_core_distances is None, allowed is None or len(allowed) > 0
    if m == 0 or not (asks_cores or asks_rows):
        return found
    capacity = capacity_of(min_samples) if asks_cores else 0
    batches = _plan(session, X, X_new, capacity, 0 if allowed is None else len(allowed))
    search = _Search(session, X, core_distances, alpha, min_samples, capacity, allowed, batches.n_parts, m)
    progress.stage("new rows", m * (asks_cores + asks_rows))
    for first in range(0, m, batches.rows):
        rows = slice(first, min(m, first + batches.rows))
        values = _on_device(X_new[rows])
        if asks_cores:
            core = search.cores(values, progress)
            found.core_distances[rows] = core.get()
        else:
            core = upload(np.ascontiguousarray(found.core_distances[rows]))
        if asks_rows:
            weights, numbers = search.lightest(values, core, progress)
            found.weights[rows], found.rows[rows] = weights.get(), numbers.get()
    return found


def capacity_of(k: int) -> int:
    """Squares of a new row that a part has room for: thinned out to k where a tile more might not fit."""
    return 2 * k + 3 * NEW_TILE


class _Search:
    """Fitted rows on the GPU, and the two passes over them."""

    def __init__(
        self, session: Session, X: Any, core_distances: NDArray[np.float64], alpha: float, min_samples: int,
        capacity: int, allowed: NDArray[np.int32] | None, n_parts: int, n_new: int,
    ) -> None:  # fmt: skip
        self._session, self._alpha, self._k, self._capacity = session, alpha, min_samples, capacity
        self._values = _on_device(X)
        self._kind = self._values.dtype.name
        self._n, self._n_features = self._values.shape
        self._core = upload(np.ascontiguousarray(core_distances, np.float64))
        self._allowed = null if allowed is None else upload(allowed)
        self._n_allowed = self._n if allowed is None else len(allowed)
        self._n_parts = n_parts
        work = n_new * self._n_features * EXHAUST_WORK
        self._core_pace = Pace(session, work * self._n)
        self._row_pace = Pace(session, work * self._n_allowed)

    def cores(self, new: Any, progress: Progress) -> Any:
        """Return the distance from each new row to its k-th nearest fitted row, float64 of shape (n_new,)."""
        cp = cupy()
        m, parts = len(new), self._n_parts
        squares = cp.empty((m, parts, self._capacity), np.float64)
        counts, limits = cp.empty((m, parts), np.int32), cp.empty((m, parts), np.float64)
        for piece, rows in self._pieces(self._core_pace, m, self._n, progress):
            self._session.launch(
                f"squares_near_new_{self._kind}_kernel", (piece.end - piece.first) * parts, SCAN_THREADS,
                new[rows], np.int64(m - rows.start), self._values, *self._columns(piece, self._n),
                np.int32(self._n_features), np.int32(piece.opens), np.int32(self._k),
                np.int32(self._capacity), squares[rows], counts[rows], limits[rows],
            )  # fmt: skip
        core = cp.empty(m, np.float64)
        self._session.launch_rows(
            "cores_of_new_kernel", m * 32,
            squares, counts, np.int64(m), np.int32(parts), np.int32(self._capacity), np.int32(self._k), core,
        )  # fmt: skip
        return core

    def lightest(self, new: Any, new_core: Any, progress: Progress) -> tuple[Any, Any]:
        """Return weight and number of the fitted row that comes first for each new row."""
        cp = cupy()
        m, parts = len(new), self._n_parts
        weights, distances = cp.empty((m, parts), np.float64), cp.empty((m, parts), np.float64)
        numbers = cp.empty((m, parts), np.int32)
        for piece, rows in self._pieces(self._row_pace, m, self._n_allowed, progress):
            self._session.launch(
                f"lightest_to_new_{self._kind}_kernel", (piece.end - piece.first) * parts, SCAN_THREADS,
                new[rows], np.int64(m - rows.start), self._values, self._allowed,
                *self._columns(piece, self._n_allowed), np.int32(self._n_features), np.int32(piece.opens),
                new_core[rows], self._core, np.float64(self._alpha), weights[rows], distances[rows],
                numbers[rows],
            )  # fmt: skip
        weight, number = cp.empty(m, np.float64), cp.empty(m, np.int32)
        self._session.launch_rows(
            f"lightest_of_parts_{self._kind}_kernel", m,
            self._values, np.int32(self._n_features), weights, distances, numbers, np.int64(m),
            np.int32(parts), weight, number,
        )  # fmt: skip
        return weight, number

    def _pieces(
        self, pace: Pace, n_new: int, n_fitted: int, progress: Progress
    ) -> Iterator[tuple[Piece, slice]]:
        """Yield the launches for a batch, and which of its rows each is about."""
        work = NEW_TILE * n_fitted * self._n_features * EXHAUST_WORK
        for piece in pace.pieces(tiles_of(n_new), tiles_of(n_fitted), work, progress, n_new):
            yield piece, slice(piece.first * NEW_TILE, min(n_new, piece.end * NEW_TILE))

    def _columns(self, piece: Piece, n_fitted: int) -> tuple[np.generic, ...]:
        """Return what the kernels take: which fitted rows, how many of them a part has, and the parts."""
        tiles_of_part = -(-(piece.end_place - piece.first_place) // self._n_parts)
        end = min(n_fitted, piece.end_place * NEW_TILE)
        return (
            np.int64(piece.first_place * NEW_TILE), np.int64(end), np.int64(tiles_of_part * NEW_TILE),
            np.int32(self._n_parts),
        )  # fmt: skip


def tiles_of(n: int) -> int:
    """Tiles that rows take."""
    return -(-n // NEW_TILE)


def _is_read_in_place(X: Any) -> bool:
    return not isinstance(X, np.ndarray) and can_be_read(X)


def _on_device(X: Any) -> Any:
    return upload(X) if isinstance(X, np.ndarray) else as_rows(X)


def _plan(session: Session, X: Any, X_new: Any, capacity: int, n_allowed: int) -> Batches:
    """Choose how many new rows are gone through at a time, and in how many parts, by what is free."""
    free, total = session.device.mem_info
    n, n_features = X.shape
    copied = 0 if _is_read_in_place(X) else X.nbytes
    fitted = copied + 8 * n + 4 * n_allowed
    slot = 8 * capacity + STATE_BYTES
    row = n_features * X_new.dtype.itemsize + ROW_BYTES
    least = NEW_TILE * (slot + row)
    if usable_bytes(free) < fitted + least:
        raise MemoryError(
            f"a search among {n} rows x {n_features} features takes at least "
            f"{readable_size(fitted + least)} on device={session.device.id}, which has "
            f"{readable_size(free)} free of {readable_size(total)}. {HOST_INSTEAD} {KEPT_BY_OTHERS}"
        )
    n_tiles = tiles_of(len(X_new))
    wanted = -(-BLOCKS_PER_MULTIPROCESSOR * session.n_multiprocessors // n_tiles)
    tile_room = max(least, min(ENTRY_BYTES, usable_bytes(free) - fitted)) // NEW_TILE
    n_parts = max(1, min(wanted, MAX_PARTS, tiles_of(n), (tile_room // n_tiles - row) // slot))
    return Batches(NEW_TILE * min(n_tiles, tile_room // (row + n_parts * slot)), n_parts)

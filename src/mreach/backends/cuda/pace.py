"""Launches of measured length: short enough for a display driver, a progress bar and Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mreach.backends.cuda.kernels import SCAN_THREADS
from mreach.progress import Progress

if TYPE_CHECKING:
    from mreach.backends.cuda.session import Session

TARGET_LAUNCH_SECONDS = 0.25
"""What one launch should take."""

FIRST_RATE = 2e13
"""Units of work a second that are assumed before the first launch is measured; low, so that it is short."""

FULL_TILES = 256
"""Row tiles that keep a GPU busy: with fewer in a launch, a shorter launch does not save as much time."""

PLACES_AT_ONCE = SCAN_THREADS
"""Places of a launch are a multiple of this: a block looks at so many boxes at a time."""


class Piece(NamedTuple):
    """What one launch does: row tiles ``first`` to ``end`` at the places ``first_place`` to ``end_place``."""

    first: int
    end: int
    first_place: int
    end_place: int
    opens: bool  # the first places of its tiles
    closes: bool  # their last


class Pace:
    """Cuts work into launches: measures them, and makes the next ones as large as the target allows.

    Where all the work is expected to fit into one launch nothing is measured, and nobody waits.

    Parameters
    ----------
    session : Session
    total : float
        All the work, in units that take about the same time each.
    """

    def __init__(self, session: Session, total: float) -> None:
        self._session = session
        # First places apart from later ones: those are near and compared, these mostly far and skipped.
        self._rate: list[float | None] = [None, None]
        self._waits = total > FIRST_RATE * TARGET_LAUNCH_SECONDS

    def pieces(
        self, n_tiles: int, n_places: int, work: float, progress: Progress, units: int,
        most: int | None = None,
    ) -> Iterator[Piece]:  # fmt: skip
        """Yield the launches for some row tiles, each to be made before the next one is asked for.

        Parameters
        ----------
        n_tiles, n_places : int
            Row tiles, and places that each is compared at.
        work : float
            Of a row tile, over all places.
        progress : Progress
            Advanced by ``units`` in all.
        units : int
        most : int, optional
            Row tiles of a launch at most.
        """
        if self._waits:
            self._session.stream.synchronize()  # so that the first launch is measured alone
        first = done = 0
        for _ in range(n_tiles):
            n = min(n_tiles - first, self._tiles(n_places, work), most or n_tiles)
            place = 0
            for _ in range(n_places):
                end_place = min(n_places, place + self._places(place > 0, n * work / n_places))
                start = time.perf_counter()
                yield Piece(first, first + n, place, end_place, place == 0, end_place == n_places)
                self._measure(place > 0, n * work * (end_place - place) / n_places, start)
                now = units * (first * n_places + n * end_place) // (n_tiles * n_places)
                progress.advance(now - done)
                done, place = now, end_place
                if place == n_places:
                    break
            first += n
            if first == n_tiles:
                break

    def _affordable(self, far: bool) -> float:
        """Return the work of a launch that takes the target."""
        rate = self._rate[far] or self._rate[not far] or FIRST_RATE
        return rate * TARGET_LAUNCH_SECONDS

    def _tiles(self, n_places: int, work: float) -> int:
        """Return the row tiles of a launch: with all places, or enough of them with few places."""
        affordable = self._affordable(False)
        few = work * min(1.0, PLACES_AT_ONCE / n_places)
        return max(1, int(affordable / work), min(FULL_TILES, int(affordable / few)))

    def _places(self, far: bool, work_per_place: float) -> int:
        """Return the places of a launch."""
        affordable = int(self._affordable(far) / (work_per_place * PLACES_AT_ONCE))
        return max(1, affordable) * PLACES_AT_ONCE

    def _measure(self, far: bool, work: float, start: float) -> None:
        if self._waits:
            self._session.stream.synchronize()  # also where an interrupt comes through
            self._rate[far] = work / max(time.perf_counter() - start, 1e-6)

"""Launches of measured length: short enough for a display driver, a progress bar and Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mreach.backends.cuda.session import Session

TARGET_LAUNCH_SECONDS = 0.25
"""What one launch should take."""

FIRST_RATE = 2e13
"""Units of work a second that are assumed before the first launch is measured; low, so that it is short."""


class Pace:
    """Measures launches and says how much work the next one may hold.

    Where all the work is expected to fit into one launch nothing is measured, and nobody waits.

    Parameters
    ----------
    session : Session
    total : float
        All the work, in units that take about the same time each.
    """

    def __init__(self, session: Session, total: float) -> None:
        self._session = session
        self._rate = FIRST_RATE
        self._waits = total > FIRST_RATE * TARGET_LAUNCH_SECONDS

    def affordable(self, unit: float) -> int:
        """Return how many pieces of ``unit`` work one launch may hold; at least one."""
        return max(1, int(self._rate * TARGET_LAUNCH_SECONDS / unit))

    @contextmanager
    def __call__(self, work: float) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self._waits:
            self._session.stream.synchronize()  # also where an interrupt comes through
            self._rate = work / max(time.perf_counter() - start, 1e-6)

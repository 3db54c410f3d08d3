"""Seconds of the stages of a fit on the GPU, measured only where somebody asked for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mreach.backends.cuda.session import Session


class Stopwatch:
    """``with watch("filter"): ...`` adds to ``seconds["filter"]``, waiting for the stream at the end.

    Without ``measure`` it does nothing: work is then handed to the GPU without waiting.
    """

    def __init__(self, session: Session, measure: bool) -> None:
        self._session = session
        self._measure = measure
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self._measure:
            self._session.stream.synchronize()
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start

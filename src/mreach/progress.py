"""One progress bar for a whole piece of work, calls of a function in its place, or nothing.

The stages of the work call three methods and never ask whether anybody is looking: ``stage`` when they begin,
``advance`` between pieces of work, ``close`` (or the ``with`` statement) at the end. All calls come from the
thread that was asked to do the work.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

ProgressCallback = Callable[[str, int, "int | None"], Any]
"""``callback(stage, done, total)``: name of the stage, units done, units in all (None: not known before)."""


class Progress:
    """Silent progress: every method does nothing. Also the interface that stages are written against."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage.

        Parameters
        ----------
        name : str
            What is being computed, shown beside the bar.
        total : int, optional
            Number of units that ``advance`` will report; None where it is not known before the work is done.
        """

    def advance(self, k: int = 1) -> None:
        """Report that ``k`` more units of the current stage are done."""

    def close(self) -> None:
        """End the bar. May be called more than once."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BarProgress(Progress):
    """Progress shown as one tqdm bar on standard error (or in the notebook), relabelled at each stage."""

    def __init__(self) -> None:
        self._bar: Any = None

    def stage(self, name: str, total: int | None = None) -> None:
        """Relabel the bar and start counting from zero again."""
        if self._bar is None:
            from tqdm.auto import tqdm  # imported where used: most fits show no bar

            self._bar = tqdm(desc=name, total=total, leave=True)
            return
        self._bar.set_description(name, refresh=False)
        self._bar.total = total  # before reset(), which draws, and keeps the old total where it is given None
        self._bar.reset()

    def advance(self, k: int = 1) -> None:
        """Move the bar by ``k`` units."""
        self._bar.update(k)

    def close(self) -> None:
        """End the bar, leaving its last state on the screen."""
        if self._bar is not None:
            self._bar.close()


class CallbackProgress(Progress):
    """Progress told to a function, for programs with a display of their own.

    What the function raises ends the work and reaches the caller: a way to cancel it.
    """

    def __init__(self, callback: ProgressCallback) -> None:
        self._callback = callback
        self._name, self._done = "", 0
        self._total: int | None = None

    def stage(self, name: str, total: int | None = None) -> None:
        """Tell that nothing of a new stage is done yet."""
        self._name, self._done, self._total = name, 0, total
        self._callback(name, 0, total)

    def advance(self, k: int = 1) -> None:
        """Tell how much is done now."""
        self._done += k
        self._callback(self._name, self._done, self._total)


def open_progress(show: bool | ProgressCallback) -> Progress:
    """Return a progress bar if ``show`` is true, else a silent object with the same methods.

    A function is called as ``show(stage, done, total)`` instead.
    """
    if callable(show):
        return CallbackProgress(show)
    return BarProgress() if show else Progress()

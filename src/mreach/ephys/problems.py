"""What is wrong with clips, though not with how they were asked for: a warning, or an error on request."""

from __future__ import annotations

import warnings

from mreach.callers import users_level

__all__ = ["ClipsError", "ClipsWarning", "report"]


class ClipsWarning(UserWarning):
    """Clips that a spike sorter may not get on with, or that are hardly what was wanted of a recording."""


class ClipsError(ValueError):
    """The same as an error, where ``on_problem="raise"`` was asked for."""


def report(message: str, on_problem: str = "warn") -> None:
    """Warn the first caller outside of this package.

    Raises
    ------
    ClipsError
        Instead, where ``on_problem`` is "raise".
    """
    if on_problem == "raise":
        raise ClipsError(message)
    warnings.warn(message, ClipsWarning, stacklevel=users_level())

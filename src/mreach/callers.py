"""Whose call it is: warnings name the line of the user, not one of this package."""

from __future__ import annotations

import inspect

__all__ = ["users_level"]


def users_level() -> int:
    """Return the level of the first caller outside of this package, for whom a warning is."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "mreach":
        level, frame = level + 1, frame.f_back
    return level - 1

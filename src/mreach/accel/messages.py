"""What is said to the user: each thing once."""

from __future__ import annotations

import logging
import threading

__all__ = ["forget", "say_once"]

_logger = logging.getLogger("mreach.accel")
_lock = threading.Lock()
_said: set[str] = set()


def say_once(message: str) -> None:
    """Log a message, unless it has been.

    Its level is WARNING, so that a program that has set up no logging shows it as one line on stderr.
    ``warnings.warn`` would make a program fail under ``python -W error`` that runs without it.
    """
    with _lock:
        if message in _said:
            return
        _said.add(message)
    _logger.warning("mreach.accel: %s", message)


def forget() -> None:
    """Say everything again from now on."""
    with _lock:
        _said.clear()

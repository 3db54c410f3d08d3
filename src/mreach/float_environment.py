"""Arithmetic as the contract states it, whatever another library left behind in this thread."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def default_float_environment() -> AbstractContextManager[None]:
    """Return a context in which this thread rounds to nearest and keeps subnormal numbers.

    A library built with ``-ffast-math`` may have switched subnormals off in the thread that loaded it, and a
    thread may round in another direction. Where the compiled core is missing (backend "reference" works
    without it) the context changes nothing.
    """
    try:
        from mreach import _core
    except ImportError:
        return nullcontext()
    environment: AbstractContextManager[None] = _core.FloatEnvironment()
    return environment

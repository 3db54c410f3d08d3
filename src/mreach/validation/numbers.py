"""Single values of parameters, read into plain Python values."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np


class InvalidParameterError(ValueError, TypeError):
    """A parameter has the wrong type or a value outside its range."""


def is_number(value: Any) -> bool:
    """Tell a real number from everything else; True, False and time spans are no numbers here."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_, np.timedelta64))


def integer_of(name: str, value: Any, least: int | None, hint: str = "") -> int:
    wanted = "an integer" if least is None else f"an integer of at least {least}"
    refusal = InvalidParameterError(f"{name} must be {wanted}, got {value!r}{hint}")
    if not is_number(value):
        raise refusal
    try:
        number = int(value)
    except (OverflowError, ValueError):  # infinity, NaN
        raise refusal from None
    if number != value:
        raise refusal
    if least is not None and number < least:
        raise refusal
    return number


def real_of(name: str, value: Any, hint: str) -> float:
    if not is_number(value):
        raise InvalidParameterError(f"{name} must be a number, got {value!r}{hint}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidParameterError(f"{name} must be a finite number, got {value!r}{hint}")
    return number


def boolean_of(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidParameterError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def one_of(name: str, value: Any, valid: tuple[str, ...], hint: str = "") -> str:
    if not isinstance(value, str) or value not in valid:
        listed = ", ".join(repr(one) for one in valid)
        some = "one of " if len(valid) > 1 else ""
        raise InvalidParameterError(f"{name} must be {some}{listed}, got {value!r}{hint}")
    return str(value)


def check_progress(progress: Any) -> Any:
    """Check whether, or to which function, progress is to be shown; return True, False or the function."""
    if callable(progress) or isinstance(progress, (bool, np.bool_)):
        return progress if callable(progress) else bool(progress)
    raise InvalidParameterError(
        f"progress must be True, False or a function of (stage, done, total), got {progress!r}"
    )

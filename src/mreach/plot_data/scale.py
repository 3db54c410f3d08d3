"""Axes on which infinity has a place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scale"]

Floats = NDArray[np.float64]

LARGEST_DRAWN, SMALLEST_DRAWN = 1e300, 1e-300
"""Larger numbers are drawn as infinity, smaller ones as 0: an axis reaches somewhat beyond what it shows."""

BEYOND = 0.06
"""How far beyond the largest finite number infinity is drawn, as a part of the axis."""


class Scale(NamedTuple):
    """An axis on which infinity, and zero where the axis is logarithmic, have a place.

    Attributes
    ----------
    start : float
        Where 0 is drawn: 0, or below the smallest positive number on a logarithmic axis.
    infinity : float
        Where infinity is drawn: above the largest finite number.
    has_infinity : bool
        Whether a number is infinite.
    is_log : bool
    """

    start: float
    infinity: float
    has_infinity: bool
    is_log: bool

    @classmethod
    def of(cls, values: Floats, is_log: bool = False) -> Scale:
        """Return the scale for numbers of at least 0."""
        finite = values[values <= LARGEST_DRAWN]
        has_infinity = len(finite) < len(values)
        top = float(finite.max(initial=0.0))
        if not is_log or top < SMALLEST_DRAWN:
            return cls(0.0, top * (1 + BEYOND) if top >= SMALLEST_DRAWN else 1.0, has_infinity, False)
        low = float(finite[finite >= SMALLEST_DRAWN].min())
        step = 10 ** min(
            max(BEYOND * (np.log10(top) - np.log10(low)), 0.04), 6.0
        )  # a range may have 600 decades
        return cls(low / step, top * step, has_infinity, True)

    def place(self, values: Floats) -> Floats:
        """Return where numbers are drawn, all finite."""
        return np.maximum(np.where(values <= LARGEST_DRAWN, values, self.infinity), self.start)

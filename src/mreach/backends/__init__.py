"""The choice of a backend: one visible function, never a silent replacement.

A backend is a module with ``NAME`` and ``open_points(X, *, n_threads, progress)``. What it computes is the
same for all of them, bit for bit; they differ in speed and in the memory they need.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

BACKENDS = ("reference", "cpu", "cuda")

_DESCRIPTIONS = {
    "reference": "NumPy, whole distance matrix: the definition, for tests and small data",
    "cpu": "compiled core, all CPU cores, memory linear in the number of rows",
    "cuda": "NVIDIA GPU",
}

# The reference keeps one float64 matrix and, for a moment, a second one of the same size.
_REFERENCE_BYTES_PER_PAIR = 16


def available_backends() -> dict[str, dict[str, Any]]:
    """Say which backends exist and why one of them cannot run here.

    Returns
    -------
    dict of str to dict
        For each backend name: ``available`` (bool), ``reason`` (str, or None where it is available) and
        ``description`` (str).

    Examples
    --------
    >>> import mreach
    >>> mreach.available_backends()["reference"]["available"]
    True
    """
    return {
        name: {"available": reason is None, "reason": reason, "description": _DESCRIPTIONS[name]}
        for name, reason in ((name, _why_not(name)) for name in BACKENDS)
    }


def select_backend(name: str, device: int | None, n_rows: int, n_features: int) -> ModuleType:
    """Return the module that will compute a fit.

    Parameters
    ----------
    name : {"auto", "reference", "cpu", "cuda"}
        "auto" takes the fastest one that this version has for the data: the compiled "cpu". It never falls
        back to "reference", which needs memory for all pairs of rows.
    device : int or None
        Index of the GPU; None on every backend of this version.
    n_rows, n_features : int
        Shape of the rows to be clustered.

    Raises
    ------
    RuntimeError
        The backend cannot run on this machine; the message says why.
    MemoryError
        The whole matrix of backend "reference" would not fit into the memory of this machine.
    """
    chosen = "cpu" if name == "auto" else name
    reason = _why_not(chosen)
    if reason is not None:
        asked = f"backend={name!r}" + (" chooses 'cpu', which" if name == "auto" else "")
        raise RuntimeError(
            f"{asked} cannot run here: {reason}. mreach.available_backends() lists what can; "
            "backend='reference' always works, for small data."
        )
    if chosen == "reference":
        _check_reference_memory(n_rows)
    return importlib.import_module(f"mreach.backends.{chosen}")


def _why_not(name: str) -> str | None:
    """Return why a backend cannot run here, or None if it can."""
    if name == "cuda":
        return "the GPU backend is not part of this version of mreach"
    try:
        importlib.import_module(f"mreach.backends.{name}")
    except ImportError as error:
        return (
            f"the compiled core of mreach could not be imported ({error}); install mreach with pip "
            "(a C++ compiler is needed where there is no wheel)"
        )
    return None


def _check_reference_memory(n_rows: int) -> None:
    try:
        installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system tells; NumPy then raises by itself
        return
    needed = _REFERENCE_BYTES_PER_PAIR * n_rows * n_rows
    if needed > installed:
        fits = int((installed / _REFERENCE_BYTES_PER_PAIR) ** 0.5)
        raise MemoryError(
            f"backend='reference' holds the whole distance matrix: {needed / 1e9:.1f} GB for {n_rows} rows, "
            f"and this machine has {installed / 1e9:.1f} GB (enough for about {fits} rows). "
            "Use backend='cpu', which gives the same result in memory linear in the rows."
        )

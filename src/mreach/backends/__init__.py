"""The choice of a backend: one visible function, never a silent replacement.

A backend is a module with ``NAME``, ``hold_rows(X, *, device, min_samples)``, which keeps the data of a fit
where it computes, and ``open_points(X, *, n_threads, progress)``. What it computes is the same for all of
them, bit for bit; they differ in speed and in the memory they need.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

from mreach.backends.cuda import devices

BACKENDS = ("reference", "cpu", "cuda")

_DESCRIPTIONS = {
    "reference": "NumPy, whole distance matrix: the definition, for tests and small data",
    "cpu": "compiled core, all CPU cores, memory linear in the number of rows",
    "cuda": "NVIDIA GPU from compute capability 7.5 (Turing) on, through CuPy",
}

CUDA_MIN_ROWS = 50_000
"""From so many rows on "auto" takes a GPU: with fewer, the compiled core is done before a GPU is awake."""

CUDA_MIN_ROWS_FEW_FEATURES = 200_000
"""The same for rows with few features, which the compiled core gets through in less than quadratic time."""

FEW_FEATURES = 16

CUDA_MAX_FEATURES = 1 << 14
"""The margins of the GPU's filter are proved for so many features (docs/filter.md)."""

CUDA_MAX_MIN_SAMPLES = 1 << 16
"""Each lane of the GPU counts a row's candidates in 16 bits: so many neighbours leave room to spare."""

WITHOUT_CORE = "backend='reference' always works, for small data."

# The reference keeps one float64 matrix and, for a moment, a second one of the same size.
_REFERENCE_BYTES_PER_PAIR = 16


def available_backends() -> dict[str, dict[str, Any]]:
    """Say which backends exist and why one of them cannot run here.

    Returns
    -------
    dict of str to dict
        For each backend name: ``available`` (bool), ``reason`` (str, or None where it is available) and
        ``description`` (str). "cuda" also has ``devices``, a list of dict: ``index``, ``name``, ``memory``
        (bytes), ``compute_capability`` (such as "9.0"), ``available`` and ``reason`` of each GPU. Looking for
        GPUs imports CuPy, where it is installed.

    Examples
    --------
    >>> import mreach
    >>> mreach.available_backends()["reference"]["available"]
    True
    """
    backends: dict[str, dict[str, Any]] = {
        name: {"available": reason is None, "reason": reason, "description": _DESCRIPTIONS[name]}
        for name, reason in ((name, why_not(name)) for name in BACKENDS)
    }
    backends["cuda"]["devices"] = devices.list_devices()
    return backends


def select_backend(
    name: str, device: int | None, n_rows: int, n_features: int, min_samples: int = 1
) -> ModuleType:
    """Return the module that will compute a fit.

    Parameters
    ----------
    name : {"auto", "reference", "cpu", "cuda"}
        "auto" takes the fastest one for the data: "cuda" where there is a GPU that can be used and the data
        are large enough to gain from it, else "cpu". It never takes "reference", which needs memory for all
        pairs of rows.
    device : int or None
        Index of the GPU that was asked for, or that holds the data: "auto" then means "cuda".
    n_rows, n_features : int
        Shape of the data.
    min_samples : int
        More than ``n_rows`` are not this function's business.

    Raises
    ------
    RuntimeError
        The backend cannot run on this machine; the message says why.
    MemoryError
        The whole matrix of backend "reference" would not fit into the memory of this machine.
    """
    chosen = _automatic(device, n_rows, n_features, min_samples) if name == "auto" else name
    reason = why_not(chosen, device)
    if reason is None and chosen == "cuda":
        reason = _beyond_cuda(n_rows, n_features, min_samples)
    if reason is not None:
        with_device = "" if device is None else f" with device={device}"
        asked = f"backend={name!r}{with_device}" + (f" chooses {chosen!r}, which" if name == "auto" else "")
        raise RuntimeError(
            f"{asked} cannot run here: {reason}. mreach.available_backends() lists what can; "
            + ("backend='cpu' gives the same result." if chosen == "cuda" else WITHOUT_CORE)
        )
    if chosen == "reference":
        _check_reference_memory(n_rows)
    return importlib.import_module(f"mreach.backends.{chosen}")


def _automatic(device: int | None, n_rows: int, n_features: int, min_samples: int) -> str:
    """Choose for "auto". Data too small to gain from a GPU do not even import CuPy."""
    if device is not None:
        return "cuda"
    least = CUDA_MIN_ROWS_FEW_FEATURES if n_features <= FEW_FEATURES else CUDA_MIN_ROWS
    fits = n_rows >= least and _beyond_cuda(n_rows, n_features, min_samples) is None
    return "cuda" if fits and devices.why_not() is None else "cpu"


def _beyond_cuda(n_rows: int, n_features: int, min_samples: int) -> str | None:
    """Say which limit of backend "cuda" a fit goes beyond, or None."""
    if n_features > CUDA_MAX_FEATURES:
        return f"it takes {CUDA_MAX_FEATURES} features at most, X has {n_features}; backend='cpu' takes any"
    if CUDA_MAX_MIN_SAMPLES < min_samples <= n_rows:
        most = f"min_samples up to {CUDA_MAX_MIN_SAMPLES}"
        return f"it takes {most}, got {min_samples}; backend='cpu' takes any"
    return None


def why_not(name: str, device: int | None = None) -> str | None:
    """Return why a backend cannot run here (on this GPU), or None if it can."""
    if name == "cuda":
        return devices.why_not(device)
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

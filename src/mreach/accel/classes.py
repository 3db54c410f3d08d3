"""What the accelerated classes of both libraries share."""

from __future__ import annotations

import abc
import importlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from mreach.accel.messages import say_once
from mreach.accel.support import Rule, Unsupported
from mreach.advice import without_advice
from mreach.estimator import HDBSCAN

__all__ = ["REFUSALS", "Accelerated", "accelerated_class", "fitted", "made_once", "say_left_to"]

REFUSALS = (Unsupported, TypeError, ValueError)
"""What leaves a fit to the library: mreach does not do it, or the library has its own error to raise."""

MOST_CHARACTERS = 300
"""Of a reason that is said: scikit-learn puts whole arrays into its errors."""

_lock = threading.Lock()


class Accelerated:
    """Base of the accelerated classes, in front of the original one.

    Parameters are those of the original class: ``__init__`` is inherited, so ``get_params``, ``clone`` and
    ``repr`` are, too.
    """

    _library: str
    _table: Mapping[str, Rule]

    def fit(self, X: Any, y: Any = None) -> Any:
        """Cluster the rows of ``X``, by mreach where it can, else as the original class does.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : None
            Ignored.

        Returns
        -------
        The estimator itself.

        Raises
        ------
        What the original class raises, and MemoryError where the memory does not suffice.
        """
        self.__dict__.pop("mreach_", None)
        try:
            self._fit_by_mreach(X)
        except REFUSALS as reason:
            say_left_to(self._library, reason)
            self._before_original_fit()
            super().fit(X, y)  # type: ignore[misc]
        return self

    def _fit_by_mreach(self, X: Any) -> None:
        """Fit, and set the attributes of the library. Raises Unsupported, or what mreach raises."""
        raise NotImplementedError

    def _before_original_fit(self) -> None:
        """Take away what an earlier fit by mreach has left and the original would not replace."""


def say_left_to(library: str, reason: Exception) -> None:
    """Say why the library itself computes; each reason once."""
    text = " ".join(str(reason).split())
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]}..."
    say_once(f"{library} itself computes where mreach cannot: {text}")


def fitted(parameters: dict[str, Any], X: Any) -> HDBSCAN:
    """Fit an estimator of mreach. The libraries say nothing where all rows are noise: nor is it said here."""
    with without_advice():
        return HDBSCAN(**parameters).fit(X)


def accelerated_class(mixin: type[Accelerated], original_module: str, module: str) -> type:
    """Make the accelerated class of a library; once in a process.

    Parameters
    ----------
    mixin : type
        What fits by mreach.
    original_module : str
        The module that defines the original class ``HDBSCAN``; imported here.
    module : str
        The module in which the new class is found by its name ``HDBSCAN``, for pickle.

    Returns
    -------
    type
        A subclass of the original. Objects of the original are instances of it, too, so that code which asks
        ``isinstance(model, hdbscan.HDBSCAN)`` takes models that were made before.

    Raises
    ------
    ImportError
        The library is not installed.
    AttributeError
        It has no HDBSCAN.
    """
    return made_once(module, "HDBSCAN", original_module, lambda original: _subclass(mixin, original, module))


def made_once(module: str, name: str, original_module: str, make: Callable[[Any], Any]) -> Any:
    """Return what a module has by a name; before it is there, make it from what another module has."""
    # Outside of the lock: another thread may wait for it while it imports the library.
    original = getattr(importlib.import_module(original_module), name)
    found_in = vars(importlib.import_module(module))
    with _lock:
        if name not in found_in:
            found_in[name] = make(original)
        return found_in[name]


def _subclass(mixin: type[Accelerated], original: type, module: str) -> type:
    def subclass_hook(cls: type, other: type) -> Any:
        # Only for the class itself: a user's subclass of it means what it says.
        return issubclass(other, original) or NotImplemented if cls is made else NotImplemented

    namespace = {
        "__module__": module,
        "__qualname__": "HDBSCAN",
        "__doc__": f"{original.__doc__}\n\n    Fits are computed by mreach (mreach.accel).\n",
        "__subclasshook__": classmethod(subclass_hook),
        "_original": original,
    }
    made = abc.ABCMeta("HDBSCAN", (mixin, original), namespace)
    return made

"""Arrays that remember something of their fit."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tree", "plain"]

SHAPING = (
    "argpartition",
    "argsort",
    "astype",
    "byteswap",
    "compress",
    "conj",
    "conjugate",
    "diagonal",
    "dot",
    "flatten",
    "getfield",
    "ravel",
    "repeat",
    "reshape",
    "squeeze",
    "swapaxes",
    "take",
    "transpose",
    "view",
)
"""Methods of arrays that would hand on the class to something that is not the tree any more."""

PARTS = ("T", "flat", "imag", "mT", "real")
"""Attributes of arrays that would do so."""


class Tree(np.ndarray):
    """A NumPy array that remembers something of its fit; parts and results are plain arrays.

    A copy and a pickle remember it, too. Changing the values of a tree in place is possible and unwise.
    """

    _memory: dict[str, Any]

    @classmethod
    def _of(cls, values: NDArray[Any], **memory: Any) -> Any:
        """Return a view of an array, without a copy, that remembers ``memory``."""
        tree = values.view(cls)
        tree._memory = memory
        return tree

    def __array_finalize__(self, source: Any) -> None:
        self._memory = source._memory if isinstance(source, type(self)) else {}

    def __getitem__(self, key: Any) -> Any:
        return plain(self)[key]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        out = keywords.get("out")
        if out is not None:
            keywords["out"] = tuple(plain(one) for one in out)
        result = getattr(ufunc, method)(*(plain(one) for one in inputs), **keywords)
        return out[0] if out is not None and len(out) == 1 else result

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        return plain(super().__array_function__(function, types, arguments, keywords))

    # Records compare without a ufunc.
    def __eq__(self, other: Any) -> Any:
        return plain(self) == plain(other)

    def __ne__(self, other: Any) -> Any:
        return plain(self) != plain(other)

    __hash__ = None  # as of every array

    # What functions of numpy.linalg make is wrapped by this, and not by the methods above.
    def __array_wrap__(self, values: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return plain(values)[()] if return_scalar else plain(values)

    def __reduce__(self) -> Any:
        make, arguments, state = cast(tuple[Any, Any, Any], super().__reduce__())
        return make, arguments, (state, self._memory)

    def __setstate__(self, state: Any) -> None:
        values, self._memory = state
        super().__setstate__(values)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._summary()}>\n{np.array2string(plain(self), threshold=20)}"

    def _summary(self) -> str:
        return f"shape {self.shape}"

    def to_numpy(self) -> NDArray[Any]:
        """Return a copy of the values, a plain NumPy array."""
        return plain(self).copy()


def _plain_method(name: str) -> Any:
    def method(self: Tree, *arguments: Any, **keywords: Any) -> Any:
        return getattr(plain(self), name)(*arguments, **keywords)

    method.__name__ = name
    method.__doc__ = f"As ``numpy.ndarray.{name}``, of a plain array."
    return method


def _plain_property(name: str) -> property:
    return property(
        lambda tree: getattr(plain(tree), name), doc=f"As ``numpy.ndarray.{name}``, of a plain array."
    )


for _name in SHAPING:
    setattr(Tree, _name, _plain_method(_name))
for _name in PARTS:
    setattr(Tree, _name, _plain_property(_name))


def plain(value: Any) -> Any:
    """Return a tree, or the trees in a tuple or list, as plain arrays over the same memory."""
    if isinstance(value, Tree):
        return np.ndarray.view(value, np.ndarray)
    if type(value) in (list, tuple):
        return type(value)(plain(one) for one in value)
    return value

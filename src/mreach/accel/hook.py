"""Putting what is accelerated in the place of the originals, and back.

Neither library is imported for it: a finder in front of ``sys.meta_path`` waits until the program imports
one. Only the public names are replaced. In the modules that define them the originals stay, so that objects
made from them, before or after, can be pickled.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
import threading
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from mreach.accel.messages import forget, say_once

__all__ = ["install", "uninstall"]

TARGETS = {
    "sklearn.cluster": ("mreach.accel.for_sklearn", ("HDBSCAN",)),
    "hdbscan": ("mreach.accel.for_hdbscan", ("HDBSCAN", "hdbscan")),
}
"""By the public module, the module that has the accelerated form of these names."""

_lock = threading.Lock()  # held for no import: another thread may import what waits for it
_searching = threading.local()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the two libraries as the other finders do, and has their module patched once it is loaded."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if fullname not in TARGETS or getattr(_searching, "now", False):
            return None
        _searching.now = True  # another finder like this one asks all the others, this one included
        try:
            for finder in [one for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]:
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _PatchingLoader(spec.loader)
                    return spec
        finally:
            _searching.now = False
        return None


class _PatchingLoader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: Any) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _patch(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


_finder = _Finder()


def install(modules: str | Iterable[str | ModuleType] = (), *, quiet: bool = False) -> None:
    """Let mreach compute ``sklearn.cluster.HDBSCAN`` and ``hdbscan.HDBSCAN`` in this process.

    The function ``hdbscan.hdbscan``, too. Each of the two libraries is changed when the program imports it,
    or now if it has; neither need be there.
    Calling it again changes nothing, and it may be called from any thread.

    Parameters
    ----------
    modules : iterable of modules or their names, or "all", default=()
        Modules imported before that took the original class by ``from sklearn.cluster import HDBSCAN``: they
        keep it, unless they are named here. Their global names that mean the original are then replaced,
        too. "all" means all modules there are but those of the two libraries.
    quiet : bool, default=False
        Whether to say nothing now. Fits that are left to the library are said in any case, each reason once,
        by the logger ``mreach.accel``.

    Raises
    ------
    TypeError, ValueError
        ``modules`` is something else.
    """
    named = _check_modules(modules)
    with _lock:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    if not quiet:
        say_once("HDBSCAN of scikit-learn and of hdbscan is computed by mreach from here on")
    for name in TARGETS:
        if name in sys.modules:
            _patch(importlib.import_module(name))  # waits for a thread that is importing it
    for original, accelerated in _pairs():
        for module in _loaded_modules() if named is None else named:
            _replace(module, original, accelerated)
        keep = sorted({one.__name__ for one in _loaded_modules() if list(_names_of(one, original))})
        if keep and not quiet:
            say_once(
                f"{', '.join(keep)} had taken the original before and keep it: "
                "install earlier, or name them in install(modules=[...])"
            )


def uninstall() -> None:
    """Undo :func:`install`: the originals are back, in modules that took an accelerated class, too.

    Estimators that were made in between stay what they are: they are instances of the original classes, and
    their fits are still computed by mreach.
    """
    with _lock:
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
    for original, accelerated in _pairs():
        for module in [*_loaded_modules(), *_public_modules()]:
            _replace(module, accelerated, original)
    forget()


def _patch(module: ModuleType) -> None:
    """Replace the names in one of the two public modules."""
    source, names = TARGETS[module.__name__]
    for name in names:
        try:
            accelerated = getattr(importlib.import_module(source), name)
        except (ImportError, AttributeError) as error:  # a version that has it not, or elsewhere
            say_once(f"{module.__name__}.{name} stays as it is: {error}")
            continue
        with _lock:
            if _finder not in sys.meta_path:
                return  # uninstalled in the meantime
            found = vars(module).get(name)
            if found is accelerated._original:
                setattr(module, name, accelerated)
        if found is not accelerated._original and found is not accelerated:
            say_once(f"{module.__name__}.{name} stays as it is: something else has replaced it")


def _pairs() -> Iterator[tuple[Any, Any]]:
    """Yield (original, accelerated) for each name that was replaced."""
    for source, names in TARGETS.values():
        made = vars(sys.modules[source]) if source in sys.modules else {}
        for name in names:
            if name in made:
                yield made[name]._original, made[name]


def _loaded_modules() -> list[ModuleType]:
    """Return the modules outside of the two libraries and of mreach."""
    ours = {name.partition(".")[0] for name in TARGETS} | {"mreach"}
    return [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and name.partition(".")[0] not in ours
    ]


def _public_modules() -> list[ModuleType]:
    return [sys.modules[name] for name in TARGETS if name in sys.modules]


def _names_of(module: ModuleType, value: Any) -> Iterator[str]:
    for name, one in list(vars(module).items()):
        if one is value:
            yield name


def _replace(module: ModuleType, old: Any, new: Any) -> None:
    for name in _names_of(module, old):
        setattr(module, name, new)


def _check_modules(modules: Any) -> list[ModuleType] | None:
    """Return the modules named, None for all. One that is not imported will take the new class by itself."""
    if isinstance(modules, str):
        if modules != "all":
            raise ValueError(
                f"modules must be 'all' or an iterable of modules, got {modules!r}: [{modules!r}]?"
            )
        return None
    found = []
    for one in modules:
        if not isinstance(one, (str, ModuleType)):
            raise TypeError(f"modules must hold modules or their names, got {one!r}")
        module = sys.modules.get(one) if isinstance(one, str) else one
        if module is not None:
            found.append(module)
    return found

"""``python -m mreach.accel script.py args...`` and ``python -m mreach.accel -m module args...``."""

from __future__ import annotations

import io
import os
import runpy
import sys
import types
from importlib.machinery import SourceFileLoader

from mreach.accel import install

USAGE = """usage: python -m mreach.accel SCRIPT [args...]
       python -m mreach.accel -m MODULE [args...]

Run a Python program as `python SCRIPT` or `python -m MODULE` does, with sklearn.cluster.HDBSCAN and
hdbscan.HDBSCAN computed by mreach."""


def main(arguments: list[str]) -> None:
    """Run the program named, in place of this one."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return
    is_module = arguments[:1] == ["-m"]
    program = arguments[1:] if is_module else arguments
    if not program or (program[0].startswith("-") and not is_module):
        print(USAGE, file=sys.stderr)
        raise SystemExit(2)
    if not (is_module or os.path.exists(program[0])):
        print(f"there is no file {program[0]!r} to run", file=sys.stderr)
        raise SystemExit(2)
    sys.argv = list(program)
    install()
    # A module of its own, that stays: what the program leaves running at its end finds itself there, and
    # worker processes look for its file or its name there.
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    if is_module:
        _run_by_name(program[0], set_argv=True)
    elif not (os.path.isdir(program[0]) or _is_archive(program[0])):
        _run_script(program[0], module)
    else:
        _set_first_path(os.path.abspath(program[0]))
        _run_by_name("__main__", set_argv=False)  # of a folder or an archive


def _run_by_name(name: str, *, set_argv: bool) -> None:
    # What `python -m` itself calls. The public run_module puts this module back when the program has ended.
    runpy._run_module_as_main(name, set_argv)  # type: ignore[attr-defined]


def _run_script(path: str, module: types.ModuleType) -> None:
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    path = os.path.join(os.getcwd(), path)  # as Python does: it holds when the program changes its folder
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    vars(module).update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    module.__builtins__ = sys.modules["builtins"]  # type: ignore[attr-defined]
    exec(code, vars(module))


def _is_archive(path: str) -> bool:
    """Tell what runpy runs (zip, compiled code) from source."""
    if not os.path.isfile(path):  # what is read from a pipe is gone
        return False
    with open(path, "rb") as file:
        start = file.read(4)
    return start[:2] == b"PK" or path.endswith(".pyc")


def _set_first_path(path: str) -> None:
    """Put the program's folder where `python -m` has put the working directory."""
    if getattr(sys.flags, "safe_path", False):
        return
    sys.path[0] = path


if __name__ == "__main__":
    main(sys.argv[1:])

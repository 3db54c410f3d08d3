"""How a command runs: what goes where, exit codes, errors in one line."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TextIO

__all__ = [
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "NOTHING_FOUND",
    "PIPE_CLOSED",
    "TERMINATED",
    "WRONG_INPUT",
    "InputError",
    "Outcome",
    "blames_input",
    "main",
    "note",
    "run",
    "shows_progress",
]

# The exit codes; docs/cli.md lists them.
DONE = 0
FAILED = 1
WRONG_INPUT = 2
NOTHING_FOUND = 3
INTERRUPTED = 130
PIPE_CLOSED = 141
TERMINATED = 143


_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


class InputError(Exception):
    """Something that was asked for and cannot be: a file, a name in it, a combination of options."""

    def __init__(self, message: str, exit_code: int = WRONG_INPUT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass
class Outcome:
    """What a command has found, once all of its files are written.

    Attributes
    ----------
    lines : list of (name, value)
        For people.
    data : dict
        The same and more for programs, as JSON can say it.
    exit_code : int
    """

    lines: list[tuple[str, str]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    exit_code: int = DONE
    as_json: bool = False
    quiet: bool = False

    def shown(self, as_json: bool, quiet: bool) -> Outcome:
        """Return the same, to be shown as asked for."""
        self.as_json, self.quiet = as_json, quiet
        return self

    def text(self) -> str:
        """Return what goes to standard output."""
        if self.as_json:
            return json.dumps(self.data, indent=2, allow_nan=False)
        if self.quiet:
            return ""
        width = max((len(name) for name, _ in self.lines), default=0)
        return "\n".join(f"{name:{width}}  {value}".rstrip() for name, value in self.lines)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process with its exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows ``mreach``; None: what the process was given.

    Returns
    -------
    int
        The exit code.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    with _terminated_by_error(), warnings.catch_warnings():
        warnings.simplefilter("default" if debug else "ignore")
        warnings.filterwarnings("always", module=r"mreach(\..*)?$|__main__")
        warnings.filterwarnings("always", category=UserWarning)
        warnings.showwarning = _show_warning
        try:
            return _run(given)
        except BrokenPipeError:
            _forget_stdout()
            return PIPE_CLOSED
        except KeyboardInterrupt:
            return _complain("interrupted: nothing was left half written", INTERRUPTED, debug)
        except _Terminated:
            return _complain("terminated: nothing was left half written", TERMINATED, debug)
        except Exception as error:
            return _complain(*_explain(error), debug)


def _run(given: list[str]) -> int:
    app = _app()
    result = app(args=given, prog_name="mreach", standalone_mode=False)
    if result == INTERRUPTED:  # what newer versions of typer make of Ctrl-C
        raise KeyboardInterrupt
    if not isinstance(result, Outcome):
        return int(result or DONE)  # --help and --version end so
    text = result.text()
    if text:
        _say(text, sys.stdout)
    return result.exit_code


def _app() -> Any:
    try:
        from mreach.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        raise ImportError("the command line needs typer, which is not installed: pip install typer") from None
    return app


class _Terminated(BaseException):
    """The system asked the process to end: temporary files are removed on the way."""


@contextmanager
def _terminated_by_error() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: Any) -> NoReturn:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _explain(error: Exception) -> tuple[str, int]:
    """Return what to say of an error, and the exit code."""
    name = type(error).__name__
    if name == "Abort":  # what older versions of typer make of Ctrl-C
        return "interrupted: nothing was left half written", INTERRUPTED
    if hasattr(error, "format_message"):  # typer's errors of usage; their class moved between its versions
        return f"{error.format_message()} Try 'mreach --help', or --help after a command.", WRONG_INPUT
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        where = f"{error.filename}: " if error.filename is not None else ""
        is_input = isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError))
        if isinstance(error, FileNotFoundError):
            return f"{where}there is no such file or folder", WRONG_INPUT
        remedy = ": free some space, or name another folder with --output" if error.errno in _FULL else ""
        if isinstance(error, IsADirectoryError):
            remedy = ": name a file in it"
        return f"{where}{reason}{remedy}", WRONG_INPUT if is_input else FAILED
    if isinstance(error, InputError):
        return str(error), error.exit_code
    if isinstance(error, (ImportError, RuntimeError, MemoryError)) and str(error):
        return str(error), FAILED
    if isinstance(error, MemoryError):
        return "there is not enough memory for these data", FAILED
    return f"{name}: {error} (a fault of mreach: run again with --debug and report what it shows)", FAILED


@contextmanager
def blames_input() -> Iterator[None]:
    """Mark what the library says about data and parameters as the user's to mend.

    Raises
    ------
    InputError
        In place of a ValueError or TypeError.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        nothing = type(error).__name__ == "ClipsError"  # on_problem="raise"
        raise InputError(str(error), NOTHING_FOUND if nothing else WRONG_INPUT) from error


def _complain(message: str, code: int, debug: bool) -> int:
    """Say in one line what went wrong; all of it where that was asked for."""
    if debug and sys.exc_info()[0] is not None:
        traceback.print_exc()
    one_line = " ".join(message.split())
    _say(f"mreach: {one_line}", sys.stderr)
    return code


def _say(text: str, stream: TextIO | None) -> None:
    """Print, whatever the stream is: closed when the process began, or of few letters."""
    if stream is None:
        return
    try:
        print(text, file=stream)
    except UnicodeEncodeError:  # a name of a file that is no text
        encoding = stream.encoding or "ascii"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)
    stream.flush()


def _show_warning(
    message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    _say(f"mreach: warning: {' '.join(str(message).split())}", sys.stderr)


def _forget_stdout() -> None:
    """Let the interpreter's last flush go nowhere: whoever read the output has left."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, sys.stdout.fileno())
    except (OSError, ValueError):  # standard output is no file, as in a test
        pass
    finally:
        os.close(devnull)


def note(text: str, quiet: bool = False) -> None:
    """Say something on standard error that is no result."""
    if not quiet:
        _say(f"mreach: {text}", sys.stderr)


def shows_progress(asked: bool | None, quiet: bool) -> bool:
    """Tell whether to draw a progress bar: where a person sees it, unless they said otherwise."""
    if asked is not None:
        return asked
    return not quiet and sys.stderr is not None and sys.stderr.isatty()

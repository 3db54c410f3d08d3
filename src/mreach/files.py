"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

__all__ = ["replacing"]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write a file that takes its name only once all of it is on the disk.

    What is written goes to another file in the same folder, which then takes the place of an older one in
    one step. Whatever goes wrong before (an error, a full disk, Ctrl-C), the older one stays as it was, and
    the new one is removed. Only a process that is killed outright leaves it behind, under a name of its own.

    Parameters
    ----------
    path : str or path-like
        A link is followed. What is no regular file (such as ``/dev/stdout``) is written to as it is.

    Yields
    ------
    binary file
        Open for writing, with a ``name``.

    Raises
    ------
    OSError
        The folder does not exist or may not be written to; the disk is full.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)} is a folder: name a file")
    if target.exists() and not target.is_file():
        with open(target, "wb") as stream:
            yield stream
        return
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    try:
        with open(name, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, _mode_of(target))
        os.replace(name, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError) and error.errno and error.filename in (None, name):
            error.filename = os.fspath(path)  # what the caller knows: a failing write names no file
        raise
    _sync_folder(target.parent)


def _mode_of(target: Path) -> int:
    """Return the permissions of the file that is replaced, or those that a new one gets."""
    with suppress(FileNotFoundError):
        return target.stat().st_mode & 0o777
    mask = os.umask(0)  # there is no way to read it but to set it
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Bring the new name to the disk, too, where the system lets a folder be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

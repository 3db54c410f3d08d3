"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of ``path`` once all of it is on the disk.

    A crash or a full disk leaves what was at ``path`` before. An error inside of the ``with`` statement
    removes what was written.

    Parameters
    ----------
    path : str or path-like
        Its folder must exist.

    Raises
    ------
    OSError
        The file cannot be written there.
    """
    path = Path(path)
    # In the same folder, since a file cannot be renamed across file systems; not by tempfile, whose files
    # only their owner may read.
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(beside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise

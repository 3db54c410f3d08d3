"""One HTML page that shows a fit: numbers, clusters, outliers, the tree they were selected from.

The page holds all it shows. It loads nothing, runs nothing, and reads and prints the same offline.
"""

from __future__ import annotations

import os
from typing import Any

from mreach.files import replacing
from mreach.report.page import report_html

__all__ = ["report_html", "write_report"]


def write_report(path: str | os.PathLike[str], model: Any, data: Any, summary: dict[str, Any]) -> None:
    """Write :func:`report_html` to a file, whole or not at all.

    Raises
    ------
    OSError
        It could not be written.
    """
    text = report_html(model, data, summary)
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))  # the name of the data may be no text

"""The first fit of a new process: ``python -m benchmarks.gpu_first ROWS.npy SETTINGS.json`` prints its parts.

Nothing but the standard library is imported before the clock runs.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import sys
import time
from typing import Any

# What mreach imports of scikit-learn, and what it imports for the GPU.
SKLEARN_MODULES = ("sklearn.base", "sklearn.utils.validation")
DEVICE_MODULES = ("cupy",)


def open_context() -> None:
    """Create the CUDA context of the current device."""
    cupy = importlib.import_module("cupy")
    cupy.cuda.runtime.free(0)


def first_fit(
    path: str,
    settings: dict[str, Any],
    *,
    device_modules: tuple[str, ...] = DEVICE_MODULES,
    context: Any = open_context,
) -> dict[str, Any]:
    """Import, create the context, fit twice; the seconds of each part.

    ``beyond_seconds`` is what mreach adds to the imports of others and the context: its own import and the
    first fit. ``labels`` is a digest of what the first fit found.
    """
    clock = time.perf_counter
    marks = [clock()]
    for module in SKLEARN_MODULES:
        importlib.import_module(module)
    marks.append(clock())
    for module in device_modules:
        importlib.import_module(module)
    marks.append(clock())
    context()
    marks.append(clock())
    mreach = importlib.import_module("mreach")
    marks.append(clock())

    import numpy as np

    rows = np.load(path)
    model = mreach.HDBSCAN(**settings)
    before = clock()
    model.fit(rows)
    after = clock()
    labels = model.labels_
    before_again = clock()
    model.fit(rows)
    again = clock()
    parts = [later - earlier for earlier, later in itertools.pairwise(marks)]
    return {
        "sklearn_seconds": parts[0],
        "cupy_seconds": parts[1],
        "context_seconds": parts[2],
        "mreach_seconds": parts[3],
        "fit_seconds": after - before,
        "second_fit_seconds": again - before_again,
        "beyond_seconds": parts[3] + after - before,
        "labels": hashlib.sha256(labels.tobytes()).hexdigest(),
    }


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as file:
        print(json.dumps(first_fit(sys.argv[1], json.load(file))))

"""How many threads a fit may start."""

from __future__ import annotations

import os

from joblib import cpu_count
from joblib.parallel import get_active_backend

# A typing slip such as n_jobs=10**6 must not try to start as many threads; the result does not depend on it.
MAX_THREADS = 1024


def threads_for(n_jobs: int | None) -> int:
    """Return the number of threads of a fit; see ``n_jobs`` (not 0) in the docstring of HDBSCAN."""
    in_worker = get_active_backend()[0].nesting_level > 0
    if n_jobs is None:
        return 1 if in_worker else cpu_count()
    threads = n_jobs if n_jobs > 0 else max(1, cpu_count() + 1 + n_jobs)
    return min(threads, _worker_share() if in_worker else MAX_THREADS)


def _worker_share() -> int:
    """Return how many threads a fit may start inside a joblib worker, whose neighbours fill the other cores.

    joblib writes each process's share of the cores into OMP_NUM_THREADS where it knows it (its default
    backend); elsewhere the share is one.
    """
    try:
        return min(max(1, int(os.environ["OMP_NUM_THREADS"])), cpu_count())
    except (KeyError, ValueError):
        return 1

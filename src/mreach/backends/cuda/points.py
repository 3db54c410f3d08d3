"""Rows on the GPU between the stages of one fit, and the calls that the stages make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.cuda.neighbors import Neighbors, find_neighbors
from mreach.backends.cuda.order import Layout
from mreach.backends.cuda.stopwatch import Stopwatch
from mreach.backends.cuda.tree import Forest
from mreach.progress import Progress

if TYPE_CHECKING:
    from mreach.backends.cuda.rows import DeviceRows


class CudaPoints:
    """Rows on one GPU; the interface is that of :class:`mreach.backends.cpu.CpuPoints`.

    Parameters
    ----------
    rows : DeviceRows
        Finite rows.
    progress : Progress
    halved_square : bool
        Whether the distance is half the squared Euclidean one, in place of the Euclidean one.
    timings : bool
        Whether to measure the stages, which waits for the GPU after each.
    **tuning
        ``tier`` ("half" or "frame"), ``min_list_length``, ``prune`` (bool), ``limit``, ``queue_capacity``;
        and ``entry_bytes``, ``max_list_length``, ``max_leading``, ``may_take_frames``, which the plan of the
        rows says where they are not given: no result depends on them.
    """

    def __init__(
        self, rows: DeviceRows, *, progress: Progress, halved_square: bool = False, timings: bool = False,
        **tuning: Any,
    ) -> None:  # fmt: skip
        self._session = rows.session
        self._session.halved_square = halved_square
        self._progress = progress
        self._tuning = tuning = rows.plan._asdict() | tuning
        self._watch = Stopwatch(rows.session, timings)
        self._layout = Layout(rows, self._watch, tuning["max_leading"])
        self._neighbors: Neighbors | None = None
        self._forest: Forest | None = None
        self.n_components = 0  # until start_tree

    def core_distances(self, min_samples: int) -> NDArray[np.float64]:
        """Return the core distances, shape (n_rows,), and keep the neighbours met for the tree."""
        self._neighbors = find_neighbors(
            self._layout, min_samples, self._progress, self._watch, **self._tuning
        )
        with self._watch("download"):
            return self._layout.spread(self._neighbors.core)

    def start_tree(self, alpha: float) -> None:
        """Make every distinct row a component of its own."""
        assert self._neighbors is not None, "core_distances comes first"
        self._forest = Forest(
            self._layout, self._neighbors, alpha, self._progress, self._watch,
            self._tuning.get("queue_capacity"), self._tuning["entry_bytes"],
        )  # fmt: skip
        self.n_components = self._forest.n_components

    def find_listed_edges(self) -> None:
        """Find the lightest edge out of each component among the listed neighbours."""
        assert self._forest is not None
        self._forest.find_listed_edges()

    def scan_active_rows(self) -> int:
        """Find the lightest edges of the components that the lists do not settle; return the active rows."""
        assert self._forest is not None
        return self._forest.scan_active_rows()

    def contract(self) -> int:
        """Merge the components along their lightest edges; return how many are left."""
        assert self._forest is not None
        self.n_components = self._forest.contract()
        return self.n_components

    def take_edges(self) -> NDArray[np.void]:
        """Return the tree of all rows, shape (n_rows - 1,), EDGE_DTYPE, sorted."""
        assert self._forest is not None
        return self._forest.take_edges()

    def release(self) -> None:
        """Let go of the memory, whoever still holds this object; nothing can be asked for after it."""
        del self._layout
        self._neighbors = self._forest = None

    def statistics(self) -> dict[str, Any]:
        """Return counts of what the filter did, and seconds of the stages where they were measured."""
        found: dict[str, Any] = {
            "distinct_rows": self._layout.n,
            "stage_seconds": dict(self._watch.seconds),
            "peak_bytes": self._session.pool.total_bytes(),
        }
        if self._neighbors is not None:
            found |= self._neighbors.statistics
        if self._forest is not None:
            found["rounds"] = self._forest.rounds
        return found


def open_points(
    rows: DeviceRows, *, n_threads: int, progress: Progress, halved_square: bool = False, **options: Any
) -> CudaPoints:
    """Lay rows out for the filter.

    Parameters
    ----------
    rows : DeviceRows
        Finite rows, held by :func:`mreach.backends.cuda.hold_rows`; they are not needed after this call.
    n_threads : int
        Accepted as every backend accepts it; nothing here uses it.
    progress : Progress
    halved_square : bool
        Whether the distance is half the squared Euclidean one, as the metric "cosine" has it on unit rows, in
        place of the Euclidean one.
    """
    points = CudaPoints(rows, progress=progress, halved_square=halved_square, **options)
    rows.open_points(points)
    return points

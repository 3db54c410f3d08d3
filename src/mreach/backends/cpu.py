"""Backend "cpu": the compiled core on all cores, memory linear in the number of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach import _core
from mreach.backends.host_rows import hold_rows
from mreach.backends.pairwise import open_pairwise
from mreach.progress import Progress
from mreach.records import EDGE_DTYPE, NearestRows

__all__ = [
    "NAME",
    "CpuPoints",
    "ListedNeighbors",
    "hold_rows",
    "nearest_rows",
    "open_pairwise",
    "open_points",
]

NAME = "cpu"


class _Watch:
    """What the core calls about ten times a second. It must not hold the session: that would be a cycle."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._total = self._reported = 0

    def start(self, name: str, total: int) -> None:
        self._progress.stage(name, total)
        self._total, self._reported = total, 0

    def __call__(self, share: float) -> None:
        units = int(self._total * share) - self._reported
        if units > 0:
            self._reported += units
            self._progress.advance(units)

    def finish(self) -> None:
        self(1.0)
        self._total = 0


class ListedNeighbors(NamedTuple):
    """Neighbours of each row, as they were kept for the tree.

    Attributes
    ----------
    indptr : int64 array of shape (n_rows + 1,)
        Row ``i`` lists what stands from ``indptr[i]`` to ``indptr[i + 1]``.
    rows : int32 array of shape (indptr[-1],)
        Listed rows, by ascending distance. Of equal rows only the lowest one is listed and lists others; each
        of its copies lists it alone.
    distances : float64 array of shape (indptr[-1],)
    multiplicity : int32 array of shape (n_rows,)
        How many rows equal each row, itself counted.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    distances: NDArray[np.float64]
    multiplicity: NDArray[np.int32]


class CpuPoints:
    """Rows in the compiled core, between the stages of one fit.

    The order of the calls is the order of the stages: :meth:`core_distances`, :meth:`start_tree`, then rounds
    of :meth:`find_listed_edges`, :meth:`scan_active_rows` and :meth:`contract` until one component is left,
    and :meth:`take_edges`. Each runs without the GIL and looks for signals about ten times a second.
    """

    def __init__(self, X: NDArray[Any], *, n_threads: int, progress: Progress, **tuning: Any) -> None:
        self._watch = _Watch(progress)
        self._n_rows = len(X)
        self._round = 0
        self._session = _core.open_session(X, n_threads=n_threads, poll=self._watch, **tuning)
        self.n_components = 0  # until start_tree

    def core_distances(self, min_samples: int) -> NDArray[np.float64]:
        """Return the core distances, shape (n_rows,), and keep the neighbours met for the tree."""
        self._watch.start("neighbours", self._n_rows)
        core: NDArray[np.float64] = self._session.core_distances(min_samples)
        self._watch.finish()
        return core

    def listed_neighbors(self) -> ListedNeighbors:
        """Return the neighbours that the last :meth:`core_distances` kept.

        Every row strictly nearer than the row's core distance is listed (or equals one that is) where
        ``min_samples`` was not above ``max_list_length``, 256 unless it was set.
        """
        return ListedNeighbors(*self._session.listed_neighbors())

    def start_tree(self, alpha: float) -> None:
        """Make every distinct row a component of its own."""
        self._session.start_tree(alpha)
        self.n_components = self._session.statistics()["distinct_rows"]
        self._round = 0

    def find_listed_edges(self) -> None:
        """Find the lightest edge out of each component among the listed neighbours."""
        self._session.find_listed_edges()

    def scan_active_rows(self) -> int:
        """Find the lightest edges of the components that the lists do not settle.

        Returns the number of active rows.
        """
        self._round += 1
        self._watch.start(f"spanning tree, round {self._round}", self.n_components)
        n_active: int = self._session.scan_active_rows()
        self._watch.finish()
        return n_active

    def contract(self) -> int:
        """Merge the components along their lightest edges; return how many are left."""
        self.n_components = self._session.contract()
        return self.n_components

    def take_edges(self) -> NDArray[np.void]:
        """Return the tree of all rows, shape (n_rows - 1,), EDGE_DTYPE, sorted."""
        edges = np.empty(self._n_rows - 1, EDGE_DTYPE)
        self._session.take_edges(edges.view(np.int64))
        return edges

    def statistics(self) -> dict[str, Any]:
        """Return counts of what the filter did: panels and row blocks met, hits, exact distances."""
        statistics: dict[str, Any] = self._session.statistics()
        return statistics


def open_points(
    X: NDArray[Any], *, n_threads: int, progress: Progress, halved_square: bool = False
) -> CpuPoints:
    """Hand finite rows to the compiled core.

    Parameters
    ----------
    X : C-contiguous float32 or float64 array of shape (n_rows, n_features)
        Finite, and with squared feature ranges that float64 can add up. It is read, never changed, and not
        needed after this call.
    n_threads : int
        Threads of this fit; they end with the returned object.
    progress : Progress
    halved_square : bool
        Whether the distance is half the squared Euclidean one, as the metric "cosine" has it, in place of the
        Euclidean one.
    """
    return CpuPoints(X, n_threads=n_threads, progress=progress, halved_square=halved_square)


def nearest_rows(
    X: NDArray[Any],
    X_new: NDArray[Any],
    *,
    core_distances: NDArray[np.float64],
    alpha: float,
    min_samples: int = 1,
    new_core_distances: NDArray[np.float64] | None = None,
    candidates: NDArray[np.bool_] | None = None,
    halved_square: bool = False,
    n_threads: int,
    progress: Progress,
    **tuning: Any,
) -> NearestRows:
    """Find the fitted row of least mutual reachability distance to each new row.

    It runs without the GIL and looks for signals about ten times a second. Memory is linear in the number of
    rows: about twice both arrays of rows.

    Parameters
    ----------
    X, X_new : C-contiguous arrays of one dtype, float32 or float64, of shape (n, n_features), (m, n_features)
        The rows of the fit and the new ones, finite. They are read, never changed.
    core_distances : float64 array of shape (n,)
        Of the rows of the fit. Equal rows have equal ones.
    alpha : float
        As in the fit.
    min_samples : int
        From 1 to n. The core distance of a new row is the distance to its ``min_samples``-th nearest row of
        the fit; the new row itself is not counted.
    new_core_distances : float64 array of shape (m,), optional
        Core distances of the new rows, where they are known: ``min_samples`` then does not matter.
    candidates : bool array of shape (n,), optional
        Only these rows may be the answer; all count for core distances.
    halved_square : bool
        As for :func:`open_points`.
    n_threads : int
    progress : Progress

    Returns
    -------
    NearestRows
    """
    m = len(X_new)
    known = new_core_distances is not None
    found = NearestRows(
        np.array(new_core_distances, np.float64) if known else np.empty(m),
        np.full(m, -1, np.int64),
        np.full(m, np.inf),
    )
    if m == 0:
        return found
    watch = _Watch(progress)
    watch.start("nearest rows", m)
    _core.nearest_rows(
        X,
        X_new,
        fitted_core=np.ascontiguousarray(core_distances, np.float64),
        candidates=None if candidates is None else np.ascontiguousarray(candidates, bool).view(np.uint8),
        alpha=alpha,
        min_samples=min_samples,
        core_known=known,
        core=found.core_distances,
        rows=found.rows,
        weights=found.weights,
        n_threads=n_threads,
        poll=watch,
        halved_square=halved_square,
        **tuning,
    )
    watch.finish()
    return found

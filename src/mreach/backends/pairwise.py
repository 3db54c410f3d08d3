"""Core distances and spanning trees where no filter knows the metric: all pairs, by tiles, on all cores.

Exact, in memory linear in the rows. One pass over all pairs finds the core distances and keeps each row's
nearest; the rounds of :mod:`mreach.spanning_tree` then look only at rows whose lightest edge these do not
tell.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mreach.backends.distances import FeatureRows, RepeatedRows
from mreach.backends.graph import GraphPoints, NeighbourGraph, join_at_infinity
from mreach.metrics import Metric, sort_edges
from mreach.progress import Progress
from mreach.records import EDGE_DTYPE, NearestRows

__all__ = ["PairwisePoints", "nearest_rows", "open_pairwise"]

TILE_BYTES = 1 << 24
"""Bytes of distances that a thread holds at a time; it takes about three times as much to look at them."""

LISTED = 32
"""Nearest rows that are kept for each row at least, where there are so many: few rounds then look further."""

LIST_BYTES = 1 << 30
"""Bytes of all lists together; with more rows, or many neighbours asked for, lists are shorter."""


def open_pairwise(
    X: Any,
    metric: Metric,
    *,
    row_of_point: NDArray[np.int64] | None = None,
    n_threads: int,
    progress: Progress,
) -> Any:
    """Open the points of a metric that no filter knows.

    Parameters
    ----------
    X : float array of shape (n, n_features), or a source of distances
        Finite rows for the kind "tiled"; for "whole" and "precomputed" what validation made of the matrix.
    metric : Metric
    row_of_point : int64 array of shape (n_points,), optional
        Points are rows taken several times: which row each one is, ascending.
    """
    source: Any = X
    if metric.kind == "tiled":
        source = FeatureRows(X, metric)
    if isinstance(source, NeighbourGraph):
        return GraphPoints(source if row_of_point is None else source.repeated(row_of_point))
    if row_of_point is not None:
        source = RepeatedRows(source, row_of_point)
    return PairwisePoints(source, n_threads=n_threads, progress=progress)


class PairwisePoints:
    """Rows of a source of distances, between the stages of one fit; the order of the calls is as in ``cpu``.

    Parameters
    ----------
    source
        As :mod:`mreach.backends.distances` says.
    n_threads : int
    progress : Progress
    """

    def __init__(self, source: Any, *, n_threads: int, progress: Progress) -> None:
        self._source, self._n_threads, self._progress = source, n_threads, progress
        self._n = source.n
        self._round = 0
        self.n_components = 0  # until start_tree

    def core_distances(self, min_samples: int) -> NDArray[np.float64]:
        """Return the core distances, shape (n_rows,), and keep the nearest of each row for the tree."""
        n = self._n
        k = min(n, max(min_samples + 1, LISTED), max(1, LIST_BYTES // (16 * n)))
        self._listed = np.empty((n, k), np.int64)
        self._distances = np.empty((n, k))
        self._core = np.empty(n)

        def find(rows: NDArray[np.int64]) -> None:
            distances = self._source.rows(rows)
            if k < n:
                nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
            else:
                nearest = np.broadcast_to(np.arange(n), distances.shape)
            self._listed[rows] = nearest
            self._distances[rows] = np.take_along_axis(distances, nearest, axis=1)
            among = self._distances[rows] if min_samples <= k else distances
            self._core[rows] = np.partition(among, min_samples - 1, axis=1)[:, min_samples - 1]

        self._progress.stage("neighbours", n)
        with closing(self._in_threads(find, self._tiles(np.arange(n)))) as found:
            for rows, _ in found:
                self._progress.advance(len(rows))
        return self._core.copy()

    def start_tree(self, alpha: float) -> None:
        """Make every row a component of its own."""
        n, core = self._n, self._core
        self._alpha = alpha
        # From here on weights in place of distances. A row that is not listed is at least so far.
        radius = self._distances.max(axis=1) if self._listed.shape[1] < n else np.full(n, np.inf)
        with np.errstate(over="ignore"):  # what overflows is not connected
            self._floor = np.maximum(core, radius / alpha)
        for rows in self._tiles(np.arange(n)):
            with np.errstate(over="ignore"):
                weights = self._distances[rows] / alpha
            np.maximum(weights, core[self._listed[rows]], out=weights)
            self._distances[rows] = np.maximum(weights, core[rows][:, np.newaxis])
        self._component = np.arange(n)
        self.n_components = n
        # The lightest known edge of each row out of its component: weight and other end (-1: none).
        self._weight = np.full(n, np.inf)
        self._end = np.full(n, -1)
        self._is_lightest = np.zeros(n, bool)  # whether no other edge out of the row's component is lighter
        self._edges: list[NDArray[np.void]] = []
        self._round = 0

    def find_listed_edges(self) -> None:
        """Find the lightest edge out of each component among the listed rows and what scans have found."""
        # Components only grow: a lightest edge stays the lightest until its other end is inside, and all
        # that are left are no lighter then.
        known = self._is_lightest & (self._end >= 0)
        inside = np.flatnonzero(known & (self._component[self._end] == self._component))
        self._floor[inside] = np.maximum(self._floor[inside], self._weight[inside])
        self._is_lightest[inside] = False
        for rows in self._tiles(np.flatnonzero(~self._is_lightest)):
            listed = self._listed[rows]
            weights = np.where(
                self._component[listed] == self._component[rows][:, np.newaxis],
                np.inf,
                self._distances[rows],
            )
            least = weights.min(axis=1)
            # Among equal weights the lowest other end makes the lowest (lower row, higher row).
            listed = np.where(weights == least[:, np.newaxis], listed, self._n).min(axis=1)
            self._weight[rows] = least
            self._end[rows] = np.where(np.isinf(least), -1, listed)
            self._is_lightest[rows] = least < self._floor[rows]
        self._lightest_of_components(np.arange(self._n))

    def scan_active_rows(self) -> int:
        """Compare the rows with all others that may have a lighter edge than their component's lightest.

        Returns the number of active rows.
        """
        self._round += 1
        active = np.flatnonzero(self._is_active(np.arange(self._n)))
        self._is_left_out = -1
        if len(active) and self.n_components > 1:
            # The others hook onto the component with the most active rows: it need not choose.
            counts = np.bincount(self._component[active], minlength=self.n_components)
            self._is_left_out = int(counts.argmax())
            active = active[self._component[active] != self._is_left_out]
        # Rows that may reach least come first: what they find spares others the scan.
        active = active[np.argsort(self._floor[active], kind="stable")]
        self._progress.stage(f"spanning tree, round {self._round}", len(active))

        def still_active() -> Iterator[NDArray[np.int64]]:
            for rows in self._tiles(active):
                self._progress.advance(len(rows))
                rows = rows[self._is_active(rows)]
                if len(rows):
                    yield rows

        with closing(self._in_threads(self._scan, still_active())) as found:
            for rows, (weight, end) in found:
                self._weight[rows], self._end[rows] = weight, end
                self._is_lightest[rows] = True
                self._lightest_of_components(rows)
        return len(active)

    def contract(self) -> int:
        """Merge the components along their lightest edges; return how many are left."""
        rows = self._lightest_row
        rows = rows[(rows >= 0) & (np.arange(self.n_components) != self._is_left_out)]
        rows = rows[np.isfinite(self._weight[rows])]
        if len(rows) == 0:  # nothing but infinity is left
            self._edges.append(join_at_infinity(self._component))
            self._component[:] = 0
            self.n_components = 1
            return 1
        edges = np.empty(len(rows), EDGE_DTYPE)
        edges["source"] = np.minimum(rows, self._end[rows])
        edges["target"] = np.maximum(rows, self._end[rows])
        edges["weight"] = self._weight[rows]
        # Two components may have chosen the same edge, from its two ends.
        edges = np.unique(edges)
        self._edges.append(edges)
        ends = self._component[edges["source"]], self._component[edges["target"]]
        shape = (self.n_components, self.n_components)
        graph = coo_array((np.ones(len(edges), bool), ends), shape=shape)
        self.n_components, merged = connected_components(graph, directed=False)
        self._component = merged[self._component].astype(np.int64)
        return self.n_components

    def take_edges(self) -> NDArray[np.void]:
        """Return the tree, shape (n_rows - 1,), EDGE_DTYPE, sorted."""
        return sort_edges(np.concatenate(self._edges)) if self._edges else np.empty(0, EDGE_DTYPE)

    def _scan(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the weight and other end of the lightest edge out of the component of each row."""
        weights = self._source.rows(rows)
        if self._alpha != 1.0:
            with np.errstate(over="ignore"):
                weights /= self._alpha
        np.maximum(weights, self._core, out=weights)
        np.maximum(weights, self._core[rows][:, np.newaxis], out=weights)
        weights[self._component == self._component[rows][:, np.newaxis]] = np.inf
        end = weights.argmin(axis=1)  # the lowest of equals
        least = weights[np.arange(len(rows)), end]
        return least, np.where(np.isinf(least), -1, end)

    def _is_active(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which rows may have an edge that comes before the lightest known one of their component."""
        lightest = self._lightest_row[self._component[rows]]
        weight = np.where(lightest < 0, np.inf, self._weight[lightest])
        active: NDArray[np.bool_] = ~self._is_lightest[rows] & (self._floor[rows] <= weight)
        return active

    def _lightest_of_components(self, rows: NDArray[np.int64]) -> None:
        """Find the row with the lightest known edge of each component, among these and the ones before.

        With all rows it starts anew.
        """
        if len(rows) == self._n:
            self._lightest_row = np.full(self.n_components, -1)
        else:
            before = self._lightest_row[np.unique(self._component[rows])]
            rows = np.concatenate((rows, before[before >= 0]))
        rows = rows[self._end[rows] >= 0]
        ends = self._end[rows]
        component = self._component[rows]
        order = np.lexsort((np.maximum(rows, ends), np.minimum(rows, ends), self._weight[rows], component))
        first = order[np.r_[True, component[order][1:] != component[order][:-1]]] if len(order) else order
        self._lightest_row[component[first]] = rows[first]

    def _tiles(self, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Cut rows into pieces whose distances to all rows fill a tile."""
        n_at_once = max(1, TILE_BYTES // (8 * self._n))
        for start in range(0, len(rows), n_at_once):
            yield rows[start : start + n_at_once]

    def _in_threads(
        self, compute: Callable[[Any], Any], tiles: Iterable[NDArray[np.int64]]
    ) -> Generator[tuple[NDArray[np.int64], Any], None, None]:
        """Yield each tile with what was computed for it, two of them waiting for each thread at most.

        All that is shared between tiles changes in the caller's thread alone. Closed after an error there,
        Ctrl-C too, it ends the threads after the tiles they are at.
        """
        with _threads(self._n_threads) as pool:
            waiting: list[tuple[NDArray[np.int64], Future[Any]]] = []
            for rows in tiles:
                waiting.append((rows, pool.submit(compute, rows)))
                if len(waiting) >= 2 * self._n_threads:
                    done, future = waiting.pop(0)
                    yield done, future.result()
            for done, future in waiting:
                yield done, future.result()


@contextmanager
def _threads(n_threads: int) -> Iterator[ThreadPoolExecutor]:
    """Open threads that drop what they have not begun when the block is left by an error."""
    pool = ThreadPoolExecutor(n_threads)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def nearest_rows(
    distances: Callable[[slice], NDArray[np.float64]],
    n_new: int,
    *,
    order: NDArray[np.int64],
    core_distances: NDArray[np.float64],
    alpha: float,
    min_samples: int = 1,
    new_core_distances: NDArray[np.float64] | None = None,
    n_threads: int = 1,
) -> NearestRows:
    """Find the fitted row of least mutual reachability distance to each new row, for any distances.

    It means what :func:`mreach.backends.reference.nearest_rows` does.

    Parameters
    ----------
    distances : callable
        Gives, for a slice of the new rows, their distances to all fitted rows, shape (len(slice), n); called
        from several threads. For rows: ``lambda some: feature_distances(metric, X_new[some], X)``.
    n_new : int
        Number of new rows.
    order : int64 array
        The fitted rows that may be the answer, lexicographically smallest first (without rows: lowest number
        first).
    core_distances : float64 array of shape (n,)
    alpha, min_samples, new_core_distances
        As there.
    n_threads : int

    Returns
    -------
    NearestRows
    """
    found = NearestRows(np.empty(n_new), np.full(n_new, -1), np.full(n_new, np.inf))

    def find(some: slice) -> None:
        tile = distances(some)
        if new_core_distances is None:
            core = np.partition(tile, min_samples - 1, axis=1)[:, min_samples - 1]
        else:
            core = new_core_distances[some]
        found.core_distances[some] = core
        if not len(order):
            return
        tile = tile[:, order]
        weights = np.maximum(np.maximum(tile / alpha, core_distances[order]), core[:, np.newaxis])
        least = weights.min(axis=1)
        tile[weights != least[:, np.newaxis]] = np.inf
        found.rows[some] = order[_first_least(tile, weights == least[:, np.newaxis])]
        found.weights[some] = least

    n_at_once = max(1, TILE_BYTES // (8 * len(core_distances)))
    with _threads(n_threads) as pool:
        slices = [slice(start, start + n_at_once) for start in range(0, n_new, n_at_once)]
        for future in [pool.submit(find, some) for some in slices]:
            future.result()
    return found


def _first_least(tile: NDArray[np.float64], allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the first place of the least distance of each line among those allowed; all may be infinite."""
    least = tile.min(axis=1, keepdims=True)
    first: NDArray[np.int64] = (allowed & (tile == least)).argmax(axis=1)
    return first

"""From the user's data to the points of a backend, and back to the user's rows and unit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.backends.distances import settled, whole_matrix
from mreach.backends.host_rows import HostRows, SelectedRows
from mreach.centers import cluster_centers
from mreach.copies import Copies
from mreach.cuts import selection_of
from mreach.metrics import Metric, sort_edges
from mreach.progress import Progress
from mreach.records import Cut
from mreach.row_order import KeptRows, start_reading
from mreach.validation import Parameters, Rows, check_rows
from mreach.validation.precomputed import check_matrix

__all__ = ["FitPoints", "open_fit"]


class FitPoints(NamedTuple):
    """The rows of a fit, and the points that a backend made of them.

    Attributes
    ----------
    rows : Rows
        ``data`` holds the user's finite rows, whatever a backend got; None for "precomputed".
    points
        For the stages: core distances, then the spanning tree.
    metric : Metric
    kept_rows : callable
        Gives the rows as the fitted model keeps them.
    copies : Copies or None
    measured : int64 array or None
        With ``copies``: the finite row of each point.
    """

    rows: Rows
    points: Any
    metric: Metric
    kept_rows: Any
    copies: Copies | None = None
    measured: NDArray[np.int64] | None = None

    def of_rows(
        self, core: NDArray[np.float64], edges: NDArray[np.void]
    ) -> tuple[NDArray[np.float64], NDArray[np.void]]:
        """Return core distances and spanning tree of the finite rows from those of the points."""
        if self.copies is None or self.measured is None:
            return core, edges
        core = self.copies.core_of_rows(core, self.measured)
        return core, self.copies.tree_of_rows(edges, self.measured)

    def in_unit(
        self, core: NDArray[np.float64], edges: NDArray[np.void]
    ) -> tuple[NDArray[np.float64], NDArray[np.void]]:
        """Return core distances and spanning tree in the unit of the metric."""
        if self.metric.name != "haversine":
            return core, edges
        edges["weight"] = self.metric.weights_of(edges["weight"])
        return self.metric.weights_of(core), sort_edges(edges)  # different chords may have equal angles

    def cut(
        self, hierarchy: Any, core: NDArray[np.float64], edges: NDArray[np.void], parameters: Parameters
    ) -> tuple[Cut, dict[str, NDArray[np.float64]]]:
        """Return the clusters and their centres, of all points: each row as often as it counts.

        Parameters
        ----------
        hierarchy
            From :func:`mreach.cuts.hierarchy_of`.
        core, edges
            Of the finite rows, in the unit of the metric.
        parameters : Parameters
        """
        data = self.rows.data
        if self.copies is not None:
            data, edges = self.copies.data(data), self.copies.edges(edges, core)
        cut = hierarchy.cut(edges, data=data, **selection_of(parameters, self.rows.n_points))
        stored = parameters.store_centers
        return cut, cluster_centers(data, cut.labels, cut.probabilities, stored, self.metric)


@contextmanager
def open_fit(
    backend: ModuleType,
    X: Any,
    weights: NDArray[np.int64] | None,
    parameters: Parameters,
    device: int | None,
    progress: Progress,
) -> Iterator[FitPoints]:
    """Hold the data where a backend computes, check them there, and open the points of the stages.

    Parameters
    ----------
    backend : module
    X : array of shape (n_rows, n_features), or a source of distances
        From :func:`mreach.validation.check_array_like`.
    weights : int64 array of shape (n_rows,) or None
    parameters : Parameters
    device : int or None
    progress : Progress

    Raises
    ------
    ValueError, MemoryError
        As :func:`mreach.validation.check_rows` and the backends.
    """
    metric, min_samples, keep = parameters.metric, parameters.min_samples, parameters.prediction_data
    options: dict[str, Any] = {"n_threads": parameters.n_threads, "progress": progress}
    if metric.name == "euclidean" and weights is None:  # all of it where the backend computes
        with backend.hold_rows(X, device=device, min_samples=min_samples) as held:
            rows = check_rows(held, parameters)
            reading = start_reading(X, rows, keep)
            points = backend.open_points(rows.finite, **options)
            yield FitPoints(rows, points, metric, lambda: KeptRows.of(X, rows, reading, keep))
        return
    if metric.kind == "precomputed":
        rows = Rows.without_data(X, parameters, weights)
        copies, measured = _copies(rows, min_samples)
        place = rows.finite_rows if measured is None else measured
        if measured is not None and rows.finite_rows is not None:
            place = rows.finite_rows[measured]
        points = backend.open_pairwise(X, metric, row_of_point=place, **options)
        yield FitPoints(rows, points, metric, lambda: None, copies, measured)
        return
    prepare = getattr(backend, "prepare_rows", None)  # the reference has a definition of its own
    ready = metric.prepare(X) if prepare is None else prepare(X, metric)
    rows = check_rows(HostRows(ready), parameters, weights)
    finite = rows.finite
    rows = rows._replace(data=X if rows.finite_rows is None else SelectedRows(X, rows.finite_rows))
    copies, measured = _copies(rows, min_samples)
    opened = FitPoints(rows, None, metric, lambda: KeptRows.of(X, rows, None, keep), copies, measured)
    if metric.kind == "filtered":
        finite = finite if measured is None else finite[measured]
        with backend.hold_rows(finite, device=device, min_samples=min_samples) as held:
            yield opened._replace(points=backend.open_points(held.for_points, **options, **metric.measure))
        return
    if metric.kind == "whole":
        metric = settled(metric, finite if copies is None else finite[copies.row_of_point])
        finite = check_matrix(whole_matrix(metric, finite), metric.name, rows.finite_rows)
    points = backend.open_pairwise(finite, metric, row_of_point=measured, **options)
    yield opened._replace(points=points, metric=metric)


def _copies(rows: Rows, min_samples: int) -> tuple[Copies | None, NDArray[np.int64] | None]:
    copies = Copies.of(rows)
    return copies, None if copies is None else copies.measured(min_samples)

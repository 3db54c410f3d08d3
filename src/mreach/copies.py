"""Rows that count several times: the hierarchy gets a point for each time, the user sees each row once.

A row of weight w is w equal rows. All but the first are leaves of the spanning tree, joined to the first at
its core distance: no edge to any of them weighs less, so that tree is a minimum spanning tree of all points,
and the canonical hierarchy is the same for each of these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach.backends.graph import lightest_tree
from mreach.backends.host_rows import SelectedRows
from mreach.metrics import sort_edges
from mreach.records import EDGE_DTYPE, Cut
from mreach.validation import Rows

__all__ = ["Copies"]


class Copies:
    """How often each finite row counts.

    Parameters
    ----------
    counts : int64 array of shape (n_finite,)
        At least 1 each.

    Attributes
    ----------
    n_rows, n_points : int
    row_of_point : int64 array of shape (n_points,), ascending
    first_point : int64 array of shape (n_rows,)
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self.counts = counts
        self.n_rows, self.n_points = len(counts), int(counts.sum())
        self.row_of_point = np.repeat(np.arange(len(counts)), counts)
        self.first_point = np.cumsum(counts) - counts

    @classmethod
    def of(cls, rows: Rows) -> Copies | None:
        """Return the copies of the rows of a fit; None where each counts once."""
        return None if rows.copies is None else cls(rows.copies)

    def measured(self, min_samples: int) -> NDArray[np.int64]:
        """Return the row of each point that distances are measured for.

        More than ``min_samples`` copies of a row change no core distance and no tree of the rows.
        """
        return np.repeat(np.arange(self.n_rows), np.minimum(self.counts, min_samples))

    def core_of_rows(self, core: NDArray[np.float64], measured: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the core distances of the rows from those of the points measured."""
        return core[np.searchsorted(measured, np.arange(self.n_rows))]

    def tree_of_rows(self, edges: NDArray[np.void], measured: NDArray[np.int64]) -> NDArray[np.void]:
        """Return the spanning tree of the rows from that of the points measured.

        The tree of a graph in which some edges are made lighter consists of these and of edges of the tree
        from before: here of those between copies, which weigh nothing, and of edges between rows.
        """
        rows = np.empty(len(edges), EDGE_DTYPE)
        rows["weight"] = edges["weight"]
        for end in ("source", "target"):
            rows[end] = measured[edges[end]]
        rows = rows[rows["source"] != rows["target"]]
        chosen = lightest_tree(self.n_rows, rows["source"], rows["target"], rows["weight"])
        return sort_edges(rows[chosen])

    def edges(self, edges: NDArray[np.void], core: NDArray[np.float64]) -> NDArray[np.void]:
        """Return the spanning tree of all points from that of the rows."""
        others = np.setdiff1d(np.arange(self.n_points), self.first_point, assume_unique=True)
        points = np.empty(len(edges) + len(others), EDGE_DTYPE)
        points["weight"][: len(edges)] = edges["weight"]
        for end in ("source", "target"):
            points[end][: len(edges)] = self.first_point[edges[end]]
        rows = self.row_of_point[others]
        points["source"][len(edges) :] = self.first_point[rows]
        points["target"][len(edges) :] = others
        points["weight"][len(edges) :] = core[rows]
        return sort_edges(points)

    def data(self, data: Any) -> Any:
        """Return the data of all points, to be read as those of the rows; None without data."""
        return None if data is None else SelectedRows(data, self.row_of_point)

    def cut(self, cut: Cut) -> Cut:
        """Return a cut of all points as one of the rows: one record each, of as many points as it counts."""
        condensed = cut.condensed_tree
        is_point = condensed["child"] < self.n_points
        rows = self.row_of_point[np.where(is_point, condensed["child"], 0)]
        kept = ~is_point | (self.first_point[rows] == condensed["child"])
        condensed, is_point, rows = condensed[kept], is_point[kept], rows[kept]
        fewer = self.n_points - self.n_rows
        condensed["parent"] -= fewer
        condensed["child"] = np.where(is_point, rows, condensed["child"] - fewer)
        condensed["child_size"] = np.where(is_point, self.counts[rows], condensed["child_size"])
        return cut._replace(
            labels=cut.labels[self.first_point],
            probabilities=cut.probabilities[self.first_point],
            condensed_tree=condensed,
            selected=cut.selected - fewer,
        )

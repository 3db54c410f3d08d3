"""The trees of a fit: arrays, with the methods that the objects of the library hdbscan have.

Each is a NumPy array and works wherever one does. Only the whole tree is of its class: parts of it, and what
NumPy computes from it, are plain arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mreach import plots
from mreach.cuts import cut_at_distance
from mreach.plot_data import condensed_tree_bars
from mreach.tree_array import Tree, plain
from mreach.validation import Rows
from mreach.validation.cuts import check_distance_cut
from mreach.validation.plots import check_icicle, refuse_lost_fit, require

__all__ = ["CondensedTree", "FitOfTree", "MinimumSpanningTree", "SingleLinkageTree"]


@dataclass(frozen=True)
class FitOfTree:
    """What a linkage must know of its fit to give clusters at a distance, named as in the estimator."""

    backend_: str
    core_distances_: NDArray[np.float64]
    minimum_spanning_tree_: NDArray[np.void]
    _rows: Rows


class CondensedTree(Tree):
    """The condensed tree: which row or cluster left which cluster at which density.

    An array of shape (n_records,) with the fields parent, child (int64), lambda_val (float64, 1 / distance),
    child_size (int64), as in hdbscan. Children below the smallest parent (the root) are rows, the others
    clusters. A cluster may break up into two or more clusters. Sorted by (parent, lambda_val, child).

    Attributes
    ----------
    selected : int64 array of shape (n_labels,)
        The cluster of the tree behind each label.
    labels : int64 array of shape (n_samples,)
        Label of each row, as ``labels_``.
    """

    @classmethod
    def of(
        cls, records: NDArray[np.void], *, labels: NDArray[np.int64], selected: NDArray[np.int64]
    ) -> CondensedTree:
        """Return the tree over records, without a copy."""
        tree: CondensedTree = cls._of(records, labels=labels, selected=selected)
        return tree

    @property
    def selected(self) -> NDArray[np.int64] | None:
        """The cluster of the tree behind each label, int64; None in a tree that was not made by a fit."""
        return self._memory.get("selected")

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Label of each row, int64; None in a tree that was not made by a fit."""
        return self._memory.get("labels")

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with the columns parent, child, lambda_val, child_size.

        Raises
        ------
        ImportError
            Without pandas.
        """
        frame = require("pandas", "to_pandas").DataFrame
        return frame({name: self[name].copy() for name in self.dtype.names or ()})

    def to_networkx(self) -> Any:
        """Return a directed networkx graph: an edge from each parent to each of its children.

        The ``weight`` of an edge is its lambda_val (infinite where rows are equal), the ``size`` of a node
        its number of rows.

        Raises
        ------
        ImportError
            Without networkx.
        """
        graph = require("networkx", "to_networkx").DiGraph()
        parent, child = self["parent"].tolist(), self["child"].tolist()
        if parent:
            in_root = self["parent"] == self["parent"][0]
            graph.add_node(parent[0], size=int(self["child_size"][in_root].sum()))
        sizes = self["child_size"].tolist()
        graph.add_nodes_from((one, {"size": size}) for one, size in zip(child, sizes, strict=True))
        graph.add_weighted_edges_from(zip(parent, child, self["lambda_val"].tolist(), strict=True))
        return graph

    def get_plot_data(
        self,
        leaf_separation: float = 1.0,
        log_size: bool = False,
        max_rectangles_per_icicle: int = 50,
    ) -> dict[str, Any]:
        """Return what :meth:`plot` draws, under the names that hdbscan uses.

        Parameters
        ----------
        leaf_separation, log_size, max_rectangles_per_icicle
            As in :meth:`plot`.

        Returns
        -------
        dict
            Of each rectangle: ``bar_centers``, ``bar_widths``, ``bar_bottoms`` (the lambda where it begins)
            and ``bar_tops`` (its height: *the difference* of its lambdas, as in hdbscan). Of the lines where
            clusters break up: ``line_xs`` and ``line_ys``, lists of pairs. ``cluster_bounds``: for each
            cluster (left, right, lambda of its birth, lambda of its end). Infinite lambdas are replaced as in
            :meth:`plot`.
        """
        options = check_icicle(leaf_separation, log_size, max_rectangles_per_icicle)
        return condensed_tree_bars(plain(self), **options)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the tree: :func:`mreach.plots.condensed_tree`, which lists the options.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: in a new figure. ``axis``, as hdbscan names it, is the same.

        Returns
        -------
        matplotlib Axes
        """
        return plots.condensed_tree(self, ax, **options)

    def _summary(self) -> str:
        if not len(self):
            return "no records, of one row"
        root = int(self["parent"][0])
        n_clusters = int((self["child"] > root).sum()) + 1
        chosen = "" if self.selected is None else f", {len(self.selected)} selected"
        return f"{len(self) - n_clusters + 1} rows, {_count(n_clusters, 'cluster')}{chosen}"


class SingleLinkageTree(Tree):
    """The single linkage tree: a float64 array of shape (n_samples - 1, 4), a linkage matrix of SciPy.

    A row for each merge: the two nodes (rows below ``n_samples``, then merges), their distance, the number of
    rows of the new node. Rows of the data that are not finite join last, at infinity.
    """

    @classmethod
    def of(cls, merges: NDArray[np.float64], *, fit: FitOfTree) -> SingleLinkageTree:
        """Return the tree over a linkage matrix, without a copy."""
        tree: SingleLinkageTree = cls._of(merges, fit=fit)
        return tree

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with the columns parent, left_child, right_child, distance, size.

        The node that the i-th merge makes, ``parent``, has number ``n_samples + i``. All but ``distance`` are
        int64.

        Raises
        ------
        ImportError
            Without pandas.
        """
        left, right, size = (self[:, column].astype(np.int64) for column in (0, 1, 3))
        return require("pandas", "to_pandas").DataFrame(
            {
                "parent": np.arange(len(self) + 1, 2 * len(self) + 1),
                "left_child": left,
                "right_child": right,
                "distance": self[:, 2].copy(),
                "size": size,
            }
        )

    def to_networkx(self) -> Any:
        """Return a directed networkx graph: an edge from each merge to the two nodes that it merges.

        The ``weight`` of an edge is the distance of the merge, the ``size`` of a node its number of rows.

        Raises
        ------
        ImportError
            Without networkx.
        """
        graph = require("networkx", "to_networkx").DiGraph()
        n_rows = len(self) + 1
        graph.add_nodes_from(range(n_rows), size=1)
        size = self[:, 3].astype(np.int64).tolist()
        graph.add_nodes_from((n_rows + i, {"size": one}) for i, one in enumerate(size))
        distance = self[:, 2].tolist()
        for column in (0, 1):
            child = self[:, column].astype(np.int64).tolist()
            graph.add_weighted_edges_from(zip(range(n_rows, 2 * n_rows - 1), child, distance, strict=True))
        return graph

    def get_clusters(self, cut_distance: float, min_cluster_size: int = 5) -> NDArray[np.int64]:
        """Return the clusters at one distance: what :meth:`mreach.HDBSCAN.dbscan_clustering` gives.

        Parameters
        ----------
        cut_distance : float
            At least 0, in the unit of the data. Rows are connected at that distance, too; hdbscan connects
            only those nearer.
        min_cluster_size : int, default=5
            Smaller clusters are noise.

        Returns
        -------
        int64 array of shape (n_samples,)
            -1: noise, -2: a row with infinity, -3: a row with NaN.

        Raises
        ------
        ValueError
            Parameters out of range (of a wrong type: also a TypeError); a tree that was not made by a fit.
        """
        fit = self._memory.get("fit")
        if fit is None:
            refuse_lost_fit("get_clusters")
        return cut_at_distance(fit, *check_distance_cut(cut_distance, min_cluster_size))

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the tree: :func:`mreach.plots.single_linkage_tree`, which lists the options.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: in a new figure. ``axis``, as hdbscan names it, is the same.

        Returns
        -------
        matplotlib Axes
        """
        return plots.single_linkage_tree(self, ax, **options)

    def _summary(self) -> str:
        return f"{_count(len(self), 'merge')} of {_count(len(self) + 1, 'row')}"


class MinimumSpanningTree(Tree):
    """The minimum spanning tree: an array of shape (n_finite - 1,), fields source, target (int64), weight.

    ``source < target`` are numbers of rows, ``weight`` (float64) is their mutual reachability distance;
    sorted by (weight, source, target).

    ``to_numpy()`` is, as in hdbscan, a float64 array of shape (n_finite - 1, 3): from, to, distance. The
    records themselves are the tree as it is, or ``np.array(tree)``.
    """

    @classmethod
    def of(cls, edges: NDArray[np.void], *, rows: Rows) -> MinimumSpanningTree:
        """Return the tree over edges, without a copy."""
        tree: MinimumSpanningTree = cls._of(edges, rows=rows)
        return tree

    @property
    def rows(self) -> Rows | None:
        """The rows of the fit, as the estimator remembers them; None in a tree not made by a fit."""
        return self._memory.get("rows")

    def to_numpy(self) -> NDArray[Any]:
        """Return a float64 array of shape (n_finite - 1, 3): from, to, distance, as hdbscan does."""
        return np.column_stack((self["source"], self["target"], self["weight"])).astype(np.float64)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with the columns from, to (int64) and distance.

        Raises
        ------
        ImportError
            Without pandas.
        """
        return require("pandas", "to_pandas").DataFrame(
            {
                "from": self["source"].copy(),
                "to": self["target"].copy(),
                "distance": self["weight"].copy(),
            }
        )

    def to_networkx(self) -> Any:
        """Return an undirected networkx graph of the finite rows; the ``weight`` of an edge is its distance.

        Raises
        ------
        ImportError
            Without networkx.
        """
        graph = require("networkx", "to_networkx").Graph()
        if self.rows is not None:
            finite = self.rows.finite_rows
            graph.add_nodes_from(range(self.rows.n_rows) if finite is None else finite.tolist())
        graph.add_weighted_edges_from(
            zip(self["source"].tolist(), self["target"].tolist(), self["weight"].tolist(), strict=True)
        )
        return graph

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the tree: :func:`mreach.plots.minimum_spanning_tree`, which lists the options.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: in a new figure. ``axis``, as hdbscan names it, is the same.

        Returns
        -------
        matplotlib Axes
        """
        return plots.minimum_spanning_tree(self, ax, **options)

    def _summary(self) -> str:
        return _count(len(self), "edge")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""Other clusters from the trees of a fit: nothing here computes a distance."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mreach.advice import warn_without_clusters
from mreach.copies import Copies
from mreach.float_environment import default_float_environment
from mreach.records import EDGE_DTYPE
from mreach.validation import Parameters, Rows, check_parameters
from mreach.validation.cuts import (
    AS_FITTED,
    asked_parameters,
    check_distance_cut,
    check_n_clusters,
    check_sizes,
    refuse_n_clusters,
)

Model = TypeVar("Model", bound="CutMixin")


class CutMixin:
    """The methods of :class:`mreach.HDBSCAN` that cut the trees of a fit again."""

    labels_: NDArray[np.int64]
    condensed_tree_: NDArray[np.void]
    # Set by fit: the parameters as they were given then, and which rows are finite.
    _given_parameters: dict[str, Any]
    _rows: Rows

    def cut(
        self: Model,
        min_cluster_size: int | None = None,
        cluster_selection_method: str | None = None,
        cluster_selection_epsilon: float | None = None,
        allow_single_cluster: bool | None = None,
        max_cluster_size: int | str | None = AS_FITTED,
        n_clusters: int | None = None,
        cluster_selection_epsilon_max: float | None = None,
    ) -> Model:
        """Select other clusters from the fitted trees, without computing distances.

        The result equals, bit for bit, a fit with its parameters. This estimator stays as it is. Parameters
        that were set by ``set_params`` after the fit do not count.

        Parameters
        ----------
        min_cluster_size : int, default=None
            As in :class:`HDBSCAN`; None: as fitted. Core distances and trees do not change with it: where
            ``min_samples`` was None, the result's is the fitted ``min_cluster_size``.
        cluster_selection_method : {"eom", "leaf"}, default=None
            None: as fitted.
        cluster_selection_epsilon : float, default=None
            In the unit of the data. None: as fitted.
        allow_single_cluster : bool, default=None
            None: as fitted.
        max_cluster_size : int or None, default="as fitted"
            None means no limit, as in :class:`HDBSCAN`, and "as fitted" the value of the fit.
        n_clusters : int, default=None
            Take the largest ``cluster_selection_epsilon`` that gives exactly this number of clusters (the
            fitted one does not count): the coarsest result with so many, and again one that a fit with the
            result's parameters gives. As epsilon grows, clusters only ever merge. Starts from the clusters
            that ``cluster_selection_method`` selects; "leaf" has the most.
        cluster_selection_epsilon_max : float, default=None
            None: as fitted; inf: no limit.

        Returns
        -------
        HDBSCAN
            A new, fitted estimator with the parameters of this cut. Core distances and trees are shared with
            this one, not copied. It has no centres (``store_centers`` is None).

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before a fit.
        ValueError
            Parameters out of range (of a wrong type: also a TypeError); ``n_clusters`` together with
            ``cluster_selection_epsilon``, or a number that no epsilon gives (the message names the nearest
            ones). Clusters of equal size where the data on the host were changed in place after the fit: they
            are numbered by their lexicographically smallest row, which is looked up there.

        Examples
        --------
        >>> import numpy as np
        >>> from mreach import HDBSCAN
        >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [20.0]])
        >>> model = HDBSCAN(min_cluster_size=3, min_samples=2, backend="reference").fit(X)
        >>> model.cut(min_cluster_size=4, allow_single_cluster=True).labels_
        array([ 0,  0,  0,  0,  0,  0, -1])
        """
        check_is_fitted(self)
        asked = {
            "min_cluster_size": min_cluster_size,
            "cluster_selection_method": cluster_selection_method,
            "cluster_selection_epsilon": cluster_selection_epsilon,
            "allow_single_cluster": allow_single_cluster,
            "max_cluster_size": max_cluster_size,
            "cluster_selection_epsilon_max": cluster_selection_epsilon_max,
        }
        n_clusters = check_n_clusters(n_clusters, cluster_selection_epsilon)
        with default_float_environment():
            new, parameters = _cut(self, asked, n_clusters, _point_edges(self))
        warn_without_clusters(new.labels_, new.condensed_tree_, new._rows.n_points, parameters)
        return new

    def cut_many(
        self: Model,
        min_cluster_sizes: Iterable[int],
        cluster_selection_method: str | None = None,
        cluster_selection_epsilon: float | None = None,
        allow_single_cluster: bool | None = None,
        max_cluster_size: int | str | None = AS_FITTED,
        n_clusters: int | None = None,
        cluster_selection_epsilon_max: float | None = None,
    ) -> list[Model]:
        """Cut the fitted trees once for each of several values of ``min_cluster_size``.

        Parameters
        ----------
        min_cluster_sizes : sequence of int
        cluster_selection_method, cluster_selection_epsilon, allow_single_cluster, max_cluster_size
            As in :meth:`cut`, the same for all values.
        n_clusters, cluster_selection_epsilon_max
            As in :meth:`cut`.

        Returns
        -------
        list of HDBSCAN
            What :meth:`cut` gives for each value, in their order. Each holds labels, probabilities and a
            condensed tree of its own.

        Raises
        ------
        ValueError, TypeError, sklearn.exceptions.NotFittedError
            As :meth:`cut`; also where ``min_cluster_sizes`` is not a sequence.

        Examples
        --------
        >>> import numpy as np
        >>> from mreach import HDBSCAN
        >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [20.0]])
        >>> model = HDBSCAN(min_cluster_size=3, min_samples=2, backend="reference").fit(X)
        >>> for one in model.cut_many([2, 3, 4]):
        ...     print(one.min_cluster_size, one.labels_)
        2 [ 0  0  0  1  1  1 -1]
        3 [ 0  0  0  1  1  1 -1]
        4 [-1 -1 -1 -1 -1 -1 -1]
        """
        check_is_fitted(self)
        asked = {
            "cluster_selection_method": cluster_selection_method,
            "cluster_selection_epsilon": cluster_selection_epsilon,
            "allow_single_cluster": allow_single_cluster,
            "max_cluster_size": max_cluster_size,
            "cluster_selection_epsilon_max": cluster_selection_epsilon_max,
        }
        sizes = check_sizes(min_cluster_sizes)
        n_clusters = check_n_clusters(n_clusters, cluster_selection_epsilon)
        with default_float_environment():
            edges = _point_edges(self)
            return [_cut(self, {**asked, "min_cluster_size": size}, n_clusters, edges)[0] for size in sizes]

    def dbscan_clustering(self, cut_distance: float, min_cluster_size: int = 5) -> NDArray[np.int64]:
        """Return the clusters at one distance: DBSCAN* with ``eps=cut_distance`` (Campello et al. 2013).

        Rows whose core distance is at most ``cut_distance`` are connected where their mutual reachability
        distance is at most that, too (hdbscan and scikit-learn connect only *below* it). Scikit-learn's
        ``DBSCAN(eps=cut_distance, min_samples=min_samples)`` finds the same clusters of its core samples, and
        adds to them border rows, which are noise here.

        Parameters
        ----------
        cut_distance : float
            At least 0, in the unit of the data.
        min_cluster_size : int, default=5
            Smaller clusters are noise. 1 keeps all, as DBSCAN* does.

        Returns
        -------
        int64 array of shape (n_samples,)
            Numbered as ``labels_``: by decreasing size, equal sizes by their lexicographically smallest row;
            -1 noise, -2 a row with infinity, -3 a row with NaN.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before a fit.
        ValueError
            Parameters out of range (of a wrong type: also a TypeError); data changed in place, as in
            :meth:`cut`.

        Examples
        --------
        >>> import numpy as np
        >>> from mreach import HDBSCAN
        >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [20.0]])
        >>> model = HDBSCAN(min_cluster_size=3, min_samples=2, backend="reference").fit(X)
        >>> model.dbscan_clustering(0.5, min_cluster_size=2)
        array([ 0,  0,  0,  1,  1,  1, -1])
        """
        check_is_fitted(self)
        return cut_at_distance(self, *check_distance_cut(cut_distance, min_cluster_size))

    def _edges_and_labels(self) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """Return the spanning tree and the labels of all points: each row as often as it counts."""
        model: Any = self
        rows = self._rows
        copies = Copies.of(rows)
        if copies is None:
            return model.minimum_spanning_tree_, model.labels_
        labels = model.labels_ if rows.finite_rows is None else model.labels_[rows.finite_rows]
        return _point_edges(self), labels[copies.row_of_point]


def cut_at_distance(model: Any, cut_distance: float, min_cluster_size: int) -> NDArray[np.int64]:
    """Return the clusters at one distance from the trees of a model; see ``dbscan_clustering``.

    Parameters
    ----------
    model
        The estimator, or a :class:`mreach.trees.FitOfTree`.
    cut_distance : float
    min_cluster_size : int

    Returns
    -------
    int64 array of shape (n_samples,)
    """
    rows: Rows = model._rows
    core = _finite_core(model)
    copies = Copies.of(rows)
    labels = hierarchy_of(model.backend_).cut_at_distance(
        _point_edges(model),
        core if copies is None else core[copies.row_of_point],
        cut_distance=cut_distance,
        min_cluster_size=min_cluster_size,
        data=rows.data if copies is None else copies.data(rows.data),
    )
    return spread_labels(labels if copies is None else labels[copies.first_point], rows)


def _cut(
    model: Model, asked: dict[str, Any], n_clusters: int | None, edges: NDArray[np.void]
) -> tuple[Model, Parameters]:
    """Return a new model: the trees of ``model``, and clusters by the parameters asked for; and these."""
    new: Any = copy.copy(model)
    for name, value in asked_parameters(model._given_parameters, asked).items():
        setattr(new, name, value)
    parameters = check_parameters(new)
    if n_clusters is not None:
        epsilon = _epsilon_for(n_clusters, edges, parameters, new.backend_)
        new.cluster_selection_epsilon = epsilon
        parameters = parameters._replace(cluster_selection_epsilon=epsilon)
    new.store_centers = None  # centres are means of the data, which a cut does not have
    for name in ("centroids_", "medoids_"):
        new.__dict__.pop(name, None)
    new._given_parameters = {name: getattr(new, name) for name in model._given_parameters}
    rows = model._rows
    copies = Copies.of(rows)
    new._store_cut(
        rows,
        hierarchy_of(new.backend_).cut(
            edges,
            data=rows.data if copies is None else copies.data(rows.data),
            **selection_of(parameters, rows.n_points),
        ),
    )
    result: Model = new
    return result, parameters


def _epsilon_for(n_clusters: int, edges: NDArray[np.void], parameters: Parameters, backend: str) -> float:
    """Return the largest epsilon that gives so many clusters.

    What is selected changes only where epsilon passes the height at which a cluster was born, an edge weight.
    The larger epsilon, the fewer clusters: each one selected for a larger epsilon holds one or more of those
    selected for a smaller one. So the heights can be searched by halves.
    """
    selection = selection_of(parameters, len(edges) + 1)
    del selection["cluster_selection_epsilon"]
    count = hierarchy_of(backend).clusters_by_epsilon(edges, **selection)
    weights = edges["weight"]
    heights = np.unique(np.r_[0.0, weights[np.isfinite(weights)]])  # no epsilon reaches infinity
    if parameters.allow_single_cluster and len(weights):
        # Above all weights the root replaces everything, with all rows, as 1 / epsilon is below all lambdas.
        beyond = np.nextafter(heights[-1], np.inf)
        heights = np.r_[heights, beyond if np.isfinite(beyond) else heights[-1]]
    limit = parameters.cluster_selection_epsilon_max
    if limit < heights[-1]:  # no fit takes an epsilon beyond it
        heights = np.r_[heights[heights < limit], limit]
    if count(heights[-1]) >= n_clusters:
        low = len(heights) - 1
    elif count(heights[0]) < n_clusters:
        return _refuse(n_clusters, [count(heights[0])], parameters)
    else:
        low, high = 0, len(heights) - 1  # count(low) >= n_clusters > count(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if count(heights[middle]) >= n_clusters else (low, middle)
    found = count(heights[low])
    if found != n_clusters:
        fewer = [count(heights[low + 1])] if low + 1 < len(heights) else []
        return _refuse(n_clusters, [*fewer, found], parameters)
    return float(heights[low])


def _refuse(n_clusters: int, nearest: list[int], parameters: Parameters) -> float:
    refuse_n_clusters(n_clusters, nearest, parameters.cluster_selection_method)
    return 0.0  # never reached


def hierarchy_of(backend: str) -> Any:
    """Return what builds the hierarchy: the naive one of "reference" after that, else the compiled one."""
    if backend == "reference":
        from mreach.backends import reference

        return reference
    from mreach import hierarchy  # needs the compiled core, which backend "reference" does without

    return hierarchy


def spread_labels(labels: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
    """Return labels of all rows from those of the finite rows, int64 of shape (n_rows,)."""
    if rows.finite_rows is None:
        return labels
    spread = np.empty(rows.n_rows, np.int64)
    spread[rows.finite_rows] = labels
    spread[rows.other_rows] = rows.other_labels
    return spread


def _point_edges(model: Any) -> NDArray[np.void]:
    """Return the spanning tree of all points, numbered from 0, as the hierarchy takes it."""
    edges: NDArray[np.void] = model.minimum_spanning_tree_
    rows = model._rows
    if rows.finite_rows is not None:
        number = np.empty(rows.n_rows, np.int64)
        number[rows.finite_rows] = np.arange(len(rows.finite_rows))
        renumbered = np.empty(len(edges), EDGE_DTYPE)
        renumbered["weight"] = edges["weight"]
        for end in ("source", "target"):
            renumbered[end] = number[edges[end]]
        edges = renumbered
    copies = Copies.of(rows)
    return edges if copies is None else copies.edges(edges, _finite_core(model))


def _finite_core(model: Any) -> NDArray[np.float64]:
    """Return the core distances of the finite rows."""
    core: NDArray[np.float64] = model.core_distances_
    finite_rows = model._rows.finite_rows
    return core if finite_rows is None else core[finite_rows]


def selection_of(parameters: Parameters, n_points: int) -> dict[str, Any]:
    """Return the keyword arguments of ``cut`` of a hierarchy over ``n_points`` points."""
    # No cluster is larger than all rows: a number beyond that means the same and fits into 64 bits.
    max_size = parameters.max_cluster_size
    return {
        "min_cluster_size": min(parameters.min_cluster_size, n_points + 1),
        "max_cluster_size": None if max_size is None else min(max_size, n_points),
        "cluster_selection_method": parameters.cluster_selection_method,
        "cluster_selection_epsilon": parameters.cluster_selection_epsilon,
        "cluster_selection_epsilon_max": parameters.cluster_selection_epsilon_max,
        "allow_single_cluster": parameters.allow_single_cluster,
    }

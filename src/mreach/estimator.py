"""The estimator: parameters, and a fit that reads as its stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin

from mreach.advice import warn_without_clusters
from mreach.backends import select_backend
from mreach.copies import Copies
from mreach.cuts import CutMixin, hierarchy_of, spread_labels
from mreach.fit_points import FitPoints, open_fit
from mreach.float_environment import default_float_environment
from mreach.neighbors import core_distances
from mreach.numbering import renumber_condensed, renumber_edges, renumber_linkage, spread
from mreach.peers import takes_peer_names
from mreach.prediction import PredictionMixin
from mreach.progress import ProgressCallback, open_progress
from mreach.records import Cut
from mreach.scores import FittedScores
from mreach.spanning_tree import minimum_spanning_tree
from mreach.sweep import SweepMixin
from mreach.trees import CondensedTree, FitOfTree, MinimumSpanningTree, SingleLinkageTree
from mreach.validation import (
    Parameters,
    Rows,
    check_array_like,
    check_parameters,
    check_sample_weight,
    given_parameters,
)


class HDBSCAN(CutMixin, SweepMixin, PredictionMixin, FittedScores, ClusterMixin, BaseEstimator):
    """Hierarchical density-based clustering with noise, computed exactly.

    The result is a function of the data and the parameters alone. It does not depend on the backend, the
    number of threads or the order of the rows; when rows are permuted, everything moves with them, bit for
    bit (only which of several equal edges stands in a tree follows the row numbers).

    Parameters
    ----------
    min_cluster_size : int, default=5
        Smallest number of rows, at least 2, that counts as a cluster.
    min_samples : int, default=None
        The core distance of a row is its distance to the ``min_samples``-th nearest row, *the row itself
        counted first* (as in scikit-learn). In the libraries hdbscan, cuML and fast_hdbscan the row itself is
        not counted: their ``min_samples=k`` is ``k + 1`` here. None means ``min_cluster_size``. At least 1,
        at most the number of finite rows.
    cluster_selection_epsilon : float, default=0.0
        Distance, in the unit of the data: a selected cluster that split off below it is replaced by its
        nearest ancestor that did not. 0.0 switches it off.
    max_cluster_size : int, default=None
        Larger clusters are not selected by "eom" ("leaf" pays no heed to it). None means no limit.
    cluster_selection_epsilon_max : float, default=inf
        Clusters that split off above this distance are not selected by "eom" ("leaf" pays no heed to it). The
        root counts as split off at infinity.
    metric : str or callable, default="euclidean"
        Distance between rows. "euclidean", "cosine", "correlation" and "haversine" (latitude and longitude in
        radians) run on every backend. "manhattan", "chebyshev", "minkowski", "hamming" and "jaccard" are
        computed on the host, all pairs, in memory linear in the rows. Other names of scikit-learn, and a
        function of two rows, need the whole matrix in memory. "precomputed": X holds the distances, as a
        square or condensed matrix or as a sparse graph. docs/metrics.md has the definitions.
    metric_params : dict, default=None
        Parameters of the metric, as in scikit-learn.
    p : float, default=None
        Exponent of "minkowski", from 1 to ``numpy.inf``, as in hdbscan; None: that of ``metric_params``,
        else 2.
    alpha : float, default=1.0
        Distances are divided by it (core distances are not) before the tree is built.
    cluster_selection_method : {"eom", "leaf"}, default="eom"
        "eom" selects the clusters with the largest total excess of mass, "leaf" those that do not split
        further.
    allow_single_cluster : bool, default=False
        Whether all the data may come out as one cluster.
    store_centers : {None, "centroid", "medoid", "both"}, default=None
        Which centres of the clusters to compute: ``centroids_``, ``medoids_``. Medoids take time that grows
        with the square of a cluster's rows. Both are computed on the host; data on a GPU are copied there.
    prediction_data : bool, default=True
        Whether the rows are kept for new ones: :meth:`predict` searches in them. *True differs from hdbscan,
        whose default is False.* Data on the host are referred to, without a copy; data on a GPU are copied to
        the host during the fit; a pickle holds the rows.
    backend : {"auto", "cpu", "reference", "cuda"}, default="auto"
        What computes the fit. All give the same result. "auto" takes "cuda" where the data lie on a GPU, a
        ``device`` is given, or a GPU can be used and the data are large enough to gain from it; else "cpu".
        A backend that was named is never replaced: :func:`mreach.available_backends` says why one cannot run.
    device : int, default=None
        Index of the GPU, as CUDA counts them (after CUDA_VISIBLE_DEVICES); with "auto" it means "cuda". None:
        the GPU that holds the data, else the current one.
    n_jobs : int, default=None
        Number of threads. *None differs from scikit-learn, where it means one:* here it means all cores that
        this process may use, and one inside a joblib worker. ``-1`` means all cores, ``-2`` all but one.
        Inside a joblib worker a number is cut to the worker's share of the cores.
    progress : bool or callable, default=False
        Whether to show a progress bar. A function is called as ``progress(stage, done, total)`` in its place;
        what it raises ends the fit and reaches the caller.
    algorithm, leaf_size, copy : default="auto", 40, False
        Parameters of scikit-learn, without effect: all searches give the same, exact result, and the data are
        never changed. Of hdbscan's, ``core_dist_n_jobs`` is taken as ``n_jobs``; ``gen_min_span_tree`` and
        ``approx_min_span_tree`` have no effect: the tree is always the minimum one, and kept. Other names
        raise TypeError, which says what to use instead.

    Attributes
    ----------
    labels_ : int64 array of shape (n_samples,)
        Cluster of each row. Clusters are numbered by decreasing number of rows, equal numbers by their
        lexicographically smallest row. -1: noise. -2: the row holds an infinity. -3: the row holds a NaN
        (and perhaps an infinity, too). ``labels_ >= 0`` are the rows in clusters.
    probabilities_ : float64 array of shape (n_samples,)
        Strength with which each row belongs to its cluster, from 0 to 1. 0 for labels -1 and -2, NaN for -3.
    core_distances_ : float64 array of shape (n_samples,)
        Core distances, in the unit of the data. NaN for rows that are not finite.
    minimum_spanning_tree_ : MinimumSpanningTree, an array of shape (n_finite - 1,)
        Fields source, target (int64), weight (float64): the minimum spanning tree of the finite rows under
        mutual reachability distance (in the unit of the data), ``source < target``, sorted by
        (weight, source, target). Among equal weights the edge with the lower ``source``, then ``target``, is
        taken.
    single_linkage_tree_ : SingleLinkageTree, a float64 array of shape (n_samples - 1, 4)
        The same tree as a linkage matrix of scipy.cluster.hierarchy. Rows that are not finite join last, at
        infinity. Its ``plot`` draws it; the whole of it is deeper than the recursion of SciPy's
        ``dendrogram`` goes.
    condensed_tree_ : CondensedTree, an array, fields parent, child (int64), lambda_val, child_size (int64)
        Which row or cluster (``child``) left which cluster (``parent``) at which density ``lambda_val`` =
        1/distance. Numbers below ``n_samples`` are rows, ``n_samples`` is the root, larger numbers are
        clusters. Rows that are not finite are not in it. ``lambda_val`` is infinite where rows are equal.
        All three trees have the methods ``to_numpy``, ``to_pandas``, ``to_networkx`` and ``plot``.
    cluster_persistence_ : float64 array of shape (n_clusters,)
        How long each cluster lasts, from 0 to 1, in the order of the labels.
    outlier_scores_ : float64 array of shape (n_samples,)
        GLOSH [2]_: 1 - density at which the row leaves its last cluster / largest finite density there and
        below. From 0 (as dense as the densest, or equal rows) to 1. 1 for label -2, NaN for -3.
    exemplars_ : list of int64 arrays, in the order of the labels
        Rows in the densest places of each cluster: of each leaf of the condensed tree below it, those that
        leave last. *Row numbers, ascending*: ``X[model.exemplars_[0]]`` is what hdbscan gives.
    relative_validity_ : float
        Density-based validity, from -1 to 1, approximated on the spanning tree as hdbscan does. It follows
        the tree: where weights are equal, the order of the rows may change it.
    centroids_, medoids_ : float64 arrays of shape (n_clusters, n_features)
        Centres, with ``store_centers``: means weighted by ``probabilities_``; rows with the least sum of
        distances to the rows of their cluster, weighted so.
    backend_ : str
        The backend that computed the fit.
    n_features_in_ : int
        Number of features of the data.
    feature_names_in_ : object array of shape (n_features_in_,)
        Column names, where the data are a data frame with text names.

    Notes
    -----
    Distances are computed in float64 from the data widened to float64, feature by feature, in difference
    form. Edges of equal weight are merged at once when the hierarchy is built, so that a tie cannot change a
    label.

    ``fit`` raises ValueError or TypeError, before any work, for parameters out of range and for data that are
    not a non-empty two-dimensional array of real numbers, have fewer finite rows than ``min_samples``, or
    have squared distances beyond the range of float64 (the message names the power of two to scale by). It
    raises TypeError for an array on a GPU where the backend named computes on the host, RuntimeError where
    the backend or the GPU cannot be used here, and MemoryError where the memory does not suffice.
    ``X`` is never changed. Where it lies on the host, the fitted estimator refers to it (or to the copy that
    was made for another type or layout), without a copy of its own: :meth:`predict` and :meth:`cut` read it.

    References
    ----------
    .. [1] Campello, R. J. G. B., Moulavi, D., Sander, J. (2013). Density-based clustering based on
       hierarchical density estimates. PAKDD 2013, LNCS 7819, 160-172.
    .. [2] Campello, R. J. G. B., Moulavi, D., Zimek, A., Sander, J. (2015). Hierarchical density estimates
       for data clustering, visualization, and outlier detection. ACM TKDD 10(1), 5:1-5:51.
    .. [3] McInnes, L., Healy, J. (2017). Accelerated hierarchical density based clustering. ICDM Workshops
       2017, 33-42.

    Examples
    --------
    >>> import numpy as np
    >>> from mreach import HDBSCAN
    >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [20.0]])
    >>> HDBSCAN(min_cluster_size=3, min_samples=2, backend="reference").fit_predict(X)
    array([ 0,  0,  0,  1,  1,  1, -1])
    """

    @takes_peer_names
    def __init__(
        self,
        min_cluster_size: int = 5,
        min_samples: int | None = None,
        cluster_selection_epsilon: float = 0.0,
        max_cluster_size: int | None = None,
        metric: str | Callable[..., float] = "euclidean",
        metric_params: dict[str, Any] | None = None,
        p: float | None = None,
        alpha: float = 1.0,
        cluster_selection_method: str = "eom",
        allow_single_cluster: bool = False,
        store_centers: str | None = None,
        backend: str = "auto",
        device: int | None = None,
        n_jobs: int | None = None,
        progress: bool | ProgressCallback = False,
        cluster_selection_epsilon_max: float = math.inf,
        prediction_data: bool = True,
        algorithm: str = "auto",
        leaf_size: int = 40,
        copy: bool = False,
    ) -> None:
        self.min_cluster_size = min_cluster_size
        self.min_samples = min_samples
        self.cluster_selection_epsilon = cluster_selection_epsilon
        self.max_cluster_size = max_cluster_size
        self.metric = metric
        self.metric_params = metric_params
        self.p = p
        self.alpha = alpha
        self.cluster_selection_method = cluster_selection_method
        self.allow_single_cluster = allow_single_cluster
        self.store_centers = store_centers
        self.backend = backend
        self.device = device
        self.n_jobs = n_jobs
        self.progress = progress
        self.cluster_selection_epsilon_max = cluster_selection_epsilon_max
        self.prediction_data = prediction_data
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.copy = copy

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> HDBSCAN:
        """Cluster the rows of ``X``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Real numbers of any type and memory layout. Types that fit into float32 are held as float32, the
            others as float64. Rows with NaN or infinity get labels of their own and take no part. An array
            on a GPU (CuPy, PyTorch, JAX, or anything with ``__dlpack__`` or ``__cuda_array_interface__``) is
            read there, by backend "cuda". A copy goes to the host; with ``prediction_data=False`` only as few
            of its columns as put the rows in order, for later cuts, and with ``store_centers`` the rows of
            clusters. Fitted attributes are NumPy arrays.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Whole numbers of at least 0. A row of weight w acts exactly as w equal rows; each fitted
            attribute holds what the first of them would have (docs/metrics.md). A row of weight 0 has no
            influence: label -1, probability 0, core distance NaN, and no place in the spanning and condensed
            tree. None: each row counts once.

        Returns
        -------
        HDBSCAN
            The estimator itself.
        """
        with default_float_environment():
            return self._fit(X, sample_weight)

    def _fit(self, X: Any, sample_weight: Any) -> HDBSCAN:
        parameters = check_parameters(self)
        X, device = check_array_like(self, X, parameters, on_host=sample_weight is not None)
        n_rows, n_features = X.shape
        weights = check_sample_weight(sample_weight, n_rows)
        backend = select_backend(parameters.backend, device, n_rows, n_features, parameters.min_samples)
        with (
            open_progress(parameters.progress) as progress,
            open_fit(backend, X, weights, parameters, device, progress) as fit,
        ):
            core = core_distances(fit.points, parameters.min_samples)
            edges = minimum_spanning_tree(fit.points, parameters.alpha)
            progress.stage("hierarchy", 1)
            self._finish(fit, core, edges, parameters, backend.NAME)
            progress.advance()
        warn_without_clusters(self.labels_, self.condensed_tree_, self._rows.n_points, parameters)
        return self

    def _finish(
        self, fit: FitPoints, core: np.ndarray, edges: np.ndarray, parameters: Parameters, backend: str
    ) -> None:
        """Find the clusters from core distances and spanning tree, and set all fitted attributes."""
        hierarchy = hierarchy_of(backend)
        measured, edges = fit.of_rows(core, edges)
        core, edges = fit.in_unit(measured, edges)
        merges = hierarchy.linkage(edges)
        cut, centers = fit.cut(hierarchy, core, edges, parameters)
        self._given_parameters = given_parameters(self)
        self._rows = fit.rows._replace(finite=None, data=fit.kept_rows())
        # Of the finite rows, as measured: for haversine chords, which angles lose.
        self._measured_core_distances = measured
        # A dict pickles, as no read-only one does.
        self._metric = fit.metric._replace(parameters=dict(fit.metric.parameters))
        self.backend_ = backend
        self._store(fit.rows, core, edges, merges, cut)
        for name in ("centroids_", "medoids_"):
            self.__dict__.pop(name, None)  # of a fit before this one
        self.__dict__.update(centers)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """Cluster the rows of ``X`` and return ``labels_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As in :meth:`fit`.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`fit`.

        Returns
        -------
        int64 array of shape (n_samples,)
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def _store(self, rows: Rows, core: np.ndarray, edges: np.ndarray, merges: np.ndarray, cut: Cut) -> None:
        """Set the fitted attributes, in the user's row numbers."""
        if rows.finite_rows is not None:
            core = spread(core, rows)
            renumber_edges(edges, rows.finite_rows)
            merges = renumber_linkage(merges, rows)
        self.core_distances_ = core
        self.minimum_spanning_tree_ = MinimumSpanningTree.of(edges, rows=self._rows)
        fit = FitOfTree(self.backend_, core, edges, self._rows)
        self.single_linkage_tree_ = SingleLinkageTree.of(merges, fit=fit)
        self._store_cut(rows, cut)

    def _store_cut(self, rows: Rows, cut: Cut) -> None:
        """Set the fitted attributes that another cut of the same trees changes, in the user's row numbers."""
        copies = Copies.of(rows)
        if copies is not None:
            cut = copies.cut(cut)
        labels, probabilities, condensed = cut.labels, cut.probabilities, cut.condensed_tree
        if rows.finite_rows is not None:
            labels = spread_labels(cut.labels, rows)
            probabilities = np.empty(rows.n_rows)
            probabilities[rows.finite_rows] = cut.probabilities
            probabilities[rows.other_rows] = np.where(rows.other_labels == -3, np.nan, 0.0)
            renumber_condensed(condensed, rows)
        self.labels_ = labels
        self.probabilities_ = probabilities
        self._selected = cut.selected + (rows.n_rows - rows.n_finite)  # clusters of condensed_tree_, by label
        self.condensed_tree_ = CondensedTree.of(condensed, labels=labels, selected=self._selected)
        self.cluster_persistence_ = cut.persistence
        self._birth_heights = cut.birth_heights  # of all clusters of condensed_tree_, the root first
        self._scores: dict[str, Any] = {}  # filled as they are asked for

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.metric == "precomputed"
        return tags

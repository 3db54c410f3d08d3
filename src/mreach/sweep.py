"""Fits for several numbers of neighbours from one search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from sklearn.base import clone

from mreach.backends import select_backend
from mreach.core_graph import MAX_NEIGHBORS, trees_for
from mreach.fit_points import open_fit
from mreach.float_environment import default_float_environment
from mreach.progress import open_progress
from mreach.validation import Parameters, check_array_like, check_parameters
from mreach.validation.cuts import check_sweep

Model = TypeVar("Model", bound="SweepMixin")


class SweepMixin:
    """The method of :class:`mreach.HDBSCAN` that fits several times."""

    def fit_many(
        self: Model, X: Any, min_samples: Iterable[int], y: Any = None, sample_weight: Any = None
    ) -> list[Model]:
        """Fit once for each of several values of ``min_samples``, searching for neighbours once.

        On backend "cpu", for the metrics that are Euclidean at heart, ``alpha`` at most 1 and values up
        to 256, neighbours and spanning tree of the largest value hold a spanning tree for each smaller
        one [1]_. In all other cases each value is fitted by itself; the results are the same. For one
        value of ``min_samples`` and several of ``min_cluster_size`` use :meth:`cut_many`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As in :meth:`fit`.
        min_samples : sequence of int
            In place of the parameter, which does not count.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`fit`.

        Returns
        -------
        list of HDBSCAN
            New, fitted estimators, in the order of the values; this one stays as it is. Each equals a
            fit with its ``min_samples`` bit for bit, but for which of several equal edges stands in the
            spanning tree (and so the order of equal merges in ``single_linkage_tree_``, and
            ``relative_validity_``).

        Raises
        ------
        ValueError, TypeError, RuntimeError, MemoryError
            As :meth:`fit`; also where ``min_samples`` is not a sequence, or empty.

        Notes
        -----
        The neighbours of all rows are held: about 60 bytes for each row and neighbour.

        References
        ----------
        .. [1] Neto, A. C. A., Naldi, M. C., Campello, R. J. G. B., Sander, J. (2022). CORE-SG: efficient
           computation of multiple MSTs for density-based methods. ICDE 2022, 951-964.

        Examples
        --------
        >>> import numpy as np
        >>> from mreach import HDBSCAN
        >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [20.0]])
        >>> for model in HDBSCAN(min_cluster_size=3).fit_many(X, [1, 2, 3]):
        ...     print(model.min_samples, model.labels_)
        1 [ 0  0  0  1  1  1 -1]
        2 [ 0  0  0  1  1  1 -1]
        3 [ 0  0  0  1  1  1 -1]
        """
        models: list[Any] = [clone(self).set_params(min_samples=value) for value in check_sweep(min_samples)]
        with default_float_environment():
            checked = [check_parameters(model) for model in models]
            most = max(range(len(models)), key=lambda i: checked[i].min_samples)
            if sample_weight is None and _is_shared(checked[most]):
                X, device = check_array_like(models[most], X, checked[most])
                n_rows, n_features = X.shape
                name, n_neighbors = checked[most].backend, checked[most].min_samples
                backend = select_backend(name, device, n_rows, n_features, n_neighbors)
                if backend.NAME == "cpu":
                    _fit_shared(models, checked, most, X, backend)
                    return models
        for model in models:
            model.fit(X, sample_weight=sample_weight)
        return models


def _is_shared(parameters: Parameters) -> bool:
    few = parameters.min_samples <= MAX_NEIGHBORS
    return few and parameters.alpha <= 1 and parameters.metric.kind == "filtered"


def _fit_shared(models: list[Any], checked: list[Parameters], most: int, X: Any, backend: Any) -> None:
    """Fit all models from the neighbours of the one with the most."""
    parameters = checked[most]
    with (
        open_progress(parameters.progress) as progress,
        open_fit(backend, X, None, parameters, None, progress) as fit,
    ):
        values = [one.min_samples for one in checked]
        trees = trees_for(
            fit.points, fit.rows.finite, values, parameters.alpha, parameters.metric.halved_square
        )
        for i, (core, edges) in enumerate(trees):
            if i == 0:
                progress.stage("hierarchy", len(models))
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(models[most], name):
                    setattr(models[i], name, getattr(models[most], name))
            models[i]._finish(fit, core, edges, checked[i], backend.NAME)
            progress.advance()

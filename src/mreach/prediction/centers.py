"""Centres of single clusters, asked for after a fit, by the names of hdbscan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mreach.centers import center
from mreach.copies import Copies
from mreach.float_environment import default_float_environment
from mreach.prediction.search import values_of_finite
from mreach.validation.new_rows import check_cluster_id, refuse_centers_without_rows

__all__ = ["CentersMixin"]


class CentersMixin:
    """Methods of :class:`mreach.HDBSCAN`."""

    def weighted_cluster_centroid(self, cluster_id: int) -> NDArray[np.float64]:
        """Return the mean of the rows of a cluster, weighted by their probabilities.

        What ``centroids_`` holds with ``store_centers``.

        Parameters
        ----------
        cluster_id : int
            A label, from 0 on.

        Returns
        -------
        float64 array of shape (n_features,)

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before a fit.
        ValueError
            No such label; metric "precomputed"; the rows of the fit were not kept
            (``prediction_data=False``), or were changed in place.
        """
        return _center_of(self, cluster_id, "centroid")

    def weighted_cluster_medoid(self, cluster_id: int) -> NDArray[np.float64]:
        """Return the row of a cluster with the least weighted sum of distances to its rows.

        What ``medoids_`` holds with ``store_centers``. It takes time that grows with the square of the
        cluster.

        Parameters
        ----------
        cluster_id : int
            A label, from 0 on.

        Returns
        -------
        float64 array of shape (n_features,)

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError
            As :meth:`weighted_cluster_centroid`.
        """
        return _center_of(self, cluster_id, "medoid")


def _center_of(model: Any, cluster_id: Any, which: str) -> NDArray[np.float64]:
    check_is_fitted(model, "labels_")
    label = check_cluster_id(cluster_id, len(model._selected))
    if model._rows.data is None:
        refuse_centers_without_rows()
    rows = model._rows.data.whole()
    members = np.flatnonzero(values_of_finite(model, model.labels_) == label)
    copies = Copies.of(model._rows)
    if copies is not None:
        members = np.repeat(members, copies.counts[members])
    with default_float_environment(), np.errstate(under="ignore"):
        probabilities = values_of_finite(model, model.probabilities_)[members]
        return center(rows[members], probabilities, which, model._metric)

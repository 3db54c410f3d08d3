"""New rows, and how strongly rows belong to clusters, by the hierarchy of a fit.

The methods of :class:`mreach.HDBSCAN`, and functions under the names that hdbscan has for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mreach.float_environment import default_float_environment
from mreach.prediction.centers import CentersMixin
from mreach.prediction.membership import Memberships
from mreach.prediction.places import ClusterTree, Places
from mreach.prediction.search import nearest_of_fit, values_of_finite
from mreach.validation import Rows
from mreach.validation.new_rows import (
    check_batch_rows,
    check_max_distance,
    check_new_rows,
    refuse_large_vectors,
    refuse_without_rows,
)

__all__ = [
    "PredictionMixin",
    "all_points_membership_vectors",
    "approximate_predict",
    "approximate_predict_scores",
    "membership_vector",
]

VECTORS_BYTES = 1 << 32
"""Most bytes that all membership vectors of a call may take."""

BATCH_BYTES = 1 << 26
"""Bytes of a batch of membership vectors where its rows are not given."""


class PredictionMixin(CentersMixin):
    """The methods of :class:`mreach.HDBSCAN` that place rows in the hierarchy of a fit."""

    # Set by fit.
    labels_: NDArray[np.int64]
    probabilities_: NDArray[np.float64]
    core_distances_: NDArray[np.float64]
    condensed_tree_: NDArray[np.void]
    backend_: str
    _given_parameters: dict[str, Any]
    _rows: Rows
    _measured_core_distances: NDArray[np.float64]
    _selected: NDArray[np.int64]
    _birth_heights: NDArray[np.float64]
    _score: Callable[..., Any]

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster of each new row, by the clusters that were found in the fit.

        Nothing is clustered anew: a row joins the row of the fit at the least mutual reachability distance,
        at that distance, and has the label that a row has there. Rows of the fit get ``labels_``, bit for
        bit.

        Parameters
        ----------
        X : array-like of shape (n_new, n_features)
            As in :meth:`fit`. An array on a GPU is copied to the host. For metric "precomputed" of shape
            (n_new, n_samples): the distances to the rows of the fit.

        Returns
        -------
        int64 array of shape (n_new,)
            -1: noise. -2: the row holds an infinity. -3: the row holds a NaN.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before a fit.
        ValueError
            Data that are not a non-empty two-dimensional array of real numbers with the features of the fit,
            or whose squared distances to the rows of the fit leave float64. The rows of the fit were not kept
            (``prediction_data=False``), or were changed in place.

        Examples
        --------
        >>> import numpy as np
        >>> from mreach import HDBSCAN
        >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [20.0]])
        >>> model = HDBSCAN(min_cluster_size=3, min_samples=2, backend="reference").fit(X)
        >>> model.predict([[0.15], [5.3], [12.0]])
        array([ 0,  1, -1])
        """
        return self.approximate_predict(X)[0]

    def approximate_predict(self, X: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return cluster and strength of each new row. The name is hdbscan's: it is exact here.

        Parameters
        ----------
        X : array-like of shape (n_new, n_features)
            As in :meth:`predict`.

        Returns
        -------
        labels : int64 array of shape (n_new,)
            As :meth:`predict` gives them.
        strengths : float64 array of shape (n_new,)
            As ``probabilities_``, from 0 to 1; 0 for labels -1 and -2, NaN for -3. Rows of the fit get
            ``probabilities_``, bit for bit.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError
            As :meth:`predict`.
        """
        labels, _, strengths = self._placed(X)
        return labels, strengths

    def outlier_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the outlier score of each new row (GLOSH), as ``outlier_scores_`` has them for the fit.

        Parameters
        ----------
        X : array-like of shape (n_new, n_features)
            As in :meth:`predict`.

        Returns
        -------
        float64 array of shape (n_new,)
            From 0 to 1; 1 for label -2, NaN for -3. Rows of the fit get ``outlier_scores_``, bit for bit.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError
            As :meth:`predict`.
        """
        labels, places, _ = self._placed(X)
        scores = self._cluster_tree().outlier_scores_of(places)
        scores[labels == -2] = 1.0
        scores[labels == -3] = np.nan
        return scores

    def approximate_predict_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the outlier score of each new row: hdbscan's name for :meth:`outlier_scores`."""
        return self.outlier_scores(X)

    def membership_vector(self, X: Any) -> NDArray[np.float64]:
        """Return how strongly each new row belongs to every cluster.

        Parameters
        ----------
        X : array-like of shape (n_new, n_features)
            As in :meth:`predict`.

        Returns
        -------
        float64 array of shape (n_new, n_clusters)
            From 0 to 1, in the order of the labels; the sum over a row is at most 1. The largest is that of
            the label, where there is one. 0 for label -2, NaN for -3. Rows of the fit get what
            :meth:`all_points_membership_vectors` gives. ``docs/prediction.md`` says how they are made up.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError
            As :meth:`predict`.
        MemoryError
            The vectors would take more than 4 GiB: :meth:`membership_batches` gives them bit by bit.
        """
        return self._all_vectors(*self._placed(X))

    def all_points_membership_vectors(self) -> NDArray[np.float64]:
        """Return how strongly each row of the fit belongs to every cluster. No row is looked at for it.

        Returns
        -------
        float64 array of shape (n_samples, n_clusters)
            As :meth:`membership_vector` gives them. A row without noise adds up to its ``probabilities_``,
            but for rounding.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before a fit.
        MemoryError
            As in :meth:`membership_vector`.

        Examples
        --------
        >>> import numpy as np
        >>> from mreach import HDBSCAN
        >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [20.0]])
        >>> model = HDBSCAN(min_cluster_size=3, min_samples=2, backend="reference").fit(X)
        >>> model.all_points_membership_vectors()[[0, 3, 6]].round(3)
        array([[0.99 , 0.01 ],
               [0.01 , 0.99 ],
               [0.003, 0.003]])
        """
        return self._all_vectors(*self._fitted_places())

    def membership_batches(
        self, X: Any = None, *, batch_rows: int | None = None
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Give membership vectors batch by batch, where all of them would not fit into memory.

        Parameters
        ----------
        X : array-like of shape (n_new, n_features), default=None
            As in :meth:`predict`. None: the rows of the fit.
        batch_rows : int, default=None
            Rows of a batch; None takes so many that it has 64 MiB.

        Yields
        ------
        rows : slice
            Which rows these are.
        vectors : float64 array of shape (rows, n_clusters)
            Their part of what :meth:`membership_vector` or :meth:`all_points_membership_vectors` would give.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError
            As :meth:`predict`, when it is called; also for ``batch_rows`` that is not an integer of at least
            1.
        """
        check_is_fitted(self, "labels_")
        asked = check_batch_rows(batch_rows)
        placed = self._fitted_places() if X is None else self._placed(X)
        return self._batches(*placed, asked)

    def generate_prediction_data(self) -> Any:
        """Do what hdbscan needs before a prediction: nothing. Returns the estimator itself.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError
            Before a fit; where the rows of the fit were not kept, or were changed in place.
        """
        check_is_fitted(self, "labels_")
        if self._rows.data is not None:  # there are none of precomputed distances
            self._rows.data.whole()
        return self

    def assign_noise(self, max_distance: float | None = None) -> NDArray[np.int64]:
        """Return the labels of the fit, where noise rows have that of the nearest clustered row.

        Nearest by mutual reachability distance; among equals the row at the least distance counts, then the
        lexicographically smallest one.

        Parameters
        ----------
        max_distance : float, default=None
            Rows with a larger mutual reachability distance to all clustered rows stay noise. In the unit of
            the data. None: all are assigned.

        Returns
        -------
        int64 array of shape (n_samples,)
            -1: noise that is left (all of it, where there is no cluster). -2 and -3 as in ``labels_``, which
            stay as they are.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError
            As :meth:`predict`; also for ``max_distance`` that is not a finite number of at least 0.

        Examples
        --------
        >>> import numpy as np
        >>> from mreach import HDBSCAN
        >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [10.0], [20.0]])
        >>> model = HDBSCAN(min_cluster_size=3, min_samples=2, backend="reference").fit(X)
        >>> model.labels_
        array([ 0,  0,  0,  1,  1,  1, -1, -1])
        >>> model.assign_noise(max_distance=6.0)
        array([ 0,  0,  0,  1,  1,  1,  1, -1])
        """
        check_is_fitted(self, "labels_")
        farthest = check_max_distance(max_distance)
        labels = self.labels_.copy()
        finite = values_of_finite(self, labels)
        noise = np.flatnonzero(finite == -1)
        if self._rows.data is None:
            refuse_without_rows()
        if len(noise) < len(finite) and len(noise):
            with default_float_environment():
                found = nearest_of_fit(
                    self,
                    self._rows.data.whole()[noise],
                    new_core_distances=self._measured_core_distances[noise],
                    candidates=finite >= 0,
                )
            near = found.weights <= farthest
            finite[noise[near]] = finite[found.rows[near]]
            if self._rows.finite_rows is None:
                return finite
            labels[self._rows.finite_rows] = finite
        return labels

    def _cluster_tree(self) -> ClusterTree:
        """Return the tree that rows are placed in, made when it is first asked for."""
        return self._score(
            "cluster tree",
            lambda: ClusterTree(
                self.condensed_tree_,
                self._birth_heights,
                self._selected,
                len(self.labels_),
                float(self._given_parameters["cluster_selection_epsilon"]),
            ),
        )

    def _placed(self, X: Any) -> tuple[NDArray[np.int64], Places, NDArray[np.float64]]:
        """Return labels, places and strengths of new rows; those that are not finite are in the root."""
        check_is_fitted(self, "labels_")
        with default_float_environment(), np.errstate(under="ignore"):
            new = check_new_rows(self, X)
            labels = new.labels
            strengths = np.where(labels == -3, np.nan, 0.0)
            places = Places(np.zeros(len(labels), np.int32), np.full(len(labels), np.inf))
            if len(new.finite):
                found = nearest_of_fit(self, new.finite)
                nearest = found.rows
                if self._rows.finite_rows is not None:
                    nearest = self._rows.finite_rows[nearest]
                tree = self._cluster_tree()
                placed = tree.place(nearest, found.weights)
                places.clusters[new.places], places.lambdas[new.places] = placed
                of_placed = tree.labels_of(placed)
                labels[new.places], strengths[new.places] = of_placed, tree.strengths_of(placed, of_placed)
        return labels, places, strengths

    def _fitted_places(self) -> tuple[NDArray[np.int64], Places, NDArray[np.float64]]:
        """Return labels, places and strengths of the rows of the fit."""
        check_is_fitted(self, "labels_")
        labels, rows = self.labels_, self._rows
        if rows.copies is not None and (rows.other_labels == -1).any():
            labels = labels.copy()  # rows that do not count are not in the tree: no vector, as for infinity
            labels[rows.other_rows[rows.other_labels == -1]] = -2
        return labels, self._cluster_tree().rows, self.probabilities_

    def _all_vectors(
        self, labels: NDArray[np.int64], places: Places, strengths: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        if 8 * len(labels) * len(self._selected) > VECTORS_BYTES:
            refuse_large_vectors(len(labels), len(self._selected), VECTORS_BYTES)
        (batch,) = self._batches(labels, places, strengths, len(labels))
        return batch[1]

    def _batches(
        self,
        labels: NDArray[np.int64],
        places: Places,
        strengths: NDArray[np.float64],
        batch_rows: int | None,
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        memberships = self._score("memberships", lambda: Memberships(self._cluster_tree()))
        if batch_rows is None:
            batch_rows = max(1, BATCH_BYTES // (8 * max(1, memberships.n_labels)))
        return memberships.batches(places, labels, strengths, batch_rows)


def approximate_predict(model: Any, X: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return labels and strengths of new rows: ``model.approximate_predict(X)``, as hdbscan names it."""
    labels, strengths = model.approximate_predict(X)
    return labels, strengths


def approximate_predict_scores(model: Any, X: Any) -> NDArray[np.float64]:
    """Return outlier scores of new rows: ``model.outlier_scores(X)``, as hdbscan names it."""
    scores: NDArray[np.float64] = model.outlier_scores(X)
    return scores


def membership_vector(model: Any, X: Any) -> NDArray[np.float64]:
    """Return membership vectors of new rows: ``model.membership_vector(X)``, as hdbscan names it."""
    vectors: NDArray[np.float64] = model.membership_vector(X)
    return vectors


def all_points_membership_vectors(model: Any) -> NDArray[np.float64]:
    """Return membership vectors of the rows of the fit: ``model.all_points_membership_vectors()``."""
    vectors: NDArray[np.float64] = model.all_points_membership_vectors()
    return vectors

"""``hdbscan.HDBSCAN`` and the function ``hdbscan.hdbscan``, computed by mreach.

Both are made in this module when they are first asked for: they need the library hdbscan. Only what a fit
computes is replaced; trees, plots, prediction and the rest are the library's own, on these results.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from mreach.accel.classes import REFUSALS, Accelerated, accelerated_class, fitted, made_once, say_left_to
from mreach.accel.support import HDBSCAN as TABLE
from mreach.accel.support import mreach_parameters
from mreach.accel.trees import binary_condensed_tree, place_numbers
from mreach.estimator import HDBSCAN as MreachHDBSCAN

_MODULE = "hdbscan.hdbscan_"  # which defines the originals


class _ByMreach(Accelerated):
    _library = "hdbscan"
    _table = TABLE

    # Set by the __init__ of the original, or by a fit.
    min_cluster_size: int
    min_samples: int | None
    gen_min_span_tree: bool
    prediction_data: bool
    branch_detection_data: bool
    mreach_: MreachHDBSCAN
    _raw_data: Any
    _outlier_scores: Any

    def _fit_by_mreach(self, X: Any) -> None:
        parameters = mreach_parameters(self, self._table, X)
        if parameters["metric"] == "precomputed":
            self._raw_data, n_finite = None, X.shape[0]
        else:
            self._raw_data = X = check_array(X, ensure_all_finite=False)
            n_finite = len(X) if np.isfinite(X.sum()) else int(np.isfinite(X).all(axis=1).sum())
            self._all_finite = n_finite == len(X)
        # More neighbours than there are rows count as all of them.
        parameters["min_samples"] = min(parameters["min_samples"], max(1, n_finite))
        model = fitted(parameters, X)
        self._take(model)
        self._forget_derived()
        self.mreach_ = model
        if self.prediction_data:
            self.generate_prediction_data()
        if getattr(self, "branch_detection_data", False):
            self.generate_branch_detection_data()  # type: ignore[attr-defined]

    def _take(self, model: MreachHDBSCAN) -> None:
        """Set the fitted attributes as hdbscan has them."""
        numbers, order = place_numbers(model._selected)
        self.labels_ = numbers[np.maximum(model.labels_, -1)]
        self.probabilities_ = np.where(self.labels_ < 0, 0.0, model.probabilities_)
        self.cluster_persistence_ = model.cluster_persistence_[order]
        self._condensed_tree = binary_condensed_tree(np.asarray(model.condensed_tree_), model.labels_)
        self._single_linkage_tree = np.asarray(model.single_linkage_tree_)
        self._min_spanning_tree = None
        if self.gen_min_span_tree or getattr(self, "branch_detection_data", False):
            edges = np.asarray(model.minimum_spanning_tree_)
            self._min_spanning_tree = np.column_stack([edges["source"], edges["target"], edges["weight"]])

    def _forget_derived(self) -> None:
        for name in ("_outlier_scores", "_prediction_data", "_branch_detection_data", "_relative_validity"):
            setattr(self, name, None)

    def _before_original_fit(self) -> None:
        self._forget_derived()

    def generate_prediction_data(self) -> None:
        """Keep what the prediction functions of hdbscan want, as the original does.

        Where there are fewer rows than ``min_samples`` there is nothing to predict from, and nothing is kept
        (the original raises ValueError).
        """
        k = self.min_samples or self.min_cluster_size
        if "mreach_" not in self.__dict__ or len(self.labels_) >= k:
            super().generate_prediction_data()  # type: ignore[misc]

    @property
    def outlier_scores_(self) -> np.ndarray:
        """Outlier score of each row (GLOSH), float64 array of shape (n_samples,); 1 where not finite."""
        if self._outlier_scores is None and "mreach_" in self.__dict__:
            self._outlier_scores = np.nan_to_num(self.mreach_.outlier_scores_, nan=1.0)
        return super().outlier_scores_  # type: ignore[misc]

    @outlier_scores_.setter
    def outlier_scores_(self, value: Any) -> None:
        self._outlier_scores = value


def _function(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the accelerated form of the function ``hdbscan.hdbscan``."""

    @functools.wraps(original)
    def hdbscan(X: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            given = inspect.signature(original).bind(X, *args, **kwargs)
            given.apply_defaults()
            parameters = {**given.arguments, **given.arguments.get("kwargs", {})}
            for name in ("X", "kwargs"):
                parameters.pop(name, None)
            model = accelerated_class(_ByMreach, _MODULE, __name__)(**parameters)
            model._fit_by_mreach(X)
        except REFUSALS as reason:
            say_left_to("hdbscan", reason)
            return original(X, *args, **kwargs)
        return (
            model.labels_,
            model.probabilities_,
            model.cluster_persistence_,
            model._condensed_tree,
            model._single_linkage_tree,
            model._min_spanning_tree,
        )

    hdbscan.__module__ = __name__  # where pickle finds it
    hdbscan.__dict__["_original"] = original
    return hdbscan


def __getattr__(name: str) -> Any:
    if name == "HDBSCAN":
        return accelerated_class(_ByMreach, _MODULE, __name__)
    if name == "hdbscan":
        return made_once(__name__, "hdbscan", _MODULE, _function)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

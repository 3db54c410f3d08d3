"""``sklearn.cluster.HDBSCAN``, computed by mreach.

``HDBSCAN`` of this module is made when it is first asked for: it needs scikit-learn's ``sklearn.cluster``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mreach.accel.classes import Accelerated, accelerated_class, fitted
from mreach.accel.support import SKLEARN, Unsupported, mreach_parameters

_LINKAGE_DTYPE = np.dtype(
    [("left_node", np.intp), ("right_node", np.intp), ("value", np.float64), ("cluster_size", np.intp)]
)


class _ByMreach(Accelerated):
    _library = "scikit-learn"
    _table = SKLEARN

    metric: Any  # set by the __init__ of the original

    def _fit_by_mreach(self, X: Any) -> None:
        self._validate_params()  # type: ignore[attr-defined]
        if self.metric == "precomputed" and np.ndim(X) != 2:
            raise Unsupported("scikit-learn takes square matrices of distances only")
        model = fitted(mreach_parameters(self, self._table, X), X)
        if len(model.labels_) == 1:
            raise Unsupported("there is one row only")
        for name in ("centroids_", "medoids_", "feature_names_in_"):
            self.__dict__.pop(name, None)  # of a fit before this one
            if name in model.__dict__:
                setattr(self, name, getattr(model, name))
        self.n_features_in_ = model.n_features_in_
        self.labels_ = model.labels_
        self.probabilities_ = model.probabilities_
        self._single_linkage_tree_ = _linkage(
            np.asarray(model.single_linkage_tree_)
        )  # read by dbscan_clustering
        self.mreach_ = model


def _linkage(merges: np.ndarray) -> np.ndarray:
    """Return a linkage matrix of SciPy as scikit-learn keeps it."""
    linkage = np.empty(len(merges), _LINKAGE_DTYPE)
    for column, name in enumerate(_LINKAGE_DTYPE.names or ()):
        linkage[name] = merges[:, column]
    return linkage


def __getattr__(name: str) -> Any:
    if name == "HDBSCAN":
        return accelerated_class(_ByMreach, "sklearn.cluster._hdbscan.hdbscan", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

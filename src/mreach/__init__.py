"""Exact HDBSCAN: one answer, whatever computes it.

Public names: :class:`HDBSCAN`, :func:`available_backends`, hdbscan's functions for new rows
(:func:`approximate_predict`, :func:`approximate_predict_scores`, :func:`membership_vector`,
:func:`all_points_membership_vectors`), :func:`save_model` and :func:`load_model` (fitted models as files),
:mod:`mreach.validity` (how well any clusters are separated), :mod:`mreach.plots` (pictures of a fit), and
:mod:`mreach.datasets` (real spike clips to try it on). Importing this package touches no GPU and no plotting
library.
"""

from typing import NoReturn

from mreach import datasets, plots, validity
from mreach.advice import NoClustersWarning
from mreach.backends import available_backends
from mreach.estimator import HDBSCAN
from mreach.model_file import load_model, save_model
from mreach.prediction import (
    all_points_membership_vectors,
    approximate_predict,
    approximate_predict_scores,
    membership_vector,
)

__version__ = "0.1.0"

__all__ = [
    "HDBSCAN",
    "NoClustersWarning",
    "__version__",
    "all_points_membership_vectors",
    "approximate_predict",
    "approximate_predict_scores",
    "available_backends",
    "datasets",
    "load_model",
    "membership_vector",
    "plots",
    "save_model",
    "validity",
]


def __getattr__(name: str) -> NoReturn:
    if name == "BranchDetector":
        raise AttributeError(
            "mreach has no BranchDetector: branches inside clusters are out of the scope of mreach"
        )
    raise AttributeError(f"module 'mreach' has no attribute {name!r}")

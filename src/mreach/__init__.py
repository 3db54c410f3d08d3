"""Exact HDBSCAN: one answer, whatever computes it.

Public names: :class:`HDBSCAN`, :func:`available_backends`, :mod:`mreach.validity` (how well any clusters are
separated), :mod:`mreach.plots` (pictures of a fit), and :mod:`mreach.datasets` (real spike
clips to try it on). Importing this package touches no GPU and no plotting library.
"""

from typing import NoReturn

from mreach import datasets, plots, validity
from mreach.advice import NoClustersWarning
from mreach.backends import available_backends
from mreach.estimator import HDBSCAN

__version__ = "0.1.0"

__all__ = [
    "HDBSCAN",
    "NoClustersWarning",
    "__version__",
    "available_backends",
    "datasets",
    "plots",
    "validity",
]


def __getattr__(name: str) -> NoReturn:
    if name == "BranchDetector":
        raise AttributeError(
            "mreach has no BranchDetector: branches inside clusters are out of the scope of mreach"
        )
    raise AttributeError(f"module 'mreach' has no attribute {name!r}")

"""Exact HDBSCAN: one answer, whatever computes it.

Public names: :class:`HDBSCAN`, :func:`available_backends`, :mod:`mreach.validity` (how well any clusters are
separated), and :mod:`mreach.datasets` (real spike clips to try it on). Importing this package touches no GPU
and no plotting library.
"""

from mreach import datasets, validity
from mreach.backends import available_backends
from mreach.estimator import HDBSCAN

__version__ = "0.1.0"

__all__ = ["HDBSCAN", "__version__", "available_backends", "datasets", "validity"]

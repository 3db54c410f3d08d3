"""Exact HDBSCAN: one answer, whatever computes it.

Public names: :class:`HDBSCAN`, :func:`available_backends`, and :mod:`mreach.datasets` (real spike clips to
try it on). Importing this package touches no GPU and no plotting library.
"""

from mreach import datasets
from mreach.backends import available_backends
from mreach.estimator import HDBSCAN

__version__ = "0.1.0"

__all__ = ["HDBSCAN", "__version__", "available_backends", "datasets"]

"""The definition of the outlier scores, in plain Python, on the naive hierarchy."""

import math

import numpy as np
from numpy.typing import NDArray

from mreach.backends.reference_hierarchy import condense, hierarchy, largest_finite

__all__ = ["outlier_scores"]


def outlier_scores(edges: NDArray[np.void], min_cluster_size: int) -> NDArray[np.float64]:
    """Return GLOSH of rows 0 to len(edges), the global-local outlier score from hierarchies.

    The largest finite lambda is looked for in the last cluster of a row and in all clusters below it.
    """
    scores = np.zeros(len(edges) + 1)
    for cluster in condense(hierarchy(edges), min_cluster_size):
        lambdas: list[float] = []
        subtree = [cluster]
        for one in subtree:  # grows while it is walked
            lambdas += one.own_lambdas()
            subtree += one.children
        for row, lam in cluster.leaving_rows:
            densest = largest_finite(lambdas)
            as_dense = math.isinf(lam) or densest == 0  # 0: all of it leaves at an infinite height
            scores[row] = 0.0 if as_dense else max(0.0, 1 - lam / densest)
    return scores

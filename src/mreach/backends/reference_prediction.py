"""The definition of what a fit says of new rows, in plain Python, on the naive hierarchy.

It shares no code with ``mreach.prediction``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.backends.reference_hierarchy import (
    Cluster,
    condense,
    cut,
    density,
    hierarchy,
    largest_finite,
    probability,
    rows_of,
)
from mreach.records import NearestRows

__all__ = ["Prediction", "predict"]


class Prediction(NamedTuple):
    """What is said of m new rows.

    Attributes
    ----------
    labels : int64 array of shape (m,)
    strengths, outlier_scores : float64 arrays of shape (m,)
    vectors : float64 array of shape (m, n_labels)
    """

    labels: NDArray[np.int64]
    strengths: NDArray[np.float64]
    outlier_scores: NDArray[np.float64]
    vectors: NDArray[np.float64]


def predict(edges: NDArray[np.void], nearest: NearestRows, *, data: Any, **selection: Any) -> Prediction:
    """Place new rows in the hierarchy of a spanning tree.

    Parameters
    ----------
    edges : EDGE_DTYPE array of shape (n - 1,)
        The minimum spanning tree of rows 0 to n - 1.
    nearest : NearestRows
        What :func:`mreach.backends.reference.nearest_rows` found for the new rows.
    data, **selection
        As for :func:`mreach.backends.reference_hierarchy.cut`.
    """
    n = len(edges) + 1
    clusters = condense(hierarchy(edges), selection["min_cluster_size"])
    selected = [clusters[number - n] for number in cut(edges, data=data, **selection).selected.tolist()]
    epsilon = selection.get("cluster_selection_epsilon", 0.0)
    found = Prediction(
        np.full(len(nearest.rows), -1),
        np.zeros(len(nearest.rows)),
        np.zeros(len(nearest.rows)),
        np.zeros((len(nearest.rows), len(selected))),
    )
    for i, (row, height) in enumerate(zip(nearest.rows.tolist(), nearest.weights.tolist(), strict=True)):
        home = max(
            (c for c in clusters if c.birth_height > height and row in rows_of(c.node)), key=len_of_path
        )
        lam = min([density(height)] + [at for c in clusters for one, at in c.leaving_rows if one == row])
        owners = [c for c in path(home) if c in selected]
        is_clustered = bool(owners)
        if owners and owners[0].parent is None:
            threshold = 1 / epsilon if epsilon > 0 else max(owners[0].own_lambdas())
            is_clustered = lam >= threshold
        if is_clustered:
            found.labels[i] = selected.index(owners[0])
            found.strengths[i] = probability(lam, largest_finite(owners[0].own_lambdas()))
        below = [lam for c in clusters if home in path(c) for lam in c.own_lambdas()]
        if math.isfinite(lam) and largest_finite(below) > 0:
            found.outlier_scores[i] = max(0.0, 1 - lam / largest_finite(below))
        if selected:
            strength = found.strengths[i] if is_clustered else None
            found.vectors[i] = vector(owners[0] if owners else home, lam, strength, selected)
    return found


def path(cluster: Cluster | None) -> list[Cluster]:
    """Return a cluster and all its ancestors, the root last."""
    found = []
    while cluster is not None:
        found.append(cluster)
        cluster = cluster.parent
    return found


def len_of_path(cluster: Cluster) -> int:
    """Return how deep a cluster is."""
    return len(path(cluster))


def vector(
    source: Cluster, lam: float, strength: float | None, selected: list[Cluster]
) -> NDArray[np.float64]:
    """Return the membership vector of a row.

    Parameters
    ----------
    source : Cluster
        The selected cluster that the row is below, or its own where there is none.
    lam : float
        Where it leaves.
    strength : float or None
        Of a clustered row; None for noise.
    selected : list of Cluster
        In the order of their labels.
    """
    joint, steps = [], []
    for cluster in selected:
        common = next(one for one in path(source) if one in path(cluster))
        steps.append(path(source).index(common))
        joint.append(lam if common is source else path(source)[steps[-1] - 1].birth_lambda)
    weights = []
    for at, climbed in zip(joint, steps, strict=True):
        ratio = 1.0 if at == max(joint) else at / max(joint)
        weights.append(math.ldexp(ratio, min(steps) - climbed))
    if strength is None:
        strength = max(
            beside(at, cluster)
            for at, cluster, weight in zip(joint, selected, weights, strict=True)
            if weight == max(weights)
        )
    n_terms = sum(weight > 0 for weight in weights)
    total = np.sum(weights) * (1 + (n_terms - 1) * 2.0**-50)
    return np.array(weights) * (strength / total)


def beside(at: float, cluster: Cluster) -> float:
    """Return how dense a density is, measured by what leaves a cluster itself, at most 1."""
    densest = largest_finite(cluster.own_lambdas()) or cluster.birth_lambda
    if at == 0 or densest == 0:
        return float(at > 0)
    return min(1.0, at / densest)

"""How well clusters of any shape are separated: density-based cluster validity."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from mreach.centers import lexicographic_order
from mreach.float_environment import default_float_environment
from mreach.validation.labels import check_labelled_rows

__all__ = ["validity_index"]

TILE_BYTES = 1 << 25
"""Bytes of distances that are held at a time: no whole matrix ever is."""


class _Inside(NamedTuple):
    """What a cluster brings into the comparison with others."""

    rows: NDArray[np.float64]  # (n_internal, n_features): rows with more than one edge of the cluster's tree
    core: NDArray[np.float64]  # (n_internal,): their core distances over all rows of the cluster
    sparseness: float


def validity_index(
    X: Any, labels: Any, *, per_cluster_scores: bool = False
) -> float | tuple[float, NDArray[np.float64]]:
    """Density-based cluster validity, DBCV (Moulavi et al. 2014), of any clustering of the rows.

    A row's core distance is an inverse mean over all rows of its cluster, without a parameter. Each cluster
    has a minimum spanning tree under mutual reachability by these core distances. Its *sparseness* is the
    heaviest edge between internal rows (those with more than one edge), its *separation* from another cluster
    the smallest mutual reachability distance between internal rows of the two. With the least separation s,
    its validity is (s - sparseness) / max(s, sparseness); the index is the mean over all rows, noise counting
    0.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Real numbers, on the host. Never changed. The unit does not matter.
    labels : array-like of shape (n_samples,)
        Whole numbers: the cluster of each row, -1 for noise. Rows with smaller labels (not finite, see
        :class:`mreach.HDBSCAN`) take no part.
    per_cluster_scores : bool, default=False
        Whether to return the validity of each cluster, too.

    Returns
    -------
    float
        From -1 to 1, larger for better separated clusters. 0 with fewer than two clusters.
    float64 array of shape (largest label + 1,)
        With ``per_cluster_scores``, the validity of each cluster. 0 for a label of fewer than two rows.

    Raises
    ------
    ValueError
        X is no non-empty two-dimensional array of numbers, a row with a label from 0 on is not finite, labels
        are not whole numbers, one for each row.

    Notes
    -----
    A cluster of one row has no tree: it counts as noise. Equal rows have core distance 0, the limit of rows
    that come closer (the library hdbscan leaves them out of the mean). Of edges of equal weight the one
    between nearer rows is taken, then the one between lexicographically smaller rows, so that the order of
    the rows does not matter. (Such edges are the rule here, and decide which rows are internal. hdbscan takes
    them by row number: its index moves by 0.03 to 0.3 when rows are shuffled, and equals this one where no
    weights are equal.) Time grows with the square of a cluster's rows, memory does not.

    References
    ----------
    Moulavi, D., Jaskowiak, P. A., Campello, R. J. G. B., Zimek, A., Sander, J. (2014). Density-based
    clustering validation. SIAM International Conference on Data Mining, 839-847.

    Examples
    --------
    >>> from mreach.validity import validity_index
    >>> X = [[0.0], [1.0], [2.0], [3.0], [20.0], [21.0], [22.0], [23.0]]
    >>> round(validity_index(X, [0, 0, 0, 0, 1, 1, 1, 1]), 3)
    0.937
    """
    rows, numbers = check_labelled_rows(X, labels)
    n_counted = np.count_nonzero(numbers >= -1)
    sizes = np.bincount(numbers[numbers >= 0])
    scores = np.zeros(len(sizes))
    with default_float_environment(), np.errstate(under="ignore"):
        # Ratios of distances do not change with a power of two, and squares neither overflow nor vanish.
        exponent = np.frexp(np.abs(rows[numbers >= 0]).max(initial=0.0))[1]
        clusters = [
            _look_inside(np.ldexp(rows[numbers == label], -exponent)) for label in np.flatnonzero(sizes > 1)
        ]
        if len(clusters) > 1:
            scores[sizes > 1] = _validities(clusters)
    index = float((sizes * scores).sum() / n_counted) if n_counted else 0.0
    return (index, scores) if per_cluster_scores else index


def _validities(clusters: list[_Inside]) -> NDArray[np.float64]:
    """Return the validity of each of two clusters or more, shape (n_clusters,)."""
    separation = np.full(len(clusters), np.inf)
    for i, one in enumerate(clusters):
        for j, other in enumerate(clusters[:i]):
            between = _separation(one, other)
            separation[[i, j]] = np.minimum(separation[[i, j]], between)
    sparseness = np.array([cluster.sparseness for cluster in clusters])
    larger = np.maximum(separation, sparseness)
    validity = np.zeros(len(clusters))  # both 0: equal rows in two clusters
    np.divide(separation - sparseness, larger, out=validity, where=larger > 0)
    return validity


def _separation(one: _Inside, other: _Inside) -> float:
    """Return the smallest mutual reachability distance between internal rows of two clusters."""
    least = np.inf
    for tile in _tiles(len(one.rows), len(other.rows)):
        weights = cdist(one.rows[tile], other.rows)
        np.maximum(weights, one.core[tile, np.newaxis], out=weights)
        np.maximum(weights, other.core, out=weights)
        least = min(least, float(weights.min()))
    return least


def _look_inside(rows: NDArray[np.float64]) -> _Inside:
    """Find the internal rows of a cluster of two rows or more, and its sparseness."""
    rows = rows + 0.0  # no -0.0, which equals 0.0
    rows = rows[lexicographic_order(rows)]
    core = _core_distances(rows)
    source, target, weight = _spanning_tree(rows, core)
    degree = np.bincount(np.concatenate((source, target)), minlength=len(rows))
    is_internal = degree > 1 if len(rows) > 2 else np.ones(2, bool)  # of two rows none has two edges
    inside = is_internal[source] & is_internal[target]
    # A star has one internal row and no edge between such rows: then all edges count.
    sparseness = weight[inside].max() if inside.any() else weight.max()
    return _Inside(rows[is_internal], core[is_internal], float(sparseness))


def _core_distances(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the all-points core distance of each row of a cluster, shape (n,).

    ``(mean over the other rows of (1 / distance) ** n_features) ** (-1 / n_features)``, relative to the
    nearest row, so that no power overflows; 0 for a row that has an equal.
    """
    n, n_features = rows.shape
    core = np.zeros(n)
    for tile in _tiles(n, n):
        distances = cdist(rows[tile], rows)
        distances[np.arange(len(distances)), np.arange(n)[tile]] = np.inf  # not to itself
        nearest = distances.min(axis=1)
        apart = nearest > 0
        means = ((nearest[apart, np.newaxis] / distances[apart]) ** n_features).sum(axis=1) / (n - 1)
        nearest[apart] *= means ** (-1 / n_features)
        core[tile] = nearest
    return core


def _spanning_tree(
    rows: NDArray[np.float64], core: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return source < target and weight of the edges of the minimum spanning tree (Prim's algorithm).

    The unique one under the order (weight, distance, source, target).
    """
    n = len(rows)
    numbers = np.arange(n)
    weight, distance = np.full(n, np.inf), np.full(n, np.inf)  # of the best edge from each row into the tree
    source, target = np.full(n, n), np.full(n, n)
    outside = np.ones(n, bool)
    edges = np.empty(n - 1, np.int64)  # the row that each edge brought into the tree
    newest = 0
    for step in range(n - 1):
        outside[newest] = False
        new_distance = cdist(rows[newest : newest + 1], rows)[0]
        new_weight = np.maximum(np.maximum(new_distance, core), core[newest])
        new_source, new_target = np.minimum(numbers, newest), np.maximum(numbers, newest)
        better = new_target < target
        for new, old in ((new_source, source), (new_distance, distance), (new_weight, weight)):
            better = (new < old) | ((new == old) & better)
        better &= outside
        for new, old in (
            (new_weight, weight),
            (new_distance, distance),
            (new_source, source),
            (new_target, target),
        ):
            old[better] = new[better]
        lightest = np.flatnonzero(outside & (weight == weight[outside].min()))
        order = np.lexsort((target[lightest], source[lightest], distance[lightest]))
        newest = edges[step] = int(lightest[order[0]])
    return source[edges], target[edges], weight[edges]


def _tiles(n: int, width: int) -> list[slice]:
    """Cut n rows into slices with few enough distances to ``width`` others."""
    n_at_once = max(1, TILE_BYTES // (8 * width))
    return [slice(start, start + n_at_once) for start in range(0, n, n_at_once)]

"""The definition of everything after the minimum spanning tree, in plain Python.

It shares no code with ``mreach.hierarchy``: a mistake there cannot hide here. The formulation is HDBSCAN* of
Campello, Moulavi, Zimek and Sander (2015), *Hierarchical density estimates for data clustering,
visualization, and outlier detection*, ACM TKDD 10(1), with all edges of one weight merged at once, so that
the order of the rows cannot change the hierarchy. Nothing here is recursive: trees may be as deep as they
have points.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.records import CONDENSED_DTYPE, Cut

__all__ = ["cut", "linkage"]

# ---------------------------------------------------------------------------------------------------------
# The binary tree, in the order of the edges
# ---------------------------------------------------------------------------------------------------------


def linkage(edges: NDArray[np.void]) -> NDArray[np.float64]:
    """Merge the edges one after another, in the order in which they come.

    Parameters
    ----------
    edges : EDGE_DTYPE array of shape (n - 1,)
        A spanning tree of rows 0 to n - 1, sorted by (weight, source, target).

    Returns
    -------
    float64 array of shape (n - 1, 4), as SciPy's linkage matrices: the two merged nodes (left < right, n + i
    for the node of line i), height, number of points.
    """
    n = len(edges) + 1
    node_of_row = np.arange(n)
    tree = np.empty((n - 1, 4))
    for i, (source, target, weight) in enumerate(edges.tolist()):
        left, right = sorted((int(node_of_row[source]), int(node_of_row[target])))
        merged = (node_of_row == left) | (node_of_row == right)
        node_of_row[merged] = n + i
        tree[i] = left, right, weight, np.count_nonzero(merged)
    return tree


# ---------------------------------------------------------------------------------------------------------
# The canonical hierarchy: all edges of one weight at once
# ---------------------------------------------------------------------------------------------------------


class Node(NamedTuple):
    """A connected component of the graph of edges with weight <= height; two parts or more, or one row."""

    height: float
    parts: "tuple[Node, ...]"
    row: int
    size: int


def hierarchy(edges: NDArray[np.void]) -> Node:
    """Return the root of the canonical hierarchy of a spanning tree of rows 0 to len(edges)."""
    n = len(edges) + 1
    nodes = [Node(height=0.0, parts=(), row=row, size=1) for row in range(n)]
    node_of_row = np.arange(n)
    for height in np.unique(edges["weight"]):
        neighbours: dict[int, set[int]] = {}
        for source, target, _ in edges[edges["weight"] == height].tolist():
            a, b = int(node_of_row[source]), int(node_of_row[target])
            neighbours.setdefault(a, set()).add(b)
            neighbours.setdefault(b, set()).add(a)
        for component in connected_components(neighbours):
            parts = tuple(nodes[part] for part in component)
            node_of_row[np.isin(node_of_row, component)] = len(nodes)
            nodes.append(Node(float(height), parts, row=-1, size=sum(part.size for part in parts)))
    return nodes[-1]


def connected_components(neighbours: dict[int, set[int]]) -> Iterator[list[int]]:
    """Yield the vertices of each connected component of an undirected graph."""
    seen: set[int] = set()
    for start in neighbours:
        if start in seen:
            continue
        seen.add(start)
        component = [start]
        for vertex in component:  # grows while it is walked, until nothing new is reached
            reached = neighbours[vertex] - seen
            seen |= reached
            component.extend(reached)
        yield component


def rows_of(node: Node) -> list[int]:
    """Return all rows in a component."""
    rows = []
    stack = [node]
    while stack:
        top = stack.pop()
        if top.parts:
            stack.extend(top.parts)
        else:
            rows.append(top.row)
    return rows


# ---------------------------------------------------------------------------------------------------------
# The condensed tree
# ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Cluster:
    """A cluster of the condensed tree: a component, followed down to where it splits or ends."""

    node: Node
    parent: "Cluster | None" = None
    birth_height: float = math.inf
    birth_lambda: float = 0.0
    stability: float = 0.0
    children: "list[Cluster]" = field(default_factory=list)
    leaving_rows: list[tuple[int, float]] = field(default_factory=list)
    """The rows of which this is the last cluster, each with the lambda at which it leaves."""

    def own_lambdas(self) -> list[float]:
        """Every lambda at which a row or a child leaves this cluster itself."""
        return [lam for _, lam in self.leaving_rows] + [child.birth_lambda for child in self.children]


def density(height: float) -> float:
    """Return lambda at a height: 1 / height, infinite at 0, 0 at infinity, else positive and finite."""
    return math.inf if height == 0 else min(1 / height, sys.float_info.max)


def condense(root: Node, min_cluster_size: int) -> list[Cluster]:
    """Follow every cluster from the top; return them in the order of their numbers, the root first."""
    clusters = [Cluster(root)]
    for cluster in clusters:  # grows while it is walked
        node = cluster.node
        while node.parts:
            lam = density(node.height)
            large = [part for part in node.parts if part.size >= min_cluster_size]
            small = [part for part in node.parts if part.size < min_cluster_size]
            cluster.leaving_rows += [(row, lam) for part in small for row in rows_of(part)]
            goes_on = len(large) == 1
            leaving = sum(part.size for part in (small if goes_on else node.parts))
            cluster.stability += leaving * (lam - cluster.birth_lambda)
            if not goes_on:
                cluster.children = [Cluster(part, cluster, node.height, lam) for part in large]
                clusters += cluster.children
                break
            node = large[0]
    # The root is born at infinity, and nothing but the root has no parent.
    return sorted(clusters, key=lambda c: (c.parent is not None, -c.birth_height, min(rows_of(c.node))))


def condensed_records(clusters: list[Cluster], n: int) -> NDArray[np.void]:
    """Return the condensed tree as CONDENSED_DTYPE records, sorted by (parent, lambda_val, child)."""
    number = {cluster: n + i for i, cluster in enumerate(clusters)}
    records = []
    for cluster in clusters:
        records += [(number[cluster], lam, row, 1) for row, lam in cluster.leaving_rows]
        records += [(number[cluster], c.birth_lambda, number[c], c.node.size) for c in cluster.children]
    records.sort()
    return np.array([(parent, child, lam, size) for parent, lam, child, size in records], CONDENSED_DTYPE)


# ---------------------------------------------------------------------------------------------------------
# Selection
# ---------------------------------------------------------------------------------------------------------


def select_by_excess_of_mass(
    clusters: list[Cluster], max_cluster_size: float, epsilon_max: float, allow_single_cluster: bool
) -> list[Cluster]:
    """Return the clusters whose total stability is largest, none of them inside another."""
    value: dict[Cluster, float] = {}
    wins: set[Cluster] = set()
    for cluster in reversed(clusters):  # children before their parents
        value_of_children = 0.0
        for child_value in sorted(value[child] for child in cluster.children):
            value_of_children += child_value
        may_win = (
            cluster.node.size <= max_cluster_size
            and cluster.birth_height <= epsilon_max
            and (allow_single_cluster or cluster.parent is not None)
        )
        if may_win and cluster.stability >= value_of_children:
            wins.add(cluster)
            value[cluster] = cluster.stability
        else:
            value[cluster] = value_of_children
    return topmost(wins)


def select_leaves(clusters: list[Cluster], allow_single_cluster: bool) -> list[Cluster]:
    """Return the clusters without children; the root only where there is no other and it is allowed."""
    return [c for c in clusters if not c.children and (allow_single_cluster or c.parent is not None)]


def raise_to_epsilon(cluster: Cluster, epsilon: float, allow_single_cluster: bool) -> Cluster:
    """Return the nearest cluster at or above this one that was born at ``epsilon`` or higher."""
    while cluster.birth_height < epsilon:
        parent = cluster.parent
        assert parent is not None  # the root is born at infinity, which is not below epsilon
        if parent.parent is None and not allow_single_cluster:
            break
        cluster = parent
    return cluster


def topmost(clusters: Iterable[Cluster]) -> list[Cluster]:
    """Leave out every cluster that lies inside another one of them."""
    given = set(clusters)
    kept = []
    for cluster in given:
        ancestor = cluster.parent
        while ancestor is not None and ancestor not in given:
            ancestor = ancestor.parent
        if ancestor is None:
            kept.append(cluster)
    return kept


# ---------------------------------------------------------------------------------------------------------
# Labels, probabilities, persistence
# ---------------------------------------------------------------------------------------------------------


def members_of(
    clusters: list[Cluster], selected: list[Cluster], epsilon: float
) -> dict[Cluster, list[tuple[int, float]]]:
    """Return the rows that belong to each selected cluster, each with its lambda."""
    members: dict[Cluster, list[tuple[int, float]]] = {cluster: [] for cluster in selected}
    for cluster in clusters:
        owner: Cluster | None = cluster
        while owner is not None and owner not in members:
            owner = owner.parent
        if owner is not None:
            members[owner] += cluster.leaving_rows

    root = clusters[0]
    if members.get(root):
        # Everything lies below the root: only what is dense enough belongs to it.
        threshold = 1 / epsilon if epsilon > 0 else max(root.own_lambdas())
        members[root] = [(row, lam) for row, lam in members[root] if lam >= threshold]
    return members


def probability(lam: float, largest: float) -> float:
    """Return how strongly a row with this lambda belongs to a cluster with this largest finite lambda."""
    return 1.0 if math.isinf(lam) or lam >= largest else lam / largest


def persistence_of(cluster: Cluster, largest: float) -> float:
    """Return the stability as a part of what the densest cluster of this size could have, at most 1."""
    bound = cluster.node.size * largest
    if cluster.stability == 0 and bound == 0:
        return 0.0
    if math.isinf(cluster.stability) or bound == 0:
        return 1.0
    return min(1.0, cluster.stability / bound)


def largest_finite(lambdas: Iterable[float]) -> float:
    """Return the largest finite lambda, 0 where there is none."""
    return max((lam for lam in lambdas if math.isfinite(lam)), default=0.0)


# ---------------------------------------------------------------------------------------------------------
# All of it
# ---------------------------------------------------------------------------------------------------------


def label_order(clusters: list[list[int]], data: Any) -> list[list[int]]:
    """Sort the rows of clusters by their labels: the largest first, then the lexicographically smallest row.

    ``data`` is read only for clusters of equal size. Where it is None, or rows are equal (which some metrics
    put into different clusters), the smallest row number decides.
    """
    sizes = Counter(map(len, clusters))

    def smallest_row(rows: list[int]) -> Any:
        if sizes[len(rows)] == 1:
            return None  # compared with nothing
        if data is None:
            return min(rows)
        return min(zip(map(tuple, data[rows].astype(np.float64).tolist()), rows, strict=True))

    return sorted(clusters, key=lambda rows: (-len(rows), smallest_row(rows)))


def cut(
    edges: NDArray[np.void],
    *,
    min_cluster_size: int,
    max_cluster_size: int | None = None,
    cluster_selection_method: str = "eom",
    cluster_selection_epsilon: float = 0.0,
    cluster_selection_epsilon_max: float = math.inf,
    allow_single_cluster: bool = False,
    data: NDArray[Any] | None = None,
) -> Cut:
    """Condense a spanning tree, select clusters and label the rows.

    Parameters
    ----------
    edges : EDGE_DTYPE array of shape (n - 1,)
        The minimum spanning tree of rows 0 to n - 1. Weights may be infinite.
    min_cluster_size : int
        At least 2.
    max_cluster_size : int or None
        Larger clusters are not selected by "eom".
    cluster_selection_method : {"eom", "leaf"}
    cluster_selection_epsilon : float
        Height (a distance) below which selected clusters are replaced by an ancestor.
    cluster_selection_epsilon_max : float
        Clusters born above this height are not selected by "eom"; the root is born at infinity.
    allow_single_cluster : bool
        Whether the root may be selected.
    data : array of shape (n, d) or None
        Orders labels that are carried by equal numbers of rows: the lexicographically smallest row first.
        Where it is None, the smallest row number decides.

    Returns
    -------
    Cut
    """
    n = len(edges) + 1
    epsilon = float(cluster_selection_epsilon)
    clusters = condense(hierarchy(edges), min_cluster_size)
    condensed_tree = condensed_records(clusters, n)

    if cluster_selection_method == "eom":
        size_limit = math.inf if max_cluster_size is None else max_cluster_size
        selected = select_by_excess_of_mass(
            clusters, size_limit, cluster_selection_epsilon_max, allow_single_cluster
        )
    else:
        selected = select_leaves(clusters, allow_single_cluster)
    selected = topmost(raise_to_epsilon(cluster, epsilon, allow_single_cluster) for cluster in selected)

    members = members_of(clusters, selected, epsilon)
    cluster_of = {found[0][0]: cluster for cluster, found in members.items() if found}
    rows_of_clusters = [[row for row, _ in members[cluster]] for cluster in cluster_of.values()]
    in_label_order = [cluster_of[rows[0]] for rows in label_order(rows_of_clusters, data)]

    labels = np.full(n, -1, dtype=np.int64)
    probabilities = np.zeros(n)
    for label, cluster in enumerate(in_label_order):
        largest = largest_finite(cluster.own_lambdas())
        for row, lam in members[cluster]:
            labels[row] = label
            probabilities[row] = probability(lam, largest)

    largest_of_tree = largest_finite(condensed_tree["lambda_val"].tolist())
    return Cut(
        labels=labels,
        probabilities=probabilities,
        condensed_tree=condensed_tree,
        stabilities=np.array([cluster.stability for cluster in clusters]),
        selected=np.array([n + clusters.index(cluster) for cluster in in_label_order], dtype=np.int64),
        persistence=np.array([persistence_of(c, largest_of_tree) for c in in_label_order], dtype=np.float64),
        birth_heights=np.array([cluster.birth_height for cluster in clusters]),
    )

"""Where equal edge weights leave a binary hierarchy a choice.

mreach merges all edges of one weight at once, so that its hierarchy does not depend on their order. Libraries
that merge two at a time may answer differently at two kinds of node; both are found here from the spanning
tree, in plain Python, so that a difference between two libraries can be told apart from a mistake.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np


class Ties(NamedTuple):
    """What a binary tree may decide either way.

    Attributes
    ----------
    tied : bool array of shape (n,)
        Points of a small part that leaves at a node with three or more parts, two of them of at least
        `min_cluster_size` points: a binary tree gives it to one of the two, or to neither.
    inventing_nodes : int
        Nodes with several small parts that add up to `min_cluster_size`: a binary tree may make a cluster of
        them.
    """

    tied: np.ndarray
    inventing_nodes: int


def find_ties(sources: np.ndarray, targets: np.ndarray, weights: np.ndarray, min_cluster_size: int) -> Ties:
    """Find the ties of a spanning tree of n points.

    Parameters
    ----------
    sources, targets, weights : arrays of shape (n - 1,)
        The edges, in any order; rows are 0 to n - 1.
    min_cluster_size : int
    """
    n = len(weights) + 1
    order = np.argsort(weights, kind="stable")
    heights = weights[order]
    starts = (
        np.flatnonzero(np.r_[True, heights[1:] != heights[:-1]]) if n > 1 else np.empty(0, dtype=np.int64)
    )
    bounds = [*starts.tolist(), n - 1]
    source_list, target_list = sources[order].tolist(), targets[order].tolist()

    parent = list(range(n))
    size = [1] * n
    # Points of each small component; components that have grown large are never asked for theirs.
    members: dict[int, list[int]] = {row: [row] for row in range(n)}

    def root_of(row: int) -> int:
        root = row
        while parent[root] != root:
            root = parent[root]
        while parent[row] != root:
            parent[row], row = root, parent[row]
        return root

    def merge(one: int, other: int) -> int:
        if size[one] < size[other]:
            one, other = other, one
        parent[other] = one
        size[one] += size[other]
        ours, theirs = members.get(one), members.pop(other, None)
        if size[one] >= min_cluster_size:
            members.pop(one, None)
        elif ours is not None and theirs is not None:
            ours.extend(theirs)
        return one

    tied = np.zeros(n, dtype=bool)
    inventing_nodes = 0
    for start, end in itertools.pairwise(bounds):
        if end - start == 1:
            merge(root_of(source_list[start]), root_of(target_list[start]))
            continue
        edges = [(root_of(source_list[edge]), root_of(target_list[edge])) for edge in range(start, end)]
        before = {root: (size[root], list(members.get(root, ()))) for edge in edges for root in edge}
        for one, other in edges:
            merge(root_of(one), root_of(other))
        nodes: dict[int, list[tuple[int, list[int]]]] = {}
        for root, part in before.items():
            nodes.setdefault(root_of(root), []).append(part)
        for parts in nodes.values():
            if len(parts) < 3:
                continue
            small = [part for part in parts if part[0] < min_cluster_size]
            if len(parts) - len(small) >= 2:
                for _, points in small:
                    tied[points] = True
            if len(small) >= 2 and sum(part[0] for part in small) >= min_cluster_size:
                inventing_nodes += 1
    return Ties(tied, inventing_nodes)


def differing_rows(labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Rows on which two partitions differ once the clusters of one are matched with those of the other.

    Clusters are matched one to one, largest overlap first; noise (negative labels) matches noise only.

    Returns
    -------
    bool array of shape (n,)
    """
    labels, others = np.maximum(labels, -1), np.maximum(others, -1)
    pairs, counts = np.unique(np.stack([labels, others], axis=1), axis=0, return_counts=True)
    partner: dict[int, int] = {-1: -1}
    taken = {-1}
    for index in np.argsort(-counts, kind="stable").tolist():
        ours, theirs = pairs[index].tolist()
        if ours not in partner and theirs not in taken:
            partner[ours] = theirs
            taken.add(theirs)
    known = np.unique(labels)
    # A cluster without a partner differs everywhere: no label is -2.
    mapped = np.array([partner.get(label, -2) for label in known.tolist()], dtype=np.int64)
    return mapped[np.searchsorted(known, labels)] != others

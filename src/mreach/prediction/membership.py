"""How strongly rows belong to every cluster, by the condensed tree alone; see ``docs/prediction.md``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mreach.float_environment import default_float_environment
from mreach.prediction.places import ClusterTree, Places

__all__ = ["Memberships"]

WORK_BYTES = 1 << 22
"""Bytes of one array of rows x clusters that is worked on at a time: it stays in the processor's cache."""

TABLE_BYTES = 1 << 28
"""Bytes of the clusters x clusters that are kept between batches; beyond it they are found anew for each."""


class _Apart(NamedTuple):
    """Where clusters come apart from each selected one."""

    numbers: NDArray[np.int32]  # (n_sources,) ascending: clusters
    joint: NDArray[np.float64]  # (n_sources, n_labels): lambda where the two part; -1: the row's own
    scale: NDArray[np.float64]  # (n_sources, n_labels): a half for every cluster more that has to be climbed
    largest_joint: NDArray[np.float64]  # (n_sources,): the largest of a line; -1: the row's own


class Memberships:
    """Membership vectors of rows placed in a condensed tree.

    Parameters
    ----------
    tree : ClusterTree
    """

    def __init__(self, tree: ClusterTree) -> None:
        self._tree = tree
        self.n_labels = len(tree.selected)
        # A cluster holds the selected clusters at ``first <= position < end`` of an order from top to bottom.
        counts = np.zeros(len(tree.parent), np.int64)
        counts[tree.selected] = 1
        parents, counted = tree.parent.tolist(), counts.tolist()
        own = counts.tolist()
        for cluster in range(len(parents) - 1, 0, -1):
            counted[parents[cluster]] += counted[cluster]
        first, free, depth = [0] * len(parents), [own[0]] * len(parents), [0] * len(parents)
        for cluster in range(1, len(parents)):
            parent = parents[cluster]
            first[cluster], depth[cluster] = free[parent], depth[parent] + 1
            free[parent] += counted[cluster]
            free[cluster] = first[cluster] + own[cluster]
        self._first = np.array(first, np.int32)
        self._end = self._first + np.array(counted, np.int32)
        self._depth = np.array(depth, np.int32)
        self._position = self._first[tree.selected]
        # What a row outside of a cluster is compared with.
        self._densest = np.where(
            tree.largest[tree.selected] > 0, tree.largest[tree.selected], tree.birth_lambdas[tree.selected]
        )

    def batches(
        self,
        places: Places,
        labels: NDArray[np.int64],
        strengths: NDArray[np.float64],
        batch_rows: int,
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield the vectors of some rows at a time.

        Parameters
        ----------
        places : Places
            Shape (m,).
        labels : int64 array of shape (m,)
            -2 and -3 for rows that are not finite, wherever these are placed.
        strengths : float64 array of shape (m,)
        batch_rows : int

        Yields
        ------
        rows : slice
        vectors : float64 array of shape (len(rows), n_labels)
        """
        # A row under a selected cluster parts from the others where that one does.
        owners = self._tree.labels[places.clusters]
        sources = places.clusters.copy()
        sources[owners >= 0] = self._tree.selected[owners[owners >= 0]]
        numbers = np.unique(sources)
        fits = 16 * len(numbers) * self.n_labels <= TABLE_BYTES
        with default_float_environment():
            table = self._apart(numbers) if fits else None
        for start in range(0, len(labels), batch_rows):
            rows = slice(start, min(start + batch_rows, len(labels)))
            vectors = np.empty((rows.stop - start, self.n_labels))
            with default_float_environment(), np.errstate(under="ignore"):
                for part in self._work_slices(len(vectors)):
                    some = slice(start + part.start, start + part.stop)
                    apart = self._apart(np.unique(sources[some])) if table is None else table
                    of_rows = sources[some], places.lambdas[some], labels[some], strengths[some]
                    self._write(vectors[part], apart, *of_rows)
            yield rows, vectors

    def _work_slices(self, n: int) -> list[slice]:
        """Cut n rows into slices with few enough numbers for the processor's cache; none without labels."""
        n_at_once = max(1, WORK_BYTES // (8 * max(1, self.n_labels)))
        return [slice(i, min(i + n_at_once, n)) for i in range(0, n if self.n_labels else 0, n_at_once)]

    def _apart(self, numbers: NDArray[np.int32]) -> _Apart:
        """Find for clusters, ascending, where they part from each selected one."""
        n, n_labels = len(numbers), self.n_labels
        apart = _Apart(numbers, np.empty((n, n_labels)), np.empty((n, n_labels)), np.empty(n))
        for some in self._work_slices(n):
            source = numbers[some, np.newaxis]
            # The highest on a source's path that does not hold the selected cluster; or the source itself.
            parted = np.repeat(source, n_labels, axis=1)
            is_above = self._holds(parted)
            for jump in reversed(self._tree.jumps):
                above = jump[parted]
                parted = np.where(self._holds(above), parted, above)
            joint = np.where(is_above, -1.0, self._tree.birth_lambdas[parted])
            steps = np.where(is_above, 0, self._depth[source] - self._depth[parted] + 1)
            steps -= steps.min(axis=1, keepdims=True)
            apart.joint[some] = joint
            apart.scale[some] = np.ldexp(1.0, -steps)
            apart.largest_joint[some] = np.where(is_above.any(axis=1), -1.0, joint.max(axis=1))
        return apart

    def _holds(self, clusters: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Tell whether clusters, shape (n, n_labels), are or hold the selected one of their column."""
        return (self._first[clusters] <= self._position) & (self._position < self._end[clusters])

    def _write(
        self,
        vectors: NDArray[np.float64],
        apart: _Apart,
        sources: NDArray[np.int32],
        lambdas: NDArray[np.float64],
        labels: NDArray[np.int64],
        strengths: NDArray[np.float64],
    ) -> None:
        """Write the vectors of rows, shape (m, n_labels)."""
        index = np.searchsorted(apart.numbers, sources)
        joint = apart.joint[index]
        joint = np.where(joint < 0, lambdas[:, np.newaxis], joint)
        largest = apart.largest_joint[index]
        largest = np.where(largest < 0, lambdas, largest)
        with np.errstate(invalid="ignore"):
            weights = np.divide(joint, largest[:, np.newaxis], out=vectors)
        weights[np.isnan(weights)] = 1.0  # both infinite, or both 0
        weights *= apart.scale[index]
        noise = labels == -1
        if noise.any():
            strengths = strengths.copy()
            strengths[noise] = self._noise_strengths(joint[noise], weights[noise])
        # Rounded up by more than all roundings here and in a sum of the vector, so that this is at most 1.
        n_terms = np.count_nonzero(weights, axis=1)
        weights *= (strengths / (weights.sum(axis=1) * (1 + (n_terms - 1) * 2.0**-50)))[:, np.newaxis]
        weights[labels == -2] = 0.0
        weights[labels == -3] = np.nan

    def _noise_strengths(
        self, joint: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return how dense noise rows are, measured by the clusters they are nearest to, shape (m,)."""
        relative = np.zeros(joint.shape)
        with np.errstate(divide="ignore", over="ignore"):
            np.divide(joint, self._densest, out=relative, where=joint > 0)
        relative[weights < weights.max(axis=1, keepdims=True)] = 0.0
        return np.minimum(1.0, relative.max(axis=1))

"""From the numbers of the finite rows to the user's row numbers."""

from __future__ import annotations

import numpy as np

from mreach.validation import Rows

__all__ = ["renumber_condensed", "renumber_edges", "renumber_linkage", "spread"]


def spread(core: np.ndarray, rows: Rows) -> np.ndarray:
    """Return core distances of all rows, NaN where a row is not finite."""
    spread = np.full(rows.n_rows, np.nan)
    spread[rows.finite_rows] = core
    return spread


def renumber_edges(edges: np.ndarray, finite_rows: np.ndarray) -> None:
    """Put the user's row numbers into the edges; these ascend, so ``source < target`` and the order stay."""
    for end in ("source", "target"):
        edges[end] = finite_rows[edges[end]]


def renumber_condensed(condensed: np.ndarray, rows: Rows) -> None:
    """Put the user's row numbers, and cluster numbers from ``n_rows`` on, into the condensed tree."""
    assert rows.finite_rows is not None
    condensed["parent"] += len(rows.other_rows)
    child, n_finite = condensed["child"], rows.n_finite  # of weighted rows there may be more clusters
    row = rows.finite_rows[np.minimum(child, n_finite - 1)]
    condensed["child"] = np.where(child < n_finite, row, child + len(rows.other_rows))


def _user_numbers(rows: Rows) -> np.ndarray:
    """Return the user's number of every tree node: ``finite_rows``, then clusters from ``n_rows`` on."""
    assert rows.finite_rows is not None
    return np.concatenate((rows.finite_rows, np.arange(rows.n_rows, rows.n_rows + len(rows.finite_rows))))


def renumber_linkage(merges: np.ndarray, rows: Rows) -> np.ndarray:
    """Return a linkage of all rows: the finite ones as before, then the others one by one at infinity."""
    n_finite = rows.n_rows - len(rows.other_rows)
    whole = np.empty((rows.n_rows - 1, 4))
    whole[: n_finite - 1] = merges
    numbers = _user_numbers(rows)
    for side in (0, 1):
        whole[: n_finite - 1, side] = numbers[merges[:, side].astype(np.int64)]
    assert rows.finite_rows is not None
    tree = int(rows.finite_rows[0]) if n_finite == 1 else rows.n_rows + n_finite - 2
    for step, row in enumerate(rows.other_rows.tolist(), start=n_finite - 1):
        whole[step] = min(tree, row), max(tree, row), np.inf, step + 2
        tree = rows.n_rows + step
    return whole

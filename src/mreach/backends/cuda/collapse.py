"""Equal rows: the smallest one stands for all, with how many they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mreach.backends.cuda.devices import cupy

if TYPE_CHECKING:
    from mreach.backends.cuda.session import Session


class Copies:
    """Rows that are equal to another one.

    Attributes
    ----------
    n : int
        Number of copies: rows that are not the smallest of their equals.
    representatives : int32 array of shape (n_distinct,)
        The smallest row of each group of equals.
    row : int32 array of shape (n,)
        The copies.
    position, multiplicity : int32 arrays of shape (n,) and (n_distinct,)
        Where the copy's representative stands, and how many rows equal the one at a position, themselves
        included; after :meth:`locate`.
    """

    def __init__(self, representatives: Any, multiplicity: Any, row: Any, group: Any) -> None:
        self.n = len(row)
        self.representatives = representatives
        self.row = row
        self._group, self._multiplicity = group, multiplicity

    def locate(self, session: Session, place_of: Any, order: Any) -> None:
        """Turn groups into positions, once the groups are ordered."""
        cp = cupy()
        self.position = cp.empty(self.n, np.int32)
        self.multiplicity = cp.empty(len(order), np.int32)
        for values, places, taken in (
            (place_of, self._group, self.position),
            (self._multiplicity, order, self.multiplicity),
        ):
            session.launch_rows(
                "take_int_kernel", len(taken),
                values, places, np.int64(len(taken)), taken,
            )  # fmt: skip
        del self._group, self._multiplicity


def collapse(session: Session, X: Any) -> Copies | None:
    """Find equal rows (-0 equals 0); None where all rows differ.

    Parameters
    ----------
    session : Session
    X : float32 or float64 CuPy array of shape (n_rows, n_features)
    """
    cp = cupy()
    n, n_features = X.shape
    kind = X.dtype.name
    hashes = cp.empty(n, np.uint64)
    session.launch_rows(
        f"hash_rows_{kind}_kernel", n * 32,
        X, np.int64(n), np.int32(n_features), hashes,
    )  # fmt: skip
    order = cp.argsort(hashes)  # stable: of equal rows the smallest comes first
    distinct = cp.empty(n, np.int64)
    session.launch_rows(
        f"mark_distinct_{kind}_kernel", n,
        X, np.int64(n), np.int32(n_features), hashes, order, distinct,
    )  # fmt: skip
    number = cp.cumsum(distinct)
    n_distinct = int(number[-1])
    if n_distinct == n:
        return None
    representatives = cp.empty(n_distinct, np.int32)
    multiplicity = cp.zeros(n_distinct, np.int32)
    row, group = cp.empty(n - n_distinct, np.int32), cp.empty(n - n_distinct, np.int32)
    session.launch_rows(
        "collect_groups_kernel", n,
        order, distinct, number, np.int64(n), representatives, multiplicity, row, group,
    )  # fmt: skip
    return Copies(representatives, multiplicity, row, group)

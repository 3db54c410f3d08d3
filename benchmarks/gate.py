"""The correctness gate: nothing is timed, and no time is reported, of a library whose result is not right."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.peers import Result
from benchmarks.ties import Ties, differing_rows, find_ties

RELATIVE_TOLERANCE = 1e-9  # between sorted tree weights of two exact float64 libraries
REFERENCE_ROWS = 600  # rows that the brute-force reference is compared on, bit for bit
PEER_ROWS = 2_000  # rows that peers are compared on before anything is timed


class Verdict(NamedTuple):
    """One comparison: what was compared with what, whether it may be timed, and what was seen."""

    subject: str
    against: str
    rows: int
    passed: bool
    detail: str
    stage: str = "before timing"


def subsample(X: np.ndarray, n: int, seed: int = 0) -> np.ndarray:
    """At most n rows of X in their order, the one of largest norm always among them."""
    if len(X) <= n:
        return X
    with np.errstate(over="ignore"):
        largest = int(np.argmax(np.abs(X.astype(np.float64)).max(axis=1)))
    chosen = np.random.default_rng(seed).choice(len(X), n, replace=False)
    if largest not in chosen:
        chosen[0] = largest
    return np.ascontiguousarray(X[np.sort(chosen)])


def check_reference(mreach: Result, reference: Result, against: str = "reference") -> Verdict:
    """mreach on some backend against another, mreach's brute-force reference or `against`: every array equal,
    bit for bit."""
    unequal = []
    for name, expected in reference.arrays.items():
        found = mreach.arrays.get(name)
        if found is None or found.dtype != expected.dtype or found.shape != expected.shape:
            unequal.append(f"{name} (shape or dtype)")
        elif found.tobytes() != expected.tobytes():
            unequal.append(name)
    passed = bool(reference.arrays) and not unequal
    subject = f"mreach[{mreach.notes.get('backend', '?')}]"
    if passed:
        detail = "equal bit for bit"
    else:
        detail = f"differs in {', '.join(unequal)}" if unequal else f"{against} gave nothing to compare"
    return Verdict(subject, against, len(reference.labels), passed, detail)


def weight_deviation(weights: np.ndarray, others: np.ndarray) -> float:
    """Largest relative difference of two sorted lists of edge weights; infinite if their lengths differ."""
    if weights.shape != others.shape:
        return float("inf")
    if not len(weights):
        return 0.0
    scale = np.maximum(np.maximum(np.abs(weights), np.abs(others)), np.finfo(np.float64).tiny)
    deviation = float(np.max(np.abs(weights - others) / scale))
    return float("inf") if np.isnan(deviation) else deviation


def ties_of(mreach: Result, min_cluster_size: int) -> Ties:
    """The ties of the tree that mreach found."""
    tree = mreach.arrays["minimum_spanning_tree_"]
    return find_ties(tree["source"], tree["target"], tree["weight"], min_cluster_size)


def check_peer(mreach: Result, peer: Result, name: str, exactness: str, ties: Ties) -> Verdict:
    """mreach against a peer.

    An exact peer's sorted tree weights must agree to `RELATIVE_TOLERANCE`. Its partition must agree except at
    tied rows, or there must be a node at which a binary tree can invent a cluster, which is said. Differences
    from peers that show no tree, round to float32 or approximate are reported and never held against mreach.
    """
    strict = exactness == "exact"
    parts = []
    passed = True
    if peer.weights is not None and mreach.weights is not None:
        deviation = weight_deviation(mreach.weights, peer.weights)
        parts.append(f"weights to {deviation:.1e}")
        passed = deviation <= RELATIVE_TOLERANCE
    elif strict:
        parts.append("no tree to compare")
        passed = False

    differing = (
        differing_rows(mreach.labels, peer.labels)
        if peer.labels.shape == mreach.labels.shape
        else np.ones(len(mreach.labels), dtype=bool)
    )
    n_differing = int(differing.sum())
    n_untied = int((differing & ~ties.tied).sum())
    if n_differing == 0:
        parts.append("same partition")
    elif n_untied == 0:
        parts.append(f"same partition but for {n_differing} tied rows")
    elif ties.inventing_nodes:
        parts.append(
            f"{n_differing} rows differ ({n_differing - n_untied} of them tied), with "
            f"{ties.inventing_nodes} nodes where a binary tree can invent a cluster"
        )
    else:
        parts.append(f"{n_untied} rows differ without a tie")
        passed = False
    if not strict:
        parts.append(f"not held against mreach: {exactness}")
        passed = True
    return Verdict("mreach", name, len(mreach.labels), passed, "; ".join(parts))

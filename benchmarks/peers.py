"""mreach and its peers behind one interface.

A peer turns rows and settings into a callable to be timed. Each is optional: where its package is not
installed it says so. ``min_samples`` means the same for all: the point itself counts, as in mreach and
scikit-learn. hdbscan, fast-hdbscan and quitefastmst do not count it, so they are given one less.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

PRODUCT_ROWS = 4096  # rows of X in one matrix product of the yardstick


class Settings(NamedTuple):
    """What every library is asked for."""

    min_cluster_size: int
    min_samples: int
    n_threads: int
    backend: str = "auto"  # mreach only


@dataclass
class Result:
    """What a fit found.

    Attributes
    ----------
    labels : ndarray of shape (n,), int64
        -1 is noise.
    weights : ndarray of shape (n - 1,), float64, or None
        Sorted weights of the spanning tree, where the library shows them.
    arrays : dict of ndarray
        mreach only: everything that must be equal bit for bit on every backend.
    """

    labels: np.ndarray
    weights: np.ndarray | None = None
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


Prepared = tuple[Callable[[], Any], Callable[[Any], Result]]


@dataclass(frozen=True)
class Peer:
    """A library that can be timed.

    Attributes
    ----------
    name : str
    distributions : tuple of str
        Packages to install; the first gives the version.
    modules : tuple of str
        Modules that have to be there.
    prepare : callable ``(X, settings) -> (run, collect)``
        Imports the library. ``run()`` is what is timed; ``collect(what run gave)`` makes a `Result`, untimed.
    exactness : callable ``(n_features) -> str``
        "exact" (float64 tree, compared strictly), "unverified" (claims to be exact, shows no tree), "float32"
        (exact method, rounded distances), "approximate", or "yardstick".
    estimate : callable ``(n, n_features) -> float``
        Rough seconds of one fit on two cores, to decide what is not worth starting.
    """

    name: str
    distributions: tuple[str, ...]
    modules: tuple[str, ...]
    prepare: Callable[[np.ndarray, Settings], Prepared]
    exactness: Callable[[int], str]
    estimate: Callable[[int, int], float]

    def missing(self) -> str | None:
        """None if the library can be imported, else a line that says what to install."""
        absent = [module for module in self.modules if importlib.util.find_spec(module) is None]
        if not absent:
            return None
        return f"not installed (pip install {' '.join(self.distributions)})"

    def counts_for_ratio(self, n_features: int) -> bool:
        """Whether it competes in exact HDBSCAN; approximate libraries and yardsticks are only shown."""
        return self.exactness(n_features) in ("exact", "unverified", "float32")


def _always(text: str) -> Callable[[int], str]:
    return lambda n_features: text


def mreach_result(model: Any) -> Result:
    """All of a fitted mreach model that every backend has to agree on."""
    names = (
        "labels_",
        "probabilities_",
        "core_distances_",
        "minimum_spanning_tree_",
        "single_linkage_tree_",
        "condensed_tree_",
        "cluster_persistence_",
    )
    arrays = {name: np.asarray(getattr(model, name)) for name in names}
    tree = arrays["minimum_spanning_tree_"]
    return Result(
        labels=arrays["labels_"].astype(np.int64),
        weights=np.sort(tree["weight"]),
        arrays=arrays,
        notes={"backend": str(model.backend_)},
    )


def sklearn_result(model: Any) -> Result:
    """Labels and tree weights of a fitted scikit-learn model."""
    heights = model._single_linkage_tree_["value"]
    return Result(labels=model.labels_.astype(np.int64), weights=np.sort(heights))


def _prepare_mreach(X: np.ndarray, settings: Settings) -> Prepared:
    from mreach import HDBSCAN

    def run() -> Any:
        model = HDBSCAN(
            min_cluster_size=settings.min_cluster_size,
            min_samples=settings.min_samples,
            backend=settings.backend,
            n_jobs=settings.n_threads,
        )
        return model.fit(X)

    return run, mreach_result


def _prepare_sklearn(X: np.ndarray, settings: Settings) -> Prepared:
    from sklearn.cluster import HDBSCAN

    def run() -> Any:
        # copy=False only silences a warning about its future default: the rows are never written to.
        model = HDBSCAN(
            min_cluster_size=settings.min_cluster_size,
            min_samples=settings.min_samples,
            n_jobs=settings.n_threads,
            copy=False,
        )
        return model.fit(X)

    return run, sklearn_result


def _prepare_hdbscan(X: np.ndarray, settings: Settings) -> Prepared:
    from hdbscan import HDBSCAN

    def run() -> Any:
        # With one neighbour besides the point itself, core distances never exceed an edge: the same tree as
        # with none, which cannot be asked for.
        model = HDBSCAN(
            min_cluster_size=settings.min_cluster_size,
            min_samples=max(1, settings.min_samples - 1),
            approx_min_span_tree=False,
            core_dist_n_jobs=settings.n_threads,
        )
        return model.fit(X)

    def collect(model: Any) -> Result:
        heights = model.single_linkage_tree_.to_numpy()[:, 2]
        return Result(labels=np.asarray(model.labels_, dtype=np.int64), weights=np.sort(heights))

    return run, collect


def _prepare_fast_hdbscan(X: np.ndarray, settings: Settings) -> Prepared:
    from fast_hdbscan import HDBSCAN

    def run() -> Any:
        model = HDBSCAN(
            min_cluster_size=settings.min_cluster_size,
            min_samples=max(1, settings.min_samples - 1),
        )
        return model.fit(X)

    def collect(model: Any) -> Result:
        weights = np.sort(np.asarray(model._min_spanning_tree, dtype=np.float64)[:, 2])
        return Result(labels=np.asarray(model.labels_, dtype=np.int64), weights=weights)

    return run, collect


def _prepare_hdbscan_rs(X: np.ndarray, settings: Settings) -> Prepared:
    from hdbscan_rs import HDBSCAN

    # It takes floating-point rows only.
    rows = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)

    def run() -> Any:
        model = HDBSCAN(min_cluster_size=settings.min_cluster_size, min_samples=settings.min_samples)
        return model.fit_predict(rows)

    return run, lambda labels: Result(labels=np.asarray(labels, dtype=np.int64))


def _prepare_quitefastmst(X: np.ndarray, settings: Settings) -> Prepared:
    import quitefastmst
    from sklearn.cluster._hdbscan._linkage import MST_edge_dtype, make_single_linkage
    from sklearn.cluster._hdbscan._tree import tree_to_labels

    rows = np.ascontiguousarray(X, dtype=np.float64)
    quitefastmst.omp_set_num_threads(settings.n_threads)

    def run() -> Any:
        found = quitefastmst.mst_euclid(rows, settings.min_samples - 1)
        edges = np.empty(len(rows) - 1, dtype=MST_edge_dtype)
        edges["distance"] = found[0]
        edges["current_node"] = found[1][:, 0]
        edges["next_node"] = found[1][:, 1]
        labels, _ = tree_to_labels(make_single_linkage(edges), settings.min_cluster_size)
        return labels, found[0]

    def collect(outcome: Any) -> Result:
        return Result(labels=np.asarray(outcome[0], dtype=np.int64), weights=np.sort(outcome[1]))

    return run, collect


def _prepare_product(X: np.ndarray, settings: Settings) -> Prepared:
    rows = np.ascontiguousarray(X, dtype=np.float32)
    buffer = np.empty((min(PRODUCT_ROWS, len(rows)), len(rows)), dtype=np.float32)

    def run() -> Any:
        for start in range(0, len(rows), PRODUCT_ROWS):
            part = rows[start : start + PRODUCT_ROWS]
            np.matmul(part, rows.T, out=buffer[: len(part)])

    return run, lambda nothing: Result(labels=np.empty(0, dtype=np.int64))


def _cost(low: float, middle: float, square: float) -> Callable[[int, int], float]:
    """Seconds of one fit: per row in up to 3 and up to 16 dimensions, per pair and feature above."""

    def estimate(n: int, n_features: int) -> float:
        if n_features <= 3:
            return low * n
        return middle * n if n_features <= 16 else square * n * n * n_features

    return estimate


MREACH = "mreach"
PRODUCT = "numpy-product"
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(MREACH, ("mreach",), ("mreach",), _prepare_mreach, _always("exact"), lambda n, n_features: 0.0),
        Peer(
            "scikit-learn",
            ("scikit-learn",),
            ("sklearn",),
            _prepare_sklearn,
            _always("exact"),
            lambda n, n_features: n * n * (2.5e-9 + 1.05e-9 * n_features),
        ),
        Peer(
            "hdbscan",
            ("hdbscan",),
            ("hdbscan",),
            _prepare_hdbscan,
            _always("exact"),
            _cost(3e-5, 1e-3, 1.1e-9),
        ),
        Peer(
            "fast-hdbscan",
            ("fast-hdbscan", "pynndescent"),
            ("fast_hdbscan", "pynndescent"),
            _prepare_fast_hdbscan,
            lambda n_features: "float32" if n_features <= 30 else "approximate",
            lambda n, n_features: n * (2e-5 if n_features <= 3 else 1.3e-4),
        ),
        Peer(
            "hdbscan-rs",
            ("hdbscan-rs",),
            ("hdbscan_rs",),
            _prepare_hdbscan_rs,
            _always("unverified"),
            _cost(6e-6, 9e-5, 4.8e-10),
        ),
        Peer(
            "quitefastmst",
            ("quitefastmst", "scikit-learn"),
            ("quitefastmst", "sklearn"),
            _prepare_quitefastmst,
            _always("exact"),
            _cost(5e-6, 3.2e-5, 3.2e-10),
        ),
        Peer(
            PRODUCT,
            ("numpy",),
            ("numpy",),
            _prepare_product,
            _always("yardstick"),
            lambda n, n_features: 1e-11 * n * n * n_features,
        ),
    )
}
COMPETITORS = tuple(name for name in PEERS if name not in (MREACH, PRODUCT))


def get_peer(name: str) -> Peer:
    """The peer of that name.

    Raises
    ------
    ValueError
        If there is none; the message lists those there are.
    """
    if name not in PEERS:
        raise ValueError(f"unknown peer {name!r}; there are {', '.join(PEERS)}")
    return PEERS[name]

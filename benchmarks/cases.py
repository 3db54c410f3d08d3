"""Cases that libraries of this kind were seen to fail at by size, and what else one hierarchy gives.

A case is a function of a probe, a number of rows and a seed. It times its steps through the probe, tells it
what has to hold, and gives arrays that every backend has to agree on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import gate, measure
from benchmarks.clips import make_clips
from benchmarks.peers import Result, Settings, mreach_result, sklearn_result
from benchmarks.workloads import make_blobs

SKLEARN = "scikit-learn"
NEIGHBOURS = (5, 10, 15, 20, 30)  # values of min_samples of the sweep
MEMBER_CLUSTERS, MEMBER_ROWS = 3_000, 2_000_000
LARGE_CLUSTER = 2_000  # min_cluster_size, and at a third of so many rows at most

Arrays = dict[str, np.ndarray]


class Probe:
    """Times the steps of a case, and keeps what has to hold.

    Parameters
    ----------
    settings : Settings
    repeats : int or None
        Timed runs of each step; None: by how long the first one takes.
    peers : tuple of str
        Libraries that a case may be compared with.
    """

    def __init__(
        self, settings: Settings, repeats: int | None = None, peers: tuple[str, ...] = (SKLEARN,)
    ) -> None:
        self.settings = settings
        self.repeats = repeats
        self.peers = peers
        self.steps: dict[str, dict[str, Any]] = {}
        self.checks: list[tuple[str, bool, str]] = []
        self.backend = settings.backend

    def model(self, **parameters: Any) -> Any:
        """An estimator of mreach with the settings of this run."""
        from mreach import HDBSCAN

        given = {"min_cluster_size": self.settings.min_cluster_size, "min_samples": self.settings.min_samples}
        own = {"backend": self.settings.backend, "n_jobs": self.settings.n_threads}
        return HDBSCAN(**given | own | parameters)

    def time(self, step: str, run: Callable[[], Any]) -> Any:
        """Run a step, memory measured, then again for its time; what the first run gave."""
        measure.return_free_memory()
        outcome, timing, peak = measure.peak_of(run)
        repeats = measure.repeats_for(timing.seconds[0], self.repeats)
        if repeats:
            timing, _ = measure.time_repeats(run, repeats)
        self.note(step, timing.seconds, peak)
        self.backend = getattr(outcome, "backend_", self.backend)
        return outcome

    def note(self, step: str, seconds: list[float], peak: int | None) -> None:
        """Keep the times and the peak memory of a step that the case has measured itself."""
        self.steps[step] = {
            "median_seconds": measure.median(seconds),
            "min_seconds": min(seconds),
            "repeats": len(seconds),
            "peak_bytes": peak,
        }

    def check(self, what: str, passed: bool, detail: str = "") -> None:
        """What has to hold for the times to count."""
        self.checks.append((what, bool(passed), detail or ("equal bit for bit" if passed else "differs")))

    def against_sklearn(self, model: Any, run: Callable[[], Any]) -> None:
        """Time a fit of scikit-learn, and compare its tree and its partition with mreach's."""
        if SKLEARN not in self.peers:
            return
        theirs = sklearn_result(self.time(SKLEARN, run))
        ours = mreach_result(model)
        ties = gate.ties_of(ours, self.settings.min_cluster_size)
        verdict = gate.check_peer(ours, theirs, SKLEARN, "exact", ties)
        self.check("scikit-learn finds the same", verdict.passed, verdict.detail)


@dataclass(frozen=True)
class Case:
    """A case, the sizes that it is measured at, and that at which it is held against the reference."""

    name: str
    text: str
    run: Callable[[Probe, int, int], Arrays]
    sizes: tuple[int, ...]
    min_cluster_size: int = 20
    min_samples: int = 20
    seed: int = 0
    gate_rows: int = 600


def same(one: Any, other: Any) -> bool:
    """Whether two arrays are equal bit for bit."""
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _arrays(model: Any) -> Arrays:
    return mreach_result(model).arrays


def _same_fits(one: Any, other: Any, order: np.ndarray | None = None) -> bool:
    """Whether what is defined whatever edges a tree takes among equal ones is the same in two fits."""
    names = ("labels_", "probabilities_", "core_distances_")
    rows = slice(None) if order is None else order
    return all(same(getattr(one, name)[rows], getattr(other, name)) for name in names)


def _check_other_order(probe: Probe, model: Any, rows: np.ndarray, seed: int, **parameters: Any) -> None:
    order = np.random.default_rng(seed + 1).permutation(len(rows))
    other = probe.model(**parameters).fit(rows[order])
    probe.check("permuted rows get the same labels and strengths", _same_fits(model, other, order))


def _new_rows(probe: Probe, rows: np.ndarray, n: int) -> Arrays:
    fitted, new = rows[:n], rows[n:]
    model = probe.time("fit", lambda: probe.model().fit(fitted))
    labels, strengths = probe.time("new rows", lambda: model.approximate_predict(new))
    again = model.approximate_predict(fitted)
    probe.check(
        "rows of the fit get its labels and strengths",
        same(again[0], model.labels_) and same(again[1], model.probabilities_),
    )
    return _arrays(model) | {"new_labels": labels, "new_strengths": strengths}


def run_new_rows(probe: Probe, n: int, seed: int) -> Arrays:
    """A tenth as many new rows as a fit has, 4 features."""
    return _new_rows(probe, make_blobs(n + n // 10, seed, n_features=4), n)


def run_new_clips(probe: Probe, n: int, seed: int) -> Arrays:
    """A tenth as many new clips as a fit has."""
    return _new_rows(probe, make_clips(n + n // 10, seed), n)


def make_grid_of_blobs(n: int, seed: int, n_blobs: int) -> np.ndarray:
    """Normal blobs 0.1 wide at the points of a square lattice; float64 (n, 2)."""
    rng = np.random.default_rng(seed)
    centres = np.stack(np.divmod(np.arange(n_blobs), int(np.ceil(np.sqrt(n_blobs)))), axis=1)
    return centres[rng.integers(0, n_blobs, n)] + 0.1 * rng.standard_normal((n, 2))


def run_memberships(probe: Probe, n: int, seed: int) -> Arrays:
    """Membership vectors of all rows in batches; all at once where they fit, else refused with the size."""
    n_blobs = max(3, MEMBER_CLUSTERS * n // MEMBER_ROWS)
    rows = make_grid_of_blobs(n, seed, n_blobs)
    model = probe.time("fit", lambda: probe.model().fit(rows))
    n_clusters = len(model.cluster_persistence_)
    at_once = None
    try:
        at_once = model.all_points_membership_vectors()
    except MemoryError as error:
        named = all(str(number) in str(error) for number in (n, n_clusters)) and "GB" in str(error)
        probe.check("all at once are refused, the size named", named, str(error))

    some_new = model.membership_vector(rows[:100])
    measure.return_free_memory()
    before = measure.resident_bytes()
    measure.reset_peak()
    seconds, n_seen, right, agree = 0.0, 0, n_clusters > 0, True
    started = time.perf_counter()
    for some, vectors in model.membership_batches():
        seconds += time.perf_counter() - started
        labels = model.labels_[some]
        clustered = labels >= 0
        right &= some.start == n_seen and vectors.shape == (len(labels), n_clusters)
        right &= bool((vectors.sum(axis=1) <= 1.0).all() and (vectors >= 0.0).all())
        right &= bool((vectors.argmax(axis=1) == labels)[clustered].all())
        agree &= at_once is None or same(at_once[some], vectors)
        agree &= some.start > 0 or same(some_new[: len(vectors)], vectors[: len(some_new)])
        n_seen = some.stop
        started = time.perf_counter()
    after = measure.peak_bytes()
    peak = None if before is None or after is None else max(0, after - before)
    probe.note("batches", [seconds], peak)
    probe.check(
        "largest entries are labels, rows add up to 1 at most",
        right and n_seen == n,
        f"{n_seen} rows, {n_clusters} clusters",
    )
    probe.check("the same as all at once, where they fit, and as for new rows", agree)
    return _arrays(model) | ({} if at_once is None else {"vectors": at_once})


def run_memory(probe: Probe, n: int, seed: int) -> Arrays:
    """A fit in two dimensions, for its memory."""
    rows = make_blobs(n, seed, n_features=2)
    model = probe.time("fit", lambda: probe.model().fit(rows))
    _check_other_order(probe, model, rows, seed)
    return _arrays(model)


def run_large_clusters(probe: Probe, n: int, seed: int) -> Arrays:
    """A large min_cluster_size, and so min_samples."""
    rows = make_blobs(n, seed, n_features=2)
    size = min(LARGE_CLUSTER, n // 3)
    model = probe.time("fit", lambda: probe.model(min_cluster_size=size, min_samples=None).fit(rows))
    few = probe.time("fit, few neighbours", lambda: probe.model(min_cluster_size=size).fit(rows))
    _check_other_order(probe, few, rows, seed, min_cluster_size=size)
    cut = model.cut(min_cluster_size=size)
    probe.check("the same cut of its trees is the fit", same(cut.condensed_tree_, model.condensed_tree_))
    return _arrays(model)


def run_choice(probe: Probe, n: int, seed: int) -> Arrays:
    """Backend "auto" beside each that can run here, on few rows."""
    from mreach import available_backends

    rows = make_blobs(n, seed, n_features=3)
    model = probe.time("auto", lambda: probe.model(backend="auto").fit(rows))
    for name in (name for name, entry in available_backends().items() if entry["available"]):
        other = probe.time(name, lambda name=name: probe.model(backend=name).fit(rows))
        agree = all(same(value, _arrays(model)[key]) for key, value in _arrays(other).items())
        probe.check(f"auto ({model.backend_}) finds what {name} finds", agree)
    return _arrays(probe.model().fit(rows))


def run_cut(probe: Probe, n: int, seed: int) -> Arrays:
    """Other clusters from the same trees."""
    rows = make_blobs(n, seed, n_features=2)
    model = probe.time("fit", lambda: probe.model().fit(rows))
    asked: dict[str, dict[str, Any]] = {
        "cut, same parameters": {},
        "cut, min_cluster_size 5": {"min_cluster_size": 5},
        "cut, min_cluster_size 50": {"min_cluster_size": 50},
        "cut, leaf": {"cluster_selection_method": "leaf"},
        "cut, epsilon": {"cluster_selection_epsilon": float(np.median(model.core_distances_))},
    }
    arrays = _arrays(model)
    for step, parameters in asked.items():
        cut = probe.time(step, lambda parameters=parameters: model.cut(**parameters))
        fit = probe.model(**parameters).fit(rows)
        agree = all(same(value, _arrays(fit)[key]) for key, value in _arrays(cut).items())
        probe.check(f"{step}: is a fit with its parameters", agree)
        arrays |= {f"{step} {name}": getattr(cut, name) for name in ("labels_", "probabilities_")}
    return arrays


def run_fit_many(probe: Probe, n: int, seed: int) -> Arrays:
    """Several values of min_samples in one call, beside a fit for each."""
    rows = make_clips(n, seed)
    many = probe.time("fit_many", lambda: probe.model().fit_many(rows, NEIGHBOURS))
    apart = probe.time(
        "separate fits", lambda: [probe.model(min_samples=value).fit(rows) for value in NEIGHBOURS]
    )
    pairs = list(zip(many, apart, strict=True))
    agree = all(_same_fits(*pair) and same(*(one.condensed_tree_ for one in pair)) for pair in pairs)
    weights = all(same(*(one.minimum_spanning_tree_["weight"] for one in pair)) for pair in pairs)
    probe.check("fit_many is the separate fits", agree and weights)
    probe.backend = many[0].backend_
    # Which of several equal edges a shared search takes is its own affair.
    kept = ("labels_", "probabilities_", "core_distances_", "condensed_tree_", "cluster_persistence_")
    return {f"{i} {name}": np.asarray(getattr(one, name)) for i, one in enumerate(many) for name in kept}


def run_precomputed(probe: Probe, n: int, seed: int) -> Arrays:
    """A square matrix of distances, beside scikit-learn."""
    from scipy.spatial.distance import cdist
    from sklearn.cluster import HDBSCAN

    settings = probe.settings
    clips = make_clips(n, seed).astype(np.float64)
    distances = cdist(clips, clips)
    before = distances.copy()
    model = probe.time("fit", lambda: probe.model(metric="precomputed").fit(distances))
    probe.check("the matrix is as it was", same(before, distances))
    given = {"metric": "precomputed", "n_jobs": settings.n_threads, "copy": True}
    sizes = {"min_cluster_size": settings.min_cluster_size, "min_samples": settings.min_samples}
    probe.against_sklearn(model, lambda: HDBSCAN(**given, **sizes).fit(distances))
    return _arrays(model)


def run_cosine(probe: Probe, n: int, seed: int) -> Arrays:
    """Cosine beside Euclidean distances."""
    rows = make_clips(n, seed)
    probe.time("euclidean", lambda: probe.model().fit(rows))
    model = probe.time("cosine", lambda: probe.model(metric="cosine").fit(rows))
    _check_other_order(probe, model, rows, seed, metric="cosine")
    return _arrays(model)


def run_manhattan(probe: Probe, n: int, seed: int) -> Arrays:
    """Manhattan distances, beside scikit-learn."""
    from sklearn.cluster import HDBSCAN

    settings = probe.settings
    rows = make_clips(n, seed).astype(np.float64)
    model = probe.time("fit", lambda: probe.model(metric="manhattan").fit(rows))
    given = {"metric": "manhattan", "n_jobs": settings.n_threads, "copy": False}
    sizes = {"min_cluster_size": settings.min_cluster_size, "min_samples": settings.min_samples}
    probe.against_sklearn(model, lambda: HDBSCAN(**given, **sizes).fit(rows))
    return _arrays(model)


def run_chain(probe: Probe, n: int, seed: int) -> Arrays:
    """Pairs of rows with growing gaps: a tree half as deep as it has rows, drawn. The seed orders them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    gaps = np.cumsum(1.0 + np.arange(n // 2))
    rows = np.stack((gaps, gaps + 0.5), axis=1).reshape(-1, 1)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    model = probe.time("fit", lambda: probe.model().fit(rows))

    def draw(tree: Any, **options: Any) -> Any:
        axes = tree.plot(Figure().subplots(), **options)
        axes.figure.draw_without_rendering()
        return axes

    probe.time("condensed tree", lambda: draw(model.condensed_tree_))
    tree = model.single_linkage_tree_
    probe.time("linkage, 30 leaves", lambda: draw(tree))
    probe.time("linkage, all leaves", lambda: draw(tree, truncate_mode=None))
    depth = _depth(model.condensed_tree_)
    probe.check("as deep as there are pairs", depth == n // 2 - 1, f"{depth} clusters below each other")
    return _arrays(model)


def _depth(tree: np.ndarray) -> int:
    """The most splits between the root of a condensed tree and a cluster."""
    root = int(tree["parent"][0])
    splits = tree[tree["child"] > root]
    depths = {root: 0}
    for parent, child in zip(splits["parent"].tolist(), splits["child"].tolist(), strict=True):
        depths[child] = depths[parent] + 1
    return max(depths.values())


CASES = {
    case.name: case
    for case in (
        Case("new-rows", "30 000 new rows on a fit of 300 000 x 4", run_new_rows, (300_000,)),
        Case("new-clips", "10 000 new clips on a fit of 100 000 x 61", run_new_clips, (100_000,)),
        Case(
            "memberships",
            "membership vectors of 2 000 000 rows in 3 000 clusters",
            run_memberships,
            (MEMBER_ROWS,),
            min_cluster_size=100,
            min_samples=10,
        ),
        Case("memory", "min_cluster_size 20, 2-D", run_memory, (62_500, 125_000, 250_000, 500_000)),
        Case(
            "large-clusters",
            "min_cluster_size 2 000, 2-D",
            run_large_clusters,
            (78_500, 157_000, 314_000),
            gate_rows=2_000,
        ),
        Case("choice", 'backend "auto" at 4 000 x 3', run_choice, (4_000,)),
        Case("cut", "other clusters of 500 000 rows", run_cut, (500_000,)),
        Case("fit-many", "five values of min_samples, 20 000 clips", run_fit_many, (20_000,)),
        Case("precomputed", "a matrix of 5 000 x 5 000 distances", run_precomputed, (5_000,)),
        Case("cosine", "cosine distances, 20 000 x 61", run_cosine, (20_000,)),
        Case("manhattan", "manhattan distances, 10 000 x 61", run_manhattan, (10_000,)),
        Case(
            "chain",
            "pictures of a tree 100 000 deep",
            run_chain,
            (200_000,),
            min_cluster_size=2,
            min_samples=1,
        ),
    )
}


def work(job: dict[str, Any]) -> tuple[dict[str, Any], Result | None]:
    """Do a job in this process: a case at the size of the gate, for its result, or at full size."""
    case, settings = CASES[job["case"]], Settings(**job["settings"])
    if job["gate"]:
        probe = Probe(settings, 1, ())
        arrays = case.run(probe, job["n"], case.seed)
        return {"checks": probe.checks}, Result(np.zeros(job["n"]), None, arrays, {"backend": probe.backend})
    # What is loaded lazily, in a smaller run: it is not part of the memory of a fit.
    case.run(Probe(settings, 1, tuple(job["peers"])), min(job["n"], case.gate_rows), case.seed)
    probe = Probe(settings, job["repeats"], tuple(job["peers"]))
    with measure.elsewhere() as busy:
        case.run(probe, job["n"], case.seed)
    steps = {"steps": probe.steps, "checks": probe.checks, "backend": probe.backend}
    return steps | {"cores_busy_elsewhere": busy.cores}, None

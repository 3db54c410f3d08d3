"""The figures that mreach is held to on a CPU, each printed beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.clips import N_TIMEPOINTS
from benchmarks.peers import MREACH, PRODUCT, get_peer
from benchmarks.report import seconds_text
from benchmarks.runner import Run, run_workload
from benchmarks.workers import Workers
from benchmarks.workloads import get_workload

SMALL, MEDIUM, LARGE = 2_000, 20_000, 50_000
ROUNDS = 3  # mreach and the yardstick take turns so often


@dataclass(frozen=True)
class Figure:
    """One target and what was measured; `measured` is None where it could not be.

    Attributes
    ----------
    figure : str
    target, measured : float
        In the same unit. Without a target the measured value is only shown.
    at_least : bool
        Whether the target is a least (a speed-up) or a most (a time, a size).
    unit : str
        "x", "s" or "MB".
    how : str
        Which numbers it was made of.
    """

    figure: str
    target: float | None
    measured: float | None
    at_least: bool
    unit: str
    how: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; None if it was not measured, or there is none."""
        if self.measured is None or self.target is None:
            return None
        return self.measured >= self.target if self.at_least else self.measured <= self.target

    def _text(self, value: float) -> str:
        return seconds_text(value) if self.unit == "s" else f"{value:.3g} {self.unit}"

    def line(self) -> dict[str, object]:
        """The figure as a line of the table, and of the JSON file."""
        measured = "not measured" if self.measured is None else self._text(self.measured)
        target = "-"
        if self.target is not None:
            target = f"{'>=' if self.at_least else '<='} {self._text(self.target)}"
        return {
            "figure": self.figure,
            "target": target,
            "measured": measured,
            "reached": {True: "yes", False: "NO", None: "-"}[self.reached],
            "how": self.how,
            "value": self.measured,
        }


def speed_figures(run: Run, n: int) -> list[Figure]:
    """At 20 000 clips: against scikit-learn, and against the fastest exact peer."""
    ours = run.measurement(MREACH)
    our_seconds = None if ours is None else ours.median_seconds
    seconds = {
        entry.peer: entry.median_seconds
        for entry in run.measurements
        if entry.peer != MREACH
        and entry.median_seconds
        and get_peer(entry.peer).counts_for_ratio(run.n_features)
    }

    def against(title: str, target: float, peer: str | None) -> Figure:
        if our_seconds is None or peer is None or peer not in seconds:
            return Figure(title, target, None, True, "x")
        how = f"{peer} {seconds_text(seconds[peer])} / mreach {seconds_text(our_seconds)}"
        return Figure(title, target, seconds[peer] / our_seconds, True, "x", how)

    fastest = min(seconds, key=lambda name: seconds[name], default=None)
    return [
        against(f"clips {n}: faster than scikit-learn", 80.0, "scikit-learn"),
        against(f"clips {n}: faster than every exact peer", 20.0, fastest),
    ]


def large_figures(run: Run, n: int) -> list[Figure]:
    """At 50 000 clips: against one float32 product pass by NumPy, and the memory of a fit."""
    ours, product = run.measurement(MREACH), run.measurement(PRODUCT)
    titles = (
        f"clips {n}: whole fit against one float32 product pass by NumPy",
        f"clips {n}: peak memory of a fit",
    )
    ratio = peak = None
    how = ""
    if ours is not None and product is not None and ours.median_seconds and product.median_seconds:
        ratio = ours.median_seconds / product.median_seconds
        how = f"mreach {seconds_text(ours.median_seconds)} / product {seconds_text(product.median_seconds)}"
    if ours is not None and ours.peak_bytes is not None:
        peak = ours.peak_bytes / 1e6
    return [
        Figure(titles[0], 0.6, ratio, False, "x", how),
        Figure(
            titles[1],
            300.0,
            peak,
            False,
            "MB",
            "highest resident size after the fit - resident size before it",
        ),
    ]


def start_figures(run: Run, n: int) -> list[Figure]:
    """At 2 000 clips: the first fit of a new process, and a warm one."""
    ours = run.measurement(MREACH)
    cold = None if ours is None else ours.cold_seconds
    warm = None if ours is None else ours.median_seconds
    how = "process start to end of fit"
    if ours is not None and ours.cold_import_seconds is not None:
        how += f", import {seconds_text(ours.cold_import_seconds)} of it"
    return [
        Figure(f"clips {n}: first fit of a new process, import included", 1.5, cold, False, "s", how),
        Figure(f"clips {n}: warm fit", 0.025, warm, False, "s", "median"),
    ]


def measure_figures(workers: Workers, *, divisor: int = 1) -> tuple[list[Run], list[Figure]]:
    """Measure all figures. `divisor` makes every workload that much smaller: a trial run, not a figure."""
    clips = get_workload("clips")
    small, medium, large = (max(200, size // divisor) for size in (SMALL, MEDIUM, LARGE))
    asked = workers.options

    workers.options = replace(asked, rounds=1, peers=())
    start = run_workload(clips, small, workers)
    workers.options = replace(asked, rounds=max(asked.rounds, ROUNDS), peers=(), cold=False)
    wide = run_workload(clips, large, workers, yardstick=True)
    # Only libraries that count: the approximate ones would take time and tell nothing here.
    exact = tuple(name for name in asked.peers if get_peer(name).counts_for_ratio(N_TIMEPOINTS))
    workers.options = replace(asked, peers=exact, cold=False)
    speed = run_workload(clips, medium, workers)
    workers.options = asked

    figures = [*speed_figures(speed, medium), *large_figures(wide, large), *start_figures(start, small)]
    return [start, speed, wide], figures

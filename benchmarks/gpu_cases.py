"""What is measured on a GPU: workloads, sizes, and the figures to reach there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.workloads import Workload, get_workload

MIN_CLUSTER_SIZE = MIN_SAMPLES = 20  # of every GPU workload, so that times compare
FIRST_FIT_ROWS = 20_000  # clips of the first fit in a new process
MAX_FIRST_FIT_SECONDS = 0.5  # beyond importing scikit-learn and CuPy and creating the context
MEMORY_ROWS = TAIL_ROWS = 500_000
MAX_DEVICE_BYTES = 2e9
MAX_TAIL_SECONDS = 0.050  # tree to labels, on the host
# Dense fp16 products of an H200: half of the 1979 TFLOP/s with sparsity in NVIDIA's "H200 Tensor Core GPU"
# datasheet (SXM).
PEAK_FP16_FLOPS = 990e12


@dataclass(frozen=True)
class Target:
    """Seconds to reach, seconds to aim for, and what two peers took on an H200 (2026-11-30); None: not given.

    Attributes
    ----------
    reach, aim : float or None
    cuml : float or None
        cuML 26.10, which is not exact.
    cuhc : float or None
        cuhc 0.1.0, which rounds distances to float32.
    """

    reach: float | None = None
    aim: float | None = None
    cuml: float | None = None
    cuhc: float | None = None


TARGETS = {
    ("clips", 20_000): Target(0.015, 0.007, 0.026, 0.035),
    ("clips", 50_000): Target(0.030, 0.015, 0.095, 0.125),
    ("clips", 200_000): Target(0.090, 0.050, 1.06, 1.23),
    ("clips", 500_000): Target(0.25, 0.13, 5.94, 7.87),
    ("clips", 1_000_000): Target(0.65, 0.40, 23.3, 30.9),
    ("clips", 5_000_000): Target(12.0, 7.0),
    ("blobs2d", 1_000_000): Target(0.5, 0.25, 11.4, 2.85),
    ("blobs8d", 1_000_000): Target(1.0, 0.5, 11.6, 3.50),
    ("wide384", 200_000): Target(0.6, 0.3, 3.7, 5.6),
    ("wide768", 100_000): Target(),
}
WORST = {
    "tight_groups": 20_000,
    "copies": 500_000,
    "lattice3d": 200_000,
    "one_huge_row": 200_000,
    "outliers30": 500_000,
}
GROUPS = {
    "main": list(dict.fromkeys(name for name, _ in TARGETS)),
    "worst": list(WORST),
}
GROUPS["all"] = [*GROUPS["main"], *GROUPS["worst"]]


def target_of(workload: str, n: int) -> Target:
    """The figures for a workload at that size, all None where none were set."""
    return TARGETS.get((workload, n), Target())


def sizes_of(workload: Workload) -> list[int]:
    """The numbers of rows that a workload is measured at on a GPU, ascending."""
    with_target = [n for name, n in TARGETS if name == workload.name]
    if with_target:
        return sorted(with_target)
    return [WORST[workload.name]] if workload.name in WORST else sorted(workload.sizes)


def select(
    names: Sequence[str], sizes: Sequence[int] | None, seed: int | None
) -> list[tuple[Workload, list[int]]]:
    """Workloads by name or group, each with the sizes to measure.

    Parameters
    ----------
    names : sequence of str
        Names of workloads, or "main", "worst", "all".
    sizes : sequence of int or None
        Numbers of rows for every workload; None: each workload's own.
    seed : int or None
        Seed in place of each workload's own.

    Raises
    ------
    ValueError
        If there is no such workload.
    """
    chosen: dict[str, Workload] = {}
    for name in names:
        for member in GROUPS.get(name, [name]):
            workload = get_workload(member)
            own = workload.seed if seed is None else seed
            chosen[member] = replace(
                workload, seed=own, min_cluster_size=MIN_CLUSTER_SIZE, min_samples=MIN_SAMPLES
            )
    return [(workload, sorted(set(sizes)) if sizes else sizes_of(workload)) for workload in chosen.values()]

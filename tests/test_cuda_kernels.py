"""Every kernel compiles for every architecture, as a fit compiles it, within the limits named here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import nvrtc
import pytest
from nvrtc import ARCHITECTURES, Compiled, Unit, Usage

from mreach.backends.cuda import kernels, rows, tree

REGISTERS_PER_MULTIPROCESSOR = 65_536  # of every architecture from sm_75 to sm_120
STATIC_SHARED_BYTES = 48 * 1024  # what a block may have without asking for more


class Limit(NamedTuple):
    """The most a kernel may take; see `nvrtc.Usage`."""

    registers: int
    static_shared: int = 0
    stack: int = 0
    spills: int = 0

    def broken_by(self, usage: Usage) -> list[str]:
        """Name what is over the limit."""
        over = [
            f"{what} {taken} > {most}"
            for what, taken, most in (
                ("registers", usage.registers, self.registers),
                ("static_shared", usage.static_shared, self.static_shared),
                ("stack", usage.stack, self.stack),
                ("spills", usage.spills, self.spills),
            )
            if taken > most
        ]
        return over


# The most that each kernel takes on any architecture. `PYTHONPATH=tests python -m nvrtc` prints this table.
LIMITS: dict[str, Limit] = {
    "box_tiles_kernel": Limit(36),
    "collect_groups_kernel": Limit(20),
    "column_ranges_float32_kernel": Limit(38, static_shared=5120),
    "column_ranges_float64_kernel": Limit(42, static_shared=5120),
    "columns_to_entries_kernel": Limit(10),
    "component_keys_kernel": Limit(10),
    "component_tiles_kernel": Limit(32),
    "copy_edges_kernel": Limit(18),
    "cores_of_new_kernel": Limit(60),
    "count_active_rows_kernel": Limit(32),
    "count_up_kernel": Limit(10),
    "exhaust_rows_float32_kernel": Limit(98, static_shared=2144),
    "exhaust_rows_float64_kernel": Limit(98, static_shared=2144),
    "fill_kernel": Limit(10),
    "find_given_up_kernel": Limit(14),
    "gather_active_rows_kernel": Limit(16),
    "gather_rows_float32_kernel": Limit(16),
    "gather_rows_float64_kernel": Limit(16),
    "half_bounds_kernel": Limit(18, static_shared=32),
    "half_inflation_kernel": Limit(20),
    "hash_rows_float32_kernel": Limit(34),
    "hash_rows_float64_kernel": Limit(34),
    "hook_kernel": Limit(26),
    "invert_kernel": Limit(10),
    "jump_kernel": Limit(20),
    "lightest_of_parts_float32_kernel": Limit(54),
    "lightest_of_parts_float64_kernel": Limit(54),
    "lightest_to_new_float32_kernel": Limit(128, static_shared=33792),
    "lightest_to_new_float64_kernel": Limit(128, static_shared=33792),
    "listed_edges_kernel": Limit(45),
    "listed_pairs_kernel": Limit(46),
    "make_frames_float32_kernel": Limit(56, static_shared=16),
    "make_frames_float64_kernel": Limit(58, static_shared=16),
    "mark_distinct_float32_kernel": Limit(64),
    "mark_distinct_float64_kernel": Limit(61),
    "mark_roots_kernel": Limit(12),
    "most_active_kernel": Limit(12),
    "nearest_frame_kernel": Limit(128, static_shared=8256, stack=152, spills=568),
    "nearest_frame_slabs_kernel": Limit(128, static_shared=8256, stack=152, spills=1096),
    "nearest_half_kernel": Limit(128, static_shared=6208, stack=72, spills=220),
    "nearest_half_slabs_kernel": Limit(128, static_shared=6208, stack=64, spills=200),
    "outgoing_frame_kernel": Limit(128, static_shared=5888, stack=240, spills=1080),
    "outgoing_frame_slabs_kernel": Limit(128, static_shared=5888, stack=280, spills=1024),
    "outgoing_half_kernel": Limit(128, static_shared=6912, stack=208, spills=972),
    "outgoing_half_slabs_kernel": Limit(128, static_shared=6912, stack=288, spills=1160),
    "pack_edges_kernel": Limit(14),
    "permute_kernel": Limit(12),
    "permute_u64_kernel": Limit(12),
    "positions_of_keys_kernel": Limit(10),
    "project_rows_float32_kernel": Limit(108, static_shared=24832),
    "project_rows_float64_kernel": Limit(108, static_shared=24832),
    "queued_pairs_kernel": Limit(12),
    "rank_candidates_float32_kernel": Limit(91, static_shared=49152),
    "rank_candidates_float64_kernel": Limit(70, static_shared=49152),
    "relabel_kernel": Limit(12),
    "round_rows_float32_kernel": Limit(51),
    "round_rows_float64_kernel": Limit(52),
    "row_marks_float32_kernel": Limit(32),
    "row_marks_float64_kernel": Limit(34),
    "scatter_kernel": Limit(12),
    "smallest_near_kernel": Limit(43),
    "split_keys_kernel": Limit(23),
    "split_segments_kernel": Limit(60, static_shared=20620, stack=8),
    "squares_near_new_float32_kernel": Limit(124, static_shared=34560),
    "squares_near_new_float64_kernel": Limit(124, static_shared=34560),
    "take_int_kernel": Limit(10),
}

HALVED_LIMITS = LIMITS | {
    "outgoing_frame_kernel": Limit(128, static_shared=5888, stack=240, spills=1168),
    "outgoing_frame_slabs_kernel": Limit(128, static_shared=5888, stack=288, spills=1076),
}
"""The same where the distance is half the squared one: how far a row reaches is then a root."""

MAY_SPILL = ("nearest_", "outgoing_")
"""Starts of the names of kernels that may spill: 64 sums a lane leave few of 128 registers for what is out
of their loop, above all the exact evaluation of a hit. nearest_half spills nothing on sm_90."""

DEVICE_FOLDER = Path(kernels.__file__).parent.parent / "cuda_kernels"

SHARED_BYTES = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory that a block may have, static and dynamic, by architecture."""

CACHE_KEY = "mreach/kernels"
UNITS = nvrtc.units()

Jobs = dict[tuple[Unit, int], Future[Compiled]]

needs_nvrtc = pytest.mark.skipif(
    nvrtc.library_path() is None, reason="needs NVRTC: pip install nvidia-cuda-nvrtc"
)


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """Everything on its way through the compiler, on all cores at once; what pytest's cache has of an earlier
    run of the same sources is not compiled again."""
    cache = request.config.cache
    pool, jobs = nvrtc.compile_all(UNITS, cache.get(CACHE_KEY, {}) if cache else {})
    yield jobs
    pool.shutdown(cancel_futures=True)
    done = {key: job.result() for key, job in jobs.items() if job.done() and not job.cancelled()}
    if cache:
        cache.set(CACHE_KEY, {nvrtc.digest(*key): one.log for key, one in done.items() if one.passed})


def complaints(done: Compiled, limits: dict[str, Limit]) -> list[str]:
    """Return all that is wrong with a compilation."""
    if not done.passed:
        return [done.log]
    # 177: a constant of a shared header that this unit does not use. The remark says how to hide warnings.
    unimportant = re.compile("#177-D|^Remark:")
    found = [line for line in done.log.splitlines() if "warning" in line and not unimportant.search(line)]
    for name, usage in done.kernels.items():
        if name in limits:
            found += [f"{name}: {excess}" for excess in limits[name].broken_by(usage)]
        else:
            found.append(f"{name}: no limit, takes {usage}")
    return found


@needs_nvrtc
@pytest.mark.parametrize(("unit", "architecture"), UNITS, ids=str)
def test_kernels_compile_within_their_limits(unit: Unit, architecture: int, compiled: Jobs) -> None:
    limits = HALVED_LIMITS if unit.defines else LIMITS
    assert complaints(compiled[unit, architecture].result(), limits) == []


@needs_nvrtc
def test_every_limit_has_a_kernel_and_every_kernel_a_limit(compiled: Jobs) -> None:
    found = {name for job in compiled.values() for name in job.result().kernels}
    assert found == LIMITS.keys()
    assert found == {f"{name}_kernel" for name in kernels.UNIT_OF}


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_shared_memory_suffices(architecture: int, compiled: Jobs) -> None:
    """Of the kernels that ask for dynamic shared memory."""
    shape = kernels.Shape(architecture)
    for unit, compiled_for in UNITS:
        if compiled_for != architecture:
            continue
        for name, usage in compiled[unit, architecture].result().kernels.items():
            if name.startswith(("nearest_", "outgoing_")):
                n_slabs = 9 if name.endswith("_slabs_kernel") else 1
                bytes_for = shape.half_shared_bytes if "_half" in name else kernels.frame_shared_bytes
                assert usage.static_shared + bytes_for(n_slabs) <= SHARED_BYTES[architecture] * 1024, name


def test_limits_can_be_met_by_a_device() -> None:
    for name, limit in LIMITS.items():
        assert 0 < limit.registers <= 255, name
        assert limit.static_shared <= STATIC_SHARED_BYTES, name
        assert limit.spills == 0 or name.startswith(MAY_SPILL), name


def test_every_source_is_a_unit_and_every_kernel_of_it_is_named() -> None:
    assert {path.stem for path in DEVICE_FOLDER.glob("*.cu")} == kernels.UNITS.keys()
    sources = {unit.name: unit.source for unit, _ in UNITS}
    included = "".join(sources.values())
    assert "#include" not in included
    for path in DEVICE_FOLDER.glob("*.cu*"):
        assert path.read_text(encoding="utf-8").splitlines()[-1] in included, path.name
    for name, source in sources.items():  # each header once
        lines = [line for line in source.splitlines() if line.startswith("// ") and len(line) > 60]
        assert len(lines) == len(set(lines)), name


SHARED_NAMES = (
    "TILE",
    "SCAN_THREADS",
    "SMALL_CAPACITY",
    "MAX_LEADING",
    "SPLIT_WIDTH",
    "EXHAUST_ROWS",
    "HOPS",
    "RANK_WARPS",
    "NEW_TILE",
)


def test_host_and_device_agree_on_their_constants() -> None:
    """Numbers that stand on both sides; WARPS and the slabs of frames follow from others here."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(DEVICE_FOLDER.glob("*.cu*")))
    for name in SHARED_NAMES:
        assert re.findall(rf"constexpr int {name} = (\d+);", text) == [str(getattr(kernels, name))], name
    assert kernels.WARPS == kernels.SCAN_THREADS // 32
    assert re.findall(r"constexpr int LEADING = (\d+);", text) == [str(kernels.MAX_LEADING)]
    frames = (DEVICE_FOLDER / "frame_tiles.cuh").read_text(encoding="utf-8")
    assert re.findall(r"constexpr int SLAB = (\d+);", frames) == [str(kernels.FRAME_SLAB)]
    assert re.findall(r"constexpr int STAGES = (\d+);", frames) == [str(kernels.FRAME_STAGES)]
    assert re.findall(r"#define ROWS_THREADS (\d+)", text) == [str(rows.N_THREADS)]
    assert re.findall(r"constexpr int (NEAREST|ALL)_PHASE = (\d+);", text) == [
        ("NEAREST", str(tree.NEAREST_PHASE)),
        ("ALL", str(tree.ALL_PHASE)),
    ]
    assert kernels.EXHAUST_ROWS == kernels.WARPS  # a warp looks after each


ADD = """
extern "C" __global__ void __launch_bounds__(128) add_kernel(const float* a, float* b, int n) {
    __shared__ float shared[WIDTH];
    shared[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) { b[threadIdx.x] = shared[WIDTH - 1 - threadIdx.x]; }
}
"""
SPILL = """
template <int N> __device__ void mix(float (&r)[N], float x) {
    #pragma unroll
    for (int k = 0; k < N; ++k) { r[k] = r[k] * r[(k + 7) % N] + x; }
}
extern "C" __global__ __launch_bounds__(1024) void spill_kernel(const float* a, float* b, int n) {
    float r[96];
    #pragma unroll
    for (int k = 0; k < 96; ++k) { r[k] = a[k * 1024 + threadIdx.x]; }
    for (int j = 0; j < n; ++j) { mix(r, a[j]); }
    #pragma unroll
    for (int k = 0; k < 96; ++k) { b[k * 1024 + threadIdx.x] = r[k]; }
}
"""


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_compiler_reports_what_a_kernel_takes(architecture: int) -> None:
    wide, narrow = (
        nvrtc.compile_unit(Unit("add.cu", (f"WIDTH={n}",), ADD), architecture) for n in (256, 128)
    )
    usage = wide.kernels["add_kernel"]
    assert 4 <= usage.registers <= 32
    assert (usage.stack, usage.spills) == (0, 0)
    # sm_100 and later may keep some shared memory for themselves
    assert usage.static_shared - narrow.kernels["add_kernel"].static_shared == 512
    assert usage.static_shared >= 1024


@needs_nvrtc
def test_a_spill_a_warning_and_an_error_are_seen() -> None:
    spilled = Unit("spill.cu", (), SPILL)
    done = nvrtc.compile_unit(spilled, 80)
    usage = done.kernels["spill_kernel"]
    assert usage.registers <= 64
    assert usage.spills > 0
    over = complaints(done, {"spill_kernel": Limit(16, stack=usage.stack)})
    assert over == [
        f"spill_kernel: registers {usage.registers} > 16",
        f"spill_kernel: spills {usage.spills} > 0",
    ]
    assert complaints(done, {}) == [f"spill_kernel: no limit, takes {usage}"]

    crowded = Unit("add.cu", ("WIDTH=128",), ADD.replace("(128)", "(128, 64)"))
    (warning,) = complaints(nvrtc.compile_unit(crowded, 80), {"add_kernel": Limit(255, 1024)})
    assert "minnctapersm" in warning

    broken = Unit("broken.cu", (), "extern int x = ;")
    (log,) = complaints(nvrtc.compile_unit(broken, 80), {})
    assert "broken.cu(1)" in log


REPORT = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'two_kernel' for 'sm_75'
ptxas info    : Function properties for two_kernel
ptxas         .     272 bytes stack frame, 536 bytes spill stores, 560 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers, 280 bytes cumulative stack size, 372 bytes cmem[0]
ptxas info    : Compile time = 26.679 ms
ptxas info    : Compiling entry function 'one_kernel' for 'sm_75'
ptxas info    : Function properties for one_kernel
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 1024 bytes smem, 380 bytes cmem[0]
"""


def test_the_report_is_read() -> None:
    assert nvrtc.usage_of(REPORT) == {
        "two_kernel": Usage(64, 280, 1096, 0),
        "one_kernel": Usage(14, 0, 0, 1024),
    }
    with pytest.raises(ValueError, match="reads otherwise"):
        nvrtc.usage_of(REPORT.replace("registers", "register"))


def test_limits_name_what_is_over() -> None:
    assert Limit(64, stack=8).broken_by(Usage(64, 8, 0, 0)) == []
    assert Limit(64).broken_by(Usage(65, 8, 4, 16)) == [
        "registers 65 > 64",
        "static_shared 16 > 0",
        "stack 8 > 0",
        "spills 4 > 0",
    ]


@needs_nvrtc
def test_what_is_known_is_not_compiled_again() -> None:
    unit = Unit("add.cu", ("WIDTH=128",), ADD)
    log = REPORT.replace("one_kernel", "known_kernel")
    pool, jobs = nvrtc.compile_all([(unit, 75), (unit, 80)], {nvrtc.digest(unit, 75): log})
    with pool:
        assert jobs[unit, 75].result().kernels.keys() == {"two_kernel", "known_kernel"}
        assert jobs[unit, 80].result().kernels.keys() == {"add_kernel"}
    others = [Unit("add.cu", ("WIDTH=64",), ADD), Unit("add.cu", ("WIDTH=128",), f"{ADD} ")]
    assert len({nvrtc.digest(one, 75) for one in (unit, *others)} | {nvrtc.digest(unit, 80)}) == 4

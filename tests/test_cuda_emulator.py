"""The emulator of CUDA itself: it computes what a GPU would, and refuses what a GPU would not forgive."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulator import CompileError, KernelError, compile_source, install, uninstall

pytestmark = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("c++")), reason="needs a C++ compiler to emulate CUDA"
)

SOURCE = (Path(__file__).parent / "cuda_emulator" / "example.cu").read_text(encoding="utf-8")
DIRECTIONS = ("rn", "rd", "ru", "rz")


@pytest.fixture
def cp() -> Iterator[Any]:
    install()
    import cupy

    yield cupy
    uninstall()


@pytest.fixture
def kernels(cp: Any) -> Any:
    return cp.RawModule(code=SOURCE, options=("-std=c++17",), backend="nvrtc")


@pytest.fixture(params=["forward", "reverse", "random:1", "random:2"])
def schedule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MREACH_EMULATOR_SCHEDULE", request.param)
    return str(request.param)


def run(
    cp: Any, kernels: Any, name: str, *arguments: Any, grid: int = 1, block: int = 32, shared: int = 0
) -> Any:
    """Launch with uploaded NumPy arrays; the last is the output, and returned."""
    device = [cp.asarray(one) if isinstance(one, np.ndarray) else one for one in arguments]
    kernels.get_function(name)((grid,), (block,), tuple(device), shared_mem=shared)
    return device[-1].get()


# What threads exchange


@pytest.mark.usefixtures("schedule")
def test_block_reduction_over_static_and_dynamic_shared_memory(cp: Any, kernels: Any) -> None:
    x = np.arange(1000, dtype=np.int32)
    out = run(
        cp,
        kernels,
        "block_sum_kernel",
        x,
        np.int32(1000),
        np.zeros(8, np.int32),
        grid=8,
        block=128,
        shared=512,
    )
    assert out.sum() == x.sum()


@pytest.mark.usefixtures("schedule")
def test_shuffles(cp: Any, kernels: Any) -> None:
    lanes = np.arange(32)
    out = run(cp, kernels, "shuffle_kernel", np.zeros((5, 32), np.float64))
    np.testing.assert_array_equal(out[0], np.full(32, 7))
    np.testing.assert_array_equal(out[1], lanes ^ 5)
    np.testing.assert_array_equal(out[2], np.where(lanes < 3, lanes, lanes - 3))
    np.testing.assert_array_equal(out[3], np.where(lanes % 8 + 2 > 7, lanes, lanes + 2))
    np.testing.assert_array_equal(out[4], lanes // 8 * 8 + 1)


@pytest.mark.usefixtures("schedule")
def test_votes_in_branches_that_diverge(cp: Any, kernels: Any) -> None:
    out = run(cp, kernels, "vote_kernel", np.zeros(32, np.uint32))
    odd = sum(1 << lane for lane in range(1, 32, 2) if lane > 10)
    even = sum(1 << lane for lane in range(0, 32, 2) if lane % 3 == 0)
    np.testing.assert_array_equal(out[1::2], odd)
    np.testing.assert_array_equal(out[0::2], even)


@pytest.mark.usefixtures("schedule")
def test_barrier_votes(cp: Any, kernels: Any) -> None:
    out = run(cp, kernels, "barrier_vote_kernel", np.zeros((96, 3), np.int32), block=96)
    np.testing.assert_array_equal(out, np.tile([1, 0, 33], (96, 1)))


@pytest.mark.usefixtures("schedule")
def test_atomics(cp: Any, kernels: Any) -> None:
    out = run(cp, kernels, "atomic_kernel", np.array([0, 1 << 40, 0, 0, 5], np.uint64), grid=3, block=64)
    assert out[0] == 3 * 64
    assert out[1] == 0
    assert out[2] == 191
    assert out[3] == (1 << 64) - 1
    assert out[4] == 6


def test_lanes_that_do_not_wait_for_each_other_are_found_out(
    cp: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel lacks a barrier: some order of the threads shows it."""
    found = set()
    for order in ("forward", "reverse"):
        monkeypatch.setenv("MREACH_EMULATOR_SCHEDULE", order)
        found.add(run(cp, kernels, "race_kernel", np.zeros(64, np.int32), block=64).tobytes())
    assert len(found) == 2


# Garbage where nothing was written


def test_shared_memory_starts_as_garbage_in_every_block(cp: Any, kernels: Any) -> None:
    out = run(cp, kernels, "garbage_kernel", np.zeros((3, 2), np.uint32), grid=3, block=1, shared=16)
    np.testing.assert_array_equal(out, 0xA5A5A5A5)
    assert cp.empty(3, cp.uint8).get().tolist() == [0xA5] * 3


def test_asynchronous_copies_arrive_at_the_wait(cp: Any, kernels: Any) -> None:
    x = np.arange(8, dtype=np.uint32)
    out = run(cp, kernels, "copy_kernel", x, np.zeros((3, 8), np.uint32), block=1)
    np.testing.assert_array_equal(out[0], 0xA5A5A5A5)
    np.testing.assert_array_equal(out[1], [0, 1, 2, 3, *[0xA5A5A5A5] * 4])
    np.testing.assert_array_equal(out[2], x)


# Numbers


def test_halves(cp: Any, kernels: Any) -> None:
    generator = np.random.default_rng(0)
    all_halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        exact = all_halves.astype(np.float32)
        edges = np.concatenate(
            [exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))]
        )
        middles = (exact[:-1].astype(np.float64) + exact[1:]).astype(np.float32) / 2
        sides = [np.nextafter(middles, np.float32(end)) for end in (-np.inf, np.inf)]
        wild = generator.integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)
        x = np.concatenate([edges, middles, *sides, wild, np.float32([65519.996, 65520, 65536, 3e38])])
        expected = x.astype(np.float16)
    narrow = cp.empty(len(x), cp.uint16)
    wide = cp.empty(65536, cp.float32)
    function = kernels.get_function("half_kernel")
    function((4,), (256,), (cp.asarray(x), narrow, np.int32(len(x)), cp.asarray(all_halves), wide))
    narrow, wide = narrow.get().view(np.float16), wide.get()
    same = (narrow.view(np.uint16) == expected.view(np.uint16)) | (np.isnan(narrow) & np.isnan(expected))
    assert same.all(), (x[~same][:5], narrow[~same][:5])
    assert ((wide.view(np.uint32) == exact.view(np.uint32)) | (np.isnan(wide) & np.isnan(exact))).all()


def rounded(value: Fraction, direction: str, dtype: Any) -> Any:
    """Return a fraction rounded to a float type in a direction (rn: to even)."""
    digits, least = (24, -149) if dtype is np.float32 else (53, -1074)
    if value == 0:
        return dtype(0)
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    exponent -= abs(value) < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - digits + 1, least)
    low = value // unit
    rest = value / unit - low
    up = {"rd": False, "ru": rest > 0, "rz": value < 0 and rest > 0}.get(
        direction, rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1)
    )
    return dtype(float((low + up) * unit))


def root_is(value: Fraction, root: Any, direction: str, dtype: Any) -> bool:
    """Say whether ``root`` is the square root of ``value`` rounded in a direction."""
    exact = Fraction(float(root))
    above, below = (Fraction(float(np.nextafter(root, dtype(end)))) for end in (np.inf, 0))
    if direction in ("rd", "rz"):
        return exact**2 <= value < above**2
    if direction == "ru":
        return below**2 < value <= exact**2
    return ((exact + below) / 2) ** 2 <= value <= ((exact + above) / 2) ** 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_in_every_direction(cp: Any, kernels: Any, dtype: Any) -> None:
    generator = np.random.default_rng(1)
    n = 400
    a, b, c = (
        (generator.standard_normal(n) * 2.0 ** generator.integers(-30, 31, n)).astype(dtype) for _ in range(3)
    )
    a[:20], b[:20] = np.float32(1e-30), generator.standard_normal(20).astype(dtype)
    c[20:40] = -(a[20:40] * b[20:40])
    if dtype is np.float32:
        b[:10] *= np.float32(1e-12)  # subnormal products
    name = "round_float_kernel" if dtype is np.float32 else "round_double_kernel"
    function = kernels.get_function(name)
    out = cp.empty((n, 7, 4), dtype)
    function((2,), (32,), (cp.asarray(a), cp.asarray(b), cp.asarray(c), out, np.int32(n)))
    out = out.get()
    for i in range(n):
        x, y, z = (Fraction(float(one[i])) for one in (a, b, c))
        exact = [x + y, x - y, x * y, x / y, x * y + z]
        for k, direction in enumerate(DIRECTIONS):
            for j, value in enumerate(exact):
                assert out[i, j, k] == rounded(value, direction, dtype), (j, direction, a[i], b[i], c[i])
            assert root_is(abs(x), out[i, 5, k], direction, dtype), (direction, a[i])
            as_float = rounded(x * y, "rn", np.float64)
            if dtype is np.float64:
                assert np.float32(out[i, 6, k]) == rounded(Fraction(float(as_float)), direction, np.float32)


def fragments(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the registers of the lanes as PTX draws them: halves (32, 8), (32, 4), floats (32, 4)."""
    g, t = np.divmod(np.arange(32), 4)
    rows = [g, g, g + 8, g + 8, g, g, g + 8, g + 8]
    columns = [2 * t, 2 * t + 1, 2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9, 2 * t + 8, 2 * t + 9]
    of_a = np.stack([a[r, k] for r, k in zip(rows, columns, strict=True)], axis=1)
    of_b = np.stack([b[k, g] for k in (2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9)], axis=1)
    of_c = np.stack([c[g, 2 * t], c[g, 2 * t + 1], c[g + 8, 2 * t], c[g + 8, 2 * t + 1]], axis=1)
    return of_a, of_b, of_c


@pytest.mark.parametrize("rounding", ["nearest", "truncate", "down", "up", "random"])
@pytest.mark.parametrize("arch", [750, 800, 900])
def test_mma(monkeypatch: pytest.MonkeyPatch, rounding: str, arch: int) -> None:
    monkeypatch.setenv("MREACH_EMULATOR_ROUNDING", rounding)
    monkeypatch.setenv("MREACH_EMULATOR_ARCH", str(arch))
    install()
    import cupy as cp

    generator = np.random.default_rng(2)
    a = generator.standard_normal((16, 16)).astype(np.float16)
    b = generator.standard_normal((16, 8)).astype(np.float16)
    c = generator.standard_normal((16, 8)).astype(np.float32)
    kernels = cp.RawModule(code=SOURCE, options=(), backend="nvrtc")
    of_a, of_b, of_c = fragments(a, b, c)
    out = run(cp, kernels, "mma_kernel", of_a.view(np.uint32), of_b.view(np.uint32), of_c)
    uninstall()
    exact = c + a.astype(np.float64) @ b.astype(np.float64)
    expected = fragments(a, b, exact)[2]
    size = fragments(a, b, np.abs(c) + np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))[2]
    error = (out - expected) / size
    assert np.abs(error).max() < 2.0**-21
    if rounding in ("down", "up"):
        assert (np.sign(error) == (1 if rounding == "up" else -1)).all()
    if rounding == "truncate":
        assert (np.abs(out) <= np.abs(expected) + size * 2.0**-23).all()
        assert (out != expected).any()


def test_load_matrix(cp: Any, kernels: Any) -> None:
    tiles = np.arange(4 * 8 * 8, dtype=np.uint16).reshape(4, 8, 8)
    out = (
        run(cp, kernels, "load_matrix_kernel", tiles, np.zeros((32, 4), np.uint32))
        .view(np.uint16)
        .reshape(32, 4, 2)
    )
    for lane in range(32):
        row, pair = divmod(lane, 4)
        np.testing.assert_array_equal(out[lane], tiles[:, row, 2 * pair : 2 * pair + 2])


# What a GPU would not forgive


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (1, "deadlock: 3 threads from thread 0 on wait at __syncthreads"),
        (2, "deadlock: 31 threads from thread 1 on wait at __syncwarp"),
        (3, "lane 4 is not in the mask"),
        (4, "while lanes of its mask wait for it"),
        (5, "access outside of any array"),
        (6, "undefined behaviour"),
        (7, "undefined behaviour"),
        (8, "wrote outside of its dynamic shared memory"),
        (9, "shuffles from lane 9, which is not in the mask"),
        (10, "while others wait at"),
        (11, "access outside of any array"),
    ],
)
@pytest.mark.usefixtures("schedule")
def test_mistakes_are_reported_and_the_next_launch_works(
    cp: Any, kernels: Any, case: int, message: str
) -> None:
    with pytest.raises(KernelError, match=message):
        run(cp, kernels, "mistake_kernel", np.int32(case), np.zeros(32, np.int32), shared=20)
    out = run(cp, kernels, "mistake_kernel", np.int32(0), np.zeros(32, np.int32), shared=20)
    np.testing.assert_array_equal(out, np.arange(32))


def test_a_crash_names_its_line(cp: Any, kernels: Any) -> None:
    if not shutil.which("addr2line"):
        pytest.skip("needs addr2line")
    with pytest.raises(KernelError, match=r"mistake_kernel \(unit.cu:\d+"):
        run(cp, kernels, "mistake_kernel", np.int32(5), np.zeros(32, np.int32), shared=20)


def test_writes_before_an_array_are_reported(cp: Any, kernels: Any) -> None:
    with pytest.raises(KernelError, match="wrote beside an array"):
        run(cp, kernels, "mistake_kernel", np.int32(12), np.zeros(32, np.int32), shared=20)


@pytest.mark.parametrize(
    ("position", "wrong"),
    [
        (0, np.zeros(4, np.float32)),
        (0, "float64"),
        (0, "int32"),
        (1, "float32"),
        (2, 4),
        (2, np.int64(4)),
        (2, np.uint32(4)),
        (3, np.float64(1)),
        (0, "strided"),
    ],
)
def test_arguments_of_another_type_are_refused(cp: Any, kernels: Any, position: int, wrong: Any) -> None:
    function = kernels.get_function("types_kernel")
    right = [
        cp.zeros(4, cp.float32),
        cp.zeros(4, cp.uint64),
        np.int32(4),
        np.float32(1),
        cp.zeros((2, 4), cp.float32),
    ]
    function((1,), (1,), tuple(right))
    if isinstance(wrong, str) and wrong == "strided":
        wrong = cp.zeros((4, 2), cp.float32)[:, 0]
    right[position] = cp.zeros(4, getattr(cp, wrong)) if isinstance(wrong, str) else wrong
    with pytest.raises(TypeError, match=f"argument {position}"):
        function((1,), (1,), tuple(right))
    with pytest.raises(TypeError, match="4 arguments for 5 parameters"):
        function((1,), (1,), tuple(right[:4]))


def test_launches_beyond_the_limits_are_refused(cp: Any, kernels: Any) -> None:
    function = kernels.get_function("block_sum_kernel")
    arguments = (cp.zeros(8, cp.int32), np.int32(8), cp.zeros(8, cp.int32))
    error = cp.cuda.driver.CUDADriverError
    with pytest.raises(error, match="at most 256 threads"):
        function((1,), (257,), arguments, shared_mem=2000)
    with pytest.raises(error, match="shared memory"):
        function((1,), (128,), arguments, shared_mem=50_000)
    function.max_dynamic_shared_size_bytes = 50_000
    function((1,), (128,), arguments, shared_mem=50_000)


def test_sources_that_do_not_compile(cp: Any) -> None:
    with pytest.raises(CompileError, match="nonsense"):
        compile_source('extern "C" __global__ void a_kernel(int* x) { nonsense(x); }')
    with pytest.raises(CompileError, match="option"):
        compile_source("", ["--no-such-option"])
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="not found"):
        cp.RawModule(code=SOURCE, backend="nvrtc").get_function("no_such_kernel")


def test_the_portable_context_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    library = compile_source(SOURCE, ["-DMREACH_EMULATOR_UCONTEXT"])
    x, out = np.arange(1000, dtype=np.int32), np.zeros(8, np.int32)
    values = [ctypes.c_void_p(x.ctypes.data), ctypes.c_int(1000), ctypes.c_void_p(out.ctypes.data)]
    for _ in range(3):
        out[:] = 0
        library.kernels["block_sum_kernel"].launch((8,), (128,), 512, values)
        assert out.sum() == x.sum()
    values = [ctypes.c_int(1), ctypes.c_void_p(out.ctypes.data)]
    with pytest.raises(KernelError, match="deadlock"):
        library.kernels["mistake_kernel"].launch((1,), (32,), 20, values)


# The stand-in for CuPy


def test_pool_counts_and_fails_as_told(cp: Any) -> None:
    pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(pool.malloc):
        x = cp.zeros(1000, cp.float32)
        assert pool.used_bytes() == pool.total_bytes() == 4096
        del x
        assert (pool.used_bytes(), pool.total_bytes()) == (0, 4096)
        pool.free_all_blocks()
        assert pool.total_bytes() == 0
        pool.set_limit(size=1024)
        with pytest.raises(cp.cuda.memory.OutOfMemoryError):
            cp.empty(2000, cp.uint8)
        pool.set_limit(size=0)
        cp.settings.fail_allocation_after(2)
        kept = [cp.empty(1), cp.empty(1)]
        with pytest.raises(cp.cuda.memory.OutOfMemoryError):
            cp.empty(1)
        kept.append(cp.empty(1))
    assert cp.empty(0).data.ptr == 0


def test_arrays_refuse_the_host(cp: Any) -> None:
    x, host = cp.arange(6), np.arange(6)
    for wrong in (
        lambda: x + host,
        lambda: host + x,
        lambda: x.__setitem__(slice(None), host),
        lambda: np.asarray(x),
        lambda: x[host],
        lambda: cp.concatenate([x, host]),
        lambda: cp.take(x, host),
    ):
        with pytest.raises((TypeError, ValueError)):
            wrong()


def test_arrays_compute_as_numpy_and_share_memory(cp: Any) -> None:
    x = cp.arange(12, dtype=cp.float32).reshape(3, 4)
    assert isinstance(x.sum(), cp.ndarray)
    assert float(x.sum()) == 66
    assert (2 * x - 1)[1].get().tolist() == [7, 9, 11, 13]
    x[1, 2:] = 0
    row = x[1]
    row[0] = 5
    assert x.get().tolist()[1] == [5, 5, 0, 0]
    assert row.data.ptr == x.data.ptr + 16
    assert x[cp.asarray(np.array([2, 0]))].get()[0].tolist() == [8, 9, 10, 11]
    assert cp.argsort(cp.asarray(np.array([1, 0, 1, 0]))).get().tolist() == [1, 3, 0, 2]
    assert cp.from_dlpack(x).data.ptr == x.data.ptr

    class Foreign:
        __cuda_array_interface__ = x.T.__cuda_array_interface__

    seen = cp.asarray(Foreign())
    np.testing.assert_array_equal(seen.get(), x.get().T)
    assert seen.data.ptr == x.data.ptr
    with pytest.raises(TypeError, match="CPU"):
        cp.from_dlpack(np.arange(3))

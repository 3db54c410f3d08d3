"""Compiles the device code where there is no GPU, with NVRTC through ctypes.

``PYTHONPATH=tests python -m nvrtc`` prints what each kernel takes, and the table of limits for
``test_cuda_kernels.py``.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from mreach.backends.cuda import kernels

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)

HALVED_ARCHITECTURES = (75, 90)
"""Where units are compiled for half the squared distance, too: a few instructions are other ones."""

OPTIONS_OF_CUPY = ("-ftz=true", "--device-as-default-execution-space")
"""What CuPy's ``RawModule`` adds to the options that it is given, beside the architecture."""


class Usage(NamedTuple):
    """What one kernel takes: registers of a thread; bytes of a thread's stack and spills; bytes of static
    shared memory of a block."""

    registers: int
    stack: int
    spills: int
    static_shared: int


class Compiled(NamedTuple):
    """Outcome of one compilation; `kernels` is empty where it failed."""

    passed: bool
    log: str
    kernels: dict[str, Usage]


class Unit(NamedTuple):
    """A translation unit and what is defined for it, as NAME=VALUE."""

    name: str
    defines: tuple[str, ...]
    source: str

    def __str__(self) -> str:
        return " ".join((self.name, *self.defines))


def units() -> list[tuple[Unit, int]]:
    """Return all units as the host side hands them to the compiler, with the architectures to compile for."""
    found = []
    for name in kernels.UNITS:
        plain = Unit(f"{name}.cu", (), kernels.module_source(name))
        found += [(plain, architecture) for architecture in ARCHITECTURES]
        if name in kernels.UNITS_OF_MEASURE:
            halved = plain._replace(defines=(kernels.HALVED_SQUARE,))
            found += [(halved, architecture) for architecture in HALVED_ARCHITECTURES]
    return found


def options_for(architecture: int) -> tuple[str, ...]:
    """Return the options that the host side compiles with for a GPU of an architecture (80: ``sm_80``)."""
    options = kernels.module_options(kernels.Shape(architecture))
    if not any(option.startswith("-arch=") for option in options):
        options = (f"-arch=sm_{architecture}", *options)
    return (*options, *OPTIONS_OF_CUPY)


def library_path() -> Path | None:
    """Where the newest installed wheel ``nvidia-cuda-nvrtc`` has its library, or None."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    found = [path for folder in folders for path in Path(folder).glob("*/lib/libnvrtc.so.1[3-9]*")]
    return max(found, default=None)


@functools.cache
def library() -> Any:
    """Load NVRTC. It looks for its built-ins by name only, so they are loaded before it."""
    path = library_path()
    assert path is not None
    for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path))


def version() -> str:
    """Version of NVRTC, as "13.5"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def usage_of(log: str) -> dict[str, Usage]:
    """Read what ``ptxas -v`` reports of each kernel. Functions that a kernel calls count as the kernel's."""
    found = {}
    for section in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'(\w+)'", section)
        registers = re.search(r"Used (\d+) registers", section)
        if name is None or registers is None:
            raise ValueError(f"the report of ptxas reads otherwise than expected:\n{section}")
        stack = [
            int(size) for size in re.findall(r"(\d+) bytes (?:stack frame|cumulative stack size)", section)
        ]
        spills = [int(size) for size in re.findall(r"(\d+) bytes spill (?:stores|loads)", section)]
        shared = re.search(r"(\d+) bytes smem", section)
        found[name.group(1)] = Usage(
            int(registers.group(1)), max(stack), sum(spills), int(shared.group(1)) if shared else 0
        )
    return found


def compile_unit(unit: Unit, architecture: int) -> Compiled:
    """Compile a unit to machine code for one architecture (80: ``sm_80``). Threads may call it at once."""
    nvrtc = library()
    program = ctypes.c_void_p()
    status = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), unit.source.encode(), unit.name.encode(), 0, None, None
    )
    if status != 0:
        raise RuntimeError(f"NVRTC made no program: status {status}")
    asked = [*options_for(architecture), "--ptxas-options=-v"]
    asked += [f"--define-macro={define}" for define in unit.defines]
    encoded = (ctypes.c_char_p * len(asked))(*[option.encode() for option in asked])
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(asked), encoded)
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, text)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    log = text.value.decode(errors="replace")
    return Compiled(status == 0, log, usage_of(log) if status == 0 else {})


def digest(unit: Unit, architecture: int) -> str:
    """A name for all that decides what a compilation gives."""
    decisive = (version(), *options_for(architecture), *unit)
    return hashlib.sha256(repr(decisive).encode()).hexdigest()


def compile_all(
    wanted: Sequence[tuple[Unit, int]], known: Mapping[str, str] | None = None
) -> tuple[ThreadPoolExecutor, dict[tuple[Unit, int], Future[Compiled]]]:
    """Start compiling units, each for an architecture, on all cores, the longest sources first.

    `known` has the logs of earlier compilations by their :func:`digest`; these are not done again.
    """
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def compilation(unit: Unit, architecture: int) -> Compiled:
        log = (known or {}).get(digest(unit, architecture))
        return compile_unit(unit, architecture) if log is None else Compiled(True, log, usage_of(log))

    longest_first = sorted(wanted, key=lambda pair: -len(pair[0].source))
    return pool, {pair: pool.submit(compilation, *pair) for pair in longest_first}


def main() -> None:
    """Print what each kernel takes on each architecture, and the most that any takes as a table of limits."""
    pool, jobs = compile_all(units())
    with pool:
        most: dict[str, Usage] = {}
        for (unit, architecture), job in jobs.items():
            done = job.result()
            if not done.passed:
                print(f"# {unit} sm_{architecture}:\n{done.log}")
            for kernel, usage in done.kernels.items():
                print(f"# sm_{architecture:<4} {kernel:36} {usage}", *unit.defines)
                if not unit.defines:
                    most[kernel] = Usage(*map(max, most.get(kernel, usage), usage))
    print("LIMITS: dict[str, Limit] = {")
    for kernel, usage in sorted(most.items()):
        others = {"static_shared": usage.static_shared, "stack": usage.stack, "spills": usage.spills}
        given = [str(usage.registers), *(f"{name}={taken}" for name, taken in others.items() if taken)]
        print(f'    "{kernel}": Limit({", ".join(given)}),')
    print("}")


if __name__ == "__main__":
    main()

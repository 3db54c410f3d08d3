"""CUDA without a GPU: compiles kernels for the CPU and stands in for CuPy.

``compile`` turns a CUDA source into a library of kernels that run on the CPU, thread by thread;
``fake_cupy`` is the part of CuPy that mreach uses, with those kernels behind ``RawModule``. Slow and strict.

Environment variables, read at every launch unless said otherwise:

MREACH_EMULATOR_SCHEDULE   forward (default), reverse, random:SEED: the order of threads (reverse: blocks too)
MREACH_EMULATOR_ROUNDING   nearest (default), truncate, down, up, random: how tensor core steps err
MREACH_EMULATOR_MMA_ERROR  error of down, up, random relative to |c| + sum |a b| of a step (default 2^-22)
MREACH_EMULATOR_ARCH       900 (default), 750, ...: __CUDA_ARCH__ and device properties; read by install()
MREACH_EMULATOR_DEVICES    number of devices (default 1); read by install()
MREACH_EMULATOR_SANITIZE   0: no checks of indices, alignment, shifts, ...; read when a source is compiled
MREACH_EMULATOR_CACHE      folder of compiled kernels (default: below the temporary folder)
"""

from .compile import CompileError, KernelError, Library, compile_source

__all__ = ["CompileError", "KernelError", "Library", "compile_source", "install", "uninstall"]


def install() -> None:
    """Put the stand-in into ``sys.modules`` as ``cupy``, with all counters and limits reset."""
    from . import fake_cupy

    fake_cupy.install()


def uninstall() -> None:
    """Remove the stand-in from ``sys.modules``."""
    from . import fake_cupy

    fake_cupy.uninstall()

"""CUDA source -> shared library for the CPU -> kernels that Python can launch."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADERS = ("cuda_shim.h", "launch.h", "fibers.h", "atomics.h", "rounding.h", "primitives.cuh")
FLAGS = [
    *(
        "-std=c++17",
        "-O2",
        "-g1",
        "-w",
        "-fPIC",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
        "-fno-exceptions",
    ),
    *("-fno-rtti", "-fvisibility=hidden", "-fno-stack-protector", "-U_FORTIFY_SOURCE"),
]
CHECKS = "shift,integer-divide-by-zero,signed-integer-overflow,bounds,alignment,float-cast-overflow,bool"
SANITIZE = [f"-fsanitize={CHECKS}", "-fsanitize-undefined-trap-on-error"]
# What NVRTC takes and means nothing here.
IGNORED_OPTIONS = re.compile(
    r"--?(std|fmad|arch|gpu-architecture|lineinfo|generate-line-info|default-device|maxrregcount|restrict|dopt"
    r"|ptxas-options|extra-device-vectorization|device-debug|split-compile|diag-suppress|w)\b.*"
)


class CompileError(RuntimeError):
    """The source does not compile."""


class KernelError(RuntimeError):
    """A launch did what a GPU forbids or leaves undefined: a deadlock, an access outside of any array, ..."""


@dataclass
class Kernel:
    """One kernel of a library. ``parameters``: of each, [P]<kind><bytes>, such as ``Pf4`` for ``float*``."""

    library: Library
    name: str
    parameters: list[str]
    max_threads: int

    def launch(
        self, grid: Sequence[int], block: Sequence[int], shared: int, values: Sequence[ctypes._SimpleCData]
    ) -> None:
        """Run the kernel; ``values`` holds one C value per parameter. Raises KernelError."""
        grid3 = (ctypes.c_uint * 3)(*grid, *[1] * (3 - len(grid)))
        block3 = (ctypes.c_uint * 3)(*block, *[1] * (3 - len(block)))
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(value) for value in values])
        run = getattr(self.library.handle, f"emu_{self.name}")
        if run(grid3, block3, ctypes.c_size_t(shared), pointers):
            raise KernelError(self.library.last_error())


class Library:
    """A compiled source: ``kernels`` by name."""

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        self.path = path
        # The interpreter lock is held during a launch: the emulator has one state per library.
        self.handle = ctypes.PyDLL(str(path))
        self.handle.emu_message.restype = ctypes.c_char_p
        self.handle.emu_crash_offset.restype = ctypes.c_ulonglong
        self.kernels: dict[str, Kernel] = {}
        for name in names:
            signature = getattr(self.handle, f"emu_signature_{name}")
            signature.restype = ctypes.c_char_p
            bound = getattr(self.handle, f"emu_bound_{name}")()
            parameters = [one for one in signature().decode().split(",") if one]
            self.kernels[name] = Kernel(self, name, parameters, bound)

    def last_error(self) -> str:
        """Say what ended the last launch, with the source line where it is known."""
        message = self.handle.emu_message().decode(errors="replace")
        offset = self.handle.emu_crash_offset()
        if offset and shutil.which("addr2line"):
            command = ["addr2line", "-e", str(self.path), "-f", "-C", "-i", "-s", hex(offset)]
            lines = subprocess.run(command, capture_output=True, text=True).stdout.split("\n")
            places = [
                f"{function} ({place})" for function, place in zip(lines[::2], lines[1::2], strict=False)
            ]
            message += ": " + " in ".join(places)
        return message


def balanced(text: str, opening: int) -> int:
    """Return the position after the parenthesis that closes the one at ``opening``."""
    depth = 0
    for position in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    raise CompileError("a parenthesis is not closed")


def without_attributes(text: str) -> str:
    """Return a declaration without ``__attribute__((...))`` and ``alignas(...)``."""
    while match := re.search(r"\b(__attribute__|alignas)\s*\(", text):
        text = text[: match.start()] + " " + text[balanced(text, match.end() - 1) :]
    return text


def translate_shared(match: re.Match[str]) -> str:
    """Return C++ for a ``__shared__`` declaration: static, and filled with garbage by the launcher."""
    before, declaration = match.group(1) or "", match.group(2)
    plain = re.sub(r"\s+", " ", without_attributes(declaration)).strip()
    if "extern" in before:
        name, element = re.search(r"(\w+) ?\[ ?\]$", plain), re.match(r"(.*?)(\w+) ?\[ ?\]$", plain)
        if name is None or element is None:
            raise CompileError(f"extern __shared__ needs an array without a size: {plain}")
        kind = element.group(1).strip()
        return f"{kind}* const {name.group(1)} = reinterpret_cast<{kind}*>(::emu::state.dynamic_shared);"
    names = [re.search(r"(\w+)\s*(\[.*)?$", part.strip(), flags=re.DOTALL) for part in split_commas(plain)]
    register = "".join(
        f" {{ static bool known = false; if (!known) {{ known = true;"
        f" ::emu::register_shared((void*)&{one.group(1)}, sizeof({one.group(1)})); }} }}"
        for one in names
        if one
    )
    return f"static {declaration};{register}"


def split_commas(text: str) -> list[str]:
    """Split at the commas outside of any bracket."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += {"(": 1, "[": 1, "<": 1, ")": -1, "]": -1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def translate(preprocessed: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the preprocessed source as C++, and (name, launch bound or "1024") of every kernel."""
    kernels = []
    text, position = preprocessed, 0
    while match := re.compile(r"\b__global__\b").search(text, position):
        end = text.index("{", match.end())
        head, bound = text[match.end() : end], "1024"
        if limits := re.search(r"\b__launch_bounds__\s*\(", head):
            close = balanced(head, limits.end() - 1)
            bound = f"::emu::first_of({head[limits.end() : close - 1]})"
            head = head[: limits.start()] + head[close:]
        name = re.search(r"(\w+)\s*\(", head)
        if name is None:
            raise CompileError(f"no kernel name after __global__: {head[:100]}")
        kernels.append((name.group(1), bound))
        text = text[: match.start()] + head + text[end:]
        position = match.start()
    text = re.sub(r"\b(extern\s+|static\s+)?__shared__\b([^;{}=]*);", translate_shared, text)
    return text, kernels


@functools.cache
def compiler() -> tuple[str, str]:
    """Return the path of the C++ compiler and a text that changes with it and with the CPU."""
    path = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if path is None:
        raise CompileError("no C++ compiler found (g++ or c++)")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    cpu = ""
    if Path("/proc/cpuinfo").exists():
        cpu = next(
            (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), ""
        )
    return path, version + cpu


def run_compiler(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"{' '.join(command)}\n{done.stderr}")


def replace_primitives(code: str, folders: Iterable[Path]) -> str:
    """Replace the text of primitives.cuh, where a source has it, by an include of the emulator's."""
    for folder in folders:
        path = folder / "primitives.cuh"
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            for one in (text, re.sub(r"^\s*#\s*pragma\s+once\s*\n", "", text, flags=re.MULTILINE)):
                code = code.replace(one.strip(), '#include "primitives.cuh"')
    return code


def arch_of(options: Iterable[str]) -> int | None:
    """Return 900 for -arch=sm_90 and the like, None where the options name no architecture."""
    for option in options:
        if match := re.fullmatch(r"--?(?:arch|gpu-architecture)=(?:sm|compute)_(\d+)a?", option):
            return int(match.group(1)) * 10
    return None


def compile_source(
    code: str, options: Iterable[str] = (), *, folders: Iterable[str | Path] = (), arch: int = 900
) -> Library:
    """Compile one translation unit of CUDA C++ and load it.

    Parameters
    ----------
    code : str
        The source, as NVRTC would get it.
    options : iterable of str
        Options of NVRTC: ``-Dname=value``, ``-I folder``; those that mean nothing here are ignored.
    folders : iterable of path
        Where ``#include "x.cuh"`` looks; ``primitives.cuh`` always is the emulator's.
    arch : int
        ``__CUDA_ARCH__`` where the options name none.

    Raises CompileError.
    """
    options = list(options)
    arch = arch_of(options) or arch
    sources = [Path(folder) for folder in folders]
    defines = []
    for option in options:
        if option.startswith("-I") or option.startswith("--include-path="):
            sources.append(Path(option.removeprefix("-I").removeprefix("--include-path=").strip()))
        elif option.startswith(("-D", "-U")):
            defines.append(option)
        elif option.startswith("--define-macro="):
            defines.append("-D" + option.removeprefix("--define-macro="))
        elif not IGNORED_OPTIONS.fullmatch(option):
            raise CompileError(f"NVRTC may not know this option: {option!r}")
    code = replace_primitives(code, sources)
    texts = {name: (HERE / name).read_text(encoding="utf-8") for name in HEADERS}
    for folder in sources:
        for path in sorted(folder.glob("*.cu*")):
            texts.setdefault(path.name, path.read_text(encoding="utf-8"))
    path, identity = compiler()
    sanitize = SANITIZE if os.environ.get("MREACH_EMULATOR_SANITIZE", "1") != "0" else []
    native = ["-march=native"] if "flags" in identity else []
    command = [path, *FLAGS, *native, *sanitize]
    defines += [f"-D__CUDA_ARCH__={arch}", "-D__CUDACC__", "-D__CUDACC_RTC__"]
    key = repr(
        (code, sorted(texts.items()), defines, command, identity, Path(__file__).read_text(encoding="utf-8"))
    )
    name = hashlib.sha256(key.encode()).hexdigest()[:24]
    user = os.getuid() if hasattr(os, "getuid") else 0
    default = Path(tempfile.gettempdir()) / f"mreach-cuda-emulator-{user}"
    cache = Path(os.environ.get("MREACH_EMULATOR_CACHE") or default)
    built = cache / name
    if not (built / "unit.so").is_file():
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        work = Path(tempfile.mkdtemp(dir=cache))
        try:
            build(work, code, texts, command, defines)
            try:
                work.rename(built)
            except OSError:  # another process was faster
                if not (built / "unit.so").is_file():
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    lines = (built / "kernels.txt").read_text(encoding="utf-8").splitlines()
    return Library(built / "unit.so", lines)


def build(
    work: Path, code: str, texts: dict[str, str], command: Sequence[str], defines: Sequence[str]
) -> None:
    """Write, preprocess, translate and compile a source in a folder of its own."""
    for name, text in texts.items():
        (work / name).write_text(text, encoding="utf-8")
    (work / "unit.cu").write_text(code, encoding="utf-8")
    preprocess = [*command, "-E", "-x", "c++", *defines, f"-I{work}", "-include", str(work / "cuda_shim.h")]
    run_compiler([*preprocess, str(work / "unit.cu"), "-o", str(work / "unit.ii")])
    text, kernels = translate((work / "unit.ii").read_text(encoding="utf-8").replace(f"{work}/", ""))
    (work / "kernels.txt").write_text("\n".join(name for name, _ in kernels), encoding="utf-8")
    (work / "translated.ii").write_text(text + trampolines(kernels), encoding="utf-8")
    translated = str(work / "translated.ii")
    run_compiler(
        [*command, "-shared", "-x", "c++-cpp-output", translated, "-o", str(work / "unit.so"), "-ldl"]
    )


def trampolines(kernels: Sequence[tuple[str, str]]) -> str:
    """Return what makes kernels callable: launch, signature and bound of each, and the last message."""
    export = 'extern "C" __attribute__((visibility("default")))'
    parts = [
        '\n# 1 "trampolines"\n',
        f"{export} const char* emu_message() {{ return emu::state.message; }}\n",
        f"{export} unsigned long long emu_crash_offset() {{ return emu::state.crash_offset; }}\n",
    ]
    for name, bound in kernels:
        parts.append(
            f"{export} int emu_{name}(const unsigned* grid, const unsigned* block, size_t n, void** a) {{\n"
            f"  auto body = [](void** values) {{ emu::call(&{name}, values); }};\n"
            f'  return emu::launch("{name}", body, grid, block, n, a);\n'
            "}\n"
            f"{export} const char* emu_signature_{name}() {{ return emu::signature(&{name}); }}\n"
            f"{export} int emu_bound_{name}() {{ return {bound}; }}\n"
        )
    return "".join(parts)

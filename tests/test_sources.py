"""Rules for the sources that no compiler checks.

They read a checkout; a package that is tested without its repository skips them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 400
HEAVY_HEADERS = ("vector", "algorithm", "functional", "memory", "string")
ASSEMBLER_FILE = "primitives.cuh"  # the only device file with inline PTX
STEPS = {
    "<": r"(\+\+|\+=|\*=|<<=)",
    ">": r"(--|-=|/=|>>=)",
    "!=": r"(\+\+|--)",
}  # towards a bound, by compare

pytestmark = pytest.mark.skipif(not (ROOT / "src" / "mreach").is_dir(), reason="no checkout to read")


def files(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())


CPP = files("cpp/**/*.cpp", "cpp/**/*.hpp", "cpp/**/*.h", "cpp/**/*.inc")
DEVICE = files("src/**/*.cu", "src/**/*.cuh", "cpp/**/*.cu", "cpp/**/*.cuh")
MODULES = files("src/**/*.py")
SCRIPTS = files("tests/**/*.py", "benchmarks/**/*.py", "demo/**/*.py")


def code_of(text: str) -> str:
    """Return C++ or CUDA source with comments and string contents blanked, line numbers kept."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''

    def blank(match: re.Match[str]) -> str:
        lines = "\n" * match.group().count("\n")
        return lines if match.group().startswith("/") else f'"{lines}"'

    return re.sub(pattern, blank, text, flags=re.DOTALL)


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def for_loops(code: str) -> list[tuple[int, str, int]]:
    """Return (line, text between the parentheses, position after them) of every ``for``."""
    found = []
    for match in re.finditer(r"\bfor\s*\(", code):
        depth, end = 1, match.end()
        while depth and end < len(code):
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        found.append((line_of(code, match.start()), code[match.end() : end - 1], end))
    return found


def endless_host_loops(text: str) -> list[int]:
    """Return the lines of host loops without a bound: ``for (;;)``, ``while (true)``, ``while (1)``."""
    code = code_of(text)
    endless = r"[^;]*;\s*(true|1)?\s*;[^;]*"
    lines = [line for line, header, _ in for_loops(code) if re.fullmatch(endless, header)]
    lines += [line_of(code, m.start()) for m in re.finditer(r"\bwhile\s*\(\s*(true|1)\s*\)", code)]
    return sorted(lines)


def body_after(code: str, start: int) -> str:
    """Return the statement that begins at `start`: up to its closing brace or its semicolon."""
    depth = 0
    for end in range(start, len(code)):
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(code[end], 0)
        if depth == 0 and code[end] in "};":
            return code[start : end + 1]
    return code[start:]


def is_bounded(header: str, body: str) -> bool:
    """Return whether a ``for`` has a counter that its header compares and moves, and nothing else does.

    The compare may stand in a conjunction (each part can only end the loop earlier), never in a disjunction.
    """
    parts = header.split(";")
    counter = re.match(r"\s*(?:[\w:]+\s+)*(\w+)\s*=[^=]", parts[0]) if len(parts) == 3 else None
    if counter is None or "||" in parts[1]:
        return False
    name = re.escape(counter.group(1))
    if re.search(
        rf"(?<![.>\w]){name}\s*([-+*/%&|^]|<<|>>)?=[^=]|(\+\+|--)\s*{name}\b|\b{name}\s*(\+\+|--)", body
    ):
        return False
    compares = [(m.group(1), False) for m in re.finditer(rf"(?<![.>\w]){name}\s*(<|>|!=)(?![<>])", parts[1])]
    compares += [(m.group(1), True) for m in re.finditer(rf"(<|>|!=)=?\s*{name}\b(?![.\[(])", parts[1])]
    for sign, swapped in compares:
        step = STEPS[{"<": ">", ">": "<"}.get(sign, sign) if swapped else sign]
        if re.search(rf"\b{name}\s*{step}|{step}\s*{name}\b", parts[2]):
            return True
    return False


def unbounded_device_loops(text: str) -> list[int]:
    """Return the lines of device loops without a counter that the header both compares and moves."""
    code = code_of(text)
    lines = [line_of(code, m.start()) for m in re.finditer(r"\b(while|do|goto)\b", code)]
    for match in re.finditer(r"\bfor\b", code):
        if re.match(r"\s*\(", code[match.end() :]) is None:
            lines.append(line_of(code, match.start()))
    for line, header, end in for_loops(code):
        if not is_bounded(header, body_after(code, end)):
            lines.append(line)
    return sorted(lines)


def foreign_includes(text: str, siblings: set[str]) -> list[str]:
    """Return what a device source includes that is no ``.cuh`` file beside it."""
    included = re.findall(r"^[ \t]*#[ \t]*include[ \t]*([^\n]*)", text, flags=re.MULTILINE)
    allowed = {f'"{name}"' for name in siblings if name.endswith(".cuh")}
    return [what for what in included if re.sub(r"\s*(//.*)?$", "", what) not in allowed]


def misnamed_kernels(text: str) -> list[str]:
    """Return the kernels that are not declared ``extern "C" __global__`` with a name in ``_kernel``.

    A name in capitals is a macro's parameter: what it stands for is read by the test that compiles.
    """
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    kernels = [match.start() for match in re.finditer(r"\b__global__\b", code)]
    wrong = []
    for start in kernels:
        head = re.sub(
            r"\b__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", " ", code[start : code.find("{", start)]
        )
        name = head.partition("(")[0].split()[-1]
        if not (name.endswith("_kernel") or name.isupper()) or not re.search(
            r'extern\s+"C"\s*$', code[:start]
        ):
            wrong.append(name)
    return wrong


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", CPP, ids=shown)
def test_host_loops_have_an_end(path: Path) -> None:
    assert endless_host_loops(path.read_text(encoding="utf-8")) == []


def test_device_loops_have_a_counter_bound() -> None:
    found = {shown(path): unbounded_device_loops(path.read_text(encoding="utf-8")) for path in DEVICE}
    assert not any(found.values()), found


def test_device_code_includes_only_its_siblings() -> None:
    found = {
        shown(path): foreign_includes(
            path.read_text(encoding="utf-8"), {other.name for other in path.parent.iterdir()}
        )
        for path in DEVICE
    }
    assert not any(found.values()), found


def test_inline_assembler_stands_in_one_file() -> None:
    with_assembler = [
        path
        for path in DEVICE
        if re.search(r"\b(__asm__|__asm|asm)\b", code_of(path.read_text(encoding="utf-8")))
    ]
    assert [shown(path) for path in with_assembler if path.name != ASSEMBLER_FILE] == []


def test_kernels_are_named_as_kernels() -> None:
    found = {shown(path): misnamed_kernels(path.read_text(encoding="utf-8")) for path in DEVICE}
    assert not any(found.values()), found


@pytest.mark.parametrize("path", [path for path in CPP if path.name.startswith("kernels")], ids=shown)
def test_kernels_use_no_std_templates(path: Path) -> None:
    """The linker may keep a kernel file's AVX copy of a shared inline function: SIGILL elsewhere."""
    text = path.read_text(encoding="utf-8")
    included = re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, flags=re.MULTILINE)
    assert [name for name in included if name in HEAVY_HEADERS] == []


@pytest.mark.parametrize("path", [*CPP, *DEVICE, *MODULES], ids=shown)
def test_modules_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < MAX_LINES


@pytest.mark.parametrize("path", [*CPP, *DEVICE, *MODULES, *SCRIPTS], ids=shown)
def test_nothing_is_left_for_later(path: Path) -> None:
    assert "TO" + "DO" not in path.read_text(encoding="utf-8")


def test_the_loop_readers_see_what_they_should() -> None:
    host = "for (;;) {}\nfor (int i = 0; i < n; ++i) {}\nwhile (true) {}\n// for (;;)\nfor (auto x : xs) {}\n"
    assert endless_host_loops(host) == [1, 3]
    device = (
        "for (int i = 0; i < n; ++i) {}\nwhile (flag) {}\nfor (int i = 0; !done; ++i) {}\n"
        "/* while\n */ for (unsigned long i = f(a, b); i < n; i += step) {}\n"
        "for (int k = 0; k < n;) {}\ngoto end;\n"
        "for (int width = 16; width > 0; width >>= 1) {}\n"
    )
    assert unbounded_device_loops(device) == [2, 3, 6, 7]


@pytest.mark.parametrize(
    "loop",
    [
        "for (int i = first + threadIdx.x; i < n; i += 32) { a[i] = b[i]; }",
        "for (long long i = begin; i <= end && !found; ++i) { found = a[i] == x; }",
        "for (int i = n - 1; i >= 0; --i) s += a[i];",
        "for (int half = 16; half > 0; half /= 2) { for (int j = 0; j < half; ++j) { s += a[half + j]; } }",
        "for (int i = 0; N > i; i++) {}",
        "for (int i = 0, j = 1; i < n; ++i, j *= 2) {}",
        "for (int i = 0; i != 4; ++i) { other.i = 3; }",
    ],
)
def test_loops_with_a_bound_pass(loop: str) -> None:
    assert unbounded_device_loops(loop) == []


@pytest.mark.parametrize(
    "loop",
    [
        "for (;;) {}",
        "for (int i = 0; flag; ++i) {}",
        "for (int i = 0; i < n || flag; ++i) {}",
        "for (int i = 0; i < n; --i) {}",
        "for (int i = n; i > 0; ++i) {}",
        "for (int i = 0; i < n; j += 1) {}",
        "for (int i = 0; i < n; ++i) { if (again) { i = 0; } }",
        "for (int i = 0; i < n; ++i) if (again) --i;",
        "for (int i = 0; i < n; ++i) { i -= 1; }",
        "for (float x : xs) {}",
        "#define FOREVER for",
    ],
)
def test_loops_without_a_bound_are_seen(loop: str) -> None:
    assert unbounded_device_loops(loop) == [1]


def test_the_readers_of_device_code_see_what_they_should() -> None:
    text = '#include "a.cuh"  // why\n#include <cuda_fp16.h>\n # include "b.cuh"\n#include "one.cu"\n'
    assert foreign_includes(text, {"a.cuh", "one.cu"}) == ["<cuda_fp16.h>", '"b.cuh"', '"one.cu"']
    text = """
    extern "C" __global__ void __launch_bounds__(128, 2) good_kernel(const float* x, int n) {}
    extern "C" __global__ __launch_bounds__((THREADS)) void fine_kernel() {}
    extern "C" __global__ void bad(int n) {}
    __global__ void mangled_kernel(int n) {}  // __global__ void not_seen() {}
    #define KERNEL(NAME) extern "C" __global__ void __launch_bounds__(N, 2) NAME(int n) {}
    """
    assert misnamed_kernels(text) == ["bad", "mangled_kernel"]

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


def for_headers(code: str) -> list[tuple[int, str]]:
    """Return (line, text between the parentheses) of every ``for``."""
    found = []
    for match in re.finditer(r"\bfor\s*\(", code):
        depth, end = 1, match.end()
        while depth and end < len(code):
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        found.append((line_of(code, match.start()), code[match.end() : end - 1]))
    return found


def endless_host_loops(text: str) -> list[int]:
    """Return the lines of host loops without a bound: ``for (;;)``, ``while (true)``, ``while (1)``."""
    code = code_of(text)
    endless = r"[^;]*;\s*(true|1)?\s*;[^;]*"
    lines = [line for line, header in for_headers(code) if re.fullmatch(endless, header)]
    lines += [line_of(code, m.start()) for m in re.finditer(r"\bwhile\s*\(\s*(true|1)\s*\)", code)]
    return sorted(lines)


def unbounded_device_loops(text: str) -> list[int]:
    """Return the lines of device loops without a counter that the header both compares and moves."""
    code = code_of(text)
    lines = [line_of(code, m.start()) for m in re.finditer(r"\b(while|do|goto)\b", code)]
    for line, header in for_headers(code):
        parts = header.split(";")
        counter = re.match(r"\s*(?:[\w:]+\s+)*(\w+)\s*=[^=]", parts[0]) if len(parts) == 3 else None
        if counter is None:
            lines.append(line)
            continue
        name = re.escape(counter.group(1))
        compared = re.search(rf"\b{name}\b\s*(<|>|!=)|(<|>|!=)=?\s*\b{name}\b", parts[1])
        moved = re.search(rf"(\+\+|--)\s*{name}\b|\b{name}\b\s*(\+\+|--|[+\-*/]=|<<=|>>=)", parts[2])
        if compared is None or moved is None:
            lines.append(line)
    return sorted(lines)


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", CPP, ids=shown)
def test_host_loops_have_an_end(path: Path) -> None:
    assert endless_host_loops(path.read_text(encoding="utf-8")) == []


def test_device_loops_have_a_counter_bound() -> None:
    found = {shown(path): unbounded_device_loops(path.read_text(encoding="utf-8")) for path in DEVICE}
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

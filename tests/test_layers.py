"""Imports inside the package go downward only."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

# A layer imports layers with a smaller number, and itself where it is a package. Equal numbers: neither way.
LAYERS = {
    "records": 0,
    "peers": 0,
    "callers": 0,
    "files": 0,
    "progress": 0,
    "threads": 0,
    "datasets": 0,
    "_core": 1,
    "float_environment": 2,
    "points": 2,
    "metrics": 2,
    "backends": 3,
    "neighbors": 4,
    "spanning_tree": 4,
    "hierarchy": 4,
    "validation": 4,
    "scores": 4,
    "centers": 4,
    "advice": 5,
    "copies": 5,
    "plot_data": 4,
    "tree_array": 4,
    "plots": 5,
    "cuts": 6,
    "row_order": 6,
    "numbering": 5,
    "core_graph": 5,
    "fit_points": 7,
    "sweep": 8,
    "trees": 7,
    "prediction": 7,
    "validity": 7,
    "estimator": 9,
    "accel": 10,
    "ephys": 10,
    "model_file": 10,
    "report": 10,
    "__init__": 11,
    "cli": 12,
    "__main__": 13,
}
NEVER_EACH_OTHER = ("hierarchy", "backends")


def package_folder() -> Path:
    spec = find_spec("mreach")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


def layer_of(module: str) -> str:
    """Name the layer of a dotted module below mreach ("mreach.backends.cpu" -> "backends")."""
    return [*module.split("."), "__init__"][1]


def imports_of(path: Path, module: str) -> Iterator[str]:
    """Yield the dotted names of what a module imports from mreach, wherever in it the import stands."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            # "from mreach import hierarchy" imports a layer, "from mreach.records import Cut" names one
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "mreach" else [base]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "mreach")


def modules() -> list[tuple[str, Path]]:
    folder = package_folder()
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = list(path.relative_to(folder).with_suffix("").parts)
        if parts[-1] == "__init__" and len(parts) > 1:
            parts.pop()
        found.append((".".join(["mreach", *parts]), path))
    return found


@pytest.mark.parametrize(("module", "path"), [pytest.param(*one, id=one[0]) for one in modules()])
def test_imports_go_downward(module: str, path: Path) -> None:
    here = layer_of(module)
    assert here in LAYERS, f"{module} belongs to no layer: add {here!r} to LAYERS"
    for imported in imports_of(path, module):
        there = layer_of(imported)
        if there == here:
            continue
        assert there in LAYERS, f"{module} imports {imported}, which is no layer of mreach"
        assert {here, there} != set(NEVER_EACH_OTHER), f"{module} imports {imported}"
        assert LAYERS[there] < LAYERS[here], f"{module} imports {imported}, which is not below it"


def test_the_layer_test_sees_imports(tmp_path: Path) -> None:
    source = tmp_path / "one.py"
    source.write_text(
        "import mreach.cli\nfrom mreach import hierarchy\nfrom . import cpu\nfrom ..records import Cut\n"
        "def f():\n    from mreach.plots import draw\n"
    )
    assert sorted(imports_of(source, "mreach.backends.one")) == [
        "mreach.backends",
        "mreach.cli",
        "mreach.hierarchy",
        "mreach.plots",
        "mreach.records",
    ]


def test_importing_the_package_touches_no_gpu_and_no_plotting() -> None:
    unwanted = (
        "matplotlib",
        "networkx",
        "cupy",
        "sklearn.cluster",
        "sklearn.neighbors",
        "numba",
        "tqdm",
        "typer",
    )
    script = f"import sys, mreach; print([name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""The house rules of the design that a machine can check."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import goffish

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", ["algorithms", "partition", "streaming", "services"])
def test_top_level_packages_are_links(package: str) -> None:
    link = ROOT / package
    assert link.is_symlink()
    assert link.readlink() == Path("goffish") / package, "the link must be relative, or it breaks in every clone"
    assert (link / "__init__.py").is_file()


def test_fixed_top_level() -> None:
    assert (ROOT / "pyproject.toml").is_file()
    for folder in ("goffish", "proto", "tests"):
        assert (ROOT / folder).is_dir()
        assert not (ROOT / folder).is_symlink()


def test_private_modules_stay_in_their_package() -> None:
    """Breaks when a module imports one with a leading underscore from a package that it is not in."""
    reached = []
    for path in sorted((ROOT / "goffish").rglob("*.py")):
        importer = path.relative_to(ROOT).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            for parts in ((*node.module.split("."), name.name) for name in node.names):
                private = next((at for at, part in enumerate(parts) if part.startswith("_")), None)
                module = ROOT.joinpath(*parts[: private + 1]) if private is not None else None
                if module is not None and module.with_suffix(".py").is_file() and importer[:private] != parts[:private]:
                    reached.append((importer, parts))
    assert reached == []


def test_functions_take_few_parameters() -> None:
    """Breaks when a kernel has more than 12 parameters, or a public function more than 10.

    Options of a command are parameters of its function, so commands are left out.
    """
    long = []
    for path in sorted((ROOT / "goffish").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            kernel, command = "kernel" in decorators, "command" in decorators or "callback" in decorators
            if not kernel and (command or (node.name.startswith("_") and node.name != "__init__")):
                continue
            names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len(names) - (names[:1] in (["self"], ["cls"]))
            if count > (12 if kernel else 10):
                long.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {count}")
    assert long == []


def test_a_call_crosses_few_files() -> None:
    """Breaks when a reader has to open more than 8 files between `connected_components` and its kernel."""
    code = """
import sys, threading
import goffish as gf

graph, crossed = gf.from_edges([1, 2, 5], [2, 3, 6]), set()
gf.connected_components(graph)  # imports and compiles

def note(frame, event, argument):
    if "goffish" in frame.f_globals.get("__name__", ""):
        crossed.add(frame.f_code.co_filename)

threading.setprofile(note)
sys.setprofile(note)
gf.connected_components(graph)
sys.setprofile(None)
print(*sorted(crossed), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 3 <= len(done.stdout.split()) <= 8, done.stdout


def test_import_is_light() -> None:
    heavy = ("numpy", "numba", "pyarrow", "pyspark", "mpi4py", "grpc", "matplotlib", "scipy", "networkx", "typer")
    code = f"import sys, goffish; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", goffish.__all__)
def test_public_name(name: str) -> None:
    assert getattr(goffish, name) is not None
    assert name in dir(goffish)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'goffish' has no attribute 'nothing'"):
        _ = goffish.nothing


@pytest.mark.parametrize(
    "family", ["betweenness", "closeness", "clustering", "communities", "components", "landscape", "pagerank", "paths"]
)
def test_examples_of_the_functions(family: str) -> None:
    found = doctest.testmod(importlib.import_module(f"goffish.algorithms.{family}.api"))
    assert found.attempted >= 2
    assert found.failed == 0

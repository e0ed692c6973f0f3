"""The house rules of the design that a machine can check."""

from __future__ import annotations

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


def test_tests_need_nothing_but_the_repository() -> None:
    """Breaks when a test is skipped, or fails, where the folder of larger graphs is missing."""
    variable = "GOFFISH" + "_DATA"
    files = [path for folder in ("tests", "experiments/tests") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 200
    assert not [path.name for path in [*files, ROOT / "conftest.py"] if variable in path.read_text(encoding="utf-8")]


def test_a_call_crosses_few_files() -> None:
    """Breaks when a reader has to open more than 8 files from `connected_components` to its kernels, these included.

    A profiler does not see compiled code: kernels that are called from Python note their files, and those of the
    kernels that they call. Initialisers that `dataclass` generates are in no file.
    """
    code = """
import sys, threading
from numba.core.dispatcher import Dispatcher
import goffish as gf

graph, crossed = gf.from_edges([1, 2, 5], [2, 3, 6]), set()
gf.connected_components(graph)  # imports and compiles

def note(frame, event, argument):
    if "goffish" in frame.f_globals.get("__name__", "") and frame.f_code.co_filename != "<string>":
        crossed.add(frame.f_code.co_filename)

def noted(kernel):
    inner = [kernel]
    for one in inner:
        called = map(one.py_func.__globals__.get, one.py_func.__code__.co_names)
        inner += [other for other in called if isinstance(other, Dispatcher) and other not in inner]
    def call(*given):
        crossed.update(one.py_func.__code__.co_filename for one in inner)
        return kernel(*given)
    return call

for module in [module for name, module in sys.modules.items() if name.startswith("goffish.")]:
    for name, value in list(vars(module).items()):
        if isinstance(value, Dispatcher):
            setattr(module, name, noted(value))
threading.setprofile(note)
sys.setprofile(note)
gf.connected_components(graph)
sys.setprofile(None)
print(*sorted(crossed), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    crossed = [Path(name).relative_to(ROOT / "goffish").as_posix() for name in done.stdout.split()]
    assert {"algorithms/components/api.py", "algorithms/components/kernels.py"} <= {*crossed}
    assert len(crossed) <= 8, crossed


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

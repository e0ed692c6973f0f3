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


@pytest.mark.parametrize("room", ["algorithms", "partition", "streaming", "services"])
def test_rooms_are_links_into_the_package(room: str) -> None:
    link = ROOT / room
    assert link.is_symlink()
    assert link.readlink() == Path("goffish") / room, "the link must be relative, or it breaks in every clone"
    assert (link / "__init__.py").is_file()


def test_fixed_top_level() -> None:
    assert (ROOT / "pyproject.toml").is_file()
    for folder in ("goffish", "proto", "tests"):
        assert (ROOT / folder).is_dir()
        assert not (ROOT / folder).is_symlink()


def test_files_stay_short() -> None:
    lines = {p.relative_to(ROOT).as_posix(): len(p.read_text().splitlines()) for p in (ROOT / "goffish").rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > 400 and "_pb2" not in name} == {}


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


@pytest.mark.parametrize(("module", "examples"), [("functions", 10), ("centralities", 10)])
def test_examples_of_the_functions(module: str, examples: int) -> None:
    found = doctest.testmod(importlib.import_module(f"goffish.algorithms.{module}"))
    assert found.attempted >= examples
    assert found.failed == 0

"""Docstrings of the public API: complete sections, and examples that run."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import Validator, validate

MODULES = ("goffish", "goffish.client", "goffish.plot", "goffish.spark", "goffish.streaming")
#: numpydoc's codes for a first line, parameters and results that are missing.
CODES = {"GL08", "SS01", "SS05", "PR01", "RT01", "YD01"}
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def public(kind: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """Names and objects of one kind in the ``__all__`` of every public module."""
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            found = getattr(module, name)
            if isinstance(found, ModuleType):  # goffish.partition is a package that can be called
                found = found.partition_graph
            if kind(found):
                yield f"{module.__name__}.{name}", found


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that a class takes from this project."""
    for name in dir(owner):
        home = next(base for base in owner.__mro__ if name in vars(base))
        if not name.startswith("_") and home.__module__.startswith("goffish.") and "_pb2" not in home.__module__:
            member = inspect.getattr_static(owner, name)
            if inspect.isroutine(member) or isinstance(member, property | cached_property | classmethod):
                yield name, getattr(member, "__func__", member)


FUNCTIONS = dict(public(inspect.isroutine))
CLASSES = dict(public(inspect.isclass))
METHODS = {f"{name}.{member}": found for name, owner in CLASSES.items() for member, found in members(owner)}


def problems(found: Any) -> list[str]:
    """What numpydoc finds missing, and parameters that are documented but not accepted."""
    errors = validate(f"{found.__module__}.{found.__qualname__}")["errors"]
    wrong = [f"{code}: {text}" for code, text in errors if code in CODES]
    documented = set(Validator(get_doc_object(found)).doc_parameters)
    accepted = {
        "*" * (one.kind == one.VAR_POSITIONAL) + "**" * (one.kind == one.VAR_KEYWORD) + one.name
        for one in inspect.signature(found).parameters.values()
    }
    return wrong + [f"PR02: no parameter {name}" for name in sorted(documented - accepted)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_documented(name: str) -> None:
    """Breaks when a function lacks parameters, results, errors or an example in its docstring."""
    found, text = FUNCTIONS[name], inspect.getdoc(FUNCTIONS[name]) or ""
    needed = ["Examples", *(["Raises"] if inspect.signature(found).parameters else [])]
    missing = [section for section in needed if f"{section}\n{'-' * len(section)}\n" not in text]
    assert problems(found) + missing == []


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_documented(name: str) -> None:
    """Breaks when a method or property of a public class lacks a docstring, parameters or results."""
    found = METHODS[name]
    if isinstance(found, property | cached_property):
        assert inspect.getdoc(found), "no docstring"
        return
    assert problems(found) == []


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_documented(name: str) -> None:
    """Breaks when a public class has no docstring, or only that of its base class."""
    assert CLASSES[name].__doc__


@pytest.mark.parametrize("name", ["betweenness", "louvain", "landscape", "closeness", "harmonic", "pagerank"])
def test_all_options_are_documented(name: str) -> None:
    """Breaks when an algorithm has an option that its function does not document."""
    from goffish.algorithms.catalogue import ALGORITHMS

    found = FUNCTIONS[f"goffish.{name}"]
    documented = Validator(get_doc_object(found)).doc_all_parameters
    only_engine = {"supersteps"}  # goffish.run("pagerank", ..., supersteps=30)
    assert set(ALGORITHMS[name].model_fields) - set(documented) - only_engine == set()


@pytest.mark.parametrize("name", {**FUNCTIONS, **CLASSES, **METHODS})
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Breaks when an example does not print what its docstring shows."""
    found = {**FUNCTIONS, **CLASSES, **METHODS}[name]
    # Classes without their methods, which have tests of their own.
    tests = doctest.DocTestParser().get_doctest(inspect.getdoc(found) or "", {}, name, None, 0)
    if not tests.examples:
        return
    if name.startswith(("goffish.from_dataframe", "goffish.spark.", "goffish.streaming.spark_")):
        tests.globs["spark"] = request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(tests, out=report.append)
    assert report == [], "".join(report)

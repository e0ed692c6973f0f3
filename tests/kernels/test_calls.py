"""Kernels without code that makes them callable from Python, and kernels that others call in place of NumPy."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from goffish.kernels.arrays import stable_order
from goffish.kernels.compile import kernel

PACKAGE = Path(__file__).parents[2] / "goffish"


def functions(tree: ast.Module, decorator: str) -> list[ast.FunctionDef]:
    """Return functions by what a decorator contains."""
    found = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    return [one for one in found if any(decorator in ast.unparse(each) for each in one.decorator_list)]


def test_inner_kernels_are_called_by_kernels_only() -> None:
    """Breaks when Python code calls a kernel that would end the process there."""
    sources = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    inner = {path: {one.name for one in functions(ast.parse(source), "inner=True")}
             for path, source in sources.items() if "inner=True" in source}  # fmt: skip
    assert sum(map(len, inner.values())) > 80
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): found for path, found in inner.items()}
    for path, source in sources.items():
        if path not in inner and "kernels" not in source:
            continue
        tree = ast.parse(source)
        forbidden = set(inner.get(path, ()))
        for node in ast.walk(tree):
            for one in node.names if isinstance(node, ast.ImportFrom) else ():
                forbidden |= {one.name} & names.get(str(node.module), set())
                forbidden |= {f"{one.asname or one.name}.{each}" for each in names.get(f"{node.module}.{one.name}", ())}
        of_kernels = {id(node) for one in functions(tree, "kernel") for node in ast.walk(one)}
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in of_kernels]
        assert not forbidden & {ast.unparse(one.func) for one in calls}, path


@kernel
def order_of(keys):  # type: ignore[no-untyped-def]
    return stable_order(keys)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 9, 100, 1023])
def test_stable_order(size: int) -> None:
    keys = np.random.default_rng(size).integers(0, 1 + size // 3, size)
    np.testing.assert_array_equal(order_of(keys), np.argsort(keys, kind="stable"))

"""What the source of the package keeps to: reachable modules, private ones and names in place, few parameters."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from goffish.scheduling.policies.policies import POLICIES

ROOT = Path(__file__).parents[2]
#: Documented packages beside the names of `goffish` itself.
DOCUMENTED = ("goffish.client", "goffish.plot", "goffish.spark")
#: Found by Alembic in its folder.
MIGRATIONS = "goffish.services.store.migrations"


@cache
def sources() -> dict[Path, ast.Module]:
    return {
        path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "goffish").rglob("*.py"))
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
    }


def modules() -> dict[str, ast.Module]:
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): tree for path, tree in sources().items()}


def mentioned(name: str, tree: ast.Module) -> Iterator[str]:
    """Modules that a module imports, for types only or not, or names in a string: itself, or its file beside."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
            if node.value.endswith(".py"):
                yield from (
                    f"{package}.{node.value.removesuffix('.py')}" for package in (name, name.rpartition(".")[0])
                )


def reached(known: dict[str, ast.Module], roots: set[str]) -> set[str]:
    seen: set[str] = set()
    ahead = [*roots]
    while ahead:
        name = ahead.pop()
        if name in known and name not in seen:
            seen.add(name)
            ahead.append(name.rpartition(".")[0])
            ahead.extend(mentioned(name, known[name]))
    return seen


def entry_points() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plugins = [target for group in project["entry-points"].values() for target in group.values()]
    return {target.split(":")[0] for target in [*project["scripts"].values(), *plugins]}


def test_every_module_is_reached() -> None:
    known = modules()
    policies = {f"goffish.scheduling.policies.{policy.place.rpartition('.')[0]}" for policy in POLICIES.values()}
    nested = {f"goffish.scheduling.policies.{p.nested[1].rpartition('.')[0]}" for p in POLICIES.values() if p.nested}
    migrations = {name for name in known if name.startswith(MIGRATIONS)}
    roots = {"goffish", "goffish.__main__", *DOCUMENTED, *entry_points(), *policies, *nested, *migrations}
    assert {name for name in roots if name not in known} == set()
    assert set(known) - reached(known, roots) == set(), "these belong in experiments/, or nowhere"


def test_what_nothing_mentions_is_found() -> None:
    known = {name: ast.parse(code) for name, code in {"a": "import b.c", "b": "", "b.c": "", "d": "import a"}.items()}
    assert reached(known, {"a"}) == {"a", "b", "b.c"}


def private_uses(path: Path, tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Private modules of packages that a module is not in, and private names of modules of other folders.

    A name is imported, or read from a module that is.
    """
    importer = path.with_suffix("").parts
    modules: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.module is None or not node.module.startswith("goffish"):
            continue
        origin = tuple(node.module.split("."))
        for name in node.names:
            parts = (*origin, name.name)
            private = next(
                (at for at, part in enumerate(parts) if is_private(part) and is_module(parts[: at + 1])), None
            )
            if private is not None and importer[:private] != parts[:private]:
                yield parts
            if is_module(parts):
                modules[name.asname or name.name] = parts
            elif is_private(name.name) and folder_of(origin) != importer[:-1]:
                yield parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and is_private(node.attr):
            home = modules.get(node.value.id)
            if home is not None and folder_of(home) != importer[:-1]:
                yield (*home, node.attr)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def is_module(parts: tuple[str, ...]) -> bool:
    place = ROOT.joinpath(*parts)
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def folder_of(module: tuple[str, ...]) -> tuple[str, ...]:
    return module if ROOT.joinpath(*module).is_dir() else module[:-1]


def test_private_modules_and_names_stay_in_their_package() -> None:
    assert [(str(path), use) for path, tree in sources().items() for use in private_uses(path, tree)] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from goffish.gofs.partitioned import _companions", True),
        ("from goffish.gofs import partitioned\npartitioned._companions", True),
        ("from goffish.gofs import partitioned as store\nstore._companions", True),
        ("from goffish.partition import _metis_child", True),
        ("from goffish.gofs.series.slices import _plain", False),
        ("from goffish.gofs.series import slices\nslices._plain", False),
        ("from goffish.version import __version__", False),
        ("from goffish.gofs.partitioned import open_store", False),
    ],
)
def test_private_uses_are_found(code: str, found: bool) -> None:
    assert bool(list(private_uses(Path("goffish/gofs/series/columns.py"), ast.parse(code)))) is found


def test_functions_take_few_parameters() -> None:
    """Breaks when a kernel has more than 12 parameters, or a public function more than 10.

    Options of a command are parameters of its function, so commands are left out.
    """
    long = []
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            kernel, command = "kernel" in decorators, "command" in decorators or "callback" in decorators
            if not kernel and (command or (node.name.startswith("_") and node.name != "__init__")):
                continue
            names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len(names) - (names[:1] in (["self"], ["cls"]))
            if count > (12 if kernel else 10):
                long.append(f"{path}:{node.lineno}: {node.name} has {count}")
    assert long == []

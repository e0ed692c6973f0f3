"""What the source of the package keeps to: reachable modules, private ones in their package, few parameters."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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


def test_private_modules_stay_in_their_package() -> None:
    """Breaks when a module imports one with a leading underscore from a package that it is not in."""
    reached = []
    for path, tree in sources().items():
        importer = path.with_suffix("").parts
        for node in ast.walk(tree):
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

"""Every module of the package serves a command, a service call or a public function."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from goffish.scheduling.policies.policies import POLICIES

ROOT = Path(__file__).parents[2]
#: Documented packages beside the names of `goffish` itself.
DOCUMENTED = ("goffish.client", "goffish.plot", "goffish.spark")
#: Found by Alembic in its folder.
MIGRATIONS = "goffish.services.store.migrations"


def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted((ROOT / "goffish").rglob("*.py")):
        if not path.stem.endswith(("_pb2", "_pb2_grpc")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


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

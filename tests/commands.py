"""Commands as a user meets them: a real process, its two streams, its exit code."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
ENVIRONMENT["PYTHONPATH"] = str(ROOT)


def subcommands(command: Any) -> list[tuple[str, Any]]:
    """Return the commands of a group, by name; none for a command."""
    names = command.list_commands(None) if hasattr(command, "list_commands") else []
    return [(name, command.get_command(None, name)) for name in names]


@dataclass(frozen=True)
class Ended:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1, "more than one document"
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


SERVER = """
import gc, importlib, json, os, sys
for name in (
    "cli.app", "cli.timeseries_events", "cli.timeseries_run", "algorithms.run", "graph.io", "partition.figures",
    "client", "scheduling.control.loop", "scheduling.policies.feasible", "scheduling.policies.plasticc",
    "scheduling.policies.reactive", "scheduling.policies.report", "scheduling.simulate.run",
    "scheduling.simulate.scenario", "scheduling.spot.advice", "scheduling.spot.comparison", "scheduling.spot.fitting",
    "scheduling.spot.job", "temporal.build",
):
    importlib.import_module("goffish." + name)
from goffish.algorithms.run import run
from goffish.graph import from_edges
run("sssp", from_edges([0, 1], [1, 2]), engine="local", parts=2, source=0)  # loads the kernels that all share
import goffish.cli.app, typer
goffish.cli.app.app = typer.main.get_command(goffish.cli.app.app)
def make(group):  # takes longer than most commands
    for name in group.list_commands(None):
        if hasattr(made := group.get_command(None, name), "list_commands"):
            make(made)
make(goffish.cli.app.app)
gc.freeze()
for request in sys.stdin:
    request = json.loads(request)
    pid = os.fork()
    if pid == 0:
        os.chdir(request["cwd"])
        os.environ.update(request["variables"])
        for number, name in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
            os.dup2(os.open(name, os.O_RDWR), number)
        sys.argv = ["goffish", *request["args"]]
        from goffish.cli import main
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Server:
    """Starts commands as forks of a process that has the imports behind it: a process each, at a tenth of the time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER], env=ENVIRONMENT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        atexit.register(self._process.communicate)

    def __call__(self, args: tuple[Any, ...], cwd: Path, variables: Mapping[str, str]) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            request = {"args": [str(a) for a in args], "cwd": str(cwd), "variables": dict(variables)}
            request |= {"out": out.name, "err": err.name}
            print(json.dumps(request), file=self._process.stdin, flush=True)
            code = int(self._process.stdout.readline())
            return Ended(code, out.read().decode(), err.read().decode())


server = functools.cache(Server)


def call(
    *args: Any,
    cwd: Path | None = None,
    code: str | None = None,
    prefix: tuple[str, ...] = (),
    real: bool = False,
    variables: Mapping[str, str] | None = None,
    **env: str,
) -> Ended:
    """Run a command in `cwd`: as ``python -m goffish`` (or ``python -c CODE``) if `real` or specially set up.

    `variables` are in the environment when the command begins, `env` when the interpreter does.
    """
    if not (real or code or prefix or env):
        return server()(args, cwd or Path.cwd(), variables or {})
    start = ["-m", "goffish"] if code is None else ["-c", code]
    command = [*prefix, sys.executable, *start, *map(str, args)]
    done = subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT | env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


def assert_refused(ended: Ended, code: int = 2) -> None:
    assert ended.code == code, (ended.code, ended.err, ended.out[:300])
    assert ended.out == ""
    assert ended.err.startswith("error: "), ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert "Traceback" not in ended.err
    assert "internal error" not in ended.err

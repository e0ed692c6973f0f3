"""The command line as a user meets it: a real process, its two streams, its exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
ENVIRONMENT["PYTHONPATH"] = str(ROOT)


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
import json, os, sys
import goffish.cli.app, goffish.algorithms.run, goffish.graph.io, goffish.partition.figures
from goffish.algorithms.run import run
from goffish.graph import from_edges
run("sssp", from_edges([0, 1], [1, 2]), engine="local", parts=2, source=0)  # loads the kernels that all share
for request in sys.stdin:
    request = json.loads(request)
    pid = os.fork()
    if pid == 0:
        os.chdir(request["cwd"])
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

    def __call__(self, args: tuple[Any, ...], cwd: Path) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            request = {"args": [str(a) for a in args], "cwd": str(cwd), "out": out.name, "err": err.name}
            print(json.dumps(request), file=self._process.stdin, flush=True)
            code = int(self._process.stdout.readline())
            return Ended(code, out.read().decode(), err.read().decode())

    def close(self) -> None:
        self._process.communicate()


_servers: list[Server] = []


@pytest.fixture(scope="session", autouse=True)
def server() -> Iterator[None]:
    # A test runner in the background has SIGINT ignored, and the commands would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    _servers.append(Server())
    yield
    _servers.pop().close()
    signal.signal(signal.SIGINT, before)


def call(
    *args: Any, cwd: Path, code: str | None = None, prefix: tuple[str, ...] = (), real: bool = False, **env: str
) -> Ended:
    """Run a command in `cwd`: as ``python -m goffish`` (or ``python -c CODE``) if `real` or specially set up."""
    if not (real or code or prefix or env):
        return _servers[0](args, cwd)
    start = ["-m", "goffish"] if code is None else ["-c", code]
    command = [*prefix, sys.executable, *start, *map(str, args)]
    done = subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT | env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Place:
    """A folder with the sample files; commands run in it, so that paths stay short."""

    path: Path

    def __call__(self, *args: Any, **more: Any) -> Ended:
        return call(*args, cwd=self.path, **more)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def files(self) -> set[str]:
        return {p.relative_to(self.path).as_posix() for p in self.path.rglob("*")}


def grid_edges(width: int, height: int) -> np.ndarray:
    ids = np.arange(width * height).reshape(height, width)
    src = np.concatenate((ids[:, :-1].ravel(), ids[:-1].ravel()))
    dst = np.concatenate((ids[:, 1:].ravel(), ids[1:].ravel()))
    return np.column_stack((src, dst))


SMALL = "1 2\n2 3\n3 1\n3 4\n7 8\n"


@pytest.fixture(scope="session")
def samples(server: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that no test changes: a small graph, one with text labels and weights, a grid, and stores of them."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / "small.txt").write_text(SMALL)
    (folder / "names.csv").write_text("source,target,weight\na,b,1.5\nb,c,2\nc,d,0.5\n")
    np.savetxt(folder / "grid.txt", grid_edges(30, 20), fmt="%d")
    for name, graph in (("small.gofs", "small.txt"), ("names.gofs", "names.csv"), ("grid.gofs", "grid.txt")):
        made = call("partition", graph, "-o", name, "-k", "2", cwd=folder)
        assert made.code == 0, made.err
    return folder


@pytest.fixture
def place(samples: Path, tmp_path: Path) -> Place:
    """A fresh copy of the samples."""
    shutil.copytree(samples, tmp_path / "here")
    return Place(tmp_path / "here")


@pytest.fixture(scope="module")
def shared(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A copy of the samples for all tests of a module that write nothing."""
    folder = tmp_path_factory.mktemp("shared") / "here"
    shutil.copytree(samples, folder)
    return Place(folder)


@pytest.fixture
def refuses(shared: Place) -> Callable[..., str]:
    """Run a command that must end in one line of complaint and leave no file behind; returns the line."""

    def check(*args: Any, code: int = 2, **more: Any) -> str:
        before = shared.files()
        ended = shared(*args, **more)
        assert_refused(ended, code)
        assert shared.files() == before, "something was left behind"
        return ended.err.strip()

    return check


def assert_refused(ended: Ended, code: int = 2) -> None:
    assert ended.code == code, (ended.code, ended.err, ended.out[:300])
    assert ended.out == ""
    assert ended.err.startswith("error: "), ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert "Traceback" not in ended.err
    assert "fault of GoFFish" not in ended.err

"""Each extra alone, from the wheel in an environment of its own: what it promises runs with nothing else installed."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.package.test_wheel import CLEAN, ROOT, environment, run
from tests.package.test_wheel import wheel as wheel  # noqa: PLC0414 (a fixture)
from tests.services.store.databases import postgres

_SERVED = """
import asyncio, os, signal, sys
from pathlib import Path
from goffish.services.app import Server
from goffish.services.api.settings import Settings

ready = lambda _: os.kill(os.getpid(), signal.SIGTERM)
asyncio.run(Server(Settings(home=Path("home"), listen="unix:socket", grace_s=0, **eval(sys.argv[1]))).run(ready))
print("served")
"""
#: A command of each extra, and what it prints.
COMMANDS = {
    "plot": (["goffish", "plot", "quotient", "store", "-o", "picture.png"], ""),
    "mpi": (["mpirun", "-n", "2", "goffish", "run", "components", "store", "--engine", "mpi"], "components"),
    "spark": (["goffish", "run", "components", "store", "--engine", "spark"], "components"),
    "service": (["python", "-c", _SERVED, "{}"], "served"),
    "service,postgres": (["python", "-c", _SERVED, "{{'database': '{url}'}}"], "served"),
    "service,tracing": (["python", "-c", _SERVED, "{'traces': 'http://127.0.0.1:9'}"], "served"),
}


def test_every_extra_has_a_command() -> None:
    """Breaks when an extra is added that nothing tries alone, or Spark's lacks what PySpark wants on executors."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {part for name in COMMANDS for part in name.split(",")} == set(extras) - {"dev", "bench", "docs"}
    # PySpark itself does not depend on them (`pip install pyspark[sql]` does).
    assert any(re.match(r"pandas>=2\.2", needed) for needed in extras["spark"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("extra", COMMANDS)
def test_an_extra_alone(extra: str, wheel: Path, tmp_path: Path) -> None:
    """Breaks when an extra lacks a package that development environments have by chance."""
    found = environment(tmp_path / "env", f"{wheel}[{extra}]")
    (tmp_path / "edges.txt").write_text("1 2\n2 3\n7 8\n")
    run(found / "goffish", "partition", "edges.txt", "-o", "store", "-k", "2", cwd=tmp_path)
    command, told = COMMANDS[extra]

    def call(*words: str) -> None:
        environment = CLEAN | {"PATH": f"{found}{os.pathsep}{os.environ['PATH']}"}
        ended = subprocess.run(
            [str(found / words[0]), *words[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False, timeout=280,
        )  # fmt: skip
        assert ended.returncode == 0 and told in ended.stdout, ended.stdout[-2000:] + ended.stderr[-3000:]

    if "postgres" in extra:
        with postgres() as url:
            call(*command[:-1], command[-1].format(url=url))
    else:
        call(*command)

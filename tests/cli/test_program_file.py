"""`goffish run FILE.py:PROGRAM`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Place
from tests.commands import assert_refused

PROGRAM = '''
from typing import Literal
import numpy as np
import goffish as gf

class Largest(gf.SubgraphProgram):
    """Largest label of each component, plus a number.

    More.
    """

    message = {"value": np.int64}
    state = {"value": gf.per_subgraph(np.int64)}

    def __init__(self, source: int | str = 1, add: int = 0, sign: Literal["plus", "minus"] = "plus",
                 factor: float | None = None, quiet: bool = False, extra=None):
        assert source == 1 and isinstance(add, int) and extra is None
        self.add = (add if sign == "plus" else -add) * (factor or 1) + (1000 if quiet else 0)

    def init(self, sg):
        sg["value"] = sg.labels().to_numpy().max()

    def compute(self, sg, step):
        best = step.messages["value"].max() if step.messages.size else -1
        if step.number == 1 or best > sg["value"][0]:
            sg["value"] = max(best, sg["value"][0])
            step.send_to_neighbors(value=sg["value"][0])
        else:
            step.vote_to_halt()

    def result(self, sg):
        return {"value": np.repeat(sg["value"] + int(self.add), sg.num_vertices)}
'''
OPTIONS = ("--add", "5", "--sign", "minus", "--factor", "2", "--quiet")


def rows(ended: object) -> dict[int, int]:
    return {row["vertex"]: row["value"] for row in ended.json["rows"]}  # type: ignore[attr-defined]


def test_options_are_those_of_the_constructor(place: Place) -> None:
    (place / "my.py").write_text(PROGRAM)
    expected = {1: 4, 2: 4, 3: 4, 4: 4, 7: 8, 8: 8}
    assert rows(place("run", "my.py:Largest", "small.txt", "--json", real=True)) == expected
    found = place("run", "my.py", "small.gofs", "--source", "1", *OPTIONS, "--json")
    assert rows(found) == {vertex: value + 990 for vertex, value in expected.items()}
    shown = place("run", "my.py", "--help").out
    assert "Largest label of each component, plus a number." in shown and "More." not in shown
    assert "--sign" in shown and "--extra" not in shown


@pytest.mark.parametrize(("name", "content", "message"), [
    ("no.py:A", None, "no.py: no such file"), ("a.py", "", "it has none"),
    ("a.py:B", PROGRAM, "a.py: no program 'B'; it has Largest"),
    ("a.py", PROGRAM + "class Other(Largest):\n    pass\n", "it has Largest, Other; name one, as in a.py:Largest"),
    ("a.py", "x = (\n", "a.py:1: '(' was never closed"), ("a.py", "\n1 / 0\n", "a.py:2: ZeroDivisionError"),
    ("a.py", "exit(3)\n", "a.py:1: ends the program"),
    ("a.py", PROGRAM.replace("source: int | str = 1", "source: list"), "annotate it with int, float, bool, str"),
    ("a.py", PROGRAM.replace("add: int", "add: 'Gone'"), "the annotations of Largest.__init__: name 'Gone'"),
])  # fmt: skip
def test_refused(place: Place, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (place / "a.py").write_text(content)
    ended = place("run", name, "small.txt")
    assert_refused(ended)
    assert message in ended.err


def test_wrong_values(place: Place) -> None:
    (place / "my.py").write_text(PROGRAM)
    raised = place("run", "my.py", "small.txt", "--source", "2")
    assert_refused(raised)
    assert "my.py: AssertionError" in raised.err
    for wrong in (("--add", "x"), ("--sign", "up"), ("--nothing", "1"), ("--source", "99a")):
        assert_refused(place("run", "my.py", "small.txt", *wrong))


@pytest.mark.slow
def test_every_engine(place: Place) -> None:
    """Breaks when ranks or executors cannot load the program."""
    pytest.importorskip("pyspark")
    (place / "my.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "goffish", "run", "my.py", "small.txt", *OPTIONS, "--parts", "2"]
    ranks = str(Path(sys.executable).with_name("mpiexec"))
    for before, engine in (([], "local"), ([ranks, "-n", "2"], "mpi"), ([], "spark")):
        output = f"{engine}.csv"
        done = subprocess.run(
            [*before, *command, "--engine", engine, "-o", output], cwd=place.path, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
    texts = {engine: sorted((place / f"{engine}.csv").read_text().split()) for engine in ("local", "mpi", "spark")}
    assert texts["local"] == texts["mpi"] == texts["spark"] and "1,994" in texts["local"]

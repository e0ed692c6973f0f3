"""`goffish compile`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Place
from tests.commands import assert_refused


def test_algorithms_are_named(place: Place) -> None:
    ended = place("compile", "bfs", "topological-order", "--json")
    assert [row["algorithm"] for row in ended.json["rows"]] == ["(reading files)", "bfs", "topological-order"]
    assert all(row["seconds"] >= 0 for row in ended.json["rows"])
    wrong = place("compile", "bfs", "nothing")
    assert_refused(wrong)
    assert wrong.err.startswith("error: unknown algorithm 'nothing': choose one of components")


@pytest.mark.slow
def test_first_runs_compile_nothing(place: Place, tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}

    def call(*arguments: str) -> set[str]:
        command = [sys.executable, "-m", "goffish", *arguments]
        done = subprocess.run(command, cwd=place.path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return {path.name for path in (tmp_path / "kernels").rglob("*.nbc")}

    names = ("components", "pagerank", "sssp", "louvain")
    kept = call("compile", *names)
    assert len(kept) > 10
    for name in names:
        source = ("--source", "1") if name == "sssp" else ()
        for given in ((), ("--directed",), ("--parts", "2", "--engine", "local")):
            assert call("run", name, "small.txt", *source, *given) == kept, (name, given)
    assert call("run", "sssp", "names.csv", "--source", "a") == kept
    assert call("run", "triangles", "small.txt") > kept

"""`goffish plot`: pictures from files, and one clear line for everything that cannot be drawn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest
import typer
from typer.testing import CliRunner

import goffish as gf
from goffish.cli.plot_commands import add_commands
from goffish.errors import InputError
from tests.cases import grid
from tests.plot.plot_cases import fake_run


@pytest.fixture
def plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run ``plot …`` in an empty folder; errors are raised."""
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    add_commands(app)

    @app.callback()
    def _main() -> None: ...

    def call(*words: str) -> str:
        return CliRunner().invoke(app, ["plot", *words], catch_exceptions=False, standalone_mode=False)

    def run(*words: str) -> str:
        result = call(*words)
        if result.exception is not None:
            raise result.exception
        return result.output

    return run


def test_pictures_of_a_store(plot, tmp_path: Path) -> None:
    gf.partition(grid(8, 8), 4).save(tmp_path / "store")
    assert "plot written to q.png" in plot("quotient", "store", "-o", "q.png", "--largest", "10")
    assert (tmp_path / "q.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", ["supersteps", "gantt"])
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.slow
def test_pictures_of_a_run(plot, tmp_path: Path, command: str, wrapped: bool) -> None:
    counters = fake_run(4, 3).to_dict()
    Path("run.json").write_text(json.dumps({"algorithm": "x", "stats": counters} if wrapped else counters))
    plot(command, "run.json", "-o", "p.svg")
    assert "<svg" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json", "arrow"])
def test_pictures_of_a_result(plot, tmp_path: Path, suffix: str) -> None:
    g = gf.from_networkx(nx.karate_club_graph())
    gf.write(g, tmp_path / "g.csv")
    gf.bfs(g, source=0).write(tmp_path / f"r.{suffix}")
    plot("graph", "g.csv", f"r.{suffix}", "-o", "p.png", "--column", "distance", "--no-labels")
    assert (tmp_path / "p.png").exists()


def test_a_result_on_a_store(plot, tmp_path: Path) -> None:
    store = gf.partition(grid(6, 5), 3).save(tmp_path / "store")
    store.run("components").write(tmp_path / "r.parquet")
    plot("graph", "store", "r.parquet", "-o", "p.pdf")
    assert (tmp_path / "p.pdf").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{nonsense", r"run\.json:1: not JSON"),
        ('{"rows": []}', "has no run counters"),
        ('{"stats": null}', "has no run counters"),
        ('{"stats": {"program": "x"}}', r"run\.json: run counters: .*missing"),
        ("[1]", r"run\.json: run counters: expected an object"),
    ],
)
def test_json_that_holds_no_run(plot, tmp_path: Path, text: str, told: str) -> None:
    Path("run.json").write_text(text)
    for command in ("supersteps", "gantt"):
        with pytest.raises(InputError, match=told):
            plot(command, "run.json", "-o", "p.png")
    assert not (tmp_path / "p.png").exists()


def test_bad_input_is_one_clear_line(plot, tmp_path: Path) -> None:
    gf.write(grid(60, 60), tmp_path / "large.csv")
    gf.write(grid(6, 6), tmp_path / "small.csv")
    gf.pagerank(grid(6, 6)).write(tmp_path / "r.csv")
    for words, told in [
        (("quotient", "small.csv", "-o", "p.png"), "is not a store"),
        (("quotient", "nowhere", "-o", "p.png"), "is not a store"),
        (("supersteps", "nowhere.json", "-o", "p.png"), "cannot be read"),
        (("supersteps", "r.csv", "-o", "p.jpg"), "suffix must be one of"),
        (("gantt", "r.csv", "-o", "none/p.png"), "does not exist"),
        (("graph", "small.csv", "r.csv", "-o", "p.png", "--column", "rnk"), "unknown column 'rnk'; available: rank"),
        (("graph", "large.csv", "r.csv", "-o", "p.png"), "3,600 vertices"),
        (("graph", "small.csv", "nowhere.csv", "-o", "p.png"), "no such file"),
    ]:
        with pytest.raises(InputError, match=told) as caught:
            plot(*words)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "p.png").exists()


def test_help_needs_no_heavy_library() -> None:
    code = (
        "import sys, typer; from goffish.cli.plot_commands import add_commands; add_commands(typer.Typer());"
        "print([m for m in ('numpy', 'matplotlib', 'pyarrow', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""The notebooks of the documentation, and what GoFFish displays in notebooks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests.package.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def executed(notebook: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run all cells in a folder; gives the outputs of each."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def cells(*sources: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a notebook fails, or displays other kinds of output than those that are rendered on the site."""
    shutil.copytree(ROOT / "data", tmp_path / "data")
    notebook = nbformat.read(path, as_version=4)

    def kinds(outputs: list[Any]) -> list[list[str]]:
        found = [sorted(out.get("data", {"text": 0})) for out in outputs if out.get("data", {}).get("text/html") != ""]
        # What is printed arrives in one piece or in several.
        return [kind for kind, before in zip(found, [[], *found], strict=False) if kind != ["text"] or kind != before]

    before = [kinds(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    assert [kinds(outputs) for outputs in executed(notebook, tmp_path, monkeypatch)] == before


@pytest.mark.slow
def test_tables_and_figures_are_displayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, result, figure = executed(
        cells(
            "import goffish as gf\ng = gf.from_edges(['<i>', 'b', 'c'], ['b', 'c', 'd'])\ng",
            "gf.connected_components(g)",
            "from goffish import plot\nplot.graph(g, gf.bfs(g, 'b'))",
        ),
        tmp_path, monkeypatch,
    )  # fmt: skip
    assert "vertices" in graph[0].data["text/html"]
    assert "&lt;i&gt;" in result[0].data["text/html"]
    assert "<i>" not in result[0].data["text/html"]
    assert "image/png" in figure[0].data


def test_long_runs_show_a_bar_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from goffish import notebook

    shown: list[tuple[str, bool]] = []

    class Handle:
        def update(self, line: Any) -> None:
            shown.append((line.data, True))

    def display(line: Any, display_id: bool) -> Handle:
        shown.append((line.data, False))
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(notebook, "_QUIET_S", 0.0)
    monkeypatch.setattr(notebook, "_EVERY_S", 0.0)
    with notebook.following("pagerank") as (superstep, note):
        superstep(3, 10, 1_000, 0.25)
        note("62.5 % of the searches")
    first, second, last = (line for line, _ in shown)
    assert "value='0.2500'" in first and "superstep 3, 10 subgraphs, 1,000 messages" in first
    assert "value='0.6250'" in second
    assert last == ""
    shown.clear()
    monkeypatch.setattr(notebook, "_QUIET_S", 60.0)
    with notebook.following("pagerank") as (superstep, _):
        superstep(1, 1, 1, None)
    assert shown == []

"""No command and no function writes to a local folder that is named like the beginning of a URI."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

import goffish as gf
from goffish.cli.app import app
from goffish.errors import GoffishError, InputError
from goffish.partial import is_uri, local_path
from tests.cli.conftest import Place
from tests.commands import assert_refused

#: Options that name something to write, in any command.
TARGETS = {
    "output", "plot", "plot_job", "html", "stats_file", "hierarchy", "communities", "checkpoint_dir", "home", "file",
}  # fmt: skip
#: What required parameters are given where a plain text would be refused first.
SUITABLE = {
    "since": "2015-01-01",
    "until": "2015-01-02",
    "source": "1",
    "sources": "1",
    "meme": "a",
    "store": "small.gofs",
}
#: These take URIs: one of an unknown scheme is refused.
URIS = {"import", "export", "partition", "timeseries build"}


def targets() -> Iterator[Any]:
    seen = set()

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[Any]:
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, (*words, name))
        made = words[:-1] if "run" in words[:-1] else words  # the commands of all algorithms are made by one function
        for option in command.params:
            if option.name in TARGETS and (made, option.name) not in seen and words != ("ingest",):
                seen.add((made, option.name))
                yield pytest.param(words, command, option, id=f"{' '.join(words)} {option.opts[0]}")

    yield from walk(get_command(app), ())


def given(param: Any) -> list[str]:
    value = SUITABLE.get(param.name, "1" if param.type_descriptor.annotation in (int, float) else "small.txt")
    return [param.opts[0], value] if param.opts[0].startswith("-") else [value]


@pytest.mark.parametrize(("words", "command", "target"), list(targets()))
def test_a_command_refuses_a_uri(shared: Place, words: tuple[str, ...], command: Any, target: Any) -> None:
    scheme = "nosuch" if " ".join(words) in URIS else "s3"
    suffix = {"stats_file": ".json", "html": ".html", "plot": ".png", "plot_job": ".png"}.get(target.name, ".csv")
    required = [given(param) for param in command.params if param.required and param is not target]
    before = shared.files()
    ended = shared(*words, *(text for one in required for text in one), target.opts[0], f"{scheme}://bucket/x{suffix}")
    assert_refused(ended)
    assert f"{scheme}://bucket/x" in ended.err
    assert shared.files() == before


def test_functions_refuse_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = gf.from_edges([0, 1, 2], [1, 2, 0])
    cut = gf.partition(graph, 2, method="range")
    result = gf.connected_components(graph)
    folder: Any
    for folder in ("s3://bucket/x", Path("s3://bucket/x")):
        for engine in ("auto", "local"):
            with pytest.raises(InputError, match="bucket/x"):
                cut.run("pagerank", engine=engine, checkpoint_dir=folder)
        with pytest.raises(InputError, match="bucket/x"):
            gf.betweenness(graph, checkpoint_dir=folder)
        for suffix in (".parquet", ".csv"):
            with pytest.raises(InputError, match="bucket/x"):
                result.write(type(folder)(f"{folder}{suffix}"))
    with pytest.raises(InputError, match="a path object cannot hold a URI"):
        cut.save(Path("s3://bucket/x"))
    with pytest.raises(InputError, match="a path object cannot hold a URI"):
        gf.write(graph, Path("s3://bucket/x.csv"))
    with pytest.raises(GoffishError, match="nosuch"):
        cut.save("nosuch://bucket/x")
    assert not list(tmp_path.iterdir())


def test_file_uris_and_colons_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = gf.from_edges([0, 1, 2], [1, 2, 0])
    result = gf.connected_components(graph)
    assert result.write(f"file://{tmp_path}/a.csv") == tmp_path / "a.csv"
    result.write("12:30.csv")
    gf.partition(graph, 2, method="range").save(f"file://{tmp_path}/store")
    assert {p.name for p in tmp_path.iterdir()} == {"a.csv", "12:30.csv", "store"}
    assert np.array_equal(gf.open(tmp_path / "store").to_graph().edge_columns()[0], graph.edge_columns()[0])
    assert local_path("run:1/a") == Path("run:1/a")
    assert is_uri("simplecache::s3://bucket/x")
    with pytest.raises(InputError, match=r"file:///folder/name"):
        local_path("file://a.csv")

"""Picture files and result tables: right format, same bytes, whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import sys
from pathlib import Path

import matplotlib
import pyarrow as pa
import pytest

from goffish.errors import FormatError, InputError
from goffish.gopher.result import read_table, write_table
from goffish.plot import gantt, quotient_graph, save, supersteps
from tests.cases import grid, grid_blocks
from tests.plot.plot_cases import fake_run

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


@pytest.mark.parametrize("suffix", [*MAGIC, ".PNG"])
@pytest.mark.slow
def test_files_have_the_format_of_their_suffix(tmp_path: Path, suffix: str) -> None:
    path = save(supersteps(fake_run(5, 2)), tmp_path / f"a{suffix}")
    assert path.read_bytes().startswith(MAGIC[suffix.lower()])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [pytest.param(s, marks=() if s == ".svg" else pytest.mark.slow) for s in MAGIC])
def test_equal_figures_give_equal_bytes(tmp_path: Path, suffix: str) -> None:
    from goffish.gofs import build_layout

    for draw in (
        lambda: gantt(fake_run(5, 3)),
        lambda: quotient_graph(build_layout(grid(12, 9), grid_blocks(12, 9), 12)),
    ):
        first = save(draw(), tmp_path / f"a{suffix}").read_bytes()
        assert save(draw(), tmp_path / f"b{suffix}").read_bytes() == first
        assert b"dc:date" not in first


def test_the_users_settings_neither_matter_nor_change(tmp_path: Path) -> None:
    plain = save(gantt(fake_run(5, 3)), tmp_path / "a.svg").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "axes.facecolor": "black"}):
        assert save(gantt(fake_run(5, 3)), tmp_path / "b.svg").read_bytes() == plain
        assert matplotlib.rcParams["font.size"] == 30
    assert "matplotlib.pyplot" not in sys.modules or not matplotlib.pyplot.get_fignums()


@pytest.mark.parametrize(
    ("name", "told"),
    [("a.jpg", "one of .png, .svg, .pdf"), ("a", "one of"), ("none/a.png", "does not exist")],
)
def test_unusable_names_are_refused(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        save(supersteps(fake_run(2, 2)), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    figure = supersteps(fake_run(2, 2))

    def full(path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    figure.savefig = full  # type: ignore[method-assign, assignment]
    (tmp_path / "a.png").write_bytes(b"before")
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        save(figure, tmp_path / "a.png")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a.png", b"before")]
    (tmp_path / "b.png").mkdir()
    with pytest.raises(InputError, match="is a directory"):
        save(figure, tmp_path / "b.png")


def test_missing_matplotlib_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'goffish\[plot\]'"):
        supersteps(fake_run(2, 2))
    with pytest.raises(InputError, match="pip install"):
        save(None, tmp_path / "a.png")


TABLE = pa.table({"vertex": [3, 1, 2], "rank": [0.5, 0.25, 1e-9], "parent": pa.array([1, None, 3], pa.int64())})
NAMED = pa.table({"vertex": ["007", 'say "hi", all', "2020-01-01"], "community": ["1", "b", "c"]})


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json", ".jsonl", ".arrow", ".feather"])
@pytest.mark.parametrize("table", [TABLE, NAMED], ids=["numbers", "names"])
def test_tables_come_back_as_they_were_written(tmp_path: Path, suffix: str, table: pa.Table) -> None:
    again = read_table(write_table(table, tmp_path / f"t{suffix}"))
    assert again.to_pydict() == table.to_pydict()
    assert again.schema.field("vertex").type == table.schema.field("vertex").type


def test_infinities_are_null_in_json(tmp_path: Path) -> None:
    table = pa.table({"vertex": [0, 1, 2], "distance": [math.inf, 1.0, math.nan]})
    path = write_table(table, tmp_path / "t.json")
    assert [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert read_table(path).to_pydict() == {"vertex": [0, 1, 2], "distance": [None, 1.0, None]}


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json", ".arrow"])
def test_damaged_tables_are_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(b'a,b\n"1,2\n3\xff\n')
    with pytest.raises(InputError, match=f"t{suffix}"):
        read_table(path)


def test_missing_tables_lines_and_suffixes_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(InputError, match="suffix must be one of"):
        read_table(tmp_path / "t.xls")
    path = tmp_path / "t.json"
    path.write_text('{"vertex": 1}\n[2]\n')
    with pytest.raises(FormatError, match=r"t\.json:2: expected one JSON object"):
        read_table(path)

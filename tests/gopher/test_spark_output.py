"""`goffish run … --engine spark -o FOLDER/` and `gf.run(…, engine="spark", output=FOLDER)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.cli.app import app
from goffish.errors import InputError
from goffish.gopher.result import read_table
from tests.cases import make_case

pytest.importorskip("pyspark")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parts"), [("components", 2), ("louvain", 1)])
def test_a_folder_holds_the_table(spark: Any, tmp_path: Path, name: str, parts: int) -> None:
    """Each task writes its rows of the table of a program; what the driver makes of a program's columns is one part."""
    store = make_case("preferential", 20, 3, 7, grown=False, weights="real").layout()
    wanted = gf.run(name, store, engine="local").table
    result = gf.run(name, store, engine="spark", spark=spark, output=tmp_path / "out")
    assert (result.algorithm, result.table.num_rows) == (name, 0)
    assert (result.summary["rows"], result.summary["parts"]) == (20, parts)
    assert read_table(tmp_path / "out").sort_by("vertex").equals(wanted)
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == parts


@pytest.mark.slow
def test_the_command_line(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_case("preferential", 20, 3, 7, grown=False, weights="real").layout().save(tmp_path / "store")
    command = ["run", "components", str(tmp_path / "store"), "--engine", "spark", "-o"]
    app([*command, f"{tmp_path}/out/"], standalone_mode=False)
    assert "20 rows written to" in capsys.readouterr().out
    assert read_table(tmp_path / "out").sort_by("vertex").equals(gf.run("components", store, engine="local").table)
    with pytest.raises(InputError, match="is neither empty nor a result folder"):
        gf.run("components", store, engine="spark", spark=spark, output=tmp_path)

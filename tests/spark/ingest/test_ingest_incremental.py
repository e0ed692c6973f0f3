"""Incremental loads: the store of one load of all rows, exact accounting, and what cannot be added to a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import goffish as gf
from goffish.errors import InputError, JobError
from goffish.gofs.series import open_series
from goffish.spark.ingest import ingest
from goffish.spark.ingest import run as run_module
from tests.spark.ingest.rows import files_of, quarantined, stamped_rows, stamped_spec

pytest.importorskip("pyspark")


def written(path: Path, rows: list[tuple[int, int, float, int]], more: str = "") -> None:
    path.write_text("".join(f"{u} {v} {w!r} {t}\n" for u, v, w, t in rows) + more)


def spec_of(pattern: Path, rule: str, **more: Any) -> dict[str, Any]:
    return {
        "inputs": [{"path": str(pattern), "options": {"sep": " "}}], "source": 0, "target": 1, "weight": 2,
        "attributes": {"stamp": {"type": "integer", "column": 3}},
        "clean": {"duplicates": rule}, "partition": {"parts": 3}, **more,
    }  # fmt: skip


def bare(folder: Path) -> dict[str, bytes]:
    """Files of a store apart from the record of what was loaded."""
    found = files_of(folder)
    body = json.loads(found.pop("manifest.json"))
    body.pop("loads", None), body.pop("checksum")
    return found | {"manifest.json": json.dumps(body).encode()}


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["min", "sum", "first", "keep", "drop"])
def test_files_that_are_new(spark: Any, tmp_path: Path, rule: str) -> None:
    """Breaks when an incremental load makes another graph than one load, or rows are lost, or read or counted twice."""
    rows = stamped_rows(3, 240)
    (tmp_path / "in").mkdir()
    (tmp_path / "nodes").mkdir()
    nodes = {"inputs": [{"path": str(tmp_path / "nodes"), "options": {"header": True}}], "vertex": "id",
             "attributes": {"kind": "text"}}  # fmt: skip
    (tmp_path / "nodes" / "a.csv").write_text("id,kind\n0,old\n1,old\n70,alone\n")
    spec = spec_of(tmp_path / "in" / "*.txt", rule, vertices=nodes)
    written(tmp_path / "in" / "a.txt", rows[:150], "1 x 2 3\n")
    first = ingest(spec, tmp_path / "s", spark, incremental=True)
    again = ingest(spec, tmp_path / "s", spark, incremental=True)
    assert (again.rows, again.edges, again.fingerprint) == (0, first.edges, first.fingerprint)
    written(tmp_path / "in" / "b.txt", rows[150:], "y 1 2 3\n")
    (tmp_path / "nodes" / "b.csv").write_text("id,kind\n1,new\n2,new\n0,old\n71,alone\n")
    second = ingest(spec, tmp_path / "s", spark, incremental=True)
    whole = ingest(spec, tmp_path / "t", spark)
    assert second.fingerprint == whole.fingerprint and bare(tmp_path / "s") == bare(tmp_path / "t")
    assert first.rows + second.rows == whole.rows
    for report in (first, second):
        assert report.rows == report.kept + report.merged + report.quarantined
    assert first.kept + second.kept == whole.kept
    assert first.quarantined + second.quarantined == whole.quarantined
    assert second.vertex_rows == {
        "rows": 4, "kept": 2, "merged": 1, "quarantined": 1, "rules": {"duplicate": 1}
    }  # fmt: skip
    names = ["rule", "row"]
    assert sorted(quarantined(tmp_path / "s.quarantine")[names].values.tolist()) == sorted(
        quarantined(tmp_path / "t.quarantine")[names].values.tolist()
    )


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["min", "sum", "first"])
def test_instances_that_are_new(spark: Any, tmp_path: Path, rule: str) -> None:
    """Breaks when rows for instances that the store has, or for later ones, do not make the series of one load."""
    rows = stamped_rows(9, 300)
    (tmp_path / "in").mkdir()
    spec = stamped_spec(tmp_path / "in" / "*.txt")
    spec["clean"]["duplicates"] = rule
    written(tmp_path / "in" / "a.txt", rows[:100])
    ingest(spec, tmp_path / "s", spark, incremental=True)
    written(tmp_path / "in" / "b.txt", rows[100:])
    second = ingest(spec, tmp_path / "s", spark, incremental=True)
    whole = ingest(spec, tmp_path / "t", spark)
    assert second.fingerprint == whole.fingerprint and len(open_series(tmp_path / "s")) == 10
    assert second.rows == 200 == second.kept + second.merged + second.quarantined


@pytest.mark.slow
def test_what_cannot_be_added(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = stamped_rows(3, 60)
    (tmp_path / "in").mkdir()
    spec = spec_of(tmp_path / "in" / "*.txt", "min")
    written(tmp_path / "in" / "a.txt", rows[:30])
    ingest(spec, tmp_path / "plain", spark)
    with pytest.raises(InputError, match=r"plain: holds no record of what was loaded \(not written with --incremental"):
        ingest(spec, tmp_path / "plain", spark, incremental=True)
    ingest(spec, tmp_path / "s", spark, incremental=True)
    before = files_of(tmp_path / "s")
    with pytest.raises(InputError, match="was loaded by another specification"):
        ingest({**spec, "directed": True}, tmp_path / "s", spark, incremental=True)
    spark.createDataFrame([(1, 2)], "a long, b long").createOrReplaceTempView("rows_without_version")
    with pytest.raises(InputError, match=r"inputs\[0\]: a table has no versions to compare"):
        ingest({**spec, "inputs": [{"table": "rows_without_version"}]}, tmp_path / "s", spark, incremental=True)
    written(tmp_path / "in" / "a.txt", rows[:40])
    with pytest.raises(InputError, match=r"a\.txt has changed since it was loaded; load everything again"):
        ingest(spec, tmp_path / "s", spark, incremental=True)
    written(tmp_path / "in" / "a.txt", rows[:30])
    assert files_of(tmp_path / "s") == before and not (tmp_path / "s.work").exists()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["number_vertices", "place_vertices", "component_figures"])
def test_a_load_that_was_killed(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Breaks when a load that ends in any step changes the store, or the next one adds its rows twice."""
    rows = stamped_rows(3, 200)
    (tmp_path / "in").mkdir()
    spec = spec_of(tmp_path / "in" / "*.txt", "sum")
    written(tmp_path / "in" / "a.txt", rows[:100], "1 x 2 3\n")
    first = ingest(spec, tmp_path / "s", spark, incremental=True)
    written(tmp_path / "in" / "b.txt", rows[100:], "y 1 2 3\n")

    def fail(*_: Any) -> None:
        raise JobError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(run_module, step, fail)
        with pytest.raises(JobError, match="killed"):
            ingest(spec, tmp_path / "s", spark, incremental=True)
    assert gf.open(tmp_path / "s").fingerprint() == first.fingerprint
    second = ingest(spec, tmp_path / "s", spark, incremental=True)
    assert second.continued and second.fingerprint == ingest(spec, tmp_path / "t", spark).fingerprint
    assert len(quarantined(tmp_path / "s.quarantine")) == first.quarantined + second.quarantined


def test_the_command_has_the_option(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from goffish.cli.app import app

    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({"inputs": [{"path": "a.csv"}], "source": 0, "target": 1}))
    run = CliRunner().invoke(app, ["ingest", str(tmp_path / "spec.yaml"), "-o", "s3:/b/x", "--incremental"])
    assert run.exit_code != 0
    assert "--incremental" in CliRunner().invoke(app, ["ingest", "--help"]).output

"""The YAML file of an ingest job: what it may say, and one line for everything else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from goffish.errors import InputError
from goffish.spark.ingest import IngestSpec, read_spec

pytest.importorskip("yaml")

GOOD = """
inputs:
  - path: [a.csv, "b*.csv.gz"]
    options: {header: true, sep: ";"}
  - {path: s3a://bucket/rows, format: parquet}
source: from
target: 1
labels: text
directed: true
weight: {column: minutes, default: 1}
timestamp: at
attributes: {line: text, stops: {type: integer, column: number of stops}}
clean: {self_loops: keep, duplicates: sum, window: {start: 2024-01-01, end: 2024-03-01 12:30:00}}
instances: {period: 15min, pack: 4}
partition: {parts: 8, method: fennel}
"""
LEAST: dict[str, Any] = {"inputs": [{"path": "a.csv"}], "source": "a", "target": "b"}


def _file(folder: Path, text: str) -> str:
    place = folder / "spec.yaml"
    place.write_text(text)
    return str(place)


def test_a_full_file_is_read(tmp_path: Path) -> None:
    spec = read_spec(_file(tmp_path, GOOD))
    assert spec.inputs[0].paths == ["a.csv", "b*.csv.gz"]
    assert (spec.source, spec.target) == ("from", 1)
    assert spec.weight is not None and spec.weight.default == 1.0
    assert spec.timestamp is not None and (spec.timestamp.column, spec.timestamp.format) == ("at", "iso")
    assert spec.attribute_types == {"line": "text", "stops": "integer"}
    window = spec.clean.window
    assert window is not None and window.start == 1704067200 * 10**6  # 2024-01-01 UTC
    assert window.end == 1709296200 * 10**6
    assert spec.instances is not None and spec.instances.period == 900 * 10**6
    assert read_spec(spec) is spec
    assert isinstance(read_spec(LEAST), IngestSpec)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sauce": "a"}, "sauce: unknown field; choose from inputs, source"),
        ({"inputs": []}, "inputs = []"),
        ({"inputs": [{"path": "a", "format": "xls"}]}, "inputs[0].format = 'xls': should be 'csv', 'json'"),
        (
            {"inputs": [{"path": "a", "kind": "csv"}]},
            "kind: unknown field; choose from path, table, query, format, options",
        ),
        ({"inputs": [{"path": "a", "options": {"Mode": "DROPMALFORMED"}}]}, "Mode is set by GoFFish"),
        ({"inputs": [{"format": "csv"}]}, "give one of path, table and query"),
        ({"inputs": [{"path": "a", "table": "t"}]}, "give one of path, table and query"),
        ({"inputs": [{"table": ""}]}, "inputs[0].table = ''"),
        ({"inputs": [{"table": "t", "format": "delta"}]}, "format is for files; omit it with table"),
        ({"inputs": [{"query": "select 1", "options": {"sep": ";"}}]}, "options is for files; omit it with query"),
        ({"inputs": [{"path": ["a", "b"], "format": "delta"}]}, "path is a list; format: delta takes one table"),
        ({"inputs": [{"path": "a", "format": "jdbc"}]}, "path is not for format: jdbc; set options.url"),
        (
            {"inputs": [{"path": "a", "format": "kafka"}]},
            "options.kafka.bootstrap.servers is required for format: kafka",
        ),
        ({"instances": {"by": "version"}}, "by: version requires one input with format: delta or iceberg"),
        ({"instances": {"by": "version", "period": "1d"}}, "period is not for by: version; omit it"),
        ({"instances": {"pack": 3}, "timestamp": "t"}, "period is required"),
        (
            {"instances": {"by": "version"}, "inputs": [{"path": "a", "format": "delta"}], "timestamp": "t"},
            "timestamp is not for instances.by: version",
        ),
        ({"source": 1.5}, "source = 1.5"),
        ({"labels": "numbers"}, "labels = 'numbers': should be 'integer' or 'text'"),
        ({"directed": "maybe"}, "directed = 'maybe'"),
        ({"weight": {"column": "w", "default": -1}}, "weight.default = -1"),
        ({"weight": {"column": "w", "default": float("nan")}}, "weight.default"),
        ({"attributes": {"x": "date"}}, "attributes.x = 'date': should be 'integer', 'real'"),
        ({"attributes": {"weight": "real"}}, "reserved name"),
        (
            {"clean": {"duplicates": "max"}},
            "clean.duplicates = 'max': should be 'min', 'sum', 'first', 'drop' or 'keep'",
        ),
        ({"clean": {"window": {"start": 0}}}, "clean.window requires the field timestamp"),
        ({"clean": {"window": {"start": "soon"}}, "timestamp": "t"}, "clean.window.start = 'soon': expected a date"),
        ({"instances": {"period": "1d"}}, "instances requires the field timestamp"),
        (
            {"instances": {"period": "1 fortnight"}, "timestamp": "t"},
            "instances.period = '1 fortnight': expected a duration",
        ),
        ({"instances": {"period": "0s"}, "timestamp": "t"}, "instances.period = '0s'"),
        (
            {"instances": {"period": "1d"}, "timestamp": "t", "clean": {"duplicates": "keep"}},
            "keep is not supported with",
        ),
        ({"partition": {"parts": 0}}, "partition.parts = 0"),
        ({"partition": {"method": "kahip"}}, "partition.method = 'kahip': should be 'auto', 'metis' or 'fennel'"),
    ],
)
def test_mistakes_name_the_field_and_what_is_accepted(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        read_spec({**LEAST, **change})
    message = str(caught.value)
    assert told in message and "\n" not in message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("source: a\nsource: b\n", "spec.yaml:1: duplicate field source"),
        ("inputs: [\n", "spec.yaml:2:"),
        ("just text", "has no fields"),
        ("", "has no fields"),
        ("source: a\ntarget: b\n", "inputs: is missing"),
    ],
)
def test_files_that_are_no_specification(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        read_spec(_file(tmp_path, text))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_and_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"nothing\.yaml: cannot be read"):
        read_spec(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a UTF-8 text file"):
        read_spec(tmp_path / "binary.yaml")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InputError, match=r"pyyaml is not installed: pip install"):
        read_spec(_file(tmp_path, GOOD))


def test_the_command_refuses_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from goffish.cli.app import app

    monkeypatch.setattr("goffish.spark.session", lambda **_: pytest.fail("Spark was started for a bad specification"))
    run = CliRunner().invoke(app, ["ingest", _file(tmp_path, "source: 1"), "-o", str(tmp_path / "s")])
    assert isinstance(run.exception, InputError) and run.exception.exit_code == 2
    (tmp_path / "file").write_text("")
    run = CliRunner().invoke(app, ["ingest", _file(tmp_path, GOOD), "-o", str(tmp_path / "file")])
    assert isinstance(run.exception, InputError) and "expected a folder" in str(run.exception)
    assert "quarantine" in CliRunner().invoke(app, ["ingest", "--help"]).output

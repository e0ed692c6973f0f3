"""What the readers of the ingest job make of texts, typed columns and times, against Python's own."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goffish.errors import InputError
from goffish.spark.ingest import ingest, read_spec
from tests.spark.ingest.rows import quarantined

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from goffish.spark.ingest import run as run_module
from goffish.spark.ingest.clean import _real, parsed_rows
from goffish.spark.ingest.sources import open_inputs

DAY = 86_400 * 10**6


def _parsed(spark: Any, spec: dict[str, Any]) -> list[Any]:
    checked = read_spec(spec)
    with run_module._inner(spark) as inner:
        rows = parsed_rows(open_inputs(inner, checked, {}, spark, ""), checked)
        return rows.orderBy("input", "file", "block", "at").collect()


def test_typed_columns_and_kinds_of_time(spark: Any, tmp_path: Path) -> None:
    moments = [datetime(2024, 3, 1, 12, 30, 1, 5, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC), None]
    table = pa.table({
        "a.b": pa.array([2**62, -1, None], pa.int64()),
        "to": pa.array([1, 2, 3], pa.uint8()),
        "w": pa.array([0.1, 2.5, 3.0], pa.float32()),
        "at": pa.array(moments, pa.timestamp("us", "UTC")),
        "yes": [True, None, False],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet")
    spec = {
        "inputs": [{"path": str(tmp_path / "rows.parquet"), "format": "parquet"}], "source": "a.b", "target": "to",
        "weight": "w", "timestamp": "at", "attributes": {"yes": "boolean"},
    }  # fmt: skip
    found = _parsed(spark, spec)
    assert [row["source"] for row in found] == [2**62, -1, None]
    assert [row["time"] for row in found] == [1709296201000005, -DAY, None]
    assert [row["a0"] for row in found] == [True, None, False]
    assert [row["rule"] for row in found] == [None, None, "source_missing"]
    assert found[1]["weight"] == 2.5

    texts = ["2024-03-01", "2024-03-01T12:30:01Z", "2024-03-01 12:30:01.5+02:00", "12:30", "2024", "2024-13-01", ""]
    (tmp_path / "iso.csv").write_text("".join(f"1,2,{text}\n" for text in texts))
    stamps = {"inputs": [{"path": str(tmp_path / "iso.csv")}], "source": 0, "target": 1, "timestamp": 2}
    found = _parsed(spark, stamps)
    expected = [datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 3, 1, 12, 30, 1, tzinfo=UTC)]
    expected.append(datetime(2024, 3, 1, 10, 30, 1, 500_000, tzinfo=UTC))
    assert [row["time"] for row in found[:3]] == [round(moment.timestamp() * 10**6) for moment in expected]
    assert [row["rule"] for row in found[3:]] == ["timestamp_unreadable"] * 3 + ["timestamp_missing"]
    (tmp_path / "iso.csv").write_text("1,2,1.5e9\n1,2,17.000001\n1,2,x\n1,2,31/12/2023 08:05\n")
    form = {**stamps, "timestamp": {"column": 2, "format": "epoch_s"}}
    assert [row["time"] for row in _parsed(spark, form)] == [1_500_000_000_000_000, 17_000_001, None, None]
    form = {**stamps, "timestamp": {"column": 2, "format": "dd/MM/yyyy HH:mm"}}
    assert [row["time"] for row in _parsed(spark, form)][3] == 1_704_009_900_000_000


def test_random_numbers_are_read_as_python_reads_them(spark: Any, tmp_path: Path) -> None:
    """Breaks when a text is taken for a number that Python would refuse, or the other way round."""
    rng = np.random.default_rng(3)
    pieces = [*"0123456789.eE+-fdx ", "inf", "nan", "1", "2", "3", "12", "1."]
    texts = ["".join(rng.choice(pieces, rng.integers(1, 5))) for _ in range(3000)]
    (tmp_path / "rows.csv").write_text("".join(f"1,2,{text}\n" for text in texts))
    found = _parsed(spark, {"inputs": [{"path": str(tmp_path / "rows.csv")}], "source": 0, "target": 1, "weight": 2})
    seen = Counter()
    for text, row in zip(texts, found, strict=True):
        try:
            value = float(text) + 0.0 if text.strip() else None
        except ValueError:
            value = None
        rule = "weight_unreadable" if value is None else None
        if value is not None and not np.isfinite(value):
            rule = "weight_not_finite"
        elif value is not None and value < 0:
            rule = "weight_negative"
        seen[rule] += 1
        assert row["rule"] == rule, (text, row)
        assert value is None or row["weight"] == value or np.isnan(value)
    assert len(seen) == 4


def _headed(path: Path) -> dict[str, Any]:
    return {"path": str(path), "options": {"header": True}}


@pytest.mark.slow
def test_inputs_that_cannot_be_used(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\nx,y\nz,\n")
    base: dict[str, Any] = {
        "inputs": [{"path": str(tmp_path / "rows.csv"), "options": {"header": True}}], "source": "a", "target": "b"
    }  # fmt: skip
    packed = gzip.compress(b"a,b\n" + b"1,2\n" * 100_000)
    (tmp_path / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "plain.csv.gz").write_bytes(b"a,b\n" + b"1,2\n" * 50)
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for change, told in (
        ({"source": "from"}, "source = 'from': no such column; available: a, b"),
        ({"target": 2}, "target = 2: the input has 2 columns, numbered from 0"),
        ({"attributes": {"c": "real"}}, "attributes.c = 'c': no such column"),
        ({"inputs": [{"path": str(tmp_path / "none.csv")}]}, r"inputs\[0\]: .*none.csv"),
        ({"inputs": [{"path": str(tmp_path / "empty.csv")}]}, r"inputs\[0\]: no columns in .*empty.csv"),
        ({"inputs": [{"path": str(tmp_path / "folder")}]}, r"inputs\[0\]: no csv files in .*folder"),
        ({"inputs": [_headed(tmp_path / "cut.csv.gz")]}, r"cut\.csv\.gz cannot be read \(.*Unexpected end"),
        ({"inputs": [_headed(tmp_path / "plain.csv.gz")]}, r"plain\.csv\.gz cannot be read \(not a gzip file"),
        (
            {"inputs": [{"path": str(tmp_path / "rows.csv"), "format": "parquet"}]},
            r"rows\.csv cannot be read \(.*not a Parquet file",
        ),
        ({"inputs": [{"path": "x", "format": "json"}], "source": 0}, "JSON fields are selected by name, not by number"),
        ({}, r"source_unreadable 2 .*quarantine\); set labels: text if vertex labels are not integers"),
    ):
        with pytest.raises(InputError, match=told) as caught:
            ingest({**base, **change}, tmp_path / "s", spark)
        assert "\n" not in str(caught.value) and not (tmp_path / "s").exists()
        assert not (tmp_path / "s.work").exists()
    assert len(quarantined(tmp_path / "s.quarantine")) == 2
    if "spark-avro" not in (spark.conf.get("spark.jars.packages", "") or ""):
        with pytest.raises(InputError, match=r"--packages org.apache.spark:spark-avro_2.13:4\."):
            ingest({**base, "inputs": [{"path": str(tmp_path), "format": "avro"}]}, tmp_path / "s", spark)
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"contains thesis\.tex, which no ingest wrote"):
        ingest(base, tmp_path / "s", spark, quarantine=tmp_path / "q")


@pytest.mark.parametrize("text", [False, True])
def test_decimal_numbers_and_what_only_java_takes(spark: Any, text: bool) -> None:
    """Breaks when a text that is no decimal number counts as one, or a number is read otherwise than by Python."""
    given = [
        "1",
        " 4 ",
        "1.e5",
        "+.5e-3",
        ".",
        "1.0f",
        "1d",
        "0x1p3",
        "0x.8p1",
        "1e",
        "++5",
        "1 2",
        "",
        "-0",
        "1e999",
        "-inf",
        "Infinity",
        "nan",
        "\t7\t",
        "\x017",
        "7\x01",
        "1_0",
        "٣",
        "e5",
        "1.5.",
        "0.1",
        "123456789.123456789",
    ]
    if text:
        given = [f"{sign}{one}{end}" for one in given for sign in ("", "-", " ") for end in ("", " ", "0")]
    plain = re.compile(r"[ \t]*[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity|nan)[ \t]*", re.A | re.I)
    expected = [float(one) if plain.fullmatch(one) else None for one in given]
    frame = spark.createDataFrame([(one,) for one in given], "text string")
    found = [row[0] for row in frame.select(_real(F.col("text"), "string")).collect()]
    assert [repr(one) for one in found] == [repr(one) for one in expected]

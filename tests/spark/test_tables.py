"""Results as DataFrames and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.gopher import Result
from goffish.gopher.folder import write_folder

pytest.importorskip("pyspark")

from goffish.spark import save_as_table, to_dataframe

GRAPH = gf.from_edges(["a", "b", "c"], ["b", "c", "d"])
TABLE = "goffish_results_of_a_test"


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def properties(spark: Any, table: str) -> dict[str, str]:
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}


def test_tables(spark: Any, tmp_path: Path) -> None:
    """A result of this process and one in a folder, as tables of the catalog of Spark."""
    found = gf.bfs(GRAPH, "a")
    expected = sorted(zip(*(column.to_pylist() for column in found.table.columns), strict=True))
    write_folder(found.table, tmp_path / "folder", "bfs")
    store = gf.partition(GRAPH, 2)
    store.save(tmp_path / "store")
    store = gf.open(tmp_path / "store")
    try:
        more = {"team": "it's\\ours"}
        made = save_as_table(
            found, TABLE, format="parquet", partition_by=["distance"], graph=store, properties=more, spark=spark
        )
        assert rows(made.select(*found.table.column_names)) == expected
        about = properties(spark, TABLE)
        assert (about["goffish.algorithm"], about["goffish.version"], about["team"]) == (
            "bfs",
            gf.__version__,
            "it's\\ours",
        )
        assert json.loads(about["goffish.summary"]) == dict(found.summary)
        assert about["goffish.fingerprint"] == store.fingerprint()
        with pytest.raises(InputError, match=f"table {TABLE}: .*already exists"):
            save_as_table(found, TABLE, format="parquet", spark=spark)
        with pytest.raises(InputError, match="its format does not support MERGE; use delta or iceberg"):
            save_as_table(found, TABLE, mode="merge", spark=spark)
        again = save_as_table(tmp_path / "folder", TABLE, mode="overwrite", format="parquet", spark=spark)
        assert rows(again) == expected
        assert len(rows(save_as_table(found, TABLE, mode="append", format="parquet", spark=spark))) == 2 * len(expected)
        assert not [
            one.name for one in spark.catalog.listTables() if one.name.startswith("goffish_") and one.isTemporary
        ]
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {TABLE}")


def test_mistakes(spark: Any, tmp_path: Path) -> None:
    found = gf.bfs(GRAPH, "a")
    for given, message in (
        ({"mode": "replace"}, "mode = 'replace': should be one of error, overwrite, append, merge"),
        ({"table": "x; DROP TABLE y"}, "table = 'x; DROP TABLE y': not a name"),
        ({"partition_by": ["day"]}, "partition_by: no column 'day'; available: vertex, distance, parent"),
        ({"mode": "merge", "key": ["vertex", "day"]}, "key: no column 'day'"),
        ({"result": tmp_path}, r"not a complete result folder \(no _manifest.json\); give a Result"),
        ({"format": "no_such_format"}, "table t: .*no_such_format"),
    ):
        with pytest.raises((InputError, gf.JobError), match=message) as caught:
            save_as_table(**{"result": found, "table": "t", "spark": spark, **given})
        assert "\n" not in str(caught.value)


def test_columns_of_all_kinds(spark: Any) -> None:
    table = pa.table({
        "vertex": pa.array([1, 2], pa.uint32()), "text": ["ä", None],
        "list": pa.array([[1.5], []], pa.list_(pa.float32())),
    })  # fmt: skip
    assert rows(to_dataframe(Result("own", table), spark=spark)) == [(1, "ä", [1.5]), (2, None, [])]

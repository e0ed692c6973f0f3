"""Keys for Spark's hash partitioning."""

from __future__ import annotations

from typing import Any

import pytest

from goffish.spark.ingest.keys import partition_keys

pytest.importorskip("pyspark")


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 64])
def test_keys_are_where_spark_puts_them(spark: Any, partitions: int) -> None:
    keys = partition_keys(partitions)
    frame = spark.createDataFrame([(key,) for key in keys], "key int")
    placed = frame.selectExpr(f"pmod(hash(key), {partitions})").collect()
    assert [row[0] for row in placed] == list(range(partitions))

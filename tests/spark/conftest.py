"""One Spark session for the tests of this package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from goffish.spark import session
from tests.gopher.test_spark_sessions import QUICK


@pytest.fixture(scope="package")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    made = session(master="local[2]", memory="1g", config={**QUICK, "spark.sql.shuffle.partitions": 2})
    yield made
    made.stop()

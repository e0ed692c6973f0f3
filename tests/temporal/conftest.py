"""One Spark session for the tests of time series."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from goffish.gopher.spark import session
from tests.gopher.test_spark_sessions import QUICK


@pytest.fixture(scope="package")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    made = session(master="local[2]", memory="1g", config={**QUICK, "spark.sql.shuffle.partitions": 2})
    yield made
    made.stop()
    with nullcontext() if ignored else pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

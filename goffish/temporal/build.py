"""Builders of time series: time-stamped edges, snapshots, tables, and Spark data frames."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.gofs import open_store
from goffish.gofs.series import compact_series
from goffish.temporal.append import append_from_events, append_from_snapshots, append_from_table
from goffish.temporal.building import SeriesBuild, event_times
from goffish.temporal.events import build_from_events, read_events
from goffish.temporal.snapshots import build_from_snapshots
from goffish.temporal.tables import build_from_table

__all__ = [
    "SeriesBuild",
    "append_from_events",
    "append_from_snapshots",
    "append_from_table",
    "build_from_events",
    "build_from_snapshots",
    "build_from_spark",
    "build_from_table",
    "compact_series",
    "event_times",
    "read_events",
]


def build_from_spark(
    frame: Any, path: str | Path, spec: Mapping[str, Any], *, work: str | Path | None = None
) -> SeriesBuild:
    """Write a store with a time series made of a Spark data frame of time-stamped edges, through the ingest on Spark.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        One row for every event.
    path
        The store.
    spec : mapping
        An ingest job (see ``docs/guides/ingest.md``) without ``inputs``: at least ``source``, ``target``, ``timestamp``
        and ``instances`` with a ``period``.
    work
        Folder for the rows that all executors reach; default: a temporary one, which does on one machine.

    Returns
    -------
    SeriesBuild
        ``edge.exists``, ``edge.weight`` where the job has weights, and the job's attributes.

    Raises
    ------
    InputError
        PySpark is missing, not a data frame of Spark, or a bad job.
    """
    with needed_for("Spark DataFrames"):
        from pyspark.sql import DataFrame
    if not isinstance(frame, DataFrame):
        raise InputError(f"frame is of type {type(frame).__name__}; expected a pyspark.sql.DataFrame")
    if "inputs" in spec or "instances" not in spec:
        raise InputError(
            "spec: expected the fields of an ingest job, with instances and without inputs (the data frame)"
        )
    from goffish.spark.ingest.run import ingest

    with tempfile.TemporaryDirectory(prefix="goffish-") as temporary:
        rows = f"{str(work or temporary).rstrip('/')}/rows.parquet"
        frame.write.mode("overwrite").parquet(rows)
        given = dict(spec) | {"inputs": [{"path": rows, "format": "parquet"}]}
        report = ingest(given, path, frame.sparkSession)
    left = report.quarantined
    assert report.instances is not None
    notes = (f"{left:,} rows are in the quarantine",) if left else ()
    return SeriesBuild(open_store(path), report.instances["count"], notes)

"""Results as DataFrames and as tables of a Spark catalog."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from goffish.errors import InputError, JobError, StoreError
from goffish.gofs import PartitionedGraph
from goffish.gofs.files import open_folder
from goffish.gopher import Result
from goffish.gopher.folder import folder_parts
from goffish.gopher.spark.session import first_line, running_session
from goffish.partial import absolute_place, is_uri
from goffish.spark.frames import schemas_of
from goffish.spark.parts import read_parts
from goffish.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Mode = Literal["error", "overwrite", "append", "merge"]
_NAME = re.compile(r"(?:\w+|`[^`]+`)(?:\.(?:\w+|`[^`]+`))*", re.ASCII)


def to_dataframe(result: Result | str | Path, *, spark: SparkSession | None = None) -> DataFrame:
    """Convert a result to a DataFrame.

    Parameters
    ----------
    result : Result or path-like
        A result, which the driver sends to the executors, or a folder or URI that a run has written with ``output=``,
        which the executors read.
    spark : SparkSession, optional
        Session [default: the running one, otherwise a new one].

    Returns
    -------
    pyspark.sql.DataFrame
        The columns and rows of the result.

    Raises
    ------
    InputError
        If the folder is not one of a result.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.spark import to_dataframe
    >>> ranks = gf.pagerank(gf.from_edges([1, 2], [2, 3]))
    >>> to_dataframe(ranks).columns
    ['vertex', 'rank']
    """
    session = running_session(spark)
    if isinstance(result, Result):
        schema, arrow = schemas_of(result.table)
        return session.createDataFrame(result.table.cast(arrow), schema)
    try:
        names = [part.name for part in folder_parts(result)]
    except StoreError as error:
        raise InputError(f"{error}; give a Result, or write one with output=") from None
    place = absolute_place(result)
    if not is_uri(place):
        return session.read.parquet(f"file://{place}")
    first = pa.BufferReader(open_folder(place).read(names[0]))
    schema, _ = schemas_of(pq.read_schema(first).empty_table())
    return read_parts(session, place, names, schema)


def save_as_table(
    result: Result | str | Path,
    table: str,
    *,
    mode: Mode = "error",
    format: str | None = None,
    partition_by: Sequence[str] = (),
    key: str | Sequence[str] = "vertex",
    graph: PartitionedGraph | None = None,
    properties: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Write a result into a table of the Spark catalog, with its origin in the properties of the table.

    Parameters
    ----------
    result : Result or path-like
        As of `to_dataframe`.
    table : str
        Name, such as ``ranks`` or ``lake.graphs.ranks``.
    mode : {"error", "overwrite", "append", "merge"}
        What happens if the table exists [default: "error"]. ``merge`` replaces the rows with the same `key` and adds
        the others, in Delta and Iceberg tables.
    format : str, optional
        Of a new table, such as ``delta``, ``iceberg`` or ``parquet`` [default: that of the catalog].
    partition_by : sequence of str
        Columns that divide a new table into folders [default: none].
    key : str or sequence of str
        Columns that identify a row, for ``merge`` [default: "vertex"].
    graph : PartitionedGraph, optional
        The store of the result; its path and fingerprint become properties.
    properties : mapping of str to str, optional
        Further properties of the table.
    spark : SparkSession, optional
        Session [default: the running one, otherwise a new one].

    Returns
    -------
    pyspark.sql.DataFrame
        The table.

    Raises
    ------
    InputError
        If an argument is invalid, the table exists (``mode="error"``), lacks a column, or does not support ``merge``.
    JobError
        If Spark fails.

    Notes
    -----
    Properties: ``goffish.version``, ``goffish.algorithm`` and ``goffish.summary`` (JSON) of a `Result`,
    ``goffish.store`` and ``goffish.fingerprint`` of `graph`. The rows are written in one step, and then the properties.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.spark import save_as_table, session
    >>> ranks = gf.pagerank(gf.from_edges([1, 2], [2, 3]))
    >>> save_as_table(ranks, "ranks_of_example", mode="overwrite", format="parquet").count()
    3
    >>> _ = session().sql("DROP TABLE ranks_of_example")
    """
    keys = [key] if isinstance(key, str) else list(key)
    if mode not in get_args(Mode):
        raise InputError(f"mode = {mode!r}: should be one of {', '.join(get_args(Mode))}")
    if _NAME.fullmatch(table) is None:
        raise InputError(f"table = {table!r}: not a name such as catalog.database.table")
    frame = to_dataframe(result, spark=spark)
    session = frame.sparkSession
    for what, names in (("partition_by", partition_by), ("key", keys if mode == "merge" else ())):
        for name in names:
            if name not in frame.columns:
                raise InputError(f"{what}: no column {name!r}; available: {', '.join(frame.columns)}")
    about = {"goffish.version": __version__}
    if isinstance(result, Result):
        about |= {
            "goffish.algorithm": result.algorithm,
            "goffish.summary": json.dumps(dict(result.summary), default=str),
        }
    if graph is not None:
        about |= {"goffish.store": str(graph.path), "goffish.fingerprint": graph.fingerprint()}
    about |= properties or {}
    try:
        if mode == "merge" and session.catalog.tableExists(table):
            _merge(session, frame, table, keys)
        else:
            writer = frame.write.mode("error" if mode == "merge" else mode)
            writer = writer if format is None else writer.format(format)
            (writer.partitionBy(*partition_by) if partition_by else writer).saveAsTable(table)
        pairs = ", ".join(f"{_text(name)} = {_text(value)}" for name, value in about.items())
        session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({pairs})")
    except Exception as error:
        if mode == "merge" and "UNSUPPORTED_FEATURE.TABLE_OPERATION" in str(error):
            raise InputError(f"table {table}: its format does not support MERGE; use delta or iceberg") from None
        kind = InputError if type(error).__name__ in ("AnalysisException", "ParseException") else JobError
        raise kind(f"table {table}: {first_line(error)}") from None
    return session.table(table)


def _merge(session: SparkSession, frame: DataFrame, table: str, keys: Sequence[str]) -> None:
    view = f"goffish_{uuid.uuid4().hex}"
    frame.createTempView(view)
    try:
        same = " AND ".join(f"old.{_quoted(name)} = new.{_quoted(name)}" for name in keys)
        session.sql(
            f"MERGE INTO {table} AS old USING {view} AS new ON {same} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    finally:
        session.catalog.dropTempView(view)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

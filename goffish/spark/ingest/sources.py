"""Opening the inputs: every row with the file it came from and its place in it, nothing dropped by the reader."""

from __future__ import annotations

import contextlib
import json
import operator
import os
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from goffish.errors import InputError
from goffish.gopher.spark.session import first_line, is_connect
from goffish.spark.ingest.spec import ColumnName, IngestSpec, Input, VertexTable
from goffish.spark.ingest.work import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Holds the text of a line that does not follow its format.
_CORRUPT = "_goffish_corrupt"
#: Quotes inside quotes are doubled, as every spreadsheet writes them (RFC 4180); Spark's own default is a backslash.
_CSV_DEFAULTS = {"quote": '"', "escape": '"'}
#: Packages of formats that are not part of Spark.
_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_2.13:{spark}",
    "delta": "io.delta:delta-spark_{minor}_2.13:4.4.0",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:1.11.0",
}
_UNHASHED = re.compile(r"\b(?:map<|variant)")
#: Options of all readers that decide which files are read.
_LISTING = {"pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter"}
#: Bits of the place of a row: in what one task has read of a file, and of the hash of a row of a table.
FILE_BITS, TABLE_BITS = 33, 53


def check_tables(spec: IngestSpec, tables: Mapping[str, DataFrame]) -> None:
    """Refuse tables that no input names.

    Raises
    ------
    InputError
    """
    unused = sorted(tables.keys() - {item.table for item in spec.every_input})
    if unused:
        raise InputError(f"tables: {unused[0]!r} is not the table of an input")


def open_inputs(
    spark: SparkSession, of: IngestSpec | VertexTable, tables: Mapping[str, DataFrame], outer: SparkSession,
    within: str, skipped: Collection[str] = (),
) -> list[DataFrame]:  # fmt: skip
    """One table for each input.

    Parameters
    ----------
    spark : SparkSession
        Session of the job.
    of : IngestSpec or VertexTable
    tables : mapping of str to DataFrame
        Tables that go before those of the catalog.
    outer : SparkSession
        Session with the current database and the temporary views of the user.
    within : str
        Field of the specification that the inputs are in, for errors.
    skipped : collection of str
        Fields of inputs of which no row is read.

    Returns
    -------
    Tables with the columns ``raw`` (a struct of the input's columns), ``line`` (the text of the row where it is known,
    else null), ``malformed``, ``file``, ``block`` and ``at``. Sorting by the last three gives the order of the rows in
    the files however Spark splits them. Rows of tables have no order; theirs is that of a hash of their contents.

    Raises
    ------
    InputError
        A path or table that does not exist, a format that is not installed.
    """
    found = []
    for number, item in enumerate(of.inputs):
        field = f"{within}inputs[{number}]"
        if item.path is not None and not item.path:
            raise InputError(f"{field}.path is empty; expected a path or a list of paths")
        try:
            by_name = item.paths or item.format == "kafka"
            raw = _read_files(spark, item, of.columns) if by_name else _read_table(spark, item, tables, outer)
        except InputError as error:
            raise InputError(f"{field}: {error}") from None
        except Exception as error:
            raise _refused(spark, item, field, error) from None
        if field in skipped:
            raw = raw.limit(0)
        if not raw.schema["raw"].dataType.fields:
            raise InputError(f"{field}: no columns in {item.place}")
        found.append(raw)
    return found


def column_of(table: DataFrame, item: Input, name: str | int, field: str) -> Any:
    """The expression of a column that the specification names.

    Raises
    ------
    InputError
        There is no such column; the message lists those there are.
    """
    from pyspark.sql import functions as F

    schema = table.schema["raw"].dataType
    names = [f.name for f in schema.fields if f.name != _CORRUPT]
    if isinstance(name, str):
        name = item.columns.get(name, name)
    if isinstance(name, int):
        if not 0 <= name < len(names):
            raise InputError(f"{field} = {name}: the input has {len(names)} columns, numbered from 0")
        name = names[name]
    path = [name] if name in names else str(name).split(".")
    inside: Any = schema
    for part in path:
        if part not in getattr(inside, "names", ()):
            raise InputError(f"{field} = {name!r}: no such column; available: {', '.join(names)}")
        inside = inside[part].dataType
    return reduce(lambda column, part: column[part], path, F.col("raw"))


def pinned(spark: SparkSession, spec: IngestSpec, loaded: Mapping[str, Any]) -> IngestSpec:
    """The specification with the newest version of each Delta and Iceberg table, and with offsets of Kafka topics, so
    that what is read and resumed is the same.

    `loaded` has the offsets at which topics are read on.

    Raises
    ------
    InputError
        A folder is not a Delta table.
    """

    def newest(item: Input, field: str) -> Input:
        if item.format == "kafka":
            try:
                return _with_offsets(spark, item, loaded.get(f"kafka:{item.place}", {}))
            except Exception as error:
                raise _refused(spark, item, field, error) from None
        if item.format not in ("delta", "iceberg") or _travels(item) or (spec.by_version and not field.startswith("v")):
            return item
        if item.format == "iceberg":
            try:
                snapshots = list(iceberg_snapshots(spark, item))
            except Exception as error:
                raise _refused(spark, item, field, error) from None
            if not snapshots:
                return item  # a table without rows
            return item.model_copy(update={"options": {**item.options, "versionAsOf": snapshots[-1]}})
        try:
            log = _files(spark, [f"{spark_path(item.place, spark)}/_delta_log"], {})
        except Exception as error:
            raise InputError(f"{field}: {item.place}: not a Delta table ({first_line(error)})") from None
        commits = [int(found[1]) for name, _, _ in log if (found := re.search(r"/(\d{20})\.json$", name))]
        if not commits:
            raise InputError(f"{field}: {item.place}: not a Delta table")
        return item.model_copy(update={"options": {**item.options, "versionAsOf": max(commits)}})

    def with_newest(of: Any, within: str, **more: Any) -> Any:
        inputs = [newest(item, f"{within}inputs[{number}]") for number, item in enumerate(of.inputs)]
        return of.model_copy(update={"inputs": inputs, **more})

    vertices = [with_newest(table, f"vertices[{at}].") for at, table in enumerate(spec.vertices)]
    pinned_spec: IngestSpec = with_newest(spec, "", vertices=vertices)
    return pinned_spec


def versions(spark: SparkSession, spec: IngestSpec) -> list[tuple[str, int, int]]:
    """Path, size and time of the last change (microseconds) of every input file: other values mean other rows.

    Tables without a version in the options of the specification are taken for new ones.
    """
    found: list[tuple[str, int, int]] = []
    for item in spec.every_input:
        if item.paths:
            found += listed(spark, item)
        elif not _travels(item):
            found.append((uuid.uuid4().hex, 0, 0))
    return found


def listed(spark: SparkSession, item: Input) -> list[tuple[str, int, int]]:
    """The files of an input with their sizes and times of the last change."""
    return _files(spark, [spark_path(path, spark) for path in item.paths], item.options)


def _files(spark: SparkSession, paths: list[str], options: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Files as Spark's readers find them, with sizes and times; their contents are not read."""
    from pyspark.sql import functions as F

    kept = {name: _option(value) for name, value in options.items() if name.lower() in _LISTING}
    files = spark.read.format("binaryFile").options(**kept).load(paths)
    rows = files.select("path", "length", F.unix_micros("modificationTime")).collect()
    # Here Spark writes local names with one slash.
    return sorted((re.sub(r"^file:/+", "file:///", row[0]), int(row[1]), int(row[2])) for row in rows)


def unreadable(error: Exception) -> InputError | None:
    """The message about a file that Spark could not read, if a Spark error is about one."""
    text = str(error)
    file = re.search(r"Encountered error while reading file (.+?)\.\s", text)
    if file is None:
        return None
    causes = re.findall(r"^Caused by: (?:[\w.$]+: )?(.+)", text, re.MULTILINE)
    reason = causes[-1] if causes else "damaged or in another format"
    return InputError(f"inputs: {file[1]} cannot be read ({reason[:200]})")


def _refused(spark: SparkSession, item: Input, field: str, error: Exception) -> InputError:
    """The message about an input that Spark does not open."""
    text = first_line(error)
    for name, package in _PACKAGES.items():
        if item.format == name and re.search(
            r"(?i)failed to find.*data source|DATA_SOURCE_NOT_FOUND|ClassNotFound", text
        ):
            coordinates = package.format(spark=spark.version, minor=".".join(spark.version.split(".")[:2]))
            return InputError(
                f"{field}.format = '{name}': its Spark package is not loaded; add --packages {coordinates}, or "
                f'session(packages=("{coordinates}",))'
            )
    if "UNABLE_TO_INFER_SCHEMA" in text:
        return InputError(f"{field}: no {item.format} files in {', '.join(item.paths)}")
    return unreadable(error) or InputError(f"{field}: {text}")


def _read_table(spark: SparkSession, item: Input, tables: Mapping[str, DataFrame], outer: SparkSession) -> DataFrame:
    from pyspark.sql import functions as F

    if item.table is not None:
        given = tables.get(item.table)
        table = _adopted(outer.table(item.table) if given is None else given, spark)
    elif item.query is not None:
        table = _adopted(outer.sql(item.query), spark)
    else:
        table = table_at(spark, item)
        if item.only is not None:
            name = F.element_at(F.split("_metadata.file_path", "/"), -1)
            table = table.where(name.isin(*(quote(one) for one in item.only), *item.only))
    # Maps and variants have no hash; rows that differ in nothing else have no order.
    hashed = [field.name for field in table.schema.fields if not _UNHASHED.search(field.dataType.simpleString())]
    at = F.xxhash64(*(F.col(_quoted(name)) for name in hashed)) if hashed else F.lit(0).cast("bigint")
    return table.select(
        F.struct(*(F.col(_quoted(name)).alias(name) for name in table.columns)).alias("raw"),
        F.lit(None).cast("string").alias("line"), F.lit(False).alias("malformed"), F.lit(item.place).alias("file"),
        F.lit(0).cast("bigint").alias("block"), at.bitwiseAND((1 << TABLE_BITS) - 1).alias("at"),
    )  # fmt: skip


def _with_offsets(spark: SparkSession, item: Input, after: Mapping[str, Mapping[str, int]]) -> Input:
    """A Kafka input that reads the messages which are there now, from offsets that were not read before."""
    from pyspark.sql import functions as F

    given = {name: _option(value) for name, value in item.options.items()}
    plain = {name: value for name, value in given.items() if not name.lower().startswith(("starting", "ending"))}

    def ranges(options: Mapping[str, Any]) -> list[Any]:
        table = spark.read.format("kafka").options(subscribe=",".join(item.names), **options).load()
        known = [
            (F.col("topic") == topic) & (F.col("partition") == int(number)) & (F.col("offset") < first)
            for topic, numbers in after.items() for number, first in numbers.items()
        ]  # fmt: skip
        table = table.where(~reduce(operator.or_, known)) if known else table
        found = table.groupBy("topic", "partition").agg(F.min("offset"), F.max("offset"))
        return sorted(found.collect())

    rows: list[Any] | None = None
    if after:
        # Without the messages that were read, unless there are partitions now that were not there.
        with contextlib.suppress(Exception):
            rows = ranges({**plain, "startingOffsets": json.dumps(after)})
    rows = ranges(given) if rows is None else rows
    start: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    for topic, number, first, last in rows:
        start.setdefault(topic, {})[str(number)] = int(first)
        end.setdefault(topic, {})[str(number)] = int(last) + 1
    assigned = {topic: [int(number) for number in numbers] for topic, numbers in start.items()}
    kept = {name: value for name, value in item.options.items() if name in plain}
    texts = {"assign": assigned, "startingOffsets": start, "endingOffsets": end}
    return item.model_copy(update={"options": {**kept, **{name: json.dumps(value) for name, value in texts.items()}}})


def offsets_of(item: Input) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """The offsets at which a pinned Kafka input begins and ends, by topic and partition."""
    return json.loads(str(item.options["startingOffsets"])), json.loads(str(item.options["endingOffsets"]))


def table_at(spark: SparkSession, item: Input, version: str | None = None) -> DataFrame:
    """A Delta or Iceberg table, or one of a database, at the version of its options or another one."""
    options = {name: _option(value) for name, value in item.options.items()}
    if version is not None:
        options = {name: value for name, value in options.items() if name.lower() != "versionasof"}
        options["versionAsOf"] = version
    return spark.read.format(item.format).options(**options).load(_table_place(spark, item))


def _table_place(spark: SparkSession, item: Input) -> str | None:
    # Iceberg also takes names of tables.
    is_place = isinstance(item.path, str) and (item.format == "delta" or "/" in item.path)
    return spark_path(item.place, spark) if is_place else item.path  # type: ignore[return-value]


def iceberg_snapshots(spark: SparkSession, item: Input) -> dict[str, tuple[str | None, str]]:
    """The snapshots of an Iceberg table in the order of their time: the parent and the operation of each."""
    place = _table_place(spark, item)
    table = spark.read.format("iceberg").load(f"{place}{'#' if '/' in str(place) else '.'}snapshots")
    rows = table.orderBy("committed_at").select("snapshot_id", "parent_id", "operation").collect()
    return {str(row[0]): (None if row[1] is None else str(row[1]), row[2]) for row in rows}


def table_versions(spark: SparkSession, item: Input, field: str) -> list[tuple[str, int]]:
    """The versions of a Delta table, or snapshots of an Iceberg table, and when each was committed (microseconds).

    Raises
    ------
    InputError
        Not such a table.
    """
    from pyspark.sql import functions as F

    try:
        place = _table_place(spark, item)
        if item.format == "delta":
            history = spark.sql(f"DESCRIBE HISTORY delta.{_quoted(str(place))}")
            rows = history.select("version", F.unix_micros("timestamp")).orderBy("version").collect()
        else:
            table = spark.read.format("iceberg").load(f"{place}{'#' if '/' in str(place) else '.'}snapshots")
            rows = table.select("snapshot_id", F.unix_micros("committed_at")).orderBy("committed_at").collect()
    except Exception as error:
        raise _refused(spark, item, field, error) from None
    found: list[tuple[str, int]] = []
    for version, moment in rows:  # clocks of writers differ
        found.append((str(version), max(int(moment), found[-1][1] + 1) if found else int(moment)))
    return found


def file_name(uri: str) -> str:
    """The name of a file, from a URI that may have escapes."""
    return unquote(uri.rsplit("/", 1)[-1])


def _adopted(table: DataFrame, spark: SparkSession) -> DataFrame:
    """A table of another session, whose temporary views only that session has, as one of the job's session."""
    if is_connect(spark):
        return table  # the job runs in the session of the user
    name = f"goffish_{uuid.uuid4().hex}"
    table.createGlobalTempView(name)
    try:
        return spark.table(f"global_temp.{name}")
    finally:
        spark.catalog.dropGlobalTempView(name)


def _option(value: Any) -> Any:
    """The value of an option, or of the environment variable that it names."""
    if not isinstance(value, str) or not value.startswith("env:"):
        return value
    found = os.environ.get(value.removeprefix("env:"))
    if found is None:
        raise InputError(f"options: {value}: no such environment variable")
    return found


def _travels(item: Input) -> bool:
    """Whether the options name a version of a table."""
    return any(name.lower() in ("versionasof", "timestampasof", "end-snapshot-id", "assign") for name in item.options)


def _place() -> list[Any]:
    from pyspark.sql import functions as F

    row = F.monotonically_increasing_id().bitwiseAND((1 << FILE_BITS) - 1)
    return [
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        row.alias("at"),
    ]


def _read_files(spark: SparkSession, item: Input, columns: Sequence[ColumnName]) -> DataFrame:
    from pyspark.sql import functions as F

    paths = [spark_path(path, spark) for path in item.paths]
    options = {name: _option(value) for name, value in item.options.items()}
    reader = spark.read.options(**options)
    if item.format in ("json", "kafka"):
        names = _fields(columns, item)
        # Read line by line: numbers keep their digits, and the line is at hand when it has to be put aside.
        if item.format == "kafka":
            lines = _messages(spark, item, options)
        else:
            lines = reader.text(paths).select("value", *_place()).where(F.trim("value") != "")
        kept = {} if item.format == "kafka" else {name: str(value) for name, value in options.items()}
        options = {**kept, "columnNameOfCorruptRecord": _CORRUPT}
        found = F.from_json("value", f"{_texts(names)}{_nested(names)}", options)
        parsed = lines.select(found.alias("found"), "value", "file", "block", "at")
        columns = [_json_value(name).alias(name) for name in names]
        corrupt = F.col("found").isNull() | F.col("found")[_CORRUPT].isNotNull()
        return parsed.select(
            F.struct(*columns).alias("raw"), F.col("value").alias("line"), corrupt.alias("malformed"),
            "file", "block", "at",
        )  # fmt: skip
    if item.format == "csv":
        given = {name.lower() for name in options}
        options |= {name: value for name, value in _CSV_DEFAULTS.items() if name not in given}
        names = reader.options(**options).csv(paths).columns
        table = (
            reader.options(**options, mode="PERMISSIVE", columnNameOfCorruptRecord=_CORRUPT, enforceSchema=False)
            .schema(_texts(names))
            .csv(paths)
        )
        line = F.col(_CORRUPT)
    else:
        # Files of a table that grew have different columns.
        merges = {"mergeSchema": True} if item.format in ("parquet", "orc") else {}
        table = reader.options(**merges).format(item.format).load(paths)
        names, line = table.columns, F.lit(None).cast("string")
    return table.select(
        F.struct(*(F.col(_quoted(name)).alias(name) for name in names)).alias("raw"),
        line.alias("line"), line.isNotNull().alias("malformed"), *_place(),
    )  # fmt: skip


def _messages(spark: SparkSession, item: Input, options: Mapping[str, Any]) -> DataFrame:
    """The messages of topics as lines, in the order of topic, partition and offset."""
    if not offsets_of(item)[0]:
        return spark.createDataFrame([], "value string, file string, block bigint, at bigint")
    table = spark.read.format("kafka").options(**options, failOnDataLoss=True).load()
    return table.selectExpr(
        "CAST(value AS STRING) AS value", "topic AS file", "CAST(partition AS BIGINT) AS block", "offset AS at"
    )


def _fields(columns: Sequence[ColumnName], item: Input) -> list[str]:
    """The fields of JSON objects that the specification uses."""
    columns = [item.columns.get(name, name) if isinstance(name, str) else name for name in columns]
    for name in columns:
        if isinstance(name, int):
            raise InputError(f"column {name}: JSON fields are selected by name, not by number")
    return list(dict.fromkeys(str(name) for name in columns))


def _texts(names: list[str]) -> str:
    return ", ".join(f"{_quoted(name)} string" for name in (*names, _CORRUPT))


def _nested(names: list[str]) -> str:
    """The nested columns of names such as ``user.id``, beside columns of just that name, for a schema."""
    tree: dict[str, Any] = {}
    for name in names:
        inside, parts = tree, name.split(".")
        if len(parts) > 1 and parts[0] not in names:
            for part in parts:
                inside = inside.setdefault(part, {})

    def written(inside: dict[str, Any]) -> str:
        fields = (f"{_quoted(name)}: {written(more) if more else 'string'}" for name, more in inside.items())
        return f"struct<{', '.join(fields)}>"

    return "".join(f", {_quoted(name)} {written(inside)}" for name, inside in tree.items())


def _json_value(name: str) -> Any:
    from pyspark.sql import functions as F

    found, (first, *rest) = F.col("found"), name.split(".")
    return (
        F.coalesce(found[name], reduce(lambda column, part: column[part], rest, found[first])) if rest else found[name]
    )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

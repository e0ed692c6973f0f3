"""Opening the inputs: every row with the file it came from and its place in it, nothing dropped by the reader."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from goffish.errors import InputError
from goffish.gopher.spark.session import first_line
from goffish.spark.ingest.spec import ColumnName, IngestSpec, Input, VertexTable
from goffish.spark.ingest.work import Files, spark_path

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
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:1.11.0",
}
_UNHASHED = re.compile(r"\b(?:map<|variant)")
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
    spark: SparkSession, of: IngestSpec | VertexTable, tables: Mapping[str, DataFrame], outer: SparkSession, within: str
) -> list[DataFrame]:
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
            raw = _read_files(spark, item, of.columns) if item.paths else _read_table(spark, item, tables, outer)
        except InputError as error:
            raise InputError(f"{field}: {error}") from None
        except Exception as error:
            raise _refused(spark, item, field, error) from None
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


def pinned(spark: SparkSession, spec: IngestSpec) -> IngestSpec:
    """The specification with the newest version of each Delta table, so that what is read and resumed is the same.

    Raises
    ------
    InputError
        A folder is not a Delta table.
    """

    def newest(item: Input, field: str) -> Input:
        if item.format != "delta" or _travels(item):
            return item
        names = Files(spark, f"{spark_path(item.place, spark)}/_delta_log").list()
        commits = [int(found[1]) for name in names if (found := re.fullmatch(r"(\d{20})\.json", name))]
        if not commits:
            raise InputError(f"{field}: {item.place}: not a Delta table")
        return item.model_copy(update={"options": {**item.options, "versionAsOf": max(commits)}})

    def with_newest(of: Any, within: str, **more: Any) -> Any:
        inputs = [newest(item, f"{within}inputs[{number}]") for number, item in enumerate(of.inputs)]
        return of.model_copy(update={"inputs": inputs, **more})

    vertices = [with_newest(table, f"vertices[{at}].") for at, table in enumerate(spec.vertices)]
    pinned_spec: IngestSpec = with_newest(spec, "", vertices=vertices)
    return pinned_spec


def versions(spark: SparkSession, spec: IngestSpec, tables: list[DataFrame]) -> list[tuple[str, int, int]]:
    """Path, size and time of the last change of every input file: other values mean other rows.

    Tables without a version in the options of the specification are taken for new ones.
    """
    found: list[tuple[str, int, int]] = []
    for item, table in zip(spec.every_input, tables, strict=True):
        if item.paths:
            found += [(file, *Files(spark, file).version(file)) for file in sorted(table.inputFiles())]
        elif not _travels(item):
            found.append((uuid.uuid4().hex, 0, 0))
    return found


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
        options = {name: _option(value) for name, value in item.options.items()}
        reader = spark.read.format(item.format).options(**options)
        # Iceberg also takes names of tables.
        is_place = isinstance(item.path, str) and (item.format == "delta" or "/" in item.path)
        table = reader.load(spark_path(item.place, spark) if is_place else item.path)
    # Maps and variants have no hash; rows that differ in nothing else have no order.
    hashed = [field.name for field in table.schema.fields if not _UNHASHED.search(field.dataType.simpleString())]
    at = F.xxhash64(*(F.col(_quoted(name)) for name in hashed)) if hashed else F.lit(0).cast("bigint")
    return table.select(
        F.struct(*(F.col(_quoted(name)).alias(name) for name in table.columns)).alias("raw"),
        F.lit(None).cast("string").alias("line"), F.lit(False).alias("malformed"), F.lit(item.place).alias("file"),
        F.lit(0).cast("bigint").alias("block"), at.bitwiseAND((1 << TABLE_BITS) - 1).alias("at"),
    )  # fmt: skip


def _adopted(table: DataFrame, spark: SparkSession) -> DataFrame:
    """A table of another session, whose temporary views only that session has, as one of the job's session."""
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
    return any(name.lower() in ("versionasof", "timestampasof") for name in item.options)


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
    if item.format == "json":
        names = _fields(columns, item)
        # Read line by line: numbers keep their digits, and the line is at hand when it has to be put aside.
        lines = reader.text(paths).select("value", *_place()).where(F.trim("value") != "")
        options = {**{k: str(v) for k, v in options.items()}, "columnNameOfCorruptRecord": _CORRUPT}
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

"""Opening the inputs: every row with the file it came from and its place in it, nothing dropped by the reader."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from goffish.errors import InputError
from goffish.gopher.spark.session import first_line
from goffish.spark.ingest.spec import IngestSpec, InputFiles
from goffish.spark.ingest.work import Files, spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Holds the text of a line that does not follow its format.
_CORRUPT = "_goffish_corrupt"
#: Quotes inside quotes are doubled, as every spreadsheet writes them (RFC 4180); Spark's own default is a backslash.
_CSV_DEFAULTS = {"quote": '"', "escape": '"'}


def open_inputs(spark: SparkSession, spec: IngestSpec) -> list[DataFrame]:
    """One table for each input.

    Returns
    -------
    Tables with the columns ``raw`` (a struct of the input's columns), ``line`` (the text of the row where it is known,
    else null), ``malformed``, ``file``, ``block`` and ``at``. Sorting by the last three gives the order of the rows in
    the files however Spark splits them.

    Raises
    ------
    InputError
        A path that does not exist, a format that is not installed.
    """
    return [_open(spark, item, f"inputs[{number}]", spec) for number, item in enumerate(spec.inputs)]


def column_of(table: DataFrame, name: str | int, field: str) -> Any:
    """The expression of a column that the specification names.

    Raises
    ------
    InputError
        There is no such column; the message lists those there are.
    """
    from pyspark.sql import functions as F

    names = [f.name for f in table.schema["raw"].dataType.fields if f.name != _CORRUPT]
    if isinstance(name, int):
        if not 0 <= name < len(names):
            raise InputError(f"{field} = {name}: the file has {len(names)} columns, numbered from 0")
        name = names[name]
    if name not in names:
        raise InputError(f"{field} = {name!r}: no such column; available: {', '.join(names)}")
    return F.col("raw")[name]


def versions(spark: SparkSession, tables: list[DataFrame]) -> list[tuple[str, int, int]]:
    """Path, size and time of the last change of every input file: other values mean other rows."""
    found: list[tuple[str, int, int]] = []
    for table in tables:
        found += [(file, *Files(spark, file).version(file)) for file in sorted(table.inputFiles())]
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


def _open(spark: SparkSession, item: InputFiles, field: str, spec: IngestSpec) -> DataFrame:
    paths = [spark_path(path, spark) for path in item.paths]
    if not paths:
        raise InputError(f"{field}.path is empty; expected a path or a list of paths")
    try:
        table = _read(spark, item, paths, _fields(spec) if item.format == "json" else [])
    except InputError:
        raise
    except Exception as error:
        told = first_line(error)
        if "Failed to find data source: avro" in told:
            version = spark.version
            raise InputError(
                f"{field}.format = 'avro': the Spark package for Avro is not loaded; add "
                f"--packages org.apache.spark:spark-avro_2.13:{version}, or "
                f'session(packages=("org.apache.spark:spark-avro_2.13:{version}",))'
            ) from None
        if "UNABLE_TO_INFER_SCHEMA" in told:
            raise InputError(f"{field}: no {item.format} files in {', '.join(item.paths)}") from None
        raise (unreadable(error) or InputError(f"{field}: {told}")) from None
    if not table.schema["raw"].dataType.fields:
        raise InputError(f"{field}: no columns in {', '.join(item.paths)}")
    return table


def _place() -> list[Any]:
    from pyspark.sql import functions as F

    return [
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("at"),
    ]


def _read(spark: SparkSession, item: InputFiles, paths: list[str], fields: list[str]) -> DataFrame:
    from pyspark.sql import functions as F

    reader = spark.read.options(**item.options)
    if item.format == "json":
        # Read line by line: numbers keep their digits, and the line is at hand when it has to be put aside.
        lines = reader.text(paths).select("value", *_place()).where(F.trim("value") != "")
        options = {**{k: str(v) for k, v in item.options.items()}, "columnNameOfCorruptRecord": _CORRUPT}
        raw = F.from_json("value", _texts(fields), options)
        return lines.select(
            raw.alias("raw"), F.col("value").alias("line"),
            (raw.isNull() | raw[_CORRUPT].isNotNull()).alias("malformed"), "file", "block", "at",
        )  # fmt: skip
    if item.format == "csv":
        given = {name.lower() for name in item.options}
        options = {name: value for name, value in _CSV_DEFAULTS.items() if name not in given}
        names = reader.options(**options).csv(paths).columns
        table = (
            reader.options(**options, mode="PERMISSIVE", columnNameOfCorruptRecord=_CORRUPT, enforceSchema=False)
            .schema(_texts(names))
            .csv(paths)
        )
        line = F.col(_CORRUPT)
    else:
        table = reader.format(item.format).load(paths)
        names, line = table.columns, F.lit(None).cast("string")
    return table.select(
        F.struct(*(F.col(_quoted(name)).alias(name) for name in names)).alias("raw"),
        line.alias("line"), line.isNotNull().alias("malformed"), *_place(),
    )  # fmt: skip


def _fields(spec: IngestSpec) -> list[str]:
    """The fields of JSON objects that the specification uses."""
    columns = [spec.source, spec.target, *(c.column for c in (spec.weight, spec.timestamp) if c is not None)]
    columns += [name if a.column is None else a.column for name, a in spec.attributes.items()]
    for name in columns:
        if isinstance(name, int):
            raise InputError(f"column {name}: JSON fields are selected by name, not by number")
    return list(dict.fromkeys(str(name) for name in columns))


def _texts(names: list[str]) -> str:
    return ", ".join(f"{_quoted(name)} string" for name in (*names, _CORRUPT))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

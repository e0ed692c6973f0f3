"""Cleaning: every row becomes an edge or names the rule that stopped it."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from goffish.spark.ingest.sources import column_of
from goffish.spark.ingest.spec import IngestSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Decimal numbers; Java alone would also take ``1.0f`` and hexadecimal ones.
_REAL = r"(?i)^\s*[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity)\s*$"
_NAN = r"(?i)^\s*[+-]?nan\s*$"
#: A date, and perhaps a time: Spark alone would also take a time of today.
_ISO = r"^\s*\d{4}-\d{2}-\d{2}([T ].*)?$"
_SQL_TYPES = {"integer": "bigint", "real": "double", "text": "string", "boolean": "boolean"}
#: What orders the rows as they stand in the files.
ORDER = ("input", "file", "block", "at")


def parsed_rows(tables: list[DataFrame], spec: IngestSpec) -> DataFrame:
    """Rows of all inputs with their values, or with the rule that stops them.

    Returns
    -------
    Columns `ORDER`, ``source``, ``target``, ``weight``, ``time`` (microseconds since 1970) where the specification has
    them, ``a0`` … the attributes in their order, ``rule`` (null: the row is an edge) and ``row`` (the raw row as JSON
    or as the line was; null for edges unless duplicates are put aside later).

    Notes
    -----
    The first rule that applies is named: ``malformed``, ``source_missing``, ``source_unreadable``, the same for the
    target, weight and timestamp, ``attribute_unreadable.NAME``, ``weight_not_finite``, ``weight_negative``,
    ``weight_zero``, ``self_loop``, ``outside_window``.
    """
    parts = [_parsed(table, spec, number) for number, table in enumerate(tables)]
    return reduce(lambda one, other: one.unionByName(other), parts)


def value_columns(spec: IngestSpec) -> list[str]:
    """Columns that hold the values of an edge."""
    return ([] if spec.weight is None else ["weight"]) + [f"a{at}" for at in range(len(spec.attributes))]


def _parsed(table: DataFrame, spec: IngestSpec, number: int) -> DataFrame:
    from pyspark.sql import functions as F

    item = spec.inputs[number]
    rules: list[tuple[str, Any]] = [("malformed", F.col("malformed"))]
    columns: dict[str, Any] = {}
    for name in ("source", "target"):
        raw = column_of(table, item, getattr(spec, name), name)
        columns[name] = _label(raw, spec.labels)
        rules += _readable(name, raw, name)
    if spec.weight is not None:
        raw = column_of(table, item, spec.weight.column, "weight.column")
        default = F.lit(spec.weight.default).cast("double")
        # Adding zero makes the negative zero an ordinary one.
        columns["weight"] = F.when(_missing(raw), default).otherwise(_real(raw) + F.lit(0.0))
        missing = [] if spec.weight.default is not None else [("weight_missing", _missing(raw))]
        rules += [*missing, ("weight_unreadable", ~_missing(raw) & F.col("weight").isNull())]
    if spec.timestamp is not None:
        raw = column_of(table, item, spec.timestamp.column, "timestamp.column")
        columns["time"] = _micros(raw, spec.timestamp.format)
        rules += _readable("timestamp", raw, "time")
    for at, (name, attribute) in enumerate(spec.attributes.items()):
        place = name if attribute.column is None else attribute.column
        raw = column_of(table, item, place, f"attributes.{name}")
        columns[f"a{at}"] = _attribute(raw, attribute.type)
        rules.append((f"attribute_unreadable.{name}", ~_missing(raw) & F.col(f"a{at}").isNull()))
    rules += _value_rules(spec)
    ready = table.select(
        F.lit(number).alias("input"), "file", "block", "at", "raw", "line", "malformed",
        *(value.alias(name) for name, value in columns.items()),
    )  # fmt: skip
    # The conditions on values look at the columns above; those on raw columns at the struct.
    rule = F.coalesce(*(F.when(stops, F.lit(name)) for name, stops in rules))
    row = F.coalesce("line", F.to_json("raw", {"ignoreNullFields": "false"}))
    kept = row if spec.clean.duplicates == "drop" else F.when(F.col("rule").isNotNull(), row)
    return ready.withColumn("rule", rule).withColumn("row", kept).drop("raw", "line", "malformed")


def _value_rules(spec: IngestSpec) -> list[tuple[str, Any]]:
    from pyspark.sql import functions as F

    rules: list[tuple[str, Any]] = []
    if spec.weight is not None:
        weight = F.col("weight")
        endless = weight.isin(float("inf"), float("-inf"))
        rules += [("weight_not_finite", F.isnan(weight) | endless), ("weight_negative", weight < 0)]
        if spec.clean.zero_weights == "drop":
            rules.append(("weight_zero", weight == 0))
    if spec.clean.self_loops == "drop":
        rules.append(("self_loop", F.col("source") == F.col("target")))
    window = spec.clean.window
    early = window.start if window is not None else None
    late = window.end if window is not None else None
    if spec.instances is not None and spec.instances.start is not None:
        early = spec.instances.start if early is None else max(early, spec.instances.start)
    if early is not None:
        rules.append(("outside_window", F.col("time") < early))
    if late is not None:
        rules.append(("outside_window", F.col("time") >= late))
    return rules


def _readable(name: str, raw: Any, column: str) -> list[tuple[str, Any]]:
    from pyspark.sql import functions as F

    return [(f"{name}_missing", _missing(raw)), (f"{name}_unreadable", F.col(column).isNull())]


def _missing(raw: Any) -> Any:
    return raw.isNull() | (raw.cast("string") == "")


def _label(raw: Any, kind: str) -> Any:
    from pyspark.sql import functions as F

    text = raw.cast("string")
    return F.when(text != "", text) if kind == "text" else text.try_cast("bigint")


def _real(raw: Any) -> Any:
    from pyspark.sql import functions as F

    text = raw.cast("string")
    number = F.when(text.rlike(_REAL), F.trim(text).try_cast("double"))
    return F.coalesce(number, F.when(text.rlike(_NAN), F.lit(float("nan"))))


def _attribute(raw: Any, kind: str) -> Any:
    if kind == "real":
        return _real(raw)
    return raw.cast("string").try_cast(_SQL_TYPES[kind])


def _micros(raw: Any, form: str) -> Any:
    """Microseconds since 1970 of a column of texts, numbers, dates or timestamps."""
    from pyspark.sql import functions as F

    text = raw.cast("string")
    if form in ("epoch_s", "epoch_ms"):
        factor = 1_000_000 if form == "epoch_s" else 1000
        return (text.try_cast("decimal(20,6)") * factor).try_cast("bigint")
    if form == "iso":
        moment = F.when(text.rlike(_ISO), F.try_to_timestamp(text))
    else:
        moment = F.try_to_timestamp(text, F.lit(form))
    return F.unix_micros(moment)

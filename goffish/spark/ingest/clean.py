"""Cleaning: every row becomes an edge, or values of a vertex, or names the rule that stopped it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from goffish.spark.ingest.sources import column_of
from goffish.spark.ingest.spec import (
    AttributeColumn,
    ColumnName,
    IngestSpec,
    Input,
    TimeColumn,
    VertexTable,
    WeightColumn,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Decimal numbers; Java alone would also take ``1.0f`` and hexadecimal ones.
_REAL = r"(?i)^\s*[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity)\s*$"
_NAN = r"(?i)^\s*[+-]?nan\s*$"
#: A date, and perhaps a time: Spark alone would also take a time of today.
_ISO = r"^\s*\d{4}-\d{2}-\d{2}([T ].*)?$"
#: Types of lists, and of their values.
_LISTS = {"integers": "integer", "texts": "text"}
_SQL_TYPES = {"text": "string", "boolean": "boolean"}
#: Types of columns that need no look at the text of a value.
_WHOLE = ("byte", "short", "integer", "long")
_NUMBERS = (*_WHOLE, "float", "double", "decimal", "boolean", "date", "timestamp", "timestamp_ntz")
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


def parsed_vertices(tables: list[DataFrame], part: VertexTable, spec: IngestSpec, within: str, first: int) -> DataFrame:
    """Rows of a table of vertices with their values, or with the rule that stops them.

    Returns
    -------
    Columns `ORDER`, ``label``, ``time`` where the table has them, ``a0`` … the attributes in their order, ``rule`` and
    ``row`` as those of `parsed_rows`; inputs are numbered from `first`.

    Notes
    -----
    Rules: ``malformed``, ``vertex_missing``, ``vertex_unreadable``, the same for the timestamp,
    ``attribute_unreadable.NAME``, ``outside_window``.
    """
    parts = []
    for number, (table, item) in enumerate(zip(tables, part.inputs, strict=True)):
        values = _Values(table, item, within)
        values.label("vertex", part.vertex, spec.labels, "label")
        values.time(part.timestamp)
        values.attributes(part.attributes)
        if part.timestamp is not None:
            values.rules += _window_rules(spec)
        parts.append(values.ready(first + number, every_row=True))
    return reduce(lambda one, other: one.unionByName(other), parts)


def _parsed(table: DataFrame, spec: IngestSpec, number: int) -> DataFrame:
    values = _Values(table, spec.inputs[number])
    for name in ("source", "target"):
        values.label(name, getattr(spec, name), spec.labels, name)
    values.weight(spec.weight)
    values.time(spec.timestamp)
    values.instance(spec.inputs[number].instance)
    values.attributes(spec.attributes)
    values.rules += _value_rules(spec)
    return values.ready(number, every_row=spec.clean.duplicates == "drop")


class _Values:
    """The columns of an input as values, and the rules that stop its rows, in their order.

    Attributes
    ----------
    within : str
        Field of the specification that names the columns, for errors.
    """

    def __init__(self, table: DataFrame, item: Input, within: str = "") -> None:
        from pyspark.sql import functions as F

        self._table, self._item, self._within = table, item, within
        self._columns: dict[str, Any] = {}
        self.rules: list[tuple[str, Any]] = [("malformed", F.col("malformed"))]

    def _raw(self, name: ColumnName, field: str) -> tuple[Any, str]:
        """A column and the name of its type."""
        raw = column_of(self._table, self._item, name, f"{self._within}{field}")
        return raw, self._table.select(raw).schema[0].dataType.typeName()

    def label(self, field: str, column: ColumnName, kind: str, name: str) -> None:
        raw, found = self._raw(column, field)
        self._columns[name] = _label(raw, found, kind)
        self.rules += _readable(field, raw, found, name)

    def weight(self, given: WeightColumn | None) -> None:
        from pyspark.sql import functions as F

        if given is None:
            return
        raw, found = self._raw(given.column, "weight.column")
        missing = _missing(raw, found)
        default = F.lit(given.default).cast("double")
        # Adding zero makes the negative zero an ordinary one.
        self._columns["weight"] = F.when(missing, default).otherwise(_real(raw, found) + F.lit(0.0))
        if given.default is None:
            self.rules.append(("weight_missing", missing))
        self.rules.append(("weight_unreadable", ~missing & F.col("weight").isNull()))

    def time(self, given: TimeColumn | None) -> None:
        if given is None:
            return
        raw, found = self._raw(given.column, "timestamp.column")
        self._columns["time"] = _micros(raw, given.format)
        self.rules += _readable("timestamp", raw, found, "time")

    def instance(self, number: int | None) -> None:
        from pyspark.sql import functions as F

        if number is not None:
            self._columns["time"] = F.lit(number).cast("bigint")

    def attributes(self, given: Mapping[str, AttributeColumn]) -> None:
        from pyspark.sql import functions as F

        for at, (name, attribute) in enumerate(given.items()):
            raw, found = self._raw(name if attribute.column is None else attribute.column, f"attributes.{name}")
            if attribute.type in _LISTS:
                texts = _texts(raw, found, json=self._item.format == "json")
                self._columns[f"a{at}"] = _list(texts, _LISTS[attribute.type])
                bad = F.exists(F.col(f"a{at}"), lambda value: value.isNull())
            else:
                self._columns[f"a{at}"] = _attribute(raw, found, attribute.type)
                bad = ~_missing(raw, found) & F.col(f"a{at}").isNull()
            self.rules.append((f"attribute_unreadable.{name}", bad))

    def ready(self, number: int, *, every_row: bool) -> DataFrame:
        """The rows of the input, with the raw row of those that are stopped, or of all."""
        from pyspark.sql import functions as F

        ready = self._table.select(
            F.lit(number).alias("input"), "file", "block", "at", "raw", "line", "malformed",
            *(value.alias(name) for name, value in self._columns.items()),
        )  # fmt: skip
        # The conditions on values look at the columns above; those on raw columns at the struct.
        rule = F.coalesce(*(F.when(stops, F.lit(name)) for name, stops in self.rules))
        row = F.coalesce("line", F.to_json("raw", {"ignoreNullFields": "false"}))
        kept = row if every_row else F.when(F.col("rule").isNotNull(), row)
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
    return rules + _window_rules(spec)


def _window_rules(spec: IngestSpec) -> list[tuple[str, Any]]:
    from pyspark.sql import functions as F

    rules: list[tuple[str, Any]] = []
    window = spec.clean.window
    early = window.start if window is not None else None
    late = window.end if window is not None else None
    if spec.instances is not None and spec.instances.start is not None and not spec.by_version:
        early = spec.instances.start if early is None else max(early, spec.instances.start)
    if early is not None:
        rules.append(("outside_window", F.col("time") < early))
    if late is not None:
        rules.append(("outside_window", F.col("time") >= late))
    return rules


def _readable(name: str, raw: Any, found: str, column: str) -> list[tuple[str, Any]]:
    from pyspark.sql import functions as F

    return [(f"{name}_missing", _missing(raw, found)), (f"{name}_unreadable", F.col(column).isNull())]


def _missing(raw: Any, found: str) -> Any:
    return raw.isNull() if found in _NUMBERS else raw.isNull() | (raw.cast("string") == "")


def _label(raw: Any, found: str, kind: str) -> Any:
    from pyspark.sql import functions as F

    if kind == "integer":
        return raw.cast("bigint") if found in _WHOLE else raw.cast("string").try_cast("bigint")
    text = raw.cast("string")
    return F.when(text != "", text)


def _real(raw: Any, found: str) -> Any:
    from pyspark.sql import functions as F

    if found == "double":
        return raw
    text = raw.cast("string")
    number = F.trim(text).try_cast("double")
    # What Java alone takes begins or ends with another character, or has an x; a pattern takes longer to check.
    first, last = F.substring(F.ltrim(text), 1, 1), F.substring(F.rtrim(text), -1, 1)
    plain = first.isin(*"0123456789.+-") & last.isin(*"0123456789.") & ~F.lower(text).contains("x")
    decimal = F.when(plain | text.rlike(_REAL), number)
    return F.coalesce(decimal, F.when(text.rlike(_NAN), F.lit(float("nan"))))


def _attribute(raw: Any, found: str, kind: str) -> Any:
    if kind == "real":
        return _real(raw, found)
    if kind == "integer":
        return _label(raw, found, kind)
    return raw.cast("string").try_cast(_SQL_TYPES[kind])


def _texts(raw: Any, found: str, *, json: bool) -> Any:
    """An array of texts: of an array, of the text of a JSON array, or of a single value."""
    from pyspark.sql import functions as F

    alone = F.when(~_missing(raw, found), F.array(raw.cast("string"))) if found != "array" else raw
    if json:
        alone = F.coalesce(F.when(F.trim(raw).startswith("["), F.from_json(raw, "array<string>")), alone)
    return F.filter(alone.cast("array<string>"), lambda value: value.isNotNull() & (value != ""))


def _list(texts: Any, kind: str) -> Any:
    from pyspark.sql import functions as F

    return F.transform(texts, lambda value: _attribute(value, "string", kind))


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

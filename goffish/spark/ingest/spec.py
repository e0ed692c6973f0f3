"""The YAML file of an ingest job: which inputs, which columns, which rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator, model_validator

from goffish.definitions import Definition, duration_s, read_definition
from goffish.gofs.series import Attribute
from goffish.gofs.series.model import EXISTS

Format = Literal["csv", "json", "parquet", "orc", "avro", "delta", "iceberg", "jdbc", "kafka"]
Duplicates = Literal["min", "sum", "first", "drop", "keep"]
ColumnName = Annotated[str | int, Field(union_mode="left_to_right")]

#: Types of attributes, as GoFS names them.
GOFS_TYPES = {
    "integer": "int64", "real": "float64", "text": "string", "boolean": "bool", "integers": "list<int64>",
    "texts": "list<string>",
}  # fmt: skip
_MICROS = 1_000_000
#: Options of Spark's readers that would change what a row is, or hide rows.
_OWN_OPTIONS = {
    "mode", "columnnameofcorruptrecord", "inferschema", "enforceschema", "schema", "mergeschema", "subscribe",
    "subscribepattern", "assign", "failondataloss",
}  # fmt: skip


def _as_period(value: Any) -> int:
    """Microseconds of ``15min``, ``1h``, ``2d``, ``1w``, or of a number of seconds."""
    seconds = None if isinstance(value, bool) else duration_s(str(value), "s")
    micros = 0 if seconds is None else round(seconds * _MICROS)
    if not 0 < micros < 2**62:
        raise ValueError("expected a duration such as 30s, 15min, 1h, 1d or 1w")
    return micros


def _as_moment(value: Any) -> int:
    """Microseconds since 1970 (UTC) of a date, a date and time, or a number of seconds."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if isinstance(value, datetime):
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            since = moment - datetime(1970, 1, 1, tzinfo=UTC)
            return (since.days * 86_400 + since.seconds) * _MICROS + since.microseconds
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**42:
            return round(value * _MICROS)
    except ValueError:
        pass
    raise ValueError("expected a date, a date and time (UTC by default), or seconds since 1970")


Period = Annotated[int, BeforeValidator(_as_period, json_schema_input_type=str | int)]
Moment = Annotated[int, BeforeValidator(_as_moment, json_schema_input_type=str | int)]


class Input(Definition):
    """Rows of one kind: files, a table, or a query; one of `path`, `table` and `query`, and none with ``jdbc``.

    Attributes
    ----------
    path : str or list of str, optional
        Paths or URIs that Spark's connectors read, with globs; .gz and .bz2 files are decompressed. One table for
        ``delta`` and ``iceberg``. Topics of ``kafka``.
    table : str, optional
        A table or view of the Spark catalog, such as ``trips`` or ``catalog.database.trips``.
    query : str, optional
        A SELECT statement of Spark SQL.
    format : {"csv", "json", "parquet", "orc", "avro", "delta", "iceberg", "jdbc", "kafka"}
        Of `path`. ``json``: one object per line; ``kafka``: one per message. ``avro``, ``delta``, ``iceberg`` and
        ``kafka`` require packages, ``jdbc`` a driver.
    options : mapping
        Options of Spark's reader, such as ``header``, ``sep``, ``comment``, ``versionAsOf``, ``url`` and ``dbtable``.
        ``env:NAME`` is the value of an environment variable.
    columns : mapping
        Columns of this input, by the names that the other fields use; default: those names.
    """

    path: str | list[str] | None = None
    table: str | None = Field(default=None, min_length=1)
    query: str | None = Field(default=None, min_length=1)
    format: Format = "csv"
    options: dict[str, bool | int | float | str] = {}
    columns: dict[str, ColumnName] = {}
    #: Files of a Delta table that are read, for incremental loads, and the instance that a version is.
    _only: frozenset[str] | None = PrivateAttr(default=None)
    _instance: int | None = PrivateAttr(default=None)

    @field_validator("options")
    @classmethod
    def _not_ours(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name in options:
            if name.lower() in _OWN_OPTIONS:
                raise ValueError(f"{name} is set by GoFFish so that no row is lost; omit it")
        return options

    @model_validator(mode="after")
    def _one_source(self) -> Input:
        given = [name for name in ("path", "table", "query") if getattr(self, name) is not None]
        if self.format == "jdbc":
            if given:
                raise ValueError(f"{given[0]} is not for format: jdbc; set options.url, and options.dbtable or query")
        elif len(given) != 1:
            raise ValueError("give one of path, table and query")
        if self.table is not None or self.query is not None:
            for name in ("format", "options"):
                if name in self.model_fields_set:
                    raise ValueError(f"{name} is for files; omit it with {given[0]}")
        elif self.format == "kafka" and "kafka.bootstrap.servers" not in self.options:
            raise ValueError("options.kafka.bootstrap.servers is required for format: kafka")
        elif self.format in ("delta", "iceberg") and not isinstance(self.path, str):
            raise ValueError(f"path is a list; format: {self.format} takes one table")
        return self

    def restricted(self, files: Iterable[str]) -> Input:
        """The same Delta table, of which only some files are read."""
        made = self.model_copy()
        made._only = frozenset(files)
        return made

    def at_version(self, version: str, instance: int) -> Input:
        """A version of the table, whose rows are those of an instance."""
        made = self.model_copy(update={"options": {**self.options, "versionAsOf": version}})
        made._instance = instance
        return made

    @property
    def instance(self) -> int | None:
        """The instance that all rows belong to; default: their time says so."""
        return self._instance

    @property
    def only(self) -> frozenset[str] | None:
        """Names of the files that are read of a Delta table; default: all."""
        return self._only

    @property
    def paths(self) -> list[str]:
        """Files; empty for tables and queries."""
        return [] if self.format in ("delta", "iceberg", "kafka") else self.names

    @property
    def names(self) -> list[str]:
        """The paths of files or tables, or the topics, as a list."""
        if self.path is None:
            return []
        return [self.path] if isinstance(self.path, str) else list(self.path)

    @property
    def place(self) -> str:
        """Where the rows come from, for reports; the quarantine names it as their file."""
        for text in (self.table, self.path, None if self.query is None else "query"):
            if isinstance(text, str):
                return text
        return "jdbc" if self.format == "jdbc" else ", ".join(self.names)


class WeightColumn(Definition):
    """The column of weights. The column alone may be given instead.

    Attributes
    ----------
    column : str or int
        Name, or position from 0.
    default : float, optional
        Weight of rows without one; default: such rows are rejected.
    """

    column: ColumnName
    default: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)


class TimeColumn(Definition):
    """The column of timestamps. The column alone may be given instead.

    Attributes
    ----------
    column : str or int
        Name, or position from 0.
    format : str
        ``iso`` (UTC unless the text names a time zone), ``epoch_s``, ``epoch_ms``, or a pattern of Spark such as
        ``dd/MM/yyyy HH:mm``.
    """

    column: ColumnName
    format: str = "iso"


class AttributeColumn(Definition):
    """A column that is kept as an attribute of the edges. The type alone may be given instead.

    Attributes
    ----------
    type : {"integer", "real", "text", "boolean"}
    column : str or int, optional
        Name, or position from 0; default: the name of the attribute.
    """

    type: Literal["integer", "real", "text", "boolean"]
    column: ColumnName | None = None


class VertexAttribute(AttributeColumn):
    """A column that is kept as an attribute of the vertices. The type alone may be given instead.

    Attributes
    ----------
    type : {"integer", "real", "text", "boolean", "integers", "texts"}
        The last two are lists of all values in an instance; they require the `timestamp` of the table.
    column : str or int, optional
        Name, or position from 0; default: the name of the attribute. Of lists also a column of arrays.
    default : bool, int, float or str, optional
        Value of a vertex in an instance without a row for it; default: none, or the empty list. Requires `timestamp`.
    """

    type: Literal["integer", "real", "text", "boolean", "integers", "texts"]  # type: ignore[assignment]
    default: bool | int | float | str | None = None

    @property
    def is_list(self) -> bool:
        return self.type in ("integers", "texts")


class TimeRange(Definition):
    """A range of time.

    Attributes
    ----------
    start : date, optional
        Inclusive.
    end : date, optional
        Exclusive.
    """

    start: Moment | None = None
    end: Moment | None = None


class CleaningRules(Definition):
    """Rows that are rejected or merged.

    Attributes
    ----------
    self_loops, zero_weights : {"drop", "keep"}
        Whether rows with equal ends, or with weight 0, are rejected.
    duplicates : {"min", "sum", "first", "drop", "keep"}
        Weight of an edge with several rows; ``drop`` quarantines every row but the first.
    window : TimeRange, optional
        Rows outside of it are rejected.
    """

    self_loops: Literal["drop", "keep"] = "drop"
    zero_weights: Literal["drop", "keep"] = "keep"
    duplicates: Duplicates = "min"
    window: TimeRange | None = None


class InstanceRules(Definition):
    """Division of the time into instances: instance i holds the rows from ``start + i · period``, or a table version.

    Attributes
    ----------
    by : {"time", "version"}
        ``version``: every version of a Delta table or snapshot of an Iceberg table is an instance with all rows that
        the table had; it starts when the version was committed.
    period : str, optional
        Such as ``15min``, ``1h``, ``1d`` or ``1w``. Required by time.
    start : date, optional
        Default: the multiple of the period before the first row; the first version that the table still has.
    pack : int
        Instances per slice file.
    bins : int
        Groups of subgraphs of a partition that can be read separately.
    """

    by: Literal["time", "version"] = "time"
    period: Period | None = None
    start: Moment | None = None
    pack: int = Field(default=10, ge=1, le=1_000_000, strict=True)
    bins: int = Field(default=5, ge=1, le=100_000, strict=True)

    @model_validator(mode="after")
    def _fits_together(self) -> InstanceRules:
        if (self.period is None) != (self.by == "version"):
            raise ValueError("period is required" if self.period is None else "period is not for by: version; omit it")
        return self


class PartitionRules(Definition):
    """Division of the vertices into partitions.

    Attributes
    ----------
    parts : int
        Number of partitions.
    method : {"auto", "metis", "fennel"}
        ``auto`` is METIS up to `metis_limit` edges, and Fennel above.
    metis_limit : int
        Edges.
    imbalance : float, optional
        Largest partition relative to the mean; default: that of the method.
    seed : int
        Of the random choices of METIS.
    """

    parts: int = Field(default=4, ge=1, le=65_536, strict=True)
    method: Literal["auto", "metis", "fennel"] = "auto"
    metis_limit: int = Field(default=20_000_000, ge=0, strict=True)
    imbalance: float | None = Field(default=None, ge=1.0, le=1000.0)
    seed: int = Field(default=0, ge=0, lt=2**31, strict=True)


def _column_alone(value: Any) -> Any:
    return {"column": value} if isinstance(value, str | int) and not isinstance(value, bool) else value


def _type_alone(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in value.items()}


Timestamp = Annotated[TimeColumn | None, BeforeValidator(_column_alone)]


def _attribute_of(name: str, kind: str, default: Any = None) -> Attribute:
    """An attribute as GoFS stores it; raises `InputError` for a bad name or default."""
    return Attribute(name, GOFS_TYPES[kind], default)


class VertexTable(Definition):
    """Rows that describe vertices: their attributes, or with `timestamp` their values over time.

    A vertex without edges is in the graph as well. The first row of a vertex (and instance) counts; rows that say the
    same are merged with it, and others are rejected.

    Attributes
    ----------
    inputs : list of Input
    vertex : str or int
        Column with the label: name, or position from 0; ``user.id`` is a field of a nested column.
    timestamp : TimeColumn, optional
        Default: the attributes hold at all times. Requires `instances`.
    attributes : mapping of VertexAttribute
        Columns to keep; without any, the table only lists vertices.
    """

    inputs: list[Input] = Field(min_length=1)
    vertex: ColumnName
    timestamp: Timestamp = None
    attributes: Annotated[dict[str, VertexAttribute], BeforeValidator(_type_alone)] = {}

    @model_validator(mode="after")
    def _fits_together(self) -> VertexTable:
        for name, one in self.attributes.items():
            if self.timestamp is None and (one.is_list or one.default is not None):
                what = f"type {one.type}" if one.is_list else "default"
                raise ValueError(f"attributes.{name}: {what} requires the field timestamp")
            _attribute_of(name, one.type, one.default)
        if self.timestamp is not None and not self.attributes:
            raise ValueError("timestamp requires attributes")
        return self

    @property
    def columns(self) -> list[ColumnName]:
        """Columns of the inputs that are read."""
        return [self.vertex, *_columns_of(self.timestamp), *_columns_of_attributes(self.attributes)]

    @property
    def attribute_types(self) -> dict[str, str]:
        return {name: attribute.type for name, attribute in self.attributes.items()}

    @property
    def values(self) -> tuple[Attribute, ...]:
        """The attributes of a time series."""
        return tuple(
            _attribute_of(name, one.type, () if one.is_list else one.default) for name, one in self.attributes.items()
        )


def _columns_of(*fields: WeightColumn | TimeColumn | None) -> list[ColumnName]:
    return [field.column for field in fields if field is not None]


def _columns_of_attributes(attributes: Mapping[str, AttributeColumn]) -> list[ColumnName]:
    return [name if one.column is None else one.column for name, one in attributes.items()]


class IngestSpec(Definition):
    """An ingest job. Dates and times are ISO 8601 (UTC by default) or seconds since 1970.

    Attributes
    ----------
    inputs : list of Input
    source, target : str or int
        Columns with the ends of an edge: name, or position from 0; ``user.id`` is a field of a nested column.
    labels : {"integer", "text"}
        Type of the vertex labels.
    directed : bool
        Whether edges have a direction.
    weight : WeightColumn, optional
    timestamp : TimeColumn, optional
        Required with `instances` and `clean.window`.
    attributes : mapping of AttributeColumn
        Further columns to keep on the edges.
    vertices : list of VertexTable
        Tables of vertices. A single one may be given alone.
    clean : CleaningRules
    instances : InstanceRules, optional
        Default: one graph for all times.
    partition : PartitionRules
    """

    inputs: list[Input] = Field(min_length=1)
    source: ColumnName
    target: ColumnName
    labels: Literal["integer", "text"] = "integer"
    directed: bool = Field(default=False, strict=True)
    weight: Annotated[WeightColumn | None, BeforeValidator(_column_alone)] = None
    timestamp: Timestamp = None
    attributes: Annotated[dict[str, AttributeColumn], BeforeValidator(_type_alone)] = {}
    vertices: list[VertexTable] = []
    clean: CleaningRules = CleaningRules()
    instances: InstanceRules | None = None
    partition: PartitionRules = PartitionRules()

    @field_validator("vertices", mode="before")
    @classmethod
    def _table_alone(cls, value: Any) -> Any:
        return [value] if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _fits_together(self) -> IngestSpec:
        if self.by_version:
            self._check_versions()
        if self.timestamp is None:
            timed = None if self.by_version else self.instances
            for name, given in (("clean.window", self.clean.window), ("instances", timed)):
                if given is not None:
                    raise ValueError(f"{name} requires the field timestamp")
        if self.instances is not None and self.clean.duplicates == "keep":
            raise ValueError("clean.duplicates: keep is not supported with instances, in which an edge has one value")
        if "weight" in self.attributes:
            raise ValueError("attributes.weight: reserved name; use the field weight or another name")
        if self.instances is not None and EXISTS in self.attributes:
            raise ValueError(f"attributes.{EXISTS}: reserved name with instances; use another name")
        for name, one in self.attributes.items():
            _attribute_of(name, one.type)
        self._check_vertices()
        return self

    def _check_versions(self) -> None:
        if self.timestamp is not None or any(table.timestamp is not None for table in self.vertices):
            raise ValueError("timestamp is not for instances.by: version; omit it")
        if len(self.inputs) != 1 or self.inputs[0].format not in ("delta", "iceberg"):
            raise ValueError("instances.by: version requires one input with format: delta or iceberg")
        if any(name.lower() in ("versionasof", "timestampasof") for name in self.inputs[0].options):
            raise ValueError("inputs[0].options: instances.by: version reads all versions; omit the version")

    @property
    def by_version(self) -> bool:
        """Whether the instances are versions of a table."""
        return self.instances is not None and self.instances.by == "version"

    @property
    def timed(self) -> bool:
        """Whether rows have a time: a moment, or the number of a version."""
        return self.timestamp is not None or self.by_version

    def _check_vertices(self) -> None:
        owner: dict[str, int] = {}
        for at, table in enumerate(self.vertices):
            if table.timestamp is not None and self.instances is None:
                raise ValueError(f"vertices[{at}].timestamp requires the field instances")
            for name in table.attributes:
                if owner.setdefault(name, at) != at:
                    raise ValueError(
                        f"vertices[{at}].attributes.{name}: vertices[{owner[name]}] has this attribute; "
                        "use another name, or one table with several inputs"
                    )

    @property
    def columns(self) -> list[ColumnName]:
        """Columns of the inputs of edges that are read."""
        ends = [self.source, self.target]
        return [*ends, *_columns_of(self.weight, self.timestamp), *_columns_of_attributes(self.attributes)]

    @property
    def every_input(self) -> list[Input]:
        """The inputs of edges, then those of the tables of vertices; their places are the numbers in the quarantine."""
        return [*self.inputs, *(item for table in self.vertices for item in table.inputs)]

    @property
    def attribute_types(self) -> dict[str, str]:
        return {name: attribute.type for name, attribute in self.attributes.items()}


def read_spec(spec: str | Path | Mapping[str, Any] | IngestSpec) -> IngestSpec:
    """Read and check the description of an ingest job.

    Parameters
    ----------
    spec
        A YAML (or JSON) file, or what such a file would hold.

    Raises
    ------
    InputError
        In one line: the file, the field, what is wrong and what is accepted. Also where PyYAML is missing.
    """
    return read_definition(IngestSpec, spec, "spec", "inputs, source and target")

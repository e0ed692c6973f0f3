"""The YAML file of an ingest job: which inputs, which columns, which rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from goffish.definitions import Definition, read_definition

Format = Literal["csv", "json", "parquet", "orc", "avro"]
Duplicates = Literal["min", "sum", "first", "drop", "keep"]
ColumnName = Annotated[str | int, Field(union_mode="left_to_right")]

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MICROS = 1_000_000
#: Options of Spark's readers that would change what a row is, or hide rows.
_OWN_OPTIONS = {"mode", "columnnameofcorruptrecord", "inferschema", "enforceschema", "schema", "mergeschema"}


def _as_period(value: Any) -> int:
    """Microseconds of ``15min``, ``1h``, ``2d``, ``1w``, or of a number of seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|w)?", str(value).strip())
    micros = 0
    if found and not isinstance(value, bool):
        micros = round(float(found[1]) * _UNITS[found[2] or "s"] * _MICROS)
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


Period = Annotated[int, BeforeValidator(_as_period)]
Moment = Annotated[int, BeforeValidator(_as_moment)]


class InputFiles(Definition):
    """Files of one format: paths or URIs that Spark's connectors read, with globs; compressed ones by their suffix."""

    path: str | list[str]
    format: Format = "csv"
    options: dict[str, bool | int | float | str] = {}

    @field_validator("options")
    @classmethod
    def _not_ours(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name in options:
            if name.lower() in _OWN_OPTIONS:
                raise ValueError(f"{name} is set by GoFFish so that no row is lost; omit it")
        return options

    @property
    def paths(self) -> list[str]:
        return [self.path] if isinstance(self.path, str) else list(self.path)


class WeightColumn(Definition):
    """The column of weights; `default` stands for a missing one."""

    column: ColumnName
    default: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)


class TimeColumn(Definition):
    """The column of timestamps.

    `format` is ``iso``, ``epoch_s``, ``epoch_ms``, or a pattern of Spark such as ``dd/MM/yyyy HH:mm``.
    """

    column: ColumnName
    format: str = "iso"


class AttributeColumn(Definition):
    """One attribute of the edges and its type."""

    type: Literal["integer", "real", "text", "boolean"]
    column: ColumnName | None = None


class TimeRange(Definition):
    """From (inclusive) until (exclusive)."""

    start: Moment | None = None
    end: Moment | None = None


class CleaningRules(Definition):
    """What is not an edge of the graph."""

    self_loops: Literal["drop", "keep"] = "drop"
    zero_weights: Literal["drop", "keep"] = "keep"
    duplicates: Duplicates = "min"
    window: TimeRange | None = None


class InstanceRules(Definition):
    """How time is cut: instance i holds the rows from ``start + i · period`` on, before the next one begins."""

    period: Period
    start: Moment | None = None
    pack: int = Field(default=10, ge=1, le=1_000_000, strict=True)
    bins: int = Field(default=5, ge=1, le=100_000, strict=True)


class PartitionRules(Definition):
    """Who owns which vertex."""

    parts: int = Field(default=4, ge=1, le=65_536, strict=True)
    method: Literal["auto", "metis", "fennel"] = "auto"
    metis_limit: int = Field(default=20_000_000, ge=0, strict=True)
    imbalance: float | None = Field(default=None, ge=1.0, le=1000.0)
    seed: int = Field(default=0, ge=0, lt=2**31, strict=True)


class IngestSpec(Definition):
    """An ingest job; see ``docs/guides/ingest.md`` for every field.

    Unknown fields are errors. Times are held in microseconds since 1970 (UTC).
    """

    inputs: list[InputFiles] = Field(min_length=1)
    source: ColumnName
    target: ColumnName
    labels: Literal["integer", "text"] = "integer"
    directed: bool = Field(default=False, strict=True)
    weight: WeightColumn | None = None
    timestamp: TimeColumn | None = None
    attributes: dict[str, AttributeColumn] = {}
    clean: CleaningRules = CleaningRules()
    instances: InstanceRules | None = None
    partition: PartitionRules = PartitionRules()

    @field_validator("weight", "timestamp", mode="before")
    @classmethod
    def _column_alone(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str | int) and not isinstance(value, bool) else value

    @field_validator("attributes", mode="before")
    @classmethod
    def _type_alone(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in value.items()}

    @model_validator(mode="after")
    def _fits_together(self) -> IngestSpec:
        if self.timestamp is None:
            for name, given in (("clean.window", self.clean.window), ("instances", self.instances)):
                if given is not None:
                    raise ValueError(f"{name} requires the field timestamp")
        if self.instances is not None and self.clean.duplicates == "keep":
            raise ValueError("clean.duplicates: keep is not supported with instances, in which an edge has one value")
        if "weight" in self.attributes:
            raise ValueError("attributes.weight: reserved name; use the field weight or another name")
        return self

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

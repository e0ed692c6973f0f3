"""Incremental loads: what a store has loaded, what is new since then, and the rows that the store already holds."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, Slice, open_store
from goffish.gofs.files import open_folder
from goffish.gofs.manifest import NAME, Manifest
from goffish.gofs.series import Series, open_series
from goffish.gofs.store import read_manifest
from goffish.gopher.spark.session import first_line
from goffish.gopher.spark.tasks import forget_archives
from goffish.spark.ingest.plan import ARROW_TYPES
from goffish.spark.ingest.sources import file_name, iceberg_snapshots, listed, offsets_of, table_at, table_versions
from goffish.spark.ingest.spec import IngestSpec, Input, VertexTable
from goffish.spark.ingest.work import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Number of the input that stands for the store, whose rows come before all others.
STORE_INPUT = -1
#: The piece of a file that the rows of the store are, as `goffish.spark.ingest.rows.ordered` counts them.
STORE_SPLIT = (STORE_INPUT, "", 0)

_VERSION = 1


class News(NamedTuple):
    """What an incremental load reads.

    `spec` reads new files and versions only, apart from the inputs in `skipped`, of which nothing is new; `loads` is
    what the store has loaded afterwards, for its manifest.
    """

    spec: IngestSpec
    skipped: frozenset[str]
    loads: Mapping[str, Any]

    @property
    def none(self) -> bool:
        """Whether there is nothing to read."""
        return len(self.skipped) == len(self.spec.every_input)


def find_news(
    spark: SparkSession, spec: IngestSpec, before: Manifest | None, store: str, moments: Sequence[int] = ()
) -> News:
    """Compare the inputs of a specification, whose tables have a pinned version, with what a store has loaded.

    Raises
    ------
    InputError
        The store was not loaded incrementally, or by other rules; an input has no version, or has changed other than by
        new rows.
    """
    rules = _rules(spec)
    loads: dict[str, Any] = {} if before is None else dict(before.loads)
    if before is not None and not loads:
        raise InputError(
            f"{store}: holds no record of what was loaded (not written with --incremental, or changed since then); "
            "load everything again into another place, with --incremental"
        )
    if before is not None and loads.get("rules") != rules:
        raise InputError(f"{store}: was loaded by another specification; only inputs and partition may differ")
    for at, table in enumerate(spec.vertices):
        if table.timestamp is not None:
            raise InputError(f"vertices[{at}].timestamp: values over time cannot be loaded incrementally")
    seen = {name: tuple(value) for name, value in loads.get("files", {}).items()}
    tables: dict[str, Any] = dict(loads.get("tables", {}))
    skipped = set()

    def narrowed(item: Input, field: str) -> Input:
        if item.instance is not None:
            key, version = _key(item), _version(item, field)
            if tables.get(key) == version:
                skipped.add(field)
            tables[key] = version
            return item
        if item.paths:
            new = _new_files(spark, item, field, seen)
            if not new:
                skipped.add(field)
                return item
            return item.model_copy(update={"path": new, "options": _with_base(spark, item, new)})
        if item.format == "kafka":
            key, (start, end) = _key(item), offsets_of(item)
            tables[key] = {
                topic: {**tables.get(key, {}).get(topic, {}), **end.get(topic, {})}
                for topic in sorted({*tables.get(key, {}), *end})
            }
            if not start:
                skipped.add(field)
            return item
        if item.format not in ("delta", "iceberg"):
            what = "table" if item.table is not None else "query" if item.query is not None else item.format
            raise InputError(
                f"{field}: a {what} has no versions to compare; incremental loads take files, delta, iceberg and kafka"
            )
        key, version = _key(item), _version(item, field)
        old, tables[key] = tables.get(key), version
        if old == version:
            skipped.add(field)
        elif old:
            since = _since_delta if item.format == "delta" else _since_iceberg
            return since(spark, item, field, old)
        return item

    def with_news(of: Any, within: str, **more: Any) -> Any:
        inputs = [narrowed(item, f"{within}inputs[{number}]") for number, item in enumerate(of.inputs)]
        return of.model_copy(update={"inputs": inputs, **more})

    vertices = [with_news(table, f"vertices[{at}].") for at, table in enumerate(spec.vertices)]
    found: IngestSpec = with_news(spec, "", vertices=vertices)
    after = {
        "version": _VERSION,
        "number": loads.get("number", -1) + 1,
        "rules": rules,
        "files": {name: list(value) for name, value in sorted(seen.items())},
        "tables": dict(sorted(tables.items())),
        **({"moments": list(moments)} if moments else {}),
    }
    return News(found, frozenset(skipped), after)


def find_versions(spark: SparkSession, spec: IngestSpec, before: Manifest | None) -> tuple[IngestSpec, tuple[int, ...]]:
    """The versions of the table that a series is made of.

    Returns
    -------
    spec : IngestSpec
        Has one input for each version that the store has not loaded.
    moments : tuple of int
        When each instance begins, in microseconds since 1970.

    Raises
    ------
    InputError
        The version that was loaded last is not in the history of the table.
    """
    assert spec.instances is not None
    item, field = spec.inputs[0], "inputs[0]"
    start, history = spec.instances.start, table_versions(spark, item, field)
    moments: list[int] = []
    loads: Mapping[str, Any] = {} if before is None else before.loads
    last = loads.get("tables", {}).get(_key(item), "")
    if last and "moments" in loads:
        moments = list(loads["moments"])
        at = next((number for number, (version, _) in enumerate(history) if version == last), None)
        if at is None:
            raise InputError(f"{field}: {item.place}: version {last}, which was loaded, is not in its history")
        history = history[at + 1 :]
    elif start is not None:
        history = [one for one in history if one[1] >= start]
    inputs = [item.at_version(version, len(moments) + number) for number, (version, _) in enumerate(history)]
    if not inputs and not moments:
        raise InputError(f"{field}: {item.place}: no versions" + ("" if start is None else " since instances.start"))
    moments += [moment for _, moment in history]
    # Of a table without news one version stands for its columns; no row of it is read.
    inputs = inputs or [item.at_version(last, len(moments) - 1)]
    return spec.model_copy(update={"inputs": inputs}), tuple(moments)


def _key(item: Input) -> str:
    return f"{item.format}:{item.place}"


def _rules(spec: IngestSpec) -> str:
    """Digest of all that decides what becomes of a row."""
    body = spec.model_dump(
        mode="json", exclude={"inputs": True, "partition": True, "vertices": {"__all__": {"inputs"}}}
    )
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _new_files(spark: SparkSession, item: Input, field: str, seen: dict[str, tuple[int, ...]]) -> list[str]:
    """Files that were not loaded, which are added to `seen`."""
    try:
        files = listed(spark, item)
    except Exception as error:
        raise InputError(f"{field}: {first_line(error)}") from None
    new = []
    for name, *version in files:
        if name not in seen:
            new.append(name)
        elif seen[name] != tuple(version):
            raise InputError(
                f"{field}: {name} has changed since it was loaded; load everything again into another place"
            )
        seen[name] = tuple(version)
    return new


def _with_base(spark: SparkSession, item: Input, files: Sequence[str]) -> dict[str, Any]:
    """The options under which folders such as ``day=1`` are still columns when single files are read."""
    base = spark_path(item.names[0], spark).rstrip("/")
    if len(item.names) == 1 and all(file.startswith(f"{base}/") for file in files):
        return {"basePath": base, **item.options}
    return item.options


def _version(item: Input, field: str) -> str:
    """The version of a table; empty if it has none yet.

    Raises
    ------
    InputError
        A time is given instead.
    """
    given = {name.lower(): str(value) for name, value in item.options.items()}
    if "timestampasof" in given:
        raise InputError(
            f"{field}.options.timestampAsOf: incremental loads compare versions; use versionAsOf or omit it"
        )
    return given.get("versionasof", "")


def _since_delta(spark: SparkSession, item: Input, field: str, old: str) -> Input:
    """The rows of the files that were added to a Delta table.

    Raises
    ------
    InputError
        Files were removed, as by an update, a deletion or a compaction.
    """
    try:
        before, after = ({file_name(name) for name in table_at(spark, item, at).inputFiles()} for at in (old, None))
    except Exception as error:
        raise InputError(f"{field}: version {old}: {first_line(error)}") from None
    if before - after:
        raise InputError(
            f"{field}: {item.place}: rows were changed, removed or moved to other files since version {old}; load "
            "everything again into another place"
        )
    return item.restricted(after - before)


def _since_iceberg(spark: SparkSession, item: Input, field: str, old: str) -> Input:
    """The rows that snapshots have appended to an Iceberg table.

    Raises
    ------
    InputError
        The old snapshot is not in the history of the new one, or one between them did more than append.
    """
    history = iceberg_snapshots(spark, item)
    newest = _version(item, field)
    at: str | None = newest
    while at is not None and at != old:
        parent, operation = history.get(at, (None, ""))
        if operation not in ("append", "replace"):
            raise InputError(
                f"{field}: {item.place}: snapshot {at} did not only append rows ({operation or 'unknown'}); load "
                "everything again into another place"
            )
        at = parent
    if at is None:
        raise InputError(f"{field}: {item.place}: snapshot {old}, which was loaded, is not in its history")
    rest = {name: value for name, value in item.options.items() if name.lower() != "versionasof"}
    return item.model_copy(update={"options": {**rest, "start-snapshot-id": old, "end-snapshot-id": newest}})


class Earlier(NamedTuple):
    """The store that an incremental load adds to."""

    path: str
    manifest: Manifest

    @classmethod
    def at(cls, path: str) -> Earlier | None:
        """The store at a path or URI, if there is one."""
        folder = open_folder(path)
        return None if folder.size(NAME) is None else Earlier(path, read_manifest(folder))

    def links(self, spark: SparkSession, spec: IngestSpec) -> DataFrame:
        """Every edge as a row of `goffish.spark.ingest.clean.parsed_rows` that no rule stops.

        With instances: edges of the template without a ``time``, and those of every instance with one.
        """

        label = pa.int64() if spec.labels == "integer" else pa.string()
        kinds: dict[str, pa.DataType] = {"at": pa.int64(), "source": label}
        kinds |= {} if spec.weight is None else {"weight": pa.float64()}
        kinds |= {"time": pa.int64()} if spec.timed else {}
        kinds |= _attribute_types(spec.attribute_types)

        def made(name: str, kind: pa.DataType, job: type[_Job]) -> DataFrame:
            schema = pa.schema([*kinds.items(), (name, kind)])
            timed, own = spec.instances is not None, tuple(spec.attributes)
            return self._rows(spark, job(self.path, self._fingerprint, schema, own, timed, spec.by_version))

        far = made("far", pa.int64(), _Edges)
        numbers = self._numbers(spark, label)
        between = far.join(numbers.withColumnRenamed("label", "target"), far["far"] == numbers["number"])
        edges = made("target", label, _Edges)
        every = edges.unionByName(between.drop("far", "number"))
        return _as_parsed(every)

    def labels(self, spark: SparkSession, spec: IngestSpec) -> DataFrame:
        """The labels of all vertices, also of those without edges."""
        return self._numbers(spark, pa.int64() if spec.labels == "integer" else pa.string()).select("label")

    def described(self, spark: SparkSession, spec: IngestSpec, of: VertexTable) -> DataFrame:
        """The vertices with an attribute of a table, as rows of `parsed_vertices` that no rule stops."""
        from pyspark.sql import functions as F

        label = pa.int64() if spec.labels == "integer" else pa.string()
        schema = pa.schema([("at", pa.int64()), ("label", label), *_attribute_types(of.attribute_types).items()])
        rows = self._rows(spark, _Vertices(self.path, self._fingerprint, schema, tuple(of.attributes), series=False))
        known = [F.col(f"a{at}").isNotNull() for at in range(len(of.attributes))]
        return _as_parsed(rows.where(F.greatest(*known) if len(known) > 1 else known[0] if known else F.lit(False)))

    @property
    def _fingerprint(self) -> str:
        return self.manifest.fingerprint()

    def _numbers(self, spark: SparkSession, label: pa.DataType) -> DataFrame:
        schema = pa.schema([("number", pa.int64()), ("label", label)])
        return self._rows(spark, _Numbers(self.path, self._fingerprint, schema, (), series=False))

    def _rows(self, spark: SparkSession, job: _Job) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        parts = self.manifest.info.num_partitions
        return spark.range(0, parts, 1, parts).mapInArrow(job, from_arrow_schema(job.schema))


def _attribute_types(kinds: Mapping[str, str]) -> dict[str, pa.DataType]:
    return {f"a{at}": pa.type_for_alias(ARROW_TYPES[kind]) for at, kind in enumerate(kinds.values())}


def _as_parsed(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    number, file, block = STORE_SPLIT
    return rows.withColumns({
        "input": F.lit(number), "file": F.lit(file), "block": F.lit(block).cast("bigint"),
        "rule": F.lit(None).cast("string"), "row": F.lit(None).cast("string"),
    })  # fmt: skip


@dataclass(frozen=True)
class _Job(ABC):
    """Numbers of partitions → rows with the columns of `schema`.

    Attributes
    ----------
    series : bool
        Whether edges have instances.
    numbered : bool
        Whether the time of a row is the number of its instance, or the moment at which that begins.
    """

    path: str
    fingerprint: str
    schema: pa.Schema
    attributes: tuple[str, ...]
    series: bool
    numbered: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            graph = open_store(self.path)
            if graph.fingerprint() != self.fingerprint:
                raise InputError(f"{self.path}: was replaced during the job, or differs on this machine")
            for batch in batches:
                for partition in batch.column(0).to_pylist():
                    for table in self.tables(graph, graph.slice(partition)):
                        yield from table.select(self.schema.names).cast(self.schema).to_batches(1 << 14)
        finally:
            forget_archives()

    @abstractmethod
    def tables(self, graph: PartitionedGraph, part: Slice) -> Iterator[pa.Table]:
        """Return the rows of a partition."""


class _Numbers(_Job):
    def tables(self, graph: PartitionedGraph, part: Slice) -> Iterator[pa.Table]:
        yield pa.table({"number": np.arange(part.num_vertices) + part.vertex_start, "label": part.labels()})


class _Vertices(_Job):
    def tables(self, graph: PartitionedGraph, part: Slice) -> Iterator[pa.Table]:
        columns = {f"a{at}": part.column(f"vertex.{name}") for at, name in enumerate(self.attributes)}
        yield pa.table({"at": np.arange(part.num_vertices), "label": part.labels(), **columns})


class _Edges(_Job):
    """Every edge once: those inside of subgraphs, or with ``far`` those between them, to the number of a vertex."""

    def tables(self, graph: PartitionedGraph, part: Slice) -> Iterator[pa.Table]:
        arcs, labels = part.out_arcs, part.labels()
        far = "far" in self.schema.names
        chosen = np.flatnonzero((arcs.targets < 0) == far)
        source = np.repeat(np.arange(part.num_vertices), np.diff(arcs.offsets))[chosen]
        unit = np.searchsorted(part.subgraph_offsets, source, side="right") - 1
        target = arcs.targets[chosen].astype(np.int64)
        if far:
            target = arcs.remote_vertex[arcs.remote_offsets[unit] + ~target].astype(np.int64)
        else:
            target += part.subgraph_offsets[unit] + part.vertex_start
        if not graph.info.directed:
            once = source + part.vertex_start <= target
            chosen, source, target = chosen[once], source[once], target[once]
        ends = {"source": labels.take(pa.array(source)), "at": chosen.astype(np.int64)}
        ends |= {"far": target} if far else {"target": labels.take(pa.array(target - part.vertex_start))}
        template = pa.table({**ends, **self._values(part, chosen)})
        if not self.series:
            yield self._timed(template, None)
            return
        yield self._timed(template, None)
        series = open_series(self.path)
        for instance in range(len(series)):
            table = self._of_instance(series, part.partition, instance, chosen, ends)
            yield self._timed(table, instance if self.numbered else int(series.starts[instance]))

    def _timed(self, table: pa.Table, start: int | None) -> pa.Table:
        if "time" not in self.schema.names:
            return table
        return table.append_column("time", pa.array([start] * table.num_rows, pa.int64()))

    def _values(self, part: Slice, chosen: Any) -> dict[str, Any]:
        found = {"weight": np.asarray(part.column("weight"))[chosen]} if "weight" in self.schema.names else {}
        if self.attributes:
            rows = pa.array(np.asarray(part.column("edge_row"))[chosen])
            found |= {f"a{at}": part.column(f"edge.{name}").take(rows) for at, name in enumerate(self.attributes)}
        return found

    def _of_instance(
        self, series: Series, partition: int, instance: int, chosen: Any, ends: Mapping[str, Any]
    ) -> pa.Table:
        rows = series.elements(partition).edge_row[chosen]
        there = np.flatnonzero(series.values(partition, instance, "edge.exists")[rows])
        columns: dict[str, Any] = {
            name: column[there] if isinstance(column, np.ndarray) else column.take(pa.array(there))
            for name, column in ends.items()
        }
        names = {"weight": "weight"} if "weight" in self.schema.names else {}
        names |= {f"a{at}": name for at, name in enumerate(self.attributes)}
        for name, own in names.items():
            column = series.values(partition, instance, f"edge.{own}")
            taken = rows[there]
            columns[name] = column[taken] if isinstance(column, np.ndarray) else column.take(pa.array(taken))
        return pa.table(columns)

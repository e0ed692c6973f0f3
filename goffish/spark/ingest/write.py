"""From edges and owners to a published store, written by the executors."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs import GraphInfo
from goffish.gofs import manifest as manifests
from goffish.gofs.files import Folder
from goffish.gofs.manifest import FileEntry, Manifest
from goffish.gofs.series.slices import ELEMENTS
from goffish.gofs.store import is_store_file
from goffish.spark.ingest.blocks import Route, Sent, exchange, grouped
from goffish.spark.ingest.edges import Windows
from goffish.spark.ingest.labels import Vertices, frame_of
from goffish.spark.ingest.plan import ARROW_TYPES, REPORT, SPOT_BITS, Plan, empty_tables
from goffish.spark.ingest.series import write_values, write_vertex_values
from goffish.spark.ingest.slices import PLACES, find_pieces, write_partition
from goffish.spark.ingest.spec import IngestSpec
from goffish.spark.ingest.stored import Stored
from goffish.spark.ingest.vertices import KEPT, VertexRows
from goffish.spark.ingest.work import Shared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Reports = dict[int, list[dict[str, Any]]]


class Places(NamedTuple):
    """The columns of `PLACES` by the number of the vertex."""

    spot: NDArray[np.int64]
    piece: NDArray[np.int64]

    @classmethod
    def of(cls, rows: pa.Table) -> Places:
        """Bring rows of `PLACES` into order."""
        number = rows.column("number").to_numpy()
        columns = [np.empty(number.size, np.int64) for _ in range(2)]
        for column, name in zip(columns, ("spot", "piece"), strict=True):
            column[number] = rows.column(name).to_numpy()
        return cls(*columns)


def make_places(spark: SparkSession, edges: Stored, owner: Shared, vertices: Vertices, parts: int) -> DataFrame:
    """Where every vertex goes (`PLACES`), from the edges and the owners of all vertices."""
    every = vertices.table.select("number")
    routed: list[tuple[Stored | DataFrame, Route]] = [
        (edges.select("u", "v"), _Inside(owner)),
        (every, _AtHome(owner)),
    ]
    return exchange(spark, routed, parts, find_pieces, PLACES)


@dataclass(frozen=True)
class _Inside:
    """Sends the edges inside of partitions there."""

    owner: Shared

    def __call__(self, edges: pa.Table) -> Sent:
        u, v = (self.owner.value[edges.column(end).to_numpy()] for end in "uv")
        rows = np.flatnonzero(u == v)
        return Sent(edges, rows, u[rows])


@dataclass(frozen=True)
class _AtHome:
    """Sends vertices to their partitions."""

    owner: Shared

    def __call__(self, vertices: pa.Table) -> Sent:
        return Sent(vertices, np.arange(vertices.num_rows), self.owner.value[vertices.column("number").to_numpy()])


def make_plan(places: Places, vertices: Vertices, spec: IngestSpec, store: str, windows: Windows | None) -> Plan:
    """Count the vertices and subgraphs of all partitions, which fixes the partitioned numbering."""
    parts = spec.partition.parts
    owner = places.spot >> SPOT_BITS
    sizes, pieces = np.bincount(owner, minlength=parts), np.zeros(parts, np.int64)
    np.maximum.at(pieces, owner, places.piece + 1)
    counts = np.bincount(_starts(pieces)[owner] + places.piece)
    starts = ends = None
    if windows is not None:
        starts, ends = windows.starts, windows.ends
    rules = spec.instances
    fixed = [table.attribute_types for table in spec.vertices if table.timestamp is None]
    return Plan(
        store, vertices.size, spec.directed, spec.weight is not None, vertices.label_type(spec),
        _arrow_types(spec.attribute_types), _arrow_types(reduce(operator.or_, fixed, {})),
        _starts(sizes), _starts(pieces), _starts(counts), starts, ends,
        1 if rules is None else rules.pack, 1 if rules is None else rules.bins,
        [value for table in spec.vertices if table.timestamp is not None for value in table.values],
    )  # fmt: skip


def _arrow_types(kinds: Mapping[str, str]) -> dict[str, str]:
    return {name: ARROW_TYPES[kind] for name, kind in kinds.items()}


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(sizes)))


def write_slices_of(
    spark: SparkSession, plan: Plan, edges: Stored, spots: Shared, vertices: Vertices, described: Sequence[VertexRows]
) -> DataFrame:
    """Every partition's slice is built and written by one task; gives their reports."""
    from pyspark.sql import functions as F

    members: Stored | DataFrame = vertices.table.select(*(["number"] if vertices.implicit else ["label", "number"]))
    first = 0
    for one in described:
        if one.of.timestamp is None and one.of.attributes:
            columns = {f"a{at}": f"v{first + at}" for at in range(len(one.of.attributes))}
            values = one.numbered(vertices, spark).where(F.col("state") == KEPT).drop("state", "order")
            members = frame_of(members, spark).join(values.withColumnsRenamed(columns), "number", "left")
            first += len(columns)

    def build(partition: int, tables: list[pa.Table | None]) -> pa.Table:
        own = [table if table is not None else empty for table, empty in zip(tables, empty_tables(plan), strict=True)]
        return write_partition(plan, partition, *own)

    both: list[tuple[Stored | DataFrame, Route]] = [(edges, _Touching(spots)), (members, _ToSpot(spots))]
    return exchange(spark, both, plan.parts, build, REPORT)


def write_values_of(spark: SparkSession, plan: Plan, entries: Stored, spots: Shared, reports: Reports) -> DataFrame:
    """The values of each partition and group of instances are written by one task; gives their reports."""
    assert plan.starts is not None
    elements = _elements(reports)

    def write(part: int, group: int, rows: pa.Table | None) -> pa.Table:
        return write_values(plan, part, group, elements[part], rows)

    sizes = (plan.parts, -(-plan.starts.size // plan.pack))
    return grouped(spark, entries, _Touching(spots, plan.pack), sizes, write, REPORT)


def write_vertex_values_of(
    spark: SparkSession, plan: Plan, described: VertexRows, spots: Shared, vertices: Vertices, reports: Reports
) -> DataFrame:
    """The same for the values of vertices."""
    assert plan.starts is not None
    elements, attributes = _elements(reports), described.of.values

    def write(part: int, group: int, rows: pa.Table | None) -> pa.Table:
        return write_vertex_values(plan, part, group, elements[part], attributes, rows)

    sizes = (plan.parts, -(-plan.starts.size // plan.pack))
    rows = described.numbered(vertices, spark).drop("state")
    return grouped(spark, rows, _ToSpot(spots, plan.pack), sizes, write, REPORT)


def _elements(reports: Reports) -> dict[int, FileEntry]:
    return {part: FileEntry(**bodies[0]["files"][ELEMENTS]) for part, bodies in reports.items()}


def _group(table: pa.Table, rows: NDArray[np.int64], pack: int | None) -> NDArray[np.int64] | int:
    """Group of instances of some rows."""
    return 0 if pack is None else table.column("instance").to_numpy()[rows] // pack


@dataclass(frozen=True)
class _Touching:
    """Sends every edge to each partition that it touches, with the spots of its ends in the place of the numbers."""

    spots: Shared
    pack: int | None = None

    def __call__(self, edges: pa.Table) -> Sent:
        ends = [self.spots.value[edges.column(end).to_numpy()] for end in "uv"]
        edges = edges.drop_columns(["u", "v"])
        for name, end in zip("uv", ends, strict=True):
            edges = edges.append_column(name, pa.array(end))
        u, v = (end >> SPOT_BITS for end in ends)
        cut = np.flatnonzero(u != v)
        rows = np.concatenate((np.arange(u.size), cut))
        return Sent(edges, rows, np.concatenate((u, v[cut])), _group(edges, rows, self.pack))


@dataclass(frozen=True)
class _ToSpot:
    """Sends rows of vertices to their partitions, with their spots."""

    spots: Shared
    pack: int | None = None

    def __call__(self, vertices: pa.Table) -> Sent:
        spot = self.spots.value[vertices.column("number").to_numpy()]
        rows = np.arange(spot.size)
        return Sent(vertices.append_column("spot", pa.array(spot)), rows, spot >> SPOT_BITS,
                    _group(vertices, rows, self.pack))  # fmt: skip


def collect_reports(table: DataFrame) -> Reports:
    """Reports of the executors by partition."""
    found: Reports = {}
    rows = table.toArrow()
    for part, body in zip(rows.column("part").to_pylist(), rows.column("body"), strict=True):
        found.setdefault(part, []).append(pickle.loads(body.as_buffer()))
    return found


def with_empty_parts(plan: Plan, reports: Reports) -> Reports:
    """Partitions without a vertex have slices as well, which no task was asked for."""
    made = dict(reports)
    for part in range(plan.parts):
        if part not in made:
            row = write_partition(plan, part, *empty_tables(plan))
            made[part] = [pickle.loads(row.column("body")[0].as_buffer())]
    return made


def make_manifest(
    plan: Plan, reports: Reports, values: Reports, edges: int, partitioner: Mapping[str, Any],
    loads: Mapping[str, Any] | None = None,
) -> Manifest:  # fmt: skip
    """The manifest of the store from the reports of all partitions."""
    bodies = [reports[part][0] for part in range(plan.parts)]
    info = GraphInfo(
        directed=plan.directed,
        num_edges=edges,
        vertices=np.diff(plan.vertex_starts).tolist(),
        arcs=[body["arcs"] for body in bodies],
        subgraphs=np.diff(plan.piece_starts).tolist(),
        remote=[body["remote"] for body in bodies],
        weighted=plan.weighted,
        label_type=plan.label_type,
        vertex_schema=dict(plan.vertex_attributes),
        edge_schema=dict(plan.attributes),
        partitioner=dict(partitioner),
    )
    files = []
    for part, body in enumerate(bodies):
        entries = dict(body["files"])
        for report in values.get(part, []):
            entries |= report["files"]
        order = [*body["files"], *sorted(set(entries) - set(body["files"]))]
        files.append({kind: FileEntry(**entries[kind]) for kind in order})
    return Manifest(info, tuple(files), loads or {})


def publish(folder: Folder, manifest: Manifest) -> None:
    """The new manifest takes the place of the old one in one step; then the files that it does not name are removed."""
    folder.write(manifests.NAME, manifests.encode(manifest))
    current = {entry.name for files in manifest.files for entry in files.values()}
    remove(folder, (name for name in folder.list() if name not in current))


def remove(folder: Folder, names: Iterable[str]) -> None:
    """Remove files of a store; never any other."""
    for name in names:
        if is_store_file(name):
            folder.delete(name)

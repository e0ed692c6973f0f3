"""From edges and owners to a published store, written by the executors."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs import GraphInfo
from goffish.gofs import manifest as manifests
from goffish.gofs.files import Folder
from goffish.gofs.manifest import FileEntry, Manifest
from goffish.gofs.series.slices import ELEMENTS
from goffish.gofs.store import is_store_file
from goffish.spark.ingest.blocks import Sent, exchange, grouped
from goffish.spark.ingest.edges import Windows
from goffish.spark.ingest.labels import Vertices, beside
from goffish.spark.ingest.plan import ARROW_TYPES, REPORT, SPOT_BITS, Plan, empty_tables
from goffish.spark.ingest.series import write_values, write_vertex_values
from goffish.spark.ingest.slices import PLACES, find_pieces, write_partition
from goffish.spark.ingest.spec import IngestSpec
from goffish.spark.ingest.vertices import KEPT, VertexRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Reports = dict[int, list[dict[str, Any]]]


def make_places(edges: DataFrame, owner: DataFrame, vertices: Vertices, parts: int) -> DataFrame:
    """Where every vertex goes (`PLACES`), from the edges and the columns ``number`` and ``owner`` of all vertices."""
    inside = edges.select("u", "v")
    for end in "uv":
        ends = owner.select(owner["number"].alias(end), owner["owner"].alias(f"{end}_owner"))
        inside = inside.join(beside(ends, vertices.size), end)
    return exchange([(inside, _inside), (owner, _at_home)], parts, find_pieces, PLACES)


def _inside(edges: pa.Table) -> Sent:
    u, v = (edges.column(f"{end}_owner").to_numpy() for end in "uv")
    rows = np.flatnonzero(u == v)
    return Sent(rows, u[rows])


def _at_home(vertices: pa.Table) -> Sent:
    return Sent(np.arange(vertices.num_rows), vertices.column("owner").to_numpy())


def make_plan(places: DataFrame, vertices: Vertices, spec: IngestSpec, store: str, windows: Windows | None) -> Plan:
    """Count the vertices and subgraphs of all partitions, which fixes the partitioned numbering."""
    from pyspark.sql import functions as F

    parts = spec.partition.parts
    owner = F.shiftright("spot", SPOT_BITS)
    counted = places.groupBy(owner.alias("owner"), "piece").count().orderBy("owner", "piece").toArrow()
    owners, counts = (counted.column(name).to_numpy() for name in ("owner", "count"))
    sizes = np.bincount(owners, counts, parts).astype(np.int64)
    pieces = np.bincount(owners, minlength=parts)
    starts = ends = None
    if windows is not None:
        starts = windows.start + windows.period * np.arange(windows.size, dtype=np.int64)
        ends = starts + windows.period
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
    plan: Plan, edges: DataFrame, places: DataFrame, vertices: Vertices, described: Sequence[VertexRows]
) -> DataFrame:
    """Every partition's slice is built and written by one task; gives their reports."""
    from pyspark.sql import functions as F

    members = places.select("number", "spot")
    if not vertices.implicit:
        members = members.join(beside(vertices.table, vertices.size), "number")
    first = 0
    for one in described:
        if one.of.timestamp is None and one.of.attributes:
            columns = {f"a{at}": f"v{first + at}" for at in range(len(one.of.attributes))}
            values = one.numbered(vertices).where(F.col("state") == KEPT).drop("state", "order")
            members = members.join(values.withColumnsRenamed(columns), "number", "left")
            first += len(columns)

    def build(partition: int, tables: list[pa.Table | None]) -> pa.Table:
        own = [table if table is not None else empty for table, empty in zip(tables, empty_tables(plan), strict=True)]
        return write_partition(plan, partition, *own)

    both = [(_with_spots(edges, places, vertices), _touching), (members, _to_spot)]
    return exchange(both, plan.parts, build, REPORT)


def write_values_of(
    plan: Plan, entries: DataFrame, places: DataFrame, vertices: Vertices, reports: Reports
) -> DataFrame:
    """The values of each partition and group of instances are written by one task; gives their reports."""
    assert plan.starts is not None
    elements = {part: FileEntry(**bodies[0]["files"][ELEMENTS]) for part, bodies in reports.items()}

    def groups(rows: pa.Table) -> Sent:
        sent = _touching(rows)
        return sent._replace(kind=rows.column("instance").to_numpy()[sent.rows] // plan.pack)

    def write(part: int, group: int, rows: pa.Table | None) -> pa.Table:
        return write_values(plan, part, group, elements[part], rows)

    sizes = (plan.parts, -(-plan.starts.size // plan.pack))
    return grouped(_with_spots(entries, places, vertices), groups, sizes, write, REPORT)


def write_vertex_values_of(
    plan: Plan, described: VertexRows, places: DataFrame, vertices: Vertices, reports: Reports
) -> DataFrame:
    """The same for the values of vertices."""
    assert plan.starts is not None
    elements = {part: FileEntry(**bodies[0]["files"][ELEMENTS]) for part, bodies in reports.items()}
    attributes = described.of.values
    rows = described.numbered(vertices).drop("state")
    rows = rows.join(beside(places.select("number", "spot"), vertices.size), "number").drop("number")

    def groups(rows: pa.Table) -> Sent:
        return _to_spot(rows)._replace(kind=rows.column("instance").to_numpy() // plan.pack)

    def write(part: int, group: int, rows: pa.Table | None) -> pa.Table:
        return write_vertex_values(plan, part, group, elements[part], attributes, rows)

    return grouped(rows, groups, (plan.parts, -(-plan.starts.size // plan.pack)), write, REPORT)


def _with_spots(edges: DataFrame, places: DataFrame, vertices: Vertices) -> DataFrame:
    """Edges with the spots of their ends in the place of the numbers."""
    from pyspark.sql import functions as F

    for end in "uv":
        spots = places.select(F.col("number").alias(end), F.col("spot").alias(f"{end}_spot"))
        edges = edges.join(beside(spots, vertices.size), end)
    return edges.drop("u", "v").withColumnsRenamed({"u_spot": "u", "v_spot": "v"})


def _touching(edges: pa.Table) -> Sent:
    """Every edge goes to each partition that it touches."""
    u, v = (edges.column(end).to_numpy() >> SPOT_BITS for end in "uv")
    cut = np.flatnonzero(u != v)
    return Sent(np.concatenate((np.arange(u.size), cut)), np.concatenate((u, v[cut])))


def _to_spot(vertices: pa.Table) -> Sent:
    return Sent(np.arange(vertices.num_rows), vertices.column("spot").to_numpy() >> SPOT_BITS)


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
    plan: Plan, reports: Reports, values: Reports, edges: int, partitioner: Mapping[str, Any]
) -> Manifest:
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
    return Manifest(info, tuple(files))


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

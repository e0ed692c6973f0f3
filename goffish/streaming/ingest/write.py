"""From edges and owners to a published store, written by the executors."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs import GraphInfo
from goffish.gofs import manifest as manifests
from goffish.gofs.files import Folder
from goffish.gofs.instances import INDEX
from goffish.gofs.manifest import FileEntry, Manifest
from goffish.gofs.store import _OURS
from goffish.gopher.spark.rows import partition_keys
from goffish.streaming.ingest.clean import value_columns
from goffish.streaming.ingest.edges import Windows
from goffish.streaming.ingest.labels import Vertices
from goffish.streaming.ingest.slices import (
    ARROW_TYPES,
    PIECES,
    REPORT,
    Plan,
    empty_tables,
    find_pieces,
    write_instances,
    write_partition,
)
from goffish.streaming.ingest.spec import IngestSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Reports = dict[int, list[dict[str, Any]]]

#: With more partitions than this, chance spreads them well enough.
_MOST_KEYS = 4096


def with_owners(edges: DataFrame, owner: DataFrame) -> DataFrame:
    """Edges with the owners of both ends, ``u_owner`` and ``v_owner``."""
    for end in "uv":
        ends = owner.select(owner["number"].alias(end), owner["owner"].alias(f"{end}_owner"))
        edges = edges.join(ends, end)
    return edges


def make_places(owned: DataFrame, owner: DataFrame, parts: int) -> DataFrame:
    """Where every vertex goes: ``number``, ``owner``, ``position`` in the partition, and its sub-graph (``piece``)."""
    from pyspark.sql import functions as F

    inside = owned.where("u_owner = v_owner").select(F.col("u_owner").alias("part"), "u", "v")
    alone = owner.select(F.col("owner").alias("part"), F.col("number").alias("u"), F.col("number").alias("v"))
    # Both ends begin a row, so that every vertex of the partition is in the first column.
    return _by_part(inside.union(alone), parts).applyInArrow(find_pieces, PIECES)


def make_plan(places: DataFrame, vertices: Vertices, spec: IngestSpec, store: str, windows: Windows | None) -> Plan:
    """Count the vertices and sub-graphs of all partitions, which fixes the partitioned numbering."""
    from pyspark.sql import functions as F

    parts = spec.partition.parts
    sizes, pieces = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    for row in places.groupBy("owner").agg(F.count("*"), F.max("piece") + 1).collect():
        sizes[row[0]], pieces[row[0]] = row[1], row[2]
    starts = ends = None
    if windows is not None:
        starts = windows.start + windows.period * np.arange(windows.size, dtype=np.int64)
        ends = starts + windows.period
    rules = spec.instances
    return Plan(
        store, vertices.size, spec.directed, spec.weight is not None, vertices.label_type(spec),
        {name: ARROW_TYPES[kind] for name, kind in spec.attribute_types.items()},
        _starts(sizes), _starts(pieces), starts, ends,
        1 if rules is None else rules.pack, 1 if rules is None else rules.bins,
    )  # fmt: skip


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(sizes)))


def write_slices_of(plan: Plan, owned: DataFrame, places: DataFrame, vertices: Vertices) -> DataFrame:
    """Every partition's slice is built and written by one task; gives their reports."""
    from pyspark.sql import functions as F

    located = owned
    for end in "uv":
        spots = places.select(
            F.col("number").alias(end), F.col("position").alias(f"{end}_position"), F.col("piece").alias(f"{end}_piece")
        )
        located = located.join(spots, end)
    members = places.select(F.col("owner").alias("part"), "number", "position", "piece")
    if not vertices.implicit:
        members = members.join(vertices.table, "number")

    def build(edges: pa.Table, own: pa.Table) -> pa.Table:
        return write_partition(plan, own.column("part")[0].as_py(), edges, own)

    both = _by_part(_touching(located), plan.parts).cogroup(_by_part(members, plan.parts))
    return both.applyInArrow(build, REPORT)


def write_instances_of(plan: Plan, entries: DataFrame, owned: DataFrame, reports: Reports) -> DataFrame:
    """The slices of each partition and group of instances are written by one task; gives their reports."""
    from pyspark.sql import functions as F

    index = {part: FileEntry(**bodies[0]["files"][INDEX]) for part, bodies in reports.items()}
    placed = _touching(entries.join(owned.select("edge", "u_owner", "v_owner"), "edge"))

    def write(rows: pa.Table) -> pa.Table:
        part, group = (rows.column(name)[0].as_py() for name in ("part", "group"))
        return write_instances(plan, part, group, index[part], rows)

    grouped = placed.withColumn("group", F.expr(f"instance div {plan.pack}")).groupBy("part", "group")
    return grouped.applyInArrow(write, REPORT)


def make_entries(merged: DataFrame, edges: DataFrame, spec: IngestSpec) -> DataFrame:
    """What each instance says of its edges: columns ``edge``, ``instance`` and the values."""
    return merged.join(edges.select("edge", "u", "v"), ["u", "v"]).select("edge", "instance", *value_columns(spec))


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
    plan: Plan, reports: Reports, instances: Reports, edges: int, partitioner: Mapping[str, Any]
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
        edge_schema=dict(plan.attributes),
        partitioner=dict(partitioner),
    )
    files = []
    for part, body in enumerate(bodies):
        entries = dict(body["files"])
        for report in instances.get(part, []):
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
        if _OURS.fullmatch(name):
            folder.delete(name)


def _touching(edges: DataFrame) -> DataFrame:
    """Every edge once for each partition that it touches."""
    from pyspark.sql import functions as F

    return edges.withColumn("part", F.explode(F.array_distinct(F.array("u_owner", "v_owner"))))


def _by_part(table: DataFrame, parts: int) -> Any:
    """Groups by partition, each in a task of its own: Spark would put several into one by chance."""
    from pyspark.sql import functions as F

    if parts > _MOST_KEYS:
        return table.withColumn("key", F.col("part")).repartition(parts, "key").groupBy("key")
    keys = F.array(*(F.lit(key) for key in partition_keys(parts)))
    return table.withColumn("key", F.get(keys, F.col("part"))).repartition(parts, "key").groupBy("key")

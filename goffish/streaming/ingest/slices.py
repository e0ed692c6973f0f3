"""What the executors do: find the sub-graphs of a partition, build its slice, write it.

A partition is built from its own edges alone, in a numbering of the vertices that these edges touch that keeps the
order of the partitioned numbering; the builder behind `goffish.gofs.build_layout` does the rest. So the bytes are those
that it would make of the whole graph on one machine.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs import GraphInfo, PartitionedGraph, Slice
from goffish.gofs.encoding import encode_slice
from goffish.gofs.files import open_folder
from goffish.gofs.instances import INSTANCES, InstanceIndex, encode_group, write_slices
from goffish.gofs.layout import cut_slice, number_by_owner
from goffish.gofs.manifest import FileEntry
from goffish.gofs.series import assign_bins
from goffish.gofs.slices import Arcs, column_of, distinct
from goffish.gofs.store import write_once
from goffish.graph import Graph, from_edges
from goffish.graph.labels import vertex_dtype

ARROW_TYPES = {"integer": "int64", "real": "double", "text": "string", "boolean": "bool"}
#: Where each vertex goes: its spot, and its sub-graph in the partition.
PLACES = "number bigint, spot bigint, piece bigint"
REPORT = "part int, body binary"
#: Bits of the place in its partition, in a spot; those above are the partition.
SPOT_BITS = 40


@dataclass(frozen=True)
class Plan:
    """What every executor has to know; arrays have one entry per partition and one more.

    `vertex_starts` and `piece_starts` are the first vertex and sub-graph of each partition in the partitioned
    numbering, `piece_offsets` the first vertex of each sub-graph; `starts` and `ends` are the instances (microseconds
    since 1970).
    """

    store: str
    vertices: int
    directed: bool
    weighted: bool
    label_type: str
    attributes: Mapping[str, str]
    vertex_starts: NDArray[np.int64]
    piece_starts: NDArray[np.int64]
    piece_offsets: NDArray[np.int64]
    starts: NDArray[np.int64] | None = None
    ends: NDArray[np.int64] | None = None
    pack: int = 1
    bins: int = 1

    @property
    def parts(self) -> int:
        return self.vertex_starts.size - 1

    @property
    def instance_attributes(self) -> dict[str, str]:
        return ({"weight": "double"} if self.weighted else {}) | dict(self.attributes)

    def info(self) -> GraphInfo:
        """As much of the description of the graph as the slices need."""
        none = [0] * self.parts
        return GraphInfo(
            self.directed, 0, none, none, none, none, self.weighted, self.label_type, edge_schema=dict(self.attributes)
        )


def find_pieces(partition: int, tables: Sequence[pa.Table | None]) -> pa.Table:
    """The sub-graphs of one partition: columns of `PLACES`.

    `tables`: the edges inside the partition (``u``, ``v``), if there are any, and its vertices (``number``). Sub-graphs
    are numbered by their smallest vertex; vertices of a sub-graph keep their order.
    """
    edges, vertices = tables
    assert vertices is not None
    numbers = np.sort(vertices.column("number").to_numpy())
    u, v = (numbers[:0] if edges is None else edges.column(name).to_numpy() for name in ("u", "v"))
    graph = from_edges(np.searchsorted(numbers, u), np.searchsorted(numbers, v), labels=np.arange(numbers.size))
    _, rank, offsets, _ = number_by_owner(graph, np.zeros(numbers.size, np.int32), 1)
    spot = (partition << SPOT_BITS) + rank.astype(np.int64)
    return pa.table({"number": numbers, "spot": spot, "piece": np.searchsorted(offsets, rank, side="right") - 1})


def find_all_pieces(graph: Graph, owner: NDArray[np.int32], parts: int) -> pa.Table:
    """The same for all partitions of a graph that is at hand."""
    _, rank, offsets, starts = number_by_owner(graph, owner, parts)
    spot = (owner.astype(np.int64) << SPOT_BITS) + rank - offsets[starts][owner]
    piece = np.searchsorted(offsets, rank, side="right") - 1 - starts[owner]
    return pa.table({"number": np.arange(owner.size), "spot": spot, "piece": piece})


def write_partition(plan: Plan, partition: int, edges: pa.Table, vertices: pa.Table) -> pa.Table:
    """Build the slice of a partition, write its files and report: one row of `REPORT`.

    Columns of `edges`: ``edge``, ``u`` and ``v`` (spots), ``weight``, and the attributes ``a0`` …. Columns of
    `vertices`: ``number``, ``spot``, and ``label`` where labels are not implicit.
    """
    part, edge_subgraph = build_slice(plan, partition, edges, vertices)
    graph = PartitionedGraph(plan.info(), lambda _: part)
    folder = open_folder(plan.store)
    files: dict[str, Any] = {}
    for kind, data, entry in encode_slice(graph, part):
        write_once(folder, entry, data)
        files[kind] = asdict(entry)
    if plan.starts is not None and plan.ends is not None:
        index = InstanceIndex(
            plan.starts, plan.ends, plan.instance_attributes, plan.pack, part.column("edge_id"),
            part.column("edge_row"), edge_subgraph, assign_bins(np.diff(part.subgraph_offsets), plan.bins),
        )  # fmt: skip
        files |= write_slices(folder, partition, [(INSTANCES, "arrow", index.encode())])
    here = np.repeat(np.arange(part.num_subgraphs), np.diff(part.neighbor_offsets)) + part.subgraph_start
    ahead = here < part.neighbor_subgraph
    ends = [edges.column(name).to_numpy() for name in ("u", "v")]
    u_owner, v_owner = (end >> SPOT_BITS for end in ends)
    body = {
        "files": files,
        "arcs": part.num_arcs,
        "remote": int(part.out_arcs.remote_vertex.size),
        "cut": int(np.count_nonzero(u_owner != v_owner)),
        "loops": int(np.count_nonzero(ends[0] == ends[1])),
        "degrees": np.unique(np.diff(part.out_arcs.offsets), return_counts=True),
        "in_degrees": np.unique(np.diff(part.in_arcs.offsets), return_counts=True),
        "sizes": np.diff(part.subgraph_offsets),
        "links": (here[ahead], part.neighbor_subgraph[ahead]),
    }
    return report_row(partition, body)


def write_instances(plan: Plan, partition: int, group: int, index: FileEntry, rows: pa.Table) -> pa.Table:
    """Write the slices of one group of instances of a partition and report: one row of `REPORT`.

    Columns of `rows`: ``instance``, ``edge``, ``weight`` and the attributes ``a0`` …; `index` is the file of the
    partition that `write_partition` wrote.
    """
    folder = open_folder(plan.store)
    known = InstanceIndex.decode(folder.read(index.name))
    instance, edge = (rows.column(name).to_numpy() for name in ("instance", "edge"))
    values = {"weight": _whole(rows.column("weight"), "double")} if plan.weighted else {}
    values |= _attributes(plan, rows)
    slices = encode_group(known, group, instance, edge, values)
    return report_row(partition, {"files": write_slices(folder, partition, slices)})


def empty_tables(plan: Plan) -> tuple[pa.Table, pa.Table]:
    """The edges and vertices of a partition that has none."""
    edges: dict[str, Any] = dict.fromkeys(("edge", "u", "v"), pa.int64())
    edges |= {"weight": pa.float64()} if plan.weighted else {}
    edges |= {f"a{at}": pa.type_for_alias(kind) for at, kind in enumerate(plan.attributes.values())}
    vertices = dict.fromkeys(("number", "spot"), pa.int64())
    if plan.label_type != "implicit":
        vertices["label"] = pa.type_for_alias(plan.label_type)
    return pa.schema(list(edges.items())).empty_table(), pa.schema(list(vertices.items())).empty_table()


def report_row(partition: int, body: Mapping[str, Any]) -> pa.Table:
    """A report as one row of `REPORT`."""
    packed = pa.array([pickle.dumps(dict(body), protocol=5)], pa.binary())
    return pa.table({"part": pa.array([partition], pa.int32()), "body": packed})


def build_slice(plan: Plan, partition: int, edges: pa.Table, vertices: pa.Table) -> tuple[Slice, NDArray[np.int64]]:
    """The slice of a partition, and the local sub-graph of every edge that touches it, by ascending edge number."""
    edges, vertices = _sorted(edges, "edge"), _sorted(vertices, "spot")
    start, stop = (int(plan.vertex_starts[partition + at]) for at in (0, 1))
    spots = [edges.column(name).to_numpy() for name in ("u", "v")]
    u, v = (plan.vertex_starts[spot >> SPOT_BITS] + (spot & ((1 << SPOT_BITS) - 1)) for spot in spots)
    # Every vertex that is touched, in partitioned order; sub-graphs stay together and in order.
    far = distinct(np.concatenate([end[(end < start) | (end >= stop)] for end in (u, v)])).astype(np.int64)
    before = int(np.searchsorted(far, start))
    touched = np.concatenate((far[:before], np.arange(start, stop), far[before:]))
    local_u, local_v = (_local(end, far, before, start, stop) for end in (u, v))
    piece = np.searchsorted(plan.piece_offsets, touched, side="right") - 1
    pieces, sizes = np.unique(piece, return_counts=True)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    begin, end = np.searchsorted(pieces, plan.piece_starts[partition : partition + 2])

    attributes = _attributes(plan, edges)
    weights = edges.column("weight").to_numpy() if plan.weighted else None
    graph = from_edges(
        local_u, local_v, weights, directed=plan.directed, labels=np.arange(touched.size), self_loops="keep",
        parallel="keep", edge_attributes={"row": np.arange(u.size)},
    )  # fmt: skip
    assert graph.edge_attributes is not None and graph.edge_of_arc is not None
    # Edges keep the order of their numbers over the whole graph, not that of the numbering here.
    rows = graph.edge_attributes.column("row").to_numpy()[graph.edge_of_arc]
    graph = replace(graph, edge_attributes=pa.table(attributes or {"row": np.arange(u.size)}), edge_of_arc=rows)
    everyone = np.arange(touched.size, dtype=vertex_dtype(touched.size))
    cut = cut_slice(graph, 0, everyone, everyone, offsets, np.array([begin, end]))

    kind = vertex_dtype(plan.vertices)
    numbers = vertices.column("number").to_numpy().astype(kind)
    columns = {name: cut.column(name) for name in (f"edge.{name}" for name in attributes)}
    columns |= {"edge_id": edges.column("edge").to_numpy(), "edge_row": cut.column("edge_row")}
    columns["label"] = numbers if plan.label_type == "implicit" else _whole(vertices.column("label"), plan.label_type)
    columns |= {name: cut.column(name) for name in ("weight", "in_weight") if plan.weighted}

    def moved(arcs: Arcs) -> Arcs:
        far = touched[arcs.remote_vertex].astype(kind)
        return replace(arcs, remote_vertex=far, remote_subgraph=pieces[arcs.remote_subgraph])

    out_arcs = moved(cut.out_arcs)
    part = replace(
        cut, partition=partition, vertex_start=start, subgraph_start=int(plan.piece_starts[partition]),
        out_arcs=out_arcs, in_arcs=moved(cut.in_arcs) if plan.directed else out_arcs,
        neighbor_subgraph=pieces[cut.neighbor_subgraph], vertex_ids=numbers,
        column=lambda name: column_of(columns, name),
    )  # fmt: skip
    home = piece[np.where((u >= start) & (u < stop), local_u, local_v)] - plan.piece_starts[partition]
    return part, home


def _sorted(table: pa.Table, name: str) -> pa.Table:
    """`table` in the order of a column of distinct numbers."""
    return table.take(pa.array(np.argsort(table.column(name).to_numpy())))


def _local(ends: NDArray[np.int64], far: NDArray[np.int64], before: int, start: int, stop: int) -> NDArray[np.int64]:
    """Places of vertices among those of a partition, ``start … stop-1``, and the `far` ones around them."""
    local = ends - start + before
    away = np.flatnonzero((ends < start) | (ends >= stop))
    found = np.searchsorted(far, ends[away])
    local[away] = np.where(found < before, found, found + stop - start)
    return local


def _attributes(plan: Plan, table: pa.Table) -> dict[str, pa.Array]:
    return {name: _whole(table.column(f"a{at}"), kind) for at, (name, kind) in enumerate(plan.attributes.items())}


def _whole(column: pa.ChunkedArray, kind: str) -> pa.Array:
    array = column.cast(pa.type_for_alias(kind)).combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array

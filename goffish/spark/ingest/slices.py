"""What the executors do: find the subgraphs of a partition, build its slice, write it.

A partition is built from its own edges alone, in a numbering of the vertices that these edges touch that keeps the
order of the partitioned numbering; the builder behind `goffish.gofs.build_layout` does the rest. So the bytes are those
that it would make of the whole graph on one machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs import PartitionedGraph, Slice
from goffish.gofs.encoding import encode_slice
from goffish.gofs.files import open_folder
from goffish.gofs.layout import cut_slice, number_by_owner
from goffish.gofs.series.slices import Elements, elements_of
from goffish.gofs.slices import Arcs, column_of, distinct
from goffish.gofs.store import write_once
from goffish.graph import Graph, from_edges
from goffish.graph.labels import vertex_dtype
from goffish.spark.ingest.plan import SPOT_BITS, Plan, attribute_columns, report_row, whole_column, write_files
from goffish.spark.ingest.series import series_files

#: Where each vertex goes: its spot, and its subgraph in the partition, by its number.
PLACES = "number bigint, spot bigint, piece bigint"


def find_pieces(partition: int, tables: Sequence[pa.Table | None]) -> pa.Table:
    """The subgraphs of one partition: columns of `PLACES`.

    `tables`: the edges inside the partition (``u``, ``v``), if there are any, and its vertices (``number``). Subgraphs
    are numbered by their smallest vertex; vertices of a subgraph keep their order.
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
    `vertices`: ``number``, ``spot``, ``label`` where labels are not implicit, and the attributes ``v0`` ….
    """
    part, elements = build_slice(plan, partition, edges, vertices)
    graph = PartitionedGraph(plan.info(), lambda _: part)
    folder = open_folder(plan.store)
    files: dict[str, Any] = {}
    for kind, data, entry in encode_slice(graph.info, part):
        write_once(folder, entry, data)
        files[kind] = asdict(entry)
    if elements is not None:
        files |= write_files(folder, partition, series_files(plan, partition, elements))
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


def build_slice(plan: Plan, partition: int, edges: pa.Table, vertices: pa.Table) -> tuple[Slice, Elements | None]:
    """The slice of a partition, and what its time series speaks of, if there is one."""
    edges, vertices = _sorted(edges, "edge"), _sorted(vertices, "spot")
    start, stop = (int(plan.vertex_starts[partition + at]) for at in (0, 1))
    spots = [edges.column(name).to_numpy() for name in ("u", "v")]
    u, v = (plan.vertex_starts[spot >> SPOT_BITS] + (spot & ((1 << SPOT_BITS) - 1)) for spot in spots)
    # Every vertex that is touched, in partitioned order; subgraphs stay together and in order.
    far = distinct(np.concatenate([end[(end < start) | (end >= stop)] for end in (u, v)])).astype(np.int64)
    before = int(np.searchsorted(far, start))
    touched = np.concatenate((far[:before], np.arange(start, stop), far[before:]))
    local_u, local_v = (_local(end, far, before, start, stop) for end in (u, v))
    piece = np.searchsorted(plan.piece_offsets, touched, side="right") - 1
    pieces, sizes = np.unique(piece, return_counts=True)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    begin, end = np.searchsorted(pieces, plan.piece_starts[partition : partition + 2])

    attributes = attribute_columns(plan.attributes, edges)
    weights = edges.column("weight").to_numpy() if plan.weighted else None
    # Nothing but attributes and series asks which edge an arc is.
    by_edge = bool(attributes) or plan.starts is not None
    graph = from_edges(
        local_u, local_v, weights, directed=plan.directed, labels=np.arange(touched.size), self_loops="keep",
        parallel="keep", edge_attributes={"row": np.arange(u.size)} if by_edge else None,
    )  # fmt: skip
    if graph.edge_attributes is not None and graph.edge_of_arc is not None:
        # Edges keep the order of their numbers over the whole graph, not that of the numbering here.
        rows = graph.edge_attributes.column("row").to_numpy()[graph.edge_of_arc]
        graph = replace(graph, edge_attributes=pa.table(attributes or {"row": np.arange(u.size)}), edge_of_arc=rows)
    everyone: NDArray[np.integer[Any]] = np.arange(touched.size, dtype=vertex_dtype(touched.size))
    cut = cut_slice(graph, 0, everyone, everyone, offsets, np.array([begin, end]))

    kind = vertex_dtype(plan.vertices)
    numbers = vertices.column("number").to_numpy().astype(kind)
    columns = {name: cut.column(name) for name in (f"edge.{name}" for name in attributes)}
    if by_edge:
        columns |= {"edge_id": edges.column("edge").to_numpy(), "edge_row": cut.column("edge_row")}
    named = plan.label_type != "implicit"
    columns["label"] = whole_column(vertices.column("label"), plan.label_type) if named else numbers
    columns |= {name: cut.column(name) for name in ("weight", "in_weight") if plan.weighted}
    own = attribute_columns(plan.vertex_attributes, vertices, "v")
    columns |= {f"vertex.{name}": column for name, column in own.items()}

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
    if plan.starts is None:
        return part, None
    elements = elements_of(cut, graph, everyone, plan.bins)
    return part, replace(elements, edge_id=edges.column("edge").to_numpy()[elements.edge_id])


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

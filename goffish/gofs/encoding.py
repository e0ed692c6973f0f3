"""Slices as bytes: arrays in Arrow IPC, attributes in Parquet, each file named by its content."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from goffish.gofs import manifest as manifests
from goffish.gofs.manifest import FileEntry, GraphInfo
from goffish.gofs.slices import Slice

ARC_ARRAYS = ("offsets", "targets", "remote_offsets", "remote_vertex", "remote_subgraph")
_PLAIN = ("subgraph_offsets", "neighbor_offsets", "neighbor_subgraph", "neighbor_links", "vertex_ids")


def encode_slice(info: GraphInfo, part: Slice) -> Iterator[tuple[str, pa.Buffer, FileEntry]]:
    """Slice kinds, their bytes, and their entries in the manifest."""
    for kind, suffix, data in _files(info, part):
        yield kind, data, entry_of(part.partition, kind, suffix, data)


def is_template(kind: str) -> bool:
    """Whether `encode_slice` makes files of this kind of the graph itself."""
    return kind in ("topology", "weight", "label", "edge-index") or kind.startswith(("vertex.", "edge."))


def entry_of(partition: int, kind: str, suffix: str, data: pa.Buffer) -> FileEntry:
    """The entry in the manifest of a file of a partition, which is named by its kind and content."""
    digest = manifests.checksum(data)
    return FileEntry(f"p{partition:05d}/{quote(kind, safe=' ')}-{digest[:16]}.{suffix}", data.size, digest)


def _files(info: GraphInfo, part: Slice) -> Iterator[tuple[str, str, pa.Buffer]]:
    arrays: dict[str, Any] = {name: getattr(part, name) for name in _PLAIN}
    arrays |= {f"out.{name}": getattr(part.out_arcs, name) for name in ARC_ARRAYS}
    if part.directed:
        arrays |= {f"in.{name}": getattr(part.in_arcs, name) for name in ARC_ARRAYS}
    yield "topology", "arrow", encode_arrays(arrays)
    if info.weighted:
        weights = {"weight": part.column("weight")}
        if part.directed:
            weights["in_weight"] = part.column("in_weight")
        yield "weight", "arrow", encode_arrays(weights)
    if info.label_type != "implicit":
        yield "label", "arrow", encode_arrays({"label": part.labels()})
    if info.edge_schema:
        rows = {name: part.column(name) for name in ("edge_id", "edge_row")}
        yield "edge-index", "arrow", encode_arrays(rows)
    for place, schema in (("vertex", info.vertex_schema), ("edge", info.edge_schema)):
        for name in schema:
            yield (
                f"{place}.{name}",
                "parquet",
                encode_parquet(pa.table({name: part.column(f"{place}.{name}")})),
            )


def encode_arrays(arrays: Mapping[str, Any]) -> pa.Buffer:
    """One row of list columns: arrays of different lengths, readable without copying."""
    columns = {}
    for name, array in arrays.items():
        values = array if isinstance(array, pa.Array) else pa.array(array)
        columns[name] = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
    batch = pa.record_batch(columns)

    def write(sink: Any) -> Any:
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink

    # The size is known first: a buffer that grows is copied several times.
    buffer = pa.allocate_buffer(write(pa.MockOutputStream()).size())
    write(pa.FixedSizeBufferWriter(buffer))
    return buffer


def encode_parquet(table: pa.Table) -> pa.Buffer:
    """A table as the bytes of a Parquet file."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return pa.py_buffer(sink.getvalue())


def decode_parquet(data: pa.Buffer) -> pa.Table:
    """The inverse of `encode_parquet`."""
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(data))


def decode_arrays(data: pa.Buffer) -> dict[str, pa.Array]:
    """The inverse of `encode_arrays`, without copying."""
    batch = pa.ipc.open_file(data).get_batch(0)
    return {name: batch.column(name).flatten() for name in batch.schema.names}


def read_array(file: pa.NativeFile, name: str) -> pa.Array:
    """One array of a file of `encode_arrays`, of which only that is read.

    Raises
    ------
    pyarrow.ArrowException, OSError, ValueError
        The file is damaged so that the array cannot be found.
    """
    place = pa.ipc.open_file(file).schema.get_field_index(name)
    column = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=[place])).get_batch(0).column(0)
    column.validate()
    return column.flatten()

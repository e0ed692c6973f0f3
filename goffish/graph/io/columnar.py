"""Parquet and Arrow IPC (Feather) files, and folders of Parquet: a table of edges, with the rest in the metadata.

The metadata key ``goffish`` states whether the graph is directed. If the edges alone do not determine all
vertices (isolated ones, vertex attributes, an order that is not ascending), ``goffish.vertices`` holds the
table of vertices as a Base64-coded Arrow stream. Other tools see an ordinary table.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from goffish.errors import FormatError, InputError
from goffish.graph.graph import Graph
from goffish.graph.io.layout import role_of
from goffish.graph.io.options import ReadOptions
from goffish.graph.io.streams import Progress, Source
from goffish.graph.tables import from_arrow, to_arrow, vertices_to_arrow
from goffish.storage import open_filesystem

KEY, _VERTICES = b"goffish", b"goffish.vertices"
_LARGEST_METADATA = 64 << 20
_NULL = "__HIVE_DEFAULT_PARTITION__"


def read_parquet(source: Source, options: ReadOptions) -> Graph:
    """Read a Parquet file of edges; see `goffish.graph.io.read`."""
    from pyarrow import parquet

    with source.raw() as raw:
        try:
            file = parquet.ParquetFile(raw)
            wanted = _place(source.name, file.schema_arrow, options)
            groups = []
            for index in range(file.num_row_groups):
                groups.append(file.read_row_group(index, columns=list(wanted)))
                if source.progress is not None:
                    total = source.estimated_bytes
                    source.progress(total * (index + 1) // file.num_row_groups, source.total)
            schema = file.schema_arrow
            table = pa.concat_tables(groups) if groups else schema.empty_table().select(list(wanted))
        except (pa.ArrowException, OSError) as error:
            raise FormatError(source.name, None, f"not a readable Parquet file ({error})") from None
    return _build(source.name, table, schema.metadata or {}, wanted, options)


def read_arrow(source: Source, options: ReadOptions) -> Graph:
    """Read an Arrow IPC file or stream of edges; see `goffish.graph.io.read`."""
    with source.raw() as raw:
        is_file = raw.read(6) == b"ARROW1"
        raw.seek(0)
        try:
            reader = pa.ipc.open_file(raw) if is_file else pa.ipc.open_stream(raw)
            wanted = _place(source.name, reader.schema, options)
            schema = reader.schema
            table = reader.read_all().select(list(wanted))
        except (pa.ArrowException, OSError) as error:
            raise FormatError(source.name, None, f"not a readable Arrow file ({error})") from None
    if source.progress is not None:
        source.progress(source.estimated_bytes, source.total)
    return _build(source.name, table, schema.metadata or {}, wanted, options)


def read_folder(name: str, options: ReadOptions, progress: Progress | None) -> Graph:
    """Read all Parquet files below a folder, whose own names such as ``zone=7`` are columns of texts."""
    from pyarrow import parquet

    path = name
    try:
        system, root = open_filesystem(name)
        found = sorted(path for path in system.find(root) if path.endswith(".parquet") and _is_visible(path, root))
        if not found:
            accepted = "give a graph file, a store, or a folder of Parquet files"
            raise InputError(f"{name}: is a folder without manifest.json and .parquet files; {accepted}")
        sizes, tables = [system.size(path) for path in found], []
        for at, path in enumerate(found):
            with system.open(path, "rb") as file:
                table = parquet.ParquetFile(file).read()
            for key, value in _keys(path, root):
                if key in table.column_names:  # as Spark does, the name of the folder counts
                    table = table.drop_columns([key])
                table = table.append_column(key, pa.repeat(pa.scalar(value, pa.string()), table.num_rows))
            tables.append(table)
            if progress is not None:
                progress(sum(sizes[: at + 1]), sum(sizes))
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read as a Parquet file ({str(error).splitlines()[0]})") from None
    wanted = _place(name, table.schema, options)
    return _build(name, table.select(list(wanted)), {}, wanted, options)


def _keys(path: str, root: str) -> list[tuple[str, str | None]]:
    """Columns and values in the names of the folders of a file, as Hive writes them."""
    pairs = (part.split("=", 1) for part in PurePosixPath(path).relative_to(root).parts[:-1] if "=" in part)
    return [(unquote(key), None if value == _NULL else unquote(value)) for key, value in pairs]


def _is_visible(path: str, root: str) -> bool:
    """Whether no name below the folder is one that Spark and Hive leave out, such as ``_temporary``."""
    return not any(part.startswith(("_", ".")) for part in PurePosixPath(path).relative_to(root).parts)


def _place(file: str, schema: pa.Schema, options: ReadOptions) -> dict[str, str]:
    """Column name -> the name that it has in the graph."""
    names = schema.names
    place: dict[str, str] = {}
    for role, wanted in options.columns.items():
        if (isinstance(wanted, str) and wanted not in names) or (
            not isinstance(wanted, str) and not 0 <= wanted < len(names)
        ):
            raise InputError(f"{file}: no column {wanted!r} for {role}; the columns are {', '.join(names)}")
        place[wanted if isinstance(wanted, str) else names[wanted]] = role
    if len(place) < len(options.columns):
        raise InputError(f"{file}: columns assigns two roles to one column")
    for name in names:
        known = role_of(name)
        if known in ("source", "target", "weight") and known not in place.values() and name not in place:
            place[name] = known
    for role in ("source", "target"):
        if role not in place.values():
            free = [name for name in names if name not in place]
            if not free:
                raise FormatError(file, None, "expected at least two columns, source and target")
            place[free[0]] = role
    if options.weighted is False:
        place = {name: role for name, role in place.items() if role != "weight"}
        names = [name for name in names if role_of(name) != "weight"]
    elif options.weighted and "weight" not in place.values():
        raise FormatError(file, None, "weighted=True: no weight column found; select it with columns")
    return {**place, **{name: name for name in names if name not in place}}


def _build(
    file: str,
    table: pa.Table,
    metadata: dict[bytes, bytes],
    wanted: dict[str, str],
    options: ReadOptions,
) -> Graph:
    table = table.rename_columns([wanted[name] for name in table.column_names]).replace_schema_metadata(None)
    try:
        ours = json.loads(metadata.get(KEY, b"{}"))
        coded = metadata.get(_VERTICES)
        vertices = None if coded is None else pa.ipc.open_stream(base64.b64decode(coded)).read_all()
    except (ValueError, pa.ArrowException) as error:
        raise FormatError(file, None, f"the GoFFish metadata is damaged ({error})") from None
    directed = bool(ours.get("directed", False)) if options.directed is None else options.directed
    return from_arrow(
        table,
        directed=directed,
        vertices=vertices,
        self_loops=options.self_loops,
        parallel=options.parallel,
    )


def write_parquet(graph: Graph, file: BinaryIO) -> None:
    """Write edges, attributes and (in the metadata) what else there is; nothing is lost."""
    from pyarrow import parquet

    parquet.write_table(_table(graph), file, compression="zstd")


def write_arrow(graph: Graph, file: BinaryIO) -> None:
    """Write edges, attributes and (in the metadata) what else there is; nothing is lost."""
    table = _table(graph)
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _table(graph: Graph) -> pa.Table:
    metadata: dict[bytes, bytes] = {KEY: json.dumps({"version": 1, "directed": graph.directed}).encode()}
    if _needs_vertices(graph):
        buffer = io.BytesIO()
        vertices = vertices_to_arrow(graph)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(buffer, vertices.schema, options=options) as writer:
            writer.write_table(vertices)
        metadata[_VERTICES] = base64.b64encode(buffer.getvalue())
        if len(metadata[_VERTICES]) > _LARGEST_METADATA:
            raise InputError("the vertex table is too large for the metadata of a file; save the graph as a store")
    return to_arrow(graph).replace_schema_metadata(metadata)


def _needs_vertices(graph: Graph) -> bool:
    if graph.vertex_attributes is not None:
        return True
    seen = np.diff(graph.offsets) > 0
    seen[graph.targets] = True
    if not seen.all():
        return True
    return graph.labels is not None and not _ascending(graph.labels)


def _ascending(labels: Any) -> bool:
    import pyarrow.compute as pc

    return len(labels) < 2 or bool(pc.all(pc.less(labels[:-1], labels[1:])).as_py())

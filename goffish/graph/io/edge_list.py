"""Edge lists: one edge per line, in any of the usual dialects.

Not read with `pyarrow.csv`: runs of blanks separate columns, comments occur between lines, and errors name the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from goffish.errors import FormatError, InputError
from goffish.graph.graph import Graph
from goffish.graph.io.layout import Head, directed_by_comments, find_layout, split_head
from goffish.graph.io.options import ReadOptions
from goffish.graph.io.streams import Source
from goffish.graph.io.table import Columns, Layout, NotIntegers, read_columns
from goffish.graph.tables import to_arrow

_FIRST_HEAD, _LARGEST_HEAD = 1 << 16, 1 << 24
_ROWS_PER_PIECE = 1 << 20


def read_edge_list(source: Source, options: ReadOptions) -> Graph:
    """Read an edge list; see `goffish.graph.io.read`."""
    head = read_head(source, options)
    layout = find_layout(source.name, head, options)
    columns = _read(source, layout)
    attributes = None if columns.timestamp is None else {"timestamp": columns.timestamp}
    directed = directed_by_comments(source.name, head.comments) if options.directed is None else False
    source_ids, target_ids, weight, labels = columns.source, columns.target, columns.weight, columns.labels
    del columns
    return options.build(source_ids, target_ids, weight, directed=directed, labels=labels, edge_attributes=attributes)


def _read(source: Source, layout: Layout) -> Columns:
    """Read with the guess from the first line; what turns out not to be an integer is read again as it is."""
    try:
        return read_columns(source, layout)
    except NotIntegers as surprise:
        if surprise.timestamps:
            return _read(source, replace(layout, real_stamp=True))
        if layout.as_text:
            raise surprise.error from None
        return _read(source, replace(layout, as_text=True))


def read_head(source: Source, options: ReadOptions) -> Head:
    """The first lines, looking further while they are all comments."""
    suffix = PurePosixPath(re.sub(r"\.(gz|bz2|zst)$", "", source.name)).suffix
    size = _FIRST_HEAD
    while True:
        data = source.head(size)
        whole = len(data) < size
        lines = decode_head(source.name, data).split("\n")
        head = split_head(lines if whole else lines[:-1], options, suffix)
        if len(head.rows) >= 2 or whole or size >= _LARGEST_HEAD:
            break
        size *= 8
    if not head.rows:
        empty = not data.strip()
        raise FormatError(
            source.name, None, "no edges found: the file " + ("is empty" if empty else "holds only comments")
        )
    return head


def write_edge_list(graph: Graph, file: BinaryIO, *, separator: str, header_line: bool) -> None:
    """Write one edge per line: source, target, weight and the edge attribute timestamp, if there are such.

    Either under a header line, or under comments that also say whether the graph is directed. Isolated
    vertices, vertex attributes and other edge attributes are lost.
    """
    table = to_arrow(graph)
    names = [name for name in ("source", "target", "weight", "timestamp") if name in table.column_names]
    text = graph.labels is not None and pa.types.is_string(graph.labels.type)
    if text:
        _check_labels(graph.labels)
    title = separator.join(names)
    if not header_line:
        kind = "Directed" if graph.directed else "Undirected"
        title = f"# {kind} graph\n# Nodes: {graph.num_vertices} Edges: {graph.num_edges}\n# {title}"
    file.write(f"{title}\n".encode())
    write_rows(file, [table.column(name) for name in names], separator, quote=text)


def _check_labels(labels: pa.Array) -> None:
    broken = pc.match_substring_regex(labels, "[\n\r]")
    if pc.any(broken).as_py():
        shown = labels.filter(broken)[0].as_py()
        raise InputError(f"the label {shown!r} contains a line break, which an edge list cannot store")


def decode_head(name: str, data: bytes) -> str:
    """The first bytes as text, or an error if they are none."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise FormatError(name, None, "the text is UTF-16; convert it, e.g. with iconv -t utf-8")
    if b"\0" in data[:4096]:
        raise FormatError(name, None, "unknown binary format; expected a text file")
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    if "\r" in text.strip() and "\n" not in text:
        raise FormatError(name, None, "lines end with carriage returns only; convert them to line feeds")
    return text


def write_rows(file: BinaryIO, columns: Sequence[Any], separator: str, *, quote: bool = False) -> None:
    """Write equally long columns (NumPy or Arrow) as lines; floats in their shortest exact form.

    `quote` puts every field in quotes, for strings that would otherwise be misread.
    """
    from pyarrow import csv

    style = csv.WriteOptions(
        include_header=False, delimiter=separator, quoting_style="all_valid" if quote else "needed"
    )
    arrays = [column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column) for column in columns]
    table = pa.table(arrays, names=[str(i) for i in range(len(arrays))])
    for start in range(0, table.num_rows, _ROWS_PER_PIECE):
        csv.write_csv(table.slice(start, _ROWS_PER_PIECE), file, style)

"""Matrix Market coordinate files as adjacency matrices."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from goffish.errors import FormatError
from goffish.graph.graph import Graph
from goffish.graph.io import kernels as k
from goffish.graph.io.edge_list import decode_head, write_rows
from goffish.graph.io.options import ReadOptions, both_directions, check_isolated
from goffish.graph.io.streams import Source
from goffish.graph.io.table import Layout, NotIntegers, read_columns


def read_matrix_market(source: Source, options: ReadOptions) -> Graph:
    """Read a square coordinate matrix; see `goffish.graph.io.read`. Vertices are labeled 1 … n.

    ``symmetric`` makes an undirected graph, ``general`` a directed one; ``pattern`` one without weights.
    """
    lines, size = _head_lines(source)
    banner = lines[0].lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise FormatError(source.name, 1, "expected '%%MatrixMarket matrix coordinate <field> <symmetry>'", lines[0])
    _, _, form, values, symmetry = banner
    if form != "coordinate":
        raise FormatError(source.name, 1, "only sparse (coordinate) matrices are supported", lines[0])
    if values not in ("pattern", "real", "integer", "double"):
        raise FormatError(source.name, 1, f"unsupported values {values}; accepted: pattern, real, integer", lines[0])
    if symmetry not in ("general", "symmetric"):
        raise FormatError(source.name, 1, f"unsupported symmetry {symmetry}; accepted: general, symmetric", lines[0])
    # Network Repository's road-usroads says "129164 129164% 165435"
    numbers = lines[size - 1].replace("% ", " ").split()
    if len(numbers) != 3 or not all(f.isascii() and f.isdigit() for f in numbers):
        raise FormatError(source.name, size, "expected the size line: rows columns entries", lines[size - 1].strip())
    n, columns, entries = (int(f) for f in numbers)
    if n != columns:
        raise FormatError(source.name, size, f"the matrix is not square ({n} x {columns})", lines[size - 1].strip())
    if options.weighted and values == "pattern":
        raise FormatError(source.name, 1, "weighted=True: a pattern matrix has no values", lines[0])
    weighted = values != "pattern" and options.weighted is not False
    kinds = (k.SOURCE, k.TARGET, k.WEIGHT) if weighted else (k.SOURCE, k.TARGET)
    try:
        table = read_columns(source, Layout(kinds, comments=("%",), skip=size, low=1, high=n))
    except NotIntegers as error:
        raise error.error from None
    if table.source.size != entries:
        raise FormatError(
            source.name,
            size,
            f"the size line declares {entries:,} entries, the file has {table.source.size:,}",
        )
    check_isolated(source.name, size, n, table.source.size)
    src, dst, weight = table.source - 1, table.target - 1, table.weight
    if symmetry == "symmetric" and options.directed:
        src, dst, weight = both_directions(src, dst, weight)
    return options.build(src, dst, weight, directed=symmetry == "general", labels=np.arange(1, n + 1))


def _head_lines(source: Source) -> tuple[list[str], int]:
    """The first lines, and the 1-based number of the size line."""
    length = 1 << 16
    while True:
        data = source.head(length)
        lines = decode_head(source.name, data).split("\n")
        size = next((i for i, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("%")), 0)
        if (size and size < len(lines)) or len(data) < length:
            break
        length *= 8
    if not size or not data.strip():
        raise FormatError(source.name, None, "no matrix found: the file is empty or has no size line")
    return lines, size


def write_matrix_market(graph: Graph, file: BinaryIO) -> None:
    """Write the adjacency matrix; labels and attributes are lost (vertices are written as 1 … n)."""
    src, dst, weight, _ = graph.edge_columns()
    values = "pattern" if weight is None else "real"
    symmetry = "general" if graph.directed else "symmetric"
    file.write(f"%%MatrixMarket matrix coordinate {values} {symmetry}\n".encode())
    file.write(f"{graph.num_vertices} {graph.num_vertices} {src.size}\n".encode())
    if not graph.directed:
        src, dst = dst, src  # symmetric files list the lower triangle
    columns = [src.astype(np.int64) + 1, dst.astype(np.int64) + 1]
    write_rows(file, columns if weight is None else [*columns, weight], " ")

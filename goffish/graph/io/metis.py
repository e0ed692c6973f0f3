"""METIS (also Chaco) files: a header ``n m [fmt [ncon]]``, then one line of neighbors per vertex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import FormatError, InputError
from goffish.graph.graph import Graph
from goffish.graph.io import kernels as k
from goffish.graph.io.edge_list import decode_head
from goffish.graph.io.options import ReadOptions
from goffish.graph.io.streams import Block, Source

_ARCS_PER_PIECE = 1 << 20


@dataclass(frozen=True)
class _Header:
    line: int
    n: int
    m: int
    sizes: bool
    vertex_weights: int
    edge_weights: bool

    @property
    def extras(self) -> int:
        """How many numbers of a line belong to the vertex."""
        return self.sizes + self.vertex_weights

    def attribute_names(self) -> list[str]:
        weights = [f"weight_{i + 1}" for i in range(self.vertex_weights)] if self.vertex_weights > 1 else ["weight"]
        return ["size"] * self.sizes + weights[: self.vertex_weights]


def read_metis(source: Source, options: ReadOptions) -> Graph:
    """Read a METIS file; see `goffish.graph.io.read`. Vertices are labeled 1 … n, as in the file.

    Vertex weights and sizes become the vertex attributes ``weight`` (several: ``weight_1`` ...) and ``size``.
    """
    header = _read_header(source)
    if options.weighted and not header.edge_weights:
        raise FormatError(source.name, header.line, "weighted=True: the file has no edge weights")
    # A vertex takes a line; an edge a digit and a separator in two of them.
    source.check_declared(header.line, "vertices", header.n, 1 + 2 * header.extras)
    source.check_declared(header.line, "edges", header.m, 4)
    try:
        offsets, lines = np.zeros(header.n + 1, np.int64), np.zeros(header.n, np.int64)
        targets = np.empty(2 * header.m, np.int32)
        weights = np.empty(2 * header.m if header.edge_weights else 0, np.float64)
        values = np.empty((header.n, header.extras), np.int64)
    except MemoryError:
        raise FormatError(
            source.name,
            header.line,
            f"the header declares {header.n:,} vertices and {header.m:,} edges, which exceed the memory",
        ) from None
    _parse(source, header, offsets, targets, weights, values, lines)
    arcs = int(offsets[-1])
    src = np.repeat(np.arange(header.n, dtype=np.int32), np.diff(offsets))
    loops = int(np.count_nonzero(src == targets[:arcs]))
    if header.m * 2 not in (arcs, arcs + loops):
        raise FormatError(
            source.name,
            header.line,
            f"the header declares {header.m:,} edges, but the file lists {arcs:,} neighbors "
            f"(expected {2 * header.m:,}, every edge from both ends)",
        )
    targets, weights = targets[:arcs], weights[: arcs if header.edge_weights else 0]
    _check_symmetric(source, src, targets, weights, header, lines)
    # the file lists both directions: all of them make a directed graph, one of them an undirected one
    keep = slice(None) if options.directed else src <= targets
    names = header.attribute_names()
    return options.build(
        src[keep],
        targets[keep],
        weights[keep] if header.edge_weights and options.weighted is not False else None,
        directed=False,
        labels=np.arange(1, header.n + 1),
        vertex_attributes={name: values[:, i] for i, name in enumerate(names)} if names else None,
    )


def _read_header(source: Source) -> _Header:
    size = 1 << 16
    while True:
        data = source.head(size)
        lines = decode_head(source.name, data).split("\n")
        number = next((i for i, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("%")), 0)
        if (number and number < len(lines)) or len(data) < size:
            break
        size *= 8
    if not number:
        raise FormatError(source.name, None, "no graph found: the file has no header line 'vertices edges [fmt]'")
    text = lines[number - 1]
    fields = text.split()
    if not 2 <= len(fields) <= 4 or not all(f.isascii() and f.isdigit() for f in fields):
        raise FormatError(
            source.name,
            number,
            "expected the METIS header: vertices edges [fmt [weights per vertex]]",
            text.strip(),
        )
    n, m = int(fields[0]), int(fields[1])
    flags = fields[2].rjust(3, "0") if len(fields) > 2 else "000"
    if len(flags) > 3 or set(flags) - {"0", "1"}:
        raise FormatError(source.name, number, "the fmt field must be three digits 0 or 1", text.strip())
    if n >= 2**31 or m >= 2**40:
        raise FormatError(source.name, number, "more vertices or edges than supported (2^31, 2^40)", text)
    per_vertex = int(fields[3]) if len(fields) > 3 else 1
    if per_vertex > 1024:
        raise FormatError(source.name, number, "more than 1024 weights per vertex", text.strip())
    return _Header(number, n, m, flags[0] == "1", per_vertex if flags[1] == "1" else 0, flags[2] == "1")


def _parse(
    source: Source,
    header: _Header,
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    weights: NDArray[np.float64],
    values: NDArray[np.int64],
    lines: NDArray[np.int64],
) -> None:
    state = np.zeros(7, np.int64)
    state[k.METIS_LINE] = header.line + 1
    to_skip = header.line
    for block in source.blocks(lines=False):
        start = block.start
        while to_skip and start < block.end:
            ends = block.data[start : block.end] == 10
            if not ends.any():
                start = block.end
                break
            start += int(np.argmax(ends)) + 1
            to_skip -= 1
        status = k.parse_metis(
            block.data, start, block.end, header.n, header.extras, header.edge_weights,
            offsets, targets, weights, values, lines, state,
        )  # fmt: skip
        if status != k.OK:
            raise _problem(source, header, block, status, state)
    found = int(state[k.VERTEX])
    if found < header.n:
        raise FormatError(
            source.name,
            int(state[k.METIS_LINE]) - 1,
            f"the header declares {header.n:,} vertices, but only {found:,} vertex lines follow",
        )


def _problem(source: Source, header: _Header, block: Block, status: int, state: NDArray[np.int64]) -> FormatError:
    begin = int(state[k.METIS_POSITION])
    text = block.data[begin : min(block.end, begin + 200)].tobytes().decode("utf-8", "replace").split()
    problem = {
        k.MISSING: f"a vertex line must begin with {header.extras} numbers of the vertex (see the fmt field)",
        k.NO_WEIGHT: "the last neighbor in this line has no edge weight",
        k.TOO_MANY_LINES: f"more vertex lines than the {header.n:,} that the header declares",
        k.TOO_MANY_ARCS: f"more neighbors than the {header.m:,} edges that the header declares",
        k.NOT_INTEGER: "expected an integer",
        k.TOO_BIG: "the number does not fit in 64 bits",
        k.OUT_OF_RANGE: f"neighbors must be in the range 1 to {header.n}",
        k.NEGATIVE: "weights and sizes must not be negative",
    }[status]
    shown = None if status in (k.MISSING, k.NO_WEIGHT) or not text else text[0]
    return FormatError(source.name, int(state[k.METIS_LINE]), problem, shown)


def _check_symmetric(
    source: Source,
    src: NDArray[np.int32],
    targets: NDArray[np.int32],
    weights: NDArray[np.float64],
    header: _Header,
    lines: NDArray[np.int64],
) -> None:
    """Every neighbor must list its neighbor, with the same weight."""
    forward = src.astype(np.int64) * header.n + targets
    backward = targets.astype(np.int64) * header.n + src
    if header.edge_weights:
        order, reverse = np.lexsort((weights, forward)), np.lexsort((weights, backward))
    else:
        order = reverse = np.empty(0, np.int64)
        forward.sort()
        backward.sort()
    if header.edge_weights:
        forward, backward = forward[order], backward[reverse]
    wrong = forward != backward
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        u, v = divmod(int(min(forward[at], backward[at])), header.n)
        if backward[at] < forward[at]:
            u, v = v, u
        raise FormatError(
            source.name,
            int(lines[u]),
            f"vertex {u + 1} lists {v + 1}, but vertex {v + 1} does not list {u + 1}",
        )
    if header.edge_weights:
        wrong = weights[order] != weights[reverse]
        if wrong.any():
            u, v = divmod(int(forward[int(np.flatnonzero(wrong)[0])]), header.n)
            raise FormatError(
                source.name, int(lines[u]), f"the edge between {u + 1} and {v + 1} has two different weights"
            )


def write_metis(graph: Graph, file: BinaryIO) -> None:
    """Write a METIS file; labels and edge attributes are lost (vertices are written as 1 … n).

    A vertex attribute ``weight`` of whole numbers becomes the vertex weight.
    """
    if graph.directed:
        raise InputError("METIS files store only undirected graphs; use graph.to_undirected()")
    loops = graph.num_edges * 2 - graph.num_arcs
    if loops:
        raise InputError(f"METIS files cannot store self-loops; the graph has {loops:,}")
    weights = None if graph.weights is None else _whole(graph.weights, "edge weights")
    own: NDArray[np.int64] | None = None
    if graph.vertex_attributes is not None and "weight" in graph.vertex_attributes.column_names:
        column = graph.vertex_attributes.column("weight")
        own = _whole(column.to_numpy(), "the vertex attribute 'weight'")
    flags = f" 0{int(own is not None)}{int(weights is not None)}" if own is not None or weights is not None else ""
    file.write(f"{graph.num_vertices} {graph.num_edges}{flags}\n".encode())
    first = 0
    while first < graph.num_vertices:
        limit = graph.offsets[first] + _ARCS_PER_PIECE
        last = max(first + 1, int(np.searchsorted(graph.offsets, limit, side="right")) - 1)
        last = min(last, first + _ARCS_PER_PIECE)
        file.write(_lines(graph, first, last, weights, own))
        first = last


def _lines(
    graph: Graph, first: int, last: int, weights: NDArray[np.int64] | None, own: NDArray[np.int64] | None
) -> bytes:
    offsets = graph.offsets[first : last + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    numbers = graph.targets[begin:end].astype(np.int64) + 1
    bounds = offsets - begin
    if weights is not None:
        numbers = np.column_stack((numbers, weights[begin:end])).ravel()
        bounds = bounds * 2
    if own is not None:
        numbers = np.insert(numbers, bounds[:-1], own[first:last])
        bounds = bounds + np.arange(bounds.size)
    words = pa.array(numbers).cast(pa.string())
    rows = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), words), " ")
    return ("\n".join(rows.to_pylist()) + "\n").encode()


def _whole(values: NDArray[Any], what: str) -> NDArray[np.int64]:
    whole = np.asarray(values, np.float64)
    if not np.array_equal(whole, np.floor(whole)) or (whole < 0).any() or (whole >= 2**53).any():
        raise InputError(f"METIS files store only integers; {what} are not integers")
    return whole.astype(np.int64)

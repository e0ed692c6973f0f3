"""DIMACS challenge files: shortest-path graphs (.gr) and coloring graphs (.col)."""

from __future__ import annotations

import re

import numpy as np

from goffish.errors import FormatError
from goffish.graph.graph import Graph
from goffish.graph.io import kernels as k
from goffish.graph.io.edge_list import decode_head
from goffish.graph.io.options import ReadOptions, both_directions, check_isolated
from goffish.graph.io.streams import Source
from goffish.graph.io.table import Layout, NotIntegers, read_columns

_PROBLEM = re.compile(r"p\s+(sp|edge|edges|col)\s+([0-9]+)\s+([0-9]+)\s*$")


def read_dimacs(source: Source, options: ReadOptions) -> Graph:
    """Read ``p sp`` (directed, weighted) or ``p edge`` (undirected); see `goffish.graph.io.read`.

    Vertices are labeled 1 … n.
    """
    number, kind, n, m = _problem_line(source)
    shortest_path = kind == "sp"
    if options.weighted and not shortest_path:
        raise FormatError(source.name, number, "weighted=True: coloring graphs have no weights")
    weighted = shortest_path and options.weighted is not False
    kinds = (k.TAG, k.SOURCE, k.TARGET) + ((k.WEIGHT,) if weighted else ())
    tag = "a" if shortest_path else "e"
    comments = ("c",) if shortest_path else ("c", "n", "d", "v", "x")
    layout = Layout(kinds, comments=comments, skip=number, low=1, high=n, tag=tag)
    try:
        table = read_columns(source, layout)
    except NotIntegers as error:
        raise error.error from None
    rows = table.source.size
    # coloring instances are known to count an edge once or twice
    if rows != m and (shortest_path or rows * 2 != m):
        raise FormatError(source.name, number, f"the problem line declares {m:,} edges, the file has {rows:,}")
    check_isolated(source.name, number, n, table.source.size)
    src, dst, weight = table.source - 1, table.target - 1, table.weight
    if not shortest_path and options.directed:
        src, dst, weight = both_directions(src, dst, weight)
    return options.build(src, dst, weight, directed=shortest_path, labels=np.arange(1, n + 1))


def _problem_line(source: Source) -> tuple[int, str, int, int]:
    size = 1 << 16
    while True:
        data = source.head(size)
        whole = len(data) < size
        lines = decode_head(source.name, data).split("\n")
        for number, line in enumerate(lines if whole else lines[:-1], 1):
            text = line.strip()
            if not text or text == "c" or text.startswith(("c ", "c\t")):
                continue
            found = _PROBLEM.match(text)
            if found is None:
                raise FormatError(source.name, number, "expected 'p sp n m' or 'p edge n m'", text)
            return number, found[1], int(found[2]), int(found[3])
        if whole:
            raise FormatError(source.name, None, "no graph found: the file has no problem line 'p ...'")
        size *= 8

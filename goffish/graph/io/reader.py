"""`read`: one function for every format."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from goffish.errors import FormatError, InputError
from goffish.graph.graph import Graph, Parallel, SelfLoops
from goffish.graph.guards import expect, options_of, path_name
from goffish.graph.io.dimacs import read_dimacs
from goffish.graph.io.edge_list import read_edge_list
from goffish.graph.io.matrix_market import read_matrix_market
from goffish.graph.io.metis import read_metis
from goffish.graph.io.options import ReadOptions
from goffish.graph.io.sniff import find_format
from goffish.graph.io.streams import Progress, Source
from goffish.notebook import in_notebook, reading

_Reader = Callable[[Source, ReadOptions], Graph]
_TEXT: dict[str, _Reader] = {
    "edges": read_edge_list,
    "metis": read_metis,
    "mtx": read_matrix_market,
    "dimacs": read_dimacs,
}


def read(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    directed: bool | None = None,
    columns: Mapping[str, str | int] | None = None,
    weighted: bool | None = None,
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
    progress: Progress | None = None,
    **text: Any,
) -> Graph:
    """Read a graph from a file.

    Parameters
    ----------
    path : str or path-like
        Local file (also a pipe) or any fsspec URL; gzip, bzip2 and Zstandard are recognised by content.
    format : {"auto", "edges", "metis", "mtx", "dimacs", "parquet", "arrow", "graphml", "gml"}
        ``auto`` goes by the suffix, then by the first bytes.
    directed : bool, optional
        Overrides what the file says; without either, edge lists are undirected.
    columns : mapping, optional
        For any of ``source``, ``target``, ``weight``, ``timestamp`` the name or 0-based position of its
        column.
    weighted : bool, optional
        ``False`` ignores weights, ``True`` demands them.
    self_loops, parallel
        As for `goffish.graph.from_edges`.
    progress : callable, optional
        Called with (bytes read, total bytes or None) once per block; bytes as stored, so compressed ones.
    **text
        Of edge lists. ``separator``: one character (default: comma, semicolon, ``|`` or blanks, that is tabs and
        spaces, whichever the first line shows). ``comments``: characters that begin a comment line (default: ``#`` and
        ``%``). ``header``: whether the first line names the columns (default: found out).

    Returns
    -------
    Graph
        With the file's ids as labels; a timestamp column becomes the edge attribute ``timestamp``.

    Raises
    ------
    FormatError
        Where the content is not what the format demands; names file, line and text.
    InputError
        A missing file, a directory, no permission, a bad option.

    Notes
    -----
    Headers are checked against the file before memory is taken for what they declare. A METIS file cannot declare more
    vertices or edges than its bytes hold. Matrix Market and DIMACS files may declare isolated vertices: 4,194,304 in
    any file, and up to 128 for each edge.

    Examples
    --------
    >>> read("roads.csv", columns={"source": "from", "target": "to", "weight": "metres"})  # doctest: +SKIP
    """
    _check_types(text.get("separator"), text.get("comments", ()), columns, progress)
    text = {**text, "comments": tuple(text.get("comments", ("#", "%")) or ())}
    given = {
        "directed": directed, "columns": dict(columns or {}), "weighted": weighted, "self_loops": self_loops,
        "parallel": parallel,
    }  # fmt: skip
    options = options_of(ReadOptions, text | given)
    if progress is not None or not in_notebook():
        return _read(path, format, options, progress)
    with reading(f"reading {Path(path_name(path)).name}") as update:
        return _read(path, format, options, update)


def _read(path: str | os.PathLike[str], format: str, options: ReadOptions, progress: Progress | None) -> Graph:
    source = Source(path_name(path), progress)
    reader = _reader(find_format(source, format))
    try:
        return reader(source, options)
    except FormatError:
        raise
    except InputError as error:
        if str(error).startswith(source.name):
            raise
        raise InputError(f"{source.name}: {error}") from None


def _check_types(separator: Any, comments: Any, columns: Any, progress: Any) -> None:
    if separator is not None:
        expect(separator, str, "separator", "give one character")
    if comments is not None:
        expect(comments, Sequence, "comments", "give characters")
        for mark in comments:
            expect(mark, str, "one of comments", "give characters")
    if columns is not None:
        expect(columns, Mapping, "columns", 'give names or positions, such as {"source": 0, "target": "to"}')
        for at in columns.values():
            expect(at, (str, int), "one of columns", "give names or positions")
    if progress is not None and not callable(progress):
        raise InputError(f"progress={progress!r}: give a function of (bytes read, total bytes)")


def _reader(format: str) -> _Reader:
    if format in ("parquet", "arrow"):
        from goffish.graph.io import columnar

        return columnar.read_parquet if format == "parquet" else columnar.read_arrow
    if format in ("graphml", "gml"):
        from goffish.graph.io import networkx_formats

        return networkx_formats.read_graphml if format == "graphml" else networkx_formats.read_gml
    return _TEXT[format]

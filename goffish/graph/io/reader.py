"""`read`: one function for every format."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from goffish.errors import FormatError, InputError
from goffish.graph.assembly import Parallel, SelfLoops
from goffish.graph.graph import Graph
from goffish.graph.guards import expect, options_of, path_name
from goffish.graph.io.dimacs import read_dimacs
from goffish.graph.io.edge_list import read_edge_list
from goffish.graph.io.matrix_market import read_matrix_market
from goffish.graph.io.metis import read_metis
from goffish.graph.io.options import ReadOptions
from goffish.graph.io.sniff import find_format
from goffish.graph.io.streams import Progress, Source, is_url
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
    verify: bool = True,
    **text: Any,
) -> Graph:
    r"""Read a graph from a file.

    Parameters
    ----------
    path : str or path-like
        Local file or pipe, or any fsspec URL. Compression with gzip, bzip2 or Zstandard is detected from the content. A
        folder, or a URL that ends with a slash, means all Parquet files below it as one table; columns in the names of
        folders, such as ``zone=7``, are texts.
    format : {"auto", "edges", "metis", "mtx", "dimacs", "parquet", "arrow", "csr", "graphml", "gml"}
        File format; "auto" uses the file suffix, then the first bytes [default: "auto"].
    directed : bool, optional
        Whether edges have a direction [default: as the file declares; edge lists are undirected].
    columns : mapping, optional
        Column name or 0-based position for any of ``source``, ``target``, ``weight`` and ``timestamp`` [default: by
        header, then by position].
    weighted : bool, optional
        ``False`` ignores weights, ``True`` requires them [default: use them if the file has any].
    self_loops : {"drop", "keep"}
        What to do with self-loops [default: "drop"].
    parallel : {"min", "sum", "first", "keep"}
        What to do with parallel edges; see `from_edges` [default: "min"].
    progress : callable, optional
        Called once per block with (bytes read, total bytes or None), counted as stored.
    verify : bool, optional
        ``False`` opens a ``.csr`` file without a look at its arcs, as it was written (`self_loops` and `parallel` do
        not apply); only for files of your own, as a damaged one may end the process [default: True].
    **text
        Options of edge lists, listed under Other Parameters.

    Returns
    -------
    Graph
        The ids in the file are the labels. A timestamp column becomes the edge attribute ``timestamp``.

    Other Parameters
    ----------------
    separator : str
        One ASCII character [default: comma, semicolon, ``|``, or blanks, as in the first line].
    comments : sequence of str
        Characters that start a comment line [default: "#" and "%"].
    header : bool
        Whether the first line holds column names [default: detected].

    Raises
    ------
    FormatError
        If the content does not follow the format; the message names file, line and text.
    InputError
        If the file is missing, is a directory or cannot be read, or an option is invalid.

    Notes
    -----
    Headers are checked against the file before memory is allocated for what they declare. A METIS file cannot declare
    more vertices or edges than its bytes can hold. Matrix Market and DIMACS files may declare isolated vertices:
    4,194,304 in any file, and up to 128 for each edge. A ``.csr`` file is mapped into memory: changes of the arrays
    stay in the process, and the file must not be overwritten in place while the graph is in use.

    Examples
    --------
    >>> import goffish as gf
    >>> from pathlib import Path
    >>> _ = Path("roads.csv").write_text("from,to,metres\na,b,120\nb,c,80\n")
    >>> gf.read("roads.csv", columns={"source": "from", "target": "to", "weight": "metres"})
    Graph(3 vertices, 2 edges, undirected, weighted)
    """
    _check_types(text.get("separator"), text.get("comments", ()), columns, progress)
    text = {**text, "comments": tuple(text.get("comments", ("#", "%")) or ())}
    given = {
        "directed": directed, "columns": dict(columns or {}), "weighted": weighted, "self_loops": self_loops,
        "parallel": parallel, "verify": verify,
    }  # fmt: skip
    options = options_of(ReadOptions, text | given)
    if progress is not None or not in_notebook():
        return _read(path, format, options, progress)
    with reading(f"reading {Path(path_name(path)).name}") as update:
        return _read(path, format, options, update)


def _read(path: str | os.PathLike[str], format: str, options: ReadOptions, progress: Progress | None) -> Graph:
    name = path_name(path)
    if format in ("auto", "parquet") and (name.endswith("/") if is_url(name) else Path(name).expanduser().is_dir()):
        from goffish.graph.io.columnar import read_folder

        return read_folder(name, options, progress)
    source = Source(name, progress)
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
        expect(separator, str, "separator", "expected one character")
    if comments is not None:
        expect(comments, Sequence, "comments", "expected characters")
        for mark in comments:
            expect(mark, str, "one of comments", "expected characters")
    if columns is not None:
        expect(columns, Mapping, "columns", 'expected names or positions, such as {"source": 0, "target": "to"}')
        for at in columns.values():
            expect(at, (str, int), "one of columns", "expected names or positions")
    if progress is not None and not callable(progress):
        raise InputError(f"progress={progress!r}: expected a function of (bytes read, total bytes)")


def _reader(format: str) -> _Reader:
    if format in ("parquet", "arrow"):
        from goffish.graph.io import columnar

        return columnar.read_parquet if format == "parquet" else columnar.read_arrow
    if format == "csr":
        from goffish.graph.io.compressed_rows import read_rows_file

        return read_rows_file
    if format in ("graphml", "gml"):
        from goffish.graph.io import networkx_formats

        return networkx_formats.read_graphml if format == "graphml" else networkx_formats.read_gml
    return _TEXT[format]

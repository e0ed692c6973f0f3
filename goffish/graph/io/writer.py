"""`write`: one function for every format, to a temporary name and then one rename."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from goffish.errors import InputError
from goffish.graph.graph import Graph
from goffish.graph.guards import expect, path_name
from goffish.graph.io.edge_list import write_edge_list
from goffish.graph.io.matrix_market import write_matrix_market
from goffish.graph.io.metis import write_metis
from goffish.graph.io.sniff import format_of_name, name_suffix
from goffish.graph.io.streams import is_url, url_filesystem
from goffish.partial import partial_file
from goffish.storage import reason_of

_Writer = Callable[[Graph, BinaryIO], None]


def write(graph: Graph, path: str | os.PathLike[str], format: str = "auto", *, separator: str | None = None) -> None:
    """Write a graph to a file.

    The file is published when it is complete. After a failure an existing file is unchanged.

    Parameters
    ----------
    graph : Graph
        Graph in memory.
    path : str or path-like
        Local file or fsspec URL. A suffix ``.gz``, ``.bz2`` or ``.zst`` after that of the format compresses the file
        (not for Parquet, Arrow and CSR).
    format : {"auto", "edges", "metis", "mtx", "parquet", "arrow", "csr", "graphml", "gml"}
        File format; "auto" uses the file suffix [default: "auto"].
    separator : str, optional
        One ASCII character between the columns of an edge list [default: a comma for ``.csv``, otherwise a tab].

    Raises
    ------
    InputError
        If the file cannot be written, the format cannot represent the graph, or an option is invalid.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.write(gf.from_edges([1, 2], [2, 3]), "path.csv")
    >>> gf.read("path.csv")
    Graph(3 vertices, 2 edges, undirected)
    """
    expect(graph, Graph, "graph", "expected a goffish Graph, then the path; convert a PartitionedGraph with to_graph()")
    name = path_name(path)
    chosen = format_of_name(name, format)
    if separator is not None and chosen != "edges":
        raise InputError(f"separator does not apply to the format {chosen}")
    if separator is not None and (not isinstance(separator, str) or len(separator) != 1 or not separator.isascii()):
        raise InputError(f"separator={separator!r}: must be one ASCII character")
    writer = _writer(chosen, name, separator)
    with _replacing(name) as raw:
        if chosen in ("parquet", "arrow", "csr"):
            writer(graph, raw)
            return
        with _compressed(raw, name) as file:
            writer(graph, file)


def check_writable(format: str, name: str) -> None:
    """Refuse a format that can be read only, before any work is done for it."""
    if format == "dimacs":
        raise InputError(f"{name}: DIMACS files can be read, not written; use .mtx or .metis")


def _writer(format: str, name: str, separator: str | None) -> _Writer:
    if format in ("parquet", "arrow"):
        from goffish.graph.io import columnar

        return columnar.write_parquet if format == "parquet" else columnar.write_arrow
    if format == "csr":
        from goffish.graph.io.compressed_rows import write_rows_file

        return write_rows_file
    if format in ("graphml", "gml"):
        from goffish.graph.io import networkx_formats

        return networkx_formats.write_graphml if format == "graphml" else networkx_formats.write_gml
    check_writable(format, name)
    if format == "edges":
        suffix = name_suffix(name)
        mark = separator if separator is not None else "," if suffix == "csv" else "\t"
        return lambda graph, file: write_edge_list(graph, file, separator=mark, header_line=suffix in ("csv", "tsv"))
    return write_metis if format == "metis" else write_matrix_market


class _Unclosed(io.RawIOBase):
    """Passes on what is written, and leaves the file behind it open."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)


@contextmanager
def _compressed(raw: BinaryIO, name: str) -> Iterator[BinaryIO]:
    lower = name.lower()
    if lower.endswith(".gz"):
        # no name and no time in the header: the same graph gives the same bytes
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:
            yield cast(BinaryIO, file)
    elif lower.endswith(".bz2"):
        with bz2.BZ2File(raw, "wb") as bz2_file:
            yield cast(BinaryIO, bz2_file)
    elif lower.endswith(".zst"):
        # PyArrow closes the file behind its stream, which is still to be synchronized.
        with pa.CompressedOutputStream(pa.PythonFile(_Unclosed(raw), "w"), "zstd") as zst_file:
            yield cast(BinaryIO, zst_file)
    else:
        yield raw


@contextmanager
def _replacing(name: str) -> Iterator[BinaryIO]:
    if is_url(name):
        with _replacing_url(name) as file:
            yield file
        return
    target = Path(name).expanduser()
    if target.is_dir():
        raise InputError(f"{name}: is a directory; expected a file")
    try:
        with partial_file(target) as temporary, temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{name}: cannot be written ({error.strerror or error})") from None


@contextmanager
def _replacing_url(url: str) -> Iterator[BinaryIO]:
    system, path = url_filesystem(url)
    folder, _, base = path.rpartition("/")
    temporary = f"{folder}/.{base}.{os.getpid()}.tmp"
    try:
        with system.open(temporary, "wb") as file:
            yield file
        system.mv(temporary, path)
    except OSError as error:
        raise InputError(f"{url}: cannot be written ({reason_of(error)})") from None
    finally:
        with contextlib.suppress(OSError):
            if system.exists(temporary):
                system.rm(temporary)

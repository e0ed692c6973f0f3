"""Assignments that exist already: arrays, mappings, and files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import FormatError, InputError
from goffish.graph import Graph
from goffish.graph.io.streams import Source
from goffish.partition.options import PredefinedOptions

_ACCEPTED = (
    "expected two columns, vertex label and part number (separated by a comma, tab, semicolon or "
    "blanks), or one part number per line in vertex order"
)
_COMMENTS = (b"#", b"%")


def predefined(graph: Graph, parts: int, options: PredefinedOptions) -> NDArray[np.int32]:
    """Use an existing assignment.

    ``assignment`` is one of

    * a path to a text file (also compressed, .gz .zst .bz2) with two columns *label, part*, with or without
      a header line;
    * a path to a METIS result (``.part.K``): one part number per line, in vertex order (ascending labels);
    * a path to a Parquet file whose first two columns are label and part;
    * an array-like of n part numbers in vertex order;
    * a mapping from label to part number.

    Returns
    -------
    int32, shape (n,)

    Raises
    ------
    FormatError
        A file that is none of these, a vertex that occurs twice or is not in the graph, a part number that
        is not a whole number from 0 to parts-1; names file and line.
    InputError
        The same for arrays and mappings; a vertex without a part.
    """
    given = options.assignment
    if isinstance(given, str | PathLike):
        return _from_file(graph, parts, Path(given))
    if isinstance(given, Mapping):
        labels, numbers = list(given.keys()), list(given.values())
        owner = _part_numbers(_column(numbers, "assignment"), parts, _Place("assignment", "entry"))
        return _by_label(graph, _column(labels, "assignment"), owner, _Place("assignment", "entry"))
    return _in_order(graph, _column(given, "assignment"), parts, _Place("assignment", "position"))


class _Place:
    """Says where a bad value stands: a line of a file, a row of a table, a position in an array."""

    def __init__(self, name: str, unit: str, *, file: bool = False, lines: list[int] | None = None) -> None:
        self._name, self._unit, self._file, self._lines = name, unit, file, lines

    def error(self, row: int | None, problem: str) -> InputError:
        if self._file:
            if row is None or self._lines is not None:
                line = None if row is None or self._lines is None else self._lines[row]
                return FormatError(self._name, line, problem)
            return FormatError(self._name, None, f"{self._unit} {row}: {problem}")
        where = "" if row is None else f"{self._unit} {row}: "
        return InputError(f"{self._name}: {where}{problem}")


def _column(values: Any, name: str) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    try:
        return pa.array(values if isinstance(values, np.ndarray | list) else np.asarray(values))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise InputError(f"{name}: not one column of values ({error})") from None


def _in_order(graph: Graph, column: pa.Array, parts: int, place: _Place) -> NDArray[np.int32]:
    n = graph.num_vertices
    owner = _part_numbers(column, parts, place)
    if owner.size != n:
        raise place.error(None, f"{owner.size} part numbers for {n} vertices; expected one for each vertex")
    return owner


def _part_numbers(column: pa.Array, parts: int, place: _Place) -> NDArray[np.int32]:
    accepted = f"part numbers must be integers from 0 to {parts - 1}"
    if len(column) == 0:
        return np.empty(0, np.int32)
    missing = column.is_null(nan_is_null=True)
    if missing.true_count:
        raise place.error(missing.index(True).as_py(), f"no part number; {accepted}")
    if pa.types.is_string(column.type):
        bad = pc.invert(pc.match_substring_regex(column, r"^[+-]?[0-9]{1,18}$"))
        if bad.true_count:
            row = bad.index(True).as_py()
            raise place.error(row, f"part {column[row].as_py()[:40]!r}; {accepted}")
        column = column.cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise place.error(None, f"part numbers of type {column.type}; {accepted}")
    outside = pc.or_(pc.less(column, 0), pc.greater_equal(column, parts))
    if outside.true_count:
        row = outside.index(True).as_py()
        raise place.error(row, f"part {column[row].as_py()}; {accepted}")
    owner: NDArray[np.int32] = column.cast(pa.int32()).to_numpy(zero_copy_only=False)
    return owner.copy()


def _by_label(graph: Graph, labels: pa.Array, part: NDArray[np.int32], place: _Place) -> NDArray[np.int32]:
    n = graph.num_vertices
    vertex = _vertices(graph, labels, place)
    owner = np.full(n, -1, np.int32)
    owner[vertex] = part
    if vertex.size != n or np.count_nonzero(owner < 0):
        first = np.full(n, -1, np.int64)
        first[vertex[::-1]] = np.arange(vertex.size)[::-1]
        again = np.flatnonzero(first[vertex] != np.arange(vertex.size))
        if again.size:
            row = int(again[0])
            name = graph.label_column()[int(vertex[row])].as_py()
            raise place.error(row, f"vertex {name!r} occurs twice; expected every vertex once")
        missing = np.flatnonzero(owner < 0)
        name = graph.label_column()[int(missing[0])].as_py()
        raise place.error(
            None,
            f"no part for {missing.size} of {n} vertices, the first is {name!r}; expected every vertex once",
        )
    return owner


def _vertices(graph: Graph, labels: pa.Array, place: _Place) -> NDArray[np.int64]:
    if labels.null_count:
        raise place.error(labels.is_null().index(True).as_py(), "no vertex label")
    known = graph.label_column()
    if pa.types.is_integer(known.type) and pa.types.is_string(labels.type):
        bad = pc.invert(pc.match_substring_regex(labels, r"^[+-]?[0-9]{1,18}$"))
        if bad.true_count:
            row = bad.index(True).as_py()
            raise place.error(row, f"vertex {labels[row].as_py()[:40]!r}: the vertex labels of this graph are integers")
    try:
        wanted = labels.cast(known.type)
    except pa.ArrowInvalid as error:
        raise place.error(None, f"vertex labels: {error}") from None
    if graph.labels is None:
        numbers: NDArray[np.int64] = wanted.to_numpy(zero_copy_only=False)
        bad_rows = np.flatnonzero((numbers < 0) | (numbers >= graph.num_vertices))
    else:
        numbers = pc.index_in(wanted, value_set=known).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        bad_rows = np.flatnonzero(numbers < 0)
    if bad_rows.size:
        row = int(bad_rows[0])
        raise place.error(row, f"vertex {wanted[row].as_py()!r} is not a vertex of the graph")
    return numbers


def _from_file(graph: Graph, parts: int, path: Path) -> NDArray[np.int32]:
    if path.suffix.lower() in (".parquet", ".pq"):
        return _from_parquet(graph, parts, path)
    data = Source(path).read_all().removeprefix(b"\xef\xbb\xbf")
    separator, header, columns = _layout(path, data)
    if columns == 0:
        place = _Place(str(path), "line", file=True)
        return _in_order(graph, pa.array([], pa.int32()), parts, place)
    table = _parse(path, data, separator, header, columns)
    # Only an error needs to know which line a row came from.
    try:
        return _assigned(graph, parts, table, _Place(str(path), "row", file=True))
    except FormatError:
        lines = [number for number, _ in _data_lines(data)[header:]]
        return _assigned(graph, parts, table, _Place(str(path), "line", file=True, lines=lines))


def _assigned(graph: Graph, parts: int, table: pa.Table, place: _Place) -> NDArray[np.int32]:
    if table.num_columns == 1:
        return _in_order(graph, table.column(0).combine_chunks(), parts, place)
    owner = _part_numbers(table.column(1).combine_chunks(), parts, place)
    return _by_label(graph, table.column(0).combine_chunks(), owner, place)


def _from_parquet(graph: Graph, parts: int, path: Path) -> NDArray[np.int32]:
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(path, None, f"not a Parquet file ({str(error).splitlines()[0]})") from None
    if table.num_columns not in (1, 2):
        raise FormatError(path, None, f"{table.num_columns} columns; {_ACCEPTED}")
    return _assigned(graph, parts, table, _Place(str(path), "row", file=True))


def _layout(path: Path, data: bytes) -> tuple[bytes, bool, int]:
    """Separator, whether there is a header line, and the number of columns (0: no data), from the first
    data line.
    """
    for number, line in enumerate(_lines(data), 1):
        text = line.strip()
        if not text or text.startswith(_COMMENTS):
            continue
        separator = next((s for s in (b",", b"\t", b";") if s in text), b" ")
        fields = [f.strip(b' "') for f in (text.split(separator) if separator != b" " else text.split())]
        if len(fields) > 2:
            raise FormatError(path, number, f"{len(fields)} columns; {_ACCEPTED}", text.decode(errors="replace"))
        header = len(fields) == 2 and fields[1].lower().isalpha()
        return separator, header, len(fields)
    return b",", False, 0


def _lines(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield data[at:end]
        at = end + 1


def _data_lines(data: bytes) -> list[tuple[int, bytes]]:
    """One-based number and text of every line that is neither blank nor a comment (slow: for error
    messages).
    """
    numbered = ((number, line.strip()) for number, line in enumerate(_lines(data), 1))
    return [(number, line) for number, line in numbered if line and not line.startswith(_COMMENTS)]


def _parse(path: Path, data: bytes, separator: bytes, header: bool, columns: int) -> pa.Table:
    from pyarrow import csv

    names = ["label", "part"][-columns:]
    try:
        return csv.read_csv(
            pa.BufferReader(_tidy(data, separator)),
            read_options=csv.ReadOptions(column_names=names, skip_rows=int(header)),
            parse_options=csv.ParseOptions(delimiter=separator.decode()),
            convert_options=csv.ConvertOptions(column_types={name: pa.string() for name in names}),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):  # a header line and nothing else
            return pa.table({name: pa.array([], pa.string()) for name in names})
        for number, line in _data_lines(data)[header:]:
            found = len(line.split(None if separator == b" " else separator))
            if found != columns:
                text = line.decode(errors="replace")
                raise FormatError(path, number, f"{found} columns, {columns} before; {_ACCEPTED}", text) from None
        raise FormatError(path, None, f"{str(error).splitlines()[0]}; {_ACCEPTED}") from None


def _tidy(data: bytes, separator: bytes) -> bytes:
    """Comments away, one separator between columns, no blanks around lines, as a CSV parser requires."""
    if any(mark in data for mark in _COMMENTS):
        data = re.sub(rb"^[ \t]*[#%][^\n]*(\n|\Z)", b"", data, flags=re.MULTILINE)
    if b" " in data:
        data = re.sub(rb"^ +| +(?=\r?$)", b"", data, flags=re.MULTILINE)
        data = re.sub(rb" *" + separator + rb" *" if separator != b" " else rb" {2,}", separator, data)
    return data.lstrip(b"\r\n")

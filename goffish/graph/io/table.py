"""Streaming of text tables into columns: shared by edge lists, Matrix Market and DIMACS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import FormatError
from goffish.graph.io import kernels as k
from goffish.graph.io.streams import BLOCK, MARGIN, Block, Source
from goffish.graph.labels import vertex_dtype

_INT32 = np.iinfo(np.int32)
_INT64 = np.iinfo(np.int64)
_NAMES = {k.SOURCE: "source", k.TARGET: "target", k.WEIGHT: "weight", k.STAMP: "timestamp"}


@dataclass(frozen=True)
class Layout:
    """How the lines of a table are to be read.

    Attributes
    ----------
    kinds
        For each column what it is (`_kernels.SKIP`, `SOURCE` ...); columns behind the last are not looked at.
    separator
        One character, or ``None`` for runs of blanks.
    comments
        Characters that make a line a comment when they begin it.
    skip
        Lines at the start to pass over (a header, a size line); comments count.
    low, high
        Accepted integer ids.
    tag
        The letter that `_kernels.TAG` columns must hold.
    as_text, real_stamp, exact
        Ids are strings; timestamps may have fractions; a line with more columns than `kinds` is an error.
    """

    kinds: tuple[int, ...]
    separator: str | None = None
    comments: tuple[str, ...] = ("#", "%")
    skip: int = 0
    low: int = _INT64.min
    high: int = _INT64.max
    tag: str = ""
    as_text: bool = False
    real_stamp: bool = False
    exact: bool = False

    def classes(self) -> NDArray[np.uint8]:
        table = np.zeros(256, np.uint8)
        for byte in b" \t\r\v\f":
            table[byte] = k.BLANK
        for comment in self.comments:
            table[ord(comment)] = k.COMMENT
        if self.separator is not None:
            table[ord(self.separator)] = k.SEPARATOR
        table[10] = k.NEWLINE
        return table


@dataclass
class Columns:
    """What came out: integer columns, or (`labels`, sorted) positions into them."""

    source: NDArray[np.integer[Any]]
    target: NDArray[np.integer[Any]]
    weight: NDArray[np.float64] | None
    timestamp: NDArray[Any] | None
    labels: pa.Array | None = None


class NotIntegers(Exception):
    """The layout took ids (or timestamps) for integers, and one is not; read again with another layout."""

    def __init__(self, timestamps: bool, error: FormatError) -> None:
        super().__init__(str(error))
        self.timestamps, self.error = timestamps, error


class GrowingColumn:
    """A column that is appended to; ids stay ``int32`` until one does not fit.

    Space comes from an estimate and grows by `realloc`, which moves pages instead of copying them.
    """

    def __init__(self, dtype: Any, narrow: bool = False) -> None:
        self._data = np.empty(0, np.int32 if narrow else dtype)
        self._used = 0

    def append(self, values: NDArray[Any], share: float) -> None:
        """Append `values`; `share` is how much of the file has been read, 0 … 1."""
        narrow = self._data.dtype == np.int32 and values.size > 0
        if narrow and (int(values.min()) < _INT32.min or int(values.max()) > _INT32.max):
            self._data = self._data[: self._used].astype(np.int64)
        need = self._used + values.size
        if need > self._data.size:
            estimate = int(need / share * 1.02) if share > 0 else 0
            self._data.resize(max(need, min(estimate, 2**40), self._data.size * 5 // 4), refcheck=False)
        self._data[self._used : need] = values
        self._used = need

    def finish(self) -> NDArray[Any]:
        self._data.resize(self._used, refcheck=False)
        return self._data


class TextColumn:
    """String ids, dictionary-encoded block by block so that a repeated id costs four bytes."""

    def __init__(self) -> None:
        self.chunks: list[pa.Array] = []
        self._pending, self._unified = 0, 0

    def append(self, array: pa.Array) -> None:
        self.chunks.append(array.dictionary_encode())
        self._pending += len(self.chunks[-1].dictionary)
        # Doubling before each unification keeps the total work linear.
        if self._pending > 2 * self._unified + 500_000:
            self.chunks = pa.chunked_array(self.chunks).unify_dictionaries().chunks
            self._pending, self._unified = 0, len(self.chunks[0].dictionary)


def _room(layout: Layout) -> k.Rows:
    """Space for the rows of one block; two bytes per column is the least a row can take."""
    size = BLOCK + MARGIN + 2
    rows = size // 4 + 1
    text, stamp, real_stamp = layout.as_text, k.STAMP in layout.kinds, layout.real_stamp
    real = k.WEIGHT in layout.kinds or (stamp and real_stamp)

    def column(dtype: Any, wanted: bool, length: int = rows) -> NDArray[Any]:
        return np.empty(length if wanted else 1, dtype)

    def ends(wanted: bool) -> NDArray[np.int32]:
        found = column(np.int32, wanted, rows + 1)
        found[0] = 0
        return found

    return k.Rows(
        src=column(np.int64, not text),
        dst=column(np.int64, not text),
        weight=column(np.float64, k.WEIGHT in layout.kinds),
        stamp=column(np.int64, stamp and not real_stamp),
        stamp_real=column(np.float64, stamp and real_stamp),
        src_text=column(np.uint8, text, size),
        src_ends=ends(text),
        dst_text=column(np.uint8, text, size),
        dst_ends=ends(text),
        hard=np.empty((rows if real else 1, 3), np.int64),
        hard_text=column(np.uint8, real, size),
        hard_ends=ends(real),
    )


def read_columns(source: Source, layout: Layout) -> Columns:
    """Stream a table into columns.

    Raises
    ------
    FormatError
        With the line that cannot be read.
    NotIntegers
        Where a column taken for integers holds something else.
    """
    space = _room(layout)
    kinds = np.array(layout.kinds, np.int64)
    options = np.array(
        [
            layout.as_text,
            layout.separator is not None,
            layout.low,
            layout.high,
            ord(layout.tag) if layout.tag else 0,
            layout.real_stamp,
            layout.exact,
        ],
        np.int64,
    )
    classes, out = layout.classes(), np.zeros(5, np.int64)
    texts = TextColumn(), TextColumn()
    columns = {name: GrowingColumn(np.int64, narrow=True) for name in ("src", "dst")}
    if k.WEIGHT in kinds:
        columns["weight"] = GrowingColumn(np.float64)
    stamp = "stamp_real" if layout.real_stamp else "stamp"
    if k.STAMP in kinds:
        columns[stamp] = GrowingColumn(np.float64 if layout.real_stamp else np.int64)
    line, total = 1, source.total or 0
    share_read = _ShareRead(source)
    for block in share_read.blocks():
        start, line = _skip_lines(block, layout.skip, line)
        status = k.parse_rows(block.data, start, block.end, line, classes, kinds, options, space, out)
        rows = int(out[k.ROWS])
        if out[k.HARD]:
            _parse_hard(source, space, int(out[k.HARD]))
        if status != k.OK:
            raise _problem(source, layout, block, status, out)
        line = int(out[k.LINE])
        share = share_read.done / total if total else 0.0
        if layout.as_text:
            for text, ends, ids in zip(
                texts, (space.src_ends, space.dst_ends), (space.src_text, space.dst_text), strict=True
            ):
                text.append(_string_array(source, ends[: rows + 1], ids))
        for name, column in columns.items():
            if not (layout.as_text and name in ("src", "dst")):
                column.append(getattr(space, name)[:rows], share)
    weight = columns["weight"].finish() if "weight" in columns else None
    stamps = columns[stamp].finish() if stamp in columns else None
    if layout.as_text:
        src, dst, labels = _number_texts(*texts)
        return Columns(src, dst, weight, stamps, labels)
    return Columns(columns["src"].finish(), columns["dst"].finish(), weight, stamps)


class _ShareRead:
    """Listens to the source's progress, to estimate how much is still to come."""

    def __init__(self, source: Source) -> None:
        self._source, self._outer, self.done = source, source.progress, 0

    def blocks(self) -> Any:
        self._source.progress = self._note
        try:
            yield from self._source.blocks(lines=True)
        finally:
            self._source.progress = self._outer

    def _note(self, done: int, total: int | None) -> None:
        self.done = done
        if self._outer is not None:
            self._outer(done, total)


def _skip_lines(block: Block, skip: int, line: int) -> tuple[int, int]:
    """Pass over the byte order mark and the first lines."""
    start = block.start
    if line == 1 and block.data[start : start + 3].tobytes() == b"\xef\xbb\xbf":
        start += 3
    while line <= skip and start < block.end:
        start += int(np.argmax(block.data[start : block.end] == 10)) + 1
        line += 1
    return start, line


def _string_array(source: Source, ends: NDArray[np.int32], texts: NDArray[np.uint8]) -> pa.Array:
    text = texts[: int(ends[-1])].tobytes()
    array = pa.StringArray.from_buffers(ends.size - 1, pa.py_buffer(ends.tobytes()), pa.py_buffer(text))
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise FormatError(source.name, None, "the text is not UTF-8; convert it, e.g. with iconv -t utf-8") from None
    return array


def _parse_hard(source: Source, space: k.Rows, count: int) -> None:
    """Numbers the kernel left aside: Arrow rounds them correctly or says that they are none."""
    ends = space.hard_ends[: count + 1]
    text = pa.py_buffer(space.hard_text[: int(ends[-1])])
    tokens = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), text])
    try:
        values = tokens.cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        values = np.array([_float_or_nan(token) for token in tokens.to_pylist()])
    place = space.hard[:count]
    is_weight = place[:, 2] == k.WEIGHT
    bad = np.flatnonzero(~np.isfinite(values) | (is_weight & (values < 0)))
    if bad.size:
        row = int(bad[0])
        shown = tokens[row].as_py().decode("utf-8", "replace")
        raise FormatError(source.name, int(place[row, 1]), _number_problem(int(place[row, 2])), shown)
    space.weight[place[is_weight, 0]] = values[is_weight]
    space.stamp_real[place[~is_weight, 0]] = values[~is_weight]


def _float_or_nan(token: bytes) -> float:
    try:
        return np.nan if b"_" in token else float(token)
    except ValueError:
        return np.nan


def _number_problem(kind: int) -> str:
    if kind == k.WEIGHT:
        return "the weight must be a finite, non-negative number"
    return "the timestamp must be a number"


def _problem(source: Source, layout: Layout, block: Block, status: int, out: NDArray[np.int64]) -> Exception:
    position, line, column = int(out[k.POSITION]), int(out[k.LINE]), int(out[k.FIELD])
    text = block.data[position : min(block.end, position + 500)].tobytes().split(b"\n")[0]
    shown = text.decode("utf-8", "replace").strip()
    kind = layout.kinds[min(column, len(layout.kinds) - 1)]
    name = _NAMES.get(kind, "column")
    if status == k.MISSING:
        if kind in (k.WEIGHT, k.STAMP):
            problem = f"this line has no {name}, but the first line has one"
        else:
            problem = "expected at least two columns, source and target"
    else:
        problem = {
            k.NOT_INTEGER: f"the {name} (column {column + 1}) is not an integer",
            k.TOO_BIG: f"the {name} does not fit in 64 bits (signed)",
            k.OUT_OF_RANGE: f"the {name} is not in the range {layout.low} to {layout.high}",
            k.NEGATIVE: _number_problem(k.WEIGHT),
            k.EXTRA: f"more columns than the {len(layout.kinds)} of the first line",
            k.BAD_TAG: f"expected a line that begins with {layout.tag!r}",
            k.OPEN_QUOTE: "a quoted field is not closed in this line",
            k.JUNK: f"expected a separator after the {name} (column {column + 1})",
        }[status]
    error = FormatError(source.name, line, problem, shown)
    if status == k.NOT_INTEGER:
        return NotIntegers(kind == k.STAMP, error)
    return error


def _number_texts(src: TextColumn, dst: TextColumn) -> tuple[NDArray[Any], NDArray[Any], pa.Array]:
    """Positions in the sorted labels, as `number_labels` gives them, without decoding the dictionaries."""
    count = len(src.chunks)
    if not count:
        return np.empty(0, np.int32), np.empty(0, np.int32), pa.array([], pa.string())
    chunks = pa.chunked_array(src.chunks + dst.chunks).unify_dictionaries().chunks
    distinct = chunks[0].dictionary
    order = pc.sort_indices(distinct)
    rank = np.empty(len(distinct), vertex_dtype(len(distinct)))
    rank[order.to_numpy()] = np.arange(len(distinct), dtype=rank.dtype)
    ranked = [rank[chunk.indices.to_numpy()] for chunk in chunks]
    return np.concatenate(ranked[:count]), np.concatenate(ranked[count:]), distinct.take(order)

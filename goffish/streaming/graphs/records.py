"""Records of changes to a graph, as flat columns.

A record has one update or, as a transaction, several; all of them are visible at once. Labels, names and values are
numbers: slots of the tables of `Encoder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.times import event_time, event_times
from goffish.streaming.graphs.attributes import Bits, Kinds, Values
from goffish.streaming.graphs.updates import (
    ADD_EDGE,
    ADD_VERTEX,
    HEARTBEAT,
    NONE,
    OF_EDGES,
    OPS,
    SET_EDGE,
    SET_VERTEX,
    UNSET_EDGE,
    UNSET_VERTEX,
)
from goffish.streaming.key_table import KeyTable

_FIELDS = {"t", "op", "stream", "seq", "id", "src", "dst", "names"}
Numbers = NDArray[np.int64]


class Records(NamedTuple):
    """Columns of records.

    Attributes
    ----------
    times, streams, seqs : arrays, shape (records,)
        Event times in microseconds, numbers of streams, and sequence numbers in them, or -1.
    firsts : array, shape (records + 1,)
        First update of each record.
    ops : int8 array, shape (updates,)
    elements, sources, targets : arrays, shape (updates,)
        Slots of vertices or edges, and of the ends of edges; -1 where there is none.
    first_values : array, shape (updates + 1,)
        First attribute of each update.
    names, kinds, bits : arrays
        Of the attributes, which are ordered by name within an update. The kind of those to be removed is `NONE`.
    """

    times: Numbers
    streams: Numbers
    seqs: Numbers
    firsts: Numbers
    ops: NDArray[np.int8]
    elements: Numbers
    sources: Numbers
    targets: Numbers
    first_values: Numbers
    names: Numbers
    kinds: Kinds
    bits: Bits

    def __len__(self) -> int:
        return len(self.times)

    @classmethod
    def empty(cls) -> Records:
        """Return no records."""
        nothing, first, small = np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int8)
        return cls(
            nothing, nothing, nothing, first, small, nothing, nothing, nothing, first, nothing, small, nothing
        )  # fmt: skip

    def take(self, chosen: NDArray[np.intp]) -> Records:
        """Return some of the records, in this order."""
        firsts, rows = expanded(self.firsts, chosen)
        first_values, values = expanded(self.first_values, rows)
        return Records(
            self.times[chosen], self.streams[chosen], self.seqs[chosen], firsts,
            self.ops[rows], self.elements[rows], self.sources[rows], self.targets[rows], first_values,
            self.names[values], self.kinds[values], self.bits[values],
        )  # fmt: skip

    def __add__(self, other: Records) -> Records:  # type: ignore[override]
        joined = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in self._fields}
        for name in ("firsts", "first_values"):
            first, second = getattr(self, name), getattr(other, name)
            joined[name] = np.concatenate([first, second[1:] + first[-1]])
        return Records(**joined)


def expanded(firsts: Numbers, chosen: NDArray[np.intp]) -> tuple[Numbers, Numbers]:
    """Return the beginnings of groups after a choice among them, and the places of their entries."""
    sizes = firsts[chosen + 1] - firsts[chosen]
    begins = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(sizes, out=begins[1:])
    places = np.arange(begins[-1]) + np.repeat(firsts[chosen] - begins[:-1], sizes)
    return begins, places


class Encoded(NamedTuple):
    """Records, their places in what was encoded, and the places of others with what is wrong with them."""

    records: Records
    places: NDArray[np.intp]
    rejected: list[tuple[int, str]]


class Encoder:
    """Turns records of users into columns, and numbers back into labels, names and values.

    Attributes
    ----------
    vertices, edges : KeyTable
    values : Values
    names, streams : dict
        Numbers of names of attributes, and of streams.
    """

    def __init__(self, most_streams: int = 1024, most_names: int = 256) -> None:
        self.vertices, self.edges, self.values = KeyTable(), KeyTable(), Values()
        self.names: dict[str, int] = {}
        self.streams: dict[str, int] = {}
        self._most_streams, self._most_names = most_streams, most_names

    def stream(self, name: Any) -> int:
        """Return the number of a stream."""
        name = "" if name is None else name
        if not isinstance(name, str):
            raise InputError(f"stream {name!r:.60}: must be a text")
        if name not in self.streams and len(self.streams) >= self._most_streams:
            raise InputError(f"stream {name!r:.60}: accepted are at most {self._most_streams:,} streams")
        return self.streams.setdefault(name, len(self.streams))

    def name(self, name: str) -> int:
        """Return the number of the name of an attribute.

        Raises
        ------
        InputError
            There are too many.
        """
        if name not in self.names and len(self.names) >= self._most_names:
            raise InputError(f"attribute {name!r:.60}: accepted are at most {self._most_names:,} names")
        return self.names.setdefault(name, len(self.names))

    def rows(self, records: Iterable[Any]) -> Encoded:
        """Encode mappings; see `LiveGraph.feed`."""
        rejected: list[tuple[int, str]] = []
        heads: list[tuple[int, int, int]] = []
        firsts, places, updates, values = [0], list[int](), list[Any](), list[Any]()
        for place, record in enumerate(records):
            try:
                head, found = self._record(record)
            except (InputError, TypeError, ValueError) as error:
                rejected.append((place, str(error)))
                continue
            heads.append(head)
            places.append(place)
            for update, attributes in found:
                values += [(len(updates), *one) for one in attributes]
                updates.append(update)
            firsts.append(len(updates))
        times, streams, seqs = np.array(heads, np.int64).reshape(-1, 3).T
        ops, elements, sources, targets = np.array(updates, np.int64).reshape(-1, 4).T
        owners, names, kinds, bits = np.array(values, np.int64).reshape(-1, 4).T
        first_values = np.searchsorted(owners, np.arange(len(updates) + 1))
        made = Records(
            times, streams, seqs, np.array(firsts, np.int64), ops.astype(np.int8), elements, sources, targets,
            first_values, names, kinds.astype(np.int8), bits,
        )  # fmt: skip
        return Encoded(made, np.array(places, np.intp), rejected)

    def _record(self, record: Any) -> tuple[tuple[int, int, int], list[tuple[Any, Any]]]:
        if not isinstance(record, Mapping):
            raise InputError(f"record {record!r:.60}: must be a mapping")
        _check_fields(record, _FIELDS | {"attrs", "updates"})
        if "t" not in record:
            raise InputError("field t: missing; give the event time")
        seq = record.get("seq")
        if seq is not None and not (type(seq) is int and 0 <= seq < 1 << 62):
            raise InputError(f"field seq = {seq!r:.60}: must be an integer of at least 0")
        if record.get("op") == "txn":
            updates = record.get("updates")
            if not isinstance(updates, Sequence) or isinstance(updates, str) or not updates:
                raise InputError("field updates: a transaction needs a list of updates")
            for one in updates:
                if not isinstance(one, Mapping):
                    raise InputError(f"field updates: {one!r:.60}: must be a mapping")
                _check_fields(one, {"op", "id", "src", "dst", "attrs", "names"})
        else:
            if "updates" in record:
                raise InputError("field updates: only transactions have some; set op to txn")
            updates = [record]
        checked = [_checked(one) for one in updates]
        head = (event_time(record["t"]), self.stream(record.get("stream")), -1 if seq is None else seq)
        return head, [self._update(*one) for one in checked]

    def _update(self, op: int, id: Any, src: Any, dst: Any, attributes: list[tuple[str, Any]]) -> tuple[Any, Any]:
        edge = OF_EDGES[op]
        if op in (UNSET_VERTEX, UNSET_EDGE):
            given = [(self.names[name], NONE, 0) for name, _ in sorted(attributes) if name in self.names]
        else:
            given = [(self.name(name), *self.values.encode_one(value)) for name, value in sorted(attributes)]
        ends = [-1 if end is None else self._slot(self.vertices, end) for end in (src, dst)] if edge else [-1, -1]
        element = -1 if op == HEARTBEAT else self._slot(self.edges if edge else self.vertices, id)
        return (op, element, *ends), given

    @staticmethod
    def _slot(table: KeyTable, key: Any) -> int:
        return int(table.slots([key])[0])

    def table(self, table: pa.Table) -> Encoded:
        """Encode a table, one update a row; see `LiveGraph.feed`.

        Raises
        ------
        InputError
            A column is missing, or has another type.
        """
        table = table.combine_chunks().unify_dictionaries()
        columns = {name: _array(table[name]) for name in table.column_names}
        for name in ("t", "op"):
            if name not in columns:
                raise InputError(f"column {name}: missing")
        size = len(table)
        codes = pc.index_in(columns["op"].cast(pa.string()), pa.array(OPS))
        ops = codes.fill_null(len(OPS)).to_numpy().astype(np.int8)
        edge = OF_EDGES[ops]
        vertex = ~edge & (ops < HEARTBEAT)
        ids = columns.get("id", pa.nulls(size))
        ends = [_labels(columns.get(name, pa.nulls(size)), name) for name in ("src", "dst")]
        have = np.asarray(ids.is_valid())
        both = np.asarray(ends[0].is_valid()) & np.asarray(ends[1].is_valid())
        bad = (ops == len(OPS)) | vertex & ~have | edge & ~(have | both) | (ops == ADD_EDGE) & ~both
        times, seqs = self._heads(columns, size)
        bad |= seqs < -1
        error = "op, id, src, dst or seq: missing or not accepted"
        rejected = [(at, error) for at in np.flatnonzero(bad).tolist()]
        good = ~bad
        elements = np.full(size, -1, np.int64)
        self._fill(elements, self.vertices, _labels(ids, "id"), vertex & good)
        derived = edge & ~have & good
        if derived.any():
            texts = _derived(ends[0], ends[1], columns.get("type", pa.nulls(size)))
            self._fill(elements, self.edges, texts, derived)
        self._fill(elements, self.edges, _labels(ids, "id"), edge & have & good)
        slots = [np.full(size, -1, np.int64) for _ in ends]
        for slot, column in zip(slots, ends, strict=True):
            self._fill(slot, self.vertices, column, edge & np.asarray(column.is_valid()) & good)
        streams = np.zeros(size, np.int64)
        if "stream" in columns:
            named = columns["stream"].cast(pa.string()).fill_null("").dictionary_encode()
            numbers = np.array([self.stream(one) for one in named.dictionary.to_pylist()], np.int64)
            streams = numbers[named.indices.to_numpy()]
        elif size:
            streams += self.stream("")
        first_values, names, kinds, bits = self._attributes(columns, ops, size)
        made = Records(
            times,
            streams,
            seqs,
            np.arange(size + 1),
            ops,
            elements,
            slots[0],
            slots[1],
            first_values,
            names,
            kinds,
            bits,
        )
        places = np.flatnonzero(good)
        return Encoded(made.take(places) if rejected else made, places, rejected)

    @staticmethod
    def _heads(columns: Mapping[str, pa.Array], size: int) -> tuple[Numbers, Numbers]:
        try:
            times = event_times(columns["t"])
        except (InputError, TypeError, ValueError, pa.ArrowInvalid) as error:
            raise InputError(f"column t: {error}") from None
        seqs = np.full(size, -1, np.int64)
        if "seq" in columns:
            column = columns["seq"]
            if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
                raise InputError(f"column seq: is {column.type}; accepted are integers")
            seqs = np.asarray(column.cast(pa.int64()).fill_null(-1))
            seqs = np.where(np.asarray(column.is_valid()) & (seqs < 0), -2, seqs)
        return times, seqs

    @staticmethod
    def _fill(found: Numbers, keys: KeyTable, labels: pa.Array, rows: NDArray[np.bool_]) -> None:
        """Number the labels of some rows."""
        if rows.any():
            found[rows] = keys.slots(labels if rows.all() else labels.filter(pa.array(rows)))

    def _attributes(
        self, columns: Mapping[str, pa.Array], ops: NDArray[np.int8], size: int
    ) -> tuple[Numbers, Numbers, Kinds, Bits]:
        """Return the attributes of all updates."""
        parts: list[tuple[Any, ...]] = []
        sets = (ops == ADD_VERTEX) | (ops == ADD_EDGE) | (ops == SET_VERTEX) | (ops == SET_EDGE)
        for name in sorted(columns.keys() - _FIELDS):
            try:
                kinds, bits = self.values.encode(columns[name])
            except InputError as error:
                raise InputError(f"column {name}: {error}") from None
            rows = np.flatnonzero((kinds != NONE) & sets)
            if len(rows):
                parts.append((rows, np.full(len(rows), self.name(name)), kinds[rows], bits[rows]))
        if "names" in columns and not pa.types.is_null(columns["names"].type):
            column = columns["names"]
            if not pa.types.is_list(column.type) and not pa.types.is_large_list(column.type):
                raise InputError(f"column names: is {column.type}; accepted are lists of texts")
            owners, texts = pc.list_parent_indices(column).to_numpy(), column.flatten().cast(pa.string())
            order = np.lexsort((pc.rank(texts).to_numpy(), owners)) if len(texts) else np.zeros(0, np.intp)
            removed = np.array([self.names.get(name, -1) for name in texts.to_pylist()], np.int64)
            order = order[np.isin(ops[owners[order]], (UNSET_VERTEX, UNSET_EDGE)) & (removed[order] >= 0)]
            nothing = np.zeros(len(order), np.int64)
            parts.append((owners[order], removed[order], nothing.astype(np.int8), nothing))
        if not parts:
            nothing = np.zeros(0, np.int64)
            return np.zeros(size + 1, np.int64), nothing, nothing.astype(np.int8), nothing
        owners, names, kinds, bits = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(owners, kind="stable")
        first_values = np.searchsorted(owners[order], np.arange(size + 1))
        return first_values, names[order], kinds[order], bits[order]


def _check_fields(record: Mapping[str, Any], accepted: set[str]) -> None:
    for name in record:
        if name not in accepted:
            raise InputError(f"field {name!r:.60}: unknown; choose from {', '.join(sorted(accepted))}")


def _checked(update: Mapping[str, Any]) -> tuple[int, Any, Any, Any, list[tuple[str, Any]]]:
    """Return the code of an update, its labels and its attributes."""
    name = update.get("op")
    if name not in OPS:
        raise InputError(f"field op = {name!r:.60}: accepted are {', '.join((*OPS, 'txn'))}")
    op = OPS.index(name)
    id, src, dst = (_label(update.get(field), field) for field in ("id", "src", "dst"))
    attributes, names = update.get("attrs") or {}, update.get("names") or ()
    if not isinstance(attributes, Mapping) or not all(isinstance(one, str) for one in attributes):
        raise InputError(f"field attrs = {attributes!r:.60}: must be a mapping of names to values")
    if isinstance(names, str) or not all(isinstance(one, str) for one in names):
        raise InputError(f"field names = {names!r:.60}: must be a list of texts")
    if names and op not in (UNSET_VERTEX, UNSET_EDGE):
        raise InputError(f"field names: accepted is attrs for op {name}")
    if op == HEARTBEAT:
        return op, None, None, None, []
    given = [(one, None) for one in set(names)] if op in (UNSET_VERTEX, UNSET_EDGE) else list(attributes.items())
    if OF_EDGES[op]:
        if (src is None or dst is None) and (id is None or op == ADD_EDGE):
            raise InputError(f"fields src and dst: missing for op {name}" + (", or give id" if op != ADD_EDGE else ""))
        if id is None:
            id = f"{src}>{dst}:{attributes.get('type', '')}"
    elif id is None:
        raise InputError(f"field id: missing for op {name}")
    for attribute, value in given:
        attribute.encode()
        if value is None and op not in (UNSET_VERTEX, UNSET_EDGE):
            raise InputError(f"field attrs: {attribute}: null; remove attributes with -av or -ae")
    return op, id, src, dst, given


def _label(value: Any, field: str) -> Any:
    if type(value) is str:
        value.encode()  # raises for half of a surrogate pair
        return value
    if value is None or (type(value) is int and -(1 << 63) <= value < 1 << 63):
        return value
    raise InputError(f"field {field} = {value!r:.60}: accepted are texts and integers up to 64 bits")


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def _labels(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    integers = pa.types.is_integer(kind) and kind != pa.uint64()
    if not (integers or pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(f"column {name}: is {kind}; accepted are texts and integers up to 64 bits")
    return column


def _derived(source: pa.Array, target: pa.Array, types: pa.Array) -> pa.Array:
    """Return the ids of edges that are given by their ends and type."""
    texts = [one.cast(pa.string()) for one in (source, target, types)]
    first = pc.binary_join_element_wise(texts[0], texts[1], ">")
    return pc.binary_join_element_wise(first, texts[2].fill_null(""), ":")

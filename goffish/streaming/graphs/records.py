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
from goffish.gofs.times import ACCEPTED, event_time, read_times, shown
from goffish.streaming.graphs.attributes import ACCEPTED_VALUES, Bits, Kinds, Values, check_type, is_list, is_text
from goffish.streaming.graphs.updates import (
    ADD_EDGE,
    ADD_VERTEX,
    HEARTBEAT,
    NONE,
    OF_EDGES,
    OPS,
    REFUSED,
    SET_EDGE,
    SET_VERTEX,
    UNSET_EDGE,
    UNSET_VERTEX,
)
from goffish.streaming.key_table import KeyTable

_FIELDS = {"t", "op", "stream", "seq", "id", "src", "dst", "names"}
_FIELDS_OF_RECORDS = _FIELDS | {"attrs", "updates"}
_FIELDS_OF_UPDATES = {"op", "id", "src", "dst", "attrs", "names"}
_MOST_SEQS = 1 << 62
_SEQS = "accepted are integers from 0 to 2^62 - 1"
_NAMES = "accepted are texts, and only for -av and -ae"
_LABELS = "accepted are texts and integers up to 64 bits"
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
        name.encode()  # raises for half of a surrogate pair
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

    def _removed(self, name: str) -> int:
        """Return the number of the name of an attribute that is removed, which records of earlier times may yet set.

        It is -1 if there are so many names that no record can set it.
        """
        return self.name(name) if name in self.names or len(self.names) < self._most_names else -1

    def rows(self, records: Iterable[Any]) -> Encoded:
        """Encode mappings; see `LiveGraph.feed`."""
        rejected: list[tuple[int, str]] = []
        # Labels are numbered at once, and columns become one array, as a call often has a single record.
        labels: list[Any] = []
        edge_labels: list[Any] = []
        places: list[int] = []
        heads: list[int] = []
        updates: list[int] = []
        values: list[int] = []
        firsts, first_values = [0], [0]
        for place, record in enumerate(records):
            try:
                head, found = self._record(record)
            except (InputError, TypeError, ValueError, OverflowError, RecursionError) as error:
                rejected.append((place, str(error)))
                continue
            places.append(place)
            heads += head
            for op, vertex, edge, source, target, attributes in found:
                ends = [_added(labels, end) for end in (source, target)]
                updates += op, _added(labels, vertex), _added(edge_labels, edge), *ends
                for one in attributes:
                    values += one
                first_values.append(len(values) // 3)
            firsts.append(len(updates) // 5)
        # The last place, -1, is that of no label.
        slots = [*self.vertices.slots(labels).tolist(), -1]
        edges = [*self.edges.slots(edge_labels).tolist(), -1]
        elements = [max(slots[vertex], edges[edge]) for vertex, edge in zip(updates[1::5], updates[2::5], strict=True)]
        sources, targets = ([slots[end] for end in updates[at::5]] for at in (3, 4))
        made = Records(
            _column(heads[::3]), _column(heads[1::3]), _column(heads[2::3]), _column(firsts),
            np.array(updates[::5], np.int8), _column(elements), _column(sources), _column(targets),
            _column(first_values), _column(values[::3]), np.array(values[1::3], np.int8), _column(values[2::3]),
        )  # fmt: skip
        return Encoded(made, _column(places), rejected)

    def _record(self, record: Any) -> tuple[tuple[int, int, int], list[tuple[Any, ...]]]:
        if not isinstance(record, Mapping):
            raise InputError(f"record {record!r:.60}: must be a mapping")
        _check_fields(record, _FIELDS_OF_RECORDS)
        if "t" not in record:
            raise InputError("field t: missing; give the event time")
        seq = record.get("seq")
        if isinstance(seq, np.integer):
            seq = int(seq)
        if seq is not None and not (type(seq) is int and 0 <= seq < _MOST_SEQS):
            raise InputError(f"field seq = {seq!r:.60}: {_SEQS}")
        if record.get("op") == "txn":
            updates = record.get("updates")
            if not isinstance(updates, Sequence) or isinstance(updates, str) or not updates:
                raise InputError("field updates: a transaction needs a list of updates")
            for one in updates:
                if not isinstance(one, Mapping):
                    raise InputError(f"field updates: {one!r:.60}: must be a mapping")
                _check_fields(one, _FIELDS_OF_UPDATES)
        else:
            if "updates" in record:
                raise InputError("field updates: only transactions have some; set op to txn")
            updates = [record]
        checked = [_checked(one) for one in updates]
        head = (event_time(record["t"]), self.stream(record.get("stream")), -1 if seq is None else seq)
        return head, [self._update(*one) for one in checked]

    def _update(self, op: int, id: Any, src: Any, dst: Any, attributes: list[tuple[str, Any]]) -> tuple[Any, ...]:
        """Return the code of an update, its vertex, its edge and the ends of that, and attributes as numbers."""
        if op in (UNSET_VERTEX, UNSET_EDGE):
            removed = [self._removed(name) for name, _ in sorted(attributes)]
            given = [(number, NONE, 0) for number in removed if number >= 0]
        else:
            given = [(self.name(name), *self.values.encode_one(value)) for name, value in sorted(attributes)]
        return (op, None, id, src, dst, given) if OF_EDGES[op] else (op, id, None, None, None, given)

    def table(self, table: pa.Table) -> Encoded:
        """Encode a table, one update a row; see `LiveGraph.feed`.

        Raises
        ------
        InputError
            A column is missing, occurs twice, is damaged, or has a type that is not accepted. Nothing is encoded then.
        """
        columns = _columns_of(table)
        size = len(table)
        wrong = _Wrong(size)
        ops = pc.index_in(_texts(columns["op"], "op"), pa.array(OPS)).fill_null(len(OPS)).to_numpy().astype(np.int8)
        wrong.add(ops == len(OPS), f"column op: missing, or not accepted; accepted are {', '.join(OPS)}")
        edge = OF_EDGES[ops]
        labels = {name: _labels(columns.get(name, pa.nulls(size)), name) for name in ("id", "src", "dst")}
        ids, *ends = (label for label, _ in labels.values())
        for name, (_, large) in labels.items():
            wrong.add(large, f"column {name}: {_LABELS}")
        have, *have_ends = (np.asarray(column.is_valid()) for column in (ids, *ends))
        both = have_ends[0] & have_ends[1]
        wrong.add(~edge & (ops < HEARTBEAT) & ~have, "column id: missing")
        wrong.add(
            edge & ~both & (~have | (ops == ADD_EDGE)), "columns src and dst: missing, or give an id to -e, +ae, -ae"
        )
        times, seqs = self._heads(columns, size, wrong)
        derived = edge & ~have
        types = _types(columns.get("type", pa.nulls(size))) if derived.any() else None
        streams = self._streams(columns, size, wrong)
        values = self._attributes(columns, ops, wrong)
        good = wrong.codes == 0
        elements = np.full(size, -1, np.int64)
        self._fill(elements, self.vertices, ids, ~edge & (ops < HEARTBEAT) & good)
        if types is not None:
            self._fill(elements, self.edges, _derived(ends[0], ends[1], types), derived & good)
        self._fill(elements, self.edges, ids, edge & have & good)
        slots = [np.full(size, -1, np.int64) for _ in ends]
        for slot, column, given in zip(slots, ends, have_ends, strict=True):
            self._fill(slot, self.vertices, column, edge & given & good)
        made = Records(times, streams, seqs, np.arange(size + 1), ops, elements, slots[0], slots[1], *values)
        places = np.flatnonzero(good)
        return Encoded(made if len(places) == size else made.take(places), places, wrong.listed())

    @staticmethod
    def _heads(columns: Mapping[str, pa.Array], size: int, wrong: _Wrong) -> tuple[Numbers, Numbers]:
        try:
            times, accepted = read_times(columns["t"])
        except InputError as error:
            raise InputError(f"column t: {error}") from None
        wrong.add(~accepted, f"column t: missing, or not accepted; {ACCEPTED}")
        seqs = np.full(size, -1, np.int64)
        column = columns.get("seq", pa.nulls(0))
        if not pa.types.is_null(column.type):
            if not pa.types.is_integer(column.type):
                raise InputError(f"column seq: is {column.type}; accepted are integers")
            given = np.asarray(column.is_valid())
            numbers = column.fill_null(0).to_numpy()
            refused = given & ((numbers < 0) | (numbers >= _MOST_SEQS))
            wrong.add(refused, f"column seq: {_SEQS}")
            seqs[given & ~refused] = numbers[given & ~refused]
        return times, seqs

    def _streams(self, columns: Mapping[str, pa.Array], size: int, wrong: _Wrong) -> Numbers:
        """Return the numbers of the streams of records that are accepted otherwise."""
        if "stream" not in columns:
            return np.full(size, self.stream("") if size else 0, np.int64)
        named = _texts(columns["stream"], "stream").fill_null("").dictionary_encode()
        numbers, places = np.zeros(len(named.dictionary), np.int64), named.indices.to_numpy()
        for place in np.unique(places[wrong.codes == 0]).tolist():
            try:
                numbers[place] = self.stream(named.dictionary[place].as_py())
            except InputError as error:
                wrong.add(places == place, str(error))
        found: Numbers = numbers[places]
        return found

    @staticmethod
    def _fill(found: Numbers, keys: KeyTable, labels: pa.Array, rows: NDArray[np.bool_]) -> None:
        """Number the labels of some rows."""
        if rows.any():
            found[rows] = keys.slots(labels if rows.all() else labels.filter(pa.array(rows)))

    def _attributes(
        self, columns: Mapping[str, pa.Array], ops: NDArray[np.int8], wrong: _Wrong
    ) -> tuple[Numbers, Numbers, Kinds, Bits]:
        """Return the attributes of all updates."""
        parts: list[tuple[Any, ...]] = []
        sets = (ops == ADD_VERTEX) | (ops == ADD_EDGE) | (ops == SET_VERTEX) | (ops == SET_EDGE)
        removes = (ops == UNSET_VERTEX) | (ops == UNSET_EDGE)
        for name in sorted(columns.keys() - _FIELDS):
            kinds, bits = self.values.encode(columns[name])
            wrong.add(sets & (kinds == REFUSED), f"column {name}: {ACCEPTED_VALUES}")
            rows = np.flatnonzero((kinds > NONE) & sets & (wrong.codes == 0))
            if len(rows):
                try:
                    parts.append((rows, np.full(len(rows), self.name(name)), kinds[rows], bits[rows]))
                except InputError as error:
                    wrong.add(_mask(rows, len(ops)), str(error))
        names = columns.get("names", pa.nulls(0))
        if not pa.types.is_null(names.type):
            owners, texts = pc.list_parent_indices(names).to_numpy(), _texts(pc.list_flatten(names), "names")
            nameless = np.asarray(texts.is_null())
            wrong.add(
                _mask(owners[nameless | ~removes[owners]], len(ops)),
                f"column names: {_NAMES}",
            )
            order = np.flatnonzero(wrong.codes[owners] == 0)
            order = order[np.lexsort((pc.rank(texts).to_numpy()[order], owners[order]))]
            named = texts.take(pa.array(order)).dictionary_encode()
            removed = np.array([self._removed(name) for name in named.dictionary.to_pylist()], np.int64)
            removed = removed[named.indices.to_numpy()]
            order, removed = order[removed >= 0], removed[removed >= 0]
            nothing = np.zeros(len(order), np.int64)
            parts.append((owners[order], removed, nothing.astype(np.int8), nothing))
        if not parts:
            nothing = np.zeros(0, np.int64)
            return np.zeros(len(ops) + 1, np.int64), nothing, nothing.astype(np.int8), nothing
        owners, numbers, kinds, bits = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(owners, kind="stable")
        first_values = np.searchsorted(owners[order], np.arange(len(ops) + 1))
        return first_values, numbers[order], kinds[order], bits[order]


class _Wrong:
    """Rows that are not accepted, with the first reason of each."""

    def __init__(self, size: int) -> None:
        self.codes = np.zeros(size, np.int64)
        self._reasons: list[str] = []

    def add(self, rows: NDArray[np.bool_], reason: str) -> None:
        """Refuse rows."""
        if rows.any():
            self._reasons.append(reason)
            self.codes[rows & (self.codes == 0)] = len(self._reasons)

    def listed(self) -> list[tuple[int, str]]:
        """Return the rows and their reasons."""
        return [(at, self._reasons[self.codes[at] - 1]) for at in np.flatnonzero(self.codes).tolist()]


def _mask(rows: NDArray[np.intp], size: int) -> NDArray[np.bool_]:
    found = np.zeros(size, np.bool_)
    found[rows] = True
    return found


def _columns_of(table: pa.Table) -> dict[str, pa.Array]:
    """Return the columns of a table after a look at their names and types."""
    for name in ("t", "op"):
        if name not in table.column_names:
            raise InputError(f"column {name}: missing")
    columns: dict[str, pa.Array] = {}
    for name, column in zip(table.column_names, table.combine_chunks().unify_dictionaries().columns, strict=True):
        if name in columns:
            raise InputError(f"column {name}: occurs more than once")
        columns[name] = array = _array(column)
        try:
            array.validate(full=True)  # texts that are not UTF-8
        except pa.ArrowInvalid as error:
            raise InputError(f"column {name}: is damaged ({' '.join(str(error).split()):.120})") from None
        if name == "names" and not pa.types.is_null(array.type):
            if not is_list(array.type):
                raise InputError(f"column names: is {array.type}; accepted are lists of texts")
            _texts(pa.array([], array.type.value_type), name)
        if name not in _FIELDS and array.null_count < len(array):
            try:
                check_type(array.type)
            except InputError as error:
                raise InputError(f"column {name}: {error}") from None
    return columns


def _column(numbers: list[int]) -> Numbers:
    return np.array(numbers, np.int64)


def _added(labels: list[Any], label: Any) -> int:
    """Append a label, unless it is none, and return its place."""
    if label is None:
        return -1
    labels.append(label)
    return len(labels) - 1


def _check_fields(record: Mapping[str, Any], accepted: set[str]) -> None:
    if not record.keys() <= accepted:
        name = next(name for name in record if name not in accepted)
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
    if isinstance(value, np.integer | np.str_):
        return _label(value.item(), field)
    if value is None or (type(value) is int and -(1 << 63) <= value < 1 << 63):
        return value
    raise InputError(f"field {field} = {value!r:.60}: {_LABELS}")


def row_of(table: pa.Table, place: int) -> dict[str, Any]:
    """Return a row as a mapping, with values that Python does not have as texts."""
    row = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        value = column[place]
        try:
            row[name] = value.as_py()
        except (ValueError, OverflowError):  # timestamps
            row[name] = shown(value)
    return row


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary, and texts in one form."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _labels(column: pa.Array, name: str) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return a column of ids, and which of them are too large."""
    column = _plain(column)
    kind = column.type
    large = np.zeros(len(column), np.bool_)
    if kind == pa.uint64():
        large = column.fill_null(0).to_numpy() >= 1 << 63
        column = pc.if_else(pa.array(large), None, column).cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_null(kind) or is_text(kind)):
        raise InputError(f"column {name}: is {kind}; {_LABELS}")
    return column, large


def _texts(column: pa.Array, name: str) -> pa.Array:
    """Return a column as texts."""
    column = _plain(column)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_null(kind) or is_text(kind)):
        raise InputError(f"column {name}: is {kind}; accepted are texts")
    return column.cast(pa.large_string())


def _types(column: pa.Array) -> pa.Array:
    """Return the types of edges as they are in the ids of those that have no other."""
    try:
        return _texts(column, "type")
    except InputError:  # the same as of mappings
        return pa.array([None if one is None else str(one) for one in column.to_pylist()], pa.large_string())


def _derived(source: pa.Array, target: pa.Array, types: pa.Array) -> pa.Array:
    """Return the ids of edges that are given by their ends and type."""
    texts = [one.cast(pa.large_string()) for one in (source, target)]
    arrow, colon = (pa.scalar(one, pa.large_string()) for one in ">:")
    first = pc.binary_join_element_wise(*texts, arrow)
    return pc.binary_join_element_wise(first, types.fill_null(""), colon)

"""The event reservoir: pools of events in buckets of time, with an index, replicas and relations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from goffish.errors import InputError, StoreError
from goffish.gofs.files import open_folder
from goffish.gofs.manifest import checksum
from goffish.gofs.reservoir.events import (
    ADDED,
    KEY,
    Where,
    ends_of,
    events_of,
    in_order,
    micros,
    moment,
    repeated,
    text_of,
    where_of,
)
from goffish.gofs.reservoir.index import Bucket, Index, decode_index, decoded, in_range
from goffish.gofs.reservoir.maintenance import compact, drop, index_states, repair, repair_index
from goffish.gofs.reservoir.model import NAME, Contents, PoolInfo, RelationInfo, is_ours, read_contents
from goffish.gofs.reservoir.places import Places
from goffish.gofs.reservoir.reading import Selection, View, assembled
from goffish.gofs.reservoir.relations import (
    DIRECTIONS,
    PAIR,
    Direction,
    Frontier,
    follow,
    on_of,
    pairs_of,
    reversed_pairs,
)
from goffish.gofs.reservoir.writing import Draft, mirror
from goffish.gofs.times import Duration, microseconds
from goffish.graph.guards import whole_number
from goffish.partial import absolute_place

#: Seconds that a writer waits for another one.
_WAIT_S = 30.0
#: How often a query begins again because buckets were replaced while it ran.
_ATTEMPTS = 10
#: Small buckets of a span that are kept beside each other.
_SMALL = 16
#: Buckets that one call may write.
_MOST_BUCKETS = 10_000
_LONGEST_NAME = 200
Answer = TypeVar("Answer")


class Reservoir:
    """A durable store of events, grouped into pools and queried by time, value and relation.

    Parameters
    ----------
    path : str or Path
        Folder or URI of an existing reservoir, or of a replica, which can only be read; see `create`.

    Raises
    ------
    StoreError
        There is none, or it is damaged, or of a newer version.

    Notes
    -----
    A *pool* holds events of one source or type: rows with a time ``t``, an identifier ``id`` and any other columns.
    Events are stored in *buckets*, Parquet files that hold one span of time of one pool. The *index* has the range of
    times and ids, the columns, the checksum and the locations of each bucket, so that a query opens only buckets that
    can hold rows of the result.

    Each change writes new files and then replaces the manifest in one step: after a crash, the reservoir has the
    content from before the change or after it. One process writes at a time; readers never wait.

    Examples
    --------
    >>> import goffish as gf
    >>> events = gf.Reservoir.create("events.reservoir", bucket="1h")
    >>> events.pool("logins").append([
    ...     {"t": "2026-01-05T08:00Z", "id": "a1", "user": "ann"},
    ...     {"t": "2026-01-05T09:30Z", "id": "a2", "user": "bob", "failed": True},
    ... ])
    2
    >>> events.query(where={"user": "bob"}).select(["id", "failed"]).to_pylist()
    [{'id': 'a2', 'failed': True}]
    """

    def __init__(self, path: str | Path) -> None:
        self._home = open_folder(path)
        self._lock = threading.RLock()
        self._swept = False
        contents = read_contents(self._home)
        self._places = Places(self._home, contents.replicas)
        self._state = contents.changed(index=None), Index()
        self._load()

    def __repr__(self) -> str:
        contents, index = self._load()
        rows = sum(one.rows for name in contents.pools for one in index.of(contents.pools[name].number))
        return f"Reservoir({self.location!r}, {len(contents.pools)} pools, {rows} events)"

    @classmethod
    def create(
        cls, path: str | Path, *, bucket: Duration = "1h", rows: int = 250_000, replicas: Sequence[str | Path] = (),
        copies: int | None = None, allow_missing: int = 0, group_related: bool = False,
    ) -> Reservoir:  # fmt: skip
        """Create an empty reservoir.

        Parameters
        ----------
        path : str or Path
            Folder or URI; must be empty or not exist.
        bucket : str, float or timedelta
            Span of time that a bucket covers [default: "1h"].
        rows : int
            Events after which a bucket is full [default: 250,000].
        replicas : sequence of str or Path
            Folders or URIs that hold copies of buckets and of the index.
        copies : int, optional
            Number of locations that hold each bucket, of `path` and `replicas` together [default: all].
        allow_missing : int
            Number of those locations that may be unreachable while events are appended; `repair` adds the copies that
            are missing [default: 0].
        group_related : bool
            Whether compaction puts events together that pairs of relations join, so that following relations opens
            fewer buckets [default: False].

        Returns
        -------
        Reservoir

        Raises
        ------
        InputError
            An argument is not accepted.
        StoreError
            A location is not empty, or cannot be written.
        """
        span = microseconds(bucket, "bucket")
        whole_number(rows, "rows")
        if isinstance(replicas, str | Path):
            raise InputError(f"replicas = {str(replicas)!r}: expected a list of folders or URIs")
        others = tuple(absolute_place(one) for one in replicas)
        home = open_folder(path)
        own = home.location if "://" in home.location else str(Path(home.location).absolute())
        for number, one in enumerate(others):
            if one.rstrip("/") in (own, *(other.rstrip("/") for other in others[:number])):
                raise InputError(f"replicas: {one}: is named twice; each location must be another one")
        wanted = len(others) + 1 if copies is None else whole_number(copies, "copies")
        if wanted > len(others) + 1:
            raise InputError(f"copies={wanted}: there are {len(others) + 1} locations: the reservoir and its replicas")
        if whole_number(allow_missing, "allow_missing", 0) >= wanted:
            raise InputError(f"allow_missing={allow_missing}: must be less than the number of copies ({wanted})")
        contents = Contents(
            span_us=span, rows=rows, replicas=others, copies=wanted, allow_missing=allow_missing,
            group_related=group_related,
        )  # fmt: skip
        places = Places(home, others)
        with home.locked():
            for place in range(len(places)):
                folder = places.folder(place)
                if any(not is_ours(name) for name in folder.list()):
                    kind = "is an event reservoir" if folder.size(NAME) is not None else "is not empty"
                    raise StoreError(f"{folder.location}: {kind}; choose another folder")
            for place in range(1, len(places)):
                mirror(contents, places, place)
            Draft(contents, Index(), places).publish(sweep=True)
        return cls(path)

    @property
    def location(self) -> str:
        """Folder or URI of the reservoir."""
        return self._home.location

    @property
    def pools(self) -> list[str]:
        """Names of the pools."""
        return sorted(self._load()[0].pools)

    def pool(self, name: str, *, group: Sequence[str] | None = None) -> Pool:
        """Return a pool, which the first events create.

        Parameters
        ----------
        name : str
        group : sequence of str, optional
            Columns by whose values compaction puts events together, so that queries for a value open fewer buckets
            [default: those of the pool].

        Returns
        -------
        Pool

        Raises
        ------
        InputError
            The name is not accepted.
        """
        if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise InputError(f"pool {name!r:.80}: a name must have 1 to {_LONGEST_NAME} printable characters")
        if isinstance(group, str):
            raise InputError(f"pool {name}: group = {group!r}: expected a list of column names")
        for one in group or ():
            if not isinstance(one, str) or one in (*KEY, *ADDED):
                raise InputError(f"pool {name}: group: {one!r}: expected the name of a column other than t and id")
        return Pool(self, name, None if group is None else tuple(group))

    def query(
        self, pools: str | Sequence[str] | None = None, *, start: Any = None, end: Any = None,
        where: Mapping[str, Any] | None = None, columns: Sequence[str] | None = None,
        types: Mapping[str, Any] | None = None, related: str | Sequence[str] | None = None, hops: int = 1,
        direction: Direction = "both",
    ) -> pa.Table:  # fmt: skip
        """Return events as a table, ordered by time, pool and id.

        Parameters
        ----------
        pools : str or sequence of str, optional
            Names of pools [default: all].
        start, end : datetime, str or float, optional
            Beginning of the time range, included, and its end, excluded: timestamps, ISO 8601 texts or seconds since
            1970.
        where : mapping, optional
            Value of a column, or list of values, by name; ``None`` is a missing value. Texts equal texts only, and
            numbers equal numbers of any type.
        columns : sequence of str, optional
            Columns of the result beside ``pool``, ``t`` and ``id`` [default: all that have a value, by name].
        types : mapping, optional
            Arrow types, or their names, to which columns are converted.
        related : str or sequence of str, optional
            Names of relations. The result also has the events of any pool and time that are reached from the selected
            ones, and the column ``hops``: 0 for the selected ones.
        hops : int
            How many relations are followed one after the other [default: 1].
        direction : {"both", "out", "in"}
            Whether relations are followed from source to target ("out"), from target to source ("in") or both ways
            [default: "both"].

        Returns
        -------
        pyarrow.Table
            ``pool``, ``t``, ``id`` and the other columns; null where an event lacks one.

        Raises
        ------
        InputError
            A pool, column or relation does not exist, an argument is not accepted, or a column of the result has
            values of several types and none in `types`.
        StoreError
            No location has an undamaged copy of a bucket.

        Examples
        --------
        >>> import goffish as gf
        >>> events = gf.Reservoir.create("attacks.reservoir")
        >>> _ = events.pool("logins").append({"t": 100, "id": 1, "host": "web", "failed": True})
        >>> _ = events.pool("alerts").append({"t": 130, "id": 7, "host": "web"})
        >>> _ = events.relate("caused", source="logins", target="alerts", on="host", within="1min")
        >>> events.query("logins", where={"failed": True}, related="caused").select(["pool", "hops", "id"]).to_pylist()
        [{'pool': 'logins', 'hops': 0, 'id': 1}, {'pool': 'alerts', 'hops': 1, 'id': 7}]
        """
        kinds = _types_of(types)
        whole_number(hops, "hops")
        if direction not in DIRECTIONS:
            raise InputError(f"direction = {direction!r}: choose one of {', '.join(DIRECTIONS)}")

        def answer(view: View) -> pa.Table:
            chosen = self._selection(view, pools, (start, end), where, columns, related is not None)
            found = [*view.select(chosen)]
            parts = [(pool, table) for pool, _, table in found]
            if related is not None:
                names = _relations_of(view, related)
                parts = [(pool, _with_hops(table, 0)) for pool, table in parts]
                for pool, reached, hop in follow(view, _frontier(found), names, hops, direction):
                    number = view.contents.pools[pool].number
                    rows = view.lookup(number, reached.keys, chosen.columns, reached.parts)
                    parts += [(pool, _with_hops(table, hop)) for _, table in rows]
            known = _kinds(view, chosen.pools if related is None else [*view.contents.pools])
            return assembled(parts, chosen.columns, kinds, known)

        return self._answer(answer)

    def scan(
        self, pools: str | Sequence[str] | None = None, *, start: Any = None, end: Any = None,
        where: Mapping[str, Any] | None = None, columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Iterate over events bucket by bucket, for results that do not fit in memory.

        Parameters
        ----------
        pools, start, end, where, columns
            As in `query`.

        Yields
        ------
        pyarrow.RecordBatch
            ``pool`` and the columns of a bucket, which may differ between batches. Spans of time ascend in each pool;
            events of a batch have no order.

        Raises
        ------
        InputError
            A pool or column does not exist, or an argument is not accepted.
        StoreError
            A bucket is damaged, or was replaced by a compaction while the scan ran.
        """
        view = View(*self._load(), self._places)
        for pool, _, table in view.select(self._selection(view, pools, (start, end), where, columns)):
            yield from table.add_column(0, "pool", pa.array([pool] * len(table), pa.string())).to_batches()

    def relate(
        self, name: str, *, source: str, target: str, on: str | Sequence[str] | Mapping[str, str] | None = None,
        within: Duration | None = None,
    ) -> Relation:  # fmt: skip
        """Define a relation between the events of two pools.

        Parameters
        ----------
        name : str
        source, target : str
            Names of pools, which may be the same one, and may be created later.
        on : str, sequence of str, or mapping, optional
            Columns that have equal values, or columns of the source and of the target. By default, pairs of events are
            appended to the relation.
        within : str, float or timedelta, optional
            The most time from source to target, which is not before the source. By default, times do not matter.

        Returns
        -------
        Relation

        Raises
        ------
        InputError
            An argument is not accepted, or another relation has the name.
        StoreError
            The reservoir cannot be written.
        """
        for pool in (source, target):
            self.pool(pool)
        if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise InputError(f"relation {name!r:.80}: a name must have 1 to {_LONGEST_NAME} printable characters")
        columns = on_of(on, name)
        if within is not None and not columns:
            raise InputError(f"relation {name}: within needs on, as pairs of events are appended otherwise")
        span = None if within is None else microseconds(within, "within", zero=True)
        with self._writing() as (draft, _):
            contents = draft.contents
            found = contents.relations.get(name)
            info = RelationInfo(
                number=contents.folders if found is None else found.number, source=source, target=target, on=columns,
                within_us=span,
            )  # fmt: skip
            if found is None:
                relations = {**contents.relations, name: info}
                draft.contents = contents.changed(folders=contents.folders + 2, relations=relations)
            elif found != info:
                raise InputError(f"relation {name}: exists with other pools or columns; choose another name")
        return Relation(self, name)

    def relation(self, name: str) -> Relation:
        """Return a relation.

        Parameters
        ----------
        name : str

        Returns
        -------
        Relation

        Raises
        ------
        InputError
            There is none.
        """
        _relations_of(View(*self._load(), self._places), name)
        return Relation(self, name)

    def compact(self) -> dict[str, int]:
        """Merge small buckets of the same span and columns, and put events together as the settings of pools say.

        Returns
        -------
        dict
            Number of ``buckets`` and their ``bytes``, and both before: ``buckets_before`` and ``bytes_before``.

        Raises
        ------
        StoreError
            A bucket is damaged, or the reservoir cannot be written.
        """
        with self._writing(sweep=True) as (draft, view):
            compact(draft, view)
        return _sizes(view.index, self._state[1])

    def drop(self, before: Any, pools: str | Sequence[str] | None = None) -> dict[str, int]:
        """Remove the events before a time.

        Parameters
        ----------
        before : datetime, str or float
            Timestamp, ISO 8601 text or seconds since 1970.
        pools : str or sequence of str, optional
            Names of pools [default: all, and the pairs of relations].

        Returns
        -------
        dict
            As of `compact`.

        Raises
        ------
        InputError
            A pool does not exist, or `before` is no time.
        StoreError
            A bucket is damaged, or the reservoir cannot be written.
        """
        first = moment(before, "before")
        if first is None:
            raise InputError("before = None: give a time")
        with self._writing() as (draft, view):
            chosen = self._selection(view, pools, (None, None), None, None)
            numbers = [view.contents.pools[name].number for name in chosen.pools]
            if pools is None:
                pairs = [info.number for info in view.contents.relations.values() if not info.on]
                numbers += [*pairs, *(number + 1 for number in pairs)]
            drop(draft, view, numbers, first)
        return _sizes(view.index, self._state[1])

    def repair(self, *, forget: bool = False) -> pa.Table:
        """Write missing and damaged copies of the index and of buckets again, from the copies that are left.

        Parameters
        ----------
        forget : bool
            Whether to remove buckets from the index that no location has, so that queries work without their events
            [default: False].

        Returns
        -------
        pyarrow.Table
            As of `verify`, of the copies that were not ``ok``; their ``state`` is ``restored``, ``unreachable`` or
            ``lost``.

        Raises
        ------
        StoreError
            The reservoir cannot be written.
        """
        with self._writing(sweep=True) as (draft, view):
            of_index = repair_index(view.contents, self._places)
            done = repair(draft, view, self._places, forget=forget)
        rows = [("", *one) for one in of_index] + [
            (_pool_of(view.contents, one.pool), one.name, where, state) for one, where, state in done
        ]
        return _states(rows)

    def describe(self) -> dict[str, Any]:
        """Describe the reservoir from its index, without reading events.

        Returns
        -------
        dict
            Settings, locations, and for each pool its events, buckets, bytes, columns and range of times.
        """
        contents, index = self._load()
        pools = {}
        for name, info in sorted(contents.pools.items()):
            buckets = index.of(info.number)
            kinds: dict[str, list[str]] = {}
            for bucket in buckets:
                for column, kind in decoded(bucket.columns).items():
                    kinds[column] = sorted({kind, *kinds.get(column, ())})
            pools[name] = {
                "events": sum(one.rows for one in buckets),
                "buckets": len(buckets),
                "bytes": sum(one.size for one in buckets),
                "first": text_of(min(one.first for one in buckets)) if buckets else None,
                "last": text_of(max(one.last for one in buckets)) if buckets else None,
                "columns": {name: " or ".join(kinds[name]) for name in sorted(kinds)},
                "group": list(info.group),
            }
        return {
            "reservoir": self.location,
            "publication": contents.publication,
            "bucket_s": contents.span_us / 1e6,
            "rows": contents.rows,
            "locations": self._places.names,
            "copies": contents.copies,
            "allow_missing": contents.allow_missing,
            "copy_of": contents.copy_of or None,
            "pools": pools,
        }

    def verify(self, *, progress: Callable[[int, int], None] | None = None) -> pa.Table:
        """Read every copy of the index and of every bucket and compare it with its checksum.

        Parameters
        ----------
        progress : callable, optional
            Called with the number of buckets verified and in total.

        Returns
        -------
        pyarrow.Table
            ``pool``, ``bucket``, ``location`` and ``state`` of each copy that there should be: ``ok``, ``missing``,
            ``damaged`` or ``unreachable``. Copies of the index come first, with an empty ``pool``.
        """

        def answer(view: View) -> pa.Table:
            found = index_states(view.contents, self._places)
            rows = [("", name, self._places.names[place], state) for name, place, state in found]
            for done, bucket in enumerate(view.index.buckets, 1):
                for place in self._expected(view.contents, bucket.name, bucket.places):
                    state = self._places.state(bucket, place)
                    rows.append((_pool_of(view.contents, bucket.pool), bucket.name, self._places.names[place], state))
                if progress is not None:
                    progress(done, len(view.index.buckets))
            return _states(rows)

        return self._answer(answer)

    def _expected(self, contents: Contents, name: str, places: Collection[int]) -> list[int]:
        """Return the locations that should hold a bucket; those that hold one although others should are kept."""
        return sorted({*places, *self._places.chosen(name, contents.copies)})

    def _load(self) -> tuple[Contents, Index]:
        """Return the published version."""
        with self._lock:
            for attempt in range(_ATTEMPTS):
                contents = read_contents(self._home)
                if contents.index == self._state[0].index:
                    self._state = contents, self._state[1]
                    return self._state
                try:
                    self._state = contents, self._read_index(contents)
                    return self._state
                except StoreError:
                    if attempt + 1 == _ATTEMPTS or read_contents(self._home).publication == contents.publication:
                        raise
            raise AssertionError

    def _read_index(self, contents: Contents) -> Index:
        entry, problem = contents.index, StoreError("")
        assert entry is not None
        for place, where in enumerate(self._places.names):
            try:
                data = self._places.folder(place).read(entry.name)
                if data.size != entry.size or checksum(data) != entry.sha256:
                    raise StoreError(f"{where}/{entry.name}: damaged (its bytes do not match the checksum)")
                return decode_index(data, f"{where}/{entry.name}", len(self._places))
            except StoreError as error:
                problem = error if not place else problem
        raise problem

    def _answer(self, work: Callable[[View], Answer]) -> Answer:
        """Return what is found in the published version; begin again if buckets are replaced meanwhile."""
        for attempt in range(_ATTEMPTS):
            view = View(*self._load(), self._places)
            try:
                return work(view)
            except StoreError:
                published = read_contents(self._home).publication
                if attempt + 1 == _ATTEMPTS or published == view.contents.publication:
                    raise
        raise AssertionError

    @contextmanager
    def _writing(self, *, sweep: bool = False) -> Iterator[tuple[Draft, View]]:
        """Publish the changes of a block, or none of them."""
        with self._lock, self._home.locked(_WAIT_S):
            contents, index = self._load()
            if contents.copy_of:
                raise StoreError(f"{self.location}: is a replica of {contents.copy_of}; write there")
            draft = Draft(contents, index, self._places)
            try:
                yield draft, View(contents, index, self._places)
                if draft.is_changed or sweep:
                    self._state = draft.publish(sweep=sweep or not self._swept)
                    self._swept = True
            except BaseException:
                draft.discard()
                raise

    def _selection(
        self, view: View, pools: str | Sequence[str] | None, period: tuple[Any, Any], where: Mapping[str, Any] | None,
        columns: Sequence[str] | None, everywhere: bool = False,
    ) -> Selection:  # fmt: skip
        known = view.contents.pools
        if isinstance(columns, str):
            raise InputError(f"columns = {columns!r}: expected a list of names")
        names = sorted(known) if pools is None else [pools] if isinstance(pools, str) else list(dict.fromkeys(pools))
        for name in names:
            if name not in known:
                raise InputError(f"no pool {name!r:.80}; choose from {', '.join(sorted(known)) or 'none'}")
        first, end = (moment(one, what) for one, what in zip(period, ("start", "end"), strict=True))
        if first is not None and end is not None and end <= first:
            raise InputError(f"end = {period[1]!r}: must be after start = {period[0]!r}")
        wanted: Where = where_of(where)
        listed = None if columns is None else [one for one in dict.fromkeys(columns) if one not in (*KEY, "pool")]
        kinds = _kinds(view, [*known] if everywhere else names)
        for name in (*(listed or ()), *wanted):
            if name not in kinds and name not in KEY and kinds:
                raise InputError(f"no column {name!r:.80}; choose from {', '.join(sorted(kinds))}")
        return Selection(names, first, None if end is None else end - 1, wanted, listed)

    def _append(self, pool: Pool, given: Any) -> int:
        where = f"pool {pool.name}"
        events = events_of(given, where)
        if not len(events):
            return 0
        with self._writing() as (draft, view):
            info = self._info(draft, pool, str(events.schema.field("id").type))
            events = events.filter(pa.array(~self._known(view, info.number, events, KEY)))
            self._write(draft, view, info, events)
        return len(events)

    def _append_pairs(self, name: str, given: Any) -> int:
        with self._writing() as (draft, view):
            info = view.contents.relations[name]
            if info.on:
                columns = ", ".join(one for one, _ in info.on)
                raise InputError(f"relation {name}: joins events by {columns}; it takes no pairs")
            pairs = pairs_of(view, info, given, f"relation {name}")
            if pairs is None:
                return 0
            pairs = pairs.filter(pa.array(~self._known(view, info.number, pairs, PAIR)))
            for number, rows in ((info.number, pairs), (info.number + 1, reversed_pairs(pairs))):
                self._write(draft, view, PoolInfo(number=number), rows)
        return len(pairs)

    def _info(self, draft: Draft, pool: Pool, ids: Any) -> PoolInfo:
        """Return the pool in a draft, which is made if it does not exist."""
        contents = draft.contents
        found = contents.pools.get(pool.name)
        if found is None:
            found = PoolInfo(number=contents.folders)
            contents = contents.changed(folders=contents.folders + 1)
        if found.ids not in ("", ids):
            raise InputError(f"pool {pool.name}: ids are {ids}, but those of earlier events are {found.ids}")
        info = PoolInfo(number=found.number, ids=ids, group=found.group if pool.group is None else pool.group)
        if contents.pools.get(pool.name) != info:
            draft.contents = contents.changed(pools={**contents.pools, pool.name: info})
        return info

    def _known(self, view: View, number: int, rows: pa.Table, key: Sequence[str]) -> np.ndarray[Any, Any]:
        """Return which rows are stored already, or are equal to earlier ones."""
        times, (low, high) = micros(rows), ends_of(rows.column("id"))
        near = view.index.of(number, int(times.min()), int(times.max()))
        present = [view.read(one, key).select(list(key)) for one in near if in_range(one, "id", low, high)]
        return repeated(pa.concat_tables([rows.select(list(key)).slice(0, 0), *present]), rows)

    def _write(self, draft: Draft, view: View, info: PoolInfo, rows: pa.Table) -> None:
        """Write rows to buckets of their spans, together with small ones that have the same columns."""
        contents = draft.contents
        spans = micros(rows) // contents.span_us
        found = np.unique(spans)
        if len(found) > _MOST_BUCKETS:
            raise InputError(
                f"the events span {len(found):,} buckets, more than {_MOST_BUCKETS:,}; append fewer at a time, or "
                "create the reservoir with a longer bucket"
            )
        for span in found.tolist():
            table = rows if len(found) == 1 else rows.filter(pa.array(spans == span))
            kinds = {field.name: str(field.type) for field in table.schema}
            begin = span * contents.span_us
            small = [
                one for one in view.index.of(info.number, begin, begin + contents.span_us - 1)
                if not one.settled and one.rows < contents.rows and decoded(one.columns) == kinds
            ]  # fmt: skip
            if len(small) >= _SMALL:
                table = pa.concat_tables([*(view.read(one).select(table.column_names) for one in small), table])
                draft.drop(small)
            table = in_order(table, KEY)
            for at in range(0, len(table), contents.rows):
                draft.add(info.number, span, table.slice(at, contents.rows), group=info.group)


class Pool:
    """Events of one source or type in a `Reservoir`; returned by `Reservoir.pool`.

    Parameters
    ----------
    reservoir : Reservoir
    name : str
    group : tuple of str, optional
        Columns by whose values compaction puts events together [default: those of the pool].
    """

    def __init__(self, reservoir: Reservoir, name: str, group: tuple[str, ...] | None = None) -> None:
        self.reservoir, self.name, self.group = reservoir, name, group

    def __repr__(self) -> str:
        return f"Pool({self.name!r}, {self.reservoir!r})"

    def append(self, events: Any) -> int:
        """Append events; those that are stored already, with the same ``t`` and ``id``, have no effect.

        Parameters
        ----------
        events : table or mappings
            Anything with ``__arrow_c_stream__`` (Arrow, Polars, pandas, DuckDB), or mappings, with a column ``t``
            (timestamps, ISO 8601 texts or seconds since 1970), a column ``id`` (texts or integers) and any others.

        Returns
        -------
        int
            Number of events that are new.

        Raises
        ------
        InputError
            A column is missing, null or of a type that is not accepted.
        StoreError
            A location cannot be written, or another process writes for longer than 30 seconds.

        Notes
        -----
        Integers are stored as int64 and floating-point numbers as float64; no value changes. Events of one pool may
        have different columns, and different types in one column if they are appended separately.
        """
        return self.reservoir._append(self, events)

    def query(self, **options: Any) -> pa.Table:
        """Return events of the pool; see `Reservoir.query`.

        Parameters
        ----------
        **options
            Of `Reservoir.query`, without ``pools``.

        Returns
        -------
        pyarrow.Table
        """
        return self.reservoir.query([self.name], **options)


class Relation:
    """Relation between events in a `Reservoir`; returned by `Reservoir.relate` and `Reservoir.relation`.

    Parameters
    ----------
    reservoir : Reservoir
    name : str
    """

    def __init__(self, reservoir: Reservoir, name: str) -> None:
        self.reservoir, self.name = reservoir, name

    def __repr__(self) -> str:
        return f"Relation({self.name!r}, {self.reservoir!r})"

    def append(self, pairs: Any) -> int:
        """Append pairs of related events; those that are stored already have no effect.

        Parameters
        ----------
        pairs : table or mappings
            Columns ``source`` and ``target`` with ids of events, and optionally ``source_t`` and ``target_t`` with
            their times, without which the events are searched for in the pools.

        Returns
        -------
        int
            Number of pairs that are new.

        Raises
        ------
        InputError
            A column is missing or of a type that is not accepted, there is no event with an id, or the relation joins
            events by columns.
        StoreError
            The reservoir cannot be written.
        """
        return self.reservoir._append_pairs(self.name, pairs)


def _types_of(given: Mapping[str, Any] | None) -> dict[str, Any]:
    found = {}
    for name, kind in (given or {}).items():
        try:
            found[name] = kind if isinstance(kind, pa.DataType) else pa.type_for_alias(kind)
        except (ValueError, TypeError):
            raise InputError(f"types: {name} = {kind!r:.60}: expected an Arrow type or its name, as 'string'") from None
        if name in ("t", *ADDED):
            raise InputError(f"types: {name!r} cannot be converted")
    return found


def _kinds(view: View, pools: Sequence[str]) -> dict[str, set[str]]:
    """Return the types of the columns of pools."""
    found: dict[str, set[str]] = {}
    for text in {one.columns for pool in pools for one in view.buckets(pool)}:
        for name, kind in decoded(text).items():
            found.setdefault(name, set()).add(kind)
    return found


def _pool_of(contents: Contents, number: int) -> str:
    """Return the pool or relation of a folder."""
    names = {info.number: name for name, info in contents.pools.items()}
    for name, relation in contents.relations.items():
        names |= {relation.number: name, relation.number + 1: name}
    return names.get(number, f"p{number:05d}")


def _states(rows: Sequence[tuple[str, str, str, str]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * 4
    names = ["pool", "bucket", "location", "state"]
    return pa.table({name: pa.array(list(one), pa.string()) for name, one in zip(names, columns, strict=True)})


def _sizes(before: Index, after: Index) -> dict[str, int]:
    return {
        "buckets_before": len(before.buckets), "buckets": len(after.buckets),
        "bytes_before": sum(one.size for one in before.buckets), "bytes": sum(one.size for one in after.buckets),
    }  # fmt: skip


def _relations_of(view: View, given: str | Sequence[str]) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    known = view.contents.relations
    for name in names:
        if name not in known:
            raise InputError(f"no relation {name!r:.80}; choose from {', '.join(sorted(known)) or 'none'}")
    return names


def _frontier(found: Sequence[tuple[str, Bucket, pa.Table]]) -> dict[str, Frontier]:
    made = {}
    for name in dict.fromkeys(pool for pool, _, _ in found):
        some = [(bucket.part, table.select(list(KEY))) for pool, bucket, table in found if pool == name]
        made[name] = Frontier(pa.concat_tables([table for _, table in some]), {part for part, _ in some})
    return made


def _with_hops(table: pa.Table, hops: int) -> pa.Table:
    return table.append_column("hops", pa.array(np.full(len(table), hops)))

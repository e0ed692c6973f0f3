"""One version of a reservoir as its readers see it: only buckets that can hold what is asked for are opened."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from goffish.errors import InputError, StoreError
from goffish.gofs.reservoir.events import KEY, TIME, Where, among, can_hold, ends_of, in_order, matches, micros
from goffish.gofs.reservoir.index import Bucket, Index, decoded, in_range
from goffish.gofs.reservoir.model import Contents
from goffish.gofs.reservoir.places import Places

#: Bytes of buckets that a query keeps.
_KEPT = 1 << 28


class Selection(NamedTuple):
    """Which events are asked for.

    Attributes
    ----------
    pools : sequence of str
    first, last : int, optional
        Microseconds since 1970, both included.
    where : mapping
        Values by column.
    columns : sequence of str, optional
    """

    pools: Sequence[str]
    first: int | None
    last: int | None
    where: Where
    columns: Sequence[str] | None


class View:
    """A published version.

    Parameters
    ----------
    contents : Contents
    index : Index
    places : Places
    """

    def __init__(self, contents: Contents, index: Index, places: Places) -> None:
        self.contents, self.index, self._places = contents, index, places
        self._kept: dict[str, pa.Buffer] = {}
        self._size = 0

    def buckets(self, pool: str) -> list[Bucket]:
        """Return all buckets of a pool."""
        return self.index.of(self.contents.pools[pool].number)

    def read(self, bucket: Bucket, columns: Collection[str] | None = None) -> pa.Table:
        """Return the rows of a bucket, with those of the columns that it has."""
        present = decoded(bucket.columns)
        names = [*present] if columns is None else [name for name in dict.fromkeys(columns) if name in present]
        data = self._data(bucket)
        try:
            return pq.ParquetFile(pa.BufferReader(data)).read(columns=names).select(names)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise StoreError(f"{bucket.name}: damaged ({' '.join(str(error).split()):.200})") from None

    def _data(self, bucket: Bucket) -> pa.Buffer:
        """Return the bytes of a bucket, which are kept for the next hop of a query."""
        if bucket.name not in self._kept:
            data = self._places.get(bucket)
            if self._size + data.size > _KEPT:
                return data
            self._kept[bucket.name] = data
            self._size += data.size
        return self._kept[bucket.name]

    def select(self, chosen: Selection) -> Iterator[tuple[str, Bucket, pa.Table]]:
        """Iterate over pools, buckets and the rows in them that are asked for."""
        needed = None if chosen.columns is None else [*KEY, *chosen.columns, *chosen.where]
        for pool in chosen.pools:
            for bucket in self.index.of(self.contents.pools[pool].number, chosen.first, chosen.last):
                if not can_hold(bucket, chosen.where):
                    continue
                table = self.read(bucket, needed)
                found = matches(table, chosen.where)
                times = micros(table)
                if chosen.first is not None and bucket.first < chosen.first:
                    found &= times >= chosen.first
                if chosen.last is not None and bucket.last > chosen.last:
                    found &= times <= chosen.last
                if not found.all():
                    table = table.filter(pa.array(found))
                if len(table):
                    shown = [*KEY, *(decoded(bucket.columns) if chosen.columns is None else chosen.columns)]
                    yield pool, bucket, table.select([one for one in dict.fromkeys(shown) if one in table.column_names])

    def lookup(
        self, number: int, keys: pa.Table, columns: Collection[str] | None = None, near: Collection[int] = ()
    ) -> Iterator[tuple[Bucket, pa.Table]]:
        """Iterate over buckets of a folder and the rows in them with some keys.

        Parameters
        ----------
        number : int
            Of the folder.
        keys : Table
            Columns ``t`` and ``id``, without repetitions.
        columns : collection of str, optional
        near : collection of int
            Groups of related events that are looked through first.
        """
        if not len(keys):
            return
        times = np.sort(micros(keys))
        low, high = ends_of(keys.column("id"))
        buckets = [
            one
            for one in self.index.of(number, int(times[0]), int(times[-1]))
            if np.searchsorted(times, one.last, "right") > np.searchsorted(times, one.first)
            and in_range(one, "id", low, high)
        ]
        unique = number in {pool.number for pool in self.contents.pools.values()}
        missing = len(keys)
        for bucket in sorted(buckets, key=lambda one: one.part not in near):
            table = self.read(bucket, None if columns is None else [*KEY, *columns])
            found = among(keys, table)
            if found.any():
                yield bucket, table.filter(pa.array(found))
                missing -= int(found.sum())
                if unique and not missing:
                    return


def assembled(
    parts: Sequence[tuple[str, pa.Table]], columns: Sequence[str] | None, types: Mapping[str, Any], known: Kinds
) -> pa.Table:
    """Return the rows of pools as one table, by time, pool and id.

    Parameters
    ----------
    parts : sequence of (str, Table)
    columns : sequence of str, optional
        Those of the result; by default all that have a value, by name.
    types : mapping
        Types to which columns are converted.
    known : mapping
        Types of the columns of the pools, for columns without rows.

    Raises
    ------
    InputError
        A column has values of several types, or a value cannot be converted.
    """
    tables, found = [], dict[str, dict[Any, str]]()
    for pool, table in parts:
        data = {"pool": pa.array([pool] * len(table), pa.string()).dictionary_encode()}
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count < len(column):
                data[name] = _converted(column, name, types)
                found.setdefault(name, {}).setdefault(data[name].type, pool)
        tables.append(data)
    for name, kinds in found.items():
        if len(kinds) > 1:
            listed = ", ".join(f"{kind} (pool {pool})" for kind, pool in kinds.items())
            raise InputError(
                f"column {name!r:.80} has values of several types: {listed}; convert them with types, as in "
                f"types={{{name!r:.80}: 'string'}}, or leave the column out with columns"
            )
    shown = sorted({*found} - {"t", "id", "hops"}) if columns is None else [one for one in columns if one not in KEY]
    schema = [("pool", pa.string()), ("t", TIME), ("id", _only(found.get("id"), known.get("id", ()), types.get("id")))]
    schema += [(name, _only(found.get(name), known.get(name, ()), types.get(name))) for name in shown]
    if "hops" in found:
        schema.insert(1, ("hops", pa.int64()))
    made = []
    for data in tables:
        size = len(data["pool"])
        made.append(pa.table({
            name: data[name].cast(kind) if name in data else pa.nulls(size, kind) for name, kind in schema
        }))  # fmt: skip
    whole = pa.concat_tables(made) if made else pa.schema(schema).empty_table()
    return in_order(whole, KEY if len({pool for pool, _ in parts}) < 2 else ("t", "pool", "id"))


#: Types of the columns of pools, as texts.
Kinds = Mapping[str, Collection[str]]


def _converted(column: pa.ChunkedArray, name: str, types: Mapping[str, Any]) -> pa.ChunkedArray:
    if name not in types:
        return column
    try:
        return column.cast(types[name])
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise InputError(f"types: column {name!r:.80} cannot be converted to {types[name]} ({reason:.200})") from None


def _only(kinds: Collection[Any] | None, known: Collection[str], given: Any) -> Any:
    """Return the type of a column of a result: that of its values, or that of the pool if it is known."""
    if kinds:
        return next(iter(kinds))
    if given is not None:
        return given
    if len(known) == 1:
        try:
            return pa.type_for_alias(next(iter(known)))
        except ValueError:
            pass
    return pa.null()

"""The index of a reservoir: what each bucket holds, and where its copies are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goffish.errors import StoreError
from goffish.gofs.encoding import decode_parquet, encode_parquet
from goffish.gofs.reservoir.model import is_ours

_SCHEMA = pa.schema([
    ("pool", pa.int32()), ("name", pa.string()), ("span", pa.int64()), ("part", pa.int32()),
    ("first", pa.int64()), ("last", pa.int64()), ("rows", pa.int64()), ("size", pa.int64()), ("sha256", pa.string()),
    ("columns", pa.string()), ("ranges", pa.string()), ("settled", pa.bool_()), ("places", pa.list_(pa.int32())),
])  # fmt: skip
#: Characters of texts that are kept as the ends of ranges.
_LONGEST = 64


class Bucket(NamedTuple):
    """A file with rows of one pool.

    Attributes
    ----------
    pool : int
        Number of the folder of the pool.
    name : str
    span : int
        Which span of time, counted from 1970.
    part : int
        Which group of related events of the span; -1 if they are not grouped.
    first, last : int
        Times of the first and the last event.
    rows, size : int
        Events and bytes.
    sha256 : str
    columns : str
        Names and types of the columns, as JSON.
    ranges : str
        Least and greatest value of the id and of the columns that events are grouped by, as JSON.
    settled : bool
        Whether compaction wrote it.
    places : tuple of int
        Numbers of the locations that hold a copy.
    """

    pool: int
    name: str
    span: int
    part: int
    first: int
    last: int
    rows: int
    size: int
    sha256: str
    columns: str
    ranges: str
    settled: bool
    places: tuple[int, ...]


class Index:
    """The buckets of a reservoir.

    Parameters
    ----------
    buckets : iterable of Bucket

    Attributes
    ----------
    buckets : tuple of Bucket
        By pool, span, time and name.
    """

    def __init__(self, buckets: Iterable[Bucket] = ()) -> None:
        self.buckets = tuple(sorted(buckets, key=lambda one: (one.pool, one.span, one.first, one.name)))
        numbers = [(one.pool, one.first, one.last) for one in self.buckets]
        self._pools, self._firsts, self._lasts = np.array(numbers, np.int64).reshape(-1, 3).T.copy()

    def of(self, pool: int, first: int | None = None, last: int | None = None) -> list[Bucket]:
        """Return the buckets of a pool that can hold events from `first` to `last`, both included."""
        chosen = self._pools == pool
        if first is not None:
            chosen &= self._lasts >= first
        if last is not None:
            chosen &= self._firsts <= last
        return [self.buckets[at] for at in np.flatnonzero(chosen).tolist()]

    def encode(self) -> pa.Buffer:
        """Return the index as a file."""
        columns = zip(*self.buckets, strict=True) if self.buckets else [()] * len(_SCHEMA)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        return encode_parquet(pa.Table.from_arrays(arrays, schema=_SCHEMA))


def decode_index(data: pa.Buffer, where: str, locations: int) -> Index:
    """Return the index of a file.

    Raises
    ------
    StoreError
        It is damaged.
    """
    try:
        table = decode_parquet(data)
        if not table.schema.equals(_SCHEMA):
            raise ValueError("its columns are others")
        columns = [column.to_pylist() for column in table.columns]
        columns[-1] = [tuple(places) for places in columns[-1]]
        found = [Bucket(*row) for row in zip(*columns, strict=True)]
        for one in found:
            if not is_ours(one.name) or not set(one.places) <= set(range(locations)):
                raise ValueError(f"bucket {one.name!r:.80}")
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise StoreError(f"{where}: damaged ({' '.join(str(error).split())})") from None
    return Index(found)


@lru_cache(maxsize=4096)
def decoded(text: str) -> Mapping[str, Any]:
    """Return the columns or ranges of a bucket."""
    found: dict[str, Any] = json.loads(text)
    return found


def columns_text(table: pa.Table) -> str:
    """Return names and types of the columns of a table, as JSON."""
    return json.dumps({field.name: str(field.type) for field in sorted(table.schema, key=lambda one: one.name)})


def ranges_text(table: pa.Table, names: Iterable[str]) -> str:
    """Return the least and the greatest value of columns with texts and integers, as JSON; null if it is unknown."""
    found: dict[str, list[Any]] = {}
    for name in names:
        if name not in table.column_names:
            continue
        kind = table.schema.field(name).type
        if pa.types.is_string(kind) or pa.types.is_int64(kind):
            low, high = pc.min_max(table.column(name)).as_py().values()
            if isinstance(low, str):
                low, high = low[:_LONGEST], high if len(high) <= _LONGEST else None
            found[name] = [low, high]
    return json.dumps(found)


def in_range(bucket: Bucket, name: str, low: Any, high: Any) -> bool:
    """Return whether a bucket can hold values of a column from `low` to `high`, both included."""
    least, greatest = decoded(bucket.ranges).get(name, (None, None))
    if (least is not None and type(least) is not type(high)) or (
        greatest is not None and type(greatest) is not type(low)
    ):
        return True
    return (least is None or high >= least) and (greatest is None or low <= greatest)

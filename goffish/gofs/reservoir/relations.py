"""Relations between events: pairs that are stored, or columns with equal values; both are followed hop by hop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.reservoir.events import KEY, ends_of, groups_of, ids_of, micros, repeated, table_of, times_of
from goffish.gofs.reservoir.index import decoded, in_range
from goffish.gofs.reservoir.model import RelationInfo
from goffish.gofs.reservoir.reading import View

Direction = Literal["out", "in", "both"]
DIRECTIONS = ("out", "in", "both")
#: Columns of a pair, as it is stored for one of its ends.
PAIR = (*KEY, "other_t", "other")


class Frontier(NamedTuple):
    """Events that are followed.

    Attributes
    ----------
    keys : Table
        Columns ``t`` and ``id``.
    parts : set of int
        Groups of related events that they are in.
    """

    keys: pa.Table
    parts: set[int]


def on_of(given: str | Sequence[str] | Mapping[str, str] | None, name: str) -> tuple[tuple[str, str], ...]:
    """Return the columns of a source and of a target whose values are equal."""
    if given is None:
        return ()
    pairs = (
        dict(given)
        if isinstance(given, Mapping)
        else {one: one for one in ([given] if isinstance(given, str) else given)}
    )
    if not pairs or not all(isinstance(one, str) and one for pair in pairs.items() for one in pair):
        raise InputError(f"relation {name}: on = {given!r:.80}: expected names of columns, or a mapping of them")
    return tuple(pairs.items())


def pairs_of(view: View, info: RelationInfo, given: Any, where: str) -> pa.Table:
    """Return pairs with the times and ids of both ends, by source.

    Raises
    ------
    InputError
        A column is missing or of a type that is not accepted, or there is no event with an id.
    """
    table = table_of(given, where)
    if not len(table):
        return None
    columns = {}
    for end, pool in (("source", info.source), ("target", info.target)):
        if pool not in view.contents.pools:
            raise InputError(f"{where}: pool {pool} has no events yet; append them first")
        ids = ids_of(table, end, where)
        if str(ids.type) != view.contents.pools[pool].ids:
            raise InputError(
                f"{where}: {end} has the type {ids.type}; ids of {pool} are {view.contents.pools[pool].ids}"
            )
        columns[end] = ids
        if f"{end}_t" in table.column_names:
            columns[f"{end}_t"] = times_of(table, f"{end}_t", where)
    found = pa.table(columns)
    for end, pool in (("source", info.source), ("target", info.target)):
        if f"{end}_t" not in found.column_names:
            found = _with_times(view, found, end, pool, where)
    return found.select(["source_t", "source", "target_t", "target"]).rename_columns(list(PAIR))


def _with_times(view: View, pairs: pa.Table, end: str, pool: str, where: str) -> pa.Table:
    """Return pairs with the times of one end; an id that several events have makes several pairs."""
    ids = pairs.column(end)
    low, high = ends_of(ids)
    wanted = ids.combine_chunks().unique()
    tables = []
    for bucket in view.buckets(pool):
        if in_range(bucket, "id", low, high):
            keys = view.read(bucket, KEY)
            tables.append(keys.filter(pc.is_in(keys.column("id"), wanted)))
    found = pa.concat_tables(tables) if tables else None
    missing = (
        wanted if found is None else wanted.filter(pc.invert(pc.is_in(wanted, found.column("id").combine_chunks())))
    )
    if len(missing):
        raise InputError(f"{where}: {end}: pool {pool} has no event {missing[0].as_py()!r:.80}; append events first")
    assert found is not None
    return pairs.join(found.rename_columns([f"{end}_t", end]), keys=[end], join_type="inner")


def reversed_pairs(pairs: pa.Table) -> pa.Table:
    """Return pairs by target."""
    return pairs.select(["other_t", "other", "t", "id"]).rename_columns(list(PAIR))


def follow(
    view: View, start: Mapping[str, Frontier], relations: Iterable[str], hops: int, direction: Direction
) -> Iterable[tuple[str, Frontier, int]]:
    """Iterate over pools and the events in them that are reached, with the number of hops from the first ones.

    Parameters
    ----------
    view : View
    start : mapping
        The first events, by pool.
    relations : iterable of str
    hops : int
    direction : {"out", "in", "both"}
        Whether relations are followed from source to target, from target to source, or both ways.
    """
    infos = [view.contents.relations[name] for name in relations]
    steps = [(info, True) for info in infos if direction != "in"] + [
        (info, False) for info in infos if direction != "out"
    ]
    seen = {pool: one.keys for pool, one in start.items()}
    frontier = dict(start)
    for hop in range(1, hops + 1):
        reached: dict[str, list[Frontier]] = {}
        for info, forward in steps:
            source, target = (info.source, info.target) if forward else (info.target, info.source)
            if source in frontier and target in view.contents.pools:
                step = _by_values if info.on else _by_pairs
                reached.setdefault(target, []).extend(step(view, info, frontier[source], forward))
        frontier = {}
        for pool, found in reached.items():
            if not found:
                continue
            keys = pa.concat_tables([one.keys for one in found])
            before = seen.get(pool, keys.slice(0, 0))
            keys = keys.filter(pa.array(~repeated(before, keys)))
            if len(keys):
                seen[pool] = pa.concat_tables([before, keys])
                frontier[pool] = Frontier(keys, {part for one in found for part in one.parts})
                yield pool, frontier[pool], hop
        if not frontier:
            return


def _by_pairs(view: View, info: RelationInfo, start: Frontier, forward: bool) -> list[Frontier]:
    """Return the events at the other ends of stored pairs."""
    number, pool = info.number + (not forward), info.target if forward else info.source
    tables = [table for _, table in view.lookup(number, start.keys, PAIR[2:], start.parts)]
    if not tables:
        return []
    others = pa.concat_tables(tables).select(list(PAIR[2:])).rename_columns(list(KEY))
    others = others.filter(pa.array(~repeated(others.slice(0, 0), others)))
    found = view.lookup(view.contents.pools[pool].number, others, (), start.parts)
    return [Frontier(table.select(list(KEY)), {bucket.part}) for bucket, table in found]


def _by_values(view: View, info: RelationInfo, start: Frontier, forward: bool) -> list[Frontier]:
    """Return the events whose columns have the values of the first ones, in time."""
    here, there = (info.source, info.target) if forward else (info.target, info.source)
    near, far = ([pair[forward ^ side] for pair in info.on] for side in (True, False))
    known: dict[Any, list[pa.Table]] = {}
    for _, table in view.lookup(view.contents.pools[here].number, start.keys, near, start.parts):
        if set(near) <= {*table.column_names}:
            whole = table.select(["t", *near]).drop_null().rename_columns(["t", *far])
            known.setdefault(tuple(whole.schema.types), []).append(whole)
    found = []
    for tables in known.values():
        events = pa.concat_tables(tables)
        if not len(events):
            continue
        kinds = {name: str(events.schema.field(name).type) for name in far}
        first, last = int(micros(events).min()), int(micros(events).max())
        if info.within_us is None:
            buckets = view.buckets(there)
        elif forward:
            buckets = view.index.of(view.contents.pools[there].number, first, last + info.within_us)
        else:
            buckets = view.index.of(view.contents.pools[there].number, first - info.within_us, last)
        ends = {name: ends_of(events.column(name)) for name in far if kinds[name] in ("string", "int64")}
        for bucket in buckets:
            columns = decoded(bucket.columns)
            if all(columns.get(name) == kind for name, kind in kinds.items()) and all(
                in_range(bucket, name, *range_) for name, range_ in ends.items()
            ):
                table = view.read(bucket, [*KEY, *far]).drop_null()
                met = _met(events, table, far, info.within_us, forward)
                if met.any():
                    found.append(Frontier(table.select(list(KEY)).filter(pa.array(met)), {bucket.part}))
    return found


def _met(
    events: pa.Table, others: pa.Table, names: Sequence[str], within: int | None, forward: bool
) -> NDArray[np.bool_]:
    """Return which rows of `others` have the values of an event that is at most `within` before them, or after them."""
    groups = groups_of(events.select(names), others.select(names))
    size = len(events)
    if within is None:
        return np.isin(groups[size:], groups[:size])
    times = np.concatenate([micros(events), micros(others)])
    if not forward:
        times = -times
    is_other = np.arange(len(groups)) >= size
    order = np.lexsort((is_other, times, groups))
    at = np.where(is_other[order], -1, np.arange(len(order)))
    last = np.maximum.accumulate(at)  # the event before, of the same values or of others
    before = order[np.maximum(last, 0)]
    met = (last >= 0) & (groups[before] == groups[order]) & (times[order] - times[before] <= within)
    found = np.zeros(len(groups), np.bool_)
    found[order] = met
    return found[size:]

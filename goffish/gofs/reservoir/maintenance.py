"""Upkeep of a reservoir: compaction, retention, and repair of copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import StoreError
from goffish.gofs.reservoir.events import KEY, groups_of, in_order, micros
from goffish.gofs.reservoir.index import Bucket, decoded
from goffish.gofs.reservoir.model import NAME, Contents
from goffish.gofs.reservoir.places import Places
from goffish.gofs.reservoir.reading import View
from goffish.gofs.reservoir.relations import PAIR
from goffish.gofs.reservoir.writing import Draft, mirror
from goffish.kernels.subgraphs import local_components


def compact(draft: Draft, view: View) -> None:
    """Merge the buckets of each span that have the same columns, in the order of what events are grouped by."""
    contents = view.contents
    groups = {info.number: info.group for info in contents.pools.values()}
    if contents.group_related:
        _compact_related(draft, view, groups)
    for (number, span, _), found in groupby(sorted(view.index.buckets, key=_alike), key=_alike):
        buckets = [*found]
        if all(one.settled for one in buckets) or (contents.group_related and number in groups):
            continue
        if number in groups:
            _merge(draft, view, buckets, groups[number])
        elif len(buckets) > 1:
            table = in_order(pa.concat_tables([view.read(one, PAIR).select(list(PAIR)) for one in buckets]), PAIR)
            draft.drop(buckets)
            draft.add(number, span, table, settled=True)


def _alike(bucket: Bucket) -> tuple[int, int, str]:
    return bucket.pool, bucket.span, bucket.columns


def _merge(draft: Draft, view: View, buckets: Sequence[Bucket], group: Sequence[str]) -> None:
    present = [name for name in group if name in decoded(buckets[0].columns)]
    if len(buckets) == 1 and not present:
        draft.update(buckets[0]._replace(settled=True))
        return
    table = pa.concat_tables([_whole(view, one) for one in buckets])
    present = [name for name in present if not pa.types.is_nested(table.schema.field(name).type)]
    table = in_order(table, [*present, *KEY])
    draft.drop(buckets)
    for at in range(0, len(table), view.contents.rows):
        rows = table.slice(at, view.contents.rows)
        draft.add(buckets[0].pool, buckets[0].span, rows, group=group, settled=True)


def _whole(view: View, bucket: Bucket) -> pa.Table:
    table = view.read(bucket)
    return table.select([*KEY, *sorted(name for name in table.column_names if name not in KEY)])


def _compact_related(draft: Draft, view: View, groups: Mapping[int, Sequence[str]]) -> None:
    """Divide the events of each span into groups of related ones, and write a bucket for each group and pool."""
    pairs = {info.number for info in view.contents.relations.values() if not info.on}
    by_span = sorted(view.index.buckets, key=lambda one: one.span)
    for span, found in groupby(by_span, key=lambda one: one.span):
        every = [*found]
        buckets = [one for one in every if one.pool in groups]
        if not buckets or all(one.settled for one in every if one.pool in groups or one.pool in pairs):
            continue
        parts = _parts(view, span, buckets)
        draft.drop(buckets)
        for _, alike in groupby(sorted(buckets, key=_alike), key=_alike):
            same = [*alike]
            table = pa.concat_tables([_whole(view, one) for one in same])
            part = np.concatenate([parts[one.name] for one in same])
            for number in np.unique(part).tolist():
                rows = in_order(table.filter(pa.array(part == number)), KEY)
                draft.add(same[0].pool, span, rows, group=groups[same[0].pool], part=number, settled=True)


def _parts(view: View, span: int, buckets: Sequence[Bucket]) -> dict[str, NDArray[np.int64]]:
    """Return the group of each row of some buckets: connected by pairs, and filled up to the rows of a bucket."""
    contents = view.contents
    keys: dict[int, list[pa.Table]] = {}
    starts, size = {}, 0
    for number, some in groupby(sorted(buckets), key=lambda one: one.pool):
        starts[number] = size
        keys[number] = [view.read(one, KEY).select(list(KEY)) for one in some]
        size += sum(map(len, keys[number]))
    numbers = {name: info.number for name, info in contents.pools.items()}
    first, second = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    begin = span * contents.span_us
    for info in contents.relations.values():
        ends = numbers.get(info.source, -1), numbers.get(info.target, -1)
        if info.on or not all(end in keys for end in ends):
            continue
        for bucket in view.index.of(info.number, begin, begin + contents.span_us - 1):
            pairs = view.read(bucket, PAIR)
            rows = [
                _rows_of(pa.concat_tables(keys[end]), pairs.select(list(names)).rename_columns(list(KEY)))
                for end, names in zip(ends, (PAIR[:2], PAIR[2:]), strict=True)
            ]
            inside = (rows[0] >= 0) & (rows[1] >= 0)
            first.append(rows[0][inside] + starts[ends[0]])
            second.append(rows[1][inside] + starts[ends[1]])
    ends_ = np.concatenate([*first, *second]), np.concatenate([*second, *first])
    offsets = np.concatenate(([0], np.cumsum(np.bincount(ends_[0], minlength=size)))).astype(np.int64)
    targets = ends_[1][np.argsort(ends_[0], kind="stable")]
    component, count = local_components(offsets, targets, np.zeros(size, np.int32))
    sizes = np.bincount(component, minlength=count)
    times = np.concatenate([micros(table) for tables in keys.values() for table in tables])
    begins = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(begins, component, times)
    order = np.lexsort((np.arange(count), begins))  # groups that begin at about the same time are put together
    part = np.empty(count, np.int64)
    part[order] = (np.cumsum(sizes[order]) - sizes[order]) // contents.rows
    part = part[component]
    found, at = {}, 0
    for bucket in sorted(buckets):
        found[bucket.name] = part[at : at + bucket.rows]
        at += bucket.rows
    return found


def _rows_of(known: pa.Table, keys: pa.Table) -> NDArray[np.int64]:
    """Return the row of each key in a table; -1 if it is not there."""
    groups = groups_of(known, keys)
    rows = np.full(len(groups), -1, np.int64)
    rows[groups[: len(known)]] = np.arange(len(known))
    found: NDArray[np.int64] = rows[groups[len(known) :]]
    return found


def drop(draft: Draft, view: View, numbers: Iterable[int], before: int) -> None:
    """Remove the rows of some folders that are before a time."""
    groups = {info.number: info.group for info in view.contents.pools.values()}
    for number in numbers:
        for bucket in view.index.of(number, None, before - 1):
            draft.drop([bucket])
            if bucket.last >= before:
                table = view.read(bucket)
                rows = table.filter(pa.array(micros(table) >= before))
                draft.add(
                    number, bucket.span, rows, group=groups.get(number, ()), part=bucket.part, settled=bucket.settled
                )


def index_states(contents: Contents, places: Places) -> list[tuple[str, int, str]]:
    """Return the file, the location and the state of each copy of the index."""
    entry = contents.index
    return [] if entry is None else [(entry.name, place, places.state(entry, place)) for place in range(len(places))]


def repair_index(contents: Contents, places: Places) -> list[tuple[str, str, str]]:
    """Write copies of the index again that are missing or damaged; return files, locations and what was done."""
    states = index_states(contents, places)
    good = [place for _, place, state in states if state == "ok"]
    done = []
    for name, place, state in states:
        if state == "ok":
            continue
        found = "restored" if good else "lost"
        try:
            if good:
                places.folder(place).write(name, places.folder(good[0]).read(name))
        except StoreError:
            found = "unreachable"
        done.append((name, places.names[place], found))
    return done


def repair(draft: Draft, view: View, places: Places, *, forget: bool) -> list[tuple[Bucket, str, str]]:
    """Write copies again that are missing or damaged; return buckets, locations and what was done."""
    for place in range(1, len(places)):
        with suppress(StoreError):
            if places.folder(place).size(NAME) is None:
                mirror(view.contents, places, place)
    done = []
    for bucket in view.index.buckets:
        expected = sorted({*bucket.places, *places.chosen(bucket.name, view.contents.copies)})
        states = {place: places.state(bucket, place) for place in expected}
        good = tuple(place for place in expected if states[place] == "ok")
        bad = [place for place in expected if states[place] != "ok"]
        if bad and not good:
            done += [
                (bucket, places.names[place], "lost" if states[place] != "unreachable" else "unreachable")
                for place in bad
            ]
            if forget and "unreachable" not in states.values():
                draft.drop([bucket])
            continue
        whole = bucket._replace(places=good)
        for place in bad:
            try:
                places.folder(place).write(bucket.name, places.get(whole))
                good, state = (*good, place), "restored"
            except StoreError:
                state = "unreachable"
                if place in bucket.places:
                    good = (*good, place)
            done.append((bucket, places.names[place], state))
        draft.update(bucket._replace(places=tuple(sorted(good))))
    return done

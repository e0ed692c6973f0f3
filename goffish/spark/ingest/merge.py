"""What a task does with the rows of one range of edges: sort them, merge duplicates, give every edge its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.spark.ingest.blocks import Sent
from goffish.spark.ingest.labels import Ends


@dataclass(frozen=True)
class ToRanges:
    """Sends links to ranges of ``u``: those before the first of `bounds`, those from there on before the second, …

    `ends` numbers their ends first. `spans` are the start and the period of instances, which say for the ``time`` of
    links to which ``instance`` they belong.
    """

    bounds: NDArray[np.int64]
    ends: Ends
    spans: tuple[int, int] | None = None

    def __call__(self, links: pa.Table) -> Sent:
        links = self.ends(links)
        if self.spans is not None:
            start, period = self.spans
            instance = pc.divide(pc.subtract(links.column("time"), start), period)
            links = links.drop_columns("time").append_column("instance", instance)
        target = np.searchsorted(self.bounds, links.column("u").to_numpy(), side="right")
        return Sent(links, np.arange(links.num_rows), target)


@dataclass(frozen=True)
class Merge:
    """Rows of links → edges of the template and, with instances, the edges of every instance.

    All links between the same two vertices come together. Their columns: ``u``, ``v``, ``instance`` where there are
    any, ``order`` and the values. With instances, a row without one says what the edge of the template is without
    being in an instance, and a row with a negative order is in its instance without changing the template: an edge of
    a store that rows are added to is one of the former and several of the latter. What comes out: ``u``, ``v``,
    ``instance`` (null: an edge of the template), ``place`` (of the edge among those of the range, ordered by u and
    v) and the values.

    Attributes
    ----------
    rule : str
        ``first`` in `order`; ``min``: the row of the smallest weight, the first one on ties; ``sum``: the weights are
        added up in `order`, the other values are those of the first; ``keep`` all; ``drop`` is ``first``, as there is
        only one. That is what `goffish.graph.from_edges` does.
    values : sequence of str
        Names of the value columns.
    """

    rule: str
    values: Sequence[str]
    instances: bool

    def __call__(self, tables: Sequence[pa.Table | None]) -> pa.Table:
        """Edges of the template, then those of the instances."""
        (links,) = tables
        assert links is not None
        u, v, order = (links.column(name).to_numpy() for name in ("u", "v", "order"))
        if self.rule == "keep":
            at = _sort([u, v], [order])
            return self._table(links, at, np.arange(at.size), None, None)
        keys = [u, v]
        at, first = self._sorted(links, keys, order, order < 0)
        place = np.cumsum(first) - 1
        sums = self._sums(links, at, place, order >= 0)
        edges = self._table(links, at[first], np.arange(int(first.sum())), None, sums)
        if not self.instances:
            return edges
        row_place = np.empty(at.size, np.int64)
        row_place[at] = place
        if links.column("instance").null_count:
            rows = np.flatnonzero(links.column("instance").is_valid().to_numpy())
            links, order, row_place = links.take(pa.array(rows)), order[rows], row_place[rows]
            keys = [key[rows] for key in keys]
        instance = links.column("instance").to_numpy()
        at, first = self._sorted(links, [*keys, instance], order)
        sums = self._sums(links, at, np.cumsum(first) - 1)
        chosen = at[first]
        return pa.concat_tables([edges, self._table(links, chosen, row_place[chosen], instance[chosen], sums)])

    def _sorted(
        self, links: pa.Table, keys: Sequence[NDArray[np.int64]], order: NDArray[np.int64],
        last: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:  # fmt: skip
        """Rows by key, in each key the chosen one first, `last` ones last; and which are the first of their key."""
        ranks = [order, links.column("weight").to_numpy()] if self._least else [order]
        ranks += [] if last is None or not last.any() else [last]
        at = _sort(keys, ranks)
        first = np.zeros(at.size, bool)
        first[:1] = True
        for key in keys:
            sorted_key = key[at]
            first[1:] |= sorted_key[1:] != sorted_key[:-1]
        return at, first

    @property
    def _least(self) -> bool:
        return self.rule == "min" and "weight" in self.values

    def _sums(
        self, links: pa.Table, at: NDArray[np.int64], group: NDArray[np.int64], counts: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64] | None:
        if self.rule != "sum" or "weight" not in self.values:
            return None
        # One after the other, unlike `np.add.reduceat`, which adds up in pairs.
        weights = links.column("weight").to_numpy()
        weights = weights if counts is None or counts.all() else np.where(counts, weights, 0.0)
        sums: NDArray[np.float64] = np.bincount(group, weights[at]).astype(np.float64)
        return sums

    def _table(
        self,
        links: pa.Table,
        rows: NDArray[np.int64],
        place: NDArray[np.int64],
        instance: NDArray[np.int64] | None,
        sums: NDArray[np.float64] | None,
    ) -> pa.Table:
        table = links.select(["u", "v", *self.values]).take(pa.array(rows))
        if sums is not None:
            table = table.set_column(table.column_names.index("weight"), "weight", pa.array(sums))
        moment = pa.nulls(rows.size, pa.int64()) if instance is None else pa.array(instance)
        columns = {name: table.column(name) for name in self.values}
        return pa.table({
            "u": table.column("u"), "v": table.column("v"), "instance": moment, "place": pa.array(place), **columns
        })  # fmt: skip


def _sort(keys: Sequence[NDArray[np.int64]], ranks: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Rows by some keys, the first of which counts most, then by `ranks`, the last of which counts most."""
    size = keys[0].size
    if size < 2:
        return np.arange(size)
    # Blocks arrive in the order of the rows, unless they come from several machines.
    (rank, *more) = ranks
    ranked = None if not more and bool((rank[1:] >= rank[:-1]).all()) else np.lexsort(tuple(ranks))
    lows = [int(key.min()) for key in keys]
    widths = [(int(key.max()) - low).bit_length() for key, low in zip(keys, lows, strict=True)]
    bits = (size - 1).bit_length()
    if sum(widths) + bits > 63:
        return np.lexsort((*ranks, *reversed(keys)))
    # Numbers are sorted several times as fast as the rows that they stand for: here each says which row it is.
    packed = np.zeros(size, np.int64)
    for key, low, width in zip(keys, lows, widths, strict=True):
        packed <<= np.int64(width)
        packed |= (key if ranked is None else key[ranked]) - low
    packed <<= np.int64(bits)
    packed |= np.arange(size)
    packed.sort()
    packed &= np.int64((1 << bits) - 1)
    return packed if ranked is None else ranked[packed]

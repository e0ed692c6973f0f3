"""Paths and triangles of time-stamped edges on the engines, instance by instance.

Events must ascend with the instances. Then nothing that an instance adds depends on later ones: paths carry over what
has arrived at each vertex and what is still on its way, triangles the events of the last `within`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from goffish.gopher import SubgraphBatch, per_partition
from goffish.temporal import journey_kernels as kernels
from goffish.temporal.event_paths import CODES, COLUMNS, FAR, as_values
from goffish.temporal.event_series import (
    EventNames,
    PathQuery,
    StoredEvents,
    arc_ends,
    arc_events,
    next_bound,
    start_value,
)
from goffish.temporal.motifs import KINDS, count_events, counts_table
from goffish.temporal.program import TimeSeriesProgram
from goffish.temporal.step import BatchTimeStep
from goffish.temporal.sweep_kernels import EARLIEST

_NUMBERS = np.dtype(np.int64)


class EventProgram(TimeSeriesProgram):
    """Base of programs over the events of a series, which must ascend with its instances.

    Parameters
    ----------
    names : EventNames
        Attributes of the series.
    """

    pattern = "sequential"
    state = {"bound": per_partition(_NUMBERS)}
    aggregators: ClassVar[Mapping[str, Any]] = {"soonest": "min", "latest": "max", "arrival": "max"}

    def __init__(self, names: EventNames) -> None:
        self.names, self.values = names, names.attributes()

    def _span(self, step: BatchTimeStep, times: NDArray[np.int64]) -> None:
        """Contribute the times of events, in superstep 1."""
        step.aggregate("soonest", times)
        step.aggregate("latest", times)

    def _check_span(self, batch: SubgraphBatch, step: BatchTimeStep) -> tuple[int, int] | None:
        """First and last time of an event of the instance in all partitions, in superstep 2."""
        soonest, latest = step.aggregated("soonest"), step.aggregated("latest")
        if soonest is None:
            return None
        span = int(soonest), int(latest)
        before = int(batch["bound"][0]) if batch["bound"].size else None
        batch["bound"] = [next_bound(self.names.times, step.timestep, span, before, descending=self.descending)]
        return span


class EventPaths(EventProgram):
    """Best time-respecting paths from or to one vertex; see `goffish.temporal_paths`.

    One pass over the events of each instance and partition. Paths that arrive at vertices of other partitions are sent
    to their owners: for each vertex only those that no other path beats in both time and state (Pareto front).
    "latest-departure" is "earliest-arrival" in reversed time; instances are run from the last to the first.

    Supersteps of an instance: at most two more than the remote edges on a best path inside it.

    Parameters
    ----------
    query : PathQuery
    names : EventNames
    """

    message = {"time": np.int64, "state": np.int64}
    state = {
        **EventProgram.state,
        **{name: per_partition(_NUMBERS) for name in (
            "vertex", *kernels.Marks._fields, *kernels.Departures._fields,
            "waiting.place", "waiting.time", "waiting.state",
        )},
    }  # fmt: skip

    def __init__(self, query: PathQuery, names: EventNames) -> None:
        super().__init__(names)
        self.query = query
        self.descending = query.kind == "latest-departure"

    @property
    def _earliest(self) -> bool:
        return CODES[self.query.kind] == EARLIEST

    def init(self, sg: SubgraphBatch) -> None:
        places = sg.num_vertices + self._remotes(sg)[0].size
        for name in kernels.Marks._fields:
            sg[name] = np.full(places, FAR)
        at = sg.find(self.query.vertex)
        sg["vertex"] = [at]
        if at >= 0:
            sg["settled"][at] = sg["after"][at] = 0
            sg["value"][at] = start_value(self.query)

    def compute_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        if step.number == 1:
            self._read(batch, step)
            leave = batch["settled"][: batch.num_vertices] < FAR
            roots = np.flatnonzero(leave & (np.diff(batch["starts"]) > 0))
            arrivals = self._waiting(batch)
            self._wait(batch, kernels.Arrivals(*np.empty((3, 0), np.int64)))
        else:
            step.vote_to_halt()
            if step.number == 2:
                self._learn(batch, step)
            roots = np.empty(0, np.int64)
            arrivals = kernels.Arrivals(
                *(np.ascontiguousarray(step.messages[name]) for name in ("vertex", "time", "state"))
            )
        if roots.size or arrivals.place.size:
            self._follow(batch, step, roots, arrivals)

    def _ways(self, batch: SubgraphBatch) -> tuple[bool, ...]:
        """Directions in which arcs are read: those that start here, or (True) those that end here."""
        if not batch.directed:
            return (False,)
        return (False, True) if self.query.undirected else (self.descending,)

    def _remotes(self, batch: SubgraphBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Vertices of other partitions and their subgraphs, of all directions that are read."""
        tables = [batch.remotes(incoming=incoming) for incoming in self._ways(batch)]
        return np.concatenate([table[0] for table in tables]), np.concatenate([table[1] for table in tables])

    def _read(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        """Events of the instance by the vertex that they are taken at, in reversed time if paths are searched so."""
        pieces, beyond = [], batch.num_vertices
        for incoming in self._ways(batch):
            events = arc_events(self.names, batch, incoming=incoming)
            near, far = arc_ends(batch, events.row, incoming=incoming)
            far = np.where(far < 0, beyond + ~far, far)
            beyond += batch.remotes(incoming=incoming)[0].size
            pieces.append((near, far, events.time, events.time + events.duration))
        near, far, begin, finish = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        self._span(step, begin)
        step.aggregate("arrival", finish)
        fits = np.ones(begin.size, np.bool_)
        if self.query.start is not None:
            fits &= begin >= self.query.start
        if self.query.end is not None:
            fits &= finish <= self.query.end
        if self.descending:
            begin, finish = -finish, -begin
        rows = np.flatnonzero(fits)
        rows = rows[np.lexsort((begin[rows], near[rows]))]
        batch["begin"], batch["finish"], batch["place"] = begin[rows], finish[rows], far[rows]
        batch["starts"] = np.searchsorted(near[rows], np.arange(batch.num_vertices + 1))
        batch["carried"] = np.full(rows.size, FAR)

    def _learn(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        """From the times of all events: when paths can begin, and whether further instances matter."""
        span = self._check_span(batch, step)
        if span is None:
            return
        at = int(batch["vertex"][0])
        if at >= 0 and self._earliest and start_value(self.query) == FAR:
            first = -int(step.aggregated("arrival")) if self.descending else span[0]
            batch["value"][at] = min(int(batch["value"][at]), first)
        if self.descending:
            over = self.query.start is not None and self.query.end is not None and span[1] < self.query.start
        else:
            over = self.query.end is not None and span[0] > self.query.end
        if over:
            step.halt_application()

    def _follow(
        self, batch: SubgraphBatch, step: BatchTimeStep, roots: NDArray[np.int64], arrivals: kernels.Arrivals
    ) -> None:  # fmt: skip
        """Take paths up, send those that leave the partition, and keep those that arrive after all events."""
        horizon = int(batch["begin"].max(initial=-FAR))
        departures = kernels.Departures(*(batch[name] for name in kernels.Departures._fields))
        marks = kernels.Marks(*(batch[name] for name in kernels.Marks._fields))
        found = kernels.Arrivals(
            *kernels.follow(
                CODES[self.query.kind], int(batch["vertex"][0]), horizon, departures, roots, arrivals, marks
            )
        )
        near = found.place < batch.num_vertices
        vertex, subgraph = self._remotes(batch)
        row = found.place[~near] - batch.num_vertices
        best = _front(vertex[row].astype(np.int64), found.time[~near], found.state[~near])
        step.send_to_vertex(
            subgraph[row[best]], vertex[row[best]], time=found.time[~near][best], state=found.state[~near][best]
        )
        if not self._earliest:  # of those, the first arrival is all that counts
            late = near & (found.time > horizon)
            more = zip(self._waiting(batch), found, strict=True)
            self._wait(batch, kernels.Arrivals(*(np.concatenate((old, new[late])) for old, new in more)))

    def _waiting(self, batch: SubgraphBatch) -> kernels.Arrivals:
        return kernels.Arrivals(*(batch[f"waiting.{name}"] for name in kernels.Arrivals._fields))

    def _wait(self, batch: SubgraphBatch, arrivals: kernels.Arrivals) -> None:
        for name, values in zip(kernels.Arrivals._fields, arrivals, strict=True):
            batch[f"waiting.{name}"] = values

    def end_of_timestep_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        for name in kernels.Departures._fields:
            batch[name] = np.empty(0, np.int64)
        if self._earliest:
            return
        batch["settled"][:] = batch["after"]
        waiting = self._waiting(batch)
        better = np.flatnonzero(waiting.state < batch["settled"][waiting.place])
        better = better[_front(*(column[better] for column in waiting))]
        self._wait(batch, kernels.Arrivals(*(column[better] for column in waiting)))

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {COLUMNS[self.query.kind]: sg["value"][: sg.num_vertices]}

    def finish(self, table: pa.Table) -> pa.Table:
        name = COLUMNS[self.query.kind]
        return table.set_column(1, name, as_values(table[name].to_numpy(), self.query.kind))


def _front(group: NDArray[np.int64], time: NDArray[np.int64], state: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows that no other row of their group beats in both time and state."""
    rows = np.lexsort((state, time, group))
    keep = np.empty(rows.size, np.bool_)
    kernels.on_front(group[rows], state[rows], keep)
    return rows[keep]


class EventTriangles(EventProgram):
    """Triangles of time-stamped edges within a time window; see `goffish.temporal_triangles`.

    Vertices are ranked by their degree in the template. The partition that owns the vertex of middle rank counts a
    triangle: the owner of the lowest one sends its events with higher vertices to all partitions that own one of those.
    Events are kept until no later triangle can contain them, and are counted when those that are new span the window:
    so short instances cost no more than long ones.

    Supersteps of an instance: two, and one more in the first.

    Parameters
    ----------
    within : int
        Maximum time between the first and the last edge.
    names : EventNames
    """

    message = {"source": np.int64, "target": np.int64, "time": np.int64, "order": np.int64}
    state = {
        **EventProgram.state,
        **{name: per_partition(_NUMBERS) for name in (
            # Vertices of the partition and their neighbors, in the order of numbers; where vertices and remotes are.
            "known.id", "known.rank", "known.partition", "place",
            "reach.place", "reach.partition",  # where events of own vertices are sent to
            "events.source", "events.target", "events.time", "events.order", "since", "found",
        )},
    }  # fmt: skip
    rows = "free"

    def __init__(self, within: int, names: EventNames) -> None:
        super().__init__(names)
        self.within = within

    def init(self, sg: SubgraphBatch) -> None:
        sg["found"] = np.zeros(len(KINDS), np.int64)

    def compute_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        begins = step.timestep == step.moment.first
        if step.number == 1 + begins:
            if begins:
                self._learn_degrees(batch, step)
            self._send_events(batch, step)
        elif step.number == 2 + begins:
            step.vote_to_halt()
            self._receive(batch, step)
            self._count(batch, step)
        else:
            self._send_degrees(batch, step)
        if step.number == 1:
            self._span(
                step, np.concatenate([arc_events(self.names, batch, incoming=way).time for way in (False, True)])
            )
        elif step.number == 2:
            self._check_span(batch, step)

    def _send_degrees(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        """Send number and degree of each border vertex to the partitions of its neighbors."""
        vertex, _, partition = _border(batch)
        pairs = np.unique(np.stack((partition, vertex)), axis=1)
        step.send_to_subgraph(
            batch.subgraph_starts[pairs[0]], source=batch.start + pairs[1], target=batch.vertex_ids[pairs[1]],
            time=_degrees(batch)[pairs[1]], order=-1,
        )  # fmt: skip

    def _learn_degrees(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        far = step.messages
        vertex = np.concatenate((batch.start + np.arange(batch.num_vertices), far["source"]))
        number = np.concatenate((batch.vertex_ids.astype(np.int64), far["target"]))
        degree = np.concatenate((_degrees(batch), far["time"]))
        order = np.argsort(number)
        vertex = vertex[order]
        rank = np.empty(order.size, np.int64)
        rank[np.argsort(degree[order], kind="stable")] = np.arange(order.size)
        by_vertex = np.argsort(vertex)
        remote = np.concatenate([batch.remotes(incoming=way)[0] for way in (False, True)])
        asked = np.concatenate((batch.start + np.arange(batch.num_vertices), remote))
        place = by_vertex[np.searchsorted(vertex, asked, sorter=by_vertex)]
        near, row, partition = _border(batch)
        owner = np.full(order.size, batch.partition)
        owner[place[batch.num_vertices + row]] = partition
        higher = rank[place[near]] < rank[place[batch.num_vertices + row]]
        pairs = np.unique(np.stack((place[near[higher]], partition[higher])), axis=1)
        batch["known.id"], batch["known.rank"], batch["known.partition"] = number[order], rank, owner
        batch["place"], batch["reach.place"], batch["reach.partition"] = place, pairs[0], pairs[1]

    def _send_events(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        """Keep the events of the instance, and send those of own vertices with higher ones."""
        events = self._read(batch)
        self._keep(batch, events)
        rank, owner = batch["known.rank"], batch["known.partition"]
        turned = rank[events.source] > rank[events.target]
        low, high = np.where(turned, (events.target, events.source), (events.source, events.target))
        first, last = (np.searchsorted(batch["reach.place"], low, side) for side in ("left", "right"))
        counts = np.where(owner[low] == batch.partition, last - first, 0)
        row = np.repeat(np.arange(low.size), counts)
        to = batch["reach.partition"][np.arange(row.size) + np.repeat(first - (np.cumsum(counts) - counts), counts)]
        row, to = (values[to != owner[high[row]]] for values in (row, to))
        number = batch["known.id"]
        step.send_to_subgraph(
            batch.subgraph_starts[to], source=number[events.source[row]], target=number[events.target[row]],
            time=events.time[row], order=events.order[row],
        )  # fmt: skip

    def _read(self, batch: SubgraphBatch) -> StoredEvents:
        """Events of the instance, each once; their ends as places."""
        pieces, beyond = [], batch.num_vertices
        for incoming in (False, True):
            row, *columns = arc_events(self.names, batch, incoming=incoming)
            near, far = arc_ends(batch, row, incoming=incoming)
            place = batch["place"]
            ends = place[near], place[np.where(far < 0, beyond + ~far, far)]
            beyond += batch.remotes(incoming=incoming)[0].size
            chosen = (ends[0] != ends[1]) & ((far < 0) | (not incoming))  # arcs inside the partition start here, too
            pieces.append([column[chosen] for column in (*(ends[::-1] if incoming else ends), *columns)])
        return StoredEvents(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))

    def _receive(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        """Keep events from other partitions that can close a triangle here: both ends are neighbors of own vertices."""
        known, events = batch["known.id"], step.messages
        at = [np.searchsorted(known, events[name]) for name in ("source", "target")]
        there = np.ones(events.size, np.bool_)
        for place, name in zip(at, ("source", "target"), strict=True):
            there &= known[np.minimum(place, known.size - 1)] == events[name]
        columns = at[0], at[1], events["time"], np.zeros(events.size, np.int64), events["order"]
        self._keep(batch, StoredEvents(*(column[there] for column in columns)))

    def _keep(self, batch: SubgraphBatch, events: StoredEvents) -> None:
        for name in ("source", "target", "time", "order"):
            batch[f"events.{name}"] = np.concatenate((batch[f"events.{name}"], getattr(events, name)))
        if events.time.size:
            batch["since"] = [min([int(events.time.min()), *batch["since"].tolist()])]

    def _count(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        """Count the triangles whose last event is new, unless more events can be awaited."""
        time = batch["events.time"]
        if not batch["since"].size:
            return
        since, latest = int(batch["since"][0]), int(time.max())
        if latest - since < self.within and step.timestep != step.moment.last:
            return
        ends = batch["events.source"], batch["events.target"]
        events = StoredEvents(*ends, time, np.zeros(time.size, np.int64), batch["events.order"]).sorted()
        place, (source, target) = np.unique(np.stack((events.source, events.target)), return_inverse=True)
        batch["found"][:] += count_events(
            place.size, source, target, events.time, self.within, since=since, degree=batch["known.rank"][place],
            middles=batch["known.partition"][place] == batch.partition,
            threads=step.threads if step.graph.num_partitions == 1 else 1,
        )  # fmt: skip
        batch["since"], kept = [], time > latest - self.within
        for name in ("source", "target", "time", "order"):
            batch[f"events.{name}"] = batch[f"events.{name}"][kept]

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"motif": np.arange(len(KINDS)), "count": sg["found"]}

    def finish(self, table: pa.Table) -> pa.Table:
        total = np.zeros(len(KINDS), np.int64)
        if table.num_rows:
            np.add.at(total, table["motif"].to_numpy(), table["count"].to_numpy())
        return counts_table(total)


def _degrees(batch: SubgraphBatch) -> NDArray[np.int64]:
    return np.diff(batch.offsets) + np.diff(batch.in_offsets)


def _border(batch: SubgraphBatch) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Arcs between partitions: own vertex, row of the other in the tables of remotes, and its partition."""
    found, beyond = [], 0
    for incoming in (False, True):
        rows = batch.in_rows if incoming else batch.rows
        arc = np.flatnonzero(rows.targets < 0)
        near, far = arc_ends(batch, arc, incoming=incoming)
        subgraph = batch.remotes(incoming=incoming)[1]
        partition = np.searchsorted(batch.subgraph_starts, subgraph[~far], side="right") - 1
        found.append((near, beyond + ~far, partition))
        beyond += subgraph.size
    near, row, partition = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return near, row, partition

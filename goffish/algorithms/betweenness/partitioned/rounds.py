"""One round: the four stages of several sources at the same time (specification, section 3.3).

Nothing that a stage adds up depends on the order of messages, on the partitions or on how many sources run at a time:
see `_sweep_kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.partitioned import _search_kernels as search_kernels
from goffish.algorithms.betweenness.partitioned import _sweep_kernels as kernels
from goffish.algorithms.betweenness.partitioned.messages import Kind, column
from goffish.algorithms.betweenness.partitioned.phases import Phase
from goffish.algorithms.betweenness.partitioned.pieces import Side
from goffish.algorithms.betweenness.partitioned.steps import Work
from goffish.errors import JobError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Letters:
    """Messages of one stage, source by source: positions, ghosts (the senders) and values."""

    starts: Integers
    vertex: Integers
    ghost: Integers
    value: Floats
    other: Floats

    @property
    def slots(self) -> list[int]:
        """Sources that there are messages for."""
        found: list[int] = np.flatnonzero(np.diff(self.starts)).tolist()
        return found

    def of(self, slot: int) -> tuple[Integers, Integers, Floats]:
        rows = slice(int(self.starts[slot]), int(self.starts[slot + 1]))
        return self.vertex[rows], self.ghost[rows], self.value[rows]

    def other_of(self, slot: int) -> Floats:
        return self.other[self.starts[slot] : self.starts[slot + 1]]


def _letters(work: Work, kind: Kind, side: Side) -> Letters:
    mail = work.mail(kind)
    mail = mail[np.argsort(mail["slot"], kind="stable")]
    return Letters(
        np.searchsorted(mail["slot"], np.arange(work.slots + 1)),
        work.core.position[column(mail, "vertex")],
        side.rows(column(mail, "subgraph"), column(mail, "sender")),
        column(mail, "value"),
        column(mail, "other"),
    )


class _Outgoing:
    """Cut arcs that a stage has something to say over."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.row, self.ghost = np.empty(side.cut, np.int64), np.empty(side.cut, np.int64)
        self.parts: list[tuple[int, Integers, Integers, Floats, Floats]] = []

    def take(self, slot: int, count: int, by_row: Floats, by_ghost: Floats) -> None:
        """Keep the first `count` arcs for one source, with values of their two ends."""
        if count:
            row, ghost = self.row[:count].copy(), self.ghost[:count].copy()
            self.parts.append((slot, row, ghost, by_row[row], by_ghost[ghost]))

    def send(self, work: Work, kind: Kind, counter: str) -> None:
        count = 0
        if self.parts:
            row, ghost, value, other = (np.concatenate([part[i] for part in self.parts]) for i in range(1, 5))
            slot = np.repeat(np.array([p[0] for p in self.parts], np.int32), [p[1].size for p in self.parts])
            sender = work.batch.start + work.core.vertex[row]
            work.to_ghosts(self.side, ghost, kind, sender, value, other, slot)
            count = row.size
        work.sent(counter, count)


class _Tails:
    """Of every source the ghosts as tails of arcs that come in: their distance, and later their number of paths.

    Where a graph is undirected they are the ghosts that arcs go to and have columns in the state. Those of a directed
    graph may be more than the remote table has rows, and are kept in messages to oneself.
    """

    def __init__(self, work: Work, *, fresh: bool = False) -> None:
        self.work = work
        if not work.batch.directed:
            return
        size, slots = work.core.into.ghost_vertex.size, work.slots
        self.seen, self.heard = np.full((slots, size), np.inf), np.zeros((slots, size))
        if not fresh:
            mail = work.mail(Kind.KEPT)
            self.seen[mail["slot"], mail["sender"]] = mail["value"]
            self.heard[mail["slot"], mail["sender"]] = mail["other"]

    def of(self, slot: int) -> tuple[Floats, Floats]:
        if self.work.batch.directed:
            return self.seen[slot], self.heard[slot]
        size = self.work.core.out.ghost_vertex.size
        batch = self.work.batch
        return batch[f"ghost_{slot}"][:size], batch[f"heard_{slot}"][:size]

    def keep(self) -> None:
        if self.work.batch.directed:
            slot, ghost = np.nonzero(np.isfinite(self.seen))
            self.work.to_partitions(
                np.full(slot.size, self.work.batch.partition), Kind.KEPT, ghost, self.seen[slot, ghost],
                self.heard[slot, ghost], slot.astype(np.int32),
            )  # fmt: skip


def _columns(work: Work, slot: int, *names: str) -> tuple[NDArray[np.float64], ...]:
    """State of one source at the core's vertices and ghosts."""
    batch, size, ghosts = work.batch, work.core.size, work.core.out.ghost_vertex.size
    return tuple(batch[f"{name}_{slot}"][: ghosts if name in ("ghost", "heard") else size] for name in names)


def search(work: Work) -> None:
    """Stage 1: distances, by label correction between units and searches in order of distance inside."""
    batch, piece, start = work.batch, work.core, work.phase is not Phase.SEARCH
    if start:
        work.enter(Phase.SEARCH)
        _place_sources(work)
    side = piece.out
    letters = _letters(work, Kind.DIST, piece.into)
    tails, outgoing = _Tails(work, fresh=start), _Outgoing(side)
    lowered, touched = np.zeros(piece.size, np.bool_), np.empty(piece.size, np.int64)
    for slot in range(work.slots) if start else letters.slots:
        distance, ghost = _columns(work, slot, "distance", "ghost")
        if start:
            distance[:] = ghost[:] = np.inf
            source = int(batch[f"source_{slot}"][0])
            entry = np.array([source] if source >= 0 else [], np.int64)
            reached = np.zeros(entry.size)
        else:
            entry, tail, near = letters.of(slot)
            reached = letters.other_of(slot)
            # Also where arcs go to these ghosts: what they have is no news to them.
            np.minimum.at(tails.of(slot)[0], tail, near)
        if not entry.size:
            continue
        if side.weights.size:
            count = search_kernels.search_weighted(
                entry, reached, side.offsets, side.targets, side.weights, distance, ghost, lowered, touched
            )
        else:
            count = search_kernels.search_levels(
                entry, reached, side.offsets, side.targets, distance, ghost, lowered, touched
            )
        found = search_kernels.offers(
            touched, count, side.offsets, side.targets, side.weights, side.outer, distance, ghost, lowered,
            outgoing.row, outgoing.ghost,
        )  # fmt: skip
        outgoing.take(slot, found, distance, ghost)
    outgoing.send(work, Kind.DIST, "dist")
    tails.keep()


def _place_sources(work: Work) -> None:
    """Put the round's own sources into their slots, and tell the others how often each was drawn."""
    batch, low, slots = work.batch, work.number("round") * work.width, work.slots
    for slot in range(slots):
        batch[f"source_{slot}"] = -1
        batch[f"times_{slot}"] = 1.0
    turn = batch["turn"]
    own = np.flatnonzero((turn >= low) & (turn < low + slots))
    starts = batch.subgraph_starts
    others = np.flatnonzero(np.diff(starts) > 0)
    others = others[others != batch.partition]
    for vertex, slot in zip(own.tolist(), (turn[own] - low).tolist(), strict=True):
        times = float(batch["times"][vertex])
        batch[f"source_{slot}"] = work.core.position[vertex]
        batch[f"times_{slot}"] = times
        if times != 1.0:
            work.to_partitions(others, Kind.TIMES, 0, times, slot=slot)


def successors(work: Work) -> None:
    """Stage 2: count predecessors, and tell those in other units that they have a successor."""
    batch, piece = work.batch, work.core
    if work.phase is Phase.SUCCESSORS:
        letters = _letters(work, Kind.SUCC, piece.out)
        for slot in letters.slots:
            batch[f"heard_{slot}"][letters.of(slot)[1]] = 1.0
        work.sent("succ", 0)
        _Tails(work).keep()
        return
    tails, outgoing = _Tails(work), _Outgoing(piece.into)
    work.enter(Phase.SUCCESSORS)
    side = piece.into
    for slot in range(work.slots):
        distance, wait, mark = _columns(work, slot, "distance", "wait", "heard")
        mark[:] = 0.0
        seen, heard = tails.of(slot)
        found = kernels.predecessors(
            side.offsets, side.targets, side.weights, distance, seen, wait, heard, outgoing.row, outgoing.ghost
        )
        outgoing.take(slot, found, distance, seen)
        batch[f"cut_{slot}"] = found
        batch[f"last_{slot}"] = 0
    outgoing.send(work, Kind.SUCC, "succ")
    tails.keep()


def paths(work: Work) -> None:
    """Stage 3: numbers of shortest paths, in topological order."""
    batch, piece, start = work.batch, work.core, work.phase is not Phase.PATHS
    if start:
        work.enter(Phase.PATHS)
    out, into = piece.out, piece.into
    letters = _letters(work, Kind.PATHS, into)
    tails, outgoing = _Tails(work), _Outgoing(out)
    for slot in range(work.slots) if start else letters.slots:
        distance, ghost, mark, wait, sigma = _columns(work, slot, "distance", "ghost", "heard", "wait", "sigma")
        source = -1
        if start:
            # What a ghost was offered is not its distance unless one of the stages before said so.
            ghost[mark == 0.0] = np.inf
            mark[:] = sigma[:] = 0.0
            source = int(batch[f"source_{slot}"][0])
        seen, heard = tails.of(slot)
        vertex, tail, value = letters.of(slot)
        if source < 0 and not vertex.size:
            continue
        if not start:
            batch[f"last_{slot}"] = work.number("stage_step")
        found = kernels.count_paths(
            source, vertex, tail, value, out.offsets, out.targets, out.weights, into.offsets, into.targets,
            into.weights, distance, ghost, seen, wait, sigma, heard, outgoing.row, outgoing.ghost,
        )  # fmt: skip
        outgoing.take(slot, found, sigma, ghost)
    outgoing.send(work, Kind.PATHS, "paths")
    tails.keep()


def dependencies(work: Work) -> None:
    """Stage 4: dependencies, in the reverse order."""
    batch, piece, start = work.batch, work.core, work.phase is not Phase.DEPENDENCIES
    if start:
        work.enter(Phase.DEPENDENCIES)
        _report_hops(work)
    out, into = piece.out, piece.into
    letters = _letters(work, Kind.DEP, out)
    tails, outgoing = _Tails(work), _Outgoing(into)
    stack = np.empty(piece.size, np.int64)
    for slot in range(work.slots) if start else letters.slots:
        distance, ghost, heard, wait, sigma, delta = _columns(
            work, slot, "distance", "ghost", "heard", "wait", "sigma", "delta"
        )
        size = 0
        if start:
            if not np.isfinite(sigma).all():
                raise JobError("more shortest paths between two vertices than float64 can count (about 1e308)")
            delta[:] = 0.0
            size = kernels.count_successors(out.offsets, out.targets, out.weights, distance, ghost, wait, stack)
        vertex, head, value = letters.of(slot)
        if not size and not vertex.size:
            continue
        found = kernels.add_dependencies(
            size, stack, vertex, head, value, out.offsets, out.targets, out.weights, into.offsets, into.targets,
            into.weights, distance, ghost, tails.of(slot)[0], wait, sigma, delta, heard, piece.omega,
            outgoing.row, outgoing.ghost,
        )  # fmt: skip
        outgoing.take(slot, found, sigma, heard if not batch.directed else tails.of(slot)[0])
    outgoing.send(work, Kind.DEP, "dep")
    tails.keep()


def _report_hops(work: Work) -> None:
    """Tell the master how many cut arcs each source's shortest paths have."""
    cut, last = (np.array([work.number(f"{name}_{slot}") for slot in range(work.slots)]) for name in ("cut", "last"))
    some = np.flatnonzero((cut > 0) | (last > 0))
    work.step.send_to_subgraph(
        np.zeros(some.size, np.int64), kind=Kind.HOPS, slot=some.astype(np.int32), sender=cut[some],
        value=last[some].astype(np.float64), other=0.0,
    )  # fmt: skip


def take_notes(work: Work) -> None:
    """Messages that come beside the stages: how often sources were drawn, and (to the master) their cut arcs."""
    batch = work.batch
    for message in work.mail(Kind.TIMES):
        batch[f"times_{int(message['slot'])}"] = message["value"]
    mail = work.mail(Kind.HOPS)
    if mail.size:
        cut = np.bincount(mail["slot"], mail["sender"])
        most = np.zeros(cut.size)
        np.maximum.at(most, mail["slot"], mail["value"])
        work.add("hops_sum", int(most.sum()))
        batch["hops_max"][0] = max(work.number("hops_max"), int(most.max()))
        batch["cut_max"][0] = max(work.number("cut_max"), int(cut.max()))


def close_round(work: Work) -> None:
    """Add what the round found to the sums, source after source."""
    batch, vertex = work.batch, work.core.vertex
    for slot in range(work.slots):
        (delta,) = _columns(work, slot, "delta")
        source = int(batch[f"source_{slot}"][0])
        if source >= 0:
            delta[source] = 0.0
        batch["sum"][vertex] += float(batch[f"times_{slot}"][0]) * delta
    # With exact compression a source stands for all the pivots that were drawn from its tree.
    exact = work.compression == "exact"
    work.add("done", sum(work.number(f"times_{slot}") for slot in range(work.slots)) if exact else work.slots)
    work.add("searches", work.slots)
    work.add("rounds", 1)
    batch["round"] += 1

"""One round: the four stages of several sources at the same time (docs/specs/betweenness.md, section 3.3).

Nothing that a stage adds up depends on the order of messages, on the partitions or on how many sources run at a time:
see `_sweep_kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.subgraph import ghost_kernels, search_kernels
from goffish.algorithms.betweenness.subgraph import sweep_kernels as kernels
from goffish.algorithms.betweenness.subgraph.ghost_kernels import Distances, Mail, Notes
from goffish.algorithms.betweenness.subgraph.messages import Kind, Phase
from goffish.algorithms.betweenness.subgraph.pieces import Side
from goffish.algorithms.betweenness.subgraph.steps import Work

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
_NO_POWERS = np.empty(0)
_OF_GHOSTS = {"ghost", "heard", "heard_power"}


@dataclass(frozen=True, eq=False)
class Letters:
    """Messages of one stage, source by source: ghosts (the senders), values, and their powers if any is not 0."""

    starts: Integers
    ghost: Integers
    value: Floats
    exponent: Floats

    @property
    def slots(self) -> list[int]:
        """Sources that there are messages for."""
        found: list[int] = np.flatnonzero(np.diff(self.starts)).tolist()
        return found

    def of(self, slot: int) -> Mail:
        rows = slice(int(self.starts[slot]), int(self.starts[slot + 1]))
        return Mail(self.ghost[rows], self.value[rows], self.exponent[rows])


def _letters(work: Work, kind: Kind, side: Side, *, powers: bool = False) -> Letters:
    mail = work.step.messages

    def sorted_by_slot(column: str) -> tuple[Integers, Integers, Floats]:
        starts = np.zeros(work.slots + 1, np.int64)
        ghost, value = ghost_kernels.sort_letters(
            mail["kind"], mail["slot"], mail["subgraph"], mail["sender"], mail[column], np.int8(kind),
            side.ghost_starts, side.table, starts,
        )  # fmt: skip
        return starts, ghost, value

    exponent = _NO_POWERS
    if powers and mail["other"][mail["kind"] == kind].any():
        exponent = sorted_by_slot("other")[2]
    return Letters(*sorted_by_slot("value"), exponent)


class _Outgoing:
    """What a stage has to say: vertices with something for subgraphs on the other side of cut arcs."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.rows, self.doors = np.empty(side.cut, np.int32), np.empty(side.cut, np.int32)
        self.stamp = np.full(side.units.size, -1, np.int64)
        self.parts: list[tuple[int, NDArray[np.int32], NDArray[np.int32], Floats, Any]] = []
        self.arcs = 0

    def notes(self, slot: int) -> Notes:
        """Where a kernel writes what it has for one source."""
        return Notes(self.side.door, slot * self.side.outer.size, self.stamp, self.rows, self.doors)

    def take(self, slot: int, found: Sequence[int], values: Floats, powers: NDArray[np.int32] | None = None) -> None:
        """Keep what was written for one source, about so many arcs, with values of its rows and their powers."""
        arcs, noted = found
        if noted:
            rows = self.rows[:noted].copy()
            power = np.zeros(noted) if powers is None else powers[rows]
            self.parts.append((slot, rows, self.doors[:noted].copy(), values[rows], power))
            self.arcs += arcs

    def send(self, work: Work, kind: Kind, counter: str) -> None:
        if self.parts:
            row, door, value, power = (np.concatenate([part[i] for part in self.parts]) for i in range(1, 5))
            slot = np.repeat(np.array([p[0] for p in self.parts], np.int32), [p[1].size for p in self.parts])
            sender = work.batch.start + work.core.vertex[row]
            work.step.send_to_subgraph(
                self.side.units[door], kind=kind, slot=slot, sender=sender, value=value, other=power
            )
        work.sent(counter, self.arcs)


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
        self.powers = np.zeros((slots, size), np.int32)
        if not fresh:
            mail, powers = work.mail(Kind.KEPT), work.mail(Kind.POWER)
            self.seen[mail["slot"], mail["sender"]] = mail["value"]
            self.heard[mail["slot"], mail["sender"]] = mail["other"]
            self.powers[powers["slot"], powers["sender"]] = powers["value"]

    def of(self, slot: int) -> tuple[Floats, Floats]:
        if self.work.batch.directed:
            return self.seen[slot], self.heard[slot]
        size = self.work.core.out.ghost_vertex.size
        batch = self.work.batch
        return batch[f"ghost_{slot}"][:size], batch[f"heard_{slot}"][:size]

    def power(self, slot: int) -> NDArray[np.int32]:
        """Powers of the ghosts' numbers of paths."""
        found: NDArray[np.int32] = (
            self.powers[slot]
            if self.work.batch.directed
            else (self.work.batch[f"heard_power_{slot}"][: self.work.core.out.ghost_vertex.size])
        )
        return found

    def keep(self) -> None:
        if self.work.batch.directed:
            slot, ghost = np.nonzero(self.powers)
            self.work.to_partitions(
                np.full(slot.size, self.work.batch.partition), Kind.POWER, ghost, self.powers[slot, ghost],
                slot=slot.astype(np.int32),
            )  # fmt: skip
            slot, ghost = np.nonzero(np.isfinite(self.seen))
            self.work.to_partitions(
                np.full(slot.size, self.work.batch.partition), Kind.KEPT, ghost, self.seen[slot, ghost],
                self.heard[slot, ghost], slot.astype(np.int32),
            )  # fmt: skip


def _columns(work: Work, slot: int, *names: str) -> tuple[NDArray[Any], ...]:
    """State of one source at the core's vertices and ghosts."""
    batch, size, ghosts = work.batch, work.core.size, work.core.out.ghost_vertex.size
    return tuple(batch[f"{name}_{slot}"][: ghosts if name in _OF_GHOSTS else size] for name in names)


def search(work: Work) -> None:
    """Stage 1: distances, by label correction between units and searches in order of distance inside."""
    batch, piece, start = work.batch, work.core, work.phase is not Phase.SEARCH
    if start:
        work.enter(Phase.SEARCH)
        _place_sources(work)
    side, into = piece.out, piece.into
    letters = _letters(work, Kind.DIST, into)
    tails, outgoing = _Tails(work, fresh=start), _Outgoing(side)
    lowered, touched = np.zeros(piece.size, np.bool_), np.empty(piece.size, np.int64)
    for slot in range(work.slots) if start else letters.slots:
        distance, ghost = _columns(work, slot, "distance", "ghost")
        source = -1
        if start:
            distance[:] = ghost[:] = np.inf
            source = int(batch[f"source_{slot}"][0])
            if source < 0:
                continue
        # Also where arcs go to the senders: what they have is no news to them.
        seen = tails.of(slot)[0]
        weighted = side.arcs.weights.size or into.far.weights.size
        kernel = search_kernels.search_weighted if weighted else search_kernels.search_levels
        distances = Distances(distance, ghost, seen)
        count = kernel(source, letters.of(slot), into.far, side.arcs, distances, lowered, touched)
        found = search_kernels.offers(touched[:count], side.arcs, side.outer, distances, lowered, outgoing.notes(slot))
        outgoing.take(slot, found, distance)
    outgoing.send(work, Kind.DIST, "dist")
    tails.keep()


def _place_sources(work: Work) -> None:
    """Put the round's own sources into their slots, and send the others how often each was drawn."""
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
    """Stage 2: count predecessors, and notify those in other units of a successor."""
    batch, piece = work.batch, work.core
    if work.phase is Phase.SUCCESSORS:
        letters = _letters(work, Kind.SUCC, piece.out)
        for slot in letters.slots:
            batch[f"heard_{slot}"][letters.of(slot).ghost] = 1.0
        work.sent("succ", 0)
        _Tails(work).keep()
        return
    tails, outgoing = _Tails(work), _Outgoing(piece.into)
    work.enter(Phase.SUCCESSORS)
    for slot in range(work.slots):
        distance, ghost, wait, mark = _columns(work, slot, "distance", "ghost", "wait", "heard")
        mark[:] = 0.0
        seen, heard = tails.of(slot)
        found = kernels.predecessors(
            piece.into.arcs, Distances(distance, ghost, seen), wait, heard, outgoing.notes(slot)
        )
        outgoing.take(slot, found, distance)
        batch[f"cut_{slot}"] = found[0]
        batch[f"last_{slot}"] = 0
    outgoing.send(work, Kind.SUCC, "succ")
    tails.keep()


def paths(work: Work) -> None:
    """Stage 3: numbers of shortest paths, in topological order."""
    batch, piece, start = work.batch, work.core, work.phase is not Phase.PATHS
    if start:
        work.enter(Phase.PATHS)
    out, into = piece.out, piece.into
    letters = _letters(work, Kind.PATHS, into, powers=True)
    tails, outgoing = _Tails(work), _Outgoing(out)
    stack = np.empty(piece.size, np.int64)
    for slot in range(work.slots) if start else letters.slots:
        distance, ghost, mark, wait, sigma, power, delta, mark_power = _columns(
            work, slot, "distance", "ghost", "heard", "wait", "sigma", "power", "delta", "heard_power"
        )
        source, scaled = -1, bool(work.number(f"scaled_{slot}"))
        if start:
            # What a ghost was offered is not its distance unless one of the stages before said so.
            ghost[mark == 0.0] = np.inf
            mark[:] = sigma[:] = 0.0
            if scaled:
                power[:], mark_power[:], scaled = 0, 0, False
                batch[f"scaled_{slot}"] = False
            source = int(batch[f"source_{slot}"][0])
        seen, heard = tails.of(slot)
        mail = letters.of(slot)
        if source < 0 and not mail.ghost.size:
            continue
        if source >= 0:
            sigma[source], stack[0] = 1.0, source
        if not start:
            batch[f"last_{slot}"] = work.number("stage_step")
        counts = kernels.Counts(wait, sigma, power, delta, heard, tails.power(slot))
        *found, scaled = kernels.sweep(
            True, int(source >= 0), stack, mail, into.arcs, out.arcs, into.far, Distances(distance, ghost, seen),
            counts, scaled, piece.omega, outgoing.notes(slot),
        )  # fmt: skip
        if scaled:
            batch[f"scaled_{slot}"] = True
        outgoing.take(slot, found, sigma, power if scaled else None)
    outgoing.send(work, Kind.PATHS, "paths")
    tails.keep()


def dependencies(work: Work) -> None:
    """Stage 4: dependencies, in the reverse order."""
    piece, start = work.core, work.phase is not Phase.DEPENDENCIES
    if start:
        work.enter(Phase.DEPENDENCIES)
        _report_hops(work)
    out, into = piece.out, piece.into
    letters = _letters(work, Kind.DEP, out, powers=True)
    tails, outgoing = _Tails(work), _Outgoing(into)
    stack = np.empty(piece.size, np.int64)
    for slot in range(work.slots) if start else letters.slots:
        distance, ghost, heard, wait, sigma, power, delta, heard_power = _columns(
            work, slot, "distance", "ghost", "heard", "wait", "sigma", "power", "delta", "heard_power"
        )
        size, distances = 0, Distances(distance, ghost, tails.of(slot)[0])
        if start:
            delta[:] = 0.0
            size = kernels.count_successors(out.arcs, distances, wait, stack)
        mail = letters.of(slot)
        if not size and not mail.ghost.size:
            continue
        counts = kernels.Counts(wait, sigma, power, delta, heard, heard_power)
        *found, scaled = kernels.sweep(
            False, size, stack, mail, out.arcs, into.arcs, out.far, distances, counts,
            bool(work.number(f"scaled_{slot}")), piece.omega, outgoing.notes(slot),
        )  # fmt: skip
        if scaled:
            work.batch[f"scaled_{slot}"] = True
        outgoing.take(slot, found, sigma, power if scaled else None)
    outgoing.send(work, Kind.DEP, "dep")
    tails.keep()


def _report_hops(work: Work) -> None:
    """Send the master the number of cut arcs of each source's shortest paths."""
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
    # With exact compression a source stands for all the pivots that were drawn from its tree.
    exact = work.compression == "exact"
    for slot in range(work.slots):
        (delta,) = _columns(work, slot, "delta")
        source = int(batch[f"source_{slot}"][0])
        if work.program.endpoints and not exact:
            # Each path to a target leaves the source by one successor: its dependency counts the targets reached.
            (distance,) = _columns(work, slot, "distance")
            at_ends = np.where(distance < np.inf, work.core.omega, 0.0)
            if source >= 0:
                at_ends[source] = np.rint(delta[source])
            delta += at_ends
            if source >= 0:
                delta[source] = at_ends[source]
        elif source >= 0:
            delta[source] = 0.0
        batch["sum"][vertex] += float(batch[f"times_{slot}"][0]) * delta
    work.add("done", sum(work.number(f"times_{slot}") for slot in range(work.slots)) if exact else work.slots)
    work.add("searches", work.slots)
    work.add("rounds", 1)
    batch["round"] += 1

"""Bundled programs: components, distances, reachability, triangles and degrees; PageRank is in `ranks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.streaming.graphs.programs import kernels
from goffish.streaming.graphs.programs.part import Change
from goffish.streaming.graphs.programs.program import Array, Column, Context, LiveProgram, Numbers
from goffish.streaming.graphs.programs.ranks import PageRank
from goffish.streaming.graphs.programs.worker import PLACE_BITS

#: Value of a vertex that has none.
NOTHING = 1 << 62
#: Sources of `Reachability`, at most: each takes one bit for each vertex.
MOST_SOURCES = 4096
_NONE = np.zeros(0, np.int64)


class Wave(NamedTuple):
    """Values that only fall, unless edges are removed; see `kernels.relax`."""

    values: Numbers
    owned: NDArray[np.bool_]
    queued: NDArray[np.bool_]
    marks: Numbers
    logged: Numbers
    olds: Numbers
    outside: Numbers
    queue: Numbers
    passing: Numbers
    #: Of `logged` and `outside`.
    used: Numbers


_WAVE = {
    "values": Column(np.int64, NOTHING), "queued": Column(np.bool_), "marks": Column(np.int64),
    "logged": Column(np.int64), "olds": Column(np.int64), "outside": Column(np.int64), "queue": Column(np.int64),
    "passing": Column(np.int64),
}  # fmt: skip


class _Falling(LiveProgram):
    """A program whose values fall from neighbor to neighbor."""

    movable = True
    step = 0

    def start(self, ctx: Context) -> None:
        """Begin on a worker."""
        self._used = np.zeros(2, np.int64)

    def _wave(self, ctx: Context) -> Wave:
        state = ctx.state
        return Wave(owned=ctx.owned, used=self._used, **{name: state[name] for name in _WAVE})

    def _relax(self, ctx: Context, targets: Numbers, values: Numbers, starts: Numbers = _NONE) -> None:
        """Take values, pass them on in this part, and send those that concern others."""
        wave = self._wave(ctx)
        kernels.relax(ctx.net.out, wave, targets, values, starts, self.step, ctx.epoch)
        outside = wave.outside[: self._used[1]].copy()
        wave.queued[outside] = False
        self._used[1] = 0
        ctx.send(outside, wave.values[outside])

    def _along(self, ctx: Context, sources: Numbers, targets: Numbers) -> None:
        """Pass values along edges, from the ends that this worker has."""
        values = ctx.state["values"]
        ends = sources, targets
        if not self.directed:
            ends = np.concatenate((sources, targets)), np.concatenate((targets, sources))
        known = ctx.owned[ends[0]] & (values[ends[0]] < NOTHING)
        self._relax(ctx, ends[1][known], values[ends[0][known]] + self.step)

    def _leave(self, ctx: Context) -> None:
        """Forget which values others have."""
        ctx.state["values"][: ctx.part.size][~ctx.owned[: ctx.part.size]] = NOTHING


class Components(_Falling):
    """Connected components, with events when they merge and split.

    The result has for each vertex the label of the one of its component that was seen first; of several in one epoch,
    the one that is first in order. It is the root of the component. A vertex that had an edge and ceases to be a root
    is ``MERGED`` `into` another one; one that begins to be a root is ``SPLIT`` from its former root.
    """

    totals = ("_roots",)
    directed = False
    rounds = 1
    state = _WAVE | {"linked": Column(np.bool_), "known": Column(np.bool_)}
    events = {"vertex": "vertex", "root": "vertex"}
    vertex_columns = ("component",)

    def start(self, ctx: Context) -> None:
        """Begin on a worker."""
        super().start(ctx)
        self._roots = 0

    def changes(self, ctx: Context, change: Change) -> None:
        """Take the changes of an epoch."""
        values = ctx.state["values"]
        values[change.new] = ctx.numbers[change.new]
        self._used[:] = 0
        self._change, self._affected = change, _NONE
        if not ctx.removes:
            self._along(ctx, change.sources, change.targets)
            return
        ends = np.concatenate((change.lost_sources, change.lost_targets))
        ctx.share(np.unique(values[ends[ctx.owned[ends]]]))

    def messages(self, ctx: Context, targets: Numbers, values: Array) -> None:
        """Take labels, or the roots of components that have lost an edge."""
        if len(ctx.shared):
            self._affected = np.unique(ctx.shared)
        if len(targets):
            self._relax(ctx, targets, values)

    def settle(self, ctx: Context, number: int) -> None:
        """Begin anew with the components that have lost an edge."""
        values = ctx.state["values"]
        vertices = ctx.vertices
        vertices = vertices[np.isin(values[vertices], self._affected)]
        kernels.note_values(self._wave(ctx), vertices, ctx.epoch)
        values[vertices] = ctx.numbers[vertices]
        self._leave(ctx)
        self._relax(ctx, _NONE, _NONE, vertices)
        self._along(ctx, self._change.sources, self._change.targets)

    def finish(self, ctx: Context) -> int:
        """Emit events, and return the number of roots."""
        wave, change = self._wave(ctx), self._change
        linked, known = ctx.state["linked"], ctx.state["known"]
        vertices, olds = wave.logged[: self._used[0]], wave.olds[: self._used[0]]
        news, numbers = wave.values[vertices], ctx.numbers[vertices]
        merged = (olds == numbers) & (news != numbers) & linked[vertices]
        split = (olds != numbers) & (news == numbers) & known[vertices] & ctx.part.present[vertices]
        ctx.emit("MERGED", vertex=numbers[merged], root=news[merged])
        ctx.emit("SPLIT", vertex=numbers[split], root=olds[split])
        ends = np.concatenate((change.sources, change.targets, change.lost_sources, change.lost_targets))
        ends = ends[ctx.owned[ends]]
        linked[ends] = ctx.degrees(ends) > 0
        known[change.new] = True
        became = np.count_nonzero((olds != numbers) & (news == numbers)) + len(change.new)
        ceased = np.count_nonzero((olds == numbers) & (news != numbers))
        gone = np.count_nonzero(wave.values[change.gone] == ctx.numbers[change.gone])
        self._roots += int(became - ceased - gone)
        return self._roots

    def aggregate(self, partials: Sequence[int]) -> int:
        """Return the number of components."""
        return sum(partials)

    def result(self, ctx: Context) -> Mapping[str, Array]:
        """Return the root of each vertex."""
        return {"component": ctx.state["values"][ctx.vertices]}


class Distances(_Falling):
    """Distances from a vertex, in edges.

    Parameters
    ----------
    source : int or str
    directed : bool
    """

    rounds = 2
    step = 1
    state = _WAVE | {"asked": Column(np.bool_)}

    def __init__(self, source: int | str, *, directed: bool = True) -> None:
        self.named = {"source": [source]}
        self.directed = directed

    def changes(self, ctx: Context, change: Change) -> None:
        """Take the changes of an epoch."""
        values = ctx.state["values"]
        source = change.new[ctx.numbers[change.new] == ctx.named["source"][0]]
        values[source] = 0
        self._used[:] = 0
        self._change, self._source = change, source
        if not ctx.removes:
            self._relax(ctx, _NONE, _NONE, source)
            self._along(ctx, change.sources, change.targets)
            return
        ends = change.lost_sources, change.lost_targets
        if not self.directed:
            ends = np.concatenate(ends), np.concatenate(ends[::-1])
        known = ctx.owned[ends[0]] & (values[ends[0]] < NOTHING)
        targets, theirs = ends[1][known], values[ends[0][known]] + 1
        # Each is forgotten by the worker that has it.
        here = ctx.owned[targets]
        ctx.send(targets[~here], theirs[~here])
        self._forget(ctx, targets[here], theirs[here])
        values[change.gone] = NOTHING

    def _forget(self, ctx: Context, targets: Numbers, values: Numbers) -> None:
        """Forget distances that may have been due to an edge that was removed."""
        ctx.send(*kernels.forget(ctx.net.out, self._wave(ctx), targets, values, NOTHING, ctx.epoch))

    def messages(self, ctx: Context, targets: Numbers, values: Array) -> None:
        """Take distances: those to be forgotten, then questions, then those that are new."""
        if ctx.removes and ctx.settled == 0:
            self._forget(ctx, targets, values)
        elif ctx.removes and ctx.settled == 1:
            ctx.state["asked"][targets] = True
        else:
            self._relax(ctx, targets, values)

    def settle(self, ctx: Context, number: int) -> None:
        """Ask the neighbors of vertices without a distance, then answer."""
        values, asked = ctx.state["values"], ctx.state["asked"]
        if number == 0:
            self._leave(ctx)
            lost = self._wave(ctx).logged[: self._used[0]]
            _, others = ctx.neighbors(lost[ctx.part.present[lost]], incoming=self.directed)
            others = np.unique(others)
            here = ctx.owned[others]
            asked[others[here]] = True
            ctx.send(others[~here], np.zeros(np.count_nonzero(~here), np.int64))
            return
        vertices = np.flatnonzero(asked)
        asked[vertices] = False
        self._relax(ctx, _NONE, _NONE, np.concatenate((vertices[values[vertices] < NOTHING], self._source)))
        self._along(ctx, self._change.sources, self._change.targets)

    def result(self, ctx: Context) -> Mapping[str, Array]:
        """Return the distance of each vertex, -1 if there is none."""
        found = ctx.state["values"][ctx.vertices]
        return {"distance": np.where(found < NOTHING, found, -1)}


class Flood(NamedTuple):
    """Sets of sources as bits; see `kernels.spread`."""

    sets: NDArray[np.uint64]
    passing: NDArray[np.uint64]
    own: NDArray[np.uint64]
    owned: NDArray[np.bool_]
    queued: NDArray[np.bool_]
    hit: NDArray[np.bool_]
    outside: Numbers
    queue: Numbers
    #: Of `outside`.
    used: Numbers
    carried: NDArray[np.uint64]
    removes: bool


class Reachability(LiveProgram):
    """Which sinks are reached from which sources, with an event for each pair that begins or ceases to be connected.

    Parameters
    ----------
    sources, sinks : sequence of int and str
        At most 4,096 sources.
    directed : bool

    Raises
    ------
    InputError
        There are no sources, or too many.
    """

    movable = True
    rounds = 2
    events = {"source": "vertex", "sink": "vertex"}

    def __init__(
        self, sources: Sequence[int | str], sinks: Sequence[int | str], *, directed: bool = True
    ) -> None:  # fmt: skip
        if isinstance(sources, str) or isinstance(sinks, str):
            raise InputError("sources and sinks: pass a list of vertices for each")
        sources, sinks = list(dict.fromkeys(sources)), list(dict.fromkeys(sinks))
        if not 0 < len(sources) <= MOST_SOURCES:
            raise InputError(f"sources: {len(sources):,} vertices; accepted are 1 to {MOST_SOURCES:,}")
        self.named, self.directed = {"sources": sources, "sinks": sinks}, directed
        self._words = words = -(-len(sources) // 64)
        bits = Column(np.uint64, width=words)
        self.state = {
            "sets": bits, "passing": bits, "own": bits, "queued": Column(np.bool_), "hit": Column(np.bool_),
            "asked": Column(np.bool_), "outside": Column(np.int64), "queue": Column(np.int64),
        }  # fmt: skip

    def start(self, ctx: Context) -> None:
        """Begin on a worker."""
        self._used, self._carried = np.zeros(1, np.int64), np.zeros((1, self._words), np.uint64)
        self._sinks = _NONE
        self._reported = np.zeros((0, self._words), np.uint64)

    def _spread(
        self, ctx: Context, targets: Numbers, bits: Array, starts: Numbers = _NONE, *, removes: bool = False
    ) -> None:  # fmt: skip
        """Add sources to sets, or remove them, pass them on in this part, and send those that concern others."""
        state = ctx.state
        names = ("sets", "passing", "own", "queued", "hit", "outside", "queue")
        flood = Flood(
            owned=ctx.owned, used=self._used, carried=self._carried, removes=removes,
            **{name: state[name] for name in names},
        )  # fmt: skip
        kernels.spread(ctx.net.out, flood, targets, bits.reshape(-1, self._words), starts)
        outside = flood.outside[: self._used[0]].copy()
        flood.queued[outside] = False
        self._used[0] = 0
        ctx.send(outside, flood.passing[outside])
        flood.passing[outside] = 0

    def _along(self, ctx: Context, sources: Numbers, targets: Numbers, *, removes: bool = False) -> None:
        """Pass sets along edges, from the ends that this worker has."""
        ends = sources, targets
        if not self.directed:
            ends = np.concatenate((sources, targets)), np.concatenate((targets, sources))
        here = ctx.owned[ends[0]]
        self._spread(ctx, ends[1][here], ctx.state["sets"][ends[0][here]], removes=removes)

    def changes(self, ctx: Context, change: Change) -> None:
        """Take the changes of an epoch."""
        state, numbers = ctx.state, ctx.numbers[change.new]
        order = np.argsort(ctx.named["sources"])
        found = np.minimum(np.searchsorted(ctx.named["sources"], numbers, sorter=order), len(order) - 1)
        source = order[found]
        is_source = ctx.named["sources"][source] == numbers
        new, bit = change.new[is_source], source[is_source]
        state["own"][new, bit // 64] = np.uint64(1) << (bit % 64).astype(np.uint64)
        state["sets"][new] |= state["own"][new]
        sinks = change.new[np.isin(numbers, ctx.named["sinks"])]
        sinks = sinks[~np.isin(sinks, self._sinks)]
        self._sinks = np.concatenate((self._sinks, sinks))
        self._reported = np.concatenate((self._reported, np.zeros((len(sinks), self._words), np.uint64)))
        self._change, self._new = change, new
        if not ctx.removes:
            self._spread(ctx, _NONE, state["sets"][:0], new)
            self._along(ctx, change.sources, change.targets)
            return
        self._along(ctx, change.lost_sources, change.lost_targets, removes=True)
        state["sets"][change.gone] = 0

    def messages(self, ctx: Context, targets: Numbers, values: Array) -> None:
        """Take sets: those to be removed, then questions, then those to be added."""
        if ctx.removes and ctx.settled == 0:
            self._spread(ctx, targets, values, removes=True)
        elif ctx.removes and ctx.settled == 1:
            ctx.state["asked"][targets] = True
        else:
            self._spread(ctx, targets, values)

    def settle(self, ctx: Context, number: int) -> None:
        """Ask the neighbors of vertices that have lost sources, then answer."""
        state = ctx.state
        if number == 0:
            size = ctx.part.size
            state["sets"][:size][~ctx.owned[:size]] = 0
            hit = np.flatnonzero(state["hit"])
            state["hit"][hit] = False
            _, others = ctx.neighbors(hit[ctx.part.present[hit]], incoming=self.directed)
            others = np.unique(others)
            here = ctx.owned[others]
            state["asked"][others[here]] = True
            ctx.send(others[~here], np.zeros((np.count_nonzero(~here), self._words), np.uint64))
            return
        asked = np.flatnonzero(state["asked"])
        state["asked"][asked] = False
        starts = np.concatenate((asked[state["sets"][asked].any(axis=1)], self._new))
        self._spread(ctx, _NONE, state["sets"][:0], starts)
        self._along(ctx, self._change.sources, self._change.targets)

    def moved(self, ctx: Context, came: Numbers, went: Numbers) -> None:
        """Note the sinks of this worker."""
        stays = ~np.isin(self._sinks, went)
        sinks = came[np.isin(ctx.numbers[came], ctx.named["sinks"])]
        found = ctx.state["sets"][sinks] & ~ctx.state["own"][sinks]
        self._sinks = np.concatenate((self._sinks[stays], sinks))
        self._reported = np.concatenate((self._reported[stays], found))

    def finish(self, ctx: Context) -> int:
        """Emit events, and return the number of pairs."""
        now: Array = ctx.state["sets"][self._sinks] & ~ctx.state["own"][self._sinks]
        numbers = ctx.numbers[self._sinks]
        for status, some, others in (("REACHABLE", now, self._reported), ("UNREACHABLE", self._reported, now)):
            at, sources = _bits_of(some & ~others)
            ctx.emit(status, source=ctx.named["sources"][sources], sink=numbers[at])
        self._reported = now
        return len(_bits_of(now)[0])

    def aggregate(self, partials: Sequence[int]) -> int:
        """Return the number of pairs."""
        return sum(partials)

    def result(self, ctx: Context) -> Mapping[str, Array]:
        """Return how many sources reach each vertex, without itself."""
        vertices = ctx.vertices
        found = ctx.state["sets"][vertices] & ~ctx.state["own"][vertices]
        return {"sources": np.bitwise_count(found).sum(axis=1, dtype=np.int64)}


def _bits_of(sets: Array) -> tuple[Numbers, Numbers]:
    """Return the rows and the numbers of the bits that are set."""
    rows, words = np.nonzero(sets)
    bits = sets[rows, words][:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
    at, bit = np.nonzero(bits)
    return rows[at], words[at] * 64 + bit


class Triangles(LiveProgram):
    """Exact number of triangles, without directions: the value of an epoch."""

    movable = True
    totals = ("_total",)
    directed = False

    def start(self, ctx: Context) -> None:
        """Begin on a worker."""
        self._total = 0

    def changes(self, ctx: Context, change: Change) -> None:
        """Count what is in this part, and send the degrees of ends of edges between parts."""
        part = ctx.part
        first = self._first = ctx.epoch << PLACE_BITS
        chosen = np.concatenate((change.added, change.removed))
        ends = np.concatenate((change.lost_sources, change.lost_targets))
        order = np.argsort(ends, kind="stable")
        others = np.concatenate((change.lost_targets, change.lost_sources))[order]
        self._removed = ends[order], others, np.tile(change.removed, 2)[order]
        sources, targets = part.ends(chosen)
        both = ctx.owned[sources] & ctx.owned[targets]
        self._total += kernels.count_triangles(
            ctx.net.out, part.pairs, part.slots.by_hash, self._removed, chosen[both], first
        )  # fmt: skip
        # Pairs between parts are found by their sequence numbers, which both workers have.
        self._pairs = chosen[~both]
        self._pairs = self._pairs[np.argsort(part.pairs.seqs[self._pairs])]
        sources, targets = part.ends(self._pairs)
        here = ctx.owned[sources]
        self._mine, self._theirs = np.where(here, sources, targets), np.where(here, targets, sources)
        self._seqs = part.pairs.seqs[self._pairs]
        ctx.send(self._theirs, np.stack((self._seqs, ctx.degrees(self._mine)), axis=1))

    def messages(self, ctx: Context, targets: Numbers, values: Array) -> None:
        """Send the neighbors of the ends with the smaller degrees, then look for them among those of the others."""
        part = ctx.part
        at = np.searchsorted(self._seqs, values[:, 0])
        if ctx.superstep == 1:
            mine, theirs = ctx.degrees(self._mine[at]), values[:, 1]
            before = ctx.numbers[self._mine[at]] < ctx.numbers[self._theirs[at]]
            chosen = at[(mine < theirs) | ((mine == theirs) & before)]
            places, others = kernels.list_candidates(
                ctx.net.out, part.pairs, self._removed, self._pairs[chosen], self._mine[chosen], self._first
            )  # fmt: skip
            found = chosen[places]
            ctx.send(self._theirs[found], np.stack((self._seqs[found], ctx.numbers[others]), axis=1))
            return
        self._total += kernels.count_common(
            part.pairs, part.slots.by_hash, part.names.by_hash, self._pairs[at], self._mine[at],
            np.ascontiguousarray(values[:, 1]), self._first,
        )  # fmt: skip

    def finish(self, ctx: Context) -> int:
        """Return the number of triangles that this worker has counted."""
        return int(self._total)

    def aggregate(self, partials: Sequence[int]) -> int:
        """Return the number of triangles."""
        return sum(partials)


class Degrees(LiveProgram):
    """Numbers of neighbors.

    Parameters
    ----------
    directed : bool
    """

    movable = True

    def __init__(self, *, directed: bool = True) -> None:
        self.directed = directed

    @staticmethod
    def _degrees(ctx: Context) -> Numbers:
        vertices = ctx.vertices
        out = ctx.degrees(vertices)
        return out + ctx.degrees(vertices, incoming=True) if ctx.net.directed else out

    def result(self, ctx: Context) -> Mapping[str, Array]:
        """Return the degree of each vertex."""
        found = {"degree": self._degrees(ctx)}
        if self.directed:
            found["out_degree"] = ctx.degrees(ctx.vertices)
            found["in_degree"] = ctx.degrees(ctx.vertices, incoming=True)
        return found


_BUNDLED: dict[str, type[LiveProgram]] = {
    "components": Components, "distances": Distances, "reachability": Reachability, "triangles": Triangles,
    "degrees": Degrees, "pagerank": PageRank,
}  # fmt: skip


def program_of(given: str | LiveProgram, options: Mapping[str, Any]) -> LiveProgram:
    """Return a program by its name.

    Raises
    ------
    InputError
        There is no such one, or an option is not accepted.
    """
    if isinstance(given, LiveProgram):
        if options:
            raise InputError(f"options {', '.join(options)}: only of bundled programs; pass them to the program itself")
        return given
    if not isinstance(given, str) or given not in _BUNDLED:
        raise InputError(f"program {given!r:.60}: choose one of {', '.join(_BUNDLED)}, or derive from LiveProgram")
    try:
        return _BUNDLED[given](**options)
    except TypeError as error:
        raise InputError(f"program {given}: {str(error).partition('() ')[2]}") from None

"""Betweenness on a partitioned graph: many sources at a time, sampled pivots, leaf compression."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, get_args
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from goffish.algorithms.betweenness.subgraph import compression as leaf
from goffish.algorithms.betweenness.subgraph import pivots, rounds
from goffish.algorithms.betweenness.subgraph.messages import COUNTED, MESSAGE, STAGES, Kind, Phase
from goffish.algorithms.betweenness.subgraph.pieces import Piece, check_weights
from goffish.algorithms.betweenness.subgraph.steps import Compression, Options, PivotsFrom, Work
from goffish.algorithms.timing import checked_limit
from goffish.errors import InputError
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_remote, per_subgraph, per_vertex
from goffish.gopher.program import StateColumn
from goffish.graph.guards import whole_number

#: Sources at a time where nothing is said: state columns are declared before the graph is known.
MOST_SLOTS = 8

_COUNTS = tuple(kind.name.lower() for kind in COUNTED)
_TOTALS = ("hops_sum", "hops_max", "cut_max", *STAGES.values(), "searches", "rounds")

# Pieces are functions of immutable slices and of the state. They are kept beside the program and not on it: options
# alone distinguish jobs, and a run that resumes from a checkpoint cuts them again.
_pieces: WeakKeyDictionary[PartitionedBetweenness, dict[int, dict[bool, Piece]]] = WeakKeyDictionary()
_begun: WeakKeyDictionary[Options, float] = WeakKeyDictionary()


class Comparing(NamedTuple):
    """When the set of the `top` vertices is stable.

    Attributes
    ----------
    batch : int
        Pivots between two comparisons of the set.
    max_change, stable : int
        Stop after `stable` comparisons in a row that found at most `max_change` new members.
    """

    batch: int = 32
    max_change: int = 1
    stable: int = 3

    def checked(self) -> Comparing:
        """Refuse values out of range."""
        return Comparing(
            whole_number(self.batch, "batch"),
            whole_number(self.max_change, "max_change", 0),
            whole_number(self.stable, "stable"),
        )


class Ends(NamedTuple):
    """What counts of the ends of paths.

    Attributes
    ----------
    targets : tuple of int or str, optional
        Labels: only paths to these count.
    counted : bool
        Count a pair for its two ends as well; with exact compression exactly, even from pivots.
    """

    targets: tuple[int | str, ...] | None = None
    counted: bool = False


_ALL = Ends()


class PartitionedBetweenness(SubgraphProgram):
    """Partition-centric betweenness (Kumbhare, Frincu, Raghavendra, Prasanna, HPEC 2014; docs/specs/betweenness.md).

    MS-BC: every round searches from several sources at the same time, in four stages (distances, successors, numbers of
    shortest paths, dependencies), each as long as some source has messages. With ``compression="drop"`` it is MSL-BC as
    published, with ``compression="exact"`` leaves are removed and made up for exactly (section 3.6).

    Unordered pairs, not normalized; ordered pairs in directed graphs, whose leaves are kept. The answer is the same to
    the last bit for any partitions, units, threads and number of concurrent sources, as long as there are less than
    2^53 shortest paths between two vertices.

    Parameters
    ----------
    pivots : int, optional
        Most sources, drawn without replacement; values are then estimates (equation 7). Default: every vertex.
    sources : sequence of int or str, optional
        Labels of the sources instead, in their order, distinct: only paths from these count. Values are exact once all
        of them have been searched from.
    seed : int
        Of the order of the pivots.
    top : int, optional
        Look for the `top` most central vertices only: stop when their set is stable (section 3.5).
    compression : {"exact", "drop", "none"}
        What is done to leaves: removed and made up for, dropped as published, or nothing.
    pivots_from : {"all", "core"}
        With ``compression="drop"``: pivots are drawn from all vertices, as the published program does, where dropped
        ones are searches that find nothing; or from what is left.
    weighted : bool
        Use edge weights (an unweighted graph has weight 1 everywhere).
    max_concurrent : int, optional
        Most sources at a time; state takes 32 bytes per vertex and 20 per remote vertex for each. Default: as many as
        partitions, as published, but no more than 8.
    time_limit : float, optional
        Seconds after which no more searches are begun; values are then estimates from the pivots so far. A run that
        goes on from a checkpoint may have another limit.
    ends : Ends
        Only paths to some vertices, or paths counted for their ends.
    **comparing
        ``batch``, ``max_change``, ``stable``: with `top`, see `Comparing`.

    Notes
    -----
    Result columns: ``betweenness`` (float64) and, with `top`, ``top`` (bool).

    Aggregates: messages by kind (dist, succ, paths, dep, leaf, size: entries; topk: lists), supersteps of the stages
    over all rounds (compression_supersteps, search_supersteps, successor_supersteps, path_supersteps,
    dependency_supersteps), pivots, searches, rounds, hops_mean and hops_max (x_s, the most cut arcs on a shortest path
    from a source), cut_mean and cut_max (X_s, cut arcs of a source's shortest-path graph), removed_vertices,
    removed_edges, arcs, cut_arcs, most_arcs (of the core: in all, between units, of the largest partition).

    Raises
    ------
    InputError
        An option means nothing; a weight is not a finite number greater than 0.
    """

    message = MESSAGE
    may_change = frozenset({"time_limit"})
    share_done = "share_done"
    aggregators = {
        "sent": "sum", "sources": "sum", "stop": "or", "late": "or", "share_done": "max",
        **dict.fromkeys(_COUNTS, "sum"), **dict.fromkeys(STAGES.values(), "max"), "pivots": "max", "searches": "max",
        "rounds": "max", "hops_mean": "max", "hops_max": "max", "cut_mean": "sum", "cut_max": "max",
        "removed_vertices": "sum", "removed_edges": "sum", "arcs": "sum", "cut_arcs": "sum", "most_arcs": "max",
    }  # fmt: skip

    def __init__(
        self,
        pivots: int | None = None,
        sources: Sequence[int | str] | None = None,
        seed: int = 0,
        top: int | None = None,
        compression: Compression = "exact",
        pivots_from: PivotsFrom = "all",
        weighted: bool = True,
        max_concurrent: int | None = None,
        time_limit: float | None = None,
        ends: Ends = _ALL,
        **comparing: int,
    ) -> None:
        if compression not in get_args(Compression):
            raise InputError(f"compression={compression!r}: choose one of {', '.join(get_args(Compression))}")
        if pivots_from not in get_args(PivotsFrom):
            raise InputError(f"pivots_from={pivots_from!r}: choose one of {', '.join(get_args(PivotsFrom))}")
        if pivots_from == "core" and (compression != "drop" or sources is not None):
            raise InputError("pivots_from='core' requires compression='drop' and no sources")
        if sources is not None and pivots is not None:
            raise InputError("pivots and sources are mutually exclusive")
        self.pivots = None if pivots is None else whole_number(pivots, "pivots")
        self.sources = None if sources is None else tuple(sources)
        if self.sources is not None and len(set(self.sources)) < len(self.sources):
            raise InputError("sources: each vertex label may occur only once")
        self.targets, self.endpoints = ends
        if compression == "drop" and ends != _ALL:
            raise InputError("ends requires compression='exact' or 'none': dropped leaves have no paths")
        self.seed = whole_number(seed, "seed", 0)
        self.top = None if top is None else whole_number(top, "top")
        self.batch, self.max_change, self.stable = Comparing(**comparing).checked()
        self.compression, self.pivots_from, self.weighted = compression, pivots_from, weighted
        self.max_concurrent = None if max_concurrent is None else whole_number(max_concurrent, "max_concurrent")
        self.slots = self.max_concurrent or MOST_SLOTS
        self.time_limit = checked_limit(time_limit)
        self.state = _state(compression, self.slots)

    def init(self, sg: SubgraphBatch) -> None:
        if self.weighted:
            check_weights(sg)
        if sg.directed and self.compression == "drop":
            raise InputError(
                "compression='drop' requires an undirected graph; use graph.to_undirected(), or compression='none'"
            )

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        pieces = _pieces.setdefault(self, {}).setdefault(batch.partition, {})
        work = Work(self, batch, step, pieces)
        rounds.take_notes(work)
        _watch_clock(work)
        _send_share(work)
        _DO[work.phase](work)
        counter = STAGES.get(work.phase)
        if counter:
            work.add("stage_step", 1)
            work.add(counter, 1)

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        found = {"betweenness": sg["betweenness"]}
        return found if self.top is None else {**found, "top": sg["top"]}


def _state(compression: Compression, slots: int) -> dict[str, StateColumn]:
    """Columns of the state: of the run, of the compression, of every slot for a source."""
    state = {
        "phase": per_subgraph(np.int8, Phase.NAME),
        "ranked": per_subgraph(np.bool_),
        **{
            name: per_subgraph(np.int64)
            for name in ("stage_step", "drawn", "done", "round", "sources", "population", "stable")
        },
        **{name: per_subgraph(np.int64) for name in (*_COUNTS, *_TOTALS)},
        "rank": per_vertex(np.int64, -1),
        "turn": per_vertex(np.int64, -1),
        "times": per_vertex(np.float64, 1.0),
        "sum": per_vertex(np.float64),
        "betweenness": per_vertex(np.float64),
        "top": per_vertex(np.bool_),
        "ghost_id": per_remote(np.int64),
    }
    if compression != "none":
        state |= {
            "alive": per_vertex(np.bool_, True),
            "degree": per_vertex(np.int64),
            "omega": per_vertex(np.int64, 1),
            "mass": per_vertex(np.int64, 1),
            "cross": per_vertex(np.float64),
            "parent": per_vertex(np.int64, -1),
            "sequence": per_vertex(np.int64, -1),
            "child_of": per_remote(np.int64, -1),
        }
    if compression == "exact":
        state |= {
            "label": per_vertex(np.int64),
            "ghost_label": per_remote(np.int64),
            "component": per_vertex(np.float64),
            "component_mass": per_vertex(np.float64),
            "root": per_vertex(np.int64, -1),
            "root_unit": per_vertex(np.int64),
            "tree_part": per_vertex(np.float64),
        }
    for slot in range(slots):
        state |= {
            f"source_{slot}": per_subgraph(np.int64, -1),
            f"times_{slot}": per_subgraph(np.float64, 1.0),
            f"cut_{slot}": per_subgraph(np.int64),
            f"last_{slot}": per_subgraph(np.int64),
            f"distance_{slot}": per_vertex(np.float64, np.inf),
            f"sigma_{slot}": per_vertex(np.float64),
            f"power_{slot}": per_vertex(np.int32),
            f"scaled_{slot}": per_subgraph(np.bool_),
            f"delta_{slot}": per_vertex(np.float64),
            f"wait_{slot}": per_vertex(np.int32),
            f"ghost_{slot}": per_remote(np.float64, np.inf),
            f"heard_{slot}": per_remote(np.float64),
            f"heard_power_{slot}": per_remote(np.int32),
        }
    return state


def _exchange_names(work: Work) -> None:
    """Send units with arcs to a vertex its original number; rows in that order do not depend on the partitions."""
    arcs, n = work.batch.in_remotes(), max(1, work.batch.num_vertices)
    # As one number, because sorting pairs takes ten times as long.
    units, vertices = np.divmod(np.unique(arcs.subgraph * n + arcs.source), n)
    work.step.send_to_subgraph(
        units, kind=Kind.NAME, slot=0, sender=work.batch.start + vertices,
        value=work.batch.vertex_ids[vertices].astype(np.float64), other=0.0,
    )  # fmt: skip
    pivots.rank_vertices(work)
    work.enter(Phase.PREPARE)


def _prepare(work: Work) -> None:
    pivots.check_sources(work)
    batch, mail = work.batch, work.mail(Kind.NAME)
    order = np.lexsort((mail["sender"], mail["subgraph"]))
    batch["ghost_id"] = mail["value"][order].astype(np.int64)
    if work.compression == "none":
        _next_batch(work)
    else:
        leaf.leaves(work)


def _after_leaves(work: Work) -> None:
    if work.compression == "exact":
        leaf.labels(work)
    else:
        _next_batch(work)


def _after_sizes(work: Work) -> None:
    leaf.close(work)
    _next_batch(work)


def _next_batch(work: Work) -> None:
    if pivots.open_batch(work):
        _next_round(work)


def _take_turns(work: Work) -> None:
    if pivots.take_turns(work):
        _next_round(work)
    else:
        _next_batch(work)


def _next_round(work: Work) -> None:
    late = work.late and work.number("done") > 0
    if late:
        work.batch["drawn"] = work.number("done")
    if work.slots > 0 and not late:
        rounds.search(work)
    elif work.program.top is None or late:
        _finish(work)
    else:
        pivots.offer_top(work)


def _after_round(work: Work) -> None:
    rounds.close_round(work)
    _next_round(work)


def _decide(work: Work) -> None:
    if pivots.take_top(work) or work.late or work.number("drawn") >= pivots.most_pivots(work):
        _finish(work)
    else:
        _next_batch(work)


def _send_share(work: Work) -> None:
    """On the master: the share of the searches that is done, at least, for those who wait."""
    if work.is_master:
        work.step.aggregate("share_done", min(1.0, work.number("done") / max(1, pivots.most_pivots(work))))


def _watch_clock(work: Work) -> None:
    """On the master: notify all partitions, for the next superstep, when the time is up."""
    program = work.program
    if program.time_limit is not None and work.is_master:
        now = time.monotonic()
        begun = _begun.setdefault(program, now)
        if work.step.number == 1:
            begun = _begun[program] = now
        work.step.aggregate("late", now - begun >= program.time_limit)


def _finish(work: Work) -> None:
    """The answer, and what the run has counted."""
    batch, step, core = work.batch, work.step, work.core
    batch["betweenness"] = pivots.estimates(work)
    searches = max(1, work.number("searches"))
    for name in (*_COUNTS, *STAGES.values(), "searches", "rounds", "hops_max", "cut_max"):
        step.aggregate(name, work.number(name))
    removed = 0 if work.compression == "none" else int(np.count_nonzero(~batch["alive"]))
    step.aggregate("removed_vertices", removed)
    step.aggregate("removed_edges", removed)  # every one had a single edge left
    step.aggregate("pivots", work.number("drawn"))
    step.aggregate("hops_mean", work.number("hops_sum") / searches)
    step.aggregate("cut_mean", work.number("succ") / searches)
    step.aggregate("arcs", core.out.arcs.targets.size)
    step.aggregate("cut_arcs", core.out.cut)
    step.aggregate("most_arcs", core.out.arcs.targets.size)
    step.vote_to_halt()


def _stage(do: Callable[[Work], None], then: Callable[[Work], None]) -> Callable[[Work], None]:
    """Continue a stage as long as there are messages for it."""

    def run(work: Work) -> None:
        (then if work.ended else do)(work)

    return run


_DO: Mapping[Phase, Callable[[Work], None]] = {
    Phase.NAME: _exchange_names,
    Phase.PREPARE: _prepare,
    Phase.LEAVES: _stage(leaf.leaves, _after_leaves),
    Phase.LABELS: _stage(leaf.labels, leaf.send_totals),
    Phase.TOTALS: leaf.answer_totals,
    Phase.COMPONENTS: leaf.take_totals,
    Phase.SIZES: _stage(leaf.sizes, _after_sizes),
    Phase.DRAW: pivots.give_turns,
    Phase.GIVE: _take_turns,
    Phase.SEARCH: _stage(rounds.search, rounds.successors),
    Phase.SUCCESSORS: _stage(rounds.successors, rounds.paths),
    Phase.PATHS: _stage(rounds.paths, rounds.dependencies),
    Phase.DEPENDENCIES: _stage(rounds.dependencies, _after_round),
    Phase.MERGE: pivots.merge_top,
    Phase.DECIDE: _decide,
}

"""Pivots: their order, batches and turns, estimates from them and when to stop.

See docs/specs/betweenness.md, sections 3.4 to 3.6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.subgraph import compression as leaf
from goffish.algorithms.betweenness.subgraph.messages import Kind, Phase
from goffish.algorithms.betweenness.subgraph.steps import Work, places
from goffish.errors import InputError


def rank_vertices(work: Work) -> None:
    """The place of every vertex in the order of pivots: as listed, or in one random order of the whole graph."""
    batch, sources = work.batch, work.program.sources
    if sources is None:
        n = work.step.graph.num_vertices
        batch["rank"] = np.random.default_rng(work.program.seed).permutation(n)[batch.vertex_ids]
    else:
        batch["rank"] = places(batch.labels(), sources)
        work.step.aggregate("sources", np.count_nonzero(batch["rank"] >= 0))
        if work.compression != "none":
            batch["mass"] = batch["rank"] >= 0
    if work.compression == "exact":
        batch["omega"] = work.is_target
    batch["population"] = work.step.graph.num_vertices if sources is None else len(sources)


def check_sources(work: Work) -> None:
    """Fail the job when a source is no vertex."""
    sources = work.program.sources
    if sources is not None and work.step.aggregated("sources") != len(sources):
        missing = len(sources) - int(work.step.aggregated("sources") or 0)
        raise InputError(f"sources: {missing} of {len(sources)} are not vertices of this graph")


def most_pivots(work: Work) -> int:
    """Pivots of the whole run, unless the extraction stops before."""
    sources, population = work.program.sources, work.number("population")
    if sources is not None:
        return len(sources)
    return population if work.program.pivots is None else min(population, work.program.pivots)


def open_batch(work: Work) -> bool:
    """Take the next pivots; false where turns must first be asked for, by messages to the master."""
    batch, program = work.batch, work.program
    core_only = work.compression == "drop" and program.pivots_from == "core"
    if core_only and not batch["ranked"][0]:
        own = np.flatnonzero(batch["alive"])
        unit = batch.first_id + batch.subgraph_of_vertex()[own]
        _draw(work, batch.start + own, batch["rank"][own], unit, np.ones(own.size, np.int64))
        return False
    low, most = work.number("drawn"), most_pivots(work)
    high = most if program.top is None else min(most, low + program.batch)
    batch["drawn"] = high
    batch["done"] = low
    batch["round"] = 0
    rank = batch["rank"]
    chosen = (rank >= low) & (rank < high)
    if work.compression == "exact":
        chosen &= batch["root"] >= 0
        own = np.flatnonzero(chosen)
        root, first, which, times = np.unique(
            batch["root"][own], return_index=True, return_inverse=True, return_counts=True
        )
        least = np.full(root.size, np.iinfo(np.int64).max)
        np.minimum.at(least, which, rank[own])
        _draw(work, root, least, batch["root_unit"][own[first]], times)
        return False
    batch["turn"] = np.where(chosen, rank - low, -1)
    batch["times"] = 1.0
    batch["sources"] = high - low
    return True


def _draw(
    work: Work, root: NDArray[np.int64], rank: NDArray[np.int64], unit: NDArray[np.int64], times: NDArray[np.int64]
) -> None:
    work.step.send_to_subgraph(
        np.zeros(root.size, np.int64), kind=Kind.DRAW, slot=times.astype(np.int32), sender=root,
        value=rank.astype(np.float64), other=unit.astype(np.float64),
    )  # fmt: skip
    work.enter(Phase.DRAW)


def give_turns(work: Work) -> None:
    """On the master: every source once, in the order of ranks, with how often it was drawn."""
    mail = work.mail(Kind.DRAW)
    root, first, which = np.unique(mail["sender"], return_index=True, return_inverse=True)
    least = np.full(root.size, np.inf)
    np.minimum.at(least, which, mail["value"])
    times = np.bincount(which, mail["slot"], root.size).astype(np.int32)
    turn = np.empty(root.size)
    turn[np.argsort(least)] = np.arange(root.size)
    work.step.send_to_vertex(
        mail["other"][first].astype(np.int64), root, kind=Kind.GIVE, slot=times, sender=0, value=turn, other=0.0
    )
    if work.is_master:
        work.step.aggregate("sources", root.size)
    work.enter(Phase.GIVE)


def take_turns(work: Work) -> bool:
    """Take the turns in; false where they only ranked the core and a batch must be opened yet."""
    batch, mail = work.batch, work.mail(Kind.GIVE)
    count = int(work.step.aggregated("sources") or 0)
    core_only = work.compression == "drop"
    place = batch["rank"] if core_only else batch["turn"]
    place[:] = -1
    place[mail["vertex"]] = mail["value"].astype(np.int64)
    if core_only:
        batch["ranked"] = True
        batch["population"] = count
        return False
    batch["times"][mail["vertex"]] = mail["slot"]
    batch["sources"] = count
    return True


def estimates(work: Work) -> NDArray[np.float64]:
    """Equation (7), which is equation (6) once every vertex has been a pivot; shape (local vertices,).

    With sources listed they take the place of all vertices: nothing is scaled once all of them have been searched from.
    """
    batch = work.batch
    drawn = work.number("drawn")
    scale = work.number("population") / (drawn if batch.directed else 2 * drawn) if drawn else 0.0
    values: NDArray[np.float64] = batch["sum"] * scale
    if work.compression == "exact":
        values = values + batch["tree_part"]
        if work.program.endpoints:
            values += leaf.endpoint_part(work)
    return values


def _first(count: int, values: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The `count` largest, the smaller number first among equals."""
    candidates = np.arange(values.size)
    if count < values.size:
        candidates = np.flatnonzero(values >= np.partition(values, values.size - count)[values.size - count])
    return candidates[np.lexsort((ids[candidates], -values[candidates]))[:count]]


def offer_top(work: Work) -> None:
    """The partition's largest values to the master."""
    assert work.program.top is not None
    batch = work.batch
    values, ids = estimates(work), batch.vertex_ids.astype(np.int64)
    best = _first(work.program.top, values, ids)
    work.step.send_to_subgraph(
        np.zeros(best.size, np.int64), kind=Kind.TOPK, slot=batch.partition, sender=ids[best], value=values[best],
        other=batch["top"][best].astype(np.float64),
    )  # fmt: skip
    work.add("topk", 1)
    work.enter(Phase.MERGE)


def merge_top(work: Work) -> None:
    """On the master: the K largest of all, and whether the set has been the same for long enough."""
    program = work.program
    if work.is_master:
        assert program.top is not None
        mail = work.mail(Kind.TOPK)
        mail = mail[_first(program.top, mail["value"], mail["sender"])]
        changed = int(np.count_nonzero(mail["other"] == 0.0))
        stable = work.number("stable") + 1 if changed <= program.max_change else 0
        work.batch["stable"] = stable
        work.step.aggregate("stop", stable >= program.stable)
        work.to_partitions(mail["slot"], Kind.TOP, mail["sender"])
    work.enter(Phase.DECIDE)


def take_top(work: Work) -> bool:
    """Remember which vertices are in the set; whether to stop."""
    work.batch["top"] = np.isin(work.batch.vertex_ids, work.mail(Kind.TOP)["sender"])
    return bool(work.step.aggregated("stop"))

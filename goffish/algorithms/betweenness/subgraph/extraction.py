"""Estimates from the pivots so far, the K vertices with the largest ones, and when to stop (specification §3.5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.subgraph.messages import Kind
from goffish.algorithms.betweenness.subgraph.phases import Phase
from goffish.algorithms.betweenness.subgraph.steps import Work


def estimates(work: Work) -> NDArray[np.float64]:
    """Equation (7), which is equation (6) once every vertex has been a pivot; shape (local vertices,)."""
    batch = work.batch
    drawn = work.number("drawn")
    scale = work.number("population") / (drawn if batch.directed else 2 * drawn) if drawn else 0.0
    values: NDArray[np.float64] = batch["sum"] * scale
    return values + batch["tree_part"] if work.compression == "exact" else values


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

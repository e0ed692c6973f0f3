"""Removal of single points of failure, block by block. See docs/specs/selective-replication.md, section 3.6.

A block is the set of operators to replicate so that the crash of one host does not break one query; replicating a part
of it gains nothing against that host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from goffish.scheduling.policies.replication.model import SLACK, Floats, Ints, Places, System, primaries
from goffish.scheduling.policies.replication.placement import Placed, Strategy, place_copies


class Block(NamedTuple):
    """Operators without a replica, all on one host, and the weight of the queries that require exactly these."""

    host: int
    operators: frozenset[int]
    weight: float


def blocks_of(found: System, places: Places, weights: Floats | None = None) -> list[Block]:
    """All blocks of a plan; equal blocks of several queries are merged."""
    weights = found.weights if weights is None else weights
    single = places.sum(axis=1) == 1
    home = places.argmax(axis=1)
    merged: dict[tuple[int, frozenset[int]], float] = {}
    for query, operators in enumerate(found.queries):
        by_host: dict[int, list[int]] = {}
        for operator in operators[single[operators]].tolist():
            by_host.setdefault(int(home[operator]), []).append(operator)
        for host, some in by_host.items():
            key = (host, frozenset(some))
            merged[key] = merged.get(key, 0.0) + float(weights[query])
    return [Block(host, some, weight) for (host, some), weight in merged.items()]


class _Candidate(NamedTuple):
    score: float
    load: float
    operators: tuple[int, ...]


def spof_order(found: System, budget: float, places: Places | None = None) -> Ints:
    """Operators to replicate within a budget, so that the most likely crashes break the fewest queries.

    Parameters
    ----------
    budget : float
        Maximum added load.
    places : bool, shape (operators, hosts), optional
        Running instances; default: primaries.

    Returns
    -------
    int64
        In the order of selection.
    """
    blocks = blocks_of(found, primaries(found) if places is None else places)
    by_host: dict[int, dict[frozenset[int], float]] = {}
    for host, some, weight in blocks:
        # The host of a pinned operator remains a single point of failure in any case.
        if not found.pinned[list(some)].any():
            by_host.setdefault(host, {})[some] = weight
    ranking = {host: _scored(found, host, some) for host, some in by_host.items()}
    chosen: list[int] = []
    left = budget
    while True:
        best: tuple[float, int, _Candidate] | None = None
        for host, candidates in ranking.items():
            fitting = next((one for one in candidates if one.load <= left + SLACK), None)
            if fitting is not None and (best is None or (fitting.score, -host) > (best[0], -best[1])):
                best = (fitting.score, host, fitting)
        if best is None or left < -SLACK:
            return np.array(chosen, np.int64)
        _, host, taken = best
        chosen += sorted(taken.operators, key=lambda o: (found.loads[o], o))
        left -= taken.load
        rest: dict[frozenset[int], float] = {}
        for some, weight in by_host[host].items():
            missing = some - set(taken.operators)
            if missing:
                rest[missing] = rest.get(missing, 0.0) + weight
        by_host[host] = rest
        ranking[host] = _scored(found, host, rest)


def _scored(found: System, host: int, blocks: dict[frozenset[int], float]) -> list[_Candidate]:
    """Blocks of a host by gain per unit of load, the best first."""
    scored = []
    for some in blocks:
        load = float(sum(found.loads[o] for o in sorted(some)))
        gain = float(found.failures[host]) * sum(weight for other, weight in blocks.items() if other <= some)
        scored.append(_Candidate(gain / load if load > 0 else np.inf, load, tuple(sorted(some))))
    return sorted(scored, key=lambda one: (-one.score, one.load, one.operators))


def spof_plan(found: System, budget: float, strategy: Strategy = "mirror", places: Places | None = None) -> Placed:
    """Replicate operators in `spof_order`; the load of operators without a host is used for other blocks, once."""
    begun = primaries(found) if places is None else places
    done = place_copies(found, begun, spof_order(found, budget, begun), strategy)
    if not done.unplaced:
        return done
    left = budget - float(found.loads @ (done.places.sum(axis=1) - begun.sum(axis=1)))
    again = [o for o in spof_order(found, left, done.places).tolist() if o not in set(done.unplaced)]
    return Placed(place_copies(found, done.places, np.array(again, np.int64), strategy).places, done.unplaced)

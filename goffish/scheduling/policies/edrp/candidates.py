"""Candidate deployments of the program: multisets of hosts for each PE.

See docs/specs/edrp.md, sections 2.3, 3.2 and 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import SLACK, Floats
from goffish.scheduling.policies.edrp import kernels
from goffish.scheduling.policies.edrp.problem import Ints, Problem

#: Candidates of one PE, one per row, shape (candidates, hosts).
Candidates = list[Ints]


def multiset_count(hosts: int, most: int) -> int:
    """Number of multisets of at least one and at most `most` of this number of hosts."""
    return math.comb(hosts + most, most) - 1


def multisets(hosts: Sequence[int], most: int, total: int) -> Ints:
    """All multisets by size, then lexicographically, as counts on `total` hosts, shape (multisets, total)."""
    rows = [chosen for size in range(1, most + 1) for chosen in combinations_with_replacement(sorted(hosts), size)]
    found = np.zeros((len(rows), total), np.int64)
    sizes = np.array([len(row) for row in rows], np.int64)
    columns = np.array([host for row in rows for host in row], np.int64)
    np.add.at(found, (np.repeat(np.arange(len(rows)), sizes), columns), 1)
    return found


def neighbours(current: Ints, hosts: Sequence[int], most: int) -> Ints:
    """Deployments one step away: unchanged, one replica more, one less, or one moved (§3.4)."""
    size, held = int(current.sum()), np.flatnonzero(current).tolist()
    step = np.eye(current.size, dtype=np.int64)
    found = [current] if size else []
    if size < most:
        found += [current + step[v] for v in hosts]
    if size > 1:
        found += [current - step[u] for u in held]
    found += [current - step[u] + step[v] for u in held for v in hosts if u != v]
    return _ordered(np.array(found, np.int64))


def _ordered(rows: Ints) -> Ints:
    """Distinct rows by size, then lexicographically as sorted lists of hosts."""
    rows = np.unique(rows, axis=0)[::-1]
    return np.ascontiguousarray(rows[np.argsort(rows.sum(axis=1), kind="stable")])


def all_candidates(problem: Problem, *, limit: int = 1_000_000) -> Candidates:
    """Every multiset of the hosts of each PE that can hold a replica.

    Raises
    ------
    InputError
        If a PE has more than `limit` candidates.
    """
    found = []
    for i in range(problem.size):
        hosts, most = _hosts(problem, i), int(problem.most[i])
        if multiset_count(len(hosts), most) > limit:
            raise InputError(
                f"processing element {problem.flow.names[i]}: {multiset_count(len(hosts), most)} deployments; at most "
                f"{limit} are listed: plan from a current deployment, or with the heuristic"
            )
        found.append(multisets(hosts, most, problem.hosts.size))
    return found


def near_candidates(problem: Problem, twice: Sequence[int] = ()) -> Candidates:
    """Deployments one step from the current one, or two steps for the PEs in `twice`."""
    if problem.current is None:
        raise InputError("the restricted problem requires a current deployment")
    found = []
    for i, row in enumerate(np.asarray(problem.current, np.int64)):
        hosts, most = _hosts(problem, i), int(problem.most[i])
        near = neighbours(row, hosts, most)
        if i in twice:
            near = _ordered(np.concatenate([neighbours(one, hosts, most) for one in near]))
        found.append(near)
    return found


def _hosts(problem: Problem, i: int) -> list[int]:
    needs, found = problem.flow.needs, problem.hosts
    room = (found.cores >= needs.cores[i] - SLACK) & (found.memory_mb >= needs.memory_mb[i] - SLACK)
    return np.flatnonzero(problem.allowed[i] & room).tolist()


def latencies_of(problem: Problem, i: int, rows: Ints) -> Floats:
    """Latency of PE i in each candidate, seconds (Eq. 1)."""
    sizes = np.minimum(rows.sum(axis=1), problem.table.shape[1] - 1)
    return np.asarray(np.where(rows > 0, problem.table[i][sizes], 0.0).max(axis=1, initial=0.0))


def usable(problem: Problem, candidates: Candidates, *, relaxed: bool = False) -> Candidates:
    """Candidates that can be part of a solution (§3.2): stable, within all bounds, and with enough capacity.

    `relaxed`: ignore bounds, and check stability and capacity only.
    """
    bounds, needs, found = problem.bounds, problem.flow.needs, problem.hosts
    kept = []
    for i, rows in enumerate(candidates):
        latency = latencies_of(problem, i, rows)
        good = np.isfinite(latency) & (rows.sum(axis=1) <= problem.most[i])
        for need, room in ((needs.cores[i], found.cores), (needs.memory_mb[i], found.memory_mb)):
            good &= (rows * need <= room * (1 + SLACK) + SLACK).all(axis=1)
        if not relaxed:
            good &= latency <= bounds.response_s * (1 + SLACK)
            good &= rows.sum(axis=1) * problem.model.elements[kernels.UNIT_PRICE, i] <= bounds.price * (1 + SLACK)
            downtime = kernels.element_downtimes(problem.model, i, np.ascontiguousarray(rows))
            good &= downtime <= bounds.downtime_s * (1 + SLACK)
        kept.append(np.ascontiguousarray(rows[good]))
    return kept


def without_dominated(problem: Problem, candidates: Candidates) -> Candidates:
    """Remove candidates that are dominated by another candidate with one replica less.

    The other candidate uses no more of any host, so only its latency, its downtime, and the mean price of traffic to
    and from every host are compared. Exact: at least one optimum remains.
    """
    traffic = problem.hosts.traffic_prices
    kept = []
    for i, rows in enumerate(candidates):
        if not len(rows):
            kept.append(rows)
            continue
        mean = rows / rows.sum(axis=1, keepdims=True)
        figures = np.column_stack(
            (
                latencies_of(problem, i, rows),
                kernels.element_downtimes(problem.model, i, np.ascontiguousarray(rows)),
                mean @ traffic,
                mean @ traffic.T,
            )
        )
        number = {row.tobytes(): at for at, row in enumerate(np.ascontiguousarray(rows))}
        good = np.ones(len(rows), np.bool_)
        for at, row in enumerate(rows):
            for host in np.flatnonzero(row):
                less = row.copy()
                less[host] -= 1
                other = number.get(less.tobytes())
                if other is not None and (figures[other] <= figures[at]).all():
                    good[at] = False
                    break
        kept.append(np.ascontiguousarray(rows[good]))
    return kept


def twins(problem: Problem) -> list[list[int]]:
    """Groups of two or more hosts that are interchangeable in the problem."""
    model, found = problem.model, problem.hosts
    # The number of running replicas on a host also distinguishes it.
    each = np.delete(model.hosts, kernels.OCCUPIED, axis=0)
    alike = np.vstack((each, found.speeds, problem.allowed, model.current))
    links = model.pairs
    groups: list[list[int]] = []
    for host in range(found.size):
        for group in groups:
            first = group[0]
            others = np.ones(found.size, np.bool_)
            others[[host, first]] = False
            if np.array_equal(alike[:, host], alike[:, first]) and all(
                np.array_equal(pairs[host, others], pairs[first, others])
                and np.array_equal(pairs[others, host], pairs[others, first])
                and pairs[host, first] == pairs[first, host]
                for pairs in links
            ):
                group.append(host)
                break
        else:
            groups.append([host])
    return [group for group in groups if len(group) > 1]


def without_symmetric(candidates: Candidates, groups: list[list[int]]) -> tuple[Candidates, int]:
    """Remove candidates of one PE that equal others with interchangeable hosts swapped.

    Its counts must not rise from one twin to the next. Exact for a single PE, so the PE with the most candidates is
    chosen. Also returns its number, -1 without twins.
    """
    if not groups:
        return candidates, -1
    chosen = int(np.argmax([len(rows) for rows in candidates]))
    good = np.ones(len(candidates[chosen]), np.bool_)
    for group in groups:
        good &= (np.diff(candidates[chosen][:, group], axis=1) <= 0).all(axis=1)
    kept = list(candidates)
    kept[chosen] = np.ascontiguousarray(candidates[chosen][good])
    return kept, chosen


def canonical(counts: Ints, groups: list[list[int]], chosen: int) -> Ints:
    """The same placement with twins exchanged so that the counts of the chosen PE do not rise."""
    found = counts.copy()
    for group in groups:
        order = sorted(group, key=lambda host: (-int(counts[chosen, host]), host))
        found[:, group] = counts[:, order]
    return found


def pair_delays(first: Ints, second: Ints, delays: NDArray[np.float64]) -> Floats:
    """Delay between all pairs of candidates of two PEs, seconds (Eq. 3)."""
    return np.asarray(kernels.stream_delays(delays, first, second))


def pair_prices(first: Ints, second: Ints, traffic: NDArray[np.float64], rate: float) -> Floats:
    """Price of the stream between all pairs of candidates (Eq. 4)."""
    share = (first / first.sum(axis=1, keepdims=True)) @ traffic @ (second / second.sum(axis=1, keepdims=True)).T
    return np.asarray(rate * share)


def program_size(candidates: Candidates, sources: Ints, targets: Ints) -> int:
    """Number of variables of the program: one per candidate, and one per pair of candidates along an edge."""
    sizes = [len(rows) for rows in candidates]
    return sum(sizes) + sum(sizes[int(u)] * sizes[int(v)] for u, v in zip(sources, targets, strict=True))

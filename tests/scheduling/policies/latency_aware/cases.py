"""Problems for the tests of latency-aware placement, and scores that share no code with the package."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from goffish.scheduling.policies.latency_aware.score import PlacementProblem


def chain_of_three(capacity: float = 100.0) -> PlacementProblem:
    """The chain of docs/specs/latency-aware.md, section 7.2."""
    return PlacementProblem(
        edges=[(0, 1), (1, 2)],
        events=[100.0, 50.0],
        cpu=[40.0] * 3,
        memory=[128.0] * 3,
        cpu_capacity=[capacity] * 2,
        memory_capacity=[1024.0] * 2,
        latency_ms=[[0.0, 4.0], [4.0, 0.0]],
    )


def tiny_problem(seed: int) -> PlacementProblem:
    """As in 7.1: 4 to 6 operators (a chain and random forward edges) on 3 or 4 hosts, all figures random."""
    rng = np.random.default_rng([7, seed])
    operators, hosts = int(rng.integers(4, 7)), int(rng.integers(3, 5))
    edges = [(a, b) for a, b in itertools.combinations(range(operators), 2) if b == a + 1 or rng.random() < 0.3]
    latency = np.triu(rng.uniform(0.5, 20.0, (hosts, hosts)), 1)
    return PlacementProblem(
        edges=edges,
        events=rng.uniform(1.0, 100.0, len(edges)),
        cpu=rng.uniform(10.0, 50.0, operators),
        memory=rng.uniform(64.0, 512.0, operators),
        cpu_capacity=rng.choice([100.0, 150.0], hosts),
        memory_capacity=rng.choice([512.0, 1024.0, 2048.0], hosts),
        latency_ms=latency + latency.T,
    )


@st.composite
def problems(
    draw: st.DrawFn, most_operators: int = 7, most_hosts: int = 4, cyclic: type[PlacementProblem] | None = None
) -> PlacementProblem:
    """Random problems: asymmetric latencies, forbidden hosts, idle edges; with cycles if `cyclic` is given."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    operators, hosts = int(rng.integers(1, most_operators + 1)), int(rng.integers(1, most_hosts + 1))
    names = rng.permutation(operators).tolist()
    forward_only = cyclic is None or rng.random() < 0.5
    pairs = [(a, b) for a in range(operators) for b in range(operators) if a < b or not forward_only]
    edges = [(names[a], names[b]) for a, b in pairs if rng.random() < 0.35]
    latency = rng.integers(0, 20, (hosts, hosts)).astype(float)
    np.fill_diagonal(latency, 0.0)
    allowed = rng.random((operators, hosts)) < 0.8
    allowed[np.arange(operators), rng.integers(0, hosts, operators)] = True
    return (cyclic or PlacementProblem)(
        edges=edges,
        events=rng.integers(0, 4, len(edges)).astype(float),
        cpu=rng.integers(0, 80, operators).astype(float),
        memory=rng.integers(0, 600, operators).astype(float),
        cpu_capacity=rng.choice([60.0, 100.0, 150.0, np.inf], hosts),
        memory_capacity=rng.choice([512.0, 1024.0, np.inf], hosts),
        latency_ms=latency,
        allowed=allowed,
    )


def placements(problem: PlacementProblem) -> st.SearchStrategy[list[int]]:
    """Any placement of a problem."""
    return st.lists(st.integers(0, problem.size - 1), min_size=problem.operators, max_size=problem.operators)


def slow_score(problem: PlacementProblem, place: list[int]) -> tuple[float, int, float]:
    """Score, violations and overload, from their definitions and enumerated paths."""
    edges = [tuple(edge) for edge in problem.edges.tolist()]
    rank = {v: at for at, v in enumerate(problem.order.tolist())}
    graph = nx.DiGraph([(a, b) for a, b in edges if rank[a] < rank[b]])
    ms = problem.latency_ms
    ends = [v for v in graph if not graph.out_degree(v)]
    paths = [
        path
        for s in graph
        if not graph.in_degree(s)
        for e in ends
        for path in nx.all_simple_paths(graph, s, e)
    ]  # fmt: skip
    latency = max((sum(ms[place[a], place[b]] for a, b in itertools.pairwise(path)) for path in paths), default=0.0)
    apart = [place[a] != place[b] for a, b in edges]
    total = float(sum(problem.events))
    value = 1e-6 * latency + len(set(place)) / problem.size
    value += sum(apart) / len(edges) if edges else 0.0
    value += sum(t for t, cut in zip(problem.events, apart, strict=True) if cut) / total if total else 0.0
    violations = sum(not problem.allowed[o, j] for o, j in enumerate(place))
    overload = float(violations)
    for need, room in ((problem.cpu, problem.cpu_capacity), (problem.memory, problem.memory_capacity)):
        for host in range(problem.size):
            used, limit = sum(need[o] for o in range(len(place)) if place[o] == host), 0.95 * room[host]
            if used > limit + 1e-9 * limit:
                violations += 1
                overload += (used - limit) / limit
    return value, violations, overload


def best_placement(problem: PlacementProblem) -> tuple[float, tuple[int, ...]] | None:
    """The lowest score without violations, by trying all placements."""
    found = []
    for place in itertools.product(range(problem.size), repeat=problem.operators):
        value, violations, _ = slow_score(problem, list(place))
        if not violations:
            found.append((value, place))
    return min(found, default=None)

"""Systems of shared queries, drawn as docs/specs/selective-replication.md, section 4.1, says."""

from __future__ import annotations

import numpy as np

from experiments.replication.queries import Operator, SharedQueries
from goffish.scheduling.policies.replication.model import Network, System, system

_SHAPES = ("filter", "aggregate", "projected", "join", "sequence")
_SHAPE_WEIGHTS = np.array([2.0, 2.0, 1.0, 1.0, 1.0]) / 7.0


class _Drawn:
    """Parameters of operators, drawn once and then shared by all queries that use them."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        popularity = np.arange(1, 41) ** -0.8
        self.popularity = popularity / popularity.sum()
        self.rates = rng.uniform(0.5, 1.5, 40)
        self.costs: dict[tuple[object, ...], tuple[float, float]] = {}

    def source(self) -> int:
        return int(self.rng.choice(40, p=self.popularity))

    def operator(self, kind: str, parameter: int, inputs: tuple[int, ...], keys: tuple[object, ...]) -> Operator:
        """One operator; `keys` say what it reads, so that equal ones have equal costs."""
        key = (kind, parameter, *keys)
        if key not in self.costs:
            ranges = {"filter": (0.1, 0.9), "aggregate": (0.05, 0.3), "join": (0.2, 0.8), "sequence": (0.1, 0.5)}
            low, high = ranges.get(kind, (1.0, 1.0))
            self.costs[key] = (float(self.rng.exponential(1.0)), float(self.rng.uniform(low, high)))
        cost, selectivity = self.costs[key]
        rate = float(self.rates[parameter]) if kind == "source" else 0.0
        return Operator(kind, parameter, inputs, cost=0.1 * cost, selectivity=selectivity, rate=rate)


def _query(drawn: _Drawn) -> tuple[Operator, ...]:
    rng, made = drawn.rng, list[Operator]()
    keys: list[tuple[object, ...]] = []

    def add(kind: str, parameter: int, *inputs: int) -> int:
        read = tuple(keys[at] for at in inputs)
        made.append(drawn.operator(kind, parameter, inputs, read))
        keys.append((kind, parameter, *read))
        return len(made) - 1

    shape = str(rng.choice(_SHAPES, p=_SHAPE_WEIGHTS))
    first = add("source", drawn.source())
    last = add("filter", int(rng.integers(6)), first)
    if shape == "projected":
        last = add("projection", int(rng.integers(2)), last)
    if shape in ("aggregate", "projected"):
        last = add("aggregate", int(rng.integers(4)), last)
    if shape == "join":
        other = add("filter", int(rng.integers(6)), add("source", drawn.source()))
        last = add("join", int(rng.integers(4)), last, other)
    if shape == "sequence":
        last = add("sequence", int(rng.integers(4)), last, add("filter", int(rng.integers(6)), first))
    # Destinations are never shared, so each has a cost of its own.
    destination = Operator("destination", None, (last,), cost=0.1 * float(rng.exponential(1.0)))
    return (*made, destination)


def paper_system(
    rng: np.random.Generator, *, failure: float = 0.02, budget: float = 0.0, load: float = 100.0
) -> System:
    """A system of the evaluation: queries until their load would exceed `load`, unit hosts, spare ones behind them.

    Parameters
    ----------
    failure : float
        Of every host.
    budget : float
        Load of replicas; for it there are further hosts, as `with_budget` says.
    """
    drawn, shared = _Drawn(rng), SharedQueries()
    total = 0.0
    while True:
        name = shared.add(_query(drawn))
        total = sum(_clamped(one) for one in shared.loads())
        if total > load:
            shared.remove(name)
            break
    loads = [_clamped(one) for one in shared.loads()]
    primary = _first_fit(loads, shared.edges(), shared.query_operators())
    hosts = max(primary) + 1
    base = system(
        loads,
        primary,
        shared.query_operators(),
        np.full(hosts, failure),
        np.ones(hosts),
        network=Network(shared.traffic()),
    )
    return with_budget(base, budget, failure)


def with_budget(base: System, budget: float, failure: float) -> System:
    """The same primaries, and as many empty unit hosts as the budget (rounded up), and one more."""
    more = 0 if budget <= 0 else int(np.ceil(budget)) + 1
    hosts = int(base.primary.max()) + 1 + more
    return system(
        base.loads, base.primary, base.queries, np.full(hosts, failure), np.ones(hosts),
        network=Network({(u, v): t for (u, v), t in zip(base.edges.tolist(), base.traffic.tolist(), strict=True)}),
    )  # fmt: skip


def _clamped(load: float) -> float:
    return min(max(load, 0.002), 0.9)


def _first_fit(loads: list[float], edges: list[tuple[int, int]], queries: list[list[int]]) -> list[int]:
    """Operators in the order of queries, next to most neighbours, on unit hosts."""
    near: list[list[int]] = [[] for _ in loads]
    for u, v in edges:
        near[u].append(v)
        near[v].append(u)
    home, left = [-1] * len(loads), list[float]()
    for operator in dict.fromkeys(o for some in queries for o in some):
        counts: dict[int, int] = {}
        for other in near[operator]:
            if home[other] >= 0:
                counts[home[other]] = counts.get(home[other], 0) + 1
        fitting = [host for host, room in enumerate(left) if room >= loads[operator] - 1e-9]
        if not fitting:
            left.append(1.0)
            fitting = [len(left) - 1]
        best = min(fitting, key=lambda host: (-counts.get(host, 0), host))
        home[operator] = best
        left[best] -= loads[operator]
    return home


def small_system(rng: np.random.Generator) -> System:
    """One of the small instances that every plan can be compared on with the optimum (§7.3, Y7)."""
    operators, hosts = int(rng.integers(6, 9)), 4
    loads = rng.choice([0.05, 0.1, 0.15, 0.2, 0.3, 0.4], operators)
    room, primary = np.full(hosts, 1.2), np.zeros(operators, np.int64)
    for operator in range(operators):
        fitting = np.flatnonzero(room >= loads[operator])
        primary[operator] = rng.choice(fitting)
        room[primary[operator]] -= loads[operator]
    queries = [rng.choice(operators, int(rng.integers(2, 5)), replace=False).tolist() for _ in range(3)]
    return system(loads, primary, queries, rng.choice([0.01, 0.02, 0.05], hosts), np.full(hosts, 1.2))

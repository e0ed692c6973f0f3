"""The formulas word by word, on dictionaries: all paths, all pairs of replicas, all deployments.

See docs/specs/edrp.md, section 2.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise, product

import numpy as np

from goffish.scheduling.policies.edrp.problem import Problem

Bag = Counter[int]


def bags(hosts: list[int], most: int) -> Iterator[Bag]:
    for size in range(1, most + 1):
        for chosen in combinations_with_replacement(hosts, size):
            yield Counter(chosen)


def bag(row: np.ndarray) -> Bag:
    return Counter({u: int(n) for u, n in enumerate(row) if n})


class Oracle:
    """Metrics of one instance."""

    def __init__(self, problem: Problem) -> None:
        self.p, self.hosts = problem, problem.hosts
        flow = problem.flow
        self.edges = [
            (int(flow.pred[at]), v, float(problem.edge_rates[at]))
            for v in range(flow.size) for at in range(flow.pred_offsets[v], flow.pred_offsets[v + 1])
        ]  # fmt: skip
        self.d, self.c = problem.hosts.latencies_s, problem.hosts.traffic_prices
        self.now = None if problem.current is None else [bag(row) for row in problem.current]
        self.trip, self.up, self.down = (
            given.tolist() for given in (self.hosts.store_latency_ms, self.hosts.to_store, self.hosts.from_store)
        )

    def paths(self) -> Iterator[list[int]]:
        """Every path from a source to a sink."""
        fed = {v for _, v, _ in self.edges}
        stack = [[i] for i in range(self.p.size) if i not in fed]
        while stack:
            path = stack.pop()
            after = [v for u, v, _ in self.edges if u == path[-1]]
            if not after:
                yield path
            stack += [[*path, v] for v in after]

    def latency(self, i: int, bag: Bag) -> float:
        load = self.p.skew * float(self.p.input_rates[i]) / bag.total()
        mu, worst = self.p.latencies[i].rate, 0.0
        for u in bag:
            speed = self.hosts.speeds[u]
            able = mu * speed if self.p.scale_rates else mu
            if load >= able:
                return math.inf
            worst = max(worst, 1 / (able - load) if self.p.scale_rates else 1 / (mu - load) / speed)
        return worst

    def move(self, bits: float, host: int, rates: list[float]) -> float:
        if bits == 0 and not self.p.reconfiguration.literal:
            return 0.0
        return 2 * self.trip[host] / 1000 + bits / rates[host] / 1e6

    def downtime(self, i: int, after: Bag) -> float:
        before, change = self.now[i], self.p.reconfiguration
        if before == after:
            return 0.0
        return change.sync_s + (self.storm(i, before, after) if change.storm else self.general(i, before, after))

    def general(self, i: int, old: Bag, new: Bag) -> float:
        state, code = self.p.flow.needs.state_mb[i] * 8e6, self.p.flow.needs.code_mb[i] * 8e6
        literal, a, b = self.p.reconfiguration.literal, old.total(), new.total()
        found = []
        for u, v in product(old, new):
            if u == v:
                continue
            up, down = max(old[u] - new[u], 0) / a, max(new[v] - old[v], 0) / b
            if b > a:
                up += (old[u] if literal else min(old[u], new[u])) * (b - a) / (a * b)
            if b < a:
                down += min(old[v], new[v]) * (a - b) / (a * b)
            first = max(self.move(code, v, self.down) if old[v] == 0 else 0.0, self.move(state * up, u, self.up))
            found.append(first + self.move(state * down, v, self.down) + self.start(v) * (new[v] > old[v]))
        if not literal:
            found += [self.start(v) for v in new if new[v] > old[v]]
        return max(found, default=0.0)

    def start(self, v: int) -> float:
        return self.hosts.startup_s[v]

    def storm(self, i: int, old: Bag, new: Bag) -> float:
        needs, local = self.p.flow.needs, self.p.reconfiguration.local_mbit_s * 1e6
        state, code = needs.state_mb[i] * 8e6, float(needs.code_mb.sum()) * 8e6
        here = {u for bag in self.now for u in bag}
        found = [
            (0.0 if v in here else self.move(code, v, self.down))
            + self.move(state * (old[u] / old.total()), u, self.up)
            + self.move(state * (new[v] / new.total()), v, self.down) + new[v] * self.start(v)
            for u, v in product(old, new) if u != v
        ]  # fmt: skip
        if not found and not self.p.reconfiguration.literal:
            found = [
                state * (old[v] / old.total() + new[v] / new.total()) / local + new[v] * self.start(v) for v in new
            ]
        return max(found, default=0.0)

    def restart(self, i: int) -> float:
        old, local = self.now[i], self.p.reconfiguration.local_mbit_s * 1e6
        state = self.p.flow.needs.state_mb[i] * 8e6
        longest = max(2 * state * old[u] / old.total() / local + old[u] * self.start(u) for u in old)
        return self.p.reconfiguration.sync_s + longest

    def metrics(self, plan: list[Bag]) -> tuple[float, float, float, float]:
        """Response time, price, downtime, availability."""
        p, longest = self.p, 0.0
        for path in self.paths():
            hops = pairwise(path)
            total = sum(self.latency(i, plan[i]) for i in path)
            total += sum(max(self.d[u, v] for u, v in product(plan[i], plan[j])) for i, j in hops)
            longest = max(longest, total)
        price = sum(plan[i].total() * p.unit_price[i] * p.flow.needs.cores[i] for i in range(p.size))
        for i, j, rate in self.edges:
            replicas = product(plan[i].elements(), plan[j].elements())
            price += sum(rate / (plan[i].total() * plan[j].total()) * self.c[u, v] for u, v in replicas)
        used = {u for bag in plan for u in bag}
        if p.host_price is not None:
            price += sum(p.host_price[u] for u in used)
        downtime, available = 0.0, 1.0
        if self.now is not None:
            downtime = max(self.downtime(i, plan[i]) for i in range(p.size))
            if p.reconfiguration.storm and plan != self.now:
                downtime = max(downtime, *(self.restart(i) for i in range(p.size)))
        for some in plan:
            available *= math.prod(1 - self.hosts.failures[u] for u in some)
        if p.link_availability is not None:
            for i, j, _ in self.edges:
                available *= math.prod(p.link_availability[u, v] for u, v in product(plan[i], plan[j]) if u != v)
        return longest, float(price), downtime, available

    def objective(self, found: tuple[float, float, float, float]) -> float:
        """Eq. 12; infinite if a bound is violated."""
        w, b, (response, price, downtime, available) = self.p.weights, self.p.bounds, found
        if response > b.response_s or price > b.price or downtime > b.downtime_s:
            return math.inf
        if b.availability is not None and available < b.availability:
            return math.inf
        value = w.response * response / b.response_s + w.price * price / b.price
        value += w.downtime * downtime / b.downtime_s if self.now is not None else 0.0
        return value + (w.availability * math.log(available) / math.log(b.availability) if b.availability else 0.0)

    def fits(self, plan: list[Bag]) -> bool:
        needs = self.p.flow.needs
        for u in range(self.hosts.size):
            if sum(bag[u] * needs.cores[i] for i, bag in enumerate(plan)) > self.hosts.cores[u] + 1e-9:
                return False
            if sum(bag[u] * needs.memory_mb[i] for i, bag in enumerate(plan)) > self.hosts.memory_mb[u] + 1e-9:
                return False
        return True

    def best(self, near: bool = False) -> float:
        """By trying all deployments; `near`: only one step from the current one, by the prose of §3.4."""
        choices = []
        for i in range(self.p.size):
            some = list(bags(np.flatnonzero(self.p.allowed[i]).tolist(), int(self.p.most[i])))
            if near:
                now = self.now[i]
                some = [
                    bag for bag in some
                    if max((bag - now).total(), (now - bag).total()) <= 1
                ]  # fmt: skip
            choices.append([bag for bag in some if math.isfinite(self.latency(i, bag))])
        values = (self.objective(self.metrics(list(plan))) for plan in product(*choices) if self.fits(list(plan)))
        return min(values, default=math.inf)

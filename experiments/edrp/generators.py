"""Instances: the reference application on fifteen hosts, those of the scalability table, and random ones.

See docs/specs/edrp.md, sections 3.9, 4 and 7.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.hosts import HostColumns, host_columns
from goffish.scheduling.dataflow.model import Dataflow, Element
from goffish.scheduling.dataflow.needs import Needs
from goffish.scheduling.policies.edrp.problem import (
    Bounds,
    Problem,
    Reconfiguration,
    Weights,
    problem_of,
)

#: Name, served messages a second, state in bytes, whether it may have replicas.
ELEMENTS = (
    ("source", 284.0, 82, False), ("parser", 233.0, 0, True), ("filter", 253.0, 0, True), ("route", 253.0, 0, True),
    ("metronome", 300.0, 328, False), ("count", 335.0, 1376, True), ("partial", 2371.0, 1536, True),
    ("global", 3000.0, 480, False),
)  # fmt: skip
EDGES = (
    ("source", "parser"), ("parser", "filter"), ("filter", "route"), ("route", "count"), ("count", "partial"),
    ("partial", "global"), ("filter", "metronome"), ("metronome", "count"), ("metronome", "global"),
)  # fmt: skip
#: Messages that countByWindow sends for one.
SIGMA = 21.3
#: Price of an hour of one message a second between two hosts (§6.3).
TRAFFIC_PRICE = 3e-5
#: Milliseconds between the fifteen hosts, above the diagonal (§7.3).
DELAYS_MS = (
    (48.2, 33.1, 30.4, 38.8, 57.0, 59.8, 20.4, 6.2, 60.3, 14.8, 58.1, 25.1, 29.5, 30.8),
    (15.1, 35.1, 48.0, 8.8, 11.6, 27.8, 42.0, 12.0, 39.5, 9.9, 29.2, 41.7, 18.5),
    (19.9, 32.9, 23.9, 26.7, 12.6, 26.9, 27.2, 24.3, 25.0, 14.0, 26.6, 3.4),
    (46.1, 43.9, 46.7, 9.9, 24.1, 47.1, 37.5, 45.0, 27.2, 39.8, 16.6),
    (56.8, 59.6, 39.8, 45.0, 60.1, 23.9, 57.9, 18.9, 9.3, 29.5),
    (20.3, 36.6, 50.8, 20.8, 48.2, 5.3, 37.9, 50.5, 27.3),
    (39.4, 53.6, 6.5, 51.0, 21.4, 40.7, 53.3, 30.1),
    (14.2, 39.8, 31.3, 37.7, 21.0, 33.5, 10.3),
    (54.1, 21.1, 51.9, 31.4, 35.7, 24.6),
    (51.5, 21.9, 41.2, 53.8, 30.6),
    (49.4, 10.3, 14.6, 21.0),
    (39.1, 51.6, 28.4),
    (12.5, 10.7),
    (23.2,),
)


def taxi_flow(rate: float, *, most: int = 2, pinned: bool = True, cores: float = 1.0) -> Flow:
    """The first query of the DEBS 2015 Grand Challenge at a rate of its source.

    Parameters
    ----------
    rate : float
        Messages per second.
    most : int
        Replicas of elements that may have several.
    pinned : bool
        Source and globalRank have their hosts, "4" and "8".
    """
    hosts = {"source": ("4",), "global": ("8",)} if pinned else {}
    # The metronome sends one message a minute and partialRank one a second, whatever comes in; what the metronome
    # sends makes countByWindow send nothing more.
    sent = {
        "metronome": 1.0 / 60.0 / rate,
        "count": SIGMA * rate / (rate + 1.0 / 60.0),
        "partial": 1.0 / (SIGMA * rate),
    }
    elements = tuple(
        Element(
            id=name, cost=1.0 / served, selectivity=sent.get(name, 1.0),
            needs=Needs(
                cores=cores, state_mb=state / 1e6, code_mb=0.3, most_instances=most if several else 1,
                hosts=hosts.get(name, ()),
            ),
        )
        for name, served, state, several in ELEMENTS
    )  # fmt: skip
    return compile_flow(Dataflow(name="taxi routes", elements=elements, edges=EDGES, inputs={"source": rate}))


def network(delays_ms: Any, *, cores: float = 2.0, traffic_price: float = TRAFFIC_PRICE) -> HostColumns:
    """Hosts "0", "1", ... with symmetric delays, and the other figures of the numerical study (§3.9)."""
    rows = np.asarray(delays_ms, np.float64)
    return host_columns(
        [str(at) for at in range(len(rows))], cores=cores, startup_s=0.5, latency_ms=rows, traffic_prices=traffic_price,
        store_latency_ms=5.0, to_store=100.0, from_store=100.0,
    )  # fmt: skip


def fifteen_hosts(*, traffic_price: float = TRAFFIC_PRICE) -> HostColumns:
    """The reference instance's hosts."""
    rows = np.zeros((15, 15))
    for at, row in enumerate(DELAYS_MS):
        rows[at, at + 1 :] = rows[at + 1 :, at] = row
    return network(rows, traffic_price=traffic_price)


def reference_problem(rate: float, weights: Weights, *, most: int = 2, **fields: Any) -> Problem:
    """The reference instance at a rate of the source (§7.3)."""
    return problem_of(taxi_flow(rate, most=most), fifteen_hosts(), weights=weights, bounds=Bounds(), **fields)


def scalability_problem(hosts: int, most: int, rng: np.random.Generator, *, rate: float = 70.0) -> Problem:
    """The same application, nothing pinned, on hosts at random places of the plane; mean delay 32 ms (§4)."""
    places = rng.random((hosts, 2))
    delays = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    delays *= 32.0 / delays[~np.eye(hosts, dtype=bool)].mean()
    return problem_of(taxi_flow(rate, most=most, pinned=False), network(delays), weights=Weights(0.5, 0.5, 0.0))


def hour_of_rates() -> list[float]:
    """Rates of the source, minute by minute: 70 to 220 messages a second and back (§4)."""
    return [70.0 + 5.0 * min(minute, 60 - minute) for minute in range(61)]


def random_problem(
    rng: np.random.Generator, *, elements: int = 3, hosts: int = 3, most: int = 2, running: bool = True
) -> Problem:
    """A small instance with everything that can differ: speeds, capacity, pins, prices, bounds, weights, variants."""
    names = [f"e{at}" for at in range(elements)]
    edges = [(names[at], names[at + 1]) for at in range(elements - 1)]
    edges += [(names[u], names[v]) for u in range(elements) for v in range(u + 2, elements) if rng.random() < 0.4]
    machines = [f"h{at}" for at in range(hosts)]
    rate = float(rng.uniform(20, 60))
    made = []
    for name in names:
        pin = (machines[int(rng.integers(hosts))],) if rng.random() < 0.15 else ()
        state = float(rng.uniform(0, 2)) if rng.random() < 0.7 else 0.0
        needs = Needs(
            cores=float(rng.choice([0.5, 1.0])), memory_mb=float(rng.uniform(0, 40)), state_mb=state,
            code_mb=float(rng.uniform(0.1, 2)), most_instances=int(rng.integers(1, most + 1)), hosts=pin,
        )  # fmt: skip
        selectivity = float(rng.uniform(0.4, 1.0)) / max(1, sum(u == name for u, _ in edges))
        made.append(Element(id=name, cost=1.0 / float(rng.uniform(45, 150)), selectivity=selectivity, needs=needs))
    flow = compile_flow(Dataflow(elements=tuple(made), edges=tuple(edges), inputs={names[0]: rate}))

    drawn = [
        (
            float(rng.integers(2, 5)), float(rng.choice([1.0, 1.0, 0.7, 1.5])), float(rng.uniform(60, 200)),
            float(rng.uniform(0.1, 0.8)), float(rng.uniform(0, 0.02)),
        )
        for _ in machines
    ]  # fmt: skip
    cores, speeds, memory, startup, failures = zip(*drawn, strict=True)
    stored = np.array([[5.0], [100.0], [100.0]]) * np.ones(hosts)
    latency, traffic = rng.uniform(1, 40, (hosts, hosts)), rng.uniform(0, 0.01, (hosts, hosts))
    # Of a generator of its own, so that all else is drawn as it would be with one store for all.
    apart = rng.spawn(1)[0]
    if apart.random() < 0.5:
        stored = np.array([apart.uniform(*limits, hosts) for limits in ((0, 30), (20, 200), (20, 200))])
    found = host_columns(
        machines, cores=cores, speeds=speeds, memory_mb=memory, startup_s=startup, failures=failures,
        latency_ms=latency, traffic_prices=traffic, store_latency_ms=stored[0], to_store=stored[1],
        from_store=stored[2],
    )  # fmt: skip
    floor = float(rng.uniform(0.8, 0.95)) if rng.random() < 0.3 else None
    raw = rng.uniform(0, 1, 4) * (rng.random(4) < 0.8) * [1, 1, float(running), float(floor is not None)]
    share = (raw if raw.sum() > 0 else np.array([1.0, 1.0, 0.0, 0.0])) / max(raw.sum(), 1e-12 if raw.sum() else 2.0)
    current = np.zeros((elements, hosts), np.int64)
    for row, allowed, limit in zip(current, found.allowed(flow.needs), flow.needs.most_instances, strict=True):
        np.add.at(row, rng.choice(np.flatnonzero(allowed), int(rng.integers(1, limit + 1))), 1)
    return problem_of(
        flow, found, weights=Weights(*(float(w) for w in share)),
        bounds=Bounds(
            float(rng.uniform(0.08, 0.4)), float(rng.uniform(3, 9)), float(rng.uniform(0.8, 6)), floor
        ),
        reconfiguration=Reconfiguration(0.25, bool(rng.random() < 0.4), bool(rng.random() < 0.4)),
        current=current if running else None,
        host_price=rng.uniform(0, 1, hosts) if rng.random() < 0.3 else None,
        skew=float(rng.choice([1.0, 1.2])), scale_rates=bool(rng.random() < 0.3),
        link_availability=rng.uniform(0.98, 1, (hosts, hosts)) if floor is not None else None,
    )  # fmt: skip

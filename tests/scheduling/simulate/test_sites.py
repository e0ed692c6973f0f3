"""Machines at several sites: links delay and limit messages in both engines, as computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.scheduling.control.records import Result
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Flow
from goffish.scheduling.simulate.run import Engine, simulate
from tests.scheduling.simulate.policies import Fixed, assert_conserved, chain, per_element

HERE, THERE = 0, 1
ENGINES = get_args(Engine)


def two_sites(latency_ms: float = 20.0, **link: float) -> Catalogue:
    classes = [{"name": at, "cores": 2, "price_per_hour": 0.1, "site": at} for at in ("here", "there")]
    links = [{"between": ["here", "there"], "latency_ms": latency_ms, **link}]
    return read_catalogue({"sites": ["here", "there"], "links": links, "classes": classes})


class Placed(Fixed):
    """One machine for each entry of `places`, at its site."""

    def __init__(self, places: Sequence[tuple[int, dict[int, int]]]) -> None:
        super().__init__([instances for _, instances in places])
        self.sites = [site for site, _ in places]

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        plan = Deployment(catalogue, flow.best)
        for site, instances in zip(self.sites, self.machines, strict=True):
            number = plan.plan_machine(site)
            for element, count in instances.items():
                plan.put(element, number, count)
        return plan


def run(flow: Flow, catalogue: Catalogue, places: Sequence[tuple[int, dict[int, int]]], **fields: Any) -> Result:
    return simulate(flow, catalogue, Placed(places), np.tile(flow.rates, (3, 1)), interval_s=100.0, **fields)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("places", "links_s"),
    [
        ([(HERE, {0: 1, 1: 1})], 0.0),
        ([(HERE, {0: 1}), (HERE, {1: 1})], 0.0),
        ([(HERE, {0: 1}), (THERE, {1: 1})], 0.02),
        ([(HERE, {0: 1, 1: 1}), (THERE, {1: 1})], 0.01),  # every second message
        ([(HERE, {0: 1}), (THERE, {0: 1}), (HERE, {1: 1}), (THERE, {1: 1})], 0.01),
    ],
)
def test_links_between_sites_count_in_the_latency(
    engine: Engine, places: Sequence[tuple[int, dict[int, int]]], links_s: float
) -> None:
    """Two steps of 0.25 s without waiting; breaks when a hop's delay is missing, doubled or rounded to ticks."""
    found = run(chain(0.25, 0.25), two_sites(), places, engine=engine)
    assert found.intervals["latency_s"].to_pylist() == pytest.approx([0.5 + links_s] * 3, abs=1e-12)
    assert found.summary.latency_s == pytest.approx(0.5 + links_s)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_slowest_path_counts(engine: Engine) -> None:
    """There and back is twice the delay; without the network nothing is delayed."""
    places = [(HERE, {0: 1, 2: 1}), (THERE, {1: 1})]
    found = run(chain(0.1, 0.1, 0.1), two_sites(40.0), places, engine=engine)
    assert found.summary.latency_s == pytest.approx(0.3 + 2 * 0.04)
    ideal = run(chain(0.1, 0.1, 0.1), two_sites(40.0), places, engine=engine, network=False)
    assert ideal.summary.latency_s == pytest.approx(0.3)


def test_long_links_hold_messages() -> None:
    """10 messages a second under way for 5 s: breaks when they arrive too early, vanish, or count twice."""
    flow = chain(0.001, 0.001, rate=10.0)
    found = run(flow, two_sites(5000.0), [(HERE, {0: 1}), (THERE, {1: 1})], engine="events", tick_s=0.5)
    assert per_element(found.elements, "queue", 2)[:, 1] == pytest.approx([50, 50, 50])
    assert found.intervals["latency_s"].to_pylist() == pytest.approx([5.002] * 3)
    assert_conserved(flow, found.elements, 100.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_narrow_links_limit_messages(engine: Engine) -> None:
    """1 Mbit/s carries 125 of 200 messages of 1000 bytes; two machines at one site have no link between them."""
    flow = chain(0.001, 0.001, rate=200.0)
    narrow = two_sites(0.0, bandwidth_mbit_s=1.0)
    apart = run(flow, narrow, [(HERE, {0: 1}), (THERE, {1: 1})], engine=engine)
    assert apart.summary.omega == pytest.approx(0.625)
    beside = run(flow, narrow, [(HERE, {0: 1}), (HERE, {1: 1})], engine=engine)
    assert beside.summary.omega == pytest.approx(1.0)

"""Dataflows as real processes: what they do is what the model says they can."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers import LocalProvider
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.streaming.broker import Broker

SHARE = 0.04
CATALOGUE = read_catalogue("ec2-2013")


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[LocalProvider]:
    with LocalProvider(CATALOGUE, reference_share=SHARE, folder=tmp_path) as made:
        yield made


def machine(provider: LocalProvider, deployment: Deployment, name: str) -> int:
    number = provider.start(CATALOGUE.number(name))
    deployment.add_machine(Machine(number, CATALOGUE.number(name)))
    end = time.monotonic() + 30
    while provider.states()[number] != "running":
        assert time.monotonic() < end
        time.sleep(0.02)
    return number


@pytest.mark.slow
def test_real_instances_do_what_the_estimate_says(provider: LocalProvider, tmp_path: Path) -> None:
    """Breaks when messages are lost between elements, alternates do not count, or cores are faster than rated."""
    flow = compile_flow(read_dataflow("sc13-diamond"))
    deployment = Deployment(CATALOGUE, np.array([1, 1, 0, 0]))
    number = machine(provider, deployment, "m3.xlarge")
    for element in range(flow.size):
        deployment.put(element, number)
    broker = Broker(flow, provider, SHARE, tmp_path)
    try:
        broker.apply(deployment)
        broker.wait_for_instances()
        external = np.array([5.0, 0, 0, 0])
        broker.run(4, external)
        found, expected = broker.run(10, external), flow.estimate(deployment.active, deployment.power, external)
    finally:
        broker.close()
    # The machine may have other work, so they may be slower; never faster, and never out of balance.
    assert (found.processed <= expected.processed * 1.08 + 0.2).all()
    assert found.processed == pytest.approx(expected.processed, rel=0.3)
    assert found.inflow[1] == pytest.approx(2 * found.processed[0])
    assert found.inflow[3] == pytest.approx(found.processed[1] + 0.5 * found.processed[2])
    assert found.queue[2] > 20 and 0.6 < found.coefficients[number] < 1.05


@pytest.mark.slow
def test_a_lost_machine_loses_no_message(provider: LocalProvider, tmp_path: Path) -> None:
    """Breaks when messages that a killed machine was working on are gone, or instances do not start elsewhere."""
    flow = compile_flow(read_dataflow({"elements": [{"id": "A", "cost": 0.5}], "inputs": {"A": 0}}))
    deployment = Deployment(CATALOGUE, np.zeros(1, np.int64))
    first, second = (machine(provider, deployment, "m1.large") for _ in range(2))
    deployment.put(0, first, 2)
    deployment.put(0, second, 1)
    broker = Broker(flow, provider, SHARE, tmp_path)
    try:
        broker.apply(deployment)
        broker.wait_for_instances()
        before = broker.run(2.0, np.array([20.0]))
        provider.fail(first)
        deployment.drop_machine(first)
        deployment.put(0, second, 1)
        broker.apply(deployment)
        broker.wait_for_instances()
        after = broker.run(2.0, np.array([0.0]))
        came, done = before.inflow * 2.0, (before.processed + after.processed) * 2.0
    finally:
        broker.close()
    assert list(after.coefficients) == [second]
    assert done[0] > 0 and came[0] == pytest.approx(done[0] + after.queue[0], abs=1.5)

"""Latency estimation: forces by hand (unit check 5), convergence and churn.

See docs/specs/latency-aware.md, sections 3.5, 7.5.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.latency_aware.generators import paper_hosts
from experiments.latency_aware.springs import LatencySpace, Ping, Springs, spring_step
from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.score import Floats


def pings(hosts: list[str], latency: Floats) -> Ping:
    return lambda a, b: 2.0 * float(latency[hosts.index(a), hosts.index(b)])


def error(space: LatencySpace, hosts: list[str], latency: Floats) -> float:
    """Median relative error of the distances."""
    pairs = ~np.eye(len(hosts), dtype=bool)
    return float(np.median(np.abs(space.latency_ms(hosts, direct=False) - latency)[pairs] / latency[pairs]))


def converged(latency: Floats, strength: float, seed: int) -> float:
    hosts = [str(at) for at in range(len(latency))]
    space, rng = LatencySpace(Springs(strength_ms=strength)), np.random.default_rng(seed)
    for _ in range(60):
        space.run_round(hosts, pings(hosts, latency), rng)
    return error(space, hosts, latency)


TREE = paper_hosts().latency_ms
POINTS = np.random.default_rng(1).uniform(0.0, 10.0, (11, 3))
EMBEDDED = np.linalg.norm(POINTS[:, None] - POINTS[None], axis=2)


@pytest.mark.parametrize(("measured", "step"), [(5.0, 0.34657), (10.0, 0.0), (20.0, -0.34657)])
def test_force(measured: float, step: float) -> None:
    """Unit check 5."""
    found = spring_step((0.0, 0.0, 0.0), [(10.0, 0.0, 0.0)], [measured], 0.5)
    assert found == pytest.approx([step, 0.0, 0.0], abs=5e-6)


def test_forces_add_up() -> None:
    """Two peers, and one at the same place, which is taken to be 1e-3 away; latencies are at least 1e-3."""
    found = spring_step((1.0, 1.0), [(1.0, 4.0), (5.0, 1.0)], [3 * math.e, 4 / math.e], 0.5)
    assert found == pytest.approx([0.5, -0.5])
    assert spring_step((1.0, 1.0), [(1.0, 1.0)], [1.0], 0.5) == pytest.approx([0.5 * math.log(1e-3), 0.0])
    assert spring_step((0.0,), [(1.0,)], [0.0], 1.0) == pytest.approx([math.log(1e3)])


@pytest.mark.parametrize(
    ("latency", "strength", "low", "high"),
    [(TREE, 0.2, 0.02, 0.07), (TREE, 0.01, 0.09, 0.3), (EMBEDDED, 0.25, 0.0, 0.01), (EMBEDDED, 0.01, 0.1, 0.3)],
)
def test_convergence(latency: Floats, strength: float, low: float, high: float) -> None:
    """§3.5's table: 4 % on the tree, nothing where the latencies can be embedded; too weak springs stop early."""
    assert low <= np.median([converged(latency, strength, seed) for seed in range(5)]) <= high


def test_a_host_that_moved_is_found_again() -> None:
    """§7.5 (6): within ten rounds."""
    hosts, rng = [str(at) for at in range(11)], np.random.default_rng(2)
    space = LatencySpace()
    for _ in range(40):
        space.run_round(hosts, pings(hosts, EMBEDDED), rng)
    points = POINTS.copy()
    points[4] = (18.0, 2.0, 5.0)
    moved = np.linalg.norm(points[:, None] - points[None], axis=2)

    def off() -> float:
        found = space.latency_ms(hosts, direct=False)[4]
        return float(np.median(np.abs(np.delete(found - moved[4], 4)) / np.delete(moved[4], 4)))

    assert off() > 0.3
    for _ in range(10):
        space.run_round(hosts, pings(hosts, moved), rng)
    assert off() < 0.05


def test_fresh_measurements_are_preferred() -> None:
    hosts = ["a", "b"]
    latency = np.array([[0.0, 7.0], [3.0, 0.0]])
    space, rng = LatencySpace(), np.random.default_rng(0)
    space.run_round(hosts, pings(hosts, latency), rng)
    assert space.latency_ms(hosts).tolist() == latency.tolist()
    assert space.latency_ms(hosts, direct=False)[0, 1] == space.latency_ms(hosts, direct=False)[1, 0]
    for _ in range(4):
        space.run_round(hosts, lambda a, b: None, rng)
    assert space.latency_ms(hosts).tolist() == space.latency_ms(hosts, direct=False).tolist()


def test_the_fastest_of_some_pings_counts() -> None:
    answers = iter([9.0, 4.0, None, 8.0, 30.0] * 2)
    space = LatencySpace()
    space.run_round(["a", "b"], lambda a, b: next(answers), np.random.default_rng(0))
    assert space.latency_ms(["a", "b"]).tolist() == [[0.0, 2.0], [2.0, 0.0]]


def test_hosts_come_and_go() -> None:
    """Those not heard of for three rounds are forgotten; near peers are kept from round to round."""
    hosts = [str(at) for at in range(11)]
    space, rng = LatencySpace(), np.random.default_rng(5)
    asked: list[tuple[str, str]] = []

    def ping(a: str, b: str) -> float:
        asked.append((a, b))
        return pings(hosts, EMBEDDED)(a, b) or 0.0

    space.run_round(hosts, ping, rng)
    before = {b for a, b in asked if a == "0"}
    assert len(before) == 5
    near = sorted(before, key=lambda b: EMBEDDED[0, int(b)])[:3]
    asked.clear()
    for _ in range(2):
        space.run_round(hosts[:10], ping, rng)
    first = list(dict.fromkeys(b for a, b in asked[: 10 * 25] if a == "0"))
    assert first[:3] == near
    assert len(first) == 5
    assert "10" in space.hosts
    space.run_round(hosts[:10], ping, rng)
    assert "10" not in space.hosts
    with pytest.raises(InputError, match="host '10' has no position"):
        space.position("10")
    assert space.position("3").shape == (3,)
    waits = [Springs().wait_s(rng) for _ in range(200)]
    assert min(waits) >= 24
    assert max(waits) <= 36
    assert max(waits) - min(waits) > 10


@pytest.mark.parametrize("wrong", [{"strength_ms": 0.0}, {"pings": 0}, {"spread": 1.0}])
def test_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Springs(**wrong)  # type: ignore[arg-type]

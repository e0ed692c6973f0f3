"""Availability against fixed values, enumeration of all host states, and drawn days.

See docs/specs/selective-replication.md, section 7.2.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.replication.days import crash_days
from experiments.replication.selection import single_points
from goffish.errors import InputError
from goffish.scheduling.policies.replication.availability import Availability, aggregated, query_availabilities
from goffish.scheduling.policies.replication.model import Network, Racks, System, check, network_use, primaries, system

A, B, C, D, E = 1, 2, 4, 8, 16


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([A, A, A, A], 0.98),
        ([A, A, A, A | B], 0.98),
        ([A | B] * 4, 0.9996),
        ([A | B, A | B, A | C, A | C], 0.999208),
        ([A | B, A | C, A | D, A | E], 0.9984473632),
        ([A, B], 0.9604),
        ([A | B, B], 0.98),
        ([A | B, B | A], 0.9996),
        ([A | C, B | D], 0.99920016),
        ([A | C, B | C], 0.999208),
        ([A | B, B | C, A | C], 0.998816),
        ([A | B | C], 0.999992),
    ],
)
def test_published_digits(sets: list[int], expected: float) -> None:
    assert Availability([0.02] * 5).of(sets) == pytest.approx(expected, abs=1e-12)


def test_unequal_hosts() -> None:
    assert Availability([0.01, 0.05, 0.1]).of([A, B | C]) == pytest.approx(0.98505, abs=1e-12)


def enumerated(sets: list[int], failures: list[float], racks: list[int], rack_failures: list[float]) -> float:
    """All states of hosts and racks, one by one."""
    total = 0.0
    events = [*failures, *rack_failures]
    for dead in product((False, True), repeat=len(events)):
        weight = float(np.prod([p if gone else 1 - p for p, gone in zip(events, dead, strict=True)]))
        alive = [not dead[h] and not dead[len(failures) + racks[h]] for h in range(len(failures))]
        if all(any(one >> h & 1 and alive[h] for h in range(len(failures))) for one in sets):
            total += weight
    return total


@given(st.data())
def test_against_enumeration(data: st.DataObject) -> None:
    hosts = data.draw(st.integers(1, 6))
    failures = data.draw(st.lists(st.floats(0, 0.9), min_size=hosts, max_size=hosts))
    sets = data.draw(st.lists(st.integers(1, 2**hosts - 1), max_size=6))
    racks = data.draw(st.lists(st.integers(0, 1), min_size=hosts, max_size=hosts))
    together = data.draw(st.sampled_from([[0.0, 0.0], [0.1, 0.3]]))
    exact = Availability(failures, racks, together)
    assert exact.of(sets) == pytest.approx(enumerated(sets, failures, racks, together), abs=1e-12)


def drawn_system(seed: int, hosts: int = 9) -> tuple[System, np.ndarray]:
    rng = np.random.default_rng(seed)
    queries = [rng.choice(12, 4, replace=False).tolist() for _ in range(6)]
    made = system(
        np.full(12, 0.1), rng.integers(hosts, size=12), queries, rng.uniform(0.05, 0.4, hosts), np.ones(hosts) * 9,
        racks=Racks(np.arange(hosts) % 3, [0.0, 0.05, 0.1]), weights=[1, 2, 3, 1, 1, 1],
    )  # fmt: skip
    return made, primaries(made) | (rng.random((12, hosts)) < 0.15)


def test_drawn_days_agree() -> None:
    """Exact figures, every query and the weighted mean, lie within 4 standard errors of 20 000 days."""
    found, places = drawn_system(3)
    exact = query_availabilities(found, places)
    days = crash_days(found, places, 20_000, np.random.default_rng(5))
    assert (np.abs(days.queries - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)).all()
    assert abs(days.mean - aggregated(found, exact, "weighted")) < 4 * days.error
    assert days.days.size == 20_032 and aggregated(found, exact, "min") == exact.min()


def test_too_entangled_is_sampled() -> None:
    failures, sets = [0.3] * 8, [A | B, B | C, C | D, D | A, A | C | 32, 64 | 128 | B, 128 | E, E | 32]
    sampled = Availability(failures, most_calls=1).sampled(sets)
    exact = Availability(failures).sampled(sets)
    assert exact.error == 0 and sampled.error > 0
    assert abs(sampled.value - exact.value) < 4 * sampled.error


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_more_copies_never_hurt(seed: int) -> None:
    found, places = drawn_system(seed, hosts=6)
    rng = np.random.default_rng(seed)
    more = places.copy()
    more[rng.integers(12), rng.integers(6)] = True
    before, after = query_availabilities(found, places), query_availabilities(found, more)
    assert (after >= before - 1e-12).all() and (before >= 0).all() and (after <= 1).all()


def test_mirrored_hosts() -> None:
    """Primary hosts mirrored one to one: (1 - p^2)^k."""
    made = system([0.1] * 6, [0, 0, 1, 1, 2, 2], [range(6)], [0.1] * 6, [1] * 6)
    places = primaries(made)
    places[np.arange(6), made.primary + 3] = True
    assert query_availabilities(made, places)[0] == pytest.approx((1 - 0.01) ** 3, abs=1e-12)
    assert single_points(made, primaries(made)) == [{0, 1, 2}] and single_points(made, places) == [set()]


def test_wrong_plans_are_refused() -> None:
    made = system(
        [0.6, 0.6], [0, 1], [[0, 1]], [0.1] * 3, [1, 1, 1], pinned=[1],
        network=Network({(0, 1): 5.0}, [5, 5, 5]), racks=Racks([0, 1, 0], spread=True),
    )  # fmt: skip
    places = primaries(made)
    check(made, places)
    assert [some.tolist() for some in network_use(made, places)] == [[0, 5, 0], [5, 0, 0]]
    for operator, host, told in ((1, 2, "pinned"), (0, 2, "rack"), (0, 1, "cores")):
        wrong = places.copy()
        wrong[operator, host] = True
        with pytest.raises(InputError, match=told):
            check(made, wrong)
    for name, value in (("failures", [2.0]), ("loads", [-1.0])):
        given_ = {"loads": [1.0], "primary": [0], "queries": [[0]], "failures": [0.1], "capacity": [1.0]}
        with pytest.raises(InputError, match=name):
            system(**(given_ | {name: value}))

"""Copies of state are on other hosts wherever hosts and slots allow it."""

from __future__ import annotations

import itertools
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from goffish.errors import GoffishWarning
from goffish.streaming.hosts.access import Access
from goffish.streaming.hosts.machines import Machines
from goffish.streaming.hosts.placement import (
    Load,
    alternated,
    best_host,
    best_insertion,
    best_removal,
    lost_with_host,
)
from tests.streaming.runtime.hosts import TOKEN


def lost_by_definition(hosts: list[int], replication: int) -> int:
    """Lose each host, and count the workers of which neither owner nor copies are left."""
    ring = [*hosts, *hosts, *hosts]
    copies = min(replication, len(hosts) - 1)
    return sum(sum(set(ring[at : at + copies + 1]) == {gone} for at in range(len(hosts))) for gone in set(hosts))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.integers(1, 3))
def test_the_first_order(hosts: list[int], replication: int) -> None:
    """Breaks when another order of the same workers would lose less."""
    order = alternated(dict(enumerate(hosts)))
    assert sorted(order) == list(range(len(hosts)))
    found = lost_by_definition([hosts[one] for one in order], replication)
    assert found == lost_with_host([hosts[one] for one in order], replication)
    assert found == min(lost_by_definition(list(one), replication) for one in itertools.permutations(hosts))


@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.data())
def test_the_first_hosts(slots: list[int], data: st.DataObject) -> None:
    """Breaks when copies share hosts though the slots allow another choice."""
    workers = data.draw(st.integers(2, sum(slots)))
    loads = {host: Load(0, most) for host, most in enumerate(slots)}
    hosts = []
    for _ in range(workers):
        hosts.append(host := best_host(loads))
        loads[host] = loads[host]._replace(workers=loads[host].workers + 1)
    assert all(one.workers <= one.slots for one in loads.values())
    possible = sum(min(one, workers // 2) for one in slots) >= workers
    order = alternated(dict(enumerate(hosts)))
    assert (lost_by_definition([hosts[one] for one in order], 1) == 0) == possible


class Ring:
    """Hosts with equal slots, and a ring of workers, of which some fail and are replaced one after the other."""

    def __init__(self, hosts: int, workers: int, slots: int, replication: int) -> None:
        self.slots, self.replication = dict.fromkeys(range(hosts), slots), replication
        self.hosts: list[int | None] = []
        for _ in range(workers):
            self.hosts.append(best_host(self.loads))
        found = dict(enumerate(host for host in self.hosts if host is not None))
        self.hosts = [found[one] for one in alternated(found)]

    @property
    def loads(self) -> dict[int, Load]:
        return {host: Load(self.hosts.count(host), slots) for host, slots in self.slots.items()}

    @property
    def lost(self) -> int:
        return lost_by_definition(
            [-1 - at if one is None else one for at, one in enumerate(self.hosts)], self.replication
        )

    def add(self, at: int) -> None:
        place, host = best_insertion(self.hosts, range(len(self.hosts) + 1), at, self.loads, self.replication)
        self.hosts.insert(place, host)

    def lose_host(self, host: int) -> None:
        del self.slots[host]
        self.hosts = [None if one == host else one for one in self.hosts]
        while None in self.hosts:
            at = self.hosts.index(None)
            del self.hosts[at]
            self.add(at)

    @property
    def least(self) -> int:
        """What another order of the same workers would lose, at least."""
        order = alternated({at: host for at, host in enumerate(self.hosts) if host is not None})
        return lost_by_definition([self.hosts[one] or 0 for one in order], self.replication)


@given(st.integers(3, 6), st.integers(2, 14), st.integers(1, 3), st.data())
def test_hosts_that_are_lost(hosts: int, workers: int, replication: int, data: st.DataObject) -> None:
    """Breaks when workers that replace others are beside copies on their host, though there is a better place."""
    ring = Ring(hosts, workers, workers, replication)
    assert ring.lost == ring.least
    for _ in range(hosts - 2):
        ring.lose_host(data.draw(st.sampled_from(sorted(ring.slots))))
        assert len(ring.hosts) == workers and ring.lost == ring.least


@given(st.integers(2, 4), st.integers(1, 3), st.data())
def test_a_worker_that_is_replaced(hosts: int, slots: int, data: st.DataObject) -> None:
    """Breaks when a worker that replaces another one takes a slot beside its copy though its old slot is free."""
    ring = Ring(hosts, hosts * slots, slots, 1)
    for _ in range(5):
        at = data.draw(st.integers(0, len(ring.hosts) - 1))
        del ring.hosts[at]
        ring.add(at)
        assert ring.lost == 0
        assert all(load.workers <= load.slots for load in ring.loads.values())


@given(st.integers(2, 4), st.integers(4, 12), st.integers(1, 9))
def test_another_number_of_workers(hosts: int, workers: int, more: int) -> None:
    """Breaks when scaling puts copies beside each other on one host, though the hosts have even numbers of workers."""
    ring = Ring(hosts, workers, 50, 1)
    for _ in range(more):
        ring.add(len(ring.hosts))
        assert ring.lost == ring.least
    for _ in range(len(ring.hosts) - 1):
        before = [one or 0 for one in ring.hosts]
        ring.hosts.pop(best_removal(ring.hosts, range(len(before)), 1))
        assert ring.lost == min(lost_by_definition(before[:at] + before[at + 1 :], 1) for at in range(len(before)))


def test_workers_of_one_host() -> None:
    assert lost_with_host([1, 1], 1) == 2
    assert lost_with_host([1], 1) == 1
    assert lost_with_host([1, 2, 2, 2], 2) == 1
    assert lost_with_host([1, None, None], 1) == 0
    assert alternated({4: 1, 5: 1}) == [4, 5]


def test_a_warning() -> None:
    """Breaks when a flow that a lost machine would end does not say so, or one that survives it does."""
    flow = gf.stream.Flow("numbers")
    flow.source(gf.stream.generate(count=1)).sink(gf.stream.print_values())
    with Machines(flow.check(), Access("127.0.0.1:0", TOKEN)) as machines:
        machines._places = {0: 0, 1: 1, 2: 1, 3: 0}
        with pytest.warns(GoffishWarning, match="flow numbers: 1 of 3 workers have all copies of their state on their"):
            assert sorted(machines.alternate([0, 1, 2], 1)) == [0, 1, 2]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert machines.alternate([0, 3, 1, 2], 1) == [0, 1, 3, 2]
            machines.alternate([0, 1, 2], 2)
            machines.alternate([0, 1, 2], 0)
            machines.alternate([0, 3], 1)

"""On which hosts workers run, and in which order they are on the ring, so that copies are on other hosts.

A worker's state has copies on the next `replication` workers of the ring. The loss of a host loses the state of the
positions whose owner and copies are all there, so that no `replication` + 1 neighbors should be on one host. A flow
whose largest host has at most half of the workers needs no two neighbors on one host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Load(NamedTuple):
    """Workers of a host, and how many it takes."""

    workers: int
    slots: int

    @property
    def full(self) -> bool:
        """Whether no slot is free."""
        return self.workers >= self.slots


def lost_with_host(hosts: Sequence[int | None], replication: int) -> int:
    """Return the number of workers whose state is lost if their host is.

    Parameters
    ----------
    hosts : sequence of int or None
        Host of each worker, in the order of the ring; None if it does not run.
    replication : int
    """
    size, count = min(replication + 1, len(hosts)), len(hosts)
    return sum(
        one is not None and all(hosts[(at + step) % count] == one for step in range(1, size))
        for at, one in enumerate(hosts)
    )


def alternated(hosts: Mapping[int, int]) -> list[int]:
    """Return workers in an order of the ring in which as few neighbors as possible are on one host.

    Parameters
    ----------
    hosts : mapping of int to int
        Hosts of workers.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for worker, host in hosts.items():
        groups[host].append(worker)
    first, *rest = sorted(groups.values(), key=len, reverse=True)
    others = [worker for group in rest for worker in group]
    count = len(hosts)
    if 2 * len(first) <= count:  # every second place, and then those between: no group is large enough to meet itself
        order = [0] * count
        for place, worker in zip([*range(0, count, 2), *range(1, count, 2)], [*first, *others], strict=True):
            order[place] = worker
        return order
    cuts = [len(first) * number // max(1, len(others)) for number in range(len(others) + 1)]
    parts = [first[a:b] for a, b in pairwise(cuts)]
    return [worker for one, part in zip(others, parts, strict=True) for worker in (one, *part)] if others else first


def best_host(loads: Mapping[int, Load]) -> int:
    """Return the host of the next worker: one with a free slot that has fewest, or the one that is least overloaded.

    Parameters
    ----------
    loads : mapping of int to Load
        By host.
    """

    def cost(host: int) -> tuple[bool, float, float, int]:
        one = loads[host]
        return one.full, one.workers / one.slots if one.full else one.workers, one.workers / one.slots, host

    return min(loads, key=cost)


def best_insertion(
    hosts: Sequence[int | None], among: range, at: int, loads: Mapping[int, Load], replication: int
) -> tuple[int, int]:
    """Return where on the ring the next worker should be, and its host.

    A free slot counts most, then copies on other hosts, then the place, then the number of workers.

    Parameters
    ----------
    hosts : sequence of int or None
        Hosts of the workers on the ring.
    among : range
        Places that are accepted.
    at : int
        Place for which least has to move.
    loads : mapping of int to Load
        By host.
    replication : int
    """
    least = any(not one.full for one in loads.values())
    accepted = {host: one for host, one in loads.items() if not (least and one.full)}
    order: list[int] = []
    while accepted:
        order.append(best_host(accepted))
        del accepted[order[-1]]
    best: tuple[int, int, int, int, int] | None = None
    for place in sorted(among, key=lambda place: abs(place - at)):
        for rank, host in enumerate(order):
            lost = lost_with_host([*hosts[:place], host, *hosts[place:]], replication)
            found = lost, abs(place - at), rank, place, host
            best = found if best is None else min(best, found)
        if best is not None and best[0] == 0:
            break
    assert best is not None
    return best[-2:]


def best_removal(hosts: Sequence[int | None], among: Sequence[int], replication: int) -> int:
    """Return the place of the worker that should leave the ring; the last one if others are not better.

    Parameters
    ----------
    hosts : sequence of int or None
        Hosts of the workers on the ring.
    among : sequence of int
        Places that are accepted.
    replication : int
    """
    return min(among, key=lambda place: (lost_with_host([*hosts[:place], *hosts[place + 1 :]], replication), -place))

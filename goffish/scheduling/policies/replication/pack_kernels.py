"""Numba kernels that place replicas on hosts, one by one. See docs/specs/selective-replication.md, section 3.4."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel
from goffish.scheduling.policies.replication.model import SLACK

#: Strategies of placement.
SIMPLE, COLOURED, MIRROR = 0, 1, 2


class OperatorColumns(NamedTuple):
    """Operators that may be replicated.

    Attributes
    ----------
    loads : float64, shape (operators,)
        Cores of a replica of each operator.
    primary, colours : int64, shape (operators,)
        Host of the primary; replicas of one color are spread over hosts.
    forward, backward : tuple of int64, int64 and float64 arrays
        `System.forward` and `System.backward`.
    """

    loads: NDArray[np.float64]
    primary: NDArray[np.int64]
    colours: NDArray[np.int64]
    forward: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
    backward: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


class HostColumns(NamedTuple):
    """Hosts that may receive replicas; arrays of shape (hosts,).

    Attributes
    ----------
    failures : float64
    draining : bool
    racks : int64
    """

    failures: NDArray[np.float64]
    draining: NDArray[np.bool_]
    racks: NDArray[np.int64]


class Packed(NamedTuple):
    """A placement of replicas, and the remaining capacities of the hosts.

    Attributes
    ----------
    places : bool, shape (operators, hosts)
        Hosts of each operator, including primaries.
    left, into_left, out_left : float64, shape (hosts,)
        Free cores, and remaining incoming and outgoing traffic.
    seen : int64, shape (hosts, colours)
        Number of replicas of each color.
    replicas : int64, shape (hosts,)
    mirrored : int64, shape (hosts, hosts)
        Number of replicas, on the second host, of operators whose primary is on the first.
    """

    places: NDArray[np.bool_]
    left: NDArray[np.float64]
    into_left: NDArray[np.float64]
    out_left: NDArray[np.float64]
    seen: NDArray[np.int64]
    replicas: NDArray[np.int64]
    mirrored: NDArray[np.int64]


@kernel(inner=True)
def traffic_fits(operator, host, operators, packed):
    """Whether hosts can carry the traffic of one more replica; if so, reserve it."""
    places, into_left, out_left = packed.places, packed.into_left, packed.out_left
    hosts = into_left.size
    into_need, out_need = np.zeros(hosts), np.zeros(hosts)
    offsets, other, traffic = operators.backward
    for at in range(offsets[operator], offsets[operator + 1]):
        for sender in range(hosts):
            if sender != host and places[other[at], sender]:
                into_need[host] += traffic[at]
                out_need[sender] += traffic[at]
    offsets, other, traffic = operators.forward
    for at in range(offsets[operator], offsets[operator + 1]):
        for receiver in range(hosts):
            if receiver != host and places[other[at], receiver]:
                out_need[host] += traffic[at]
                into_need[receiver] += traffic[at]
    for at in range(hosts):
        if into_need[at] > into_left[at] + SLACK or out_need[at] > out_left[at] + SLACK:
            return False
    into_left -= into_need
    out_left -= out_need
    return True


@kernel(inner=True)
def neighbours_on(operator, host, operators, places):
    """Number of direct predecessors and successors on a host."""
    found = 0
    for offsets, other, _ in (operators.forward, operators.backward):
        for at in range(offsets[operator], offsets[operator + 1]):
            if places[other[at], host]:
                found += 1
    return found


@kernel
def pack(copies, operators, hosts, limited, by_rack, strategy, packed):
    """Place replicas in order, each on the best host that can take it.

    Parameters
    ----------
    copies : int64, shape (copies,)
        Operators.
    operators : OperatorColumns
    hosts : HostColumns
    limited : bool
        Whether the network has limits.
    by_rack : bool
        Whether replicas of an operator must be on distinct racks.
    strategy : int
        `SIMPLE`, `COLOURED` or `MIRROR`.
    packed : Packed
        Changed in place.

    Returns
    -------
    int64, shape (copies,)
        Host of each replica, -1 for none.
    """
    places, left, _, _, seen, replicas, mirrored = packed
    primary, colours, racks = operators.primary, operators.colours, hosts.racks
    placed = np.full(copies.size, -1, np.int64)
    open_host = np.zeros(left.size, np.bool_)
    racks_used = np.zeros(racks.max() + 1, np.bool_)
    distinct = np.zeros(left.size, np.int64)
    for host in range(left.size):
        open_host[host] = places[:, host].any()
        for colour in range(seen.shape[1]):
            distinct[host] += seen[host, colour] > 0
    tried = np.zeros(left.size, np.bool_)
    for at in range(copies.size):
        operator = copies[at]
        racks_used[:] = False
        if by_rack:
            for host in range(left.size):
                if places[operator, host]:
                    racks_used[racks[host]] = True
        tried[:] = False
        while True:
            best = -1
            key = (0.0, 0.0, 0.0, 0.0)
            for host in range(left.size):
                if tried[host] or hosts.draining[host] or places[operator, host] or racks_used[racks[host]]:
                    continue
                if left[host] < operators.loads[operator] - SLACK:
                    continue
                near = -float(neighbours_on(operator, host, operators, places))
                idle = 0.0 if open_host[host] else 1.0
                if strategy == COLOURED:
                    mine = (float(distinct[host]), near, idle, 0.0)
                elif strategy == MIRROR:
                    with_others = 0.0 if mirrored[primary[operator], host] > 0 else 1.0
                    mine = (with_others, near, float(replicas[host]), hosts.failures[host])
                else:
                    mine = (near, idle, 0.0, 0.0)
                if best < 0 or mine < key:
                    best, key = host, mine
            if best < 0:
                break
            if not limited or traffic_fits(operator, best, operators, packed):
                break
            tried[best] = True
        if best >= 0:
            placed[at] = best
            places[operator, best] = True
            left[best] -= operators.loads[operator]
            open_host[best] = True
            replicas[best] += 1
            mirrored[primary[operator], best] += 1
            distinct[best] += seen[best, colours[operator]] == 0
            seen[best, colours[operator]] += 1
    return placed

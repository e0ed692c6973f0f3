"""Copies onto hosts, one after the other. Specification of selective replication, §3.4."""

from __future__ import annotations

import numba
import numpy as np

from goffish.scheduling.policies.replication.model import SLACK

SIMPLE, COLOURED, MIRROR = 0, 1, 2


@numba.njit(cache=True, nogil=True)
def traffic_fits(operator, host, forward, backward, places, into_left, out_left):
    """Whether hosts can carry what one more copy hears and says."""
    hosts = into_left.size
    into_need, out_need = np.zeros(hosts), np.zeros(hosts)
    offsets, other, traffic = backward
    for at in range(offsets[operator], offsets[operator + 1]):
        for sender in range(hosts):
            if sender != host and places[other[at], sender]:
                into_need[host] += traffic[at]
                out_need[sender] += traffic[at]
    offsets, other, traffic = forward
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


@numba.njit(cache=True, nogil=True)
def neighbours_on(operator, host, forward, backward, places):
    """Direct predecessors and successors with a copy on a host."""
    found = 0
    for offsets, other, _ in (forward, backward):
        for at in range(offsets[operator], offsets[operator + 1]):
            if places[other[at], host]:
                found += 1
    return found


@numba.njit(cache=True, nogil=True)
def pack(
    copies, loads, primary, forward, backward, limited, failures, draining, racks, by_rack, colours, strategy,
    places, left, into_left, out_left, seen, replicas, mirrored, placed,
):  # fmt: skip
    """Place copies in their order, each on the best host that can take it.

    Parameters
    ----------
    copies : int64, shape (copies,)
        Operators.
    forward, backward : tuple of arrays
        `System.forward` and `System.backward`.
    limited : bool
        Whether the network has limits.
    colours : int64, shape (operators,)
    strategy : int
        `SIMPLE`, `COLOURED` or `MIRROR`.
    places : bool, shape (operators, hosts)
        Changed, as are `left`, `into_left` and `out_left` (free cores and traffic of each host).
    seen : int64, shape (hosts, colours)
        Replicas of each colour; changed.
    replicas : int64, shape (hosts,)
        Changed.
    mirrored : int64, shape (hosts, hosts)
        Replicas of operators whose primary is on the first, on the second; changed.
    placed : int64, shape (copies,)
        Gets the host of each copy, -1 for none.
    """
    hosts = left.size
    open_host = np.zeros(hosts, np.bool_)
    racks_used = np.zeros(racks.max() + 1, np.bool_)
    distinct = np.zeros(hosts, np.int64)
    for host in range(hosts):
        open_host[host] = places[:, host].any()
        for colour in range(seen.shape[1]):
            distinct[host] += seen[host, colour] > 0
    tried = np.zeros(hosts, np.bool_)
    for at in range(copies.size):
        operator = copies[at]
        placed[at] = -1
        racks_used[:] = False
        if by_rack:
            for host in range(hosts):
                if places[operator, host]:
                    racks_used[racks[host]] = True
        tried[:] = False
        while True:
            best = -1
            key = (0.0, 0.0, 0.0, 0.0)
            for host in range(hosts):
                if tried[host] or draining[host] or places[operator, host] or racks_used[racks[host]]:
                    continue
                if left[host] < loads[operator] - SLACK:
                    continue
                near = -float(neighbours_on(operator, host, forward, backward, places))
                idle = 0.0 if open_host[host] else 1.0
                if strategy == COLOURED:
                    mine = (float(distinct[host]), near, idle, 0.0)
                elif strategy == MIRROR:
                    with_others = 0.0 if mirrored[primary[operator], host] > 0 else 1.0
                    mine = (with_others, near, float(replicas[host]), failures[host])
                else:
                    mine = (near, idle, 0.0, 0.0)
                if best < 0 or mine < key:
                    best, key = host, mine
            if best < 0:
                break
            if not limited or traffic_fits(operator, best, forward, backward, places, into_left, out_left):
                break
            tried[best] = True
        if best >= 0:
            placed[at] = best
            places[operator, best] = True
            left[best] -= loads[operator]
            open_host[best] = True
            replicas[best] += 1
            mirrored[primary[operator], best] += 1
            distinct[best] += seen[best, colours[operator]] == 0
            seen[best, colours[operator]] += 1

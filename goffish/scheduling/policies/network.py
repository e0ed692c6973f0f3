"""Network bandwidth in the plans of the reactive heuristics: estimates, and collocation of neighbors\n
if it is insufficient.

See docs/specs/provisioning.md, section 3.1 (NETCAP) and section 6.10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from goffish.scheduling.dataflow import kernels
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow

#: Observed over rated bandwidth of machines by id; machines that are not listed have the rated bandwidth.
Bandwidths = Mapping[int, float]
#: Number of instances added for one narrow edge without a gain before something else is tried (§6.10).
PATIENCE = 3
#: Number of narrow edges that are tried at a time, so that a plan that cannot be helped is given up within seconds.
MOST_EDGES = 100
#: Least gain, as a share of the missing throughput; with less, machines would be added without end for slow links.
LEAST_GAIN = 0.05


def network_throughput(plan: Deployment, flow: Flow, external: Floats, bandwidths: Bandwidths | None = None) -> float:
    """Relative throughput of a deployment with the links between its machines (NETCAP, §3.1).

    Parameters
    ----------
    external : float64, shape (elements,)
        External input, messages per second.
    bandwidths : mapping from machine id to float, optional
        Observed over rated bandwidth; default: the rated bandwidth.
    """
    found = flow.estimate(plan.active, plan.power, external)
    if links_matter(plan, found.ideal_out.max() * flow.message_bits, bandwidths):
        found = flow.estimate(plan.active, plan.power, external, hosts=plan.hosts(dict(bandwidths or {})))
    return found.omega


def links_matter(plan: Deployment, bits_per_s: float, bandwidths: Bandwidths | None = None) -> bool:
    """Whether a link may be too slow for the PE with the highest output, wherever PEs are placed."""
    rated, seen = plan.catalogue.bandwidths, bandwidths or {}
    if seen:
        narrowest = min((rated[m.kind] * seen.get(n, 1.0) for n, m in plan.machines.items()), default=np.inf)
    else:
        narrowest = min((rated[kind] for kind in {machine.kind for machine in plan.machines.values()}), default=np.inf)
    if plan.catalogue.links:
        narrowest = min(narrowest, plan.catalogue.network.bandwidth_mbit_s.min())
    return bool(bits_per_s > narrowest * 1e6)


def reaching_plan(
    plans: Iterable[Deployment], flow: Flow, external: Floats, bandwidths: Bandwidths | None = None
) -> tuple[Deployment, float]:
    """Return the first plan that reaches the goal over the network, or one with neighbors collocated.

    Parameters
    ----------
    plans : iterable of Deployment
        At least one, the cheapest first. A plan with too few cores for the goal is returned unchanged.

    Returns
    -------
    Deployment
        If none reaches the goal: the cheapest collocated plan that reaches it, else the one with the highest
        throughput.
    float
        Its expected throughput.
    """
    goal = flow.goal.throughput - SLACK
    missed = []
    for plan in plans:
        omega = network_throughput(plan, flow, external, bandwidths)
        if omega >= goal or flow.estimate(plan.active, plan.power, external).omega < goal:
            return plan, omega
        missed.append(plan)
    found = [collocate(plan, flow, external, bandwidths) for plan in missed]
    reached = [one for one in found if one[1] >= goal]
    if reached:
        return min(reached, key=lambda one: round(one[0].price_per_hour / SLACK))
    return max(found, key=lambda one: round(one[1] / SLACK))


def collocate(
    live: Deployment, flow: Flow, external: Floats, bandwidths: Bandwidths | None = None
) -> tuple[Deployment, float]:
    """Add instances next to their neighbors until the links between machines let the goal through (§6.10).

    Each addition is for the edge that carries the least share of its messages. The receiver gets a free core of a
    machine that runs the sender; without a gain, the sender gets one on a machine of the receiver, or either of them a
    core elsewhere, for another link; without free cores, one of a new machine of the largest type. After `PATIENCE`
    additions for every narrow edge without a gain, they are undone and new machines are tried although cores are free;
    if these gain nothing either, the search ends.

    Returns
    -------
    Deployment
        Without additions that gained nothing; the given plan if more cores would be required.
    float
        Expected relative throughput; less than the goal if no addition helps, or the catalogue allows none.
    """
    plan, goal = live.copy(), flow.goal.throughput - SLACK
    seen, (_, sent) = dict(bandwidths or {}), flow.ideal(live.active, external)
    added: list[tuple[int, int]] = []
    fresh: list[int] | None = None
    kept, mark = 0, -1.0
    while True:
        hosts = plan.hosts(seen)
        omega = flow.estimate(plan.active, plan.power, external, hosts=hosts).omega
        count, sender, receiver = kernels.narrow_edges(flow.graph, sent, hosts, flow.message_bits)
        if mark < 0 or omega >= goal or omega - mark > max(SLACK, LEAST_GAIN * (goal - mark)):
            kept, mark, fresh = len(added), omega, None
        if omega >= goal or count == 0:
            break
        stuck = len(added) - kept >= PATIENCE * min(count, MOST_EDGES)
        if stuck and fresh is not None:
            break
        if stuck:
            _undo(plan, added, kept)
            fresh = []
        edge = _Edge(flow, int(sender), int(receiver), float(sent[sender]), seen)
        among = plan.machines if fresh is None else fresh
        free = [number for number in among if plan.free(number) > 0]
        if not free:
            limit = plan.catalogue.limit
            if limit is not None and len(plan.machines) >= limit:
                break
            free = [plan.plan_machine(plan.catalogue.largest)]
            fresh = None if fresh is None else fresh + free
        place = _place(plan, edge, free)
        plan.put(*place)
        added.append(place)
    _undo(plan, added, kept)
    return _pruned(plan, added, flow, external, seen, mark)


class _Edge(NamedTuple):
    """An edge, the messages that it should carry per second, and the observed bandwidths."""

    flow: Flow
    sender: int
    receiver: int
    rate: float
    bandwidths: dict[int, float]

    def carried(self, plan: Deployment) -> float:
        """Messages per second that the edge carries."""
        hosts = plan.hosts(self.bandwidths)
        return float(kernels.carried(self.sender, self.receiver, self.rate, hosts, self.flow.message_bits))


def _place(plan: Deployment, edge: _Edge, free: list[int]) -> tuple[int, int]:
    """Choose the end of an edge that gets a core, and its machine: the first option with a gain, else the
    one with the smallest loss.
    """
    ways = []
    ends = ((edge.receiver, edge.sender), (edge.sender, edge.receiver))
    for element, neighbour in ends:
        near = {n: plan.machines[n].instances[neighbour] for n in free if neighbour in plan.machines[n].instances}
        if near:
            ways.append((element, max(near, key=lambda n: (near[n] * plan.speed(n), plan.speed(n)))))
    for element, _ in ends:
        others = [number for number in free if element not in plan.machines[number].instances]
        if others:
            ways.append((element, max(others, key=plan.speed)))
    if not ways:
        return edge.receiver, max(free, key=plan.speed)
    before, found = edge.carried(plan), []
    for way in ways:
        plan.put(*way)
        found.append(edge.carried(plan))
        plan.take(*way)
        if found[-1] > before * (1.0 + SLACK):
            return way
    return ways[int(np.argmax(np.round(np.array(found) / edge.rate, 9)))]


def _undo(plan: Deployment, added: list[tuple[int, int]], kept: int) -> None:
    """Undo all but the first additions."""
    for element, machine in reversed(added[kept:]):
        plan.take(element, machine)
    del added[kept:]
    _settle(plan)


def _settle(plan: Deployment) -> None:
    """Drop new machines without instances."""
    for number in [number for number in plan.machines if number < 0 and plan.used(number) == 0]:
        plan.drop_machine(number)
    plan.settle()


def _pruned(
    plan: Deployment, added: list[tuple[int, int]], flow: Flow, external: Floats, seen: dict[int, float], omega: float
) -> tuple[Deployment, float]:
    """Undo additions, the first ones first, that are not required for the throughput or the goal."""
    for place in added:
        plan.take(*place)
        found = flow.estimate(plan.active, plan.power, external, hosts=plan.hosts(seen)).omega
        if found < min(omega, flow.goal.throughput) - SLACK:
            plan.put(*place)
        else:
            omega = found
    _settle(plan)
    return plan, flow.estimate(plan.active, plan.power, external, hosts=plan.hosts(seen)).omega

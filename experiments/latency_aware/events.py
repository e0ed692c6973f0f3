"""Throughput and latency of a placement by a simulation of single events, beside the analytic model in `throughput`.

See docs/specs/latency-aware.md, section 7.5 (3) and (4): every operator is a server of its own with a queue, the
servers of a host share its CPU, and what goes over the network takes CPU at both ends and the latency between them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.latency_aware import _event_kernels as kernels
from experiments.latency_aware.generators import Topology
from experiments.latency_aware.throughput import most_throughput
from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.score import CORE, Floats, Ints, PlacementProblem

#: An operator keeps up if it processes this share of what arrives; one with fewer arrivals than `COUNTED` is not asked.
ENOUGH, COUNTED = 0.97, 100


class EventGraph(NamedTuple):
    """Operators as the kernel wants them.

    Operator i sends each event that it emits along the branches ``branch_offsets[i]`` to ``branch_offsets[i + 1]``, one
    for each operation behind it; of branch b, ``targets[target_offsets[b]:target_offsets[b + 1]]`` receive it in turn,
    with the probability ``share[b]`` at all.

    Attributes
    ----------
    branch_offsets, target_offsets, targets : int64
    share : float64, shape (branches,)
    selectivity : float64, shape (operators,)
    work_s : float64, shape (operators,)
        Core-seconds for an event.
    network_s : float
        Core-seconds to send, and to receive, an event over the network.
    """

    branch_offsets: Ints
    share: Floats
    target_offsets: Ints
    targets: Ints
    selectivity: Floats
    work_s: Floats
    network_s: float


class Observed(NamedTuple):
    """What a simulation told, its beginning left out.

    Attributes
    ----------
    arrived, processed : int64, shape (operators,)
    busy : float64, shape (operators,)
        Share of the time in which each had something to do.
    outputs_per_s : float
        Of all sinks.
    latency_ms, network_ms : float
        Means over the outputs, from the source on: in all, and the part in the network; ``nan`` without an output.
    longest_ms : float
    finished : bool
        Whether the run went to its end; else there were too many events on their way.
    """

    arrived: NDArray[np.int64]
    processed: NDArray[np.int64]
    busy: Floats
    outputs_per_s: float
    latency_ms: float
    network_ms: float
    longest_ms: float
    finished: bool

    @property
    def keeps_up(self) -> bool:
        """Whether queues did not grow."""
        asked = self.arrived >= COUNTED
        return self.finished and bool((self.processed[asked] >= ENOUGH * self.arrived[asked]).all())


def event_graph(topology: Topology, problem: PlacementProblem, rate: float, per_event: float = 0.0) -> EventGraph:
    """The operators of a topology, with the work of an event that makes up their demands.

    Parameters
    ----------
    rate : float
        Input at which `problem.cpu` was counted, events per second.
    per_event : float
        CPU points for sending or receiving one event a second over the network.
    """
    if not rate > 0 or not per_event >= 0:
        raise InputError(f"rate = {rate:g}, per_event = {per_event:g}: above 0, and at least 0, are needed")
    if problem.operators != topology.operators:
        raise InputError(f"{problem.operators} operators in the problem, {topology.operators} in the topology")
    operation, counts = topology.operation, np.array(topology.instances)
    first = np.concatenate(([0], np.cumsum(counts)))
    behind: list[list[int]] = [[] for _ in counts]
    for at, (a, _) in enumerate(topology.edges):
        behind[a].append(at)
    branches = [edge for o in operation.tolist() for edge in behind[o]]
    ends = [topology.edges[edge][1] for edge in branches]
    inputs = (topology.inputs(rate) / counts)[operation]
    work = np.divide(problem.cpu / CORE, inputs, out=np.zeros(problem.operators), where=inputs > 0)
    return EventGraph(
        branch_offsets=np.concatenate(([0], np.cumsum([len(behind[o]) for o in operation]))).astype(np.int64),
        share=topology.edge_factors[branches],
        target_offsets=np.concatenate(([0], np.cumsum(counts[ends]))).astype(np.int64),
        targets=np.concatenate([np.zeros(0), *(np.arange(first[b], first[b + 1]) for b in ends)]).astype(np.int64),
        selectivity=np.array(topology.selectivity)[operation],
        work_s=work,
        network_s=per_event / CORE,
    )


def simulate_events(
    topology: Topology,
    problem: PlacementProblem,
    placement: ArrayLike,
    graph: EventGraph,
    rate: float,
    seed: int,
    *,
    events: int = 2000,
    warm: float = 0.2,
    varied_arrivals: bool = True,
    varied_service: bool = False,
    room: int = 100_000,
) -> Observed:
    """Send events through a placement.

    Parameters
    ----------
    graph : EventGraph
        Of `event_graph`.
    rate : float
        Input of every source, events per second.
    seed : int
    events : int
        That every source is given, on the mean.
    warm : float
        Share of the time that is left out at the beginning.
    varied_arrivals, varied_service : bool
        Poisson input and exponential times of service, or always the mean.
    room : int
        Events that may be on their way at once.
    """
    if not rate > 0 or events < 1 or room < 1 or not 0 <= warm < 1:
        raise InputError(
            f"rate = {rate:g}, events = {events}, room = {room}, warm = {warm:g}: 1 or more each, and 0 to 1"
        )
    place = problem.placement(placement)
    operation, counts = topology.operation, np.array(topology.instances)
    fed = {b for _, b in topology.edges}
    given = np.array([0.0 if o in fed else rate / counts[o] for o in operation.tolist()])
    horizon = events / rate
    counted, total = kernels.run(
        graph,
        place,
        problem.cpu_capacity / CORE,
        problem.latency_ms / 1e3,
        given,
        horizon,
        warm * horizon,
        varied_arrivals,
        varied_service,
        seed,
        room,
    )
    ended = float(total[kernels.ENDED_S])
    seconds, left = max(ended - warm * horizon, 1e-300), float(total[kernels.LEFT])
    latency, network = (total[row] / left if left else np.nan for row in (kernels.LATENCY_S, kernels.NETWORK_S))
    return Observed(
        arrived=counted[kernels.ARRIVED].astype(np.int64),
        processed=counted[kernels.PROCESSED].astype(np.int64),
        busy=counted[kernels.BUSY_S] / seconds,
        outputs_per_s=left / seconds,
        latency_ms=1e3 * float(latency),
        network_ms=1e3 * float(network),
        longest_ms=1e3 * float(total[kernels.LONGEST_S]),
        finished=ended == horizon,
    )


def sustained_throughput(
    topology: Topology,
    problem: PlacementProblem,
    placement: ArrayLike,
    rate: float,
    seed: int,
    *,
    per_event: float = 0.0,
    events: int = 2000,
    steps: int = 7,
) -> float:
    """The highest input, by bisection, at which the queues of no operator grow in a simulation.

    It is at most that of the analytic model, and less where an operator needs more than one core.

    Parameters
    ----------
    rate, per_event
        As in `event_graph`.
    seed, events
        As in `simulate_events`.
    steps : int
        Of the bisection; the answer is exact to 2**-steps of the analytic one.
    """
    graph = event_graph(topology, problem, rate, per_event)
    top = most_throughput(problem, placement, rate, per_event)
    if not np.isfinite(top):
        raise InputError("operators without any demand have no highest throughput")
    low, high = 0.0, top * (1 + 2 * (1 - ENOUGH))
    for _ in range(steps):
        middle = (low + high) / 2
        found = simulate_events(topology, problem, placement, graph, middle, seed, events=events)
        low, high = (middle, high) if found.keeps_up else (low, middle)
    return low

"""Dataflows on hosts as placement problems, and the answers as plans.

Operators are the instances of elements, numbered element by element. An instance is given whole cores of its own, so a
host may be filled; the 95 % of the specification are for shared cores.
"""

from __future__ import annotations

import numpy as np

from goffish.cloud.infrastructure import Infrastructure
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.dataflow.host_plan import HostPlan
from goffish.scheduling.policies.latency_aware.ant_system import Ants
from goffish.scheduling.policies.latency_aware.hybrid import hybrid
from goffish.scheduling.policies.latency_aware.score import CORE, Ints, PlacementProblem, ScoreWeights


def instances_needed(flow: Flow, external: Floats | None = None) -> Ints:
    """Instances of every element that keep up with an input on reference cores, on the best alternates.

    At least one, and no more than the element allows.
    """
    into, _ = flow.ideal(flow.best, flow.rates if external is None else external)
    work = into * flow.cost[flow.rows(flow.best)] / flow.needs.cores
    return np.minimum(flow.needs.most_instances, np.maximum(1, np.ceil(work - SLACK))).astype(np.int64)


def flow_problem(
    flow: Flow,
    infrastructure: Infrastructure,
    instances: Ints,
    *,
    active: Ints | None = None,
    external: Floats | None = None,
    cores: Floats | None = None,
    weights: ScoreWeights | None = None,
) -> PlacementProblem:
    """Instances of a dataflow on hosts.

    Parameters
    ----------
    instances : int64, shape (elements,)
    active : int64, shape (elements,), optional
        Alternates; default: the best.
    external : float64, shape (elements,), optional
        Input, messages per second; default: what is expected.
    cores : float64, shape (elements,), optional
        That an instance of each element is given; default: what it needs.
    weights : ScoreWeights, optional

    Raises
    ------
    InputError
        If an element has no instance, or may run on no host.
    """
    counts = np.asarray(instances, np.int64)
    if counts.shape != (flow.size,) or (counts < 1).any():
        raise InputError(f"instances: at least one of each of {flow.size} elements is needed")
    _, sent = flow.ideal(flow.best if active is None else active, flow.rates if external is None else external)
    element = np.repeat(np.arange(flow.size), counts)
    first = np.concatenate(([0], np.cumsum(counts)))
    edges, events = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
    for target in range(flow.size):
        for source in flow.pred[flow.pred_offsets[target] : flow.pred_offsets[target + 1]].tolist():
            ends = np.meshgrid(
                np.arange(first[source], first[source + 1]), np.arange(first[target], first[target + 1]), indexing="ij"
            )
            edges.append(np.stack(ends, axis=-1).reshape(-1, 2))
            each = sent[source] / (counts[source] * counts[target])
            events.append(np.full(len(edges[-1]), each))
    free = np.array([host.slots is None or host.slots > 0 for host in infrastructure.hosts])
    allowed = infrastructure.allowed(flow.needs.hosts, flow.needs.sites) & free
    stuck = np.flatnonzero(~allowed.any(axis=1))
    if stuck.size:
        raise InputError(f"element {flow.names[stuck[0]]} may run on no host that has a free slot")
    return PlacementProblem(
        edges=np.concatenate(edges),
        events=np.concatenate(events),
        cpu=CORE * (flow.needs.cores if cores is None else cores)[element],
        memory=flow.needs.memory_mb[element],
        cpu_capacity=CORE * infrastructure.cores,
        memory_capacity=infrastructure.memory_mb,
        latency_ms=1000.0 * infrastructure.latencies_s,
        allowed=allowed[element],
        hosts=tuple(host.name for host in infrastructure.hosts),
        weights=ScoreWeights() if weights is None else weights,
        limit=1.0,
    )


def host_counts(placement: Ints, instances: Ints, hosts: int) -> Ints:
    """Instances of each element on each host, shape (elements, hosts)."""
    found = np.zeros((len(instances), hosts), np.int64)
    np.add.at(found, (np.repeat(np.arange(len(instances)), instances), placement), 1)
    return found


def latency_aware_plan(
    flow: Flow,
    infrastructure: Infrastructure,
    rng: np.random.Generator,
    *,
    instances: Ints | None = None,
    external: Floats | None = None,
    start: HostPlan | None = None,
    ants: Ants | None = None,
    weights: ScoreWeights | None = None,
    seconds: float | None = None,
) -> HostPlan:
    """Places for the instances of a dataflow, by the hybrid.

    Parameters
    ----------
    instances : int64, shape (elements,), optional
        Default: those of `start`, else `instances_needed`.
    start : HostPlan, optional
        What runs.
    external, ants, weights, seconds
        As in `flow_problem` and `hybrid`.

    Raises
    ------
    InputError
        If it found no places where every host has enough cores and memory.
    """
    counts = instances
    if counts is None:
        counts = instances_needed(flow, external) if start is None else start.instances
    problem = flow_problem(flow, infrastructure, counts, external=external, weights=weights)
    begin = None
    if start is not None and np.array_equal(start.instances, counts):
        begin = [host for element in range(flow.size) for host in start.hosts_of(element)]
    found = hybrid(problem, rng, begin, ants=ants, seconds=seconds)
    if found.score.violations:
        raise InputError(f"no places without overload were found for {problem.operators} instances on these hosts")
    return HostPlan(infrastructure, host_counts(found.placement, counts, infrastructure.size))

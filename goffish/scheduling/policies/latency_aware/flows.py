"""Dataflows on hosts as placement problems, and conversion of their solutions to deployments.

Operators are the instances of PEs, numbered PE by PE. An instance has whole cores, so a host may be filled; the limit
of 95 % in the paper is for shared cores.
"""

from __future__ import annotations

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import Floats, Flow
from goffish.scheduling.dataflow.hosts import HostColumns
from goffish.scheduling.policies.latency_aware.score import CORE, Ints, PlacementProblem, ScoreWeights


def flow_problem(
    flow: Flow,
    hosts: HostColumns,
    instances: Ints,
    *,
    active: Ints | None = None,
    external: Floats | None = None,
    cores: Floats | None = None,
    weights: ScoreWeights | None = None,
) -> PlacementProblem:
    """Convert the instances of a dataflow on hosts to a placement problem.

    Parameters
    ----------
    instances : int64, shape (elements,)
    active : int64, shape (elements,), optional
        Alternates; default: the best.
    external : float64, shape (elements,), optional
        Input, messages per second; default: the expected rates.
    cores : float64, shape (elements,), optional
        Cores of an instance of each PE; default: its requirement.
    weights : ScoreWeights, optional

    Raises
    ------
    InputError
        If a PE has no instance, or is not permitted on any host.
    """
    counts = np.asarray(instances, np.int64)
    if counts.shape != (flow.size,) or (counts < 1).any():
        raise InputError(f"instances: expected at least one for each of {flow.size} processing elements")
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
    allowed = hosts.allowed(flow.needs)
    stuck = np.flatnonzero(~allowed.any(axis=1))
    if stuck.size:
        raise InputError(f"processing element {flow.names[stuck[0]]}: not permitted on any host")
    return PlacementProblem(
        edges=np.concatenate(edges),
        events=np.concatenate(events),
        cpu=CORE * (flow.needs.cores if cores is None else cores)[element],
        memory=flow.needs.memory_mb[element],
        cpu_capacity=CORE * hosts.cores,
        memory_capacity=hosts.memory_mb,
        latency_ms=hosts.latency_ms,
        allowed=allowed[element],
        hosts=hosts.names,
        weights=ScoreWeights() if weights is None else weights,
        limit=1.0,
    )


def host_counts(placement: Ints, instances: Ints, hosts: int) -> Ints:
    """Number of instances of each PE on each host, shape (elements, hosts)."""
    found = np.zeros((len(instances), hosts), np.int64)
    np.add.at(found, (np.repeat(np.arange(len(instances)), instances), placement), 1)
    return found

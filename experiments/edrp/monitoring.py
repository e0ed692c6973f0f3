"""Hosts with delays that were measured or estimated (EDRP, §3.5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from experiments.latency_aware.springs import LatencySpace
from goffish.cloud.infrastructure import Infrastructure
from goffish.errors import InputError

#: Milliseconds to whose multiples delays are rounded.
QUANTUM_MS = 1.0


def with_delays(hosts: Infrastructure, delays_ms: ArrayLike, quantum_ms: float = QUANTUM_MS) -> Infrastructure:
    """Hosts with measured delays, rounded: slight changes of what is measured then move nothing.

    Parameters
    ----------
    delays_ms : float, shape (hosts, hosts)
        One way.
    quantum_ms : float
        What delays are rounded to multiples of; 0 leaves them as they are.
    """
    if not quantum_ms >= 0:
        raise InputError(f"quantum_ms = {quantum_ms:g}: at least 0 is needed")
    found = np.array(delays_ms, np.float64)
    if found.shape != (hosts.size, hosts.size) or not (found >= 0).all() or not np.isfinite(found).all():
        raise InputError(f"delays_ms of shape {found.shape}: {hosts.size} rows of {hosts.size} delays are needed")
    if quantum_ms > 0:
        found = quantum_ms * np.round(found / quantum_ms)
    np.fill_diagonal(found, 0.0)
    # Built anew and not copied: a copy would keep what was computed from the delays before.
    fields = {name: getattr(hosts, name) for name in Infrastructure.model_fields}
    return Infrastructure(**fields | {"latency_ms": tuple(map(tuple, found.tolist()))})


def with_coordinates(hosts: Infrastructure, space: LatencySpace, quantum_ms: float = QUANTUM_MS) -> Infrastructure:
    """Hosts with the delays between their network coordinates; fresh measurements count before them.

    Parameters
    ----------
    space : LatencySpace
        Knows all hosts by their names.
    """
    return with_delays(hosts, space.latency_ms([host.name for host in hosts.hosts]), quantum_ms)

"""Hosts with delays that were measured or estimated (docs/specs/edrp.md, section 3.5)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from experiments.latency_aware.springs import LatencySpace
from goffish.errors import InputError
from goffish.scheduling.dataflow.hosts import HostColumns

#: Milliseconds to whose multiples delays are rounded.
QUANTUM_MS = 1.0


def with_delays(hosts: HostColumns, delays_ms: ArrayLike, quantum_ms: float = QUANTUM_MS) -> HostColumns:
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
    return replace(hosts, latency_ms=found)


def with_coordinates(hosts: HostColumns, space: LatencySpace, quantum_ms: float = QUANTUM_MS) -> HostColumns:
    """Hosts with the delays between their network coordinates; fresh measurements count before them.

    Parameters
    ----------
    space : LatencySpace
        Knows all hosts by their names.
    """
    return with_delays(hosts, space.latency_ms(hosts.names), quantum_ms)

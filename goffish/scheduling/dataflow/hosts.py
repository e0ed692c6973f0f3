"""Machines and the network between them as columns, one row per machine, for the placement algorithms.

Latency-aware placement and EDRP use this form of a catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.needs import NeedColumns

Floats = NDArray[np.float64]

#: Default properties of a machine: delays in milliseconds, bandwidths in Mbit/s.
_PLAIN = {
    "cores": 1.0, "speeds": 1.0, "memory_mb": np.inf, "prices": 0.0, "startup_s": 0.0, "failures": 0.0,
    "store_latency_ms": 0.0, "to_store": 1000.0, "from_store": 1000.0,
}  # fmt: skip
_BETWEEN = ("latency_ms", "traffic_prices")


@dataclass(frozen=True, eq=False)
class HostColumns:
    """Machines and the network between them.

    Attributes
    ----------
    names : tuple of str
        Type of each machine.
    sites : tuple of str or None
    cores, speeds : float64, shape (hosts,)
        `speeds` are of one core.
    memory_mb : float64, shape (hosts,)
        Infinite without a limit.
    prices : float64, shape (hosts,)
        Price of an hour.
    startup_s : float64, shape (hosts,)
        Seconds from the request until instances can start.
    failures : float64, shape (hosts,)
        Probability of failure within a day.
    latency_ms : float64, shape (hosts, hosts)
        One way, from row to column; 0 on the same host.
    traffic_prices : float64, shape (hosts, hosts)
        Per hour for one message per second; 0 on the same host.
    store_latency_ms, to_store, from_store : float64, shape (hosts,)
        Delay (one way) and bandwidth in Mbit/s between each host and the store that transfers code and state.
    """

    names: tuple[str, ...]
    sites: tuple[str | None, ...]
    cores: Floats
    speeds: Floats
    memory_mb: Floats
    prices: Floats
    startup_s: Floats
    failures: Floats
    store_latency_ms: Floats
    to_store: Floats
    from_store: Floats
    latency_ms: Floats
    traffic_prices: Floats

    @property
    def size(self) -> int:
        """Number of hosts."""
        return len(self.names)

    @property
    def latencies_s(self) -> Floats:
        """One-way delay between hosts in seconds, shape (hosts, hosts)."""
        return self.latency_ms / 1000.0

    def allowed(self, needs: NeedColumns) -> NDArray[np.bool_]:
        """Hosts that each PE may use, shape (elements, hosts)."""
        return needs.allowed(self.names, self.sites)


def host_columns(names: Sequence[str], sites: Sequence[str | None] | None = None, **figures: ArrayLike) -> HostColumns:
    """Build `HostColumns` from names and properties.

    Parameters
    ----------
    names : sequence of str
    sites : sequence of str, optional
    **figures
        Fields of `HostColumns`: a number for all hosts, or an array with one number for each host (or pair of hosts).

    Raises
    ------
    InputError
        If a field is unknown or has the wrong shape.
    """
    count = len(names)
    shapes = dict.fromkeys(_PLAIN, (count,)) | dict.fromkeys(_BETWEEN, (count, count))
    columns = {}
    for name, shape in shapes.items():
        given = np.asarray(figures.pop(name, _PLAIN.get(name, 0.0)), np.float64)
        if given.ndim and given.shape != shape:
            raise InputError(
                f"{name}: shape {given.shape} does not fit {count} hosts; give one number, or shape {shape}"
            )
        columns[name] = np.array(np.broadcast_to(given, shape))
    if figures:
        raise InputError(f"unknown fields {', '.join(figures)}; accepted: {', '.join(shapes)}")
    for name in _BETWEEN:
        np.fill_diagonal(columns[name], 0.0)
    return HostColumns(tuple(names), (None,) * count if sites is None else tuple(sites), **columns)


def machine_hosts(
    catalogue: Catalogue, kinds: Sequence[int], coefficients: Sequence[float], startup_s: ArrayLike = 0.0
) -> HostColumns:
    """Convert machines of a catalogue to hosts, in the given order.

    Parameters
    ----------
    kinds : sequence of int
        Machine type of each machine, as an index into the catalogue.
    coefficients : sequence of float
        Observed over rated speed of each machine.
    startup_s : float or float64, shape (hosts,)
    """
    classes = [catalogue.classes[kind] for kind in kinds]
    at = catalogue.site_numbers[list(kinds)]
    return host_columns(
        [c.name for c in classes],
        [c.site for c in classes],
        cores=[c.cores for c in classes],
        speeds=catalogue.speeds[list(kinds)] * np.maximum(coefficients, 1e-9),
        memory_mb=[np.inf if c.memory_mb is None else c.memory_mb for c in classes],
        prices=[c.price_per_hour for c in classes],
        startup_s=startup_s,
        latency_ms=catalogue.network.delay_ms[np.ix_(at, at)],
    )

"""Hosts that are there, and the network between them: what planners of places choose from.

A catalogue says what can be rented; an infrastructure is a given set of hosts, at one site or at many, with the latency
and the bandwidth of every pair. Machines that were rented become one with `infrastructure_of`.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from goffish.cloud.catalogue import Catalogue, Name, NotNegative, Positive, Sites
from goffish.definitions import Definition, read_definition
from goffish.errors import InputError

Floats = NDArray[np.float64]
#: One figure for all pairs of hosts, or a row for each host (from) with a column for each host (to).
Pairs = NotNegative | tuple[tuple[NotNegative, ...], ...]
#: One figure for all hosts, or one for each.
EachLatency = NotNegative | tuple[NotNegative, ...]
EachBandwidth = Positive | tuple[Positive, ...]


class Host(Definition):
    """One host.

    Attributes
    ----------
    name : str
    cores : float
        Reference cores that instances can be given, of `speed` each.
    speed : float
        Of a core, relative to the reference core.
    memory_mb : float, optional
        ``None`` is without a limit.
    price_per_hour : float
    startup_s : float
        To start an instance on it.
    slots : int, optional
        Dataflows that it can take part in; ``None`` is without a limit.
    failure : float
        Probability that it fails within a day.
    site : str, optional
        One of the infrastructure's `sites`; required if it has any.
    """

    name: Name
    cores: Positive = 1.0
    speed: Positive = 1.0
    memory_mb: Positive | None = None
    price_per_hour: NotNegative = 0.0
    startup_s: NotNegative = 0.0
    slots: Annotated[int, Field(ge=0, strict=True)] | None = None
    failure: Annotated[float, Field(ge=0, lt=1)] = 0.0
    site: Name | None = None


class Store(Definition):
    """A place outside of all hosts through which code and state move.

    Attributes
    ----------
    latency_ms : float or list
        Between it and every host, each way.
    bandwidth_mbit_s : float or list
        From every host to it, and back unless that is another one.
    down_mbit_s : float or list, optional
        From it to every host; ``None`` is the same as to it.
    """

    latency_ms: EachLatency = 0.0
    bandwidth_mbit_s: EachBandwidth = 1000.0
    down_mbit_s: EachBandwidth | None = None


def _distinct(hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    names = [host.name for host in hosts]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise ValueError(f"two hosts are called {twice}; rename one")
    return hosts


class Infrastructure(Sites):
    """Hosts and the network between them.

    Attributes
    ----------
    hosts : tuple of Host
        Their places are the host numbers in every plan.
    latency_ms : float or matrix
        One way, from row to column, whatever the sites are; or between any two hosts of a site. 0 inside of a host.
    bandwidth_mbit_s : float or matrix, optional
        From row to column, whatever the sites are; or between any two hosts, and no more than that of the links between
        their sites. ``None`` is without a limit; inside of a host there is none.
    traffic_price : float or matrix
        Per hour, for one message a second; 0 inside of a host.
    store : Store
    sites, links
        See `Sites`.
    """

    hosts: Annotated[tuple[Host, ...], Field(min_length=1), AfterValidator(_distinct)]
    latency_ms: Pairs = 0.0
    bandwidth_mbit_s: Pairs | None = None
    traffic_price: Pairs = 0.0
    store: Store = Store()
    currency: str = "USD"
    source: str = ""

    @model_validator(mode="after")
    def _square(self) -> Infrastructure:
        count = len(self.hosts)
        for name in ("latency_ms", "bandwidth_mbit_s", "traffic_price"):
            given = getattr(self, name)
            if isinstance(given, tuple):
                if len(given) != count or any(len(row) != count for row in given):
                    raise ValueError(f"{name}: {count} rows of {count} figures are needed, one for each host")
                if name != "bandwidth_mbit_s" and any(given[at][at] != 0 for at in range(count)):
                    raise ValueError(f"{name}: from a host to itself it must be 0")
        for name in ("latency_ms", "bandwidth_mbit_s", "down_mbit_s"):
            each = getattr(self.store, name)
            if isinstance(each, tuple) and len(each) != count:
                raise ValueError(f"store.{name}: {count} figures are needed, one for each host")
        return self

    @property
    def size(self) -> int:
        """Number of hosts."""
        return len(self.hosts)

    @cached_property
    def cores(self) -> Floats:
        """Of each host."""
        return np.array([host.cores for host in self.hosts])

    @cached_property
    def speeds(self) -> Floats:
        """Of a core of each host."""
        return np.array([host.speed for host in self.hosts])

    @cached_property
    def memory_mb(self) -> Floats:
        """Of each host; infinite without a limit."""
        return np.array([np.inf if host.memory_mb is None else host.memory_mb for host in self.hosts])

    @cached_property
    def prices(self) -> Floats:
        """Of an hour of each host."""
        return np.array([host.price_per_hour for host in self.hosts])

    @cached_property
    def failures(self) -> Floats:
        """Probability that each host fails within a day."""
        return np.array([host.failure for host in self.hosts])

    @cached_property
    def latencies_s(self) -> Floats:
        """Seconds from one host to another, shape (hosts, hosts)."""
        given: Any = self.latency_ms
        if self.sites and not isinstance(given, tuple):
            given = self._between(self.network.delay_ms)
        return self._matrix(given, 0.0) / 1000.0

    @cached_property
    def bandwidths(self) -> Floats:
        """Mbit/s from one host to another, shape (hosts, hosts); infinite without a limit and inside of a host."""
        given: Any = np.inf if self.bandwidth_mbit_s is None else self.bandwidth_mbit_s
        if self.sites and not isinstance(given, tuple):
            given = np.minimum(given, self._between(self.network.bandwidth_mbit_s))
        return self._matrix(given, np.inf)

    @cached_property
    def traffic_prices(self) -> Floats:
        """Per hour for one message a second from one host to another, shape (hosts, hosts)."""
        return self._matrix(self.traffic_price, 0.0)

    @cached_property
    def store_latencies_s(self) -> Floats:
        """Seconds between each host and the store, one way."""
        return self._each(self.store.latency_ms) / 1000.0

    @cached_property
    def store_bandwidths(self) -> tuple[Floats, Floats]:
        """Mbit/s from each host to the store, and from the store to each host."""
        store = self.store
        down = store.bandwidth_mbit_s if store.down_mbit_s is None else store.down_mbit_s
        return self._each(store.bandwidth_mbit_s), self._each(down)

    def _each(self, given: Any) -> Floats:
        return np.array(np.broadcast_to(np.asarray(given, np.float64), (self.size,)))

    def _between(self, figures: Floats) -> Floats:
        """Figures of each pair of sites, for each pair of hosts."""
        return figures[np.ix_(self.site_numbers, self.site_numbers)]

    def _places(self) -> dict[str, str | None]:
        return {f"hosts[{at}]": host.site for at, host in enumerate(self.hosts)}

    @property
    def _within_ms(self) -> float:
        return 0.0 if isinstance(self.latency_ms, tuple) else self.latency_ms

    def _matrix(self, given: Any, inside: float) -> Floats:
        found = np.array(np.broadcast_to(np.asarray(given, np.float64), (self.size, self.size)))
        np.fill_diagonal(found, inside)
        return found

    def number(self, name: str) -> int:
        """The number of a host by its name."""
        for at, host in enumerate(self.hosts):
            if host.name == name:
                return at
        raise InputError(f"no host {name!r}; there are: {', '.join(host.name for host in self.hosts[:20])}")

    def allowed(self, hosts: tuple[tuple[str, ...], ...], sites: tuple[tuple[str, ...], ...]) -> NDArray[np.bool_]:
        """Where each element may run, shape (elements, hosts); `hosts` and `sites` as in `NeedColumns`."""
        found = np.ones((len(hosts), self.size), np.bool_)
        for row, names, places in zip(found, hosts, sites, strict=True):
            if names:
                row[:] = False
                row[[self.number(name) for name in names]] = True
            if places:
                row &= [host.site in places for host in self.hosts]
        return found


def read_infrastructure(given: str | Path | dict[str, Any] | Infrastructure) -> Infrastructure:
    """An infrastructure from a YAML or JSON file, or from what such a file would hold.

    Raises
    ------
    InputError
        In one line: the file, the field, what is wrong and what is accepted.
    """
    return read_definition(Infrastructure, given, "infrastructure", "hosts")


def infrastructure_of(
    catalogue: Catalogue, kinds: list[int], coefficients: list[float] | None = None
) -> Infrastructure:
    """Machines of a catalogue as hosts, in their order.

    Parameters
    ----------
    kinds : list of int
        Class of each machine.
    coefficients : list of float, optional
        Observed speed over rated speed; default: 1.
    """
    speeds = [1.0] * len(kinds) if coefficients is None else coefficients
    classes = [catalogue.classes[kind] for kind in kinds]
    bands, sites = catalogue.bandwidths[kinds], catalogue.site_numbers[kinds]
    between = np.ix_(sites, sites)
    limited = np.minimum(np.minimum(bands[:, None], bands[None, :]), catalogue.network.bandwidth_mbit_s[between])
    # A pair without a limit is written as one that nothing reaches.
    band = None if np.isinf(limited).all() else np.where(np.isinf(limited), np.finfo(np.float64).max, limited)
    return Infrastructure(
        hosts=tuple(
            Host(
                name=f"{at}-{c.name}", cores=c.cores, speed=c.speed * max(speed, 1e-9), memory_mb=c.memory_mb,
                price_per_hour=c.price_per_hour, site=c.site,
            )
            for at, (c, speed) in enumerate(zip(classes, speeds, strict=True))
        ),
        latency_ms=catalogue.latency_ms,
        bandwidth_mbit_s=None if band is None else tuple(map(tuple, band.tolist())),
        currency=catalogue.currency,
        sites=catalogue.sites,
        links=catalogue.links,
    )  # fmt: skip

"""What can be rented: machine classes, their prices, how they are billed, how long they take to start, and their sites.

Every heuristic, the simulator and the providers speak of this one model. Speeds are relative to a reference core;
See docs/specs/provisioning.md, section 2.2.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from goffish.definitions import Definition, read_shipped, shipped_definitions
from goffish.errors import InputError

_ROOM = resources.files("goffish.cloud") / "catalogues"
Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: Price of an hour, in plans, of a class that is not to be had.
PROHIBITIVE = 1e9


class TypeColumns(NamedTuple):
    """What machine types offer, as kernels take it.

    Attributes
    ----------
    cores : int64, shape (types,)
    speeds : float64, shape (types,)
        Of one core.
    prices : float64, shape (types,)
        Of an hour; `PROHIBITIVE` where it is not to be had.
    """

    cores: NDArray[np.int64]
    speeds: NDArray[np.float64]
    prices: NDArray[np.float64]


class SiteNetwork(NamedTuple):
    """What lies between two machines, by their sites; float64 arrays of shape (sites, sites).

    Attributes
    ----------
    delay_ms
        One way, between different machines.
    bandwidth_mbit_s
        Of the links on the route; infinite inside a site.
    """

    delay_ms: NDArray[np.float64]
    bandwidth_mbit_s: NDArray[np.float64]


class Link(Definition):
    """A network link between two sites, the same in both directions.

    Attributes
    ----------
    between : (str, str)
        Names of the sites.
    latency_ms : float
        One way.
    bandwidth_mbit_s : float, optional
        Between any two machines of the sites; ``None`` is without a limit.
    """

    between: tuple[Name, Name]
    latency_ms: Annotated[float, Field(ge=0, le=3_600_000)]
    bandwidth_mbit_s: Positive | None = None


class Sites(Definition):
    """Base of what has sites: names of places, and the links between them.

    Attributes
    ----------
    sites : tuple of str, optional
        Default: all machines are at one place.
    links : tuple of Link
        Messages between two sites take the route of least latency.
    """

    sites: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
    links: Annotated[tuple[Link, ...], Field(max_length=4950)] = ()

    @model_validator(mode="after")
    def _connected(self) -> Sites:
        known = f"sites: {', '.join(self.sites[:20])}" if self.sites else "list it in sites"
        linked: set[frozenset[str]] = set()
        for at, link in enumerate(self.links):
            unknown = next((name for name in link.between if name not in self.sites), None)
            if unknown is not None:
                raise ValueError(f"links[{at}].between: no site {unknown!r}; {known}")
            pair = frozenset(link.between)
            if len(pair) < 2 or pair in linked:
                raise ValueError(f"links[{at}].between: {' and '.join(link.between)}; one link for two different sites")
            linked.add(pair)
        for place, site in self._places().items():
            if site is None and self.sites:
                raise ValueError(f"{place}.site: is missing; {known}")
            if site is not None and site not in self.sites:
                raise ValueError(f"{place}.site: no site {site!r}; {known}")
        if len(set(self.sites)) < len(self.sites):
            raise ValueError("sites: a site is given twice; every name is listed once")
        apart = np.argwhere(np.isinf(self.network.delay_ms))
        if len(apart):
            one, other = (self.sites[at] for at in apart[0])
            raise ValueError(f"links: no route between {one} and {other}; add a link")
        return self

    @cached_property
    def network(self) -> SiteNetwork:
        """What lies between the sites; without sites, between machines."""
        size = max(1, len(self.sites))
        delay, band = np.full((size, size), np.inf), np.full((size, size), np.inf)
        np.fill_diagonal(delay, 0.0)
        number = {name: at for at, name in enumerate(self.sites)}
        for link in self.links:
            ends = [number[name] for name in link.between]
            for one, other in (ends, ends[::-1]):
                delay[one, other] = link.latency_ms
                band[one, other] = np.inf if link.bandwidth_mbit_s is None else link.bandwidth_mbit_s
        for over in range(size):
            through = delay[:, over, None] + delay[over]
            shorter = through < delay
            band = np.where(shorter, np.minimum(band[:, over, None], band[over]), band)
            delay = np.where(shorter, through, delay)
        np.fill_diagonal(delay, self._within_ms)
        return SiteNetwork(delay, band)

    @cached_property
    def site_numbers(self) -> NDArray[np.int64]:
        """Site of each machine type or host, a row of `network`."""
        return np.array([0 if at is None else self.sites.index(at) for at in self._places().values()], np.int64)

    @abstractmethod
    def _places(self) -> dict[str, str | None]:
        """The site of each machine type or host, by its field."""

    @property
    @abstractmethod
    def _within_ms(self) -> float:
        """Delay between two machines of a site."""


class Billing(Definition):
    """How a machine's time is charged.

    Attributes
    ----------
    quantum_s : float
        Every started quantum is paid in full: 3600 is billing by the hour, 1 by the second.
    minimum_s : float
        Least time that is charged once a machine was started.
    cut_off : {"paid", "free", "first-hour-free"}
        The quantum in which the provider takes a spot machine away is paid like any other, is free (EC2 until 2017), or
        nothing is paid for a machine that is taken in its first hour (EC2 since).
    """

    quantum_s: Positive = 3600.0
    minimum_s: NotNegative = 0.0
    cut_off: Literal["paid", "free", "first-hour-free"] = "paid"


class MachineClass(Definition):
    """One kind of machine.

    Attributes
    ----------
    name : str
    cores : int
    speed : float
        Of one core, relative to the reference core.
    price_per_hour : float
        On demand, in the catalogue's currency; of a spot machine what it would cost on demand.
    bandwidth_mbit_s : float, optional
        Rated; ``None`` is without a limit.
    memory_mb : float, optional
    market : {"on-demand", "spot", "local"}
        Spot machines cost what `prices` say and are taken away when that exceeds `bid`; local ones are there already.
    prices : str, optional
        Of a spot machine: a file of prices over time (in a catalogue's file: relative to its folder), or the name of a
        bundled trace (`goffish.cloud.prices.bundled_traces`).
    bid : float, optional
        Of a spot machine: the most that is paid for an hour; default: `price_per_hour`.
    available : bool
        Whether it can be had now. What is not to be had costs `PROHIBITIVE` in plans.
    site : str, optional
        One of the catalogue's `sites`; required if it has any.
    limit : int, optional
        Machines of this type that may run at a time, such as hosts that exist already; default: as many as are wanted.
    """

    name: Name
    cores: int = Field(ge=1, le=100_000, strict=True)
    speed: Positive = 1.0
    price_per_hour: Annotated[float, Field(ge=0, lt=PROHIBITIVE)]
    bandwidth_mbit_s: Positive | None = None
    memory_mb: Positive | None = None
    market: Literal["on-demand", "spot", "local"] = "on-demand"
    prices: str | None = None
    bid: Positive | None = None
    available: bool = True
    site: Name | None = None
    limit: int | None = Field(default=None, ge=1, strict=True)

    @model_validator(mode="after")
    def _spot_fields(self) -> MachineClass:
        if self.market == "spot" and self.prices is None:
            raise ValueError(f"{self.name} is a spot machine: prices must name a file or trace of its prices")
        if self.market != "spot" and (self.prices is not None or self.bid is not None):
            raise ValueError(f"{self.name} has prices or a bid: only for market: spot")
        return self

    @property
    def power(self) -> float:
        """Speed of all cores together."""
        return self.cores * self.speed


def _distinct(classes: tuple[MachineClass, ...]) -> tuple[MachineClass, ...]:
    names = [c.name for c in classes]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise ValueError(f"two classes are called {twice}; rename one")
    return classes


class Catalogue(Sites):
    """The machine classes of one provider.

    Attributes
    ----------
    classes : tuple of MachineClass
        Their places are the class numbers in every plan.
    billing : Billing
    startup_s, shutdown_s : float
        From the request of a machine until it works, and from its release until it is gone.
    latency_ms : float
        Between two machines of the same site; 0 inside of one.
    limit : int, optional
        Machines that may run at a time.
    source : str
        Where the figures are from.
    sites, links
        See `Sites`.
    """

    classes: Annotated[tuple[MachineClass, ...], Field(min_length=1, alias="machine_types"), AfterValidator(_distinct)]
    billing: Billing = Billing()
    startup_s: NotNegative = 60.0
    shutdown_s: NotNegative = 0.0
    latency_ms: NotNegative = 0.0
    limit: int | None = Field(default=None, ge=1, strict=True)
    currency: str = "USD"
    source: str = ""

    def _places(self) -> dict[str, str | None]:
        return {f"machine_types[{at}]": one.site for at, one in enumerate(self.classes)}

    @property
    def _within_ms(self) -> float:
        return self.latency_ms

    @cached_property
    def cores(self) -> NDArray[np.int64]:
        """Of each class."""
        return np.array([c.cores for c in self.classes], np.int64)

    @cached_property
    def speeds(self) -> NDArray[np.float64]:
        """Of one core of each class."""
        return np.array([c.speed for c in self.classes])

    @cached_property
    def prices(self) -> NDArray[np.float64]:
        """Of an hour of each class; `PROHIBITIVE` where it is not to be had."""
        return np.array([c.price_per_hour if c.available else PROHIBITIVE for c in self.classes])

    @cached_property
    def available(self) -> NDArray[np.bool_]:
        """Which classes are to be had."""
        return np.array([c.available for c in self.classes])

    @cached_property
    def bandwidths(self) -> NDArray[np.float64]:
        """Of each class in Mbit/s; infinite where it has no limit."""
        return np.array([np.inf if c.bandwidth_mbit_s is None else c.bandwidth_mbit_s for c in self.classes])

    @cached_property
    def powers(self) -> NDArray[np.float64]:
        """Speed of all cores of each class."""
        return self.cores * self.speeds

    @cached_property
    def columns(self) -> TypeColumns:
        """Cores, speeds and prices of all classes."""
        return TypeColumns(self.cores, self.speeds, self.prices)

    @property
    def largest(self) -> int:
        """The class of the greatest power; of equal ones the cheapest, then the first."""
        return self.by_power[0]

    @cached_property
    def by_power(self) -> list[int]:
        """Classes that are to be had, from the most powerful to the least, cheaper ones first among equals.

        All of them if none is to be had.
        """
        order = np.lexsort((np.arange(self.powers.size), self.prices, -self.powers))
        return [int(c) for c in order if self.available[c] or not self.available.any()]

    def number(self, name: str) -> int:
        """The number of a class by its name."""
        for at, found in enumerate(self.classes):
            if found.name == name:
                return at
        raise InputError(f"no machine class {name!r}; there are: {', '.join(c.name for c in self.classes)}")

    def only(self, names: list[str]) -> Catalogue:
        """The same with some classes only."""
        return self.with_classes(tuple(self.classes[self.number(name)] for name in names))

    def with_prices_beside(self, folder: Path) -> Catalogue:
        """The same with absolute paths of the price files that lie in a folder."""
        classes = []
        for one in self.classes:
            path = None if one.prices is None else (folder / one.prices).absolute()
            there = path is not None and path.is_file()
            classes.append(one.model_copy(update={"prices": str(path)}) if there else one)
        return self.with_classes(tuple(classes))

    def with_classes(self, classes: tuple[MachineClass, ...]) -> Catalogue:
        """The same with other classes."""
        # A copy would keep the columns of the old classes where they were asked for already.
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return Catalogue(**{**fields, "classes": classes})


def known_catalogues() -> list[str]:
    """Names of the catalogues that come with GoFFish."""
    return shipped_definitions(_ROOM)


def read_catalogue(given: str | Path | dict[str, Any] | Catalogue) -> Catalogue:
    """A catalogue by its name (`known_catalogues`), from a YAML or JSON file, or from what such a file would hold.

    Files of prices that a file names are looked for in its folder first, then in the current one.

    Raises
    ------
    InputError
        In one line: the file, the field, what is wrong and what is accepted.
    """
    found = read_shipped(Catalogue, given, _ROOM, "catalogue", "machine_types")
    if isinstance(given, str | Path) and given not in known_catalogues():
        return found.with_prices_beside(Path(given).absolute().parent)
    return found

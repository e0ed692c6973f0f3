"""Catalogues: machine types, their prices, billing, start-up times, and sites.

All policies, the simulator and the providers use this model. Speeds are relative to a reference core. See
 docs/specs/provisioning.md, section 2.2.
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

from goffish.cloud.prices import PROHIBITIVE
from goffish.definitions import Definition, read_shipped, shipped_definitions
from goffish.errors import InputError

_BUNDLED = resources.files("goffish.cloud") / "catalogues"
Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

#: Fields of spot machines only.
SPOT_FIELDS = ("prices", "availability", "spot_price_per_hour", "zone", "bid")


class TypeColumns(NamedTuple):
    """Properties of machine types, in the form that kernels take.

    Attributes
    ----------
    cores : int64, shape (types,)
    speeds : float64, shape (types,)
        Of one core.
    prices : float64, shape (types,)
        Price of an hour; `PROHIBITIVE` if the machine type is not available.
    """

    cores: NDArray[np.int64]
    speeds: NDArray[np.float64]
    prices: NDArray[np.float64]


class SiteNetwork(NamedTuple):
    """Network between two machines, by their sites; float64 arrays of shape (sites, sites).

    Attributes
    ----------
    delay_ms
        One way, between different machines.
    bandwidth_mbit_s
        Bandwidth of the links on the route; infinite inside a site.
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
        Between any two machines of the sites; default: unlimited.
    """

    between: tuple[Name, Name]
    latency_ms: Annotated[float, Field(ge=0, le=3_600_000)]
    bandwidth_mbit_s: Positive | None = None


class Sites(Definition):
    """Base of models with sites: site names, and the links between them.

    Attributes
    ----------
    sites : tuple of str, optional
        Default: all machines are at one site.
    links : tuple of Link
        Messages between two sites take the route with the least latency.
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
                raise ValueError(f"links[{at}].between: unknown site {unknown!r}; {known}")
            pair = frozenset(link.between)
            if len(pair) < 2 or pair in linked:
                raise ValueError(
                    f"links[{at}].between: {' and '.join(link.between)}; give one link for each pair of different sites"
                )
            linked.add(pair)
        for place, site in self._places().items():
            if site is None and self.sites:
                raise ValueError(f"{place}.site: is missing; {known}")
            if site is not None and site not in self.sites:
                raise ValueError(f"{place}.site: unknown site {site!r}; {known}")
        if len(set(self.sites)) < len(self.sites):
            raise ValueError("sites: a site is listed twice; names must be unique")
        apart = np.argwhere(np.isinf(self.network.delay_ms))
        if len(apart):
            one, other = (self.sites[at] for at in apart[0])
            raise ValueError(f"links: no route between {one} and {other}; add a link")
        return self

    @cached_property
    def network(self) -> SiteNetwork:
        """Network between the sites, or between machines if there are no sites."""
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
        """Site of each machine type or host, as a row of `network`."""
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
        Every started quantum is charged in full: 3600 is billing by the hour, 1 by the second.
    minimum_s : float
        Minimum charged time of a started machine.
    cut_off : {"paid", "free", "first-hour-free"}
        Charge for the quantum of a spot interruption: as any other quantum, none (EC2 until 2017), or none at all for a
        machine interrupted in its first hour (EC2 since).
    """

    quantum_s: Positive = 3600.0
    minimum_s: NotNegative = 0.0
    cut_off: Literal["paid", "free", "first-hour-free"] = "paid"


class MachineType(Definition):
    """A machine type.

    Attributes
    ----------
    name : str
        Unique in the catalogue.
    cores : int
    speed : float
        Of one core, relative to the reference core.
    price_per_hour : float
        On-demand price in the catalogue's currency; for a spot machine, the on-demand price of the same machine.
    bandwidth_mbit_s : float, optional
        Rated bandwidth; default: unlimited.
    memory_mb : float, optional
        Memory of the machine; default: unlimited.
    market : {"on-demand", "spot", "local"}
        Spot machines follow `availability`, or `prices` and are interrupted when the price exceeds `bid`; local
        machines exist already.
    prices : str, optional
        For spot machines: a file of prices over time (relative to the folder of the catalogue file), or the name of a
        bundled trace.
    availability : str, optional
        For spot machines: a file that says when machines were available (`read_availability`). They have no bids, and
        cost `spot_price_per_hour` or the mean of `prices`.
    spot_price_per_hour : float, optional
        For spot machines with `availability`: their mean price.
    zone : str, optional
        For spot machines: availability zone of the provider.
    bid : float, optional
        For spot machines: the maximum price of an hour; default: `price_per_hour`.
    available : bool
        Whether the machine type is available now. Plans avoid types that are not.
    site : str, optional
        One of the catalogue's `sites`; required if the catalogue lists sites.
    limit : int, optional
        Maximum number of running machines of this type, such as the number of existing hosts; default: unlimited.
    """

    name: Name
    cores: int = Field(ge=1, le=100_000, strict=True)
    speed: Positive = 1.0
    price_per_hour: Annotated[float, Field(ge=0, lt=PROHIBITIVE)]
    bandwidth_mbit_s: Positive | None = None
    memory_mb: Positive | None = None
    market: Literal["on-demand", "spot", "local"] = "on-demand"
    prices: str | None = None
    availability: str | None = None
    spot_price_per_hour: NotNegative | None = None
    zone: Name | None = None
    bid: Positive | None = None
    available: bool = True
    site: Name | None = None
    limit: int | None = Field(default=None, ge=1, strict=True)

    @model_validator(mode="after")
    def _spot_fields(self) -> MachineType:
        given = {name for name in SPOT_FIELDS if getattr(self, name) is not None}
        if self.market != "spot" and given:
            raise ValueError(f"{self.name}: {', '.join(sorted(given))}: requires market: spot")
        if self.market == "spot" and self.availability is None and self.prices is None:
            raise ValueError(
                f"{self.name}: market spot requires prices (a price file or bundled trace) or availability (a file)"
            )
        if self.market == "spot" and self.availability is None and self.spot_price_per_hour is not None:
            raise ValueError(f"{self.name}: spot_price_per_hour requires availability")
        if self.availability is not None and (self.prices is None) == (self.spot_price_per_hour is None):
            raise ValueError(f"{self.name}: availability requires either prices or spot_price_per_hour")
        if self.availability is not None and self.bid is not None:
            raise ValueError(f"{self.name}: bid: not used with availability")
        return self

    @property
    def power(self) -> float:
        """Total speed of all cores."""
        return self.cores * self.speed


def _distinct(classes: tuple[MachineType, ...]) -> tuple[MachineType, ...]:
    names = [c.name for c in classes]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise ValueError(f"machine type {twice} is listed twice; names must be unique")
    return classes


class Catalogue(Sites):
    """The machine types of one provider.

    Attributes
    ----------
    classes : tuple of MachineType
        The machine types. Deployments refer to them by their positions.
    billing : Billing
    startup_s, shutdown_s : float
        Seconds from the request of a machine until it is ready, and from its release until it has stopped.
    latency_ms : float
        Between two machines of the same site; 0 on one machine.
    limit : int, optional
        Maximum number of running machines.
    source : str
        Source of the figures.
    currency : str
        Of all prices.
    sites : tuple of str, optional
        Default: all machines are at one site.
    links : tuple of Link
        Messages between two sites take the route with the least latency.
    """

    classes: Annotated[tuple[MachineType, ...], Field(min_length=1, alias="machine_types"), AfterValidator(_distinct)]
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
        """Cores of each machine type."""
        return np.array([c.cores for c in self.classes], np.int64)

    @cached_property
    def speeds(self) -> NDArray[np.float64]:
        """Speed of one core of each machine type."""
        return np.array([c.speed for c in self.classes])

    @cached_property
    def prices(self) -> NDArray[np.float64]:
        """Price of an hour of each machine type; `PROHIBITIVE` if it is not available."""
        return np.array([c.price_per_hour if c.available else PROHIBITIVE for c in self.classes])

    @cached_property
    def available(self) -> NDArray[np.bool_]:
        """Whether each machine type is available."""
        return np.array([c.available for c in self.classes])

    @cached_property
    def bandwidths(self) -> NDArray[np.float64]:
        """Bandwidth of each machine type in Mbit/s; infinite without a limit."""
        return np.array([np.inf if c.bandwidth_mbit_s is None else c.bandwidth_mbit_s for c in self.classes])

    @cached_property
    def powers(self) -> NDArray[np.float64]:
        """Total speed of all cores of each machine type."""
        return self.cores * self.speeds

    @cached_property
    def columns(self) -> TypeColumns:
        """Cores, speeds and prices of all machine types."""
        return TypeColumns(self.cores, self.speeds, self.prices)

    @property
    def largest(self) -> int:
        """The most powerful machine type; ties are broken by the lowest price, then the first position."""
        return self.by_power[0]

    @cached_property
    def by_power(self) -> list[int]:
        """Available machine types from the most to the least powerful, cheaper ones first among equals.

        All machine types if none is available.
        """
        order = np.lexsort((np.arange(self.powers.size), self.prices, -self.powers))
        return [int(c) for c in order if self.available[c] or not self.available.any()]

    def number(self, name: str) -> int:
        """Return the position of a machine type by its name."""
        for at, found in enumerate(self.classes):
            if found.name == name:
                return at
        raise InputError(f"unknown machine type {name!r}; accepted: {', '.join(c.name for c in self.classes)}")

    def only(self, names: list[str]) -> Catalogue:
        """Return the catalogue with some machine types only."""
        return self.with_classes(tuple(self.classes[self.number(name)] for name in names))

    def with_prices_beside(self, folder: Path) -> Catalogue:
        """Return the catalogue with absolute paths of the price and availability files in a folder."""
        classes = []
        for one in self.classes:
            given = {name: getattr(one, name) for name in ("prices", "availability")}
            paths = {name: (folder / path).absolute() for name, path in given.items() if path is not None}
            known = {name: str(path) for name, path in paths.items() if path.is_file()}
            classes.append(one.model_copy(update=known) if known else one)
        return self.with_classes(tuple(classes))

    def with_classes(self, classes: tuple[MachineType, ...]) -> Catalogue:
        """Return the catalogue with other machine types."""
        # A copy would keep the cached columns of the former machine types.
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return Catalogue(**{**fields, "classes": classes})


def known_catalogues() -> list[str]:
    """Return the names of the bundled catalogues."""
    return shipped_definitions(_BUNDLED)


def read_catalogue(given: str | Path | dict[str, Any] | Catalogue) -> Catalogue:
    """Read a catalogue by its bundled name (`known_catalogues`), from a YAML or JSON file, or from a mapping.

    Price and availability files are looked up in the folder of the catalogue file first, then in the current folder.

    Raises
    ------
    InputError
        The catalogue is invalid; the message names the file, the field, the problem and what is accepted.
    """
    found = read_shipped(Catalogue, given, _BUNDLED, "catalogue", "machine_types")
    if isinstance(given, str | Path) and given not in known_catalogues():
        return found.with_prices_beside(Path(given).absolute().parent)
    return found

"""What can be rented: machine classes, their prices, how they are billed, and how long they take to start.

Every heuristic, the simulator and the providers speak of this one model. Speeds are relative to a reference core;
specification of reactive provisioning, §2.2.
"""

from __future__ import annotations

from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from goffish.definitions import Definition, read_shipped, shipped_definitions
from goffish.errors import InputError

_ROOM = resources.files("goffish.services.cloud") / "catalogues"
Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Billing(Definition):
    """How a machine's time is charged.

    Attributes
    ----------
    quantum_s : float
        Every started quantum is paid in full: 3600 is billing by the hour, 1 by the second.
    minimum_s : float
        Least time that is charged once a machine was started.
    """

    quantum_s: Positive = 3600.0
    minimum_s: NotNegative = 0.0


class MachineClass(Definition):
    """One kind of machine.

    Attributes
    ----------
    name : str
    cores : int
    speed : float
        Of one core, relative to the reference core.
    price_per_hour : float
        On demand, in the catalogue's currency.
    bandwidth_mbit_s : float, optional
        Rated; ``None`` is without a limit.
    memory_mb : float, optional
    market : {"on-demand", "spot", "local"}
        Spot machines follow a price trace and may be taken away; local ones are there already.
    """

    name: Name
    cores: int = Field(ge=1, le=100_000, strict=True)
    speed: Positive = 1.0
    price_per_hour: NotNegative
    bandwidth_mbit_s: Positive | None = None
    memory_mb: Positive | None = None
    market: Literal["on-demand", "spot", "local"] = "on-demand"

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


class Catalogue(Definition):
    """The machine classes of one provider.

    Attributes
    ----------
    classes : tuple of MachineClass
        Their places are the class numbers in every plan.
    billing : Billing
    startup_s, shutdown_s : float
        From the request of a machine until it works, and from its release until it is gone.
    latency_ms : float
        Between two machines; 0 inside of one.
    limit : int, optional
        Machines that may run at a time.
    source : str
        Where the figures are from.
    """

    classes: Annotated[tuple[MachineClass, ...], Field(min_length=1), AfterValidator(_distinct)]
    billing: Billing = Billing()
    startup_s: NotNegative = 60.0
    shutdown_s: NotNegative = 0.0
    latency_ms: NotNegative = 0.0
    limit: int | None = Field(default=None, ge=1, strict=True)
    currency: str = "USD"
    source: str = ""

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
        """Of an hour of each class."""
        return np.array([c.price_per_hour for c in self.classes])

    @cached_property
    def bandwidths(self) -> NDArray[np.float64]:
        """Of each class in Mbit/s; infinite where it has no limit."""
        return np.array([np.inf if c.bandwidth_mbit_s is None else c.bandwidth_mbit_s for c in self.classes])

    @cached_property
    def powers(self) -> NDArray[np.float64]:
        """Speed of all cores of each class."""
        return self.cores * self.speeds

    @property
    def largest(self) -> int:
        """The class of the greatest power; of equal ones the cheapest, then the first."""
        return int(np.lexsort((np.arange(self.powers.size), self.prices, -self.powers))[0])

    def by_power(self) -> list[int]:
        """Classes from the most powerful to the least, cheaper ones first among equals."""
        return [int(c) for c in np.lexsort((np.arange(self.powers.size), self.prices, -self.powers))]

    def number(self, name: str) -> int:
        """The number of a class by its name."""
        for at, found in enumerate(self.classes):
            if found.name == name:
                return at
        raise InputError(f"no machine class {name!r}; there are: {', '.join(c.name for c in self.classes)}")

    def only(self, names: list[str]) -> Catalogue:
        """The same with some classes only."""
        # A copy would keep the columns of all classes where they were asked for already.
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return Catalogue(**{**fields, "classes": tuple(self.classes[self.number(name)] for name in names)})


def known_catalogues() -> list[str]:
    """Names of the catalogues that come with GoFFish."""
    return shipped_definitions(_ROOM)


def read_catalogue(given: str | Path | dict[str, Any] | Catalogue) -> Catalogue:
    """A catalogue by its name (`known_catalogues`), from a YAML or JSON file, or from what such a file would hold.

    Raises
    ------
    InputError
        In one line: the file, the field, what is wrong and what is accepted.
    """
    return read_shipped(Catalogue, given, _ROOM, "catalogue", "classes")

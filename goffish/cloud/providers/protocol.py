"""The protocol of providers of machines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from goffish.cloud.catalogue import Catalogue
from goffish.errors import JobError

Market = Literal["on-demand", "spot"]
#: ``pending`` until its command runs; the last four are final.
State = Literal["pending", "running", "finished", "released", "interrupted", "failed"]
FINAL: frozenset[State] = frozenset({"finished", "released", "interrupted", "failed"})


class CapacityError(JobError):
    """The provider has no such machine now, or a quota is reached; another type, zone or market may have one."""


class Offer(NamedTuple):
    """A machine type that can be requested now.

    Attributes
    ----------
    machine_type : str
        Name in the catalogue.
    market : {"on-demand", "spot"}
    zone : str
        Empty if the provider has no zones.
    price_per_hour : float
        In the currency of the catalogue.
    available : bool
        Whether a request is expected to be granted.
    """

    machine_type: str
    market: Market
    zone: str
    price_per_hour: float
    available: bool


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request of a machine.

    Attributes
    ----------
    machine_type : str
        Name in the catalogue.
    command : sequence of str
        Program and arguments. The machine ends with it. It gets SIGTERM before the machine is taken back, where the
        provider gives notice. The program ``python`` is the interpreter that has GoFFish on the machine. Without a
        command, the machine stays until it is released.
    token : str
        Requests with the same token are one request, so that it can be repeated after a failure.
    market : {"on-demand", "spot"}
    zone : str, optional
        Default: the provider chooses.
    max_price : float, optional
        Of an hour on the spot market; default: that on demand.
    environment : mapping
        Environment variables of the command. Never secrets: providers show them.
    tags : mapping
        By which the machine is found again.
    team : str
        Machines with the same team can connect to each other. Empty: nothing needs to connect to the machine.
    extras : sequence of str
        Extras of the package that the command needs, for providers that install it on the machine.
    """

    machine_type: str
    command: Sequence[str]
    token: str
    market: Market = "on-demand"
    zone: str | None = None
    max_price: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    team: str = ""
    extras: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """State of a machine. Times are seconds on the provider's clock.

    Attributes
    ----------
    id : str
    machine_type, market, zone : str
    state : State
    reason : str
        Of the state, in the words of the provider; may be empty.
    tags : mapping
    requested_s : float
    started_s : float, optional
        Start of the charged time.
    ended_s : float, optional
    notice_s : float, optional
        When the machine will be taken back, as the provider has announced.
    at_risk : bool
        Whether the provider recommends to move the work elsewhere.
    address : str, optional
    exit_code : int, optional
        Of the command; not every provider reports it.
    """

    id: str
    machine_type: str
    market: Market
    zone: str
    state: State
    reason: str
    tags: Mapping[str, str]
    requested_s: float
    started_s: float | None = None
    ended_s: float | None = None
    notice_s: float | None = None
    at_risk: bool = False
    address: str | None = None
    exit_code: int | None = None

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in FINAL


class Provider(Protocol):
    """Rents machines of a catalogue. Calls that fail for a moment are repeated by the provider."""

    @property
    def catalogue(self) -> Catalogue:
        """The machine types that can be requested."""
        ...

    @property
    def now(self) -> float:
        """Seconds on the provider's clock."""
        ...

    async def offers(self) -> list[Offer]:
        """Return what can be requested now, at its current price."""
        ...

    async def request(self, request: Request) -> Machine:
        """Request a machine.

        Raises
        ------
        CapacityError
            There is none now.
        InputError
            The request is not accepted.
        """
        ...

    async def release(self, ids: Collection[str]) -> None:
        """Release machines; their commands end. Of those that have ended, what is left is removed."""
        ...

    async def machines(self, tags: Mapping[str, str]) -> list[Machine]:
        """Return the machines with these tags, from any process, as long as the provider lists them."""
        ...

    async def costs(self, machines: Sequence[Machine]) -> list[float]:
        """Return what machines have cost until now, or their end, by what ran."""
        ...

    async def close(self) -> None:
        """End connections; machines that are part of this process end as well."""
        ...

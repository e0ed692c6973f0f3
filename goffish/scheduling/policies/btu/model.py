"""State of a controller of billing time units: operators, hosts with instances, and measurements.

See docs/specs/btu.md, section 2.

Times are in seconds; cores and megabytes are the guaranteed resources of an instance. 1024 CPU shares are a core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from goffish.errors import InputError

#: Tolerance of sums of resources against the size of a host.
SLACK = 1e-9


@dataclass(frozen=True)
class Settings:
    """Parameters of the controller; defaults of §3.9.

    Attributes
    ----------
    threshold : float
        Number of queued messages above which an operator gets another instance.
    window : int
        Number of durations in the regression of the trigger.
    image_factor : float
        Factor of the score of a host that has the operator's image cached (CF).
    queue_load : float
        Contribution of an empty queue to the utility of a donor (QL).
    instances_weight, queue_weight, delay_weight, scalings_weight : float
        Weights of the terms of that utility (W1 to W4).
    penalty : float
        Price of a delayed message (P).
    end_share : float
        Share of the billing time unit before its end in which a host is examined.
    cap : float
        Share of an operator's instances that a plan may remove; 1 disables the cap.
    escalate : bool
        Double the cap for every consecutive unit in which a host's plan failed and nothing was scaled up.
    cooldown_s : float
        Seconds after a scale-up in which an operator is not a donor.
    stale_s : float
        Seconds without a measured duration after which the objective replaces it.
    donors : int
        Maximum number of instances that an operator gives up for another one; 0: hosts are leased at once.
    double_above : float, optional
        Number of queued messages above which an operator gets two instances; default: never.
    strict_images : bool
        Prefer hosts with the image over all others, whatever their scores.
    pack : bool
        Prefer the fullest host, instead of the score of Algorithm 2.
    prefer_paid : bool
        Break ties by the longest paid time.
    rest_s : float
        Seconds after leasing a host in which no host is emptied.
    """

    threshold: float = 50.0
    window: int = 5
    image_factor: float = 0.01
    queue_load: float = 100.0
    instances_weight: float = 1.0
    queue_weight: float = 1.0
    delay_weight: float = 1.0
    scalings_weight: float = 1.0
    penalty: float = 1e-4
    end_share: float = 0.05
    cap: float = 0.2
    escalate: bool = True
    cooldown_s: float = 180.0
    stale_s: float = 120.0
    donors: int = 2
    double_above: float | None = None
    strict_images: bool = False
    pack: bool = False
    prefer_paid: bool = False
    rest_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("threshold", "penalty", "queue_load", "cooldown_s", "stale_s", "rest_s", "donors"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} = {getattr(self, name)}: must be at least 0")
        for name in ("end_share", "cap", "image_factor"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"{name} = {getattr(self, name)}: must be greater than 0 and at most 1")
        if self.window < 2:
            raise InputError(f"window = {self.window}: must be at least 2")


class OperatorNeeds(NamedTuple):
    """Guaranteed resources of an instance of each operator, and the objective for the duration of a message."""

    names: tuple[str, ...]
    cores: tuple[float, ...]
    memory_mb: tuple[float, ...]
    objective_s: tuple[float, ...]

    @property
    def size(self) -> int:
        """Number of operators."""
        return len(self.names)


class Size(NamedTuple):
    """Size of a host."""

    cores: float
    memory_mb: float


@dataclass
class LeasedMachine:
    """A leased machine.

    Attributes
    ----------
    number : int
        In the order of leases.
    size : Size
    placed : list of int
        Instances of each operator that start or run; instances that only finish their last message do not count.
    images : set of int
        Operators whose image is cached.
    paid_until_s : float
        End of the paid unit; infinite until the machine has started.
    closing : bool
        Whether the machine is being emptied.
    idle_fails : int
        Consecutive units in which its plan failed and nothing was scaled up.
    """

    number: int
    size: Size
    placed: list[int]
    images: set[int] = field(default_factory=set)
    paid_until_s: float = math.inf
    closing: bool = False
    idle_fails: int = 0

    @property
    def instances(self) -> int:
        """Number of instances that start or run on this machine."""
        return sum(self.placed)

    def free(self, operators: OperatorNeeds) -> Size:
        """Free resources next to the placed instances (h_cpu*, h_mem*)."""
        placed = [(count, k) for k, count in enumerate(self.placed) if count]
        cores = math.fsum(count * operators.cores[k] for count, k in placed)
        memory = math.fsum(count * operators.memory_mb[k] for count, k in placed)
        return Size(self.size.cores - cores, self.size.memory_mb - memory)


class Action(NamedTuple):
    """A decision of a controller, already applied to the state.

    ``start`` and ``drain`` an instance of `operator` on `host`, ``migrate`` one to `target`, ``lease``, ``prolong``,
    ``close`` (begin to empty), ``reopen`` or ``release`` a host.
    """

    kind: Literal["start", "drain", "migrate", "lease", "prolong", "close", "reopen", "release"]
    host: int
    operator: int = -1
    target: int = -1


@dataclass
class ClusterState:
    """The input of all decisions; plans are made on copies.

    Attributes
    ----------
    operators : OperatorNeeds
    size : Size
        Size of a leased host.
    hosts : dict from number to LeasedMachine
        In the order of leases.
    queues : list of float, per operator
        Queued messages.
    durations : list of list of float, per operator
        Last measured durations, oldest first.
    measured_s, raised_s : list of float, per operator
        Times of the last measured duration and of the last added instance.
    scalings : list of int, per operator
        Instances added and removed so far (o_s), without migrations.
    now_s : float
    leased_s : float
        Time of the last lease.
    most_hosts : int, optional
        Maximum number of leased hosts.
    next_host : int
    """

    operators: OperatorNeeds
    size: Size
    hosts: dict[int, LeasedMachine] = field(default_factory=dict)
    queues: list[float] = field(default_factory=list)
    durations: list[list[float]] = field(default_factory=list)
    measured_s: list[float] = field(default_factory=list)
    raised_s: list[float] = field(default_factory=list)
    scalings: list[int] = field(default_factory=list)
    now_s: float = 0.0
    leased_s: float = -math.inf
    most_hosts: int | None = None
    next_host: int = 0

    def __post_init__(self) -> None:
        n = self.operators.size
        for name, cores, memory in zip(*self.operators[:3], strict=True):
            if cores > self.size.cores + SLACK or memory > self.size.memory_mb + SLACK:
                needed = f"{cores:g} cores and {memory:g} MB"
                raise InputError(f"processing element {name}: a machine is too small for {needed}")
        self.queues = self.queues or [0.0] * n
        self.durations = self.durations or [[] for _ in range(n)]
        self.measured_s = self.measured_s or [-math.inf] * n
        self.raised_s = self.raised_s or [-math.inf] * n
        self.scalings = self.scalings or [0] * n

    def copy(self) -> ClusterState:
        """Return an independent copy."""
        # Copying field by field takes a tenth of the time of deepcopy, and plans are made often.
        hosts = {n: replace(h, placed=list(h.placed), images=set(h.images)) for n, h in self.hosts.items()}
        return replace(
            self, hosts=hosts, queues=list(self.queues), durations=[list(d) for d in self.durations],
            measured_s=list(self.measured_s), raised_s=list(self.raised_s), scalings=list(self.scalings),
        )  # fmt: skip

    @property
    def counts(self) -> list[int]:
        """Instances of each operator that start or run (o_#)."""
        return [sum(column) for column in zip(*(host.placed for host in self.hosts.values()), strict=True)] or [
            0
        ] * self.operators.size

    @property
    def usable(self) -> list[LeasedMachine]:
        """Hosts that may receive instances: leased and not being emptied; booting hosts count (F1)."""
        return [host for host in self.hosts.values() if not host.closing]

    def lease(self) -> LeasedMachine | None:
        """Lease one more host; None if the maximum is reached."""
        if self.most_hosts is not None and len(self.hosts) >= self.most_hosts:
            return None
        host = LeasedMachine(self.next_host, self.size, [0] * self.operators.size)
        self.hosts[host.number] = host
        self.next_host += 1
        self.leased_s = self.now_s
        return host

    def start(self, operator: int, host: int) -> Action:
        """Place an instance, and record its image as cached."""
        self.hosts[host].placed[operator] += 1
        self.hosts[host].images.add(operator)
        return Action("start", host, operator)

    def drain(self, operator: int, host: int) -> Action:
        """Remove an instance."""
        self.hosts[host].placed[operator] -= 1
        return Action("drain", host, operator)

    def raised(self, operator: int) -> None:
        """Record that an operator was scaled up."""
        self.scalings[operator] += 1
        self.raised_s[operator] = self.now_s

    def measure(self, operator: int, durations: list[float], at_s: float) -> None:
        """Set the last durations of an operator, oldest first, and the time of the latest measurement."""
        self.durations[operator] = list(durations)
        self.measured_s[operator] = at_s

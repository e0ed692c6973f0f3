"""Hosts of a flow that a provider rents, as many as the workers need."""

from __future__ import annotations

import json
import math
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goffish.cloud.catalogue import MachineType
from goffish.cloud.providers.protocol import Provider
from goffish.errors import InputError, JobError, StoreError
from goffish.gofs.files import open_folder
from goffish.partial import local_path
from goffish.streaming.checkpoints import write_file
from goffish.streaming.hosts.machines import LEASE_S, Machines
from goffish.streaming.hosts.versions import file_of
from goffish.streaming.rented.fleet import FLOW, RUN, Demand, Fleet, FlowMachine, Hooks, RentalLimits
from goffish.streaming.rented.tickets import Authority, RunFolder, Ticket, access_of
from goffish.streaming.topology import Topology
from goffish.streaming.updates.plan import UpdatePlan
from goffish.v1 import hosts_pb2

#: File in the folder of checkpoints with the run, so that the next one finds its machines.
_FILE = "rented.json"
_ID_BYTES = 8
#: Time that machines wait for the run that resumes the flow.
_REJOINS_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Renting:
    """How machines of a flow are rented.

    Attributes
    ----------
    provider : Provider
    limits : RentalLimits
    listen : str
        ``HOST:PORT`` at which machines reach this one.
    jobs : str, optional
        URI of a folder in object storage, which machines can read and write; default: a folder of this machine.
    look_s : float
        Interval of looks at the machines.
    """

    provider: Provider
    limits: RentalLimits
    listen: str
    jobs: str | None = None
    look_s: float = 2.0


class RentedMachines(Machines):
    """Hosts of a provider that run the workers of a flow: rented, replaced when they end, and released.

    Parameters
    ----------
    topology : Topology
        From a file.
    flow : str
        Path of that file, with ``:NAME`` if it has several flows.
    renting : Renting
    replication : int
        Number of copies of the state, which are to be on other machines.
    here : int
        Workers that this host takes.
    lease_s : float
        Silence of this host after which an agent ends its workers.
    checkpoint : str or Path, optional
        Folder of checkpoints of the flow.
    report : callable, optional
        Takes lines about machines.

    Raises
    ------
    InputError
        The flow cannot run on several hosts, or the address cannot be bound.
    """

    def __init__(
        self, topology: Topology, flow: str, renting: Renting, *, replication: int = 1, here: int = 0,
        lease_s: float = LEASE_S, checkpoint: str | Path | None = None, report: Callable[[str], object] | None = None,
    ) -> None:  # fmt: skip
        self._authority = Authority()
        self._renting, self._copies = renting, replication
        self._types = {one.name: one for one in renting.provider.catalogue.classes}
        self._home = Path(tempfile.mkdtemp(prefix="goffish-rented-"))
        self._size = self._asked = 0  # workers for which there are machines, and for which there are to be some
        self._rejoin_s = 0.0 if checkpoint is None else _REJOINS_S
        access = access_of(
            renting.listen, self._authority.token, self._authority.pair(), self._authority.certificate, self._home
        )
        run = _run_of(checkpoint)
        jobs = str(self._home / "jobs") if renting.jobs is None else renting.jobs.rstrip("/")
        self._place = f"{jobs}/{run}"
        self._store = RunFolder(open_folder(self._place))
        self._say = report or (lambda text: None)
        hooks = Hooks(self._command, self._lacking, self._spare, self._leave, self._store.failure, self._say)
        #: The machines, with their bill.
        self.fleet = Fleet(
            renting.provider, renting.limits, {RUN: run, FLOW: topology.name}, hooks, renting.look_s
        )  # fmt: skip
        try:
            super().__init__(topology, access, here=here, lease_s=lease_s, checkpoint=checkpoint)
            self._flow_file = self._store.put_flow(flow)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all agents, and release all machines."""
        if hasattr(self, "_thread"):
            super().close()
        self.fleet.close()
        if not self._home.exists():
            return  # it was closed before
        with suppress(StoreError):
            self._store.clear()
        if self.fleet.machines:
            self._say(self.fleet.total)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def bill(self) -> dict[str, Any]:
        """The machines with their hours and costs."""
        return self.fleet.summary()

    # What the controller asks.

    def wait(
        self,
        workers: int,
        report: Callable[[str], None] | None = None,
        stopped: Callable[[], bool] | None = None,
        here: int = 0,
    ) -> None:
        """Rent machines for so many workers, and wait for them."""
        self._here = max(here, self._here)
        self.check_workers(workers)
        self._size = self._asked = workers
        self.fleet.start()
        super().wait(workers, report, stopped, here)

    def _check(self) -> None:
        if self.fleet.error is not None:
            raise self.fleet.error

    def check_workers(self, workers: int) -> None:
        """Raise an error if so many workers need more machines, or more per hour, than the limits allow."""
        limits, catalogue = self._renting.limits, self._renting.provider.catalogue
        one = self._types[limits.machine_types[0]]
        count = max(math.ceil((workers - self._here) / one.cores), self._fewest(workers))
        text = f"{workers} workers need {count} machines of type {one.name}"
        if count > limits.max_machines:
            raise InputError(f"{text}; --max-machines {limits.max_machines} allows fewer")
        price = count * one.price_per_hour
        if limits.market == "on-demand" and limits.hourly_budget is not None and price > limits.hourly_budget:
            raise InputError(
                f"{text}, for {price:.4g} {catalogue.currency} per hour; --hourly-budget {limits.hourly_budget:g} "
                "allows less"
            )

    def reserve(self, workers: int) -> bool:
        """Rent machines for so many workers; return whether all have a place."""
        self._asked = workers
        if workers > self._size:
            self._size = workers
            self.fleet.look()
        ready = [one for one in self.fleet.machines if one.counts and one.joined]
        return self._slots >= workers and not self._is_short(ready, workers)

    # What the thread of the fleet asks.

    def _fewest(self, workers: int) -> int:
        """Return how many machines there must be so that copies of the state are not where their owners are."""
        if not self._copies or workers < 2:
            return 0 if workers <= self._here else 1
        return max(1, 2 + workers % 2 - (self._here > 0))

    def _is_short(self, machines: Sequence[FlowMachine], workers: int) -> bool:
        slots = sum(self._types[one.machine.machine_type].cores for one in machines)
        return slots < workers - self._here or len(machines) < self._fewest(workers)

    def _lacking(self, machines: Sequence[FlowMachine]) -> Demand | None:
        """Return the machine that is to be rented next, if one is."""
        return Demand(self._renting.limits.machine_types) if self._is_short(machines, self._size) else None

    def _spare(self, machines: Sequence[FlowMachine]) -> FlowMachine | None:
        """Return the machine that the fewest workers would have to leave, if others have places for all."""
        if self._terms is None or len([one for one in machines if one.joined]) < len(machines):
            return None
        counts = {host.machine: len(host.workers) for host in list(self._hosts.values())}
        running = sum(counts.values()) + len(self._local)
        if running <= self._asked < self._size:
            self._size = self._asked
        for one in sorted(machines, key=lambda one: (counts.get(one.name, 0), -one.price)):
            if not self._is_short([other for other in machines if other is not one], self._size):
                return one
        return None

    def _command(self, name: str, kind: MachineType) -> list[str]:
        certificate, key = self._authority.pair()
        ticket = Ticket(
            self.address, kind.cores, self._flow_file, str(Path.cwd()), self._rejoin_s, self._authority.token,
            certificate, key, self._authority.certificate,
        )  # fmt: skip
        self._store.put_ticket(name, ticket)
        return ["python", "-m", "goffish.streaming.rented.agent", self._place, name]

    def _leave(self, name: str) -> None:
        def leave() -> None:
            for host in self._hosts.values():
                if host.machine == name:
                    host.send(leave=hosts_pb2.Leave())

        self._loop.call_soon_threadsafe(leave)

    # What agents do.

    def _refusal(self, hello: Any) -> str | None:
        reason = super()._refusal(hello)
        if reason is None and not self.fleet.note_joined(hello.machine):
            return f"machine {hello.machine or 'without a name'} was not rented for this run, or is to end"
        return reason

    def _take_hello(self, host: Any, hello: Any) -> None:
        super()._take_hello(host, hello)
        self.fleet.note_leaving(host.machine, gone=False)

    def _lose(self, host: Any) -> None:
        super()._lose(host)
        self.fleet.note_leaving(host.machine, gone=True)

    # Updates.

    def deploy(self, plan: UpdatePlan) -> None:
        """Write the file of a new version for the machines, and let them prepare it."""
        file_of(plan.new)  # checks it
        assert plan.new.file is not None
        self._store.put_flow(plan.new.file)
        super().deploy(plan)


def _run_of(checkpoint: str | Path | None) -> str:
    """Return the name of the run: that of the folder of checkpoints, so that its machines are found again."""
    if checkpoint is None:
        return secrets.token_hex(_ID_BYTES)
    path = local_path(checkpoint) / _FILE
    try:
        return str(json.loads(path.read_text())["run"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path}: is not a file of this program; remove it, and the machines of the run") from None
    run = secrets.token_hex(_ID_BYTES)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps({"run": run}).encode())
    except OSError as error:
        raise JobError(f"{path}: cannot be written ({error.strerror or error})") from None
    return run

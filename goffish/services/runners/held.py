"""The machines that a job holds, and what they have cost, kept beyond a crash of the server."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass

from goffish.cloud.providers import Machine, Provider, Request
from goffish.services.runners.folder import Busy, JobFolder, write_whole
from goffish.services.runners.processes import end_worker

#: Tags of machines, and the file of `Kept`.
JOB, TURN, _KEPT = "goffish-job", "goffish-turn", "cloud.json"
#: Maximum time until a worker ends after its machine or server, and the interval of looks at it, in seconds.
_ENDS_S, _LOOK_S = 10.0, 0.05


def wait_until_free(folder: JobFolder) -> None:
    """Wait for the worker of a stopped machine; kill it after a timeout."""
    end = time.monotonic() + _ENDS_S
    while folder.busy:
        if time.monotonic() > end:
            end_worker(folder, None)
            break
        time.sleep(_LOOK_S)
    if folder.busy:
        raise Busy(f"{folder.path}: a worker cannot be stopped")


@dataclass
class Kept:
    """What a job keeps for the attempts after a crash of the server.

    Attributes
    ----------
    costs : dict
        By the turn of the machine; those of attempts without turns have the key "".
    core_hours : float, optional
        Left from the last checkpoint.
    """

    costs: dict[str, float]
    core_hours: float | None = None

    @classmethod
    def read(cls, folder: JobFolder, cost: float = 0.0) -> Kept:
        """Read what is kept; costs are those of the job at least."""
        kept = cls({})
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            kept = cls(**json.loads((folder.path / _KEPT).read_text()))
        if (missing := cost - sum(kept.costs.values())) > 0:
            kept.costs[""] = kept.costs.get("", 0.0) + missing
        return kept

    def write(self, folder: JobFolder) -> None:
        """Write all, for `read`."""
        write_whole(folder.path / _KEPT, json.dumps(asdict(self)), durable=False)


class Held:
    """The machines of a job: all of one machine type and market.

    Parameters
    ----------
    provider : Provider
    job : str
        ID of the job, by which its machines are found again.
    folder : JobFolder
    cost : float
        Of the job so far.

    Attributes
    ----------
    machines : dict
        By name, in the order in which they were requested.
    kept : Kept
    """

    def __init__(self, provider: Provider, job: str, folder: JobFolder, cost: float) -> None:
        self._provider, self._folder = provider, folder
        self.tags = {JOB: job}
        self.machines: dict[str, Machine] = {}
        self.kept = Kept.read(folder, cost)

    def __len__(self) -> int:
        return len(self.machines)

    @property
    def one(self) -> Machine:
        """Any of the machines."""
        return next(iter(self.machines.values()))

    async def request(self, name: str, request: Request) -> None:
        """Request a machine.

        Raises
        ------
        CapacityError
            There is none now.
        """
        self.machines[name] = await self._provider.request(request)

    async def refresh(self) -> None:
        """Read the states of all machines; a provider may not list one for a moment."""
        listed = {one.id: one for one in await self._provider.machines(self.tags)}
        self.machines = {name: listed.get(one.id, one) for name, one in self.machines.items()}

    async def release(self, names: Collection[str]) -> None:
        """Release machines, or what is left of them."""
        if names:
            await self._provider.release([self.machines[name].id for name in names])

    async def count(self) -> float:
        """Return what the job has cost until now."""
        machines = await self._provider.machines(self.tags)
        costs = await self._provider.costs(machines)
        self.kept.costs |= {one.tags[TURN]: cost for one, cost in zip(machines, costs, strict=True)}
        self.kept.write(self._folder)
        return sum(self.kept.costs.values())

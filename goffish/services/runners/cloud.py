"""Graph jobs on rented machines, controlled by a spot policy.

By default, machines are processes of the server with the prices of a catalogue, which end with the server. Machines
of other providers have the folder of the job in object storage; they outlive the server, which finds them again. When a
spot machine is taken back, the next one resumes from the checkpoint of the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from goffish.algorithms.catalogue import make
from goffish.cloud.catalogue import Catalogue
from goffish.cloud.providers import LocalProvider, Offer, Provider
from goffish.environment import child_environment
from goffish.errors import InputError, JobError
from goffish.services.runners.attempt import Attempt, Ended, Why
from goffish.services.runners.cloud_needs import Sized, size_of
from goffish.services.runners.cloud_planning import HOUR_S, Need, Plan, Planner, began_at
from goffish.services.runners.folder import Busy
from goffish.services.runners.held import JOB, Kept, wait_until_free
from goffish.services.runners.limits import UNLIMITED, JobLimits
from goffish.services.runners.mirror import BadFolder, Mirror
from goffish.services.runners.order import Files, Resolve, as_named, of_team, order_of, saves
from goffish.services.runners.processes import concluded
from goffish.services.runners.rented import Rented, RentedJob
from goffish.services.runners.rented_team import RentedTeam
from goffish.services.store.records import Clock, Job, State
from goffish.services.store.spec import DEFAULT_POLICY, GraphJob, SpotPolicy

#: Folder in that of a job with several machines of this computer, which is their storage.
_STORAGE = "storage"
#: Pauses between tries to release the machines of a job that is over, in seconds.
_PAUSES_S = (1.0, 4.0, 15.0)


class Renting(NamedTuple):
    """What a provider of machines for a job is made from.

    Attributes
    ----------
    catalogue : Catalogue
    share : float
        Local cores per reference core.
    folder : Path
        For the files of machines.
    pace : float
        Simulated cloud seconds per real second.
    since : float
        Time in the price histories at which the job begins, in seconds since 1970.
    environment : mapping
        Of the machines and their workers.
    """

    catalogue: Catalogue
    share: float
    folder: Path
    pace: float
    since: float
    environment: Mapping[str, str]


def rent_locally(renting: Renting) -> Provider:
    """Return processes of the server as machines."""
    return LocalProvider(
        renting.catalogue, reference_share=renting.share, folder=renting.folder, pace=renting.pace,
        since=renting.since, environment=renting.environment,
    )  # fmt: skip


class Planned(NamedTuple):
    """A plan, the estimate and the requirements that it was made from, and the catalogue."""

    plan: Plan
    sized: Sized
    need: Need
    catalogue: Catalogue


@dataclass(frozen=True)
class CloudRunner:
    """Runner of attempts on the simulated cloud.

    Attributes
    ----------
    resolve : callable
        Resolves the URI of a file to a path; raises `InputError`.
    cloud : callable
        Returns a catalogue by name; raises `InputError`.
    pace : float
        Simulated cloud seconds per real second.
    environment : mapping
        Environment variables of the machines and their workers.
    rent : callable
        Returns a provider of machines for a job.
    jobs_at : str, optional
        URI of the folders of jobs, for machines that do not share the files of the server.
    policy : str
        Of jobs that name none.
    provider : str
        Name of the provider, for reports of costs.
    """

    resolve: Resolve
    cloud: Callable[[str], Catalogue]
    pace: float = 360.0
    environment: Mapping[str, str] = field(default_factory=child_environment)
    clock: Clock = field(default_factory=Clock)
    planner: Planner = field(default_factory=Planner)
    limits: JobLimits = UNLIMITED
    rent: Callable[[Renting], Provider] = rent_locally
    jobs_at: str | None = None
    policy: SpotPolicy = DEFAULT_POLICY
    provider: str = "local"

    def run(self, attempt: Attempt) -> Ended:
        """Plan the job, and rent machines until it ends."""
        try:
            return self._run(attempt)
        except Busy as error:
            return Ended(State.QUEUED, str(error), lost=True)
        except _Stopped as stopped:
            return attempt.ended(stopped.why)

    def forget(self, job: Job) -> None:
        """Release the machines that a job which is over still holds, because its server was killed.

        Parameters
        ----------
        job : Job

        Raises
        ------
        JobError
            The provider does not answer.
        """
        graph = job.spec.graph
        if self.jobs_at is None or graph is None or graph.runner != "cloud":
            return
        for pause_s in (*_PAUSES_S, None):
            try:
                return asyncio.run(self._release_all(job.id, self.cloud(graph.cloud_name)))
            except (InputError, JobError) as error:
                if pause_s is None:
                    text = f"its machines could not be released: {error}; goffish cloud reap removes them"
                    raise JobError(text) from error
            time.sleep(pause_s)

    async def _release_all(self, job: str, catalogue: Catalogue) -> None:
        provider = self.rent(Renting(catalogue, 1.0, Path(), self.pace, 0.0, self.environment))
        try:
            left = [one.id for one in await provider.machines({JOB: job}) if not one.ended]
            if left:
                await provider.release(left)
        finally:
            await provider.close()

    def _run(self, attempt: Attempt) -> Ended:
        folder, job = attempt.folder, attempt.job
        graph = job.spec.graph
        assert graph is not None
        mirror = None
        if self.jobs_at is not None or graph.machines > 1:
            place = str(folder.path.absolute() / _STORAGE)
            if self.jobs_at is not None:
                place = f"{self.jobs_at.rstrip('/')}/{job.id}"
            mirror = Mirror(folder, place, self.limits.storage_mb)
        wait_until_free(folder)
        if mirror is not None:
            with contextlib.suppress(BadFolder):  # once more with its machine, if there is one
                mirror.fetch_news()
        if (done := concluded(folder)) is not None:
            return done
        files = Files.of(graph, self.resolve)
        left = Kept.read(folder).core_hours
        planned = self.plan(graph, files, attempt.time_left_s, core_hours=left, check=lambda: _stop(attempt))
        _note_plan(attempt, planned, self.provider)
        folder.path.mkdir(parents=True, exist_ok=True)
        machines_folder = folder.path / "machines"
        shutil.rmtree(machines_folder, ignore_errors=True)
        order = order_of(graph, files, self.limits)
        if graph.machines > 1:
            assert mirror is not None
            order |= of_team(mirror.place, graph)
        renting = self._renting(planned, machines_folder, self.clock.now() - (job.started or job.submitted))
        job_plan = RentedJob(
            attempt, planned.plan, planned.need, order, mirror, planned.sized.start_s * self.pace,
            stays=self.jobs_at is not None,
        )  # fmt: skip
        return asyncio.run(self._rented(job_plan, renting))

    def plan(
        self, graph: GraphJob, files: Files, left_s: float | None, *, core_hours: float | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Planned:  # fmt: skip
        """Plan a job.

        Parameters
        ----------
        graph : GraphJob
        files : Files
            Those of the job.
        left_s : float, optional
            Real seconds to the deadline.
        core_hours : float, optional
            What is left of the job; default: all.
        check : callable, optional
            Called periodically; may raise an exception to abort planning.

        Raises
        ------
        InputError
            The input cannot be read, or the job cannot be planned.
        """
        catalogue, remote = self.cloud(graph.cloud_name), self.jobs_at is not None
        try:
            sized = size_of(graph, files.input, catalogue, self.environment)
        except InputError as error:
            raise InputError(as_named(str(error), files.names)) from None
        if remote:
            sized = replace(sized, share=1.0)  # real cores
        made = make(graph.algorithm, dict(files.options))
        every = None if made.in_memory or made.only_whole() else graph.checkpoint_every
        need = sized.need(catalogue, self.pace, left_s, every)
        need = replace(need, notice=remote and saves(made), machines=graph.machines)
        if core_hours is not None:
            need = replace(need, core_hours=core_hours)
        plan = self.planner.plan(catalogue, graph.policy or self.policy, need, check)
        return Planned(plan, sized, need, catalogue)

    async def offers(self, planned: Planned, folder: Path) -> list[Offer]:
        """Return what can be requested now for a job that begins.

        Parameters
        ----------
        planned : Planned
        folder : Path
            For files of the provider.
        """
        provider = self.rent(self._renting(planned, folder, 0.0))
        try:
            return await provider.offers()
        finally:
            await provider.close()

    def _renting(self, planned: Planned, folder: Path, ran_s: float) -> Renting:
        catalogue = planned.catalogue
        since = began_at(catalogue, ran_s * self.pace)
        return Renting(catalogue, planned.sized.share, folder, self.pace, since, self.environment)

    async def _rented(self, job: RentedJob, renting: Renting) -> Ended:
        provider = self.rent(renting)
        try:
            loop = Rented if job.need.machines == 1 else RentedTeam
            return await loop(job, provider, self.pace).run()
        finally:
            await provider.close()


class _Stopped(Exception):
    """Signal to stop an attempt."""

    def __init__(self, why: Why) -> None:
        super().__init__(why)
        self.why = why


def _stop(attempt: Attempt) -> None:
    why = attempt.stops()
    if why is not None:
        raise _Stopped(why)


def _note_plan(attempt: Attempt, planned: Planned, provider: str) -> None:
    plan, sized, need, catalogue = planned
    market, found, currency = plan.market, sized.estimate, catalogue.currency
    text = f"{plan.name}: about {plan.expected_cost:.3g} {currency} expected"
    on_demand = plan.on_demand_cost if plan.on_demand_cost < float("inf") else None
    text += "" if on_demand is None else f", {on_demand:.3g} on demand"
    text += f", for {need.core_hours:.3g} core-hours in {plan.slots * plan.slot_s / HOUR_S:.3g} simulated hours"
    text += "" if plan.promised else "; the deadline cannot be guaranteed: using on-demand machines"
    details = {
        "policy": plan.name, "expected_cost": plan.expected_cost, "on_demand_cost": on_demand,
        "promised": plan.promised, "classes": [one.name for one in market.classes], "slot_s": plan.slot_s,
        "slots": plan.slots, "work": plan.work, "core_hours": need.core_hours, "startup_s": need.startup_s,
        "seconds_here": [found.core_hours_low * HOUR_S, found.core_hours * HOUR_S, found.core_hours_high * HOUR_S],
        "remark": sized.remark,
    }  # fmt: skip
    expected = attempt.job.expected_cost or plan.expected_cost + attempt.job.cost  # the first one is the prediction
    attempt.note("plan", text, details, expected_cost=expected, currency=currency, provider=provider)

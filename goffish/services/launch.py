"""Graph jobs on rented machines without a server: the process that launches a job also controls its machines.

The job, its events and its costs are kept in the database of a home folder, as those of a server are, under an ID that
is the same whenever the job is launched. A launcher that was killed is thus replaced by the next one.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from goffish.cloud.billing import rent
from goffish.cloud.providers import Offer
from goffish.errors import InputError
from goffish.services.api.settings import Settings
from goffish.services.runners.cloud import CloudRunner, Planned
from goffish.services.runners.cloud_planning import HOUR_S
from goffish.services.runners.supervisor import PatientJobs, Supervisor
from goffish.services.store.database import open_database
from goffish.services.store.records import OVER, Event, Job, State
from goffish.services.store.spec import JobSpec

#: Ends of the texts of events after which a job holds a machine.
_HOLDS = (" started", " found again")
#: Interval of looks at new events, in seconds.
_LOOK_S = 0.25


class Launcher:
    """Runs one job on rented machines; a context manager that stops to control them on exit.

    Parameters
    ----------
    home : Path
        Folder of the database and of the files of jobs.
    identity : str
        The same for every launch of a job.
    runner : CloudRunner

    Raises
    ------
    InputError
        Another process controls the job.
    """

    def __init__(self, home: Path, identity: str, runner: CloudRunner) -> None:
        number = hashlib.sha256(identity.encode()).hexdigest()[:20]
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with ExitStack() as held:
            lock = held.enter_context((home / f"launch-{number}.lock").open("a"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"--home {home}: another launcher controls this job") from None
            engine = open_database(Settings(home=home).database_url)
            held.callback(engine.dispose)
            self._jobs = PatientJobs(engine, f"launch-{number}")
            self._supervisor = Supervisor(
                self._jobs, home / "jobs", {"cloud": runner}, slots=1, forget=(runner.forget,)
            )
            self._held, self._begun = held.pop_all(), False
        #: Names of the machines that the job holds by the events so far.
        self.machines: list[str] = []
        self._after = 0

    def __enter__(self) -> Launcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._begun:
                self._supervisor.stop(0.0)
        finally:
            self._held.close()

    def unfinished(self) -> Job | None:
        """Return the job of an earlier launch that has not ended."""
        ahead = [state for state in State if state not in OVER]
        return next((job for job in self._jobs.find(states=ahead) if job.server == self._jobs.server), None)

    def submit(self, spec: JobSpec, client: str) -> Job:
        """Accept a job."""
        return self._jobs.submit(spec, client)[0]

    def cancel(self, job: Job, by: str) -> None:
        """Cancel a job."""
        self._supervisor.wake(self._jobs.cancel(job.id, by))

    def follow(self, job: Job) -> Iterator[Event]:
        """Control the machines of a job until it ends, and iterate over its events from now on."""
        self._after, over = job.events, False
        if not self._begun:
            self._begun = True
            self._supervisor.start()
        while not over:
            events, over = self.news(job)
            yield from events
            if not over and not events:
                time.sleep(_LOOK_S)

    def news(self, job: Job) -> tuple[list[Event], bool]:
        """Return the events since the last ones, and whether the job has ended."""
        events, over = self._jobs.news(job.id, self._after)
        for event in events:
            self._after = event.number
            if event.kind in ("machine", "lost"):
                ending = next((text for text in _HOLDS if event.text.endswith(text)), None)
                self.machines = [name for name in self.machines if not event.text.startswith(f"{name} ")]
                if ending is not None:
                    self.machines.append(event.text.removesuffix(ending))
        return events, over

    def job(self, job: str) -> Job:
        """Return a job."""
        return self._jobs.get(job)

    def result(self, job: Job) -> Path:
        """Return the file of the result of a job."""
        return self._supervisor.folder(job.id).result


def describe(runner: CloudRunner, planned: Planned, folder: Path) -> dict[str, Any]:
    """Describe a plan, with current prices of its machine types, as JSON-compatible data.

    Parameters
    ----------
    runner : CloudRunner
    planned : Planned
    folder : Path
        For files of the provider.
    """
    plan, sized, need, catalogue = planned
    risk, offers = plan.risk(), asyncio.run(runner.offers(planned, folder))
    return {
        "policy": plan.name, "core_hours": need.core_hours, "currency": catalogue.currency,
        "expected_cost": plan.expected_cost, "on_demand_cost": plan.on_demand_cost,
        "hours": plan.slots * plan.slot_s / HOUR_S, "deadline_guaranteed": plan.promised,
        "least_hours": plan.market.least_slots(plan.work) * plan.slot_s / HOUR_S,
        "risk": None if risk is None else risk._asdict(), "remark": sized.remark,
        "machine_types": [one for kind in range(len(plan.market.classes)) for one in _choices(planned, kind, offers)],
    }  # fmt: skip


def _choices(planned: Planned, kind: int, offers: list[Offer]) -> Iterator[dict[str, Any]]:
    """Iterate over the offers of a machine type, and what the job takes and costs on it without interruptions."""
    plan = planned.plan
    one, billing = plan.market.classes[kind], planned.catalogue.billing
    hours = plan.hours_on(kind)
    for offer in sorted(offers, key=lambda offer: (offer.market == "on-demand", offer.price_per_hour, offer.zone)):
        if offer.machine_type != one.name:
            continue
        spot = offer.market == "spot"
        price = offer.price_per_hour if offer.available else None
        cost = None if price is None else float(rent(hours * HOUR_S, price, billing)) * planned.need.machines
        yield {
            "machine_type": one.name, "market": offer.market, "zone": offer.zone or None, "price_per_hour": price,
            "hours": hours, "cost": cost,
            "hours_between_interruptions": plan.hours_between_interruptions(kind) if spot else None,
        }  # fmt: skip

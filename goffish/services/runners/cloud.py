"""Graph jobs on rented machines, controlled by a spot policy.

By default, machines are processes of the server with the prices of a catalogue, which end with the server. Machines
of other providers have the folder of the job in object storage; they outlive the server, which finds them again. When a
spot machine is taken back, the next one resumes from the checkpoint of the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.prices import ANY_PRICE, UNAVAILABLE
from goffish.cloud.providers import CapacityError, LocalProvider, Machine, Offer, Provider, Request
from goffish.environment import child_environment
from goffish.errors import InputError, JobError
from goffish.scheduling.spot.advice import text_of
from goffish.scheduling.spot.job import CHECKPOINT, RELEASE, RUNNING, START, STARTUP, Status, slots_left, submitted
from goffish.scheduling.spot.model import Market
from goffish.services.runners.attempt import Attempt, Ended, Why
from goffish.services.runners.cloud_needs import Sized, size_of
from goffish.services.runners.cloud_planning import HOUR_S, Need, Plan, Planner, began_at
from goffish.services.runners.folder import Busy, JobFolder, write_whole
from goffish.services.runners.limits import UNLIMITED, JobLimits
from goffish.services.runners.mirror import BadFolder, Mirror
from goffish.services.runners.order import Files, Resolve, as_named, order_of
from goffish.services.runners.processes import (
    EventWriter,
    concluded,
    end_worker,
    lost,
    over_limit,
    worker_command,
)
from goffish.services.runners.worker import NOTICED
from goffish.services.store.records import Clock, LostJob, State
from goffish.services.store.spec import DEFAULT_POLICY, GraphJob, SpotPolicy

#: Interval of looks at machines, in seconds; providers limit calls of their API.
_LOOK_S, _REMOTE_LOOK_S = 0.1, 2.0
#: Interval of cost and progress events, in seconds.
_REPORT_S, _REMOTE_REPORT_S = 2.0, 10.0
#: Maximum time until a worker ends after its machine or server, in seconds.
_ENDS_S = 10.0
#: Safety margin before the deadline, in slots.
_MARGIN = 1
_Found = TypeVar("_Found")
#: Tags of machines, and the file of `_Kept`.
_JOB, _TURN, _KEPT = "goffish-job", "goffish-turn", "cloud.json"
#: Module of workers whose folder is in object storage.
_REMOTE = "goffish.services.runners.remote_worker"
#: Exit codes of workers after a notice: as it should be, or while their process was starting.
_NOTICED = (NOTICED, -signal.SIGTERM, 128 + signal.SIGTERM)
#: Wrapper that appends the output of a command to the log given as its first argument.
_LOGGED = ("/bin/sh", "-c", 'log=$1; shift; exec "$@" >>"$log" 2>&1', "sh")


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

    def _run(self, attempt: Attempt) -> Ended:
        folder, job = attempt.folder, attempt.job
        graph = job.spec.graph
        assert graph is not None
        mirror = None
        if self.jobs_at is not None:
            mirror = Mirror(folder, f"{self.jobs_at.rstrip('/')}/{job.id}", self.limits.storage_mb)
        _wait_until_free(folder)
        if mirror is not None:
            with contextlib.suppress(BadFolder):  # once more with its machine, if there is one
                mirror.fetch_news()
        if (done := concluded(folder)) is not None:
            return done
        files = Files.of(graph, self.resolve)
        left = _Kept.read(folder).core_hours
        planned = self.plan(graph, files, attempt.time_left_s, core_hours=left, check=lambda: _stop(attempt))
        _note_plan(attempt, planned, self.provider)
        folder.path.mkdir(parents=True, exist_ok=True)
        machines_folder = folder.path / "machines"
        shutil.rmtree(machines_folder, ignore_errors=True)
        order = order_of(graph, files, self.limits)
        renting = self._renting(planned, machines_folder, self.clock.now() - (job.started or job.submitted))
        job_plan = _Job(attempt, planned.plan, planned.need, order, mirror, planned.sized.start_s * self.pace)
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
        need = replace(sized.need(catalogue, self.pace, left_s), notice=remote)
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

    async def _rented(self, job: _Job, renting: Renting) -> Ended:
        provider = self.rent(renting)
        try:
            return await _Rented(job, provider, self.pace).run()
        finally:
            await provider.close()


class _Job(NamedTuple):
    """An attempt and its plan, the order of its workers, its folder in storage, and the time that a start takes."""

    attempt: Attempt
    plan: Plan
    need: Need
    order: dict[str, Any]
    mirror: Mirror | None = None
    start_s: float = 0.0


class _Stopped(Exception):
    """Signal to stop an attempt."""

    def __init__(self, why: Why) -> None:
        super().__init__(why)
        self.why = why


def _stop(attempt: Attempt) -> None:
    why = attempt.stops()
    if why is not None:
        raise _Stopped(why)


@dataclass
class Delays:
    """The longest delays of a job so far, in simulated seconds; real processes do not follow the simulated clock.

    Attributes
    ----------
    start_s : float
        From the request of a machine until its worker runs; at least the planned start-up.
    release_s : float
        Until the worker of a released machine has ended.
    decide_s : float
        Of a decision, which may fit the market again.
    """

    start_s: float
    release_s: float = 0.0
    decide_s: float = 0.0

    def reserve_s(self, planned_s: float) -> float:
        """Return the time before the deadline that a change of machines takes beyond the planned start-up."""
        return max(0.0, self.start_s - planned_s) + self.release_s + self.decide_s


class _Rented:
    """Control loop of an attempt, which uses one machine at a time."""

    def __init__(self, job: _Job, provider: Provider, pace: float) -> None:
        attempt, plan, need, self._order, self._mirror, start_s = job
        self._attempt, self._plan, self._need = attempt, plan, need
        self._provider, self._pace = provider, pace
        assert attempt.job.spec.graph is not None
        self._graph = attempt.job.spec.graph
        self._events = EventWriter(attempt)
        self._saved = attempt.folder.saved
        self._kept = _Kept.read(attempt.folder, attempt.job.cost)
        #: Core-hours left from the last checkpoint, and the target time of a job without a deadline.
        self._left, self._until_s = need.core_hours, plan.slots * plan.slot_s
        self._machine: Machine | None = None
        self._choice = -1
        self._prices: list[float] = []  # of all choices
        self._cost = attempt.job.cost
        self._waits = False
        #: Last reported price of the machine.
        self._price = 0.0
        self._runs = False
        self._begun_s = 0.0
        self.delays = Delays(max(need.startup_s, start_s))
        #: Time of the request of a machine whose worker does not run yet, and the session of the worker before.
        self._asked_s: float | None = None
        self._session: int | str | None = None
        self._turn = ""
        self._problem = ""  # reported last
        #: Whether the policy has asked for a checkpoint that is not written yet.
        self._asked = False

    async def run(self) -> Ended:
        """Run until the job ends or must stop."""
        try:
            return await self._control()
        except BadFolder as error:
            if self._machine is not None:
                await self._provider.release([self._machine.id])
                await self._forget("machine", f"{self._name} released")
            return Ended(State.FAILED, str(error))

    async def _control(self) -> Ended:
        attempt = self._attempt
        next_decision = next_write = 0.0
        look_s, report_s = (_LOOK_S, _REPORT_S) if self._mirror is None else (_REMOTE_LOOK_S, _REMOTE_REPORT_S)
        while not await self._patiently(self._adopt):  # there may be a machine that runs the job
            if (why := attempt.stops()) is not None:
                return self._over(attempt.ended(why))
            await asyncio.sleep(look_s)
        while True:
            why = attempt.stops()
            if why is not None:
                if why != "drained" or self._mirror is None:  # the next server finds the machine
                    await self._give_back("released")
                return self._over(attempt.ended(why))
            if self._runs and time.monotonic() >= next_write:
                limit = over_limit(attempt.folder, self._order["limits"]["memory_mb"], self._graph.cpu_seconds)
                if limit is not None:
                    await self._give_back("released")
                    return self._over(limit)
            had = self._machine is not None
            ended = await self._patiently(self._look) if had else self._done()
            if ended is not None:
                return ended
            saved = had and self._asked and await self._patiently(self._look_for_checkpoint)
            if saved or (self._machine is not None) != had or self._provider.now >= next_decision:
                await self._patiently(self._decide)
                next_decision = self._provider.now + self._plan.slot_s
                self._rest()
            if time.monotonic() >= next_write:
                await self._patiently(self._report)
                next_write = time.monotonic() + report_s
            await asyncio.sleep(look_s)

    async def _patiently(self, step: Callable[[], Awaitable[_Found | None]]) -> _Found | None:
        """Take a step; where the provider or storage does not answer, machines run on, and the next step is tried."""
        if self._mirror is None:
            return await step()
        try:
            found = await step()
        except (BadFolder, LostJob):
            raise
        except (InputError, JobError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._attempt.note("wait", self._problem)
            return None
        self._problem = ""
        return found

    async def _find(self, before: Machine) -> Machine:
        """Return the state of a machine; a provider may not list it for a moment."""
        machines = await self._provider.machines(self._tags)
        return next((one for one in machines if one.id == before.id), before)

    @property
    def _tags(self) -> dict[str, str]:
        return {_JOB: str(self._attempt.job.id)}

    async def _adopt(self) -> bool:
        """Go on with the machine of a server that was killed, and release others; return True."""
        attempt, market = self._attempt, self._plan.market
        choices = {_type(market, choice): choice for choice in range(market.choices)}
        await self._count()
        for one in await self._provider.machines(self._tags):
            if one.ended:
                await self._provider.release([one.id])
                continue
            choice = choices.get((one.machine_type, one.market))
            if choice is None or self._machine is not None or one.tags.get(_TURN) != attempt.folder.turn:
                await self._provider.release([one.id])
                continue
            self._machine, self._choice, self._turn = one, choice, one.tags[_TURN]
            self._asked_s = one.requested_s
            await self._look_up_prices()
            self._price = self._prices[choice]
            if attempt.job.state == State.PLANNED:
                attempt.move(State.PROVISIONING, f"{self._name} found again")
            await self._note_machine("machine", f"{self._name} found again")
        if self._machine is None and attempt.job.state in (State.PROVISIONING, State.RUNNING):
            attempt.move(State.MIGRATING, "machines stopped with the killed server")
        return True

    async def _count(self) -> None:
        """Update what the job has cost."""
        machines = await self._provider.machines(self._tags)
        costs = await self._provider.costs(machines)
        self._kept.costs |= {one.tags[_TURN]: cost for one, cost in zip(machines, costs, strict=True)}
        self._cost = sum(self._kept.costs.values())
        self._kept.write(self._attempt.folder)

    @property
    def _worker(self) -> int | str | None:
        """What is different for each worker that has begun."""
        if self._mirror is None:
            return self._attempt.folder.session
        return self._turn if self._mirror.has_begun(self._turn) else None

    async def _look(self) -> Ended | None:
        """Check the machine and its worker; return the outcome if the attempt has ended."""
        before, attempt, folder = self._machine, self._attempt, self._attempt.folder
        assert before is not None
        self._machine = machine = await self._find(before)
        if self._asked_s is not None:
            self.delays.start_s = max(self.delays.start_s, self._provider.now - self._asked_s)
            if self._worker != self._session:
                self._asked_s = None
                # Work begins now, however long the start took.
                self._begun_s = max(self._begun_s, self._provider.now - self._need.startup_s)
        if machine.ended and self._mirror is not None:
            self._mirror.fetch_news()
        if machine.state in ("failed", "interrupted"):
            _wait_until_free(folder)
            taken = machine.state == "interrupted"
            await self._provider.release([machine.id])  # what is left of it
            text = "was interrupted" if taken else "has failed"
            await self._forget("lost", f"{self._name} {text}: {machine.reason}")
            if folder.done is not None:
                return self._done()
            if not taken:
                return Ended(State.QUEUED, "machine failed", lost=True)
            attempt.move(State.MIGRATING, "spot interruption; resuming from the last checkpoint")
            return None
        if machine.state == "running" and not self._runs:
            self._runs, self._begun_s = True, self._provider.now
            attempt.move(State.RUNNING, f"on {self._name}")
        if machine.state == "finished":
            await self._give_back("released")
            code = machine.exit_code
            if self._mirror is not None:  # not every provider reports it
                code = self._mirror.worker(self._turn).get("code", code)
            if code in _NOTICED:  # the machine has not been taken back yet
                attempt.move(State.MIGRATING, "spot interruption announced; resuming from the checkpoint")
                return None
            return self._over(lost(folder, code))
        return None

    def _over(self, otherwise: Ended) -> Ended:
        """Return the outcome: the result if it exists and is within the budget."""
        attempt = self._attempt
        if attempt.stops() == "budget":
            return attempt.ended("budget")
        return concluded(attempt.folder) or otherwise

    def _done(self) -> Ended | None:
        """Return the outcome if the worker has finished, even if its machine has ended."""
        done = concluded(self._attempt.folder)
        return None if done is None else self._over(done)

    async def _look_up_prices(self) -> None:
        """Look up the price of each choice, in the zone in which it is lowest."""
        market = self._plan.market
        found: dict[tuple[str, str], float] = {}
        for one in await self._provider.offers():
            price = one.price_per_hour if one.available else UNAVAILABLE
            key = one.machine_type, one.market
            found[key] = min(price, found.get(key, UNAVAILABLE))
        self._prices = [found.get(_type(market, choice), UNAVAILABLE) for choice in range(market.choices)]

    async def _decide(self) -> None:
        """Query the policy and carry out its action."""
        plan, market = self._plan, self._plan.market
        self._keep_saved()
        await self._look_up_prices()
        prices = [self._prices[market.spot_choice(kind, 0)] for kind in range(len(market.classes))]
        await self._report_price()
        left, begun_s = self._slots_left(), self._provider.now
        action = plan.decide(left, self._status(), prices)
        self.delays.decide_s = max(self.delays.decide_s, self._provider.now - begun_s)
        self._asked = action == CHECKPOINT
        if self._asked:
            self._ask_for_checkpoint()
        if action == RELEASE:
            why = "released: the policy prefers another option"
            await self._give_back(why)
            self._attempt.move(State.MIGRATING, why)
            action = plan.decide(left, self._status(), prices)
        if action >= START and self._machine is None:
            choice = action - START
            # A bid below the price is not granted.
            if not market.rules.spot[choice] or prices[int(market.rules.kind[choice])] <= market.rules.bid[choice]:
                await self._start(choice, left)

    def _ask_for_checkpoint(self) -> None:
        """Let the worker write a checkpoint at the end of its superstep; of some algorithms there is none."""
        self._attempt.folder.wish(checkpoint=self._saved or 0)
        if self._mirror is not None:
            self._mirror.publish_wishes()

    async def _look_for_checkpoint(self) -> bool:
        """Return whether the checkpoint that the policy has asked for is written, so that it decides again at once."""
        if self._mirror is not None:
            self._mirror.fetch_news()
        before = self._saved
        self._keep_saved()
        self._asked = self._saved == before
        return not self._asked

    def _rest(self) -> None:
        """Record once that the policy is waiting without a machine."""
        attempt, saved, policy = self._attempt, self._attempt.folder.saved, self._plan.name
        if self._machine is not None:
            self._waits = False
        elif attempt.job.state == State.MIGRATING and saved is not None:
            attempt.move(State.CHECKPOINTED, f"checkpoint of superstep {saved}; {policy} is waiting to rent a machine")
        elif not self._waits and attempt.job.state != State.CHECKPOINTED:
            self._waits, left = True, self._slots_left()
            market, given = self._plan.market, self._prices
            price, name = min((given[market.spot_choice(at, 0)], one.name) for at, one in enumerate(market.classes))
            text = f"{policy} is waiting for a lower price: {name} costs {price:.4g} per hour"
            if price > ANY_PRICE:
                text = f"{policy} is waiting: no spot machine is available"
            text += f"; {left * self._plan.slot_s / HOUR_S:.3g} simulated hours left"
            attempt.note("wait", text, {"price": price if price < ANY_PRICE else None, "slots_left": left})

    async def _start(self, choice: int, left: int) -> None:
        attempt, plan, folder = self._attempt, self._plan, self._attempt.folder
        if attempt.job.state != State.PROVISIONING:  # as it is after a refusal
            attempt.move(State.PROVISIONING, text_of(plan.market, choice + START))
        _wait_until_free(folder)
        turn = folder.prepare(self._order, attempt.job.attempts, _turns(folder, attempt.job.attempts) + 1)
        self._asked_s, self._session, self._turn = self._provider.now, self._worker, turn
        if self._mirror is None:
            command = (*_LOGGED, str(folder.log.absolute()), *worker_command(folder.path.absolute(), turn))
        else:
            self._mirror.publish()
            command = ("python", "-m", _REMOTE, self._mirror.place, turn)
        machine_type, on = _type(plan.market, choice)
        bid = float(plan.market.rules.bid[choice]) if on == "spot" else None
        request = Request(
            machine_type=machine_type, market=on, max_price=bid, command=command,
            tags=self._tags | {_TURN: turn}, token=f"{attempt.job.id}-{turn}",
        )  # fmt: skip
        try:
            self._machine = await self._provider.request(request)
        except CapacityError as error:
            attempt.note("wait", str(error))
            return
        self._choice, self._price, self._runs = choice, self._prices[choice], False
        # The first billing quantum is charged at once, to this machine.
        more = {"slots_left": left, "work_left": plan.units(self._left), "cost": self._cost}
        await self._note_machine("machine", f"{self._name} started", more)

    async def _give_back(self, text: str) -> None:
        """Stop the machine, if any, and wait until its worker has ended."""
        machine = self._machine
        if machine is None:
            return
        begun_s = self._provider.now
        await self._provider.release([machine.id])
        if self._mirror is not None:
            self._mirror.fetch_news()
        _wait_until_free(self._attempt.folder)
        self.delays.release_s = max(self.delays.release_s, self._provider.now - begun_s)
        await self._forget("machine", f"{self._name} {text}")

    async def _forget(self, kind: str, text: str) -> None:
        """Record the end of a machine; work since the last checkpoint is lost."""
        self._events.write()
        self._keep_saved()
        await self._look_up_prices()
        if self._prices[self._choice] < ANY_PRICE:
            self._price = self._prices[self._choice]
        await self._note_machine(kind, text)
        self._machine, self._runs, self._asked_s = None, False, None

    async def _report_price(self) -> None:
        """Record a price change of the machine; called once per slot."""
        if self._machine is not None and self._price != self._prices[self._choice] < ANY_PRICE:
            self._price = self._prices[self._choice]
            self._attempt.note("price", f"{self._name}: {self._price:.4g} per hour", self._facts())

    async def _note_machine(self, kind: str, text: str, more: dict[str, Any] | None = None) -> None:
        await self._count()
        assert self._machine is not None
        machine, cost = await self._find(self._machine), self._cost
        life = {"cloud_begun_s": machine.requested_s, "cloud_ended_s": machine.ended_s, "cost": cost}
        self._attempt.note(kind, text, self._facts() | life | (more or {}), cost=cost)

    def _facts(self) -> dict[str, Any]:
        assert self._machine is not None
        market, choice = self._plan.market, self._choice
        bid = float(market.rules.bid[choice]) if market.rules.spot[choice] else float("inf")
        return {
            "machine": self._machine.id, "class": self._machine.machine_type, "market": self._machine.market,
            "price": self._price, "bid": bid if bid < ANY_PRICE else None,
        }  # fmt: skip

    @property
    def _name(self) -> str:
        assert self._machine is not None
        where = "on the spot market" if self._machine.market == "spot" else "on demand"
        return f"machine {self._machine.id}, {self._machine.machine_type} {where}"

    def _slots_left(self) -> int:
        left_s = self._attempt.time_left_s
        cloud_s = self._until_s - self._provider.now if left_s is None else left_s * self._pace
        reserve_s = self.delays.reserve_s(self._plan.market.startup_slots * self._plan.slot_s)
        return slots_left(max(0.0, cloud_s - reserve_s), 0.0, self._plan.slot_s, _MARGIN)

    def _status(self) -> Status:
        """Return the status of the job for the policy."""
        plan, saved = self._plan, self._plan.units(self._left)
        if self._machine is None:
            return submitted(saved)
        rules, spot = plan.market.rules, bool(plan.market.rules.spot[self._choice])
        automaton, hour = plan.market.spot if spot else plan.market.on_demand, 0
        begun, now = self._machine.requested_s, self._provider.now
        for _ in range(int((now - begun) / plan.slot_s)):
            hour = int(automaton.follow[hour])
        state = RUNNING if self._runs else STARTUP
        fixed = 0.0 if spot else float(rules.fixed[self._choice])
        return Status(state, min(saved, plan.units(self._undone())), saved, self._choice, hour, 1, fixed)

    def _undone(self) -> float:
        """Return the core-hours left if the current machine is not lost."""
        if not self._runs:
            return self._left
        worked = max(0.0, self._provider.now - self._begun_s - self._need.startup_s)
        speed = int(self._plan.market.rules.speed[self._choice])
        return max(0.0, self._left - worked / self._plan.slot_s * speed * self._plan.market.unit)

    def _keep_saved(self) -> None:
        """Reduce the remaining work after a new checkpoint."""
        newest = self._attempt.folder.saved
        if newest == self._saved or not self._runs:
            return
        self._saved = newest
        done = self._left - self._undone()
        if done > 0:
            self._left, self._begun_s = self._left - done, self._provider.now - self._need.startup_s
            self._kept.core_hours = self._left
            self._kept.write(self._attempt.folder)

    async def _report(self) -> None:
        if self._mirror is not None and self._machine is not None:
            self._mirror.fetch_news()
        self._events.write()
        self._keep_saved()
        await self._count()
        cost = self._cost
        if cost > self._attempt.job.cost:
            self._attempt.note("cost", f"{cost:.4g} so far", {"cost": cost}, cost=cost)


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


def _type(market: Market, choice: int) -> tuple[str, Literal["on-demand", "spot"]]:
    """Return the machine type of a choice, and where it is requested."""
    rules = market.rules
    return market.classes[int(rules.kind[choice])].name, "spot" if rules.spot[choice] else "on-demand"


def _wait_until_free(folder: JobFolder) -> None:
    """Wait for the worker of a stopped machine; kill it after a timeout."""
    end = time.monotonic() + _ENDS_S
    while folder.busy:
        if time.monotonic() > end:
            end_worker(folder, None)
            break
        time.sleep(_LOOK_S / 2)
    if folder.busy:
        raise Busy(f"{folder.path}: a worker cannot be stopped")


def _turns(folder: JobFolder, attempt: int) -> int:
    """Return the number of machines of an attempt, including those before a server crash."""
    own, _, machine = folder.turn.partition(".")
    return int(machine) if own == str(attempt) and machine else 0


@dataclass
class _Kept:
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
    def read(cls, folder: JobFolder, cost: float = 0.0) -> _Kept:
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

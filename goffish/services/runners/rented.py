"""The control loop of an attempt at a graph job on rented machines: observe, decide, enact, record."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from goffish.cloud.prices import ANY_PRICE, UNAVAILABLE
from goffish.cloud.providers import CapacityError, Machine, Provider, Request
from goffish.errors import InputError, JobError
from goffish.scheduling.spot.advice import text_of
from goffish.scheduling.spot.job import CHECKPOINT, RELEASE, RUNNING, START, STARTUP, Status, slots_left, submitted
from goffish.scheduling.spot.model import Market
from goffish.services.runners.attempt import Attempt, Ended
from goffish.services.runners.cloud_planning import HOUR_S, MARGIN_SLOTS, Need, Plan
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.held import TURN, Held, wait_until_free
from goffish.services.runners.mirror import BadFolder, Mirror
from goffish.services.runners.processes import EventWriter, concluded, lost, over_limit, worker_command
from goffish.services.runners.worker import NOTICED
from goffish.services.store.records import LostJob, State

#: Interval of looks at machines, in seconds; providers limit calls of their API.
_LOOK_S, _REMOTE_LOOK_S = 0.1, 2.0
#: Interval of cost and progress events, in seconds.
_REPORT_S, _REMOTE_REPORT_S = 2.0, 10.0
_Found = TypeVar("_Found")
#: Module of workers whose folder is in object storage.
_REMOTE = "goffish.services.runners.remote_worker"
#: Exit codes of workers after a notice: as it should be, or while their process was starting.
AFTER_NOTICE = (NOTICED, -signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGUSR1)
#: Wrapper that appends the output of a command to the log given as its first argument.
_LOGGED = ("/bin/sh", "-c", 'log=$1; shift; exec "$@" >>"$log" 2>&1', "sh")


class RentedJob(NamedTuple):
    """An attempt and its plan.

    Attributes
    ----------
    attempt : Attempt
    plan : Plan
    need : Need
    order : dict
        Of its workers.
    mirror : Mirror, optional
        Its folder in storage.
    start_s : float
        Time that a start takes, in simulated seconds.
    stays : bool
        Whether machines outlive the server.
    """

    attempt: Attempt
    plan: Plan
    need: Need
    order: dict[str, Any]
    mirror: Mirror | None = None
    start_s: float = 0.0
    stays: bool = False


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


class Rented:
    """Control loop of an attempt, which uses one machine at a time."""

    def __init__(self, job: RentedJob, provider: Provider, pace: float) -> None:
        attempt, plan, need, self._order, self._mirror, start_s, self._stays = job
        self._attempt, self._plan, self._need = attempt, plan, need
        self._provider, self._pace = provider, pace
        assert attempt.job.spec.graph is not None
        self._graph = attempt.job.spec.graph
        self._events = EventWriter(attempt)
        self._saved = attempt.folder.saved
        self._held = Held(provider, str(attempt.job.id), attempt.folder, attempt.job.cost)
        #: Core-hours left from the last checkpoint, and the target time of a job without a deadline.
        self._left, self._until_s = need.core_hours, plan.slots * plan.slot_s
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
            await self._held.release(self._held.machines)
            await self._forget(list(self._held.machines), "machine", "released")
            return Ended(State.FAILED, str(error))

    async def _control(self) -> Ended:
        attempt = self._attempt
        next_decision = next_write = 0.0
        look_s, report_s = (_REMOTE_LOOK_S, _REMOTE_REPORT_S) if self._stays else (_LOOK_S, _REPORT_S)
        while not await self._patiently(self._adopt):  # there may be a machine that runs the job
            if (why := attempt.stops()) is not None:
                return self._over(attempt.ended(why))
            await asyncio.sleep(look_s)
        while True:
            why = attempt.stops()
            if why is not None:
                if why != "drained" or not self._stays:  # the next server finds the machine
                    await self._give_back("released")
                return self._over(attempt.ended(why))
            if self._runs and time.monotonic() >= next_write:
                limit = over_limit(attempt.folder, self._order["limits"]["memory_mb"], self._graph.cpu_seconds)
                if limit is not None:
                    await self._give_back("released")
                    return self._over(limit)
            had = bool(self._held)
            ended = await self._patiently(self._look) if had else self._done()
            if ended is not None:
                return ended
            saved = had and self._asked and await self._patiently(self._look_for_checkpoint)
            if saved or bool(self._held) != had or self._provider.now >= next_decision:
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

    async def _adopt(self) -> bool:
        """Go on with the machines of a server that was killed, and release others; return True."""
        attempt, market = self._attempt, self._plan.market
        choices = {_type(market, choice): choice for choice in range(market.choices)}
        await self._count()
        for one in await self._provider.machines(self._held.tags):
            choice = choices.get((one.machine_type, one.market))
            if one.ended or choice is None or not self._accepts(one, choice):
                await self._provider.release([one.id])
                continue
            self._held.machines[one.tags[TURN]] = one
            self._choice, self._turn, self._asked_s = choice, attempt.folder.turn, one.requested_s
            await self._look_up_prices()
            self._price = self._prices[choice]
            if attempt.job.state == State.PLANNED:
                attempt.move(State.PROVISIONING, f"{_named(one)} found again")
            await self._note_machine(one, "machine", "found again")
        if not self._held and attempt.job.state in (State.PROVISIONING, State.RUNNING):
            attempt.move(State.MIGRATING, "machines stopped with the killed server")
        return True

    def _accepts(self, one: Machine, choice: int) -> bool:
        """Whether a machine that was found again can go on."""
        return not self._held and one.tags.get(TURN) == self._attempt.folder.turn

    async def _count(self) -> None:
        """Update what the job has cost."""
        self._cost = await self._held.count()

    @property
    def _worker(self) -> int | str | None:
        """What is different for each worker that has begun."""
        if self._mirror is None:
            return self._attempt.folder.session
        return self._turn if self._mirror.has_begun(self._turn) else None

    async def _look(self) -> Ended | None:
        """Check the machine and its worker; return the outcome if the attempt has ended."""
        attempt, folder = self._attempt, self._attempt.folder
        await self._held.refresh()
        machine, names = self._held.one, list(self._held.machines)
        if self._asked_s is not None:
            self.delays.start_s = max(self.delays.start_s, self._provider.now - self._asked_s)
            if self._worker != self._session:
                self._asked_s = None
                # Work begins now, however long the start took.
                self._begun_s = max(self._begun_s, self._provider.now - self._need.startup_s)
        if machine.ended and self._mirror is not None:
            self._mirror.fetch_news()
        if machine.state in ("failed", "interrupted"):
            wait_until_free(folder)
            taken = machine.state == "interrupted"
            await self._held.release(names)  # what is left of it
            await self._forget(names, "lost", f"{'was interrupted' if taken else 'has failed'}: {machine.reason}")
            if folder.done is not None:
                return self._done()
            if not taken:
                return Ended(State.QUEUED, "machine failed", lost=True)
            attempt.move(State.MIGRATING, "spot interruption; resuming from the last checkpoint")
            return None
        if machine.state == "running" and not self._runs:
            self._runs, self._begun_s = True, self._provider.now
            attempt.move(State.RUNNING, f"on {_named(machine)}")
        if machine.state == "finished":
            await self._give_back("released")
            code = machine.exit_code
            if self._mirror is not None:  # not every provider reports it
                code = self._mirror.worker(self._turn).get("code", code)
            if code in AFTER_NOTICE:  # the machine has not been taken back yet
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
        prices = [self._times(self._prices[market.spot_choice(kind, 0)]) for kind in range(len(market.classes))]
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
        if action >= START and not self._held:
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
        if self._held:
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
        wait_until_free(folder)
        turn = folder.prepare(self._order, attempt.job.attempts, turns_of(folder, attempt.job.attempts) + 1)
        self._asked_s, self._session, self._turn = self._provider.now, self._worker, turn
        if self._mirror is None:
            command = (*_LOGGED, str(folder.log.absolute()), *worker_command(folder.path.absolute(), turn))
        else:
            self._mirror.publish()
            command = ("python", "-m", _REMOTE, self._mirror.place, turn)
        self._choice, self._runs = choice, False
        try:
            await self._rent(turn, command, left)
        except CapacityError as error:
            attempt.note("wait", str(error))

    async def _rent(self, name: str, command: Sequence[str], left: int) -> None:
        """Request a machine of the current choice.

        Raises
        ------
        CapacityError
            There is none now.
        """
        plan, choice = self._plan, self._choice
        machine_type, on = _type(plan.market, choice)
        await self._held.request(name, Request(
            machine_type=machine_type, market=on, max_price=self._bid if on == "spot" else None, command=command,
            tags=self._held.tags | {TURN: name}, token=f"{self._attempt.job.id}-{name}",
            team=str(self._attempt.job.id) if self._need.machines > 1 else "",
            extras=("mpi",) if self._need.machines > 1 else (),
        ))  # fmt: skip
        self._price = self._prices[choice]
        # The first billing quantum is charged at once, to this machine.
        more = {"slots_left": left, "work_left": plan.units(self._left), "cost": self._cost}
        await self._note_machine(self._held.machines[name], "machine", "started", more)

    async def _give_back(self, text: str) -> None:
        """Stop the machines, if any, and wait until their workers have ended."""
        if not self._held:
            return
        begun_s, names = self._provider.now, list(self._held.machines)
        await self._held.release(names)
        if self._mirror is not None:
            self._mirror.fetch_news()
        wait_until_free(self._attempt.folder)
        self.delays.release_s = max(self.delays.release_s, self._provider.now - begun_s)
        await self._forget(names, "machine", text)

    async def _forget(self, names: Sequence[str], kind: str, text: str) -> None:
        """Record the end of machines; work since the last checkpoint is lost."""
        if not names:
            return
        self._events.write()
        self._keep_saved()
        await self._look_up_prices()
        if self._prices[self._choice] < ANY_PRICE:
            self._price = self._prices[self._choice]
        await self._held.refresh()
        for name in names:
            await self._note_machine(self._held.machines[name], kind, text)
            del self._held.machines[name]
        self._runs, self._asked_s = False, None

    async def _report_price(self) -> None:
        """Record a price change of the machines; called once per slot."""
        if self._held and self._price != self._prices[self._choice] < ANY_PRICE:
            self._price = self._prices[self._choice]
            for one in self._held.machines.values():
                self._attempt.note("price", f"{_named(one)}: {self._price:.4g} per hour", self._facts(one))

    async def _note_machine(self, machine: Machine, kind: str, text: str, more: dict[str, Any] | None = None) -> None:
        await self._count()
        life = {"cloud_begun_s": machine.requested_s, "cloud_ended_s": machine.ended_s, "cost": self._cost}
        facts = self._facts(machine) | life | (more or {})
        self._attempt.note(kind, f"{_named(machine)} {text}", facts, cost=self._cost)

    def _facts(self, machine: Machine) -> dict[str, Any]:
        bid = self._bid if self._plan.market.rules.spot[self._choice] else float("inf")
        return {
            "machine": machine.id, "class": machine.machine_type, "market": machine.market,
            "price": self._price, "bid": bid if bid < ANY_PRICE else None,
        }  # fmt: skip

    @property
    def _bid(self) -> float:
        """Bid of the current choice for one machine."""
        bid = float(self._plan.market.rules.bid[self._choice])
        return bid / self._need.machines if bid < ANY_PRICE else bid

    def _times(self, price: float) -> float:
        """Return the price of all machines of the plan, which policies see as one."""
        return price * self._need.machines if price < ANY_PRICE else price

    def _slots_left(self) -> int:
        left_s = self._attempt.time_left_s
        cloud_s = self._until_s - self._provider.now if left_s is None else left_s * self._pace
        reserve_s = self.delays.reserve_s(self._plan.market.startup_slots * self._plan.slot_s)
        return slots_left(max(0.0, cloud_s - reserve_s), 0.0, self._plan.slot_s, MARGIN_SLOTS)

    def _status(self) -> Status:
        """Return the status of the job for the policy."""
        plan, saved = self._plan, self._plan.units(self._left)
        if not self._held:
            return submitted(saved)
        rules, spot = plan.market.rules, bool(plan.market.rules.spot[self._choice])
        automaton, hour = plan.market.spot if spot else plan.market.on_demand, 0
        begun, now = self._held.one.requested_s, self._provider.now
        for _ in range(int((now - begun) / plan.slot_s)):
            hour = int(automaton.follow[hour])
        state = RUNNING if self._runs else STARTUP
        fixed = 0.0 if spot else float(rules.fixed[self._choice])
        return Status(state, min(saved, plan.units(self._undone())), saved, self._choice, hour, 1, fixed)

    def _undone(self) -> float:
        """Return the core-hours left if no current machine is lost."""
        if not self._runs:
            return self._left
        worked = max(0.0, self._provider.now - self._begun_s - self._need.startup_s)
        speed = int(self._plan.market.rules.speed[self._choice]) * len(self._held) / self._need.machines
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
            self._held.kept.core_hours = self._left
            self._held.kept.write(self._attempt.folder)

    async def _report(self) -> None:
        if self._mirror is not None and self._held:
            self._mirror.fetch_news()
        self._events.write()
        self._keep_saved()
        await self._count()
        cost = self._cost
        if cost > self._attempt.job.cost:
            self._attempt.note("cost", f"{cost:.4g} so far", {"cost": cost}, cost=cost)


def _named(machine: Machine) -> str:
    where = "on the spot market" if machine.market == "spot" else "on demand"
    return f"machine {machine.id}, {machine.machine_type} {where}"


def _type(market: Market, choice: int) -> tuple[str, Literal["on-demand", "spot"]]:
    """Return the machine type of a choice, and where it is requested."""
    rules = market.rules
    return market.classes[int(rules.kind[choice])].name, "spot" if rules.spot[choice] else "on-demand"


def turns_of(folder: JobFolder, attempt: int) -> int:
    """Return the number of machines of an attempt, including those before a server crash."""
    own, _, machine = folder.turn.partition(".")
    return int(machine) if own == str(attempt) and machine else 0

"""Graph jobs on machines of the simulated cloud, controlled by a spot policy.

Machines are local processes; a spot machine is killed with its worker when its price exceeds its bid. The next machine
resumes from the checkpoints of the engine. All machines stop with the server: an attempt after a crash starts without
machines, and earlier costs remain on the bill of the job.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.prices import ANY_PRICE
from goffish.cloud.providers import LocalProvider, Task
from goffish.cloud.spot_market import SpotMarket
from goffish.environment import child_environment
from goffish.errors import InputError, JobError
from goffish.scheduling.spot.advice import text_of
from goffish.scheduling.spot.job import RELEASE, RUNNING, START, STARTUP, Status, slots_left, submitted
from goffish.services.runners.attempt import Attempt, Ended, Why
from goffish.services.runners.cloud_needs import Sized, size_of
from goffish.services.runners.cloud_planning import HOUR_S, Need, Plan, Planner, began_at
from goffish.services.runners.folder import Busy, JobFolder, write_whole
from goffish.services.runners.limits import UNLIMITED, JobLimits
from goffish.services.runners.order import Files, Resolve, as_named, order_of
from goffish.services.runners.processes import (
    EventWriter,
    concluded,
    end_worker,
    lost,
    over_limit,
    worker_command,
)
from goffish.services.store.records import Clock, State
from goffish.services.store.spec import GraphJob

_LOOK_S = 0.1
#: Interval of cost and progress events, in seconds.
_REPORT_S = 2.0
#: Maximum time until a worker ends after its machine or server, in seconds.
_ENDS_S = 10.0
#: Safety margin before the deadline, in slots.
_MARGIN = 1
#: Wrapper that appends the output of a command to the log given as its first argument.
_LOGGED = ("/bin/sh", "-c", 'log=$1; shift; exec "$@" >>"$log" 2>&1', "sh")


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
    """

    resolve: Resolve
    cloud: Callable[[str], Catalogue]
    pace: float = 360.0
    environment: Mapping[str, str] = field(default_factory=child_environment)
    clock: Clock = field(default_factory=Clock)
    planner: Planner = field(default_factory=Planner)
    limits: JobLimits = UNLIMITED

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
        _wait_until_free(folder)
        if (done := concluded(folder)) is not None:
            return done
        if job.state in (State.PROVISIONING, State.RUNNING):
            attempt.move(State.MIGRATING, "machines stopped with the killed server")
        files, catalogue = Files.of(graph, self.resolve), self.cloud(graph.cloud_name)
        try:
            sized = size_of(graph, files.input, catalogue)
        except InputError as error:
            raise InputError(as_named(str(error), files.names)) from None
        need = sized.need(catalogue, self.pace, attempt.time_left_s)
        left = _read_left(folder)
        if left is not None:
            need = Need(left, need.startup_s, need.checkpoint_s, need.left_s, need.least_slot_s)
        plan = self.planner.plan(catalogue, graph.policy, need, lambda: _stop(attempt))
        _tell_plan(attempt, graph, plan, sized, need, catalogue.currency)
        since = began_at(catalogue, (self.clock.now() - (job.started or job.submitted)) * self.pace)
        folder.path.mkdir(parents=True, exist_ok=True)
        machines_folder = folder.path / "machines"
        shutil.rmtree(machines_folder, ignore_errors=True)
        with LocalProvider(
            plan.machines,
            reference_share=sized.share,
            folder=machines_folder,
            pace=self.pace,
            since=since,
            environment=self.environment,
        ) as provider:
            rented = _Rented(attempt, plan, need, provider, order_of(graph, files, self.limits), self.pace, since)
            rented.delays.start_s = max(rented.delays.start_s, sized.start_s * self.pace)
            return rented.run()


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

    def __init__(
        self, attempt: Attempt, plan: Plan, need: Need, provider: LocalProvider, order: dict[str, Any], pace: float,
        since: float,
    ) -> None:  # fmt: skip
        self._attempt, self._plan, self._need = attempt, plan, need
        self._provider, self._order, self._pace, self._since = provider, order, pace, since
        assert attempt.job.spec.graph is not None
        self._graph = attempt.job.spec.graph
        self._events = EventWriter(attempt)
        self._saved = attempt.folder.saved
        self._before = attempt.job.cost
        #: Core-hours left from the last checkpoint, and the target time of a job without a deadline.
        self._left, self._until_s = need.core_hours, plan.slots * plan.slot_s
        self._machine: int | None = None
        self._choice = -1
        self._waits = False
        #: Last reported price of the machine.
        self._price = 0.0
        self._task: Task | None = None
        self._begun_s = 0.0
        self.delays = Delays(need.startup_s)
        #: Time of the request of a machine whose worker does not run yet, and the session of the worker before.
        self._asked_s: float | None = None
        self._session: int | None = None

    def run(self) -> Ended:
        """Run until the job ends or must stop."""
        attempt = self._attempt
        next_decision = next_write = 0.0
        while True:
            why = attempt.stops()
            if why is not None:
                self._give_back("released")
                return self._over(attempt.ended(why))
            if self._task is not None and time.monotonic() >= next_write:
                limit = over_limit(attempt.folder, self._order["limits"]["memory_mb"], self._graph.cpu_seconds)
                if limit is not None:
                    self._give_back("released")
                    return self._over(limit)
            before = self._machine
            ended = self._look() if before is not None else self._done()
            if ended is not None:
                return ended
            if self._machine != before or self._provider.now >= next_decision:
                self._decide()
                next_decision = self._provider.now + self._plan.slot_s
                self._rest()
            if time.monotonic() >= next_write:
                self._tell()
                next_write = time.monotonic() + _REPORT_S
            time.sleep(_LOOK_S)

    @property
    def _cost(self) -> float:
        return self._before + self._provider.spent()

    def _look(self) -> Ended | None:
        """Check the machine and its worker; return the outcome if the attempt has ended."""
        machine, attempt, folder = self._machine, self._attempt, self._attempt.folder
        assert machine is not None
        state = self._provider.states()[machine]
        if self._asked_s is not None:
            self.delays.start_s = max(self.delays.start_s, self._provider.now - self._asked_s)
            if folder.session != self._session:
                self._asked_s = None
                # Work begins now, however long the start took.
                self._begun_s = max(self._begun_s, self._provider.now - self._need.startup_s)
        if state == "failed":
            _wait_until_free(folder)
            taken = self._provider.taken(machine)
            why = "" if self._facts(machine)["bid"] is None else ", because its price exceeds its bid"
            text = f"was interrupted{why}" if taken else "has failed"
            self._forget(machine, "lost", f"{self._name} {text}")
            if folder.done is not None:
                return self._done()
            if not taken:
                return Ended(State.QUEUED, "machine failed", lost=True)
            attempt.move(State.MIGRATING, "spot interruption; resuming from the last checkpoint")
            return None
        if self._task is None:
            if state == "running":
                self._submit(machine)
            return None
        code = self._provider.exit_code(self._task)
        if code is None:
            return None
        self._give_back("released")
        return self._over(lost(folder, code))

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

    def _submit(self, machine: int) -> None:
        attempt, folder = self._attempt, self._attempt.folder
        _wait_until_free(folder)
        turn = folder.prepare(self._order, attempt.job.attempts, _turns(folder, attempt.job.attempts) + 1)
        command = [*_LOGGED, str(folder.log.absolute()), *worker_command(folder.path.absolute(), turn)]
        try:
            self._task, self._begun_s = self._provider.submit(machine, command), self._provider.now
        except (InputError, JobError):
            # The machine has just failed; the next check handles it.
            return
        attempt.move(State.RUNNING, f"on {self._name}")

    def _decide(self) -> None:
        """Query the policy and carry out its action."""
        plan, market = self._plan, self._plan.market
        given = self._provider.prices()
        prices = [given[market.spot_choice(kind, 0)] for kind in range(len(market.classes))]
        self._tell_price(given)
        left, begun_s = self._slots_left(), self._provider.now
        action = plan.decide(left, self._status(), prices)
        self.delays.decide_s = max(self.delays.decide_s, self._provider.now - begun_s)
        if action == RELEASE:
            why = "released: the policy prefers another option"
            self._give_back(why)
            self._attempt.move(State.MIGRATING, why)
            action = plan.decide(left, self._status(), prices)
        if action >= START and self._machine is None:
            choice = action - START
            # A bid below the price is not granted.
            if not market.rules.spot[choice] or prices[int(market.rules.kind[choice])] <= market.rules.bid[choice]:
                self._start(choice, given[choice], left)

    def _rest(self) -> None:
        """Record once that the policy is waiting without a machine."""
        attempt, saved, policy = self._attempt, self._attempt.folder.saved, self._graph.policy
        if self._machine is not None:
            self._waits = False
        elif attempt.job.state == State.MIGRATING and saved is not None:
            attempt.move(State.CHECKPOINTED, f"checkpoint of superstep {saved}; {policy} is waiting to rent a machine")
        elif not self._waits and attempt.job.state != State.CHECKPOINTED:
            self._waits, left = True, self._slots_left()
            market, given = self._plan.market, self._provider.prices()
            price, name = min((given[market.spot_choice(at, 0)], one.name) for at, one in enumerate(market.classes))
            text = f"{policy} is waiting for a lower price: {name} costs {price:.4g} per hour"
            if price > ANY_PRICE:
                text = f"{policy} is waiting: no spot machine is available"
            text += f"; {left * self._plan.slot_s / HOUR_S:.3g} simulated hours left"
            attempt.note("wait", text, {"price": price if price < ANY_PRICE else None, "slots_left": left})

    def _start(self, choice: int, price: float, left: int) -> None:
        attempt, plan = self._attempt, self._plan
        attempt.move(State.PROVISIONING, text_of(plan.market, choice + START))
        # The first billing quantum is charged at once, to this machine.
        more = {"slots_left": left, "work_left": plan.units(self._left), "cost": self._cost}
        self._asked_s, self._session = self._provider.now, attempt.folder.session
        self._machine, self._choice, self._price = self._provider.start(choice), choice, price
        self._note_machine("machine", f"{self._name} started", more)

    def _give_back(self, text: str) -> None:
        """Stop the machine, if any, and wait until its worker has ended."""
        machine = self._machine
        if machine is None:
            return
        begun_s = self._provider.now
        self._provider.stop(machine)
        _wait_until_free(self._attempt.folder)
        self.delays.release_s = max(self.delays.release_s, self._provider.now - begun_s)
        self._forget(machine, "machine", f"{self._name} {text}")

    def _forget(self, machine: int, kind: str, text: str) -> None:
        """Record the end of a machine; work since the last checkpoint is lost."""
        self._events.write()
        self._keep_saved()
        # The price at the interruption, which may have changed since.
        machines = self._plan.machines
        own = SpotMarket(machines.with_classes((machines.classes[self._choice],)), self._since)
        price = own.priced(self._provider.life(machine)[1]).classes[0].price_per_hour
        self._price = price if price < ANY_PRICE else self._price
        self._note_machine(kind, text)
        self._machine, self._task, self._asked_s = None, None, None

    def _tell_price(self, given: Sequence[float]) -> None:
        """Record a price change of the machine; called once per slot."""
        if self._machine is not None and self._price != given[self._choice] < ANY_PRICE:
            self._price = given[self._choice]
            self._attempt.note("price", f"{self._name}: {self._price:.4g} per hour", self._facts(self._machine))

    def _note_machine(self, kind: str, text: str, more: dict[str, Any] | None = None) -> None:
        assert self._machine is not None
        begun, ended = self._provider.life(self._machine)
        over, cost = self._provider.states()[self._machine] in ("stopped", "failed"), self._cost
        life = {"cloud_begun_s": begun, "cloud_ended_s": ended if over else None, "cost": cost}
        self._attempt.note(kind, text, self._facts(self._machine) | life | (more or {}), cost=cost)

    def _facts(self, machine: int) -> dict[str, Any]:
        market, choice = self._plan.market, self._choice
        bid = float(market.rules.bid[choice]) if market.rules.spot[choice] else float("inf")
        return {
            "machine": machine, "class": market.classes[int(market.rules.kind[choice])].name,
            "market": "spot" if market.rules.spot[choice] else "on-demand", "price": self._price,
            "bid": bid if bid < ANY_PRICE else None,
        }  # fmt: skip

    @property
    def _name(self) -> str:
        rules = self._plan.market.rules
        name = self._plan.market.classes[int(rules.kind[self._choice])].name
        return f"machine {self._machine}, {name} {'on the spot market' if rules.spot[self._choice] else 'on demand'}"

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
        begun, now = self._provider.life(self._machine)
        for _ in range(int((now - begun) / plan.slot_s)):
            hour = int(automaton.follow[hour])
        state = STARTUP if self._task is None else RUNNING
        fixed = 0.0 if spot else float(rules.fixed[self._choice])
        return Status(state, min(saved, plan.units(self._undone())), saved, self._choice, hour, 1, fixed)

    def _undone(self) -> float:
        """Return the core-hours left if the current machine is not lost."""
        if self._task is None:
            return self._left
        worked = max(0.0, self._provider.now - self._begun_s - self._need.startup_s)
        speed = int(self._plan.market.rules.speed[self._choice])
        return max(0.0, self._left - worked / self._plan.slot_s * speed * self._plan.market.unit)

    def _keep_saved(self) -> None:
        """Reduce the remaining work after a new checkpoint."""
        newest = self._attempt.folder.saved
        if newest == self._saved or self._task is None:
            return
        self._saved = newest
        done = self._left - self._undone()
        if done > 0:
            self._left, self._begun_s = self._left - done, self._provider.now - self._need.startup_s
            write_whole(_left_file(self._attempt.folder), json.dumps({"core_hours": self._left}), durable=False)

    def _tell(self) -> None:
        self._events.write()
        self._keep_saved()
        cost = self._cost
        if cost > self._attempt.job.cost:
            self._attempt.note("cost", f"{cost:.4g} so far", {"cost": cost}, cost=cost)


def _tell_plan(attempt: Attempt, graph: GraphJob, plan: Plan, sized: Sized, need: Need, currency: str) -> None:
    market, found = plan.market, sized.estimate
    text = f"{graph.policy}: about {plan.expected_cost:.3g} {currency} expected"
    on_demand = plan.on_demand_cost if plan.on_demand_cost < float("inf") else None
    text += "" if on_demand is None else f", {on_demand:.3g} on demand"
    text += f", for {need.core_hours:.3g} core-hours in {plan.slots * plan.slot_s / HOUR_S:.3g} simulated hours"
    text += "" if plan.promised else "; the deadline cannot be guaranteed: using on-demand machines"
    details = {
        "policy": graph.policy, "expected_cost": plan.expected_cost, "on_demand_cost": on_demand,
        "promised": plan.promised, "classes": [one.name for one in market.classes], "slot_s": plan.slot_s,
        "slots": plan.slots, "work": plan.work, "core_hours": need.core_hours, "startup_s": need.startup_s,
        "seconds_here": [found.core_hours_low * HOUR_S, found.core_hours * HOUR_S, found.core_hours_high * HOUR_S],
        "remark": sized.remark,
    }  # fmt: skip
    attempt.note("plan", text, details, expected_cost=plan.expected_cost + attempt.job.cost, currency=currency)


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


def _left_file(folder: JobFolder) -> Any:
    return folder.path / "cloud.json"


def _read_left(folder: JobFolder) -> float | None:
    """Read the core-hours left from the last checkpoint of an earlier attempt."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return float(json.loads(_left_file(folder).read_text())["core_hours"])
    return None

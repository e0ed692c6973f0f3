"""Machines of a provider for one flow: requested, watched and released on a thread, within limits, with their bill."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from goffish.cloud.catalogue import MachineType
from goffish.cloud.providers.protocol import CapacityError, Machine, Market, Offer, Provider, Request
from goffish.errors import GoffishError, InputError, JobError

#: Tags of machines: run, name of the flow, and name of the machine.
RUN, FLOW, MACHINE = "goffish-run", "goffish-flow", "goffish-machine"
#: Extras that the agent of a machine needs.
_EXTRAS = ("service",)
_HOUR_S = 3600.0
#: Time in which a machine must join, which may install GoFFish first; and one that has run the flow before.
_JOINS_S, _REJOINS_S = 900.0, 90.0
#: Time in which a machine that is not needed hands over what it has.
_LEAVES_S = 300.0
#: Until the next request after one that was refused.
_RETRIES_S = 15.0
#: Machines in a row that may end before they have joined.
_MOST_FAILURES = 3
_NAME_BYTES = 6


@dataclass(frozen=True, kw_only=True)
class RentalLimits:
    """Which machines may be rented, and how many.

    Attributes
    ----------
    machine_types : sequence of str
        Names in the catalogue, the preferred one first.
    market : {"on-demand", "spot"}
        With spot, machines are requested on demand where the spot market has none.
    max_machines : int
        Concurrent machines.
    hourly_budget : float, optional
        Of all machines together, in the currency of the catalogue; default: unlimited.
    """

    machine_types: Sequence[str]
    market: Market = "on-demand"
    max_machines: int = 10
    hourly_budget: float | None = None


@dataclass
class FlowMachine:
    """A machine of a flow.

    Attributes
    ----------
    name : str
        Of its ticket.
    machine : Machine
        As the provider has reported it last.
    price : float
        Of an hour, when it was requested.
    key : int
        Of what it was requested for.
    until : float
        When it must have joined, or left, on the monotonic clock.
    joined, leaving, gone : bool
        Whether its agent has joined, whether the machine is to end, and whether its agent has ended or is lost.
    released : bool
        Whether the provider was asked to end it.
    cost : float
        Until its end.
    """

    name: str
    machine: Machine
    price: float
    key: int
    until: float
    joined: bool = False
    leaving: bool = False
    gone: bool = False
    released: bool = False
    cost: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether the machine runs or starts, and is not about to end."""
        return not (self.leaving or self.machine.ended or self.machine.notice_s is not None)


class Demand(NamedTuple):
    """Machine types of a machine that is needed.

    Attributes
    ----------
    machine_types : sequence of str
        That are accepted, the preferred one first.
    key : int
        That `FlowMachine` gets.
    """

    machine_types: Sequence[str]
    key: int = -1


@dataclass(frozen=True)
class Hooks:
    """What the fleet asks of the flow.

    Attributes
    ----------
    command : callable
        Writes what a machine needs, given its name and type; returns its command.
    next : callable
        Given the machines that count, returns the machine that is needed next, or None.
    spare : callable
        Given the machines that count, returns one that is not needed, or None.
    leave : callable
        Asks the agent of a machine to leave.
    failure : callable
        Returns why a machine could not join, or an empty text.
    report : callable
        Takes a line of text for the user.
    """

    command: Callable[[str, MachineType], Sequence[str]]
    next: Callable[[Sequence[FlowMachine]], Demand | None]
    spare: Callable[[Sequence[FlowMachine]], FlowMachine | None]
    leave: Callable[[str], None]
    failure: Callable[[str], str] = lambda name: ""
    report: Callable[[str], object] = lambda text: None


class Fleet:
    """Machines of a provider, as many as a flow needs.

    Parameters
    ----------
    provider : Provider
        Used by one thread, which closes it.
    limits : RentalLimits
    tags : mapping
        Of all machines of the run.
    hooks : Hooks
        Called by that thread.
    look_s : float
        Interval of looks at the machines.
    """

    def __init__(
        self, provider: Provider, limits: RentalLimits, tags: Mapping[str, str], hooks: Hooks, look_s: float = 2.0
    ) -> None:
        self._provider, self.limits, self._tags, self._hooks, self._look_s = provider, limits, tags, hooks, look_s
        self._types = {one.name: one for one in provider.catalogue.classes}
        self._rented: dict[str, FlowMachine] = {}
        self._lock = threading.RLock()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._refusal, self._retry = "", 0.0  # why the last request was refused, and when one is requested again
        self._failures, self._adopted = 0, False
        #: Why no machine of the flow can run, once that is certain.
        self.error: GoffishError | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="goffish-fleet", daemon=True)

    def start(self) -> None:
        """Find the machines of an earlier run with these tags, and begin to rent others."""
        self._thread.start()

    def close(self) -> None:
        """Release all machines, and end."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is None:
            asyncio.run(self._provider.close())
        else:
            self._thread.join()

    # What the flow reports, and asks.

    def note_joined(self, name: str) -> bool:
        """Note that the agent of a machine has joined; return whether there is such a machine."""
        with self._lock:
            one = self._rented.get(name)
            if one is None or not one.counts:
                return False
            one.joined, self._failures = True, 0
            self._hooks.report(f"machine {one.machine.id} joined")
            return True

    def note_leaving(self, name: str, *, gone: bool) -> None:
        """Note that the agent of a machine leaves; or that it has ended, or is lost."""
        with self._lock:
            if name in self._rented:
                self._rented[name].leaving, self._rented[name].gone = True, gone
        self._wake.set()

    def look(self) -> None:
        """Look at once whether machines are needed."""
        self._wake.set()

    @property
    def machines(self) -> list[FlowMachine]:
        """All machines of the run, with those that have ended."""
        with self._lock:
            return list(self._rented.values())

    def summary(self) -> dict[str, Any]:
        """Return the bill: machines, hours and cost."""
        rows = []
        for one in self.machines:
            found = one.machine
            begun = found.requested_s if found.started_s is None else found.started_s
            hours = 0.0 if found.ended_s is None else max(0.0, found.ended_s - begun) / _HOUR_S
            rows.append({
                "machine": found.id, "machine_type": found.machine_type, "market": found.market, "zone": found.zone,
                "state": found.state, "reason": found.reason, "hours": hours, "cost": one.cost,
            })  # fmt: skip
        return {
            "currency": self._provider.catalogue.currency, "hours": sum(one["hours"] for one in rows),
            "cost": sum(one["cost"] for one in rows), "rented": rows,
        }  # fmt: skip

    @property
    def total(self) -> str:
        """The bill in one line."""
        found = self.summary()
        count = len(found["rented"])
        return f"{count} machine{'s' * (count != 1)}: {found['hours']:.3g} h, {found['cost']:.3g} {found['currency']}"

    # The thread.

    async def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._wake.clear()
                await self._attempt()
                await asyncio.to_thread(self._wake.wait, self._look_s)
        except Exception as error:  # of the program: the flow must not wait without end
            self.error = JobError(f"machines of the provider: {type(error).__name__}: {error}")
        finally:
            await self._end()

    async def _attempt(self) -> None:
        """Take a step; where the provider does not answer, machines run on, and the next step is tried."""
        try:
            await self._step()
        except GoffishError as error:
            self._refuse(str(error))
            if isinstance(error, InputError) and not any(one.joined for one in self.machines):
                self.error = error

    def _refuse(self, text: str) -> None:
        if text != self._refusal:
            self._hooks.report(f"no machine can be rented now: {text}")
        self._refusal, self._retry = text, time.monotonic() + _RETRIES_S

    async def _adopt(self) -> None:
        """Take the machines of an earlier run, which wait for another ticket."""
        for found in await self._provider.machines(self._tags):
            name = found.tags.get(MACHINE, found.id)
            one = FlowMachine(name, found, 0.0, -1, time.monotonic() + _REJOINS_S)
            if not found.ended and found.machine_type in self._types:
                self._hooks.command(name, self._types[found.machine_type])
                self._hooks.report(f"machine {found.id} of the earlier run was found")
            with self._lock:
                self._rented[name] = one
        self._adopted = True

    async def _step(self) -> None:
        if not self._adopted:
            await self._adopt()
        await self._look()
        await self._release()
        with self._lock:
            counting = [one for one in self._rented.values() if one.counts]
            spare = self._hooks.spare(counting)
            if spare is not None:
                spare.leaving, spare.until = True, time.monotonic() + _LEAVES_S
        if spare is not None:
            self._hooks.leave(spare.name)
            return
        while (demand := self._hooks.next(counting)) is not None and not self._stopping.is_set():
            if time.monotonic() < self._retry or (made := await self._rent(counting, demand)) is None:
                break
            counting.append(made)

    async def _look(self) -> None:
        listed = {one.id: one for one in await self._provider.machines(self._tags)}
        for one in self.machines:
            before, found = one.machine, listed.get(one.machine.id)
            if found is None or before.ended:
                continue
            one.machine = found
            if found.notice_s is not None and before.notice_s is None and not found.ended:
                self._hooks.report(f"machine {found.id} will be taken back")
            if found.ended:
                await self._note_end(one)

    async def _note_end(self, one: FlowMachine) -> None:
        found = one.machine
        [one.cost] = await self._provider.costs([found])
        code = "" if found.exit_code is None else f"exit code {found.exit_code}"
        reason = self._hooks.failure(one.name) or found.reason or code
        unexpected = found.state in ("interrupted", "failed") or not one.leaving
        if unexpected:
            self._hooks.report(f"machine {found.id} has ended: {found.state}{f', {reason}' if reason else ''}")
        if not one.joined and not one.leaving and found.state != "interrupted":
            self._fail(found.id, reason or found.state)
        one.leaving = True

    def _fail(self, id: str, reason: str) -> None:
        """Note a machine that did not join."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            text = f"machine {id} did not join: {reason}; {self._failures} in a row did not"
            if any(one.joined for one in self.machines):
                self._refuse(text)  # the flow runs on
                self._failures = 0
            else:
                self.error = JobError(text)

    async def _release(self) -> None:
        """Release machines whose agents have left or are lost, and those that do not join."""
        due = []
        for one in self.machines:
            if one.machine.ended or one.released:
                continue
            late = time.monotonic() > one.until and (one.leaving or not one.joined)
            if late and not one.leaving:
                self._fail(one.machine.id, "no connection; it must reach the address of --listen")
            if late or one.gone:
                due.append(one)
        await self._let_go(due)

    async def _let_go(self, due: Sequence[FlowMachine]) -> None:
        if due:
            await self._provider.release([one.machine.id for one in due])
            for one in due:
                one.released = one.leaving = True

    async def _rent(self, counting: Sequence[FlowMachine], demand: Demand) -> FlowMachine | None:
        """Request the cheapest available machine."""
        if len(counting) >= self.limits.max_machines:
            self._refuse(f"{len(counting)} run, --max-machines {self.limits.max_machines}")
            return None
        spent, texts = sum(one.price for one in counting), list[str]()
        offers = await self._provider.offers()
        types = demand.machine_types
        if not any(one.machine_type in types for one in offers):
            raise InputError(f"{', '.join(types)}: the provider does not offer such a machine type")
        for offer in self._choices(offers, types):
            budget = self.limits.hourly_budget
            if budget is not None and spent + offer.price_per_hour > budget:
                texts.append(f"{offer.machine_type} would exceed --hourly-budget {budget:g}")
                continue
            with suppress(CapacityError):
                return await self._request(offer, demand.key)
            texts.append(f"{offer.machine_type} {offer.market}: no capacity")
        self._refuse("; ".join(dict.fromkeys(texts)) or "no capacity")
        return None

    def _choices(self, offers: Iterable[Offer], types: Sequence[str]) -> list[Offer]:
        """Return the offers that are accepted, the best first."""
        order = {name: at for at, name in enumerate(types)}
        markets = ("spot", "on-demand") if self.limits.market == "spot" else ("on-demand",)
        found = [one for one in offers if one.available and one.machine_type in order and one.market in markets]
        return sorted(
            found, key=lambda one: (markets.index(one.market), order[one.machine_type], one.price_per_hour, one.zone)
        )

    async def _request(self, offer: Offer, key: int) -> FlowMachine:
        name = secrets.token_hex(_NAME_BYTES)
        command = self._hooks.command(name, self._types[offer.machine_type])
        made = await self._provider.request(Request(
            machine_type=offer.machine_type, command=command, token=name, market=offer.market,
            zone=offer.zone or None, tags={**self._tags, MACHINE: name}, extras=_EXTRAS,
        ))  # fmt: skip
        one = FlowMachine(name, made, offer.price_per_hour, key, time.monotonic() + _JOINS_S)
        with self._lock:
            self._rented[name] = one
        self._refusal = ""
        where = ", ".join(part for part in (offer.market, made.zone) if part)
        self._hooks.report(f"machine {made.id} requested: {offer.machine_type}, {where}")
        return one

    async def _end(self) -> None:
        """Release all machines, and note what they have cost."""
        try:
            await self._let_go(self.machines)  # with what is left of those that have ended, such as pods
            listed = {one.id: one for one in await self._provider.machines(self._tags)} if self.machines else {}
            for one in self.machines:
                one.machine = listed.get(one.machine.id, one.machine)
            costs = await self._provider.costs([one.machine for one in self.machines])
            for one, cost in zip(self.machines, costs, strict=True):
                one.cost = max(cost, one.cost)
        except GoffishError as error:
            self._hooks.report(f"machines could not be released, and end without this process: {error}")
        await self._provider.close()

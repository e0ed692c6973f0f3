"""The control loop of an attempt on several machines: a team that is formed again when one of them is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence

from goffish.cloud.providers import CapacityError, Machine, Provider
from goffish.errors import JobError
from goffish.scheduling.spot.advice import text_of
from goffish.scheduling.spot.job import START
from goffish.services.runners.attempt import Ended
from goffish.services.runners.mirror import Mirror
from goffish.services.runners.processes import lost
from goffish.services.runners.rented import AFTER_NOTICE, Rented, RentedJob, turns_of
from goffish.services.runners.team import Team
from goffish.services.store.records import State

_MEMBER = "goffish.services.runners.member"
#: Simulated seconds in which refused machines are requested again, before the job goes on with those that it holds, or
#: gives them back where it has not begun.
_GATHER_S = 600.0
#: Real seconds after the end of a team in which the provider may report that a machine was lost, and in which a machine
#: that has got a notice leaves.
_LOSS_S, _LEAVES_S = 20.0, 120.0


class RentedTeam(Rented):
    """Control loop of an attempt that uses several machines of one type at a time.

    A team is complete at first. After the loss of a machine, the others are kept and the missing one is requested; if
    that is refused, the team is formed of those that are left, with fewer ranks.
    """

    def __init__(self, job: RentedJob, provider: Provider, pace: float) -> None:
        super().__init__(job, provider, pace)
        assert job.mirror is not None
        self._storage: Mirror = job.mirror
        #: Whether there is a team, and whether there was one before.
        self._formed, self._ran = False, self._saved is not None
        self._registered = set[str]()
        self._requested, self._failures = 0, 0
        #: When a request was refused, in simulated seconds, and why; when the team has ended, in real seconds.
        self._short_s: float | None = None
        self._refused = ""
        self._ended_s: float | None = None

    # Requests.

    async def _start(self, choice: int, left: int) -> None:
        attempt = self._attempt
        if attempt.job.state != State.PROVISIONING:
            what = text_of(self._plan.market, choice + START)
            attempt.move(State.PROVISIONING, f"{what}: {self._need.machines} machines")
        self._open_turn()
        self._choice, self._asked_s = choice, self._provider.now
        await self._gather()

    def _open_turn(self) -> None:
        """End the team, if there is one, and begin to gather the next one."""
        attempt, folder = self._attempt, self._attempt.folder
        self._turn = folder.prepare(self._order, attempt.job.attempts, turns_of(folder, attempt.job.attempts) + 1)
        self._storage.publish()
        self._formed = self._runs = False
        self._short_s = self._ended_s = None
        self._requested, self._refused = 0, ""

    async def _gather(self) -> None:
        """Request the missing machines, and form a team of all that have registered."""
        now = self._provider.now
        if len(self._held) < self._need.machines and not await self._request_missing():
            self._short_s = now if self._short_s is None else self._short_s
            if not self._held or now - self._short_s < _GATHER_S:
                return
            if not self._ran:
                await self._give_back(f"released: {self._need.machines} machines were not available")
                return
        self._registered |= {one for one in self._held.machines if self._storage.has_begun(one)}
        if self._registered >= self._held.machines.keys():
            self._form()

    async def _request_missing(self) -> bool:
        """Request the missing machines; return whether none was refused."""
        left = self._slots_left()
        while len(self._held) < self._need.machines:
            name = f"{self._turn}.{self._requested}"
            try:
                await self._rent(name, ("python", "-m", _MEMBER, self._storage.place, name), left)
            except CapacityError as error:
                if str(error) != self._refused:
                    self._refused = str(error)
                    self._attempt.note("wait", f"{len(self._held)} of {self._need.machines} machines: {error}")
                return False
            self._requested += 1
        return True

    def _form(self) -> None:
        names = tuple(self._held.machines)
        address = self._held.one.address
        if address is None:
            raise JobError(f"machine {self._held.one.id}: the provider reports no address")
        Team(self._turn, names, address).write(self._storage.store)
        self._formed = self._ran = True
        if len(names) < self._need.machines:
            self._attempt.note("wait", f"{self._refused}; continuing on {len(names)} of {self._need.machines} machines")

    # Looks.

    async def _look(self) -> Ended | None:
        await self._held.refresh()
        gone = [name for name, one in self._held.machines.items() if one.ended]
        ended = await self._lose(gone) if gone else await self._look_at_team() if self._formed else None
        if ended is None and self._held and not self._formed:
            await self._gather()
        return ended

    async def _look_at_team(self) -> Ended | None:
        """Look at the ranks of the team; return the outcome if the attempt has ended."""
        storage, now = self._storage, self._provider.now
        if not self._runs and self._ended_s is None and storage.has_begun(self._turn):
            if self._asked_s is not None:
                self.delays.start_s = max(self.delays.start_s, now - self._asked_s)
            self._runs, self._asked_s = True, None
            self._begun_s = now - self._need.startup_s  # work begins now, however long the start took
            one = self._held.one
            where = "on the spot market" if one.market == "spot" else "on demand"
            self._attempt.move(State.RUNNING, f"on {len(self._held)} machines, {one.machine_type} {where}")
        code = storage.worker(self._turn).get("code")
        if code is None:
            return None
        storage.fetch_news()
        if self._done() is not None:
            await self._give_back("released")
            return self._done()
        if self._ended_s is None:
            self._keep_saved()
            self._ended_s, self._runs = time.monotonic(), False
        noticed = code in AFTER_NOTICE
        if time.monotonic() - self._ended_s < (_LEAVES_S if noticed else _LOSS_S):
            return None  # the provider will say which machine was lost
        if noticed:
            self._migrate("a machine got a notice, and stays; resuming from the checkpoint")
            self._open_turn()
            return None
        await self._give_back("released")
        return self._over(lost(self._attempt.folder, code))

    async def _lose(self, gone: Sequence[str]) -> Ended | None:
        """Go on without machines that have ended; return the outcome if the attempt has ended."""
        storage, outcome = self._storage, None
        storage.fetch_news()
        if self._done() is not None:
            await self._give_back("released")
            return self._done()
        why = "spot interruption; resuming from the last checkpoint"
        ended = {name: self._held.machines[name] for name in gone}
        await self._held.release(gone)
        for name, one in ended.items():
            text, said = f"was interrupted: {one.reason}", storage.worker(name)
            code = said.get("code", one.exit_code)
            if one.state == "failed":
                text, why = f"has failed: {one.reason}", "machine failed; resuming from the last checkpoint"
                self._failures += 1
            elif one.state != "interrupted" and code in AFTER_NOTICE:
                text, why = "left after a notice", "spot interruption announced; resuming from the checkpoint"
            elif one.state != "interrupted":
                text = f"ended{f' with exit code {code}' if code is not None else ''}"
                outcome = lost(self._attempt.folder, code)
                if code in (1, 2) and "error" in said:
                    outcome = Ended(State.FAILED, said["error"])
            await self._forget([name], "lost", text)
        if self._failures and (not self._held or self._failures >= self._attempt.job.spec.most_attempts):
            outcome = outcome or Ended(State.QUEUED, "machine failed", lost=True)
        if outcome is not None:
            await self._give_back("released")
            return self._over(outcome)
        self._migrate(why)
        if self._held:
            self._open_turn()
            self._asked_s = self._provider.now
        return None

    def _migrate(self, why: str) -> None:
        if self._attempt.job.state != State.MIGRATING:
            self._attempt.move(State.MIGRATING, why)

    # A crash of the server.

    def _accepts(self, one: Machine, choice: int) -> bool:
        return len(self._held) < self._need.machines and (not self._held or choice == self._choice)

    async def _adopt(self) -> bool:
        await super()._adopt()
        if not self._held:
            return True
        try:
            team = Team.read(self._storage.store)
        except JobError:
            team = None
        self._turn, machines = self._attempt.folder.turn, self._held.machines
        if team is not None and team.turn == self._turn and machines.keys() == set(team.machines):
            self._held.machines = {name: machines[name] for name in team.machines}
            self._formed = self._ran = True
        else:
            self._open_turn()
        return True

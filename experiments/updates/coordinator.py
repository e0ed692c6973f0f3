"""State machine of an update: what happened goes in, what to do comes out.

The coordinator does no I/O and reads no clock. Whatever runs it carries out its commands in order, and calls it again
with the outcome. See docs/specs/updates.md, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from experiments.updates.routing import Tally, Update
from goffish.errors import InputError
from goffish.streaming.updates.versions import (
    Channel,
    Element,
    Numbering,
    Part,
    PartialWindow,
    Strategy,
    Version,
)


class State(StrEnum):
    """Where an update is."""

    REQUESTED = "requested"  # NCH: waits for messages in flight
    DEPLOYING = "deploying"
    ACTIVE = "active"  # both versions run; not all sources or routers have acknowledged the new one
    DRAINING = "draining"  # the old version finishes its messages
    COMPLETE = "complete"
    ABORTED = "aborted"


class Action(StrEnum):
    """What to do. Commands may be repeated after a restart, and must not do harm then."""

    PREPARE = "prepare"  # routers of these elements: Router.prepare; report each with `ready`
    PAUSE = "pause"  # sources: keep inputs in front of the dataflow
    RESUME = "resume"
    KILL = "kill"  # elements at once, with their queues
    DEPLOY = "deploy"  # elements and channels; report each with `ready` or `failed`
    NOTIFY = "notify"  # these sources: Router.activate and their new instance; report each with `acknowledged`
    ACTIVATE = "activate"  # routers of these elements: Router.activate; report each with `acknowledged`
    COUNT = "count"  # report `counted`
    FLUSH = "flush"  # this element: apply `partial_window` to its incomplete batches of the old version
    HAND_OVER = (
        "hand-over"  # these elements: Shell.hand_over; if the old one is killed first, export now, install later
    )
    RETIRE = "retire"  # elements and channels: stop when nothing is queued
    COMPLETE = "complete"  # all processes: Router.complete
    ABORT = "abort"  # all processes: Router.abort
    CLOSE_GATE = "close-gate"  # sinks: hold outputs of the new version
    OPEN_GATE = "open-gate"
    ALARM = "alarm"


class Command(NamedTuple):
    """One step of an update.

    Attributes
    ----------
    action : Action
    parts : tuple of Element or Channel
        What it applies to; empty: all.
    text : str
        Of an alarm.
    version : int
        Number of the version that is updated to. Reports repeat it, so that late ones of an earlier update do no harm.
    """

    action: Action
    parts: tuple[Part, ...] = ()
    text: str = ""
    version: int = 0


class Limits(NamedTuple):
    """Durations, in seconds.

    Attributes
    ----------
    ready : float
        From the request to deploy until all elements are ready; then the update is aborted.
    retry : float
        Until a notice without acknowledgment is sent again.
    drain : float
        Until an old version that has not drained raises an alarm. `Bounds.drain_alarm` is a good choice.
    """

    ready: float = 60.0
    retry: float = 1.0
    drain: float = 600.0


class Request(NamedTuple):
    """A version to update to, and how. See `Update`."""

    strategy: Strategy
    new: Version
    ordered: bool = False
    partial_window: PartialWindow = PartialWindow.EMIT
    migrated: frozenset[str] = frozenset()

    def update(self, old: Version, numbering: Numbering) -> Update:
        """Return the update from a version that runs."""
        return Update(self.strategy, old, self.new, numbering, self.partial_window, self.migrated, ordered=self.ordered)

    def to_dict(self) -> dict[str, Any]:
        """Return the request as JSON values."""
        return {
            "strategy": self.strategy.value,
            "new": self.new.to_dict(),
            "ordered": self.ordered,
            "partial_window": self.partial_window.value,
            "migrated": sorted(self.migrated),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Request:
        """Restore what `to_dict` returned."""
        return cls(
            Strategy(fields["strategy"]),
            Version.from_dict(fields["new"]),
            fields["ordered"],
            PartialWindow(fields["partial_window"]),
            frozenset(fields["migrated"]),
        )


@dataclass
class Coordinator:
    """Updates of one dataflow, one after the other.

    Parameters
    ----------
    version : Version
        The version that runs.
    limits : Limits
    numbering : Numbering, optional
        Of the running version, as its routers have it.

    Examples
    --------
    >>> old = Version.of(1, {"read": 1, "write": 1}, [("read", "write")])
    >>> new = Version.of(2, {"read": 1, "write": 2}, [("read", "write")])
    >>> coordinator = Coordinator(old)
    >>> [command.action.value for command in coordinator.request(Request(Strategy.MVC, new), now=0.0)]
    ['prepare', 'deploy']
    >>> [coordinator.ready(element, 2, now=0.1) for element in old.elements]  # their routers are prepared
    [[], []]
    >>> coordinator.ready(Element("write", 2), 2, now=0.5)
    [Command(action=<Action.NOTIFY: 'notify'>, parts=(Element(id='read', version=1),), text='', version=2)]
    >>> coordinator.acknowledged("read", 2, now=0.6)
    [Command(action=<Action.COUNT: 'count'>, parts=(), text='', version=2)]
    >>> _ = coordinator.counted(Tally(10, 10, 10, 10), {}, 2, now=0.7)
    >>> [command.action.value for command in coordinator.counted(Tally(10, 10, 10, 10), {}, 2, now=0.8)]
    ['retire', 'complete']
    >>> coordinator.state.value, coordinator.version.number
    ('complete', 2)
    """

    version: Version
    limits: Limits = field(default_factory=Limits)
    numbering: Numbering = field(default_factory=lambda: Numbering({}))
    state: State = State.COMPLETE
    update: Update | None = None
    reason: str = ""
    _queue: list[Request] = field(default_factory=list)
    _waiting: set[Part] = field(default_factory=set)  # not ready, or not acknowledged
    _restoring: bool = False  # NCL, NCH: the old version is deployed again
    _counted: Tally | None = None
    _since: float = 0.0  # of the state, or of the last notice
    _highest: int = 0  # number of the versions that were requested
    _alarmed: bool = False

    def __post_init__(self) -> None:
        self.numbering = self.numbering.extended(self.version)
        self._highest = max(self._highest, self.version.number)

    @property
    def busy(self) -> bool:
        """Whether an update is under way."""
        return self.state not in (State.COMPLETE, State.ABORTED)

    # Events

    def request(self, request: Request, now: float) -> list[Command]:
        """Start an update, or queue it until the current one is complete.

        Parameters
        ----------
        request : Request
        now : float
            Seconds on any clock; the same one for all events.

        Returns
        -------
        list of Command

        Raises
        ------
        InputError
            The new version does not differ from the one before it, or its number is not above all earlier ones.
        """
        before = self.version
        if self.busy and self.update is not None:
            before = self._queue[-1].new if self._queue else self.update.new
        if request.new.number <= self._highest:
            raise InputError(
                f"update to dataflow version {request.new.number}: the number must be above {self._highest}"
            )
        self._check(request, before)
        self._highest = request.new.number
        self._queue.append(request)
        return [] if self.busy else self._next(now)

    def ready(self, part: Part, version: int, now: float) -> list[Command]:
        """Record that a deployed part can work, or that the router of an old element is prepared."""
        update = self._current(version)
        if update is None or self.state != State.DEPLOYING or part not in self._waiting:
            return []
        self._waiting.discard(part)
        return [] if self._waiting else self._deployed(update, now)

    def failed(self, part: Part, reason: str, version: int, now: float) -> list[Command]:
        """Record that a part could not be deployed: the update is aborted."""
        update = self._current(version)
        if update is None or self.state != State.DEPLOYING or part not in self._waiting:
            return []
        return self._abort(update, f"{_name(part)} failed: {reason}", now)

    def acknowledged(self, id: str, version: int, now: float) -> list[Command]:
        """Record that a source uses the new version (MVC), or that the router of an element is active (HTI, PVC)."""
        update = self._current(version)
        if update is None or self.state != State.ACTIVE:
            return []
        self._waiting = {part for part in self._waiting if not (isinstance(part, Element) and part.id == id)}
        return [] if self._waiting else self._drain(now)

    def counted(self, tally: Tally, partial: Mapping[str, int], version: int, now: float) -> list[Command]:
        """Record how many batches of the old version were sent and finished.

        Processes are read at different times, so one reading proves nothing: the old version has drained if the batches
        finished by the previous reading are all that were sent by this one. Incomplete batches of it are flushed when
        no batch is left that could complete them.

        Parameters
        ----------
        tally : Tally
            Sum of `Counts.old` over all processes.
        partial : mapping
            Incomplete batches of the old version, by element.
        version : int
            Of the command.
        now : float

        Returns
        -------
        list of Command
        """
        update = self._current(version)
        if update is None or not (self.state == State.DRAINING or self._draining_first(update)):
            return []
        before, self._counted = self._counted, tally
        if before is None or before.done != tally.sent:
            return []
        first = next((id for id in _in_order(update.old) if partial.get(id)), None)
        if first is None:
            return self._drained(update, now)
        if before.entered_done != tally.entered_sent:
            return []
        self._counted = None  # what is flushed may complete batches further down
        return [self._command(Action.FLUSH, (Element(first, update.old.logic[first]),))]

    def tick(self, now: float) -> list[Command]:
        """Check the limits; call it every second or so."""
        update = self.update
        if update is None or not self.busy:
            return []
        late = now - self._since
        if self.state == State.DEPLOYING and late >= self.limits.ready:
            missing = ", ".join(map(_name, sorted(self._waiting, key=str)))
            return self._abort(update, f"{missing} not ready within {self.limits.ready:g} s", now)
        if self.state == State.ACTIVE and late >= self.limits.retry:
            return self._notices(update, now)
        if self.state == State.DRAINING or self._draining_first(update):
            alarm = late >= self.limits.drain and not self._alarmed
            self._alarmed |= alarm
            text = f"dataflow version {update.old.number} has not drained within {self.limits.drain:g} s"
            return [*([self._command(Action.ALARM, text=text)] if alarm else []), self._command(Action.COUNT)]
        return []

    def restart(self, now: float) -> list[Command]:
        """Continue after the coordinator was restored.

        Before the activation the update is aborted: nothing has changed for the old version. Strategies that stopped
        it deploy what was being deployed again, and after the activation the notices and counts are repeated.
        """
        update = self.update
        if update is None or not self.busy:
            return []
        self._since, self._counted = now, None
        if self.state == State.ACTIVE:
            return self._notices(update, now)
        if self.state == State.DRAINING:
            return [self._command(Action.COUNT)]
        if self.state == State.REQUESTED:
            return [self._command(Action.PAUSE), self._command(Action.COUNT)]
        if update.strategy in (Strategy.NCL, Strategy.NCH):
            return [self._command(Action.DEPLOY, self._waiting)]
        return self._abort(update, "the coordinator restarted", now)

    # Transitions

    def _current(self, version: int) -> Update | None:
        """Return the update if a report belongs to it."""
        return self.update if self.update is not None and version == self._target(self.update).number else None

    def _target(self, update: Update) -> Version:
        return update.old if self._restoring else update.new

    def _command(self, action: Action, parts: Iterable[Part] = (), text: str = "") -> Command:
        assert self.update is not None
        return Command(action, tuple(sorted(parts, key=str)), text, self._target(self.update).number)

    def _check(self, request: Request, before: Version) -> None:
        _ = request.update(before, self.numbering).parts
        if request.ordered and request.strategy not in (Strategy.MVC, Strategy.PVC):
            raise InputError(f"update to dataflow version {request.new.number}: ordered output needs mvc or pvc")
        if request.migrated and request.strategy == Strategy.NCL:
            raise InputError(
                f"update to dataflow version {request.new.number}: ncl discards state; migration needs another strategy"
            )

    def _next(self, now: float) -> list[Command]:
        """Start the first request of the queue; an earlier abort may have left it without a change."""
        while self._queue:
            request = self._queue.pop(0)
            try:
                self._check(request, self.version)
                return self._start(request, now)
            except InputError as problem:
                return [Command(Action.ALARM, text=str(problem)), *self._next(now)]
        return []

    def _start(self, request: Request, now: float) -> list[Command]:
        strategy, new = request.strategy, request.new
        self.update = update = request.update(self.version, self.numbering.extended(new))
        self.numbering = update.numbering
        self._restoring, self._alarmed, self.reason, self._counted = False, False, "", None
        if strategy == Strategy.NCH:
            self._enter(State.REQUESTED, now)
            prepare = self._command(Action.PREPARE, update.old.elements)
            return [self._command(Action.PAUSE), prepare, self._command(Action.COUNT)]
        if strategy == Strategy.NCL:
            stop = [self._command(Action.PAUSE), self._command(Action.KILL, update.old.elements)]
            return stop + self._deploy(update.new, now)
        self._enter(State.DEPLOYING, now)
        self._waiting = {*update.old.elements, *update.parts.new_only}
        commands = [self._command(Action.PREPARE, update.old.elements)]
        if update.parts.new_only:
            commands.append(self._command(Action.DEPLOY, update.parts.new_only))
        return commands

    def _deploy(self, version: Version, now: float) -> list[Command]:
        """Deploy a whole version."""
        self._enter(State.DEPLOYING, now)
        self._waiting = set(version.parts)
        return [self._command(Action.DEPLOY, version.parts)]

    def _deployed(self, update: Update, now: float) -> list[Command]:
        """Everything is ready."""
        if update.strategy in (Strategy.NCL, Strategy.NCH):
            state = State.ABORTED if self._restoring else State.COMPLETE
            return self._finish(state, [self._command(Action.RESUME)], now)
        before = [self._command(Action.CLOSE_GATE)] if update.ordered else []
        if update.strategy == Strategy.HTI:
            before += self._hand_over(update)
        ids = update.old.logic | update.new.logic
        if update.strategy == Strategy.MVC:
            ids = {id: version for id, version in ids.items() if id in update.old.sources or id in update.new.sources}
        self._waiting = {Element(id, version) for id, version in ids.items()}
        self._enter(State.ACTIVE, now)
        return before + self._notices(update, now)

    def _notices(self, update: Update, now: float) -> list[Command]:
        self._since = now
        action = Action.NOTIFY if update.strategy == Strategy.MVC else Action.ACTIVATE
        return [self._command(action, self._waiting)]

    def _drain(self, now: float) -> list[Command]:
        self._enter(State.DRAINING, now)
        return [self._command(Action.COUNT)]

    def _drained(self, update: Update, now: float) -> list[Command]:
        """No message of the old version is left."""
        if update.strategy == Strategy.NCH:
            stop = [*self._hand_over(update), self._command(Action.KILL, update.old.elements)]
            return stop + self._deploy(update.new, now)
        commands = [self._command(Action.OPEN_GATE)] if update.ordered else []
        commands += self._hand_over(update) if update.strategy != Strategy.HTI else []
        if update.parts.old_only:
            commands.append(self._command(Action.RETIRE, update.parts.old_only))
        return self._finish(State.COMPLETE, commands, now)

    def _hand_over(self, update: Update) -> list[Command]:
        handed = [one for one in update.replaced if one.id in update.migrated]
        return [self._command(Action.HAND_OVER, handed)] if handed else []

    def _abort(self, update: Update, reason: str, now: float) -> list[Command]:
        """Give up before the activation; strategies that stopped the old version deploy it again."""
        self.reason = reason
        text = f"update to dataflow version {update.new.number} aborted: {reason}"
        if update.strategy not in (Strategy.NCL, Strategy.NCH):
            commands = [self._command(Action.ALARM, text=text), self._command(Action.RETIRE, update.parts.new_only)]
            return self._finish(State.ABORTED, commands, now)
        if self._restoring:  # no version runs: try again
            text = f"dataflow version {update.old.number} does not restart: {reason}"
        commands = [
            self._command(Action.ALARM, text=text),
            self._command(Action.KILL, self._target(update).elements),
        ]
        self._restoring = True
        return commands + self._deploy(update.old, now)

    def _finish(self, state: State, commands: list[Command], now: float) -> list[Command]:
        assert self.update is not None
        update, complete = self.update, state == State.COMPLETE
        end = self._command(Action.COMPLETE if complete else Action.ABORT)
        self.version = update.new if complete else update.old
        self.numbering = self.numbering.restricted(self.version)
        self.update, self._waiting = None, set()
        self._enter(state, now)
        return [*commands, end, *self._next(now)]

    def _enter(self, state: State, now: float) -> None:
        self.state, self._since = state, now

    def _draining_first(self, update: Update) -> bool:
        return self.state == State.REQUESTED and update.strategy == Strategy.NCH

    # Persistence

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, to be stored after each event."""
        current = None
        if self.update is not None:
            one = self.update
            current = Request(one.strategy, one.new, one.ordered, one.partial_window, one.migrated).to_dict()
        return {
            "version": self.version.to_dict(),
            "limits": list(self.limits),
            "numbering": self.numbering.to_list(),
            "state": self.state.value,
            "update": current,
            "reason": self.reason,
            "queue": [one.to_dict() for one in self._queue],
            "waiting": sorted((list(part) for part in self._waiting), key=str),
            "restoring": self._restoring,
            "since": self._since,
            "highest": self._highest,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Coordinator:
        """Restore what `to_dict` returned; call `restart` next."""
        numbering = Numbering.from_list(fields["numbering"])
        version = Version.from_dict(fields["version"])
        made = cls(version, Limits(*fields["limits"]), numbering, State(fields["state"]), reason=fields["reason"])
        if fields["update"] is not None:
            made.update = Request.from_dict(fields["update"]).update(version, made.numbering)
        made._queue = [Request.from_dict(one) for one in fields["queue"]]
        made._waiting = {
            Element(first, second) if isinstance(second, int) else Channel(first, second)
            for first, second in fields["waiting"]
        }
        made._restoring, made._since, made._highest = fields["restoring"], fields["since"], fields["highest"]
        return made


def _name(part: Part) -> str:
    if isinstance(part, Element):
        return f"processing element {part.id} (version {part.version})"
    return f"channel {part.source} -> {part.target}"


def _in_order(version: Version) -> list[str]:
    """Return elements so that producers come before consumers, except along a cycle."""
    found: list[str] = []
    seen: set[str] = set()
    for source in (*version.sources, *version.logic):
        stack = [(source, iter(version.targets[source]))] if source not in seen else []
        seen.add(source)
        while stack:
            id, targets = stack[-1]
            target = next((one for one in targets if one not in seen), None)
            if target is None:
                found.append(id)
                stack.pop()
            else:
                seen.add(target)
                stack.append((target, iter(version.targets[target])))
    return found[::-1]

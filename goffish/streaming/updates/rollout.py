"""The steps of an update on all workers: deploy, activate when all are ready, complete when the old version is empty.

A rollout neither reads a clock nor sends anything. Whatever fails, each step can be repeated: workers report how far
they are, and one that joins later is sent the same commands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from goffish.streaming.updates.bounds import Bounds
from goffish.streaming.updates.forecast import measurable
from goffish.streaming.updates.plan import UpdatePlan
from goffish.streaming.updates.versions import PartialWindow, Strategy


class RolloutState(StrEnum):
    """How far an update is."""

    DEPLOYING = "deploying"
    DRAINING = "draining"
    COMPLETE = "complete"
    ABORTED = "aborted"


class Progress(NamedTuple):
    """What a worker reports: its newest version, the active one, whether the old one is empty, and what failed."""

    newest: int = 0
    active: int = 0
    drained: bool = False
    failed: str | None = None


@dataclass(frozen=True)
class UpdateReport:
    """What an update was, and what it cost.

    Attributes
    ----------
    version : int
    strategy : str
    kind : str
        Which parts of the flow differ.
    changes : str
    state : {"complete", "aborted"}
    reason : str
        Why it was aborted.
    deploy_s : float
        Seconds until the new version was ready on all workers.
    seconds : float
        Until nothing of the old version was left.
    refresh_s : float or None
        Until the first result of the new version was written; None if there was none.
    lag_s : float
        Until the last result of the old version was written; 0 if there was none.
    lost : int
        Records and results of windows that were discarded.
    mixes : bool
        Whether results may depend on both versions.
    predicted : dict or None
        Bounds before the update: ``refresh_s``, ``lag_s``, ``outage_s`` and ``lost``; None if there were none.
    """

    version: int
    strategy: str
    kind: str
    changes: str
    state: str
    reason: str
    deploy_s: float
    seconds: float
    refresh_s: float | None
    lag_s: float
    lost: int
    mixes: bool
    predicted: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a mapping for JSON.

        Returns
        -------
        dict
        """
        return asdict(self)


class Rollout:
    """An update of the workers of a flow.

    Parameters
    ----------
    plan : UpdatePlan
    now : float
        Time in seconds.
    deploy_s : float
        The update is aborted if not all workers are ready within this time.
    bounds : Bounds, optional
        Predicted for it.

    Attributes
    ----------
    state : RolloutState
    reason : str
        Why the update was aborted.
    begun, activated, ended : float
        Times; ``activated`` and ``ended`` are 0 before.
    """

    def __init__(self, plan: UpdatePlan, now: float, deploy_s: float = 30.0, bounds: Bounds | None = None) -> None:
        self.predicted = None if bounds is None else measurable(bounds)
        self.plan, self.begun = plan, now
        self.activated = self.ended = 0.0
        self.state = RolloutState.DEPLOYING
        self.reason = ""
        self._deploy_s = deploy_s

    @property
    def ending(self) -> bool:
        """Whether the update is complete or aborted."""
        return self.state in (RolloutState.COMPLETE, RolloutState.ABORTED)

    def abort(self, reason: str, now: float) -> None:
        """End without the new version."""
        self.state, self.reason, self.ended = RolloutState.ABORTED, reason, now

    def complete(self, now: float) -> None:
        """End with the new version."""
        self.state, self.ended = RolloutState.COMPLETE, now

    def advance(
        self, workers: Mapping[int, Progress], members: Collection[int], now: float, hosts: Collection[Progress] = ()
    ) -> list[tuple[int, dict[str, Any]]]:
        """Return the commands that are due, with their receivers.

        Parameters
        ----------
        workers : mapping
            What all workers that are ready have reported last.
        members : collection of int
            Those on the ring.
        now : float
        hosts : collection of Progress, optional
            What other hosts have reported last, also those that have no workers yet.
        """
        number = self.plan.number
        present = [workers.get(one) for one in members]
        if self.state == RolloutState.DEPLOYING:
            failed = next((one.failed for one in (*workers.values(), *hosts) if one.failed), None)
            if failed is None and now > self.begun + self._deploy_s:
                failed = f"not all workers were ready within {self._deploy_s:g} s"
            if failed is not None:
                self.abort(failed, now)
            elif all(one is not None and one.newest >= number for one in (*present, *hosts)):
                self.state, self.activated = RolloutState.DRAINING, now
        if self.state == RolloutState.DRAINING and all(
            one is not None and one.active >= number and one.drained for one in present
        ):
            self.complete(now)
        return [(one, command) for one, progress in workers.items() for command in self._commands(progress)]

    def report(self, writes: Mapping[int, tuple[float, float]], lost: int) -> UpdateReport:
        """Return what the update cost.

        Parameters
        ----------
        writes : mapping
            Times of the first and of the last write to a sink, by version.
        lost : int
        """
        plan = self.plan
        first = writes[plan.number][0] - self.begun if plan.number in writes else None
        last = max((last for version, (_, last) in writes.items() if version < plan.number), default=self.begun)
        merged = plan.partial_windows == PartialWindow.MERGE
        return UpdateReport(
            plan.number, str(plan.strategy), plan.kind.name.lower().replace("_", " "), plan.text, str(self.state),
            self.reason, (self.activated or self.ended) - self.begun, self.ended - self.begun, first,
            max(0.0, last - self.begun), lost, plan.mixes and (plan.strategy == Strategy.HTI or merged),
            self.predicted,
        )  # fmt: skip

    def _commands(self, worker: Progress) -> list[dict[str, Any]]:
        number = self.plan.number
        prepare = {"command": "prepare", "version": number}
        activate = {"command": "activate", "version": number, "paused": self.plan.strategy == Strategy.NCH}
        complete = {"command": "complete", "version": number}
        match self.state:
            case RolloutState.DEPLOYING | RolloutState.DRAINING if worker.newest < number:
                return [prepare]
            case RolloutState.DRAINING if worker.active < number:
                return [activate]
            case RolloutState.COMPLETE if worker.active < number:  # it has started meanwhile
                return [prepare, activate, complete]
            case RolloutState.COMPLETE:
                return [complete]
            case RolloutState.ABORTED:
                return [{"command": "abort", "version": number}]
        return []

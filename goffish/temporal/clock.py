"""The outer loop of TI-BSP as a pure function: what follows a superstep, from what all sub-graphs said in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from goffish.temporal.program import Pattern

COMPUTE, END, MERGE, DONE = range(4)

#: Aggregators that the clock is read from, and how they are reduced.
AGGREGATORS: Mapping[str, Any] = {
    "tibsp.phase": "max",
    "tibsp.index": "max",
    "tibsp.superstep": "max",
    "tibsp.busy": "or",
    "tibsp.dissents": "or",
    "tibsp.halts": "or",
    "tibsp.pending": "or",
}


@dataclass(frozen=True)
class Clock:
    """One superstep of the engine, as a time-series program sees it.

    Attributes
    ----------
    phase : {COMPUTE, END, MERGE, DONE}
    index : int
        Which of the run's timesteps, from 0.
    superstep : int
        Within the timestep or the merge, from 1.
    """

    phase: int
    index: int
    superstep: int

    def told(self) -> dict[str, Any]:
        """What every partition contributes, so that all know it in the next superstep."""
        return {"tibsp.phase": self.phase, "tibsp.index": self.index, "tibsp.superstep": self.superstep}


def read_clock(aggregated: Any) -> tuple[Clock, dict[str, bool]] | None:
    """The clock of the superstep before, and what was said in it; ``None`` in the first one."""
    if aggregated("tibsp.phase") is None:
        return None
    clock = Clock(*(int(aggregated(f"tibsp.{name}")) for name in ("phase", "index", "superstep")))
    return clock, {name: bool(aggregated(f"tibsp.{name}")) for name in ("busy", "dissents", "halts", "pending")}


def advance(before: Clock, said: Mapping[str, bool], pattern: Pattern, timesteps: int, *, merges: bool) -> Clock:
    """What follows a superstep (specification of the time series, §3.1).

    Parameters
    ----------
    said : mapping
        ``busy``: a sub-graph is active or a message in flight; of an end of timestep: ``dissents``, a sub-graph has not
        voted to halt timesteps; ``halts``, one ended the application; ``pending``, one sent to the next timestep.
    merges : bool
        Whether a merge follows the last timestep.
    """
    if before.phase == DONE:
        return before
    if before.phase in (COMPUTE, MERGE) and said["busy"]:
        return replace(before, superstep=before.superstep + 1)
    if before.phase == COMPUTE:
        return Clock(END, before.index, 0)
    if before.phase == END and before.index + 1 < timesteps:
        agreed = not said["dissents"] and not said["pending"]
        if pattern != "sequential" or not (agreed or said["halts"]):
            return Clock(COMPUTE, before.index + 1, 1)
    if before.phase == END and merges:
        return Clock(MERGE, before.index, 1)
    return Clock(DONE, before.index, 0)


def first_clock(timesteps: int, *, merges: bool) -> Clock:
    """The first superstep: of the first timestep, or of the merge where there are no timesteps."""
    if timesteps:
        return Clock(COMPUTE, 0, 1)
    return Clock(MERGE, 0, 1) if merges else Clock(DONE, 0, 0)

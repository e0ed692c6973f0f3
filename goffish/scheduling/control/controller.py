"""Between who decides on a dataflow and where it runs: the one interface that plans are carried out through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from goffish.scheduling.control.cluster import Changes
from goffish.scheduling.control.loop import Control
from goffish.scheduling.control.records import Measured, Result
from goffish.scheduling.dataflow.deployment import Deployment

#: Called at the end of every interval with its number, what was changed at its beginning, and what was measured.
Told = Callable[[int, Changes, Measured], object]


class Controller(Protocol):
    """Runs a dataflow: a simulated cloud, or a stream runtime."""

    def apply(self, step: int, plan: Deployment, changes: Changes) -> None:
        """Bring machines and instances to what a plan says, at the beginning of an interval.

        Parameters
        ----------
        step : int
        plan : Deployment
            All that is to be there.
        changes : Changes
            By what it differs from before.
        """
        ...

    def observe(self) -> Measured:
        """Let the dataflow run until the interval ends, and tell what it did."""
        ...


def carry_out(control: Control, controller: Controller, told: Told | None = None) -> Result:
    """Deploy a dataflow and adapt it from interval to interval.

    Parameters
    ----------
    control : Control
        Asks the policy, and keeps the books.
    controller : Controller
    told : callable, optional
    """
    for step in range(control.setting.steps):
        changes = control.begin(step)
        controller.apply(step, control.cluster.live, changes)
        measured = controller.observe()
        control.end(step, measured)
        if told is not None:
            told(step, changes, measured)
    return control.result()

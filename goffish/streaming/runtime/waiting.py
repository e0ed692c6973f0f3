"""A flow that waits for machines, as other processes see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from goffish.errors import InputError
from goffish.streaming.metrics import Counts, Meter, Metrics
from goffish.streaming.topology import MAIN, Topology
from goffish.streaming.updates.forecast import Setup
from goffish.streaming.updates.plan import UpdatePlan
from goffish.streaming.updates.rollout import UpdateReport
from goffish.streaming.updates.versions import PartialWindow, Strategy


class Waiting:
    """A flow that has not begun; accepts no request but `stop`.

    Parameters
    ----------
    topology : Topology
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.load: Callable[[str], Topology] | None = None
        #: Updates, of which there are none.
        self.updates: list[UpdateReport] = []
        self.updating = False
        #: Whether it was stopped.
        self.stopped = False
        self._meter = Meter(topology)

    def metrics(self) -> Metrics:
        """Return metrics without records."""
        counts = {one.name: Counts() for one in self.topology.operators}
        active = {one.name: MAIN for one in self.topology.operators if one.alternates}
        return self._meter.metrics(counts, active, [], "stopped" if self.stopped else "waiting", None)

    def stop(self) -> None:
        """End the run before it begins."""
        self.stopped = True

    @property
    def setup(self) -> Setup:
        """Refuse, as no workers run."""
        self._refuse()

    def plan(self, new: Topology, strategy: Strategy, partial_windows: PartialWindow) -> UpdatePlan:
        """Refuse."""
        self._refuse()

    def update(self, new: Topology, strategy: Strategy, partial_windows: PartialWindow) -> None:
        """Refuse."""
        self._refuse()

    def switch(self, operator: str, alternate: str) -> None:
        """Refuse."""
        self._refuse()

    def scale(self, workers: int | Mapping[str, int]) -> None:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InputError(f"flow {self.topology.name}: waits for machines; try again once it runs")

"""How long messages take through a dataflow, from what was measured in an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from goffish.services.dataflows.flow import Flow
from goffish.services.dataflows.host_plan import critical_path

if TYPE_CHECKING:
    from goffish.services.simulation.control import Measured


def latency_s(
    flow: Flow, active: NDArray[np.int64], instances: NDArray[np.int64], measured: Measured, interval_s: float
) -> float:
    """Seconds along the slowest path: waiting by Little's law, and work on a core of the element's mean speed.

    Links between machines are left out. Where messages wait and none was processed, they wait for an interval.

    Parameters
    ----------
    active : int64, shape (elements,)
    instances : int64, shape (elements,)
    measured : Measured
    interval_s : float
    """
    waiting, done = measured.queue_mean, measured.processed
    wait = np.divide(waiting, done, out=np.where(waiting > 0, interval_s, 0.0), where=done > 0)
    speed = np.divide(measured.power, instances, out=np.zeros(flow.size), where=instances > 0)
    work = np.divide(flow.cost[flow.rows(active)], speed, out=np.full(flow.size, interval_s), where=speed > 0)
    return critical_path(flow, wait + work, np.zeros(flow.pred.size))

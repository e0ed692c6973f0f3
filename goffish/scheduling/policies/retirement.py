"""Retirement of machines whose paid time ends: move their instances to free cores elsewhere, and stop them.

See docs/specs/plasticc.md, section 3.3.
"""

from __future__ import annotations

import math

import numpy as np

from goffish.scheduling.dataflow.flow import SLACK
from goffish.scheduling.policies.windows import Window


def retire_machines(window: Window, target: float, within_steps: int, least_step: float = 0.0, since: int = 0) -> None:
    """Plan to stop machines at the end of their paid time, those with the fewest used cores first.

    Its instances move to free cores of other machines at once. An instance without a free core is removed if its PE
    keeps another one. A machine remains if its instances find no core, or if the throughput would be insufficient.

    Parameters
    ----------
    window : Window
        Window without planned changes after `since`; receives the changes.
    target : float
        Least relative throughput of the whole window.
    within_steps : int
        Timesteps until the next plan, which handles paid time that ends later.
    least_step : float
        Least relative throughput of each timestep; 0: no limit. Timesteps that already miss it do not count.
    since : int
        The first timestep in which machines are emptied.
    """
    left = window.paid_left_s(0)
    within = min(within_steps, window.steps) * window.interval_s
    # Planned machines are not stopped by this plan.
    runs = np.array(window.ids, np.int64) >= 0
    due = np.flatnonzero(runs & (left > since * window.interval_s - SLACK) & (left <= within + SLACK))
    used = window.catalogue.cores[window.kinds[due]] - window.free[due]
    for machine in due[np.lexsort((due, used))].tolist():
        before = len(window.actions)
        if _emptied(window, machine, since) and _holds(window, before, target, least_step, since):
            window.retire(machine, max(since, math.ceil(left[machine] / window.interval_s - SLACK) - 1))
        else:
            window.rollback(before)
            window.usable[machine] = True


def _emptied(window: Window, machine: int, since: int) -> bool:
    """Move all instances from a machine, as far as possible."""
    window.usable[machine] = False
    flow = window.flow
    for element, count in window.instances_on(machine).items():
        neighbours = [
            *flow.pred[flow.pred_offsets[element] : flow.pred_offsets[element + 1]].tolist(),
            *flow.succ[flow.succ_offsets[element] : flow.succ_offsets[element + 1]].tolist(),
        ]
        for _ in range(count):
            target = window.fastest_free([element, *neighbours], since)
            if target < 0 and window.counts[element] == 1:
                return False
            window.take(element, machine, since)
            if target >= 0:
                window.put(element, target, since)
    return True


def _holds(window: Window, before: int, target: float, least_step: float, since: int) -> bool:
    if len(window.actions) == before:
        return True
    if window.evaluate(since, window.steps).omega < target - SLACK:
        return False
    return least_step <= 0 or window.first_below(least_step, since) == window.steps

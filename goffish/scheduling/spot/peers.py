"""Baseline heuristics of other schedulers: greedy, uniform progress, and eager recovery.

Sources: Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines", NSDI 2024, §3.3 (thrifty, safety
net and exploitation rule), §3.4 (greedy), §5.2.2 (uniform progress, taking risks, hysteresis); SkyPilot's recovery of
managed jobs, which requests a new spot machine at once. They run in `replay` like the other heuristics.

The paper models lost work as a changeover delay ``d``. Here an interruption loses all work since the last checkpoint,
so the rules are adapted:

* * ``d`` is the start-up; the line of expected progress uses the work that is done, the safety net the saved work.
* Safety net ("idle and R < C + 2 d"): on demand if the slots left, less a start-up, one slot of work and a checkpoint,
  are fewer than the saved state requires on demand. As for H3, a spot machine is only held as long as the job can still
  finish on demand from the saved state if the machine is lost; before that the job saves its work, and stays if that
  gains time.
* Checkpoints: every ``interval`` units of work (Young's formula), none in between where notice is given; and one before
  uniform progress leaves a machine on demand.

With these rules, greedy equals H3 with Young's interval and the highest bid.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.spot.heuristics import Heuristic, young_interval
from goffish.scheduling.spot.model import Market

PeerKind = Literal["greedy", "eager", "uniform-progress"]


def peer(
    market: Market, kind: PeerKind, work: int, slots: int, *, class_number: int = 0, lifetime: float = np.inf
) -> Heuristic:
    """Create a heuristic of another scheduler for jobs of one size and deadline.

    Parameters
    ----------
    market : Market
    kind : {"greedy", "eager", "uniform-progress"}
        Greedy: spot whenever available, idle otherwise, on demand to the end when the safety net requires it. Eager:
        like greedy, but on demand at once, and to the end, if no spot machine is available. Uniform progress: on demand
        if no spot machine is available and less than the elapsed share of the work is done, until the job is ahead of
        the line two start-ups later.
    work : int
        Units of the job.
    slots : int
        Slots from submission to deadline.
    class_number : int
        Index of the machine type. Its highest bid is used.
    lifetime : float
        Mean slots until a spot interruption (`mean_lifetime`), for Young's formula; infinite: no periodic checkpoints.

    Raises
    ------
    InputError
        If the kind is unknown, the machine type has no bids, or the lifetime is negative.
    """
    if kind not in get_args(PeerKind):
        raise InputError(f"unknown heuristic {kind!r}; accepted: {', '.join(get_args(PeerKind))}")
    if not lifetime >= 0:
        raise InputError(f"lifetime = {lifetime:g} slots: must be 0 or more")
    if not 0 <= class_number < len(market.classes):
        raise InputError(f"unknown machine type {class_number}")
    one = market.classes[class_number]
    interval = np.inf
    if not market.notice and np.isfinite(lifetime):
        interval = young_interval(lifetime, one.speed, int(np.max(market.checkpoint_slots)))
    return Heuristic(market, kind, work, class_number, one.covers.size - 1, interval, slots)

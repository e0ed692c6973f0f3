"""Rules of other schedulers, to compare with: greedy, uniform progress, and eager recovery.

Sources: Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines", NSDI 2024, §3.3 (thrifty, safety
net and exploitation rule), §3.4 (greedy), §5.2.2 (uniform progress, taking risks, hysteresis); SkyPilot's recovery of
managed jobs, which asks for a spot machine again at once. They run in `replay` as the other heuristics do.

In the paper no work is ever lost: a changeover delay ``d`` stands for what is. Here a machine that is taken away takes
along all work since the last checkpoint, so the rules are adapted:

* ``d`` is the start-up; the line of expected progress counts the work that is done, the safety net what is saved.
* Safety net ("idle and R < C + 2 d"): on demand if the slots left, less a start-up, one slot of work and a checkpoint,
  are fewer than what is saved needs on demand. As for H3, a spot machine is only held as long as what is saved can
  still be done on demand if it is lost; before that the job saves its work, and stays if that gave it time.
* Checkpoints: every ``interval`` units of work (Young's formula), none in between where notice is given; and one before
  uniform progress leaves a machine on demand.

With these, greedy does what H3 does with Young's interval and the bid of the peers, which is the highest one.
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
    """A rule of another scheduler for jobs of one size and deadline.

    Parameters
    ----------
    market : Market
    kind : {"greedy", "eager", "uniform-progress"}
        Greedy: spot whenever there is some, idle otherwise, on demand to the end when the safety net says so. Eager: as
        greedy, but on demand at once, and to the end, where there is no spot machine when one is needed. Uniform
        progress: on demand where there is no spot machine and less than the elapsed share of the work is done; it stays
        until it is ahead of where the line is two start-ups later.
    work : int
        Units of the job.
    slots : int
        From submission to deadline.
    class_number : int
        The class that all its machines are of. Its highest bid is taken.
    lifetime : float
        Mean slots until a spot machine is taken away (`mean_lifetime`), for Young's formula; infinite: no periodic
        checkpoints.

    Raises
    ------
    InputError
        For another kind, a class without bids, or a lifetime below 0.
    """
    if kind not in get_args(PeerKind):
        raise InputError(f"no peer {kind!r}; there are: {', '.join(get_args(PeerKind))}")
    if not lifetime >= 0:
        raise InputError(f"lifetime = {lifetime:g} slots: must be 0 or more")
    if not 0 <= class_number < len(market.classes):
        raise InputError(f"no class {class_number}")
    one = market.classes[class_number]
    interval = np.inf
    if not market.notice and np.isfinite(lifetime):
        interval = young_interval(lifetime, one.speed, int(np.max(market.checkpoint_slots)))
    return Heuristic(market, kind, work, class_number, one.covers.size - 1, interval, slots)

"""What jobs cost that follow a policy as a service runs them, replayed over earlier prices.

Tables and heuristics reckon with whole slots, an upper bound on the work, and the delays of a market. A bill has the
seconds that machines are held: starts, work and checkpoints last as long as they do, and a job ends with its work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices
from goffish.scheduling.spot import bill_kernels as kernels
from goffish.scheduling.spot.heuristics import Heuristic
from goffish.scheduling.spot.replay import no_strategy, strategy_of
from goffish.scheduling.spot.replay_kernels import HeuristicSettings
from goffish.scheduling.spot.table import Table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Bills(NamedTuple):
    """Results of the jobs; float64, shape (runs,).

    Attributes
    ----------
    costs : float64
    seconds : float64
        Until completion.
    losses : float64
        Number of interruptions.
    on_demand : float64
        Seconds on demand.
    """

    costs: Floats
    seconds: Floats
    losses: Floats
    on_demand: Floats


def bills(policy: Table | Heuristic, course: kernels.Course, slots: int, prices: SlotPrices, starts: Ints) -> Bills:
    """Run a job from each start slot over a price history.

    Parameters
    ----------
    policy : Table or Heuristic
    course : bill_kernels.Course
    slots : int
        Slots until the deadline.
    prices : SlotPrices
        Prices of the machine types of the market, in their order; after the last slot comes the first one.
    starts : int64, shape (runs,)

    Notes
    -----
    Prices are those at the start of a slot. An interruption is in the middle of its slot, and a decision follows it at
    once. Time complexity: ``O(runs * slots)``.
    """
    market, work = policy.market, max(1, int(np.ceil(course.planned - 1e-9)))
    if isinstance(policy, Table):
        strategy, plan = strategy_of(policy), HeuristicSettings(0, -1, 0, work, np.inf)
        own = market.joint(prices.prices, market.ages_of(prices.prices))[:-1]
        joints = np.stack([own, market.joint(prices.peaks, np.zeros(prices.peaks.shape, np.int64))])
    else:
        strategy, plan, joints = no_strategy(), policy.plan, np.zeros((2, prices.slots), np.int64)
    found = np.empty((starts.size, 4))
    kernels.bills(
        isinstance(policy, Table), strategy, plan, market.rules, course, slots, starts, prices.prices, prices.peaks,
        joints, found,
    )  # fmt: skip
    return Bills(*found.T.copy())

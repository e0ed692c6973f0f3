"""Money of a slot under the price model: the billing automaton of a choice, spread over the joint prices.

With the price of the hour's start (`hourly_start`) the hour states also remember the bin that the price was in.
Specification of RTBA, §2.7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goffish.services.spot.billing import AT_END_OF_SLOT, AT_START_OF_HOUR
from goffish.services.spot.model import Market

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Charges:
    """Of one choice.

    Attributes
    ----------
    follow : int64, shape (joint prices, hour states)
    charge, finish : float64, shape (joint prices, hour states)
        Expected money of a slot, and of one in which the job ends; both also if the machine is taken away in it.
    release : float64, shape (joint prices, hour states)
        Money of giving the machine back at the start of a slot.
    survive, lose : float64, shape (classes, bins, bins)
        Chains of all classes, that of the choice's class restricted to the steps that it survives, or not.
    covered : bool, shape (joint prices,)
        Where the machine is granted.
    """

    follow: Ints
    charge: Floats
    finish: Floats
    release: Floats
    survive: Floats
    lose: Floats
    covered: NDArray[np.bool_]

    @property
    def states(self) -> int:
        """Hour states."""
        return int(self.follow.shape[1])


def chains(market: Market) -> Floats:
    """Of all classes, padded to the greatest number of bins."""
    size = int(market.sizes.max())
    found = np.zeros((len(market.classes), size, size))
    for at, one in enumerate(market.classes):
        found[at, : one.bins, : one.bins] = one.chain
    return found


def charges_of(market: Market, choice: int) -> Charges:
    """The charges of a choice."""
    rules = market.rules
    kind, spot = int(rules.kind[choice]), bool(rules.spot[choice])
    one, machine = market.classes[kind], market.spot if spot else market.on_demand
    price = one.levels if spot else np.full(one.bins, one.on_demand)
    bins = one.bins
    top = int(one.covers[choice - market.spot_choice(kind, 0)]) if spot else bins
    kept = np.where(np.arange(bins) <= top, 1.0 - one.hazard if spot else 1.0, 0.0)
    stays, goes = one.chain * kept, one.chain * (1.0 - kept)
    hours, now = machine.states, np.arange(bins)
    if spot and machine.priced == AT_START_OF_HOUR:
        # State 0 has no price yet; state 1 + (d - 1) * bins + b is hour state d, begun in bin b.
        hour = np.append(0, 1 + (np.arange((hours - 1) * bins) // bins))
        locked = np.append(0, np.arange((hours - 1) * bins) % bins)
        begun = np.where(hour[None, :] == 0, now[:, None], locked[None, :])
        then = machine.follow[hour][None, :]
        follow = np.where(then == 0, 0, 1 + (then - 1) * bins + begun)
        due = price[begun]
        worth = stays.sum(axis=1)[:, None] * due
    else:
        hour = np.arange(hours)
        follow = np.broadcast_to(machine.follow, (bins, hours))
        due = np.broadcast_to(price[:, None], (bins, hours))
        worth = (stays @ price if machine.priced == AT_END_OF_SLOT else stays.sum(axis=1) * price)[:, None]
    cut = goes.sum(axis=1)[:, None] * machine.revoke[hour] * due
    charge = worth * machine.step[hour] + cut
    finish = worth * (machine.step[hour] + machine.release[machine.follow[hour]]) + cut
    release = machine.release[hour] * due
    spread = market.joint_bins[kind]
    everything = chains(market)
    survive, lose = everything.copy(), everything
    survive[kind, :bins, :bins] = stays
    lose[kind, :bins, :bins] = goes
    return Charges(
        np.ascontiguousarray(follow[spread], np.int64),
        np.ascontiguousarray(charge[spread]),
        np.ascontiguousarray(finish[spread]),
        np.ascontiguousarray(release[spread]),
        survive,
        lose,
        spread <= top,
    )

"""Charges of a slot under the price model: the billing automaton of a choice, expanded over the joint prices.

With prices of the hour's start (`hourly_start`), the hour states also include the bin of that price.
See docs/specs/spot.md, section 2.7.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.billing import AT_END_OF_SLOT, AT_START_OF_HOUR
from goffish.scheduling.spot.model import Market

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Charges(NamedTuple):
    """Charges of one choice.

    Attributes
    ----------
    follow : int64, shape (joint prices, hour states)
    charge, finish : float64, shape (joint prices, hour states)
        Expected charge of a slot, and of the slot in which the job ends, including interruptions.
    release : float64, shape (joint prices, hour states)
        Charge of releasing the machine at the start of a slot.
    survive, lose : float64, shape (factors, states, states)
        Factors of the chain of all prices (see `factors`), restricted to steps with, or without, survival of the
        choice.
    covered : bool, shape (joint prices,)
        Whether the machine is granted.
    hours : int64, shape (start-up slots + 1, joint prices)
        Hour state by remaining slots of start-up; 0 if start-up is not billed.
    startup : float64, shape (start-up slots, joint prices)
        Expected charge of the start-up slot with index plus one slots to go.
    """

    follow: Ints
    charge: Floats
    finish: Floats
    release: Floats
    survive: Floats
    lose: Floats
    covered: NDArray[np.bool_]
    hours: Ints
    startup: Floats

    @property
    def states(self) -> int:
        """Number of hour states."""
        return int(self.follow.shape[1])


def factors(market: Market) -> tuple[Floats, Ints]:
    """Factors of the chain of all prices, and the number of states of each factor.

    One factor per machine type, padded to the largest; or a single one of the joint states.
    """
    if market.joint_chain is not None:
        return market.joint_chain[None].copy(), np.array([market.joint_states], np.int64)
    size = int(market.sizes.max())
    found = np.zeros((len(market.classes), size, size))
    for at, one in enumerate(market.classes):
        found[at, : one.states, : one.states] = one.chain
    return found, market.sizes


def charges_of(market: Market, choice: int) -> Charges:
    """Compute the charges of a choice."""
    rules = market.rules
    kind, spot = int(rules.kind[choice]), bool(rules.spot[choice])
    one, machine = market.classes[kind], market.spot if spot else market.on_demand
    price = one.levels if spot else np.full(one.bins, one.on_demand)
    bins, now = one.bins, market.joint_bins[kind]
    top = int(one.covers[choice - market.spot_choice(kind, 0)]) if spot else bins
    kept = np.where(np.arange(bins) <= top, 1.0 - one.hazard if spot else 1.0, 0.0)
    # Probability of the machine type's next bin in each joint state.
    if market.joint_chain is None:
        then = (one.chain @ np.repeat(np.eye(bins), one.ages, axis=0))[market.own_states[kind]]
    else:
        then = market.joint_chain @ np.eye(bins)[now]
    stays, goes = then * kept, then * (1.0 - kept)
    joint, hours = market.joint_states, machine.states
    if spot and machine.priced == AT_START_OF_HOUR:
        # State 0 has no price yet; state 1 + (d - 1) * bins + b is hour state d, begun in bin b.
        hour = np.append(0, 1 + (np.arange((hours - 1) * bins) // bins))
        locked = np.append(0, np.arange((hours - 1) * bins) % bins)
        begun = np.where(hour[None, :] == 0, now[:, None], locked[None, :])
        after = machine.follow[hour][None, :]
        follow = np.where(after == 0, 0, 1 + (after - 1) * bins + begun)
        due = price[begun]
        worth = stays.sum(axis=1)[:, None] * due
    else:
        hour = np.arange(hours)
        follow = np.broadcast_to(machine.follow, (joint, hours))
        due = np.broadcast_to(price[now][:, None], (joint, hours))
        worth = (stays @ price if machine.priced == AT_END_OF_SLOT else stays.sum(axis=1) * price[now])[:, None]
    cut = goes.sum(axis=1)[:, None] * machine.revoke[hour] * due
    charge = worth * machine.step[hour] + cut
    survive, sizes = factors(market)
    lose = survive.copy()
    factor, size = (kind, one.states) if market.joint_chain is None else (0, int(sizes[0]))
    safe = kept[np.arange(size) // one.ages if market.joint_chain is None else now]
    survive[factor, :size, :size] *= safe
    lose[factor, :size, :size] *= 1.0 - safe
    at, places = np.zeros((rules.startup + 1, joint), np.int64), np.arange(joint)
    startup = np.zeros((rules.startup, joint))
    if market.startup_billed:
        for k in reversed(range(rules.startup)):
            startup[k] = charge[places, at[k + 1]]
            at[k] = follow[places, at[k + 1]]
    return Charges(
        np.ascontiguousarray(follow, np.int64),
        np.ascontiguousarray(charge),
        np.ascontiguousarray(worth * (machine.step[hour] + machine.release[machine.follow[hour]]) + cut),
        np.ascontiguousarray(machine.release[hour] * due),
        survive,
        lose,
        now <= top,
        at,
        startup,
    )

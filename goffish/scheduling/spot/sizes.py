"""Sizes of strategy tables, before they are built. See docs/specs/spot.md, section 3.3."""

from __future__ import annotations

import numpy as np

from goffish.scheduling.spot.model import Market

#: Deadline of the longest job, as a multiple of its length.
DEADLINE = 1.5
#: Maximum values of a table that is built while a user waits. A value takes about 10 ns and at most 0.35 bytes during
#: construction: the largest table takes 45 seconds and 1.6 GB.
MOST_VALUES = 4_500_000_000
#: Seconds on a core and bytes for each value.
SECONDS, BYTES = 10e-9, 0.35


def values_of_slot(market: Market, work: int) -> int:
    """Number of values that a table of `work` units computes for a slot."""
    locks = market.spot_billing == "hourly_start"
    hours = sum(
        one.covers.size * (1 + (market.spot.states - 1) * one.bins if locks else market.spot.states)
        + market.on_demand.states
        for one in market.classes
    )
    return market.joint_states * hours * market.longest_checkpoint * (work * (work + 1) // 2)


def values_of_jobs(market: Market, hours: float) -> int:
    """Number of values of a table for jobs of this length on the fastest machine type, and `DEADLINE` times as much."""
    slots = int(np.ceil(hours * market.slots_per_hour))
    return values_of_slot(market, slots * max(one.speed for one in market.classes)) * int(np.ceil(DEADLINE * slots))


def suitable_minutes(market: Market, work: int, slots: int) -> int | None:
    """Shortest slot in minutes with which a table for this job has at most `MOST_VALUES`; None if there is none."""
    now = 60.0 / market.slots_per_hour
    for minutes in (2, 3, 4, 5, 6, 10, 12, 15, 20, 30):
        ratio = minutes / now
        if ratio > 1 and values_of_slot(market, int(np.ceil(work / ratio))) * slots / ratio <= MOST_VALUES:
            return minutes
    return None

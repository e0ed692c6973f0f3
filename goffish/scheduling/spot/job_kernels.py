"""Numba kernels of one slot of a job, the reference semantics. See docs/specs/spot.md, section 2.6."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel

QUIESCED, STARTUP, RUNNING, CHECKPOINTING, MIGRATING, LOCAL_STATE, FINISHED = 0, 1, 2, 3, 4, 5, 6
WAIT, PROCESS, CHECKPOINT, RELEASE, QUIT, MOVE, START = 0, 1, 2, 3, 4, 5, 6
NOTHING, REVOKED, REFUSED = 0, 1, 2
AT_END_OF_SLOT, AT_START_OF_HOUR = 1, 2


@kernel(inner=True)
def price_of(rules, choice, priced, locked, now, after):
    """Price that a charge of this slot is multiplied by."""
    if not rules.spot[choice]:
        return rules.fixed[choice]
    if priced == AT_START_OF_HOUR:
        return locked
    return after[rules.kind[choice]] if priced == AT_END_OF_SLOT else now[rules.kind[choice]]


@kernel
def leave(rules, state, work, saved, choice, hour, left, locked, action, now):
    """Apply a zero-time action: release the machine, or cancel a checkpoint. Return the new status and the cost."""
    if action == QUIT:
        return (RUNNING, work, saved, choice, hour, 0, locked), 0.0
    row = 0 if rules.spot[choice] else 1
    price = price_of(rules, choice, 0 if rules.priced[row] == AT_END_OF_SLOT else rules.priced[row], locked, now, now)
    return (QUIESCED, saved, saved, -1, 0, 0, 0.0), rules.release[row, hour] * price


@kernel(inner=True)
def save_slots(rules, work):
    """Slots of a checkpoint that begins with this much remaining work."""
    return rules.saves[min(work, rules.saves.size) - 1]


@kernel
def settle(rules, state, work, choice, hour, locked, now):
    """Cost of a missed deadline: remaining work, and release of the machine; 0 if the deadline is hard.

    `now`: prices at the deadline.
    """
    if rules.penalty == np.inf:
        return 0.0
    money = rules.penalty * work
    if choice >= 0:
        row = 0 if rules.spot[choice] else 1
        priced = 0 if rules.priced[row] == AT_END_OF_SLOT else rules.priced[row]
        money += rules.release[row, hour] * price_of(rules, choice, priced, locked, now, now)
    return money


@kernel
def advance(rules, state, work, saved, choice, hour, left, locked, action, now, after, peaks):
    """Apply an action that takes the slot. Return the new status, the cost and the events.

    `now`, `after`: prices of the machine types at the start and the end of the slot; `peaks`: maximum prices in it,
    infinite for an interruption at any bid.
    """
    if state == MIGRATING or action == MOVE:
        to_go = (rules.move_slots if action == MOVE else left) - 1
        cost = rules.move_cost if action == MOVE else 0.0
        return (MIGRATING if to_go else LOCAL_STATE, saved, saved, -1, 0, to_go, 0.0), cost, NOTHING
    if state == LOCAL_STATE:
        rest = max(0, work - rules.local_speed)
        return (LOCAL_STATE if rest else FINISHED, rest, rest, -1, 0, 0, 0.0), 0.0, NOTHING
    if state == QUIESCED:
        if action < START:
            return (QUIESCED, saved, saved, -1, 0, 0, 0.0), 0.0, NOTHING
        choice, left, hour = action - START, rules.startup, 0
        if rules.spot[choice] and now[rules.kind[choice]] > rules.bid[choice]:
            return (QUIESCED, saved, saved, -1, 0, 0, 0.0), 0.0, REFUSED
    peak = peaks[rules.kind[choice]]
    lost = rules.spot[choice] and (peak > rules.bid[choice] or peak == np.inf)
    row = 0 if rules.spot[choice] else 1
    starts = state in (QUIESCED, STARTUP)
    if starts and not rules.startup_billed:
        if lost:
            return (QUIESCED, saved, saved, -1, 0, 0, 0.0), 0.0, REVOKED
        return (STARTUP if left > 1 else RUNNING, saved, saved, choice, 0, left - 1, 0.0), 0.0, NOTHING
    if hour == 0:
        locked = price_of(rules, choice, 0, 0.0, now, now)
    if lost:
        rest = work if rules.notice and not starts else saved
        price = price_of(
            rules, choice, 0 if rules.priced[row] == AT_END_OF_SLOT else rules.priced[row], locked, now, now
        )
        return (QUIESCED, rest, rest, -1, 0, 0, 0.0), rules.revoke[row, hour] * price, REVOKED
    money = rules.step[row, hour] * price_of(rules, choice, rules.priced[row], locked, now, after)
    hour = rules.follow[row, hour]
    if starts:
        return (STARTUP if left > 1 else RUNNING, saved, saved, choice, hour, left - 1, locked), money, NOTHING
    if state == CHECKPOINTING or action == CHECKPOINT:
        to_go = (left if state == CHECKPOINTING else save_slots(rules, work)) - 1
        if to_go:
            return (CHECKPOINTING, work, saved, choice, hour, to_go, locked), money, NOTHING
        return (RUNNING, work, work, choice, hour, 0, locked), money, NOTHING
    work = max(0, work - rules.speed[choice])
    if work == 0:
        money += rules.release[row, hour] * price_of(rules, choice, rules.priced[row], locked, now, after)
        return (FINISHED, 0, saved, -1, 0, 0, 0.0), money, NOTHING
    return (RUNNING, work, saved, choice, hour, 0, locked), money, NOTHING

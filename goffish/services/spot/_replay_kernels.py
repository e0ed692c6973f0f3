"""Kernels that run policies over price traces. Specification of RTBA, §3.5, §3.6."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from goffish.services.spot._job_kernels import (
    AT_START_OF_HOUR,
    CHECKPOINT,
    CHECKPOINTING,
    FINISHED,
    LOCAL_STATE,
    MOVE,
    PROCESS,
    QUIESCED,
    QUIT,
    RELEASE,
    REVOKED,
    RUNNING,
    START,
    WAIT,
    advance,
    leave,
)

H1, H2, H3 = 1, 2, 3
#: Columns of what a replay gives for each run.
COST, DONE, LOSSES, SAVES, RENTED, ON_DEMAND = range(6)


class Plan(NamedTuple):
    """A heuristic: its kind (0 is on demand only), its choices, the work of the job, and H3's interval."""

    kind: int
    spot: int
    on_demand: int
    work: int
    interval: float


class Strategy(NamedTuple):
    """A table as columns; `sizes`: bins of each class; `edges` padded with infinity."""

    idle: np.ndarray
    running: np.ndarray
    saving: np.ndarray
    states: np.ndarray
    row_bytes: np.ndarray
    offset: np.ndarray
    saving_offset: np.ndarray
    sizes: np.ndarray
    edges: np.ndarray


@numba.njit(cache=True, nogil=True)
def heuristic_action(plan, rules, left, state, work, saved, choice, price):
    """What a heuristic does, §3.6. `price`: that of its class now."""
    if plan.kind == 0:
        return START + plan.on_demand if state == QUIESCED else PROCESS if state == RUNNING else WAIT
    speed = rules.speed[plan.on_demand]
    kept = saved if plan.kind == H3 else plan.work
    limit = rules.startup + -(-kept // speed)
    checkpoint = 0 if plan.kind == H1 else rules.checkpoint
    if state == QUIESCED:
        if left - rules.startup - 1 - checkpoint < limit:
            return START + plan.on_demand
        return START + plan.spot if price <= rules.bid[plan.spot] else WAIT
    if state != RUNNING:
        return WAIT
    if choice == plan.on_demand:
        return PROCESS
    if left <= limit:
        return RELEASE
    due = plan.kind == H3 and saved - work >= plan.interval
    if -(-work // speed) <= left - limit:
        return CHECKPOINT if due and left - checkpoint >= limit else PROCESS
    if plan.kind == H1:
        return PROCESS
    if left <= limit + checkpoint:
        if work < saved and left - checkpoint >= limit:
            return CHECKPOINT
        return RELEASE if plan.kind == H3 and work == saved else PROCESS
    return CHECKPOINT if due else PROCESS


@numba.njit(cache=True, nogil=True)
def bin_of(edges, price):
    """Edges strictly below a price."""
    found = 0
    while found < edges.size and edges[found] < price:
        found += 1
    return found


@numba.njit(cache=True, nogil=True)
def table_action(strategy, rules, left, state, work, saved, choice, hour, to_go, locked, prices):
    """What a table says."""
    if state == LOCAL_STATE:
        return PROCESS
    joint, joints = 0, 1
    for i in range(strategy.sizes.size):
        joint = joint * strategy.sizes[i] + bin_of(strategy.edges[i], prices[i])
        joints *= strategy.sizes[i]
    if state == QUIESCED:
        found = strategy.idle[left, joint, saved]
        if found == 0:
            return WAIT
        return START + found - 1 if found <= rules.spot.size else MOVE
    if state not in (RUNNING, CHECKPOINTING):
        return WAIT
    if hour > 0 and rules.spot[choice] and rules.priced[0] == AT_START_OF_HOUR:
        kind = rules.kind[choice]
        hour = 1 + (hour - 1) * strategy.sizes[kind] + bin_of(strategy.edges[kind], locked)
    row = (saved * (saved - 1) // 2 + work - 1) * strategy.states[choice] + hour
    width = strategy.row_bytes[choice]
    if state == RUNNING:
        byte = strategy.running[strategy.offset[choice] + (left * joints + joint) * width + (row >> 2)]
        code = (byte >> (2 * (row & 3))) & 3
        return PROCESS if code == 0 else CHECKPOINT if code == 1 else RELEASE
    step = left * (rules.checkpoint - 1) + to_go - 1
    byte = strategy.saving[strategy.saving_offset[choice] + (step * joints + joint) * width + (row >> 2)]
    return QUIT if (byte >> (2 * (row & 3))) & 3 else WAIT


@numba.njit(cache=True, nogil=True)
def replay(by_table, strategy, plan, rules, kind, work0, slots, starts, prices, peaks, found, states):
    """Run a job from each of `starts`; fills `found`, shape (starts, 6), and adds to `states`, shape (slots + 1, 7).

    `kind`: class of the heuristic. `states` counts the jobs in each state at the start of each slot, and at the end.
    """
    for run in range(starts.size):
        state, work, saved, choice, hour, to_go, locked = QUIESCED, work0, work0, -1, 0, 0, 0.0
        cost, losses, saves, rented, dear, slot = 0.0, 0, 0, 0, 0, 0
        while slot < slots and state != FINISHED:
            at = starts[run] + slot
            now = prices[at]
            if by_table:
                action = table_action(
                    strategy, rules, slots - slot, state, work, saved, choice, hour, to_go, locked, now
                )
            else:
                action = heuristic_action(plan, rules, slots - slot, state, work, saved, choice, now[kind])
            if action in (RELEASE, QUIT):
                status, money = leave(rules, state, work, saved, choice, hour, to_go, locked, action, now)
                state, work, saved, choice, hour, to_go, locked = status
                cost += money
                continue
            states[slot, state] += 1
            held = choice
            status, money, event = advance(
                rules, state, work, saved, choice, hour, to_go, locked, action, now, prices[at + 1], peaks[at]
            )
            if state in (RUNNING, CHECKPOINTING):
                rented += 1
                dear += not rules.spot[held]
            saves += action == CHECKPOINT
            losses += event == REVOKED
            state, work, saved, choice, hour, to_go, locked = status
            cost += money
            slot += 1
        done = slot if state == FINISHED else 0
        for rest in range(slot, slots + 1):
            states[rest, state] += 1
        found[run, COST], found[run, DONE], found[run, LOSSES] = cost, done, losses
        found[run, SAVES], found[run, RENTED], found[run, ON_DEMAND] = saves, rented, dear

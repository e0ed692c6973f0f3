"""Numba kernels that replay policies on price traces. See docs/specs/spot.md, sections 3.5, 3.6."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from goffish.kernels.compile import kernel
from goffish.scheduling.spot.job_kernels import (
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
    settle,
)
from goffish.scheduling.spot.table_kernels import IN_WORD

H1, H2, H3, GREEDY, EAGER, UNIFORM = 1, 2, 3, 4, 5, 6
#: Columns of the results of a replay.
COST, DONE, LOSSES, SAVES, RENTED, ON_DEMAND = range(6)


class HeuristicSettings(NamedTuple):
    """A heuristic and its job.

    Attributes
    ----------
    kind : int
        Number of the kind; 0 is on demand only.
    spot, on_demand : int
        Its spot and on-demand choices.
    work : int
        Units of the job.
    interval : float
        Units between checkpoints.
    slots : int
        Slots from submission to deadline, for the line of uniform progress.
    """

    kind: int
    spot: int
    on_demand: int
    work: int
    interval: float
    slots: int = 0


class Strategy(NamedTuple):
    """A table as columns: `_build.Actions` and others; `sizes`: bins of each type; `edges` padded with infinity."""

    idle: np.ndarray
    base: np.ndarray
    states: np.ndarray
    first: np.ndarray
    since: np.ndarray
    number: np.ndarray
    words: np.ndarray
    sizes: np.ndarray
    edges: np.ndarray


@kernel(inner=True)
def behind(plan, work, slot):
    """Whether the progress is below the line from submission to deadline at a slot (c_p(t) < e_p(t))."""
    return (plan.work - work) * plan.slots < slot * plan.work


@kernel(inner=True)
def catch_up(plan, rules, left, work, saved):
    """Action of uniform progress on demand: stay until it is ahead of the line two start-ups later (hysteresis)."""
    checkpoint = rules.checkpoint
    then = left - checkpoint if work < saved else left
    limit = rules.startup + -(-work // rules.speed[plan.on_demand])
    if then - rules.startup - 1 - checkpoint < limit:
        return PROCESS
    if behind(plan, work, plan.slots - then + 2 * rules.startup):
        return PROCESS
    return CHECKPOINT if work < saved else RELEASE


@kernel
def heuristic_action(plan, rules, left, state, work, saved, choice, price):
    """Action of a heuristic or baseline, §3.6. `price`: the current price of its machine type."""
    if plan.kind == 0:
        return START + plan.on_demand if state == QUIESCED else PROCESS if state == RUNNING else WAIT
    speed = rules.speed[plan.on_demand]
    rolling = plan.kind >= H3
    kept = saved if rolling else plan.work
    limit = rules.startup + -(-kept // speed)
    checkpoint = 0 if plan.kind == H1 else rules.checkpoint
    if state == QUIESCED:
        if left - rules.startup - 1 - checkpoint < limit:
            return START + plan.on_demand
        if price <= rules.bid[plan.spot]:
            return START + plan.spot
        late = plan.kind == UNIFORM and behind(plan, work, plan.slots - left)
        return START + plan.on_demand if late or plan.kind == EAGER else WAIT
    if state != RUNNING:
        return WAIT
    if choice == plan.on_demand:
        return catch_up(plan, rules, left, work, saved) if plan.kind == UNIFORM else PROCESS
    if left <= limit:
        return RELEASE
    due = rolling and saved - work >= plan.interval
    if -(-work // speed) <= left - limit:
        return CHECKPOINT if due and left - checkpoint >= limit else PROCESS
    if plan.kind == H1:
        return PROCESS
    if left <= limit + checkpoint:
        if work < saved and left - checkpoint >= limit:
            return CHECKPOINT
        return RELEASE if rolling and work == saved else PROCESS
    return CHECKPOINT if due else PROCESS


@kernel(inner=True)
def bin_of(edges, price):
    """Number of edges strictly below a price."""
    found = 0
    while found < edges.size and edges[found] < price:
        found += 1
    return found


@kernel(inner=True)
def table_action_at(strategy, rules, left, state, work, saved, choice, hour, to_go, locked, joint):
    """Action of a table in a joint price state."""
    if state == LOCAL_STATE:
        return PROCESS
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
    _, joints, works = strategy.idle.shape
    layer = to_go if state == CHECKPOINTING else 0
    row = (layer * joints + joint) * (works - 1) + saved - 1
    place = strategy.base[choice] + row * strategy.states[choice] + hour
    low, high = strategy.first[place] - 1, strategy.first[place + 1]
    before = low
    while high - low > 1:
        middle = (low + high) // 2
        if strategy.since[middle] <= left:
            low = middle
        else:
            high = middle
    code = np.uint64(0)
    if low > before:
        word = strategy.words[strategy.number[low], (work - 1) // IN_WORD]
        code = (word >> np.uint64(2 * ((work - 1) % IN_WORD))) & np.uint64(3)
    if state == CHECKPOINTING:
        return WAIT if code == 0 else QUIT
    return PROCESS if code == 0 else CHECKPOINT if code == 1 else RELEASE


@kernel
def replay(by_table, strategy, plan, rules, slots, starts, prices, peaks, joints, found, states):
    """Run a job from each of `starts`; fills `found`, shape (starts, 6), and adds to `states`, shape (slots + 1, 7).

    `plan`: the heuristic; with a table only its work counts. `joints`: joint state of the prices at the start of each
    slot, for a table. `states` counts the jobs in each state at the start of each slot, and at the end.
    """
    kind = rules.kind[plan.on_demand]
    for run in range(starts.size):
        state, work, saved, choice, hour, to_go, locked = QUIESCED, plan.work, plan.work, -1, 0, 0, 0.0
        cost, losses, saves, rented, dear, slot = 0.0, 0, 0, 0, 0, 0
        while slot < slots and state != FINISHED:
            at = starts[run] + slot
            now = prices[at]
            if by_table:
                action = table_action_at(
                    strategy, rules, slots - slot, state, work, saved, choice, hour, to_go, locked, joints[at]
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
        if not done:
            cost += settle(rules, state, work, choice, hour, locked, prices[starts[run] + slots])
        for rest in range(slot, slots + 1):
            states[rest, state] += 1
        found[run, COST], found[run, DONE], found[run, LOSSES] = cost, done, losses
        found[run, SAVES], found[run, RENTED], found[run, ON_DEMAND] = saves, rented, dear

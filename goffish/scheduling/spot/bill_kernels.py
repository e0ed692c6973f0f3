"""Numba kernel that replays jobs as a service runs them: decisions in slots, work and bills in seconds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from goffish.kernels.compile import kernel
from goffish.scheduling.spot.job_kernels import CHECKPOINT, PROCESS, QUIESCED, RELEASE, RUNNING, START, STARTUP
from goffish.scheduling.spot.replay_kernels import heuristic_action, table_action_at

#: Columns of the results: cost, seconds until completion, interruptions, seconds on demand.
COST, SECONDS, LOSSES, ON_DEMAND = range(4)
#: What an interruption does to the bill of its machine.
PAID, QUANTUM_FREE, FIRST_HOUR_FREE = range(3)
_HOUR_S, _SLACK = 3600.0, 1e-9


class Course(NamedTuple):
    """A job in seconds, and in units of work.

    Attributes
    ----------
    planned, likely : float
        Units that policies reckon with, and that the job has, periodic checkpoints included.
    slot_s, startup_s, checkpoint_s : float
    between_s : float
        Seconds of work between two checkpoints; infinite if there are none.
    notice : bool
        Whether a machine ends with a checkpoint before it is taken back.
    quantum_s, minimum_s : float
        As of `Billing`.
    cut_off : int
        `PAID`, `QUANTUM_FREE` or `FIRST_HOUR_FREE`.
    margin : int
        Slots that decisions keep in reserve.
    fastest : int
        Choice of a job that is late.
    """

    planned: float
    likely: float
    slot_s: float
    startup_s: float
    checkpoint_s: float
    between_s: float
    notice: bool
    quantum_s: float
    minimum_s: float
    cut_off: int
    margin: int
    fastest: int


@kernel(inner=True)
def units_of(rest, most):
    """Whole units of remaining work, as policies see it."""
    return max(1, min(most, int(np.ceil(rest - _SLACK))))


@kernel(inner=True)
def bill(course, held_s, paid, price, taken):
    """Cost of a machine; `paid` is the sum of seconds times prices so far, `price` that of the rest of its quantum."""
    charged_s = np.ceil(max(held_s, course.minimum_s) / course.quantum_s - _SLACK) * course.quantum_s
    if taken and course.cut_off == FIRST_HOUR_FREE and held_s < _HOUR_S:
        return 0.0
    if taken and course.cut_off == QUANTUM_FREE:
        charged_s -= course.quantum_s
    return max(0.0, paid + (charged_s - held_s) * price) / _HOUR_S


@kernel(inner=True)
def action_at(by_table, strategy, plan, rules, course, left, status, held_s, now, joint):
    """Action of a service that follows a policy. `status`: state, remaining units, saved ones and the choice."""
    state, work, saved, choice = status
    if state == QUIESCED and left < rules.startup + -(-saved // rules.speed[course.fastest]):
        return START + course.fastest
    if state == RUNNING and left < -(-work // rules.speed[choice]):
        return PROCESS
    if not by_table:
        return heuristic_action(plan, rules, left, state, work, saved, choice, now[rules.kind[plan.on_demand]])
    hour = 0
    if choice >= 0:
        row = 0 if rules.spot[choice] else 1
        for _ in range(int(held_s / course.slot_s + _SLACK)):
            hour = rules.follow[row, hour]
    left = min(left, strategy.idle.shape[0] - 1)
    return table_action_at(strategy, rules, left, state, work, saved, choice, hour, 1, 0.0, joint)


@kernel
def bills(by_table, strategy, plan, rules, course, slots, starts, prices, peaks, joints, found):
    """Run a job from each of `starts`; fills `found`, shape (starts, 4).

    An interruption is in the middle of its slot, and a decision at that price follows. `joints`: joint states of the
    prices at the start of each slot, and at its highest ones, shape (2, slots). The first slot of the history follows
    the last one. Jobs that miss the deadline run on.
    """
    for run in range(starts.size):
        state, choice, done, kept, boot_s, held_s, paid, price = QUIESCED, -1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        cost, losses, dear_s, slot, finished = 0.0, 0, 0.0, 0, -1.0
        while finished < 0.0 and slot < 4 * slots + 4:
            at, rest_s = (starts[run] + slot) % peaks.shape[0], course.slot_s
            for half in range(2):
                now, joint = (peaks[at], joints[1, at]) if half else (prices[at], joints[0, at])
                left = max(0, slots - slot - course.margin - half)
                if choice >= 0:
                    price = now[rules.kind[choice]] if rules.spot[choice] else rules.fixed[choice]
                for _ in range(3):  # a checkpoint, a release and a request may follow each other at once
                    work, saved = units_of(course.planned - done, plan.work), units_of(course.planned - kept, plan.work)
                    status = (state, work, saved, choice)
                    action = action_at(by_table, strategy, plan, rules, course, left, status, held_s, now, joint)
                    if action == CHECKPOINT and state == RUNNING:
                        spent_s = min(rest_s, course.checkpoint_s)
                        rest_s, held_s, paid, kept = rest_s - spent_s, held_s + spent_s, paid + spent_s * price, done
                    elif action == RELEASE:
                        cost += bill(course, held_s, paid, price, False)
                        state, choice, done = QUIESCED, -1, kept
                    else:
                        break
                if action >= START and state == QUIESCED:
                    choice = action - START
                    price = now[rules.kind[choice]] if rules.spot[choice] else rules.fixed[choice]
                    if rules.spot[choice] and (price > rules.bid[choice] or price == np.inf):
                        choice = -1
                    else:
                        state, boot_s, held_s, paid = STARTUP, course.startup_s, 0.0, 0.0
                if choice < 0:
                    break
                peak = peaks[at, rules.kind[choice]]
                taken = rules.spot[choice] and (peak > rules.bid[choice] or peak == np.inf)
                run_s = 0.5 * rest_s if taken else rest_s
                spent_s = min(boot_s, run_s)
                boot_s -= spent_s
                if boot_s <= 0.0:
                    state = RUNNING
                    rate = rules.speed[choice] / course.slot_s
                    work_s = min(run_s - spent_s, (course.likely - done) / rate)
                    spent_s += work_s
                    done += work_s * rate
                    step = course.between_s * rate
                    if step < np.inf and done - kept >= step:
                        kept += np.floor((done - kept) / step) * step
                rest_s, held_s, paid = rest_s - spent_s, held_s + spent_s, paid + spent_s * price
                dear_s += 0.0 if rules.spot[choice] else spent_s
                if done >= course.likely - _SLACK:
                    cost += bill(course, held_s, paid, price, False)
                    finished = slot * course.slot_s + (course.slot_s - rest_s)
                    break
                if not taken:
                    break
                cost += bill(course, held_s, paid, price, True)
                if course.notice and state == RUNNING:
                    kept = done
                state, choice, done, losses = QUIESCED, -1, kept, losses + 1
            slot += 1
        if finished < 0.0 and choice >= 0:
            cost += bill(course, held_s, paid, price, False)
        found[run, COST], found[run, LOSSES], found[run, ON_DEMAND] = cost, losses, dear_s
        found[run, SECONDS] = finished if finished >= 0.0 else slot * course.slot_s

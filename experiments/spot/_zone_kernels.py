"""Kernels of jobs that may run in several zones: which one to ask, and replays.

See docs/specs/spot.md, sections 2.6, 3.5.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.scheduling.spot.job_kernels import (
    CHECKPOINT,
    CHECKPOINTING,
    FINISHED,
    QUIESCED,
    QUIT,
    RELEASE,
    REVOKED,
    RUNNING,
    START,
    STARTUP,
    advance,
    leave,
    settle,
)
from goffish.scheduling.spot.replay_kernels import (
    COST,
    DONE,
    LOSSES,
    ON_DEMAND,
    RENTED,
    SAVES,
    heuristic_action,
    table_action_at,
)

#: How a zone is chosen among those that have a spot machine: the first, or by a bandit.
FIRST, EPSILON_GREEDY, UCB = 0, 1, 2
#: Score of a zone that was never asked, for UCB1: each is tried once.
UNSEEN = 1e9


@kernel
def cheapest(count, values, moves, move_cost, home, left, saved, joints):
    """Zone whose table expects the least cost, the data's own zone first among equals; a move costs time and money."""
    best, least = max(home, 0), np.inf
    for k in range(count):
        # The data's own zone is looked at first.
        zone = k if home < 0 or k > home else home if k == 0 else k - 1
        away = home >= 0 and zone != home
        rest = left - moves if away else left
        if rest < 0:
            continue
        found = values[zone][rest, joints[zone], saved] + (move_cost if away else 0.0)
        if found < least:
            best, least = zone, found
    return best


@kernel
def worth(rules, plan, saved, hour, move_cost):
    """What a move costs, as a share of what the rest of the job costs on demand."""
    price = rules.fixed[plan.on_demand]
    rest = -(-saved // rules.speed[plan.on_demand]) * price / hour
    return move_cost / rest if rest > 0 else np.inf if move_cost > 0 else 0.0


@kernel
def favourite(
    count, choice, epsilon, plans, rules, moves, move_cost, hour, home, left, work, saved, now, seen, gained, draw
):
    """Zone of which a rule asks for a spot machine, by what such machines have saved; -1 if none is to be asked.

    A zone is possible if the rule would take its spot machine although the move takes its time, and if the move costs
    less than all the rest of the job can save there. `draw`: two random numbers, for epsilon-greedy.
    """
    scores = np.full(count, -np.inf)
    possible = 0
    for zone in range(count):
        away = home >= 0 and zone != home
        plan = plans[zone]
        rest = left - moves if away else left
        if plan.spot < 0:
            continue
        if heuristic_action(plan, rules[zone], rest, QUIESCED, work, saved, -1, now[zone]) != START + plan.spot:
            continue
        lost = worth(rules[zone], plan, saved, hour, move_cost) if away else 0.0
        if lost > 0 and lost >= 1.0 - now[zone] / rules[zone].fixed[plan.on_demand]:
            continue
        possible += 1
        if choice == FIRST:
            # The data's own zone, else the first.
            scores[zone] = 1.0 if zone == home else 0.0
        elif seen[zone] == 0:
            scores[zone] = UNSEEN if choice == UCB else 1.0 - lost
        else:
            spread = np.sqrt(2.0 * np.log(seen.sum()) / seen[zone]) if choice == UCB else 0.0
            scores[zone] = gained[zone] / seen[zone] + spread - lost
    if possible == 0:
        return -1
    if choice == EPSILON_GREEDY and draw[0] < epsilon:
        rank = min(possible - 1, int(draw[1] * possible))
        for zone in range(count):
            if scores[zone] > -np.inf:
                if rank == 0:
                    return zone
                rank -= 1
    return int(scores.argmax())


@kernel
def saving(rules, plan, hour, done, slots, money):
    """What a spot machine saved, as a share of what its slots would have cost on demand; from 0 to 1."""
    price = rules.fixed[plan.on_demand]
    usual = slots * price / hour
    if usual <= 0:
        return 0.0
    value = done / rules.speed[plan.on_demand] * price / hour
    return min(1.0, max(0.0, (value - money) / usual))


@kernel
def replay(
    count,
    by_table,
    strategies,
    values,
    plans,
    rules,
    moves,
    move_cost,
    hour_slots,
    home0,
    choice_rule,
    epsilon,
    work0,
    slots,
    starts,
    prices,
    peaks,
    joints,
    draws,
    found,
    states,
    trips,
):
    """Run a job from each of `starts`, by tables or by rules; the others of them are not looked at.

    `count`: zones; the tuples may be longer, so that not every number of zones needs a kernel of its own.
    `joints`, shape (slots + 1, zones): states of the prices, for the tables. Fills `found`, adds to `states` as
    `_replay_kernels.replay` does, and fills `trips`, how often each job's data was moved.
    """
    seen, gained, draw = np.zeros(count), np.zeros(count), np.zeros(2)
    for run in range(starts.size):
        state, work, saved, choice, hour, to_go, locked = QUIESCED, work0, work0, -1, 0, 0, 0.0
        cost, losses, saves, rented, dear, slot, went = 0.0, 0, 0, 0, 0, 0, 0
        zone, home, before, paid, begun, bet = max(home0, 0), home0, work0, 0.0, 0, False
        seen[:], gained[:] = 0.0, 0.0
        while slot < slots and state != FINISHED:
            at, left = starts[run] + slot, slots - slot
            now = prices[at]
            if by_table:
                if state == QUIESCED:
                    zone = cheapest(count, values, moves, move_cost, home, left, saved, joints[at])
                rest = left - moves if state == QUIESCED and home >= 0 and zone != home else left
                action = table_action_at(
                    strategies[zone],
                    rules[zone],
                    rest,
                    state,
                    work,
                    saved,
                    choice,
                    hour,
                    to_go,
                    locked,
                    joints[at, zone],
                )
            elif state == QUIESCED:
                if choice_rule == EPSILON_GREEDY:
                    draw[:] = draws[run, slot]
                wanted = favourite(
                    count,
                    choice_rule,
                    epsilon,
                    plans,
                    rules,
                    moves,
                    move_cost,
                    hour_slots,
                    home,
                    left,
                    work,
                    saved,
                    now,
                    seen,
                    gained,
                    draw,
                )
                zone = wanted if wanted >= 0 else max(home, 0)
                plan = plans[zone]
                if wanted >= 0:
                    action = START + plan.spot
                else:
                    action = heuristic_action(plan, rules[zone], left, state, work, saved, choice, np.inf)
            else:
                action = heuristic_action(plans[zone], rules[zone], left, state, work, saved, choice, now[zone])
            here = rules[zone]
            spent = cost
            if action in (RELEASE, QUIT):
                status, money = leave(
                    here, state, work, saved, choice, hour, to_go, locked, action, now[zone : zone + 1]
                )
                ended = action == RELEASE
                state, work, saved, choice, hour, to_go, locked = status
                cost += money
            else:
                states[slot, state] += 1
                held, away = choice, False
                if state == QUIESCED and action >= START:
                    away = home >= 0 and zone != home
                    if away:
                        cost += move_cost
                        went += 1
                    home, before, paid, begun = zone, saved, spent, slot
                    bet = here.spot[action - START]
                status, money, event = advance(
                    here,
                    state,
                    work,
                    saved,
                    choice,
                    hour,
                    to_go,
                    locked,
                    action,
                    now[zone : zone + 1],
                    prices[at + 1, zone : zone + 1],
                    peaks[at, zone : zone + 1],
                )
                if state in (RUNNING, CHECKPOINTING):
                    rented += 1
                    dear += not here.spot[held]
                saves += action == CHECKPOINT
                losses += event == REVOKED
                ended = event == REVOKED
                state, work, saved, choice, hour, to_go, locked = status
                if away and moves and state != QUIESCED:
                    # The move is part of the start-up.
                    state, to_go = STARTUP, to_go + moves
                cost += money
                slot += 1
            if ended and bet:
                seen[zone] += 1.0
                if not by_table:
                    length = max(1, slot - begun)
                    gained[zone] += saving(rules[zone], plans[zone], hour_slots, before - work, length, cost - paid)
                bet = False
        if state != FINISHED:
            last = prices[starts[run] + slots, zone : zone + 1]
            cost += settle(rules[zone], state, work, choice, hour, locked, last)
        for later in range(slot, slots + 1):
            states[later, state] += 1
        found[run, COST], found[run, DONE], found[run, LOSSES] = cost, slot if state == FINISHED else 0, losses
        found[run, SAVES], found[run, RENTED], found[run, ON_DEMAND] = saves, rented, dear
        trips[run] = went

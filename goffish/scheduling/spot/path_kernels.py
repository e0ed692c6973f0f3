"""Numba kernel of the clairvoyant's dynamic program. See docs/specs/spot.md, sections 2.6, 3.7."""

from __future__ import annotations

import numpy as np

from goffish.kernels.arrays import copy_values
from goffish.kernels.compile import kernel
from goffish.scheduling.spot.job_kernels import AT_END_OF_SLOT, AT_START_OF_HOUR, save_slots


@kernel(inner=True)
def price_at(rules, choice, slot, hour, prices):
    """Price of a charge that is due at the start of a slot."""
    if not rules.spot[choice]:
        return rules.fixed[choice]
    if rules.priced[0] == AT_START_OF_HOUR:
        return prices[max(0, slot - hour), rules.kind[choice]]
    return prices[slot, rules.kind[choice]]


@kernel
def known_path(rules, work, slots, end, prices, peaks, found):
    """Least cost of jobs of `work` units that must end with slot `end`, by slots left, into `found` (slots + 1)."""
    choices, states = rules.spot.size, rules.follow.shape[1]
    pairs = (work + 1) * (work + 2) // 2
    longer = rules.checkpoint - 1
    idle, running = np.full(work + 1, np.inf), np.full((choices, pairs, states), np.inf)
    saving = np.full((longer, choices, pairs, states), np.inf)
    starting = np.full((rules.startup - 1, choices, work + 1), np.inf)
    new_idle, new_running = idle.copy(), running.copy()
    new_saving, new_starting = saving.copy(), starting.copy()
    hours = np.zeros((choices, rules.startup + 1), np.int64)
    for j in range(choices):
        row = 0 if rules.spot[j] else 1
        for k in range(rules.startup - 1, -1, -1):
            hours[j, k] = rules.follow[row, hours[j, k + 1]] if rules.startup_billed else 0
    if rules.penalty < np.inf:
        # At the deadline the remaining work is charged, and the machine released.
        for s in range(work + 1):
            idle[s] = rules.penalty * s
            for j in range(choices):
                row = 0 if rules.spot[j] else 1
                for d in range(states):
                    settled = rules.release[row, d] * price_at(rules, j, end, d, prices)
                    for c in range(1, s + 1):
                        running[j, s * (s + 1) // 2 + c, d] = settled + rules.penalty * c
                for k in range(rules.startup - 1):
                    d = hours[j, k + 1]
                    starting[k, j, s] = rules.release[row, d] * price_at(rules, j, end, d, prices) + rules.penalty * s
        for k in range(longer):
            copy_values(saving[k].ravel(), running.ravel())
    idle[0] = 0.0
    found[0] = idle[work]
    for left in range(1, slots + 1):
        slot = end - left
        for s in range(work + 1):
            best = idle[s]
            for j in range(choices):
                kind = rules.kind[j]
                peak = peaks[slot, kind]
                row = 0 if rules.spot[j] else 1
                taken = rules.spot[j] and (peak > rules.bid[j] or peak == np.inf)
                diagonal = s * (s + 1) // 2 + s
                for k in range(rules.startup):
                    ready = running[j, diagonal, hours[j, 0]] if k == 0 else starting[k - 1, j, s]
                    value = idle[s] if taken else ready
                    if rules.startup_billed:
                        d = hours[j, k + 1]
                        due = price_at(rules, j, slot, d, prices)
                        late = rules.priced[row] == AT_END_OF_SLOT
                        charged = price_at(rules, j, slot + 1, d, prices) if late else due
                        value += rules.revoke[row, d] * due if taken else rules.step[row, d] * charged
                    if k < rules.startup - 1:
                        new_starting[k, j, s] = value
                    elif not rules.spot[j] or prices[slot, kind] <= rules.bid[j]:
                        best = min(best, value)
            if rules.local_speed:
                rest = max(0, s - rules.local_speed * max(0, left - rules.move_slots))
                if rest == 0 or rules.penalty < np.inf:
                    best = min(best, rules.move_cost + (rules.penalty * rest if rest else 0.0))
            new_idle[s] = best if s else 0.0
        for j in range(choices):
            row = 0 if rules.spot[j] else 1
            peak = peaks[slot, rules.kind[j]]
            taken = rules.spot[j] and (peak > rules.bid[j] or peak == np.inf)
            late = rules.priced[row] == AT_END_OF_SLOT
            for s in range(work + 1):
                base = s * (s + 1) // 2
                for d in range(states):
                    due = price_at(rules, j, slot, d, prices)
                    charged = price_at(rules, j, slot + 1, d, prices) if late else due
                    step, then = rules.step[row, d] * charged, rules.follow[row, d]
                    finish = step + rules.release[row, then] * charged
                    for c in range(1, s + 1):
                        saved = c * (c + 1) // 2 + c
                        quitting = rules.release[row, d] * due + new_idle[s]
                        lost = rules.revoke[row, d] * due + idle[c if rules.notice else s]
                        rest = c - rules.speed[j]
                        run = step + running[j, base + rest, then] if rest > 0 else finish
                        done = step + running[j, saved, then]
                        further = save_slots(rules, c) - 1
                        save = step + saving[further - 1, j, base + c, then] if further else done
                        best = min(quitting, lost if taken else min(run, save))
                        new_running[j, base + c, d] = best
                        for k in range(longer):
                            on = step + saving[k - 1, j, base + c, then] if k else done
                            new_saving[k, j, base + c, d] = min(best, lost if taken else on)
        idle, new_idle = new_idle, idle
        running, new_running = new_running, running
        saving, new_saving = new_saving, saving
        starting, new_starting = new_starting, starting
        found[left] = idle[work]

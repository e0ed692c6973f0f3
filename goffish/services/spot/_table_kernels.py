"""Kernels of the strategy table: expectations over prices, and a slot's decisions. Specification of RTBA, §3.2, §3.3.

Arrays of running machines have the shape (joint prices, rows); row of remaining work c >= 1, saved work s >= c and
hour state d of n: ``(s * (s - 1) / 2 + c - 1) * n + d``, so a smaller job's table is a prefix of a larger one's.
"""

from __future__ import annotations

import numba
import numpy as np

#: An action must be better by more than this to be preferred over one that is named before it.
TIE = 1e-15
RUN, SAVE, LEAVE = 0, 1, 2


@numba.njit(cache=True, nogil=True)
def expect(values, found, spare, chains, sizes):
    """Expectation over the next prices, one class after the other.

    `values`, `found`, `spare`: shape (joint prices, rows). Impossible steps are left out: infinity times 0 is nothing.
    """
    source = values
    inner = values.shape[0]
    for i in range(sizes.size):
        target = found if (sizes.size - 1 - i) % 2 == 0 else spare
        inner //= sizes[i]
        outer = values.shape[0] // (sizes[i] * inner)
        for o in range(outer):
            for a in range(sizes[i]):
                for r in range(inner):
                    into = target[(o * sizes[i] + a) * inner + r]
                    first = True
                    for b in range(sizes[i]):
                        chance = chains[i, a, b]
                        if chance == 0.0:
                            continue
                        row = source[(o * sizes[i] + b) * inner + r]
                        if first:
                            for x in range(into.size):
                                into[x] = chance * row[x]
                            first = False
                        else:
                            for x in range(into.size):
                                into[x] += chance * row[x]
                    if first:
                        into[:] = 0.0
        source = target


@numba.njit(cache=True, nogil=True)
def entered(expected, starting, lost, feasible, spot, states, found):
    """Value of a start-up with k + 1 slots to go, into `found`, shape (start-up slots, joint prices, work + 1).

    `starting`: expectation of start-ups with k slots to go, of one slot less.
    """
    prices, works = lost.shape
    for k in range(found.shape[0]):
        for p in range(prices):
            found[k, p, 0] = 0.0
            for s in range(1, works):
                if spot and not feasible[s]:
                    found[k, p, s] = np.inf
                elif k == 0:
                    found[k, p, s] = expected[p, (s * (s + 1) // 2 - 1) * states] + lost[p, s]
                else:
                    found[k, p, s] = starting[k - 1, p, s] + lost[p, s]


@numba.njit(cache=True, nogil=True)
def choose(waiting, ventures, covered, local, found, actions):
    """Decide where no machine is held: 0 is to wait, j + 1 to ask for choice j, and the last one the local machine.

    `ventures`: shape (choices, joint prices, work + 1); `covered`: which bids cover which joint prices; `local`: cost
    of the local machine for each work.
    """
    choices, prices, works = ventures.shape
    for p in range(prices):
        found[p, 0] = 0.0
        actions[p, 0] = 0
        for s in range(1, works):
            best, action = waiting[p, s], 0
            for j in range(choices):
                if covered[j, p] and ventures[j, p, s] < best - TIE:
                    best, action = ventures[j, p, s], j + 1
            if local[s] < best - TIE:
                best, action = local[s], choices + 1
            found[p, s] = best
            actions[p, s] = action


@numba.njit(cache=True, nogil=True)
def decide(
    expected, saving, lost, free, feasible, follow, charge, finish, release, speed, spot, notice,
    found, found_saving, actions, saving_actions,
):  # fmt: skip
    """Decide where a machine of one choice is held: go on, save, or give it back; two bits each.

    `saving`: expectation of checkpoints with k + 1 slots to go, shape (checkpoint slots - 1, joint prices, rows).
    `follow`, `charge`, `finish`, `release`: shape (joint prices, hour states); expected money of a slot, of one in
    which the job ends, and of giving the machine back.
    `actions` and `saving_actions` must be 0.
    """
    prices, states = follow.shape
    works = free.shape[1]
    longer = saving.shape[0]
    for p in range(prices):
        for s in range(1, works):
            base = s * (s - 1) // 2 - 1
            allowed = feasible[s] or not spot
            for c in range(1, s + 1):
                row = (base + c) * states
                after = (base + c - speed) * states
                saved = (c * (c + 1) // 2 - 1) * states
                gone = lost[p, c] if notice else lost[p, s]
                for d in range(states):
                    best, action = np.inf, RUN
                    paid, then = 0.0, 0
                    if allowed:
                        paid = charge[p, d] + gone
                        then = follow[p, d]
                        best = paid + expected[p, after + then] if c > speed else finish[p, d] + gone
                        save = paid + (saving[longer - 1, p, row + then] if longer else expected[p, saved + then])
                        if save < best - TIE:
                            best, action = save, SAVE
                    leave = release[p, d] + free[p, s]
                    if leave < best - TIE:
                        best, action = leave, LEAVE
                    at = row + d
                    found[p, at] = best
                    actions[p, at >> 2] |= action << (2 * (at & 3))
                    for k in range(longer):
                        on = np.inf
                        if allowed:
                            on = paid + (saving[k - 1, p, row + then] if k else expected[p, saved + then])
                        if best < on - TIE:
                            found_saving[k, p, at] = best
                            saving_actions[k, p, at >> 2] |= 1 << (2 * (at & 3))
                        else:
                            found_saving[k, p, at] = on

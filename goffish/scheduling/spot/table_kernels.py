"""Numba kernels of the strategy table: expectations over prices, and the decisions of a slot.

See docs/specs/spot.md, sections 3.2, 3.3.

Values of running machines are a flat array of one block for each saved work s >= 1, of shape (joint prices, n, s) for
n hour states and remaining work c of 1 to s: block s begins at ``joint prices * n * s * (s - 1) / 2``, so a smaller
job's values are a prefix of a larger one's, and a block with its expectation fits into the cache.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.arrays import copy_values
from goffish.kernels.compile import kernel

#: Minimum advantage of an action over an earlier one in the order of preference.
TIE = 1e-15
RUN, SAVE, LEAVE = np.uint64(0), np.uint64(1), np.uint64(2)
TWO = np.uint64(2)
#: Actions are packed into words of 64 bits, two bits each.
IN_WORD = 32


@kernel
def expect(values, found, spare, chains, sizes):
    """Expectation over the next prices, one machine type after the other.

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
                    into = (o * sizes[i] + a) * inner + r
                    first = True
                    for b in range(sizes[i]):
                        chance = chains[i, a, b]
                        if chance == 0.0:
                            continue
                        row = (o * sizes[i] + b) * inner + r
                        if first:
                            for x in range(values.shape[1]):
                                target[into, x] = chance * source[row, x]
                            first = False
                        else:
                            for x in range(values.shape[1]):
                                target[into, x] += chance * source[row, x]
                    if first:
                        target[into] = 0.0
        source = target


@kernel
def complete(values, joint, states, works, found):
    """Values with all completed work saved (c = s), into `found`, shape (joint prices, hour states * works)."""
    for s in range(1, works + 1):
        at = joint * states * (s * (s - 1) // 2) + s - 1
        for p in range(joint):
            for d in range(states):
                found[p, d * works + s - 1] = values[at]
                at += s


@kernel
def entered(ready, starting, lost, feasible, spot, hours, paid, found):
    """Values of a start-up with k + 1 slots to go, into `found`, shape (start-up slots, joint prices, work + 1).

    `ready`: expectation of `complete`; `starting`: of start-ups with k slots to go, of one slot less; `hours`: hour
    state of the started machine, by joint price; `paid`: expected charge of each slot, shape (start-up slots, joint
    prices).
    """
    prices, works = lost.shape
    for k in range(found.shape[0]):
        for p in range(prices):
            found[k, p, 0] = 0.0
            for s in range(1, works):
                if spot and not feasible[s]:
                    found[k, p, s] = np.inf
                elif k == 0:
                    found[k, p, s] = ready[p, hours[p] * (works - 1) + s - 1] + lost[p, s] + paid[k, p]
                else:
                    found[k, p, s] = starting[k - 1, p, s] + lost[p, s] + paid[k, p]


@kernel
def choose(waiting, ventures, covered, local, found, actions):
    """Decide without a held machine: 0 is to wait, j + 1 to request choice j, and the last one the local machine.

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


@kernel
def decide(running, saving, rules, choice, charges, sizes, ready, lost, free, feasible, buffers, words):
    """Decide with a held machine of one choice: continue, save, or release it.

    Replaces `running` and `saving`, shape (longest checkpoint - 1, values of running): expectation, choice and new
    value, one block after the other. `charges` are those of the choice, `sizes` the states of the factors of the chain.
    `buffers`: shape (2 + len(saving), size of the largest block). `words`: shape (1 + len(saving), joint prices, works,
    hour states, words), for the actions of running and of checkpointing machines.
    """
    prices, states = charges.follow.shape
    speed, spot, saves = rules.speed[choice], rules.spot[choice], rules.saves
    works = free.shape[1] - 1
    longer = saving.shape[0]
    gone, first, quits = np.empty(works), np.empty(works), np.empty((longer, works), np.bool_)
    for s in range(1, works + 1):
        width = s * states
        base, size = prices * states * (s * (s - 1) // 2), prices * width
        allowed = feasible[s] or not spot
        block = running[base : base + size].reshape(prices, width)
        expected = buffers[0, :size].reshape(prices, width)
        if allowed:
            spare = buffers[1, :size].reshape(prices, width)
            expect(block, expected, spare, charges.survive, sizes)
            for k in range(longer):
                expect(
                    saving[k, base : base + size].reshape(prices, width), buffers[2 + k, :size].reshape(prices, width),
                    spare, charges.survive, sizes,
                )  # fmt: skip
        for p in range(prices):
            for i in range(s):
                gone[i] = lost[p, i + 1] if rules.notice else lost[p, s]
            for d in range(states):
                found, then = block[p, d * s : (d + 1) * s], charges.follow[p, d]
                leave = charges.release[p, d] + free[p, s]
                stay, finished = charges.charge[p, d], charges.finish[p, d]
                at, after, done = p * width + d * s, p * width + then * s, then * works
                hoped, saved = buffers[0, after : after + s], ready[p, done : done + s]
                for i in range(s):
                    first[i] = saved[i]
                if longer > 0:
                    for i in range(s):
                        further = saves[min(i + 1, saves.size) - 1] - 1
                        if further > 0:
                            first[i] = buffers[1 + further, after + i]
                for word in range((s + IN_WORD - 1) // IN_WORD):
                    packed, shift = np.uint64(0), np.uint64(0)
                    for i in range(word * IN_WORD, min(s, (word + 1) * IN_WORD)):
                        best, code = np.inf, RUN
                        if allowed:
                            due = stay + gone[i]
                            best = due + hoped[i - speed] if i >= speed else finished + gone[i]
                            save = due + first[i]
                            code = SAVE if save < best - TIE else RUN
                            best = save if save < best - TIE else best
                        code = LEAVE if leave < best - TIE else code
                        best = leave if leave < best - TIE else best
                        found[i] = best
                        packed |= code << shift
                        shift += TWO
                        for k in range(longer):
                            on = np.inf
                            if allowed:
                                on = stay + gone[i] + (buffers[1 + k, after + i] if k > 0 else saved[i])
                            saving[k, base + at + i] = best if best < on - TIE else on
                            quits[k, i] = best < on - TIE
                    words[0, p, s - 1, d, word] = packed
                for k in range(longer):
                    pack(quits[k, :s], words[1 + k, p, s - 1, d])


@kernel(inner=True)
def pack(quits, found):
    """Pack the decisions to cancel checkpoints into words."""
    for i in range(quits.size):
        if i % IN_WORD == 0:
            found[i // IN_WORD] = 0
        found[i // IN_WORD] |= np.uint64(quits[i]) << np.uint64(2 * (i % IN_WORD))


@kernel(inner=True)
def place(word, dictionary, index):
    """Position of a row of words in the hash index of a dictionary: existing, or for insertion."""
    mixed = np.uint64(0)
    for part in word:
        mixed = (mixed ^ part) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mask = np.uint64(index.size - 1)
    at = mixed & mask
    while index[at] >= 0:
        same = True
        for i in range(word.size):
            if dictionary[index[at], i] != word[i]:
                same = False
                break
        if same:
            break
        at = (at + np.uint64(1)) & mask
    return at


@kernel
def enter(dictionary, count, index):
    """Fill an empty hash index with a dictionary."""
    index[:] = -1
    for number in range(count):
        index[place(dictionary[number], dictionary, index)] = number


@kernel
def changes(words, before, dictionary, count, index, keys, numbers):
    """Record which rows of `words` differ from `before`, and their numbers in the dictionary; replaces `before`.

    The dictionary and its index must have free entries. Returns the number of changed rows and the dictionary's size.
    """
    changed = 0
    for key in range(len(words)):
        same = True
        for i in range(words.shape[1]):
            if words[key, i] != before[key, i]:
                same = False
                break
        if same:
            continue
        copy_values(before[key], words[key])
        at = place(words[key], dictionary, index)
        if index[at] < 0:
            copy_values(dictionary[count], words[key])
            index[at] = count
            count += 1
        keys[changed], numbers[changed] = key, index[at]
        changed += 1
    return changed, count


@kernel
def by_key(keys, numbers, since, ends, runs_since, runs_number):
    """Sort changes of one slot by their keys; `ends`: where the next run of each key is to be stored."""
    for i in range(keys.size):
        at = ends[keys[i]]
        runs_since[at], runs_number[at] = since, numbers[i]
        ends[keys[i]] = at + 1

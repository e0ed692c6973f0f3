"""Storage of a strategy table while it is built, and the packing of its actions.

See docs/specs/spot.md, section 3.3.

The actions of a machine for all amounts of remaining work form a word. Words rarely change from one slot to the next,
and few are distinct, so a table stores a dictionary of words and, for each place, the number of remaining slots from
which on each word applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.scheduling.spot import table_kernels as kernels
from goffish.scheduling.spot.charges import Charges, charges_of, factors
from goffish.scheduling.spot.model import Market

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Words = NDArray[np.uint64]


class Actions(NamedTuple):
    """Actions for held machines, two bits each.

    A place is ``((layer * joint prices + price) * works + saved - 1) * hour states + hour``, from `base` of its choice
    on; layer 0 is running, layer k a checkpoint with k slots to go. Run r of place i, ``first[i] <= r < first[i + 1]``,
    holds from ``since[r]`` slots left on; before the first one, all actions are 0. Its word is ``words[number[r]]``.

    Attributes
    ----------
    base, states : int64, shape (choices + 1,), (choices,)
        First place, and hour states, of each choice.
    first : int64, shape (places + 1,)
    since, number : int32, shape (runs,)
    words : uint64, shape (different words, numbers of 64 bits)
        Work left `c` has bits ``2 * ((c - 1) % 32)`` and the next of number ``(c - 1) // 32``.
    """

    base: Ints
    states: Ints
    first: Ints
    since: Small
    number: Small
    words: Words


class History:
    """The words of one choice, slot by slot."""

    def __init__(self, places: int, numbers: int) -> None:
        self._before = np.zeros((places, numbers), np.uint64)
        self._dictionary = np.zeros((places, numbers), np.uint64)
        self._count, self._index = 0, np.full(4, -1, np.int32)
        self._steps: list[tuple[int, Small, Small]] = []
        self._keys, self._numbers = np.empty(places, np.int32), np.empty(places, np.int32)

    def resume(self, first: Ints, since: Small, number: Small, words: Words) -> None:
        """Resume where a table ended."""
        keys = np.repeat(np.arange(first.size - 1, dtype=np.int32), np.diff(first))
        order = np.argsort(since, kind="stable")
        keys, numbers = keys[order], number[order]
        slots, begins = np.unique(since[order], return_index=True)
        ends = np.append(begins, keys.size)[1:]
        for left, begin, end in zip(slots.tolist(), begins.tolist(), ends.tolist(), strict=True):
            self._steps.append((left, keys[begin:end], numbers[begin:end]))
        some = np.flatnonzero(np.diff(first))
        self._before[some] = words[number[first[some + 1] - 1]]
        self._dictionary, self._count = words.copy(), len(words)

    def add(self, left: int, words: Words) -> None:
        """The words with `left` slots left."""
        flat = words.reshape(self._before.shape)
        need = self._count + len(flat)
        if len(self._dictionary) < need:
            self._dictionary = np.resize(self._dictionary, (2 * need, flat.shape[1]))
        if self._index.size < 2 * need:
            self._index = np.empty(1 << (4 * need - 1).bit_length(), np.int32)
            kernels.enter(self._dictionary, self._count, self._index)
        changed, self._count = kernels.changes(
            flat, self._before, self._dictionary, self._count, self._index, self._keys, self._numbers
        )
        if changed:
            self._steps.append((left, self._keys[:changed].copy(), self._numbers[:changed].copy()))

    def runs(self) -> tuple[Ints, Small, Small, Words]:
        """First run of each place, the slots and word numbers of the runs, and the words."""
        places = len(self._before)
        counts = np.zeros(places + 1, np.int64)
        for _, keys, _ in self._steps:
            counts[1:] += np.bincount(keys, minlength=places)
        first = np.cumsum(counts)
        since, number = np.empty(int(first[-1]), np.int32), np.empty(int(first[-1]), np.int32)
        ends = first.copy()
        for left, keys, numbers in self._steps:
            kernels.by_key(keys, numbers, left, ends, since, number)
        self._steps.clear()
        return first, since, number, self._dictionary[: self._count].copy()


class Choice:
    """State of one choice between slots."""

    def __init__(self, market: Market, number: int, work: int, last: tuple[Floats, Floats, Floats] | None) -> None:
        self.charges: Charges = charges_of(market, number)
        self.rules, self.number = market.rules, number
        self.sizes = factors(market)[1]
        self.work, self.joint, self.states = work, market.joint_states, self.charges.states
        longer = market.longest_checkpoint - 1
        size = self.joint * self.states * (work * (work + 1) // 2)
        if last is None:
            self.running, self.saving = np.full(size, np.inf), np.full((longer, size), np.inf)
            self.starting = np.full((market.startup_slots - 1, self.joint, work + 1), np.inf)
            if market.late_penalty is not None:
                self._end(market.late_penalty)
        else:
            self.running, self.saving, self.starting = (part.copy() for part in last)
        width = work * self.states
        self._complete, self._spare, self.ready = (np.empty((self.joint, width)) for _ in range(3))
        self.lost = np.zeros((self.joint, work + 1))
        self.ventures = np.empty((market.startup_slots, self.joint, work + 1))
        self._buffers = np.empty((2 + longer, self.joint * width))
        numbers = -(-work // kernels.IN_WORD)
        self._words = np.empty((1 + longer, self.joint, work, self.states, numbers), np.uint64)
        self.history = History(self._words.size // numbers, numbers)

    def _end(self, penalty: float) -> None:
        """Values at the deadline: the remaining work is charged, and the machine released (O-14)."""
        release, left = self.charges.release, penalty * np.arange(self.work + 1.0)
        at = 0
        for s in range(1, self.work + 1):
            block = release[:, :, None] + left[None, None, 1 : s + 1]
            self.running[at : at + block.size] = block.ravel()
            at += block.size
        self.saving[:] = self.running
        for k in range(len(self.starting)):
            settled = release[np.arange(self.joint), self.charges.hours[k + 1]]
            self.starting[k] = settled[:, None] + left[None, :]

    def expect(self, idle: Floats, feasible: NDArray[np.bool_]) -> None:
        """Expectations of the values of the last slot; the value of requesting this machine is `ventures[-1]`."""
        charges, little, spot = self.charges, np.empty_like(self.lost), bool(self.rules.spot[self.number])
        kernels.complete(self.running, self.joint, self.states, self.work, self._complete)
        kernels.expect(self._complete, self.ready, self._spare, charges.survive, self.sizes)
        if spot:
            # Potential losses count only where the guard permits the action: there, no value is infinite.
            kernels.expect(np.where(feasible, idle, 0.0), self.lost, little, charges.lose, self.sizes)
        starting = np.empty_like(self.starting)
        for k in range(len(starting)):
            kernels.expect(self.starting[k], starting[k], little, charges.survive, self.sizes)
        kernels.entered(
            self.ready, starting, self.lost, feasible, spot, charges.hours[0], charges.startup, self.ventures
        )  # fmt: skip
        self.starting[:] = self.ventures[:-1]

    def decide(self, left: int, idle: Floats, feasible: NDArray[np.bool_]) -> None:
        """Compute values and actions with `left` slots left."""
        kernels.decide(
            self.running, self.saving, self.rules, self.number, self.charges, self.sizes, self.ready, self.lost, idle,
            feasible, self._buffers, self._words,
        )  # fmt: skip
        self.history.add(left, self._words)


def actions_of(parts: Sequence[Choice]) -> Actions:
    """Merge the actions of all choices."""
    base, states = [0], [part.states for part in parts]
    firsts, slots, numbers, words = [np.zeros(1, np.int64)], [], [], []
    runs = different = 0
    for part in parts:
        first, since, number, mine = part.history.runs()
        firsts.append(first[1:] + runs)
        slots.append(since)
        numbers.append(number + np.int32(different))
        words.append(mine)
        base.append(base[-1] + first.size - 1)
        runs, different = runs + since.size, different + len(mine)
    return Actions(
        np.array(base, np.int64), np.array(states, np.int64), np.concatenate(firsts), np.concatenate(slots),
        np.concatenate(numbers), np.concatenate(words),
    )  # fmt: skip


def resume(parts: Sequence[Choice], actions: Actions) -> None:
    """Resume where a table ended; `parts` have the same market and work."""
    for j, part in enumerate(parts):
        first = actions.first[actions.base[j] : actions.base[j + 1] + 1]
        runs = slice(int(first[0]), int(first[-1]))
        number = actions.number[runs]
        # The words of each choice form a separate range, in the order of their numbers.
        low, high = (int(number.min()), int(number.max()) + 1) if number.size else (0, 0)
        part.history.resume(first - first[0], actions.since[runs], number - np.int32(low), actions.words[low:high])

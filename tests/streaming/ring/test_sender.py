"""Messages reach all holders of their positions once, in order; a store gives them back in the order of their lane."""

from __future__ import annotations

import random

import numpy as np
import pytest

from goffish.streaming.ring.messages import Tuples
from goffish.streaming.ring.ranges import CIRCLE, EVERYTHING, NOTHING, Ranges
from goffish.streaming.ring.sender import Lane, Sender
from goffish.streaming.ring.store import BackupStore
from goffish.streaming.ring.view import Member, Move, View
from tests.streaming.ring.simulation import Ids


def view_of(rng: random.Random) -> View:
    """Return a ring with some moves, whose shadows may overlap with each other and with what the nodes hold."""
    tokens = sorted(rng.randrange(CIRCLE) for _ in range(rng.randrange(1, 7)))
    members = tuple(Member(node, token) for node, token in enumerate(tokens))
    moves = []
    for target in range(10, 10 + rng.randrange(3)):
        shadows = tuple(
            (rng.choice([target, *range(len(tokens))]), Ranges.arc(rng.randrange(CIRCLE), rng.randrange(CIRCLE)))
            for _ in range(2)
        )
        moves.append(Move(rng.randrange(len(tokens)), target, tokens[0], tokens[-1], shadows))
    return View(1, members, rng.randrange(4), moves=tuple(moves))


def positions_of(rng: random.Random, count: int) -> np.ndarray:
    return np.array([rng.randrange(CIRCLE) for _ in range(count)], np.uint64)


@pytest.mark.parametrize("seed", range(60))
def test_holders_receive_messages_once(seed: int) -> None:
    rng = random.Random(seed)
    view = view_of(rng)
    sender, lane = Sender(0, view), Lane(7)
    found: dict[int, list[int]] = {}
    stores: dict[int, BackupStore] = {}
    sent = np.empty(0, np.uint64)
    for _ in range(3):
        positions = positions_of(rng, rng.randrange(20))
        stamps = np.zeros(len(positions), np.int64)
        ids = Ids(np.arange(len(sent), len(sent) + len(positions)))
        for node, part in sender.send(lane, positions, ids, stamps):
            assert (np.diff(part.numbers) > 0).all() and (part.numbers == part.payload.ids + 1).all()
            found.setdefault(node, []).extend(part.numbers.tolist())
            stores.setdefault(node, BackupStore(lambda *_: np.zeros(0, np.bool_))).add(part)
        sent = np.concatenate([sent, positions])
    for node in {*view.receivers, *found}:
        expected = (np.flatnonzero(view.covered(node).contains(sent)) + 1).tolist()
        assert sorted(found.get(node, [])) == expected
        if node in stores:
            taken = stores[node].take(EVERYTHING)
            assert [number for part in taken for number in part.numbers.tolist()] == expected


def test_a_store_returns_each_message_once_and_in_order() -> None:
    """A lane begins again, and sends batches of another size."""
    store = BackupStore(lambda *_: np.zeros(0, np.bool_))
    positions = np.arange(1, 9, dtype=np.uint64)

    def add(life: int, numbers: list[int]) -> None:
        at = np.array(numbers)
        store.add(Tuples(7, life, 1, at, np.zeros(len(at), np.int64), positions[at - 1], Ids(at)))

    for life, numbers in [(0, [1, 3, 5]), (0, [2, 4]), (1, [3, 4]), (1, [5, 6, 8]), (1, [7])]:
        add(life, numbers)
    taken = store.take(Ranges.arc(2, 8))
    assert [number for part in taken for number in part.payload.ids.tolist()] == [2, 3, 4, 5, 6, 7]
    assert [number for part in store.take(EVERYTHING) for number in part.numbers.tolist()] == [1, 8]
    assert store.take(NOTHING) == [] and len(store) == 0

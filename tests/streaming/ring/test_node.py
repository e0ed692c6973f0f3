"""The protocol of the ring in virtual time: no message is lost, and none counts twice, whatever fails when."""

from __future__ import annotations

import itertools
import random
from collections import deque
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from goffish.streaming.ring.messages import BalanceRequest, Checkpoint, Message, SyncDone, Tuples
from goffish.streaming.ring.node import Node
from goffish.streaming.ring.options import Options
from goffish.streaming.ring.ranges import EVERYTHING, Ranges
from goffish.streaming.ring.view import middle
from tests.streaming.ring.simulation import Ids, Ring, Seen

FAST = Options(checkpoint_s=0.4)
STAMPS = replace(FAST, vectors=False)
SPARE = 50

few = pytest.param(range(1), id="1 seed")
many = pytest.param(range(1, 101), marks=(pytest.mark.slow, pytest.mark.timeout(1800)), id="100 seeds")
#: Of runs that are repeated for each step of a protocol.
some = pytest.param(range(1, 11), marks=(pytest.mark.slow, pytest.mark.timeout(1800)), id="10 seeds")


def check_intervals(ring: Ring) -> None:
    """Each position has one owner, which processes it, and everything is copied as often as it should be."""
    view = ring.view
    owned = [ring.nodes[node].owned for node in view.nodes.tolist()]
    assert Ranges.union(owned) == EVERYTHING
    assert sum(ranges.size for ranges in owned) == EVERYTHING.size
    for node in view.nodes.tolist():
        for secondary in view.secondaries(node):
            assert not view.interval(node) - ring.nodes[secondary]._in_sync
            copies = ring.nodes[secondary].state.extract(view.interval(node))
            assert set(copies) <= set(ring.nodes[node].state.entries)


def settle(ring: Ring, seconds: float = 1.6) -> None:
    """Run under load, then until all is done; nothing may be missing."""
    ring.run(ring.now + seconds)
    ring.drain(1.5)
    assert ring.missing == set()
    check_intervals(ring)
    assert not any(ring.nodes[node].vulnerable for node in ring.view.nodes.tolist())


# Failures.


@pytest.mark.parametrize("seeds", [few, many])
@pytest.mark.parametrize(("replication", "killed"), [(1, 1), (2, 1), (2, 2)])
def test_adjacent_failures(seeds: range, replication: int, killed: int) -> None:
    for seed in seeds:
        ring = Ring(6, replication, seed=seed, rate=150, options=FAST)
        ring.run(1 + ring.random.random())
        first = ring.random.randrange(6)
        ring.kill(*((first + step) % 6 for step in range(killed)))
        settle(ring)
        assert ring.repeated == 0
        assert len(ring.view.members) == 6 - killed
        assert len(ring.events("failure")) == 1
        assert not ring.events("data loss")


@pytest.mark.parametrize("seeds", [few, many])
def test_failures_with_time_stamps(seeds: range) -> None:
    """Without vectors, messages of about twice the latency bound count twice, and none is lost."""
    expected = 2 * (3 * 150 / 6) * 2 * STAMPS.latency_s
    repeated = []
    for seed in seeds:
        ring = Ring(6, 1, seed=seed, rate=150, options=STAMPS, skew_s=0.013)
        ring.run(1 + ring.random.random())
        ring.kill(ring.random.randrange(6))
        settle(ring)
        repeated.append(ring.repeated)
    assert np.mean(repeated) <= expected + 1
    assert max(repeated) <= expected + 4 * expected**0.5 + 1  # their number varies like that of arrivals


@pytest.mark.parametrize("seeds", [few, many])
def test_every_second_node_fails(seeds: range) -> None:
    """Six of twelve at once: their neighbours recover side by side."""
    for seed in seeds:
        ring = Ring(12, 1, seed=seed, rate=200, options=FAST)
        ring.run(1 + ring.random.random())
        ring.kill(*range(0, 12, 2))
        died = ring.now
        settle(ring)
        assert ring.repeated == 0
        assert sorted(ring.view.nodes.tolist()) == list(range(1, 12, 2))
        recovered = [time - died for _, time, _ in ring.events("replayed")]
        assert len(recovered) == 6
        assert max(recovered) <= FAST.detect_s + FAST.ping_s + FAST.heartbeat_s + 0.2


def test_failures_that_others_see_at_once() -> None:
    """A closed connection needs no silence and no answer."""
    ring = Ring(6, 2, rate=150, options=replace(FAST, detect_s=100.0))
    ring.run(1.2)
    ring.kill(1, 2)
    for node in (3, 4, 5, 0):
        ring.run(ring.now + 0.01)
        ring.nodes[node].lose(2, ring.now)
        ring.run(ring.now + 0.01)
        ring.nodes[node].lose(1, ring.now)
    settle(ring)
    assert ring.repeated == 0
    assert not ring.events("data loss")
    assert sorted(ring.view.nodes.tolist()) == [0, 3, 4, 5]


def test_one_of_two_zones_fails() -> None:
    ring = Ring(8, 1, rate=200, options=FAST, zones=2)
    assert ring.view.zone_violations == 0
    ring.run(1.2)
    ring.kill(*(member.node for member in ring.view.members if member.zone == "zone 0"))
    settle(ring)
    assert ring.repeated == 0


def test_more_adjacent_failures_than_copies() -> None:
    """The loss is reported, and only of the positions that nobody had a copy of."""
    ring = Ring(6, 1, rate=200, options=FAST)
    ring.run(1.5)
    interval = ring.view.interval(1)
    ring.kill(1, 2)
    while not ring.events("takeover"):
        ring.run(ring.now + 0.01)
    ring.run(ring.now + 0.05)
    before = dict(ring.sent)
    ring.run(ring.now + 2)
    ring.drain(2.5)
    check_intervals(ring)
    (loss,) = ring.events("data loss")
    assert loss[2] == interval
    missing = ring.missing
    assert missing
    assert all(start <= ring.sent[i] < stop for i in missing for start, stop in interval)
    assert max(missing) <= max(before)  # what comes after the takeover counts again


@pytest.mark.parametrize("seeds", [few, many])
def test_next_failure_after_repair(seeds: range) -> None:
    for seed in seeds:
        ring = Ring(6, 1, seed=seed, rate=150, options=FAST)
        ring.run(1.2)
        for node in (2, 3, 4):
            ring.kill(node)
            ring.run(ring.now + 1.5)
            while any(ring.nodes[n].vulnerable for n in ring.view.nodes.tolist()):
                ring.run(ring.now + 0.1)
        settle(ring)
        assert ring.repeated == 0
        assert not ring.events("data loss")


@pytest.mark.parametrize("seeds", [few, many])
def test_next_failure_before_repair(seeds: range) -> None:
    """Loss is possible only in vulnerable positions, and it is reported."""
    lost = 0
    for seed in seeds:
        ring = Ring(6, 1, seed=seed, rate=150, options=FAST)
        ring.run(1.2)
        ring.kill(2)
        while not ring.events("takeover"):
            ring.run(ring.now + 0.01)
        vulnerable = ring.nodes[3].vulnerable
        ring.kill(3)
        ring.run(ring.now + 2.5)
        ring.drain(2.5)
        check_intervals(ring)
        reported = Ranges.union(ranges for _, _, ranges in ring.events("data loss"))
        assert not reported - vulnerable
        missing = np.array([ring.sent[i] for i in ring.missing], dtype=np.uint64)
        assert reported.contains(missing).all()
        lost += len(missing)
    assert lost > 0  # this test can fail


@pytest.mark.parametrize("seeds", [few, many])
def test_new_owner_fails_while_it_replays(seeds: range) -> None:
    """Fails if one mark covers both what a node owned before and what it has just taken over."""
    for seed in seeds:
        for options in (FAST, STAMPS):
            busy = lambda node, thread, tuples: 0.004 if node == 2 else 2e-4  # noqa: E731
            ring = Ring(6, 2, seed=seed, rate=150, options=options, service_s=busy)
            ring.run(1.2)
            ring.kill(1)
            while not ring.events("takeover"):
                ring.run(ring.now + 0.002)
            ring.run(ring.now + ring.random.random() * 0.1)
            ring.kill(2)
            settle(ring)
            assert ring.repeated == 0 or not options.vectors


@pytest.mark.parametrize("options", [FAST, STAMPS], ids=["vectors", "stamps"])
@pytest.mark.parametrize("seeds", [few, many])
def test_one_slow_thread(seeds: range, options: Options) -> None:
    """Fails if one mark covers all threads of a node."""
    slow = lambda node, thread, tuples: 0.02 if thread == 1 else 2e-4  # noqa: E731
    for seed in seeds:
        ring = Ring(3, 1, seed=seed, rate=60, options=replace(options, threads=4), service_s=slow)
        ring.run(1.5)
        ring.kill(ring.random.randrange(3))
        settle(ring, 4)
        assert ring.repeated == 0 or not options.vectors


@pytest.mark.slow
def test_too_little_slack_loses_messages() -> None:
    """The checks above can fail: without the bound on latency, stamps do not suffice."""
    lost = []
    for slack in (0.0, 0.015):
        lost.append(0)
        for seed in range(5):
            options = replace(STAMPS, latency_s=slack, checkpoint_s=0.1)
            ring = Ring(4, 1, seed=seed, rate=300, options=options, skew_s=0.013, latency_s=(1e-4, 0.012))
            ring.run(0.5 + ring.random.random() * 0.1)
            ring.kill(ring.random.randrange(4))
            ring.run(ring.now + 1.5)
            ring.drain(1.5)
            lost[-1] += len(ring.missing)
    assert lost[0] > 0
    assert lost[1] == 0


def test_a_silent_node_that_lives_is_fenced() -> None:
    """A node that others cannot reach is replaced, and stops as soon as it reads the ring."""
    ring = Ring(4, 1, rate=150, options=FAST)
    ring.run(1.2)
    ring.lose = lambda sender, receiver, message: sender == 2
    ring.run(ring.now + 3)
    assert ring.events("fenced")
    assert ring.nodes[2].fenced
    assert not ring.nodes[2].state.entries
    settle(ring)
    assert ring.repeated == 0


def test_lost_checkpoints_are_sent_again() -> None:
    ring = Ring(4, 1, rate=150, options=FAST)
    drop = random.Random(1)
    ring.lose = lambda sender, receiver, message: isinstance(message, Checkpoint) and drop.random() < 0.3
    ring.run(4)
    ring.lose = lambda *_: False
    ring.run(ring.now + 1.5)
    ring.kill(1)
    settle(ring)
    assert ring.repeated == 0
    assert not ring.events("data loss")


# Mappers.


@pytest.mark.parametrize("seeds", [few, many])
def test_mappers_restart(seeds: range) -> None:
    """A mapper sends again what followed its last position; old messages that come late do no harm."""
    for seed in seeds:
        ring = Ring(5, 1, seed=seed, rate=150, options=FAST)
        for _ in range(6):
            ring.run(ring.now + ring.random.random() * 0.4)
            ring.restart(ring.random.choice([1000, 1001, 1002]), ring.random.randrange(10, 200))
        ring.kill(ring.random.randrange(5))
        settle(ring)
        assert ring.repeated == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_signals_follow_messages(threads: int) -> None:
    """When a signal takes effect, the state has seen all earlier messages of its mapper."""
    ring = Ring(4, 1, rate=200, options=replace(FAST, threads=threads))
    checked = []

    def emit() -> None:
        for mapper, sender in ring.senders.items():
            ring._post(mapper, sender.signal(len(ring.log[mapper])))
        ring.at(ring.now + 0.1, emit)

    def signalled(number: int, mapper: int, count: int) -> None:
        owned = ring.view.interval(number)
        seen = {i for ids in ring.nodes[number].state.entries.values() for i in ids}
        earlier = ring.log[mapper][:count]
        mine = owned.contains(np.array([ring.sent[i] for i in earlier], dtype=np.uint64))
        assert {i for i, here in zip(earlier, mine.tolist(), strict=True) if here} <= seen
        checked.append(count)

    for number, node in ring.nodes.items():
        node.state.signalled = partial(signalled, number)
    emit()
    ring.run(1.5)
    ring.kill(2)
    ring.run(4)
    assert len(checked) > 100
    assert ring.nodes[3].state.context().keys() == {1000, 1001, 1002}


def test_progress_contains_what_was_signalled() -> None:
    """What a checkpoint on disk says of positions holds for them, also while their messages are replayed."""
    busy = lambda node, thread, tuples: 0.004 if node == 2 else 2e-4  # noqa: E731
    ring = Ring(4, 1, rate=200, options=FAST, service_s=busy)
    owner = ring.nodes[2]

    def emit() -> None:
        for mapper, sender in ring.senders.items():
            ring._post(mapper, sender.signal(len(ring.log[mapper])))
        ring.at(ring.now + 0.01, emit)

    emit()
    ring.run(1.3)
    ring.kill(1)
    while not ring.events("takeover"):
        ring.run(ring.now + 0.002)
    replayed, until = 0, ring.now + 0.4
    while ring.now < until:
        ring.run(ring.now + 0.004)
        replayed += any(piece.replays for piece in owner._pieces)
        seen = {number for ids in owner.state.entries.values() for number in ids}
        for piece in owner.progress():
            for mapper, count in piece.context.items():
                earlier = ring.log[mapper][:count]
                mine = piece.ranges.contains(np.array([ring.sent[one] for one in earlier], dtype=np.uint64))
                assert {one for one, here in zip(earlier, mine.tolist(), strict=True) if here} <= seen
    assert replayed > 10


# Anything, in any order.


@pytest.mark.parametrize("seeds", [few, many])
def test_chaos(seeds: range) -> None:
    """Failures, restarts, moves and lost checkpoints one after the other, each as soon as copies are complete."""
    for seed in seeds:
        replication = 1 + seed % 2
        ring = Ring(5, replication, seed=seed, rate=100, options=replace(FAST, threads=1 + seed % 3))
        spare = SPARE
        for _ in range(8):
            ring.run(ring.now + ring.random.random())
            alive = ring.view.nodes.tolist()
            node = ring.random.choice(alive)
            action = ring.random.choice(["kill", "restart", "loss", *KINDS])
            if action == "restart":
                ring.restart(ring.random.choice([1000, 1001, 1002]), ring.random.randrange(10, 60))
            elif action == "loss":
                ring.lose = lambda s, r, m, n=node: isinstance(m, Checkpoint) and not m.handoff and s == n  # type: ignore[misc]
                ring.run(ring.now + 0.5)
                ring.lose = lambda *_: False
            elif action == "kill":
                if len(alive) > 3:
                    ring.kill(node)
                    ring.run(ring.now + 1.5)
            elif len(alive) > 3 or action not in ("scale in", "scale in backward", "replace"):
                spare += 1
                ring.nodes[node].follow(ring.now)
                begin_move(ring, action, node, spare)
            for _ in range(100):
                ring.run(ring.now + 0.1)
                nodes = [ring.nodes[n] for n in ring.view.nodes.tolist()]
                copies = (ring.view.covered(n.number) - ring.view.interval(n.number) - n._in_sync for n in nodes)
                if not any(copies) and not ring.view.moves:
                    break
            else:
                raise AssertionError("copies never become complete")
        settle(ring)
        assert ring.repeated == 0
        assert not ring.events("data loss")


# Planned moves.


def begin_move(ring: Ring, kind: str, node: int, spare: int = SPARE) -> int:
    """Start a move, and return its target."""
    target = ring.view.clockwise(node, -1 if kind.endswith("backward") else 1)
    leaves = kind.startswith(("scale in", "replace"))
    if kind.startswith(("scale out", "replace")):
        ring.add(spare)
        target = spare
    part = None
    if kind.endswith("backward") and not leaves:  # the first half
        token, stop = ring.view.token(node), ring.view.token(ring.view.clockwise(node))
        half = middle(token, stop)
        assert half is not None
        part = (token, half)
    assert ring.nodes[node].give(target, ring.now, zone="new" if target == spare else "", leaves=leaves, part=part)
    return target


KINDS = (
    "load balance", "load balance backward", "scale out", "scale out backward", "scale in", "scale in backward",
    "replace",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", [few, many])
def test_moves(seeds: range, kind: str) -> None:
    for seed in seeds:
        nodes = 2 + seed % 5
        options = replace(FAST, vectors=seed % 3 > 0, copies_first=seed % 4 > 0)
        ring = Ring(nodes, seed % 3, seed=seed, rate=150, options=options)
        ring.run(1.2)
        node = ring.random.randrange(nodes)
        token, stop = ring.view.token(node), ring.view.token(ring.view.clockwise(node))
        before = ring.view
        begin_move(ring, kind, node)
        settle(ring)
        assert ring.repeated == 0 or not options.vectors
        whole = Ranges.arc(token, stop)
        old, new = before.owners(ring.positions), ring.view.owners(ring.positions)
        moved = ring.positions[old != new]
        assert whole.contains(moved).all()
        leaves = kind.startswith(("scale in", "replace"))
        assert ring.view.interval(node).size - (0 if leaves else whole.size // 2) in (0, whole.size % 2)
        assert ring.events("left" if leaves else "moved")


def test_moved_positions_never_lack_copies() -> None:
    """Copies first: at no time does a position have fewer complete copies than it should."""
    ring = Ring(6, 1, rate=200, options=FAST)
    ring.run(1.2)
    target = begin_move(ring, "load balance", 2)
    while not ring.events("moved"):
        ring.run(ring.now + 0.002)
        assert not ring.nodes[target].vulnerable


@pytest.mark.parametrize("kind", [*KINDS[:2], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[2:])])
@pytest.mark.parametrize("victim", ["owner", pytest.param("target", marks=pytest.mark.slow)])
@pytest.mark.parametrize("seeds", [few, some])
def test_failures_at_every_step_of_a_move(seeds: range, kind: str, victim: str) -> None:
    """Whichever message of the protocol a node has just received when it dies."""
    for seed in seeds:
        step = 0
        while True:
            ring = Ring(5, 1 + seed % 2, seed=seed, rate=50, options=FAST)
            ring.run(0.6)
            node = seed % 5
            target = begin_move(ring, kind, node)
            seen: list[Message] = []

            def watch(
                sender: int,
                receiver: Node,
                number: int,
                message: Message,
                ring: Ring = ring,
                seen: list[Message] = seen,
                pair: tuple[int, int] = (node, target),
                step: int = step,
            ) -> None:
                if number in pair and isinstance(message, Checkpoint | SyncDone) and not ring.dead:
                    seen.append(message)
                    if len(seen) == step + 1:
                        ring.kill(pair[victim == "target"])

            ring.watch = watch
            settle(ring, 3.5)
            assert ring.repeated == 0
            assert not ring.view.moves
            if step >= 5 or not ring.dead:
                break
            step += 1


@pytest.mark.parametrize("noted", [False, True])
def test_move_is_cancelled_at_once_when_a_new_node_fails(noted: bool) -> None:
    """Breaks when the positions of a move wait for its time limit after the owner has noted the failure."""
    ring = Ring(4, 1, rate=150, options=replace(FAST, detect_s=100.0, move_s=100.0))
    ring.run(1.2)
    target = begin_move(ring, "scale out", 1)
    ring.run(ring.now + 0.01)
    assert ring.view.moves and target not in ring.view
    ring.kill(target)
    if noted:
        ring.nodes[1].lose(target, ring.now)
    ring.run(ring.now + 1.0)
    assert bool(ring.view.moves) != noted
    if noted:
        settle(ring)
        assert ring.repeated == 0


def test_move_is_cancelled_when_the_target_stays_silent() -> None:
    """The owner goes on in the order in which messages came."""
    ring = Ring(4, 1, rate=150, options=FAST)
    ring.run(1.2)
    lost = lambda s, r, m: isinstance(m, Checkpoint) and bool(m.handoff) and r == 2  # noqa: E731
    ring.lose = lost
    begin_move(ring, "load balance", 1)
    ring.run(ring.now + FAST.handoff_s + 1)
    assert ring.events("cancelled")
    ring.lose = lambda *_: False
    ring.run(ring.now + 0.5)
    ring.kill(1)
    settle(ring)
    assert ring.repeated == 0


@pytest.mark.parametrize("seeds", [few, many])
def test_slow_channel_to_the_new_owner(seeds: range) -> None:
    """One mapper's messages reach a node up to a second later than the others do."""
    for seed in seeds:
        for kind in ("recovery", "load balance"):
            late = lambda s, r, m: 1.0 if (s, r) == (1000, 2) and isinstance(m, Tuples) else 0.0  # noqa: E731
            ring = Ring(5, 1, seed=seed, rate=150, options=FAST, delay=late)
            ring.run(2.2)
            if kind == "recovery":
                ring.kill(1)
            else:
                begin_move(ring, kind, 1)
            settle(ring, 4)
            assert ring.repeated == 0


def test_unsplittable() -> None:
    ring = Ring(2, 1)
    view = ring.view
    ring.registry.replace(view.taken_over(1, view.token(0) + 1, ()))
    ring.nodes[0].follow(0.0)
    assert not ring.nodes[0].give(1, 0.0)
    assert ring.events("unsplittable")


# Load.

LOADED = replace(FAST, high=(12, 0.8), low=(5, 0.5), holdoff_s=5.0)


def loaded(ring: Ring) -> None:
    """Set the CPU utilisation from the length of the queue."""
    for node in ring.nodes.values():
        node.cpu = 0.95 if node.queued > 2 else 0.3
    ring.at(ring.now + 0.05, lambda: loaded(ring))


@pytest.mark.slow
def test_overload_moves_keys_through_a_cascade() -> None:
    """Two of three nodes are overloaded: the second makes space first, and no node changes twice in the hold-off."""
    hot = Ring(3, 1, seed=3, rate=100, options=LOADED, service_s=0.006)
    loads = {0: 6.0, 1: 3.0, 2: 0.2}
    owners = hot.view.owners(hot.positions).tolist()
    hot.weights = [loads[owner] for owner in owners]
    requests = []

    def watch(sender: int, node: Node, number: int, message: Message) -> None:
        if isinstance(message, BalanceRequest) and not message.leaves:
            requests.append((sender, number, message.hop))

    hot.watch = watch
    loaded(hot)
    hot.run(40)
    queued = []
    for _ in range(50):
        hot.run(hot.now + 0.1)
        queued.append([node.queued for node in hot.nodes.values()])
    moved = hot.events("moved")
    assert (0, 1, 1) in requests
    assert (1, 2, 2) in requests
    assert {node for node, _, _ in moved} >= {0, 1}
    for node in range(3):
        times = [time for n, time, _ in moved if n == node]
        assert all(b - a >= LOADED.holdoff_s for a, b in itertools.pairwise(times))
    assert all(np.mean(queued, axis=0) < LOADED.high[0])
    settle(hot)
    assert hot.repeated == 0


def test_overload_everywhere_asks_for_a_spare() -> None:
    ring = Ring(3, 1, rate=100, options=LOADED, service_s=0.02)
    loaded(ring)
    ring.run(4)
    wanted = ring.events("spare wanted")
    assert wanted
    first = wanted[0][0]
    begin_move(ring, "scale out", first)
    ring.run(ring.now + 12)  # the new node's copy waits for what is queued
    assert SPARE in ring.view


def test_little_load_removes_nodes() -> None:
    ring = Ring(4, 1, rate=20, options=replace(LOADED, minimum=3))
    loaded(ring)
    ring.run(30)
    assert len(ring.view.members) == 3
    settle(ring)
    assert ring.repeated == 0


# State and checkpoints.


def test_deltas_reproduce_the_state() -> None:
    """A secondary's copy is the owner's state at the checkpoint, and its messages are all that came since."""
    ring = Ring(3, 1, rate=300, options=FAST)
    checked = []
    sent = deque([(0.0, 0)])

    def watch(sender: int, node: Node, number: int, message: Message) -> None:
        sent.append((ring.now, len(ring.sent)))
        while sent[1][0] < ring.now - 2 * ring.latency_s[1]:
            sent.popleft()
        if isinstance(message, Checkpoint):
            checked.append((sender, number))
            owner = ring.nodes[sender]
            interval = ring.view.interval(sender)
            for position, ids in node.state.extract(interval).items():
                newer = owner.state.entries[position]
                assert newer[: len(ids)] == ids
                kept = {i for t in node.store._kept for i in t.payload.ids.tolist()}
                assert {i for i in newer[len(ids) :] if i < sent[0][1]} <= kept  # later ones are on their way

    ring.watch = watch
    ring.run(4)
    assert len(checked) > 20


def test_store_is_bounded_by_the_checkpoint_interval() -> None:
    ring = Ring(3, 1, rate=300, options=FAST)
    ring.run(2)
    for _ in range(20):
        ring.run(ring.now + 0.1)
        kept = sum(len(node.store) for node in ring.nodes.values())
        assert kept <= 900 * (FAST.checkpoint_s + 0.15) * 1.3


def test_state_of_simulation_follows_protocol() -> None:
    state = Seen()
    ids = np.array([1, 2, 3])
    positions = np.array([5, 7, 5], dtype=np.uint64)
    state.apply(Tuples(1000, 0, 1, ids, ids, positions, Ids(ids)), None)
    delta = state.collect()
    assert delta == {5: (1, 3), 7: (2,)}
    assert state.collect() == {}
    state.discard(Ranges.arc(0, 6))
    assert state.entries == {7: (2,)}

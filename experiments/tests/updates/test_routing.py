"""Traces, shells, buffers and gates, one decision at a time."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.updates.routing import (
    Buffers,
    Entry,
    Gate,
    Header,
    Router,
    Shell,
    Side,
    Tally,
    Update,
    converted,
    merged,
)
from goffish.errors import InputError, JobError
from goffish.streaming.updates.analysis import can_mix, pin_points
from goffish.streaming.updates.versions import (
    Channel,
    Element,
    Numbering,
    Part,
    PartialWindow,
    Strategy,
    Version,
)

WAYS = [("s", "a"), ("a", "b"), ("b", "t")]
OLD = Version.of(1, {"s": 1, "a": 1, "b": 1, "t": 1}, WAYS)
NEW = Version.of(2, {"s": 1, "a": 2, "b": 2, "t": 1}, WAYS)


def updated(strategy: Strategy, old: Version = OLD, new: Version = NEW, **options: Any) -> tuple[Router, Update]:
    numbering = Numbering({}).extended(old)
    router = Router(old, numbering)
    update = Update(strategy, old, new, numbering.extended(new), **options)
    router.prepare(update)
    return router, update


def header(update: Update, *parts: Part, version: int = 1, pinned: int = 0) -> Header:
    return Header(version, update.numbering.mask(parts), pinned, 0.0)


@given(st.randoms(use_true_random=False))
def test_traces_are_the_sets_of_all_ancestors(rng: Random) -> None:
    """Equation (1): breaks when a trace differs from a walk over all parents, joins included."""
    ids = [f"n{number}" for number in range(6)]
    ways = {(ids[i], ids[j]) for j in range(1, 6) for i in rng.sample(range(j), rng.randint(1, min(j, 2)))}
    version = Version.of(1, ids, ways)
    router = Router(version, Numbering({}).extended(version))
    messages: list[tuple[str, Header, list[tuple[int, Channel]]]] = []  # producer, header, parents with their channels
    arrived: dict[str, list[tuple[int, Channel, Header]]] = {id: [] for id in ids}
    for _ in range(30):
        id = rng.choice(ids)
        taken = [] if id == "n0" else rng.sample(arrived[id], min(len(arrived[id]), rng.randint(1, 3)))
        if not taken and id != "n0":
            continue
        parents = [one[2] for one in taken] or [router.stamp(1.0)]
        started = router.begin(id, router.route_in(id, parents[0]), parents)
        messages.append((id, started, [(one[0], one[1]) for one in taken]))
        for target, sent in router.route_out(id, started):
            arrived[target].append((len(messages) - 1, Channel(id, target), sent))

    def ancestors(number: int) -> set[Part]:
        id, _, parents = messages[number]
        found: set[Part] = {Element(id, 1)}
        for parent, channel in parents:
            found |= {channel} | ancestors(parent)
        return found

    for number, (_, started, _) in enumerate(messages):
        assert {part for part, bit in router.numbering.bits.items() if started.trace & bit} == ancestors(number)


def test_headers_of_products() -> None:
    assert merged([Header(1, 1, 0, 5.0), Header(2, 2, 2, 4.0)]) == Header(2, 3, 2, 4.0)


def test_mvc_follows_the_stamp() -> None:
    """Breaks when a message changes its version on the way."""
    router, _ = updated(Strategy.MVC)
    old = router.stamp(0.0)
    router.activate()
    new = router.stamp(0.0)
    assert [old.version, new.version] == [1, 2]
    for stamped, logic in ((old, 1), (new, 2)):
        assert [router.route_in(id, stamped) for id in "sabt"] == [1, logic, logic, 1]
        assert router.group(stamped) == stamped.version


def test_pvc_upgrades_messages_with_a_common_past() -> None:
    """Breaks when a trace that both versions allow stays old, or one that met an old part does not."""
    router, update = updated(Strategy.PVC)
    common = header(update, Element("s", 1), Channel("s", "a"))
    old = header(update, Element("s", 1), Channel("s", "a"), Element("a", 1), Channel("a", "b"))
    assert router.route_in("a", common) == 1
    router.activate()
    assert router.route_in("a", common) == 2
    assert router.route_in("b", old) == 1
    assert [update.side(one) for one in (common, old)] == [Side.COMMON, Side.OLD]


def test_pvc_keeps_new_messages_new_where_the_router_is_not_active_yet() -> None:
    """Breaks when activation at different times mixes versions, as the published test does."""
    router, update = updated(Strategy.PVC)
    new = header(update, Element("s", 1), Channel("s", "a"), Element("a", 2), Channel("a", "b"))
    assert not router.active
    assert router.route_in("b", new) == 2


def test_hti_switches_whatever_the_past() -> None:
    router, update = updated(Strategy.HTI)
    old = header(update, Element("s", 1), Channel("s", "a"), Element("a", 1), Channel("a", "b"))
    assert router.route_in("b", old) == 1
    router.activate()
    assert router.route_in("b", old) == 2
    assert update.mixes(router.begin("b", 2, [old]).trace)


def test_hti_leaves_messages_inside_an_old_connected_subgraph() -> None:
    old = Version.of(1, "sabt", [*WAYS, ("a", "t")])
    new = Version.of(2, "saxt", [("s", "a"), ("a", "x"), ("x", "t"), ("a", "t")])
    router, update = updated(Strategy.HTI, old, new)
    assert update.kind.name == "CONNECTED_SUBGRAPH"
    router.activate()
    inside = header(update, Element("s", 1), Channel("s", "a"), Element("a", 1), Channel("a", "b"))
    assert [target for target, _ in router.route_out("b", router.begin("b", 1, [inside]))] == ["t"]
    outside = header(update, Element("s", 1), Channel("s", "a"))
    assert [target for target, _ in router.route_out("a", router.begin("a", 1, [outside]))] == ["t", "x"]


def test_removed_channels_deliver_what_they_hold() -> None:
    new = Version.of(2, {"s": 1, "a": 1, "t": 1}, [("s", "a"), ("a", "t")])
    router, update = updated(Strategy.HTI, new=new)
    router.activate()
    assert (
        router.route_in("b", header(update, Element("s", 1), Channel("s", "a"), Element("a", 1), Channel("a", "b")))
        == 1
    )


def test_sources_of_one_version_only() -> None:
    """Breaks when a removed source goes on after the notice, or an added one starts before it."""
    new = Version.of(2, {"x": 1, "a": 1, "b": 1, "t": 1}, [("x", "a"), *WAYS[1:]])
    router, _ = updated(Strategy.MVC, new=new)
    assert [router.accepts(id) for id in "sxa"] == [True, False, False]
    router.activate()
    assert [router.accepts(id) for id in "sxa"] == [False, True, False]
    router.complete()
    assert router.accepts("x")
    assert not router.accepts("s")


FORK = [("s", "f"), ("f", "a"), ("f", "x"), ("x", "b"), ("a", "j"), ("b", "j")]
FORKED = Version.of(1, "sfaxbj", FORK, "j")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("a", ""),  # one changed way: a common message may join either
        ("ab", "f"),
        ("xb", ""),  # x precedes b on every path
        ("fab", ""),  # f is changed itself: the trace decides
        ("j", "f"),  # messages of one input reach j at different times
        ("sj", "f"),  # s decides before, and f only repeats it
    ],
)
def test_pins_of_changed_elements(changed: str, expected: str) -> None:
    logic = FORKED.logic | dict.fromkeys(changed, 2)
    assert pin_points(FORKED, Version.of(2, logic, FORK, "j")) == set(expected)


def test_pins_without_a_join() -> None:
    """Breaks when outputs that no message waits for are pinned, or a moved channel lets messages take both ways."""
    merges = Version.of(1, "sfaxbj", FORK)
    assert pin_points(merges, Version.of(2, merges.logic | {"a": 2, "b": 2}, FORK)) == set()
    moved = [one for one in FORK if one != ("a", "j")]
    assert pin_points(merges, Version.of(2, merges.logic | {"j": 1}, [*moved, ("x", "j")])) == {"f"}
    added = Version.of(2, merges.logic, [*FORK, ("f", "b")])
    assert pin_points(merges, added) == set()


def test_pins_of_several_sources() -> None:
    """Breaks when sources that reach both ways do not pin where no element is common to all paths."""
    ways = [("s", "a"), ("s", "b"), ("r", "a"), ("r", "b"), ("q", "a"), ("a", "j"), ("b", "j")]
    old = Version.of(1, "srqabj", ways, "j")
    new = Version.of(2, old.logic | {"a": 2, "b": 2}, ways, "j")
    assert pin_points(old, new) == {"s", "r"}


def test_pinning_decides_for_all_products() -> None:
    """Breaks when messages that passed the pin before the activation, or after it, are not of one version."""
    new = Version.of(2, FORKED.logic | {"a": 2, "b": 2}, FORK, "j")
    router, update = updated(Strategy.PVC, FORKED, new)
    before = router.begin("f", 1, [header(update, Element("s", 1), Channel("s", "f"))])
    router.activate()
    after = router.begin("f", 1, [header(update, Element("s", 1), Channel("s", "f"))])
    for started, pinned, logic in ((before, 0, 1), (after, 2, 2)):
        assert started.pinned == pinned
        assert {router.route_in(target, sent) for target, sent in router.route_out("f", started) if target != "x"} == {
            logic
        }
    router.complete()
    # The next update does not mistake the old pin for its own.
    newest = Version.of(3, new.logic | {"b": 3}, FORK, "j")
    router.prepare(Update(Strategy.PVC, new, newest, router.numbering.extended(newest)))
    router.activate()
    assert router.route_in("b", after) == 3


def test_updates_that_can_mix() -> None:
    ways = [("s", "a"), ("a", "b"), ("b", "a"), ("b", "t")]
    cyclic = Version.of(1, "sabt", ways)
    assert can_mix(cyclic, Version.of(2, cyclic.logic | {"a": 2}, ways))  # it may pass both instances
    removed = Version.of(2, {"s": 1, "b": 1, "t": 1}, [("s", "b"), ("b", "t")])
    assert not can_mix(OLD, removed)
    assert can_mix(FORKED, Version.of(2, FORKED.logic | {"a": 2, "b": 2}, FORK, "j"))


def test_shell_holds_two_instances() -> None:
    router, update = updated(Strategy.MVC)
    shell = Shell[str]("a", router)
    shell.add(1, "old")
    shell.add(2, "new")
    with pytest.raises(JobError, match=r"processing element a: runs versions \[1, 2\]; cannot add 3"):
        shell.add(3, "third")
    for version in (1, 2, 1):
        shell.put(header(update, version=version), f"message of {version}")
    taken = [shell.take() for _ in range(3)]
    assert [(one.version, one.item) for one in taken if one] == [
        (1, "message of 1"), (2, "message of 2"), (1, "message of 1")
    ]  # fmt: skip
    assert shell.take() is None
    assert shell.retire(1) == "old"
    shell.put(header(update), "late")
    with pytest.raises(JobError, match="processing element a: version 1 is not running"):
        shell.take()


class Counting:
    """An instance with a state."""

    def __init__(self, state: int) -> None:
        self.state = state

    def export(self) -> int:
        return self.state

    def install(self, state: int) -> None:
        self.state += state


def test_state_is_handed_over() -> None:
    """Breaks when the new instance loses what it counted beside the old one."""
    router, _ = updated(Strategy.MVC)
    shell = Shell[str]("a", router)
    shell.add(1, Counting(40))
    shell.add(2, Counting(2))
    shell.hand_over(1, 2, lambda state: state * 10)
    assert shell.instances[2].state == 402


def test_counts_are_exact_between_processes() -> None:
    """Breaks when what one process sent does not cancel with what another finished."""
    router, update = updated(Strategy.MVC)
    other = Router(OLD, Numbering({}).extended(OLD))
    other.prepare(update)
    started = router.begin("s", 1, [router.stamp(0.0)])
    ((target, sent),) = router.route_out("s", started)
    router.counts.send(sent)
    router.end(started)
    assert router.counts.old(update) == (2, 1, 2, 1)
    arrived = other.begin(target, 1, [sent])
    other.counts.finish(sent)
    assert other.counts.old(update) == (1, 1, 1, 1)
    other.end(arrived)
    assert Tally.total(one.counts.old(update) for one in (router, other)) == (3, 3, 3, 3)
    other.complete()
    assert not other.counts.sent


def test_buffers_keep_versions_apart() -> None:
    """Breaks when a batch has members of both versions, or a common member joins none (§3.6)."""
    router, update = updated(Strategy.PVC)
    router.activate()
    common = header(update, Element("s", 1))
    old, new = header(update, Element("a", 1)), header(update, Element("a", 2))
    buffers = Buffers[str](router, count=3)
    assert buffers.add(None, Entry("b", old, "old 1")) is None
    assert buffers.add(None, Entry("b", new, "new 1")) is None
    assert buffers.add(None, Entry("b", new, "new 2")) is None
    assert buffers.add(None, Entry("b", common, "common 1")) is None  # joins the oldest
    assert (buffers.waiting(Side.OLD), buffers.waiting(Side.NEW), len(buffers)) == (1, 1, 2)
    complete = buffers.add(None, Entry("b", new, "new 3"))
    assert complete is not None
    assert [one.item for one in complete] == ["new 1", "new 2", "new 3"]
    ((key, entries),) = buffers.close(Side.OLD)
    assert key is None
    assert [one.item for one in entries] == ["old 1", "common 1"]
    assert not len(buffers)


def test_joins_take_one_entry_of_each_port() -> None:
    router, update = updated(Strategy.MVC)
    buffers = Buffers[int](router, ports=("x", "y"))
    old, new = header(update), header(update, version=2)
    assert buffers.add("k", Entry("x", old, 1)) is None
    assert buffers.add("k", Entry("x", old, 2)) is None
    assert buffers.add("k", Entry("y", new, 3)) is None
    assert buffers.add("l", Entry("y", old, 4)) is None
    complete = buffers.add("k", Entry("y", old, 5))
    assert complete is not None
    assert [one.item for one in complete] == [1, 5]
    assert buffers.waiting(None) == 3
    assert buffers.waiting(Side.OLD) == 2
    closed = buffers.close(None)
    assert sorted((one.key, [entry.item for entry in one.entries]) for one in closed) == [
        ("k", [2]), ("k", [3]), ("l", [4])
    ]  # fmt: skip


def test_merged_entries_are_of_the_new_version() -> None:
    router, update = updated(Strategy.PVC, partial_window=PartialWindow.MERGE)
    entry = converted(update, Entry("b", header(update, Element("s", 1), Element("a", 1)), "item"))
    assert update.side(entry.header) == Side.NEW
    assert entry.header.trace == update.numbering.mask([Element("s", 1)])
    assert router.group(entry.header) == 2


def test_gate_holds_new_outputs() -> None:
    _, update = updated(Strategy.MVC)
    gate = Gate[str](update)
    assert gate.offer(header(update, version=2), "new") == []
    assert gate.offer(header(update), "old") == ["old"]
    assert gate.offer(header(update, version=2), "newer") == []
    assert gate.open() == ["new", "newer"]
    assert gate.offer(header(update, version=2), "newest") == ["newest"]


def test_migrated_elements_must_change() -> None:
    with pytest.raises(InputError, match="update to dataflow version 2: migrated element 's' does not change"):
        updated(Strategy.MVC, migrated=frozenset("s"))


def test_updates_travel() -> None:
    """Breaks when a process cannot receive an update."""
    _, update = updated(Strategy.PVC)
    assert update.old_mask
    assert pickle.loads(pickle.dumps(update)) == update

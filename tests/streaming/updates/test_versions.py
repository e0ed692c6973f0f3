"""Versions of dataflows: types of updates on hand-made pairs, and bits of traces over many updates."""

from __future__ import annotations

import doctest
import importlib
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.streaming.updates.versions import (
    Channel,
    Element,
    Numbering,
    UpdateType,
    Version,
    classify,
    difference,
)

MODULES = ("versions", "analysis", "bounds", "plan")
DIAMOND = [("s", "a"), ("s", "b"), ("a", "t"), ("b", "t")]
BASE = Version.of(1, {"s": 1, "a": 1, "b": 1, "t": 1}, DIAMOND)


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"goffish.streaming.updates.{module}"))
    assert found.attempted >= 1
    assert found.failed == 0


@pytest.mark.parametrize(
    ("elements", "channels", "expected"),
    [
        # U12: one new logic; two in different places; still the same channels.
        ({"s": 1, "a": 2, "b": 1, "t": 1}, DIAMOND, UpdateType.ELEMENT),
        ({"s": 2, "a": 1, "b": 1, "t": 2}, DIAMOND, UpdateType.ELEMENT),
        # Same logic; a channel added, removed, or moved with their number unchanged.
        ({"s": 1, "a": 1, "b": 1, "t": 1}, [*DIAMOND, ("a", "b")], UpdateType.CHANNEL),
        ({"s": 1, "a": 1, "b": 1, "t": 1}, DIAMOND[:3], UpdateType.CHANNEL),
        ({"s": 1, "a": 1, "b": 1, "t": 1}, [*DIAMOND[:3], ("b", "a")], UpdateType.CHANNEL),
        # An element beside the others: the unchanged part is connected, and so are old and new parts.
        ({"s": 1, "a": 1, "b": 1, "t": 1, "x": 1}, [*DIAMOND, ("s", "x"), ("x", "t")], UpdateType.CONNECTED_SUBGRAPH),
        ({"s": 1, "b": 1, "t": 1}, [("s", "b"), ("b", "t")], UpdateType.CONNECTED_SUBGRAPH),
        # Logic and channels change next to each other: one part.
        ({"s": 1, "a": 2, "b": 1, "t": 1}, [*DIAMOND, ("a", "b")], UpdateType.CONNECTED_SUBGRAPH),
        # Logic and channels change in several places: s -> a -> b -> t has s and t new, and b behind both.
        ({"s": 2, "a": 1, "b": 1, "t": 2}, [("s", "a"), ("a", "b"), ("b", "t")], UpdateType.INDEPENDENT_SUBGRAPH),
        # Elements are added in two places that nothing connects.
        (
            {"s": 1, "a": 1, "b": 1, "t": 1, "x": 1, "y": 1},
            [*DIAMOND, ("x", "a"), ("b", "y")],
            UpdateType.INDEPENDENT_SUBGRAPH,
        ),
    ],
)
def test_types_of_updates(elements: dict[str, int], channels: list[tuple[str, str]], expected: UpdateType) -> None:
    assert classify(BASE, Version.of(2, elements, channels)) == expected


def test_no_change_is_rejected() -> None:
    with pytest.raises(InputError, match="update to dataflow version 2: no element or channel differs from 1"):
        classify(BASE, Version.of(2, dict(BASE.elements), DIAMOND))
    with pytest.raises(InputError, match="the number must be above 1"):
        difference(BASE, Version.of(1, {"s": 2, "a": 1, "b": 1, "t": 1}, DIAMOND))


def test_difference() -> None:
    """Breaks when new logic counts as unchanged, or a channel of an element with new logic counts as changed."""
    new = Version.of(2, {"s": 1, "a": 2, "t": 1, "x": 1}, [("s", "a"), ("a", "t"), ("a", "x")])
    found = difference(BASE, new)
    assert found.unchanged == {Element("s", 1), Element("t", 1), Channel("s", "a"), Channel("a", "t")}
    assert found.old_only == {Element("a", 1), Element("b", 1), Channel("s", "b"), Channel("b", "t")}
    assert found.new_only == {Element("a", 2), Element("x", 1), Channel("a", "x")}


@pytest.mark.parametrize(
    ("elements", "channels", "joins", "problem"),
    [
        (["a", "b"], [("a", "c")], (), "channel a -> c: no element 'c'"),
        (["a", "b"], [("a", "b"), ("b", "a")], (), "needs an element without inputs and one without outputs"),
        (["a", "b"], [("a", "b")], ("c",), "join 'c' is not an element"),
        ([], [], (), "needs an element without inputs"),
    ],
)
def test_invalid_versions(
    elements: list[str], channels: list[tuple[str, str]], joins: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        Version.of(3, elements, channels, joins)


def test_invalid_numbers_and_elements() -> None:
    with pytest.raises(InputError, match="numbers begin at 1"):
        Version.of(0, ["a"], [])
    with pytest.raises(InputError, match="'a' is given twice"):
        Version(1, (Element("a", 1), Element("a", 2)), frozenset())


def test_versions_travel() -> None:
    """Breaks when a version cannot be sent to another process, or stored."""
    version = Version.of(1, BASE.logic, DIAMOND, joins=["t"])
    assert version.targets["s"] == ("a", "b")
    assert pickle.loads(pickle.dumps(version)) == version
    assert Version.from_dict(json.loads(json.dumps(version.to_dict()))) == version


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), min_size=1), min_size=1, max_size=6))
def test_bits_stay_through_updates(steps: list[dict[str, int]]) -> None:
    """Breaks when two live parts share a bit, or a part that stays gets another one."""
    numbering, before = Numbering({}), Version.of(1, {"z": 1}, [])
    numbering, most = numbering.extended(before), 0
    for number, logic in enumerate(steps, 2):
        version = Version.of(number, logic | {"z": 1}, [("z", id) for id in logic])
        both = numbering.extended(version)
        assert both.bits.keys() == before.parts | version.parts
        assert all(both.bits[part] == bit for part, bit in numbering.bits.items())
        assert len(set(both.bits.values())) == len(both.bits)
        assert both.mask(both.bits).bit_count() == len(both.bits)
        most = max(most, len(both.bits))
        assert max(both.bits.values()).bit_length() <= most  # free bits are used again
        assert Numbering.from_list(json.loads(json.dumps(both.to_list()))).bits == both.bits
        numbering, before = both.restricted(version), version

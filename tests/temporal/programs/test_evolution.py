"""Communities that are born, grow, split, merge and die."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.temporal.evolution import community_evolution


def instance(*communities: str) -> tuple[list[str], list[int]]:
    return [v for c in communities for v in c], [i for i, c in enumerate(communities) for _ in c]


def told(evolution: Any, timestep: int) -> list[tuple[Any, ...]]:
    return [tuple(row[k] for k in ("event", "community", "other", "size"))
            for row in evolution.events.to_pylist() if row["timestep"] == timestep]  # fmt: skip


def test_a_life() -> None:
    found = community_evolution([
        instance("abcd", "efgh"),
        instance("efgh", "abcdx"),      # renumbered, one grows
        instance("efg", "abcdx"),       # one shrinks
        instance("efgabcdx"),           # they merge: the larger overlap goes on
        instance("efga", "bcdx"),       # and it splits
        instance("bcdx", "klm"),        # one dies, one is born
    ])  # fmt: skip
    assert told(found, 0) == [("born", 0, None, 4), ("born", 1, None, 4)]
    assert told(found, 1) == [("continued", 1, None, 4), ("grown", 0, None, 5)]
    assert told(found, 2) == [("shrunk", 1, None, 3), ("continued", 0, None, 5)]
    assert told(found, 3) == [("grown", 0, None, 8), ("merged", 1, 0, 3)]
    assert told(found, 4) == [("shrunk", 0, None, 4), ("split", 2, 0, 4)]
    assert told(found, 5) == [("continued", 2, None, 4), ("born", 3, None, 3), ("died", 0, None, 4)]
    last = [row for row in found.members.to_pylist() if row["timestep"] == 5]
    assert {row["vertex"]: row["community"] for row in last} == dict.fromkeys("bcdx", 2) | dict.fromkeys("klm", 3)
    overlap = [row["overlap"] for row in found.events.to_pylist() if row["timestep"] == 1]
    assert overlap == [1.0, 0.8]


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=8, max_size=8), min_size=1, max_size=5),
    st.sampled_from([0.2, 0.5, 1]),
)
def test_every_community_has_one_beginning_and_one_end(steps: list[list[int]], threshold: float) -> None:
    """Names are unique in an instance, each lives without a break, and matches are as good as asked."""
    found = community_evolution([(range(8), step) for step in steps], threshold=threshold)
    alive: dict[int, set[int]] = {}
    ended: set[int] = set()
    for t, step in enumerate(steps):
        rows = [row for row in found.members.to_pylist() if row["timestep"] == t]
        now: dict[int, set[int]] = {}
        for row in rows:
            now.setdefault(row["community"], set()).add(row["vertex"])
        assert sorted(map(sorted, now.values())) == sorted(
            sorted(np.flatnonzero(np.array(step) == c).tolist()) for c in set(step)
        )
        events = told(found, t)
        begun = {e[1] for e in events if e[0] in ("born", "split")}
        gone = {e[1] for e in events if e[0] in ("died", "merged")}
        assert begun == set(now) - set(alive)
        assert gone == set(alive) - set(now)
        assert not begun & ended
        ended |= gone
        for c in set(now) & set(alive):
            assert len(now[c] & alive[c]) / len(now[c] | alive[c]) >= threshold
        for event, c, other, size in events:
            if event == "split":
                assert other in alive
                assert size == len(now[c])
            if event == "merged":
                assert other in now
        alive = now


@pytest.mark.parametrize(
    ("instances", "threshold", "text"),
    [
        ([], 0, "must be greater than 0"),
        ([([1, 2], [0])], 0.5, "2 vertices and 1 communities"),
        ([([1, 1], [0, 0])], 0.5, "instance 0: a vertex occurs twice"),
    ],
)
def test_bad_input(instances: Any, threshold: float, text: str) -> None:
    with pytest.raises(InputError, match=text):
        community_evolution(instances, threshold=threshold)


def test_nothing_at_all() -> None:
    assert community_evolution([]).events.num_rows == 0
    assert told(community_evolution([instance("ab"), ([], [])]), 1) == [("died", 0, None, 2)]

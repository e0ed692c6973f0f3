"""Paths along time-stamped edges against an enumeration of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.temporal.event_paths import temporal_paths

KINDS = ("earliest-arrival", "latest-departure", "fastest", "fewest-hops")


def all_paths(
    edges: list[tuple[int, int, int, int]], source: int, first: int, last: int
) -> list[tuple[int, int, int, int]]:
    """(end, departure, arrival, hops) of all time-respecting walks without a repeated edge."""
    found = []

    def go(at: int, now: int, left: int | None, used: frozenset[int], hops: int) -> None:
        if left is not None:
            found.append((at, left, now, hops))
        for i, (u, v, t, d) in enumerate(edges):
            if u == at and i not in used and t >= now and t + d <= last:
                go(v, t + d, t if left is None else left, used | {i}, hops + 1)

    go(source, first, None, frozenset(), 0)
    return found


EDGES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(-3, 6), st.integers(0, 3)), min_size=1, max_size=9
)


@given(EDGES, st.booleans(), st.one_of(st.none(), st.integers(-3, 3)), st.one_of(st.none(), st.integers(3, 9)))
def test_all_kinds(edges: Any, directed: bool, start: int | None, end: int | None) -> None:
    u, v, t, d = (np.array(column) for column in zip(*edges, strict=True))
    both = edges if directed else edges + [(b, a, s, c) for a, b, s, c in edges]
    first = min(t) if start is None else start
    last = max(t + d) if end is None else end
    at = int(u[0])
    running = {"duration": d, "start": start, "end": end, "directed": directed}
    for kind in KINDS:
        found = temporal_paths(u, v, t, at, kind, **running)
        rows = dict(zip(*(found.table.column(i).to_pylist() for i in (0, 1)), strict=True))
        assert set(rows) == {*u.tolist(), *v.tolist()}
        for x, value in rows.items():
            if x == at:
                assert value == {"earliest-arrival": first, "latest-departure": last}.get(kind, 0)
                continue
            if kind == "latest-departure":
                walks = [w for w in all_paths(both, x, first, last) if w[0] == at]
            else:
                walks = [w for w in all_paths(both, at, first, last) if w[0] == x]
            exact = {
                "earliest-arrival": min((w[2] for w in walks), default=None),
                "latest-departure": max((w[1] for w in walks), default=None),
                "fastest": min((w[2] - w[1] for w in walks), default=None),
                "fewest-hops": min((w[3] for w in walks), default=None),
            }[kind]
            assert value == exact, (kind, x)
            if exact is not None:
                check_path(found.path(x), both, kind, at, x, exact)


def check_path(path: Any, edges: Any, kind: str, at: int, x: int, exact: int) -> None:
    """The edges are there, follow each other in time, and give the figure."""
    now, begin = None, None
    here = x if kind == "latest-departure" else at
    for u, v, t in path:
        assert u == here
        takes = [d for a, b, s, d in edges if (a, b, s) == (u, v, t)]
        assert takes
        assert now is None or t >= now
        begin = t if begin is None else begin
        now, here = t + min(takes), v
    assert here == (at if kind == "latest-departure" else x)
    assert now is not None
    assert begin is not None
    if kind == "earliest-arrival":
        assert now <= exact
    elif kind == "fewest-hops":
        assert len(path) == exact
    elif kind == "latest-departure":
        assert begin == exact
    else:
        assert now - begin <= exact


def test_the_source_itself_and_who_is_never_reached() -> None:
    found = temporal_paths(["a", "c"], ["b", "a"], [1, 2], "a")
    assert dict(zip(*(found.table.column(i).to_pylist() for i in (0, 1)), strict=True)) == {"a": 1, "b": 1, "c": None}
    assert found.path("a") == []
    assert found.path("b") == [("a", "b", 1)]
    with pytest.raises(InputError, match="vertex 'c' has no path"):
        found.path("c")
    with pytest.raises(InputError, match="unknown vertex 'd'"):
        found.path("d")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "slowest"}, "choose one of earliest-arrival"),
        ({"vertex": "z"}, "no edge starts or ends at it"),
        ({"time": [0.5, 1.5]}, "expected integers"),
        ({"duration": -1}, "at least 0"),
        ({"duration": [1, 2, 3]}, "3 rows, time 2"),
        ({"time": [1, 2, 3]}, "expected one row per edge in each"),
        ({"time": [1, 2**61]}, "at most 2"),
    ],
)
def test_bad_input(change: Any, text: str) -> None:
    given_: dict[str, Any] = {"source": ["a", "c"], "target": ["b", "a"], "time": [1, 2], "vertex": "a", **change}
    with pytest.raises(InputError, match=text):
        temporal_paths(**given_)

"""Meme tracking against a search per instance, hashtags against a recount, and the fixtures of §7."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.gofs import build_layout
from goffish.temporal.memes import HashtagAggregation, MemeTracking, occurrences
from tests.cases import grid, grid_blocks
from tests.temporal.arrays import ArrayValues, run_series, told
from tests.temporal.programs.test_tdsp import arcs_of, series


def spread_oracle(arcs: Any, holds: Any, sources: Any, must_hold: bool) -> dict[int, int]:
    """Per instance, a breadth-first search from all that were reached before, among the holders."""
    found = {v: 0 for v in np.flatnonzero(holds[0]).tolist() if sources is None or v in sources}
    for t in range(1, len(holds)):
        queue = [v for v in found if holds[t][v] or not must_hold]
        for u in queue:
            for v in arcs.get(u, ()):
                if v not in found and holds[t][v]:
                    found[v] = t
                    queue.append(v)
    return found


@given(series(), st.booleans(), st.booleans())
def test_spread_on_random_series(case: Any, some: bool, must_hold: bool) -> None:
    graph, owner, parts, borders, _, seed = case
    holds = np.random.default_rng(seed).random((len(borders) - 1, graph.num_vertices)) < 0.45
    values = ArrayValues(build_layout(graph, owner, parts), borders, {"vertex.holds": lambda v, t: holds[t][v]})
    sources = list(range(0, graph.num_vertices, 2)) if some else None
    found = run_series(MemeTracking(True, "holds", sources, must_hold), values)
    rows = {r["vertex"]: r["timestep"] for r in found.table.to_pylist() if r["timestep"] is not None}
    assert rows == spread_oracle(arcs_of(graph), holds, sources, must_hold)
    assert sum(told(found, "reached")) == len(rows)


@given(series(), st.randoms(use_true_random=False))
def test_hashtags_on_random_series(case: Any, random: Any) -> None:
    """A recount; and the same for any order of the timesteps."""
    graph, owner, parts, borders, _, seed = case
    generator = np.random.default_rng(seed)
    held = [[list(generator.choice(["a", "b", "c"], generator.integers(0, 4))) for _ in range(graph.num_vertices)]
            for _ in borders[1:]]  # fmt: skip
    column = lambda v, t: pa.array([held[t][x] for x in v], pa.list_(pa.string()))  # noqa: E731
    values = ArrayValues(build_layout(graph, owner, parts), borders, {"vertex.memes": column})
    order = list(range(len(held)))
    random.shuffle(order)
    for timesteps in (range(len(held)), order):
        found = run_series(HashtagAggregation("b"), values, timesteps).table
        exact = [sum(x.count("b") for x in row) for row in held]
        assert found["count"].to_pylist() == exact
        assert found["change"].to_pylist() == [0, *np.diff(exact).tolist()]
        assert found["total"].to_pylist() == np.cumsum(exact).tolist()


def fixture() -> ArrayValues:
    """§7: v holds the meme at t iff (7v + 3t) mod 10 < 4 and column(v) ≤ 2t + 1."""
    layout = build_layout(grid(40, 30), grid_blocks(40, 30, 3, 4), 12)
    holds = lambda v, t: ((7 * v + 3 * t) % 10 < 4) & (v % 40 <= 2 * t + 1)  # noqa: E731
    return ArrayValues(layout, np.arange(21) * 20, {"vertex.memes": holds})


def test_meme_fixture() -> None:
    found = run_series(MemeTracking(True), fixture())
    times = [t for t in found.table["timestep"].to_pylist() if t is not None]
    assert (len(times), sum(times)) == (600, 5700)
    assert told(found, "reached") == [30] * 20
    assert told(found, "supersteps") == [1, *[2] * 9, 3, *[2] * 9]


@pytest.mark.parametrize("threads", [1, 2])
def test_hashtag_fixture(threads: int) -> None:
    found = run_series(HashtagAggregation(True), fixture(), threads=threads)
    counts = [30, 60, 90, 90, 120, 150, 150, 180, 210, 240, 270, 300, 330, 330, 360, 390, 390, 420, 450, 480]
    assert found.table["count"].to_pylist() == counts
    assert found.table["total"].to_pylist()[-1] == 5040
    assert told(found, "supersteps") == [1] * 20
    assert found.stats is not None
    # One superstep and its end for each instance, two of the merge, and one to see that all is over.
    assert found.stats.supersteps == 2 * 20 + 2 + 1


def test_occurrences_in_columns_of_all_kinds() -> None:
    lists = pa.array([["a", "b", "a"], [], None, ["b"]], pa.list_(pa.string()))
    assert occurrences(lists, "a").tolist() == [2, 0, 0, 0]
    assert occurrences(pa.array(["a", None, "b"]), "a").tolist() == [1, 0, 0]
    assert occurrences(np.array([3, 4, 3]), 3).tolist() == [1, 0, 1]
    assert occurrences(pa.array([[1, 1], [2]]), 1).tolist() == [2, 0]
    for column, wanted in ((np.array([0.5]), 1), (np.array([1]), "a"), (pa.array([[1]]), "a")):
        with pytest.raises(InputError, match="cannot occur in an attribute of type"):
            occurrences(column, wanted)

"""Generators: known answers, plain Python forms, and the exact consequences of the epidemic.

See docs/specs/time-series.md, section 7.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.timeseries.generators import (
    LATENCY,
    MEMES,
    hashed,
    latencies,
    latency_instances,
    meme_instances,
    splitmix,
    spread,
)
from goffish.errors import InputError
from goffish.gofs.series import open_series, write_series
from tests.cases import Case, cases, grid
from tests.temporal.fixtures import track

GAMMA, MASK = 0x9E3779B97F4A7C15, 2**64 - 1


def plain_splitmix(state: int) -> int:
    z = (state + GAMMA) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def plain_hash(seed: int, *keys: int) -> int:
    state = plain_splitmix(seed)
    for key in keys:
        state = plain_splitmix((state + key) & MASK)
    return state


def test_splitmix_gives_the_published_sequence() -> None:
    """The first outputs of SplitMix64 for the seed 1234567, as published with many implementations."""
    states = [(1234567 + i * GAMMA) & MASK for i in range(5)]
    assert splitmix(np.array(states, np.uint64)).tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


@given(st.integers(0, 2**63), st.integers(0, 10**6), st.integers(1, 2**32 - 1), st.integers(0, 10**6))
@settings(max_examples=50)
def test_latency_of_one_edge_in_plain_python(seed: int, instance: int, high: int, edge: int) -> None:
    want = 1 + ((plain_hash(seed, 0, instance, edge) >> 32) * high >> 32)
    assert latencies(np.array([edge]), instance, high, seed=seed).tolist() == [want]
    assert int(hashed(seed, instance, edge)[0]) == plain_hash(seed, instance, edge)


def test_latencies_are_uniform_and_instances_stand_alone() -> None:
    from scipy.stats import chisquare, spearmanr

    counts = np.bincount(latencies(200_000, 3, 40, seed=9), minlength=41)
    assert counts[0] == 0 and counts.size == 41
    assert chisquare(counts[1:]).pvalue > 0.001
    a, b = latencies(50_000, 3, 1000), latencies(50_000, 4, 1000)
    assert abs(spearmanr(a, b).statistic) < 0.02, "no correlation between instances"
    assert abs(spearmanr(a[1:], a[:-1]).statistic) < 0.02, "nor between edges"
    in_turn = list(latency_instances(100, 6, high=7, window=300, seed=2))
    assert np.array_equal(in_turn[4].values["edge.latency"], latencies(100, 4, 7, seed=2))
    assert (in_turn[4].start, in_turn[4].end) == (1200, 1500)
    assert np.array_equal(latencies(np.array([7, 99]), 4, 7, seed=2), latencies(100, 4, 7, seed=2)[[7, 99]])


@settings(max_examples=100)
@given(
    case=cases(), instances=st.integers(0, 9), seeds=st.integers(0, 4), probability=st.sampled_from((0.0, 0.3, 1.0)),
    duration=st.integers(1, 4), geometric=st.booleans(), seed=st.integers(0, 999),
)  # fmt: skip
def test_epidemic_in_plain_python_and_its_consequences(
    case: Case, instances: int, seeds: int, probability: float, duration: int, geometric: bool, seed: int
) -> None:
    graph, n = case.graph, case.graph.num_vertices
    epidemic = spread(
        graph, instances, seeds=seeds, probability=probability, duration=duration, geometric=geometric, seed=seed
    )
    infected = {v: int(t) for v, t in enumerate(epidemic.infected) if t >= 0}
    length = {v: int(epidemic.recovered[v]) - t for v, t in infected.items()}
    assert all(d == duration for d in length.values()) or geometric
    assert all(d >= 1 for d in length.values())
    # the same epidemic, contact by contact
    want = dict.fromkeys(sorted(range(n), key=lambda v: plain_hash(seed, 1, v))[:seeds], 0) if instances else {}
    threshold = int(probability * 2.0**53)
    for t in range(1, instances):
        for u in [u for u, since in want.items() if since <= t - 1 < since + length[u]]:
            for a in range(graph.offsets[u], graph.offsets[u + 1]):
                w = int(graph.targets[a])
                if w not in want and plain_hash(seed, 2, t - 1, a) >> 11 < threshold:
                    want[w] = t
    assert infected == want
    holders = [set(np.flatnonzero(epidemic.infectious(t)).tolist()) for t in range(instances)]
    assert track(case.nx, holders) == infected, "tracking colours at the time of infection and nothing else"


@settings(max_examples=15)
@given(case=cases(), seed=st.integers(0, 99))
def test_memes_in_a_store(case: Case, seed: int) -> None:
    """The meme is counted as often as there are infectious vertices; the others are there as well."""
    epidemic = spread(case.graph, 6, seeds=2, probability=0.5, duration=2, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        data = meme_instances(epidemic, 6, background=2, share=0.5, seed=seed)
        write_series(case.layout(), Path(folder) / "s", MEMES, data, pack=4, bins=2, unit="1")
        series = open_series(Path(folder) / "s")
        for t in range(6):
            found = [
                (int(v), meme)
                for part in case.layout().slices()
                for v, memes in zip(
                    part.vertex_ids, series.values(part.partition, t, "vertex.memes").to_pylist(), strict=True
                )
                for meme in memes
            ]
            assert {v for v, meme in found if meme == "mu"} == set(np.flatnonzero(epidemic.infectious(t)).tolist())
            assert len(found) == len(set(found))
            for j in (0, 1):
                held = {v for v, meme in found if meme == f"background {j}"}
                want = {v for v in range(case.graph.num_vertices) if plain_hash(seed, 4, t, j, v) >> 11 < 2**52}
                assert held == want
        series.close()


def test_geometric_durations_have_their_mean() -> None:
    epidemic = spread(grid(200, 200), 1, seeds=40_000, duration=5, geometric=True)
    length = epidemic.recovered - epidemic.infected
    assert length.mean() == pytest.approx(5, rel=0.03)
    assert (length == 1).mean() == pytest.approx(1 / 5, rel=0.05)


def test_bad_options() -> None:
    graph = grid(3, 3)
    with pytest.raises(InputError, match=r"probability=1.5: give a number between 0 and 1"):
        spread(graph, 3, probability=1.5)
    with pytest.raises(InputError, match=r"duration=2.5: give a whole number"):
        spread(graph, 3, duration=2.5)
    with pytest.raises(InputError, match="duration=0"):
        spread(graph, 3, duration=0)
    with pytest.raises(InputError, match="high=0: must be an integer of at least 1"):
        latencies(3, 0, 0)
    with pytest.raises(InputError, match="high=4294967296: at most"):
        latencies(3, 0, 2**32)
    with pytest.raises(InputError, match="window=0"):
        next(latency_instances(3, 1, high=3, window=0))
    assert list(LATENCY) == ["edge.latency"]

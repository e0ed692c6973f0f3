"""Agreement of estimates with exact values, against scipy, pair counting and values worked out by hand."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.betweenness.accuracy import compared, largest_error, rank_correlation, top_recall
from goffish.errors import InputError

POWER = str(Path(__file__).parents[3] / "data" / "power.metis.gz")


def test_recall_by_hand() -> None:
    exact = [5.0, 4.0, 3.0, 2.0, 1.0]
    assert top_recall(exact, [1.0, 9.0, 8.0, 0.0, 0.0], 2) == 0.5
    assert top_recall(exact, exact, 3) == top_recall(exact, [0.0] * 5, 5) == top_recall(exact, [1.0] * 5, 9) == 1.0
    # Of equal estimates the smaller numbers are taken: here the wrong ones.
    assert top_recall(exact[::-1], [0.0] * 5, 2) == 0.0
    assert top_recall([], [], 3) == 1.0


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=30))
def test_rank_correlation_counts_pairs(values: list[tuple[int, int]]) -> None:
    """Tau-b is (concordant - discordant) / √(pairs untied in one · pairs untied in the other)."""
    exact, estimate = zip(*values, strict=True)
    pairs = list(itertools.combinations(values, 2))
    signs = [(np.sign(a[0] - b[0]), np.sign(a[1] - b[1])) for a, b in pairs]
    untied = [sum(1 for s in signs if s[i]) for i in (0, 1)]
    found = rank_correlation(exact, estimate)
    if not all(untied):
        assert math.isnan(found)
    else:
        assert found == pytest.approx(sum(a * b for a, b in signs) / math.sqrt(untied[0] * untied[1]))


def test_largest_error_and_summary() -> None:
    exact, estimate = np.array([10.0, 0.0, 3.0, 0.0]), np.array([9.0, 0.5, 3.0, 0.0])
    assert largest_error(exact, estimate) == 1.0
    told = compared(exact, estimate, top=2, directed=False)
    assert told == {
        "recall": 1.0, "recall_of": 2, "kendall_tau": pytest.approx(10 / (5 * 6) ** 0.5 / 2, abs=1e-4),
        "largest_error": 1.0, "largest_error_share": 1 / 6,
    }  # fmt: skip
    assert compared(exact, exact, top=None, directed=True)["recall_of"] == 1
    assert compared(np.zeros(3), np.zeros(3), top=None, directed=False)["kendall_tau"] is None


def test_values_of_different_graphs() -> None:
    with pytest.raises(InputError, match="each hold one value per vertex"):
        largest_error([1.0], [1.0, 2.0])
    with pytest.raises(InputError, match="k=0"):
        top_recall([1.0], [1.0], 0)


@pytest.mark.slow
def test_the_summary_tells_the_agreement() -> None:
    """Sampled, from pivots, and with dropped leaves; the exact values are networkx's."""
    G = nx.karate_club_graph()
    ends = np.array(G.edges())
    graph = gf.from_edges(ends[:, 0], ends[:, 1])
    values = nx.betweenness_centrality(G, normalized=False)
    truth = [values[v] for v in sorted(G)]
    for options in ({"epsilon": 0.05}, {"pivots": 20, "parts": 2}, {"variant": "msl-published", "parts": 2}):
        notes: list[str] = []
        found = gf.run("betweenness", graph, compare=True, note=notes.append, **options)  # type: ignore[arg-type]
        assert notes[-1].startswith("exact values for comparison: 100.0 %")
        estimate = [found.to_dict()[v] for v in sorted(G)]
        assert found.summary["recall_of"] == 1
        assert found.summary["recall"] == top_recall(truth, estimate, 1)
        assert found.summary["largest_error"] == pytest.approx(np.abs(np.array(truth) - estimate).max())
        assert found.summary["kendall_tau"] == pytest.approx(rank_correlation(truth, estimate), abs=1e-4)
    assert gf.run("betweenness", graph, compare=True, epsilon=0.05, top=5).summary["recall_of"] == 5


def test_exact_values_have_nothing_to_be_compared_with() -> None:
    with pytest.raises(InputError, match="compare applies to estimates"):
        gf.run("betweenness", gf.from_edges([0, 1], [1, 2]), compare=True)


@pytest.mark.slow
def test_on_the_command_line() -> None:
    code = "import sys; from goffish.cli import main; sys.exit(main())"
    wanted = ["run", "betweenness", POWER, "--epsilon", "0.02", "--top", "1%", "--compare", "--json"]
    ended = subprocess.run([sys.executable, "-c", code, *wanted], capture_output=True, text=True, check=True)
    summary = json.loads(ended.stdout)["summary"]
    assert summary["recall_of"] == 50
    assert 0.7 <= summary["recall"] <= 1.0
    assert 0.5 < summary["kendall_tau"] <= 1.0
    assert summary["largest_error_share"] <= 0.02
    assert summary["certain_members"] <= 50 * summary["recall"] + 1e-9

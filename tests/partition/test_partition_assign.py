"""Every method on every corner case, determinism, and the errors that name what is accepted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.graph import Graph, from_edges
from goffish.partition import OPTIONS, assign, quality
from tests.partition.partition_graphs import edgeless, grid, random_graphs

METHODS = ["metis", "hash", "range", "ldg", "fennel"]
PATH = from_edges([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6])
LOOPED = from_edges([0, 0, 1, 2, 2], [0, 1, 2, 2, 3], directed=True, self_loops="keep", parallel="keep")
TWO_PIECES = from_edges([0, 1, 5, 6], [1, 2, 6, 7], labels=np.arange(9))


def check(graph: Graph, parts: int, owner: np.ndarray) -> None:
    assert owner.dtype == np.int32
    assert owner.shape == (graph.num_vertices,)
    assert graph.num_vertices == 0 or (owner.min() >= 0 and owner.max() < parts)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("graph", [edgeless(0), edgeless(1), edgeless(6), PATH, LOOPED, TWO_PIECES], ids=repr)
def test_corner_cases(method, graph):
    n = graph.num_vertices
    for parts in sorted({1, 2, max(n - 1, 1), max(n, 1), n + 1, 3 * n + 5, 2**31 - 1}):
        check(graph, parts, assign(graph, parts, method))
    assert not assign(graph, 1, method).any()


@settings(max_examples=25, deadline=None)
@given(graph=random_graphs(), parts=st.integers(1, 40), method=st.sampled_from(METHODS))
def test_random_graphs(graph, parts, method):
    check(graph, parts, assign(graph, parts, method))


@pytest.mark.parametrize("method", ["metis", "range"])
@pytest.mark.slow
def test_no_part_is_empty_while_there_are_vertices_enough(method):
    for graph in (edgeless(7), PATH, TWO_PIECES, grid(8, 8)):
        for parts in range(1, graph.num_vertices + 1, 7):
            assert np.unique(assign(graph, parts, method)).size == parts


@pytest.mark.parametrize("method", METHODS)
def test_same_arguments_same_assignment(method):
    graph = grid(20, 20)
    assert np.array_equal(assign(graph, 5, method), assign(graph, 5, method))


@pytest.mark.parametrize(
    ("method", "options"),
    [("metis", {}), ("hash", {}), ("ldg", {"order": "random"}), ("fennel", {"order": "random"})],
)
def test_seed_is_used(method, options):
    graph = grid(20, 20)
    first, again, other = (assign(graph, 5, method, seed=s, **options) for s in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_hash_is_splitmix64():
    """Stores are rebuilt on other machines: the hash may never change."""

    def splitmix64(x: int) -> int:
        mask = 2**64 - 1
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    assert splitmix64(0) == 0xE220A8397B1DCDAF  # first output of the published generator for seed 0
    for seed in (0, 3):
        expected = [splitmix64(v ^ splitmix64(seed)) % 7 for v in range(100)]
        assert assign(edgeless(100), 7, "hash", seed=seed).tolist() == expected


def test_ranges_ascend_and_balance():
    graph = from_edges(np.zeros(50, int), np.arange(1, 51))
    by_vertices = assign(graph, 4, "range")
    assert (np.diff(by_vertices) >= 0).all()
    assert np.ptp(np.bincount(by_vertices)) <= 1
    by_edges = quality(graph, assign(graph, 2, "range", balance="edges"), 2)
    assert by_edges.part_arcs.tolist() == [50, 50]  # the hub alone has half of the arcs


@pytest.mark.parametrize("parts", [0, -1, 2.5, "4", None, True, 2**31])
def test_parts_that_are_no_number_of_partitions(parts):
    with pytest.raises(InputError, match="integer from 1 to"):
        assign(PATH, parts)


def test_unknown_method_lists_the_methods():
    with pytest.raises(InputError, match=", ".join(OPTIONS)):
        assign(PATH, 2, "spectral")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("hash", {"sed": 1}, "option sed=1: unknown; hash accepts seed"),
        ("hash", {"seed": -1}, "seed=-1"),
        ("metis", {"imbalance": "much"}, "imbalance='much'"),
        ("metis", {"imbalance": 0.9}, "greater than or equal to 1"),
        ("metis", {"vertex_weights": "size"}, "'one' or 'degree', or an array of numbers"),
        ("metis", {"vertex_weights": [1.0, 2.0]}, "got 2 numbers, expected one for each of the 7 vertices"),
        ("metis", {"vertex_weights": [0] * 7}, "all numbers are zero"),
        ("metis", {"vertex_weights": [1, 1, 1, np.nan, 1, 1, 1]}, "position 3"),
        ("metis", {"edge_weights": "weight"}, "no weights"),
        ("metis", {"edge_weights": [-1.0] * 12}, "position 0"),
        ("metis", {"part_shares": [1.0, 0.0]}, "positive"),
        ("metis", {"recursive": True, "contiguous": True}, "k-way"),
        ("metis", {"recursive": True, "objective": "volume"}, "k-way"),
        ("ldg", {"order": "sideways"}, "order='sideways'"),
        ("fennel", {"gamma": 1.0}, "gamma"),
        ("predefined", {}, "option assignment"),
        ("predefined", {"assignment": 3}, "path, an array"),
    ],
)
def test_bad_options_are_named(method, options, message):
    with pytest.raises(InputError) as caught:
        assign(PATH, 2, method, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_describe_themselves():
    """The command line builds flags and help from the models."""
    for name, model in OPTIONS.items():
        assert model.__doc__
        for field in model.model_json_schema()["properties"].values():
            assert field.get("description"), name

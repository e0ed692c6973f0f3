"""The reference fixtures of docs/specs/engine.md, section 6, with their exact numbers."""

from __future__ import annotations

import numpy as np
import pytest

from goffish.algorithms.components.subgraph import ConnectedComponents, MaxVertexValue
from goffish.algorithms.pagerank.subgraph import PageRank
from goffish.algorithms.paths.subgraph import BreadthFirstSearch, SingleSourceShortestPath
from goffish.gofs import build_layout
from goffish.gopher import run_program
from goffish.graph import from_edges
from goffish.partition import assign, quality
from tests.cases import grid, grid_blocks

PATH = from_edges([60, 50, 40, 30, 20], [50, 40, 30, 20, 10])
"""Six vertices with ids 60, 50, 40, 30, 20, 10 in path order."""
PATH_OWNER = np.array([0, 0, 1, 1, 0, 0], np.int32)  # labels ascend: {10, 20, 50, 60} and {30, 40}


def counts(result: object) -> tuple[int, int]:
    stats = result.stats  # type: ignore[attr-defined]
    return stats.supersteps, stats.messages


@pytest.mark.parametrize("program", [ConnectedComponents, MaxVertexValue])
def test_path_of_six(program: type) -> None:
    """The published example: 4 supersteps against 7 (8 and 35 messages)."""
    subgraphs = build_layout(PATH, PATH_OWNER, 2)
    assert subgraphs.num_subgraphs == 3
    centric = run_program(program(), subgraphs)
    vertex = run_program(program(), build_layout(PATH, PATH_OWNER, 2, finder="vertex"))
    assert counts(centric) == (4, 8)
    assert counts(vertex) == (7, 35)
    assert set(centric.to_dict().values()) == set(vertex.to_dict().values()) == {60}


@pytest.mark.parametrize(
    ("width", "height", "cut", "edges", "vertex_cc", "sssp", "vertex_sssp"),
    [
        (40, 30, 170, 2_330, (70, 163_100), (7, 340), (70, 4_660)),
        (80, 60, 340, 9_460, (140, 1_324_400), (7, 680), (140, 18_920)),
    ],
)
def test_grids_in_equal_blocks(
    width: int, height: int, cut: int, edges: int,
    vertex_cc: tuple[int, int], sssp: tuple[int, int], vertex_sssp: tuple[int, int],
) -> None:  # fmt: skip
    graph, owner = grid(width, height), grid_blocks(width, height)
    figures = quality(graph, owner, 12)
    assert (graph.num_edges, figures.edge_cut, figures.subgraphs) == (edges, cut, 12)
    assert (figures.quotient_diameter, figures.diameter_exact) == (5, True)
    blocks, vertices = build_layout(graph, owner, 12), build_layout(graph, owner, 12, finder="vertex")
    assert counts(run_program(ConnectedComponents(), blocks)) == (7, 119)
    assert counts(run_program(ConnectedComponents(), vertices)) == vertex_cc
    for program in (SingleSourceShortestPath, BreadthFirstSearch):
        assert counts(run_program(program(0), blocks)) == sssp
        assert counts(run_program(program(0), vertices)) == vertex_sssp
    distance = run_program(SingleSourceShortestPath(0), blocks).table["distance"].to_numpy()
    ids = np.arange(width * height)
    assert np.array_equal(distance, ids // width + ids % width)


def test_grid_under_random_hash_partitions_loses_most_of_the_gain() -> None:
    """The source gives 1,025 subgraphs, about 47 supersteps and 107,000 messages for one unnamed seed."""
    graph = grid(40, 30)
    layout = build_layout(graph, assign(graph, 12, "hash", seed=1), 12)
    supersteps, messages = counts(run_program(ConnectedComponents(), layout))
    assert 950 <= layout.num_subgraphs <= 1_100
    assert 35 <= supersteps <= 60
    assert 70_000 <= messages <= 140_000
    assert counts(run_program(ConnectedComponents(), build_layout(graph, grid_blocks(40, 30), 12)))[0] == 7


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_supersteps_stay_flat_while_the_vertex_diameter_grows(scale: int) -> None:
    """A W x H grid needs W + H supersteps vertex-centric and always 7 subgraph-centric."""
    width, height = 20 * scale, 15 * scale
    graph, owner = grid(width, height), grid_blocks(width, height)
    assert counts(run_program(ConnectedComponents(), build_layout(graph, owner, 12)))[0] == 7
    vertex = build_layout(graph, owner, 12, finder="vertex")
    assert counts(run_program(ConnectedComponents(), vertex))[0] == width + height


def test_zig_zag_needs_more_supersteps_than_the_quotient_diameter() -> None:
    """§6: a shortest path may weave in and out of the same subgraph; D_Q = 1, 13 supersteps."""
    src, dst = list(range(12)), list(range(1, 13))
    weight = [1.0] * 12
    hubs = {0: 13, 1: 14}
    for v in range(13):
        src.append(v)
        dst.append(hubs[v % 2])
        weight.append(1000.0)
    graph = from_edges(src, dst, weight)
    owner = np.array([v % 2 for v in range(13)] + [0, 1], np.int32)
    layout = build_layout(graph, owner, 2)
    assert (layout.num_subgraphs, quality(graph, owner, 2).quotient_diameter) == (2, 1)
    result = run_program(SingleSourceShortestPath(0), layout)
    assert counts(result)[0] == 13
    assert result.to_dict() == {**{v: float(v) for v in range(13)}, 13: 1000.0, 14: 1001.0}


def test_pagerank_runs_thirty_supersteps_by_default() -> None:
    graph, owner = grid(40, 30), grid_blocks(40, 30)
    centric = run_program(PageRank(), build_layout(graph, owner, 12))
    vertex = run_program(PageRank(), build_layout(graph, owner, 12, finder="vertex"))
    assert counts(centric)[0] == counts(vertex)[0] == 30
    a, b = (r.table["rank"].to_numpy() for r in (centric, vertex))
    assert np.abs(a - b).max() < 1e-12


@pytest.mark.slow
def test_the_public_stand_in_for_the_road_network_takes_1900_supersteps_against_7() -> None:
    """§6: a 1000 x 900 grid."""
    graph, owner = grid(1000, 900), grid_blocks(1000, 900)
    assert counts(run_program(ConnectedComponents(), build_layout(graph, owner, 12))) == (7, 119)
    vertex = build_layout(graph, owner, 12, finder="vertex")
    assert counts(run_program(ConnectedComponents(), vertex))[0] == 1900

"""METIS: what goes in, what comes out, and that it can be interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import networkx as nx
import numpy as np
import pymetis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.errors import InputError, JobError
from goffish.graph import from_edges
from goffish.kernels.subgraphs import local_components
from goffish.partition import assign, quality
from goffish.partition.links import Links, links, whole_numbers
from goffish.partition.metis import fill_empty, join_fragments
from tests.partition.partition_graphs import edgeless, grid, random_graphs, to_networkx

GRID = grid(40, 30)


def simple_networkx(graph):
    """Undirected simple graph with summed weights."""
    out = nx.Graph()
    out.add_nodes_from(range(graph.num_vertices))
    for u, v, w in to_networkx(graph).edges(data="weight"):
        if u != v:
            out.add_edge(u, v, weight=w + (out.edges[u, v]["weight"] if out.has_edge(u, v) else 0))
    return out


@pytest.mark.parametrize("parts", [2, 5, 12])
@pytest.mark.parametrize("recursive", [False, True])
def test_cut_is_the_one_metis_reports(parts, recursive):
    options = pymetis.Options(seed=3, ufactor=30, niter=10, ncuts=1, contig=0, minconn=0, objtype=0)
    adjacency = pymetis.CSRAdjacency(GRID.offsets, GRID.targets.astype(np.int64))
    reported, part = pymetis.part_graph(parts, adjacency, recursive=recursive, options=options)
    owner = assign(GRID, parts, "metis", seed=3, recursive=recursive)
    assert owner.tolist() == list(part)
    assert quality(GRID, owner, parts).edge_cut == reported


@pytest.mark.parametrize("options", [{}, {"recursive": True}, {"objective": "volume"}, {"contiguous": True}])
def test_grid_is_cut_far_better_than_by_hash(options):
    cut = quality(GRID, assign(GRID, 12, "metis", **options), 12)
    hashed = quality(GRID, assign(GRID, 12, "hash"), 12)
    assert cut.edge_cut < 0.2 * hashed.edge_cut
    assert cut.vertex_balance <= 1.1
    assert cut.empty_partitions == 0


@given(graph=random_graphs())
def test_links_are_the_undirected_simple_graph(graph):
    simple = links(graph, graph.weights)
    expected = simple_networkx(graph)
    rows = [simple.targets[a:b] for a, b in zip(simple.offsets[:-1], simple.offsets[1:], strict=True)]
    assert [row.tolist() for row in rows] == [sorted(expected[v]) for v in range(graph.num_vertices)]
    if simple.weights is not None:
        sums = [expected.edges[u, int(v)]["weight"] for u, row in enumerate(rows) for v in row]
        assert simple.weights.tolist() == sums


def test_edge_weights_steer_the_cut():
    """A ring with two light edges is cut there, with whole and with tiny fractional weights."""
    n = 40
    weight = np.full(n, 100.0)
    weight[[9, 29]] = 1.0
    for scale in (1.0, 1e-7 / 3):
        ring = from_edges(np.arange(n), np.roll(np.arange(n), -1), weight * scale)
        owner = assign(ring, 2, "metis", edge_weights="weight")
        assert quality(ring, owner, 2).edge_cut_weight == pytest.approx(2 * scale)
        given = assign(ring, 2, "metis", edge_weights=ring.weights)
        assert np.array_equal(owner, given)


def test_directed_weights_add_up():
    """0 -> 1 and 1 -> 0 count together: 3 + 3 is more than 5."""
    path = from_edges([0, 1, 1, 2, 3], [1, 0, 2, 3, 2], [3, 3, 5, 3, 3], directed=True)
    owner = assign(path, 2, "metis", edge_weights="weight")
    assert owner[0] == owner[1] != owner[2] == owner[3]


def test_lopsided_edge_weights_are_refused():
    weights = np.ones(GRID.num_arcs)
    weights[0] = 2
    with pytest.raises(InputError, match="two arcs"):
        assign(GRID, 2, edge_weights=weights)


def test_vertex_weights_are_balanced():
    heavy = np.ones(1200)
    heavy[:100] = 11.5
    owner = assign(GRID, 4, "metis", vertex_weights=heavy)
    loads = np.bincount(owner, weights=heavy)
    assert loads.max() / loads.mean() < 1.06
    star = from_edges(np.repeat([0, 1, 2, 3], 50), np.arange(4, 204))
    assert quality(star, assign(star, 4, vertex_weights="degree"), 4).arc_balance < 1.1


def test_part_shares():
    sizes = np.bincount(assign(GRID, 3, "metis", part_shares=[2, 1, 1]))
    assert sizes == pytest.approx([600, 300, 300], rel=0.05)
    assert np.bincount(assign(edgeless(100), 3, part_shares=[2, 1, 1])).tolist() == [50, 25, 25]


@given(
    values=st.lists(st.floats(0, 1e300), min_size=1, max_size=20),
    limit=st.sampled_from([2**28, 2**60]),
    smallest=st.sampled_from([0, 1]),
)
def test_whole_numbers_fit_and_keep_the_order(values, limit, smallest):
    weights = np.array(values)
    whole = whole_numbers(weights, limit, smallest)
    assert whole.min() >= smallest
    assert whole.sum() <= limit
    assert (np.diff(whole[np.argsort(weights, kind="stable")]) >= 0).all()


def test_whole_weights_stay_as_they_are():
    assert whole_numbers(np.array([1.0, 7.0, 3.0]), 2**60, 1).tolist() == [1, 7, 3]
    assert whole_numbers(np.array([0, 2]), 2**60, 0).tolist() == [0, 2]


def test_contiguous_needs_a_connected_graph():
    two = from_edges([0, 1, 5, 6], [1, 2, 6, 7], labels=np.arange(8))
    with pytest.raises(InputError, match="4 components"):
        assign(two, 2, contiguous=True)
    assert assign(two, 8, contiguous=True).tolist() == list(range(8))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), parts=st.integers(2, 25))
@pytest.mark.slow
def test_contiguous_parts_are_connected(seed, parts):
    tree = nx.random_labeled_tree(60, seed=seed)
    tree.add_edges_from(nx.gnm_random_graph(60, 20, seed=seed).edges)
    src, dst = np.array(tree.edges).T
    graph = from_edges(src, dst)
    owner = assign(graph, parts, contiguous=True, seed=seed)
    assert quality(graph, owner, parts).part_subgraphs.tolist() == [1] * parts


@given(graph=random_graphs(), parts=st.integers(1, 12), connected=st.booleans(), seed=st.integers(0, 99))
def test_repairs(graph, parts, connected, seed):
    """Parts in pieces are joined, empty ones filled, and nothing else moves."""
    simple = links(graph)
    n = graph.num_vertices
    owner = np.random.default_rng(seed).integers(0, max(parts - 1, 1), n).astype(np.int32)
    if n < parts or (
        connected and local_components(simple.offsets, simple.targets, np.zeros(n), symmetric=True)[1] != 1
    ):
        return
    if connected:
        owner = join_fragments(simple, owner, parts)
    fixed = fill_empty(simple, owner, parts, connected=connected)
    assert np.unique(fixed).size == parts
    was_empty = np.bincount(owner, minlength=parts) == 0
    assert (was_empty[fixed] | (fixed == owner)).all()
    if connected:
        assert local_components(simple.offsets, simple.targets, fixed, symmetric=True)[1] == parts


def test_everything_in_one_part_is_repaired_in_balance():
    simple = links(GRID)
    sizes = np.bincount(fill_empty(simple, np.zeros(1200, np.int32), 8, connected=False))
    assert sizes.tolist() == [150] * 8
    sizes = np.bincount(fill_empty(simple, np.zeros(1200, np.int32), 8, connected=True))
    assert sizes.min() > 50


def test_metis_crash_is_a_job_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(JobError, match=r"METIS failed on 1,200 vertices and 3 parts \(exit code 1\)"):
        assign(GRID, 3)


def test_child_process_says_what_went_wrong():
    """The log of the child ends up in the error; here: a request that is cut short."""
    from goffish.partition import metis

    child = metis.__file__.replace("metis.py", "_metis_child.py")
    request = b'{"code": "q", "sizes": [3, 2, -1, -1]}\n'
    done = subprocess.run([sys.executable, child], input=request, capture_output=True, check=False)
    assert done.returncode != 0
    assert b"incomplete" in done.stderr


def test_interrupt_ends_metis_at_once(monkeypatch):
    """METIS itself never looks at signals: this call would take minutes."""
    rng = np.random.default_rng(1)
    graph = from_edges(rng.integers(0, 30_000, 200_000), rng.integers(0, 30_000, 200_000))
    children, popen = [], subprocess.Popen
    # A Spark session of another test asks its jobs to end before it lets an interrupt through.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: children.append(popen(*a, **k)) or children[-1])
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            assign(graph, 10_000, objective="volume")
    finally:
        signal.signal(signal.SIGINT, handler)
    assert time.monotonic() - started < 4
    assert [child.returncode for child in children] == [-signal.SIGKILL]


def test_links_of_a_simple_undirected_graph_are_not_copied():
    assert isinstance(links(GRID), Links)
    assert links(GRID).targets is GRID.targets

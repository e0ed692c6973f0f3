"""Quality figures against networkx and brute force."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.graph import from_edges
from goffish.partition import assign, quality
from tests.partition.partition_graphs import edgeless, grid, random_graphs, to_networkx


def reference(graph, owner, parts):
    full = to_networkx(graph)
    plain = nx.Graph(full.to_undirected(as_view=False))
    cut = [(u, v, w) for u, v, w in full.edges(data="weight") if owner[u] != owner[v]]
    local = plain.copy()
    local.remove_edges_from([(u, v) for u, v in plain.edges if owner[u] != owner[v]])
    pieces = sorted(nx.connected_components(local), key=min)
    piece = {v: i for i, vertices in enumerate(pieces) for v in vertices}
    quotient = nx.Graph()
    quotient.add_nodes_from(range(len(pieces)))
    for u, v, _ in cut:
        a, b = piece[u], piece[v]
        quotient.add_edge(a, b, weight=1 + (quotient.edges[a, b]["weight"] if quotient.has_edge(a, b) else 0))
    foreign = {v: len({owner[u] for u in plain[v]} - {owner[v]}) for v in plain}
    volume = [sum(foreign[v] for v in plain if owner[v] == p) for p in range(parts)]
    return cut, pieces, quotient, foreign, volume


@given(graph=random_graphs(), parts=st.integers(1, 6), seed=st.integers(0, 999))
def test_every_figure(graph, parts, seed):
    n = graph.num_vertices
    owner = np.random.default_rng(seed).integers(0, parts, n).astype(np.int32)
    cut, pieces, quotient, foreign, volume = reference(graph, owner, parts)
    q = quality(graph, owner, parts)
    assert (q.parts, q.vertices, q.edges) == (parts, n, graph.num_edges)
    assert q.edge_cut == len(cut)
    assert q.edge_cut_share == (len(cut) / graph.num_edges if graph.num_edges else 0)
    assert q.edge_cut_weight == (None if graph.weights is None else sum(w for *_, w in cut))
    assert q.part_volume.tolist() == volume
    assert (q.communication_volume, q.max_communication_volume) == (sum(volume), max(volume))
    assert q.boundary_vertices == sum(f > 0 for f in foreign.values()) == q.part_boundary.sum()
    sizes = [int((owner == p).sum()) for p in range(parts)]
    assert q.part_vertices.tolist() == sizes
    assert q.empty_partitions == sizes.count(0)
    assert q.vertex_balance == pytest.approx(max(sizes) / (n / parts) if n else 1)
    arcs = [int(graph.out_degrees[owner == p].sum()) for p in range(parts)]
    assert q.part_arcs.tolist() == arcs
    assert q.arc_balance == pytest.approx(max(arcs) * parts / sum(arcs) if sum(arcs) else 1)
    assert q.part_edges.sum() + q.edge_cut == q.edges
    inside = [sum(owner[u] == owner[v] == p for u, v, _ in to_networkx(graph).edges) for p in range(parts)]
    assert q.part_edges.tolist() == inside
    assert q.subgraphs == len(pieces)
    assert q.part_subgraphs.tolist() == [sum(owner[min(c)] == p for c in pieces) for p in range(parts)]
    assert q.quotient_edges == quotient.number_of_edges()
    assert q.diameter_exact
    longest = [nx.diameter(quotient.subgraph(c)) for c in nx.connected_components(quotient)]
    assert q.quotient_diameter == max(longest, default=0)


def test_grid_fixture():
    """See docs/specs/engine.md, section 6: 12 blocks, 170 of 2,330 edges cut, quotient diameter 5."""
    v = np.arange(1200)
    q = quality(grid(40, 30), ((v // 40) // 10 * 4 + (v % 40) // 10).astype(np.int32), 12)
    assert (q.edges, q.edge_cut, q.subgraphs, q.quotient_diameter) == (2330, 170, 12, 5)
    assert q.vertex_balance == 1.0


@given(n=st.integers(1, 60), extra=st.integers(0, 30), seed=st.integers(0, 999), pieces=st.integers(1, 4))
def test_diameter_bounds(n, extra, seed, pieces):
    """Exact with any budget that suffices, otherwise at least a double sweep and never above the truth."""
    graphs = [nx.random_labeled_tree(n + 3 * i, seed=seed + i) for i in range(pieces)]
    union = nx.disjoint_union_all(graphs)
    union.add_edges_from(nx.gnm_random_graph(n, min(extra, n * (n - 1) // 2), seed=seed).edges)
    total = union.number_of_nodes()
    src, dst = np.array(list(union.edges) or [(0, 0)]).T
    graph = from_edges(src, dst, labels=np.arange(total))
    own = np.arange(total)  # every vertex its own partition: the quotient is the graph
    truth = max(nx.diameter(union.subgraph(c)) for c in nx.connected_components(union))
    assert quality(graph, own, total).quotient_diameter == truth
    quick = quality(graph, own, total, diameter_budget=0)
    assert truth / 2 <= quick.quotient_diameter <= truth
    assert not quick.diameter_exact or quick.quotient_diameter == truth


def test_a_spent_budget_is_admitted():
    own = np.arange(900)
    quick = quality(grid(30, 30), own, 900, diameter_budget=0)
    assert not quick.diameter_exact
    assert quick.quotient_diameter >= 30


def test_to_dict_is_json():
    graph = grid(5, 4)
    told = quality(graph, assign(graph, 3), 3).to_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["part_vertices"] == [int(x) for x in np.bincount(assign(graph, 3))]


@pytest.mark.parametrize("owner", [[0, 0], [0, 0, 2], [0, -1, 0], [0.0, 1.0, 0.0]])
def test_owner_that_does_not_fit(owner):
    with pytest.raises(InputError, match="owner"):
        quality(edgeless(3), np.array(owner), 2)

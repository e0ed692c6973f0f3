"""Louvain and Leiden on a whole graph: exact figures, guarantees, and the same answer on any number of threads."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import networkx as nx
import numpy as np
import pytest
from hypothesis import given

import goffish as gf
from goffish.algorithms.communities import in_memory as search
from goffish.algorithms.communities import moving, refine_kernels
from goffish.algorithms.communities.in_memory import find_communities
from goffish.algorithms.communities.levels import collapse, from_graph
from goffish.algorithms.communities.settings import Search
from goffish.errors import InputError
from tests.algorithms.communities.graphs import planted
from tests.cases import grid


@st.composite
def graphs(draw: st.DrawFn) -> gf.Graph:
    """Small graphs of every kind: loops, parallel edges, weights that may be 0, isolated vertices, directions."""
    n = draw(st.integers(1, 24))
    ends = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=70))
    weights = draw(
        st.none() | st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=len(edges), max_size=len(edges))
    )
    return gf.from_edges(
        np.array([u for u, _ in edges], np.int64), np.array([v for _, v in edges], np.int64), weights,
        labels=np.arange(n), directed=draw(st.booleans()), self_loops="keep",
        parallel=draw(st.sampled_from(["sum", "keep"])) if weights is not None else "keep",
    )  # fmt: skip


def as_networkx(graph: gf.Graph) -> Any:
    """A simple weighted graph with the same modularity: parallel edges added up."""
    src, dst, weight, _ = graph.edge_columns()
    made = nx.DiGraph() if graph.directed else nx.Graph()
    made.add_nodes_from(range(graph.num_vertices))
    for i, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        one = 1.0 if weight is None else float(weight[i])
        made.add_edge(u, v, weight=one + made.get_edge_data(u, v, {"weight": 0.0})["weight"])
    return made


def total_weight(graph: gf.Graph) -> float:
    return float(graph.num_edges if graph.weights is None else graph.weights.sum())


refines = st.sampled_from(["vertices", "leiden", "none"])


@given(graphs(), refines, st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 3))
def test_modularity_is_exact_on_every_level(graph: gf.Graph, refine: Any, resolution: float, seed: int) -> None:
    """Breaks when a loop, a weight or a direction is counted otherwise than the definition does."""
    found = gf.louvain(graph, refine=refine, resolution=resolution, seed=seed)
    if not total_weight(graph):
        assert found.modularity == 0.0
        return
    theirs = as_networkx(graph)
    for level in range(1, found.num_levels + 1):
        at = found.at_level(level)
        wanted = nx.community.modularity(theirs, at.to_sets(), resolution=resolution)
        assert at.modularity == pytest.approx(wanted, abs=1e-12)


@pytest.mark.slow
@given(graphs(), st.integers(0, 3))
def test_leiden_communities_are_connected(graph: gf.Graph, seed: int) -> None:
    found = gf.louvain(graph, refine="leiden", seed=seed)
    theirs = as_networkx(graph).to_undirected()
    theirs.remove_edges_from([(u, v) for u, v, w in theirs.edges.data("weight") if not w])
    for members in found.to_sets():
        assert nx.is_connected(theirs.subgraph(members))


@given(graphs(), refines)
def test_communities_do_not_span_components(graph: gf.Graph, refine: Any) -> None:
    found = gf.louvain(graph, refine=refine)
    component = {v: i for i, c in enumerate(nx.connected_components(as_networkx(graph).to_undirected())) for v in c}
    for members in found.to_sets():
        assert len({component[v] for v in members}) == 1


@given(graphs(), refines)
def test_levels_nest(graph: gf.Graph, refine: Any) -> None:
    found = gf.louvain(graph, refine=refine)
    for level in range(1, found.num_levels):
        fine, coarse = found.membership_at(level), found.membership_at(level + 1)
        assert len(set(zip(fine.tolist(), coarse.tolist(), strict=True))) == fine.max() + 1


@given(graphs(), st.integers(0, 5))
def test_collapsing_keeps_modularity_and_weight(graph: gf.Graph, seed: int) -> None:
    """The invariants of docs/specs/communities.md, section 3.4, for any division."""
    level = from_graph(graph)
    n = graph.num_vertices
    labels = np.random.default_rng(seed).integers(0, max(1, n // 3), n)
    _, labels = np.unique(labels, return_inverse=True)
    labels = labels.astype(level.targets.dtype)
    above = collapse(level, labels, int(labels.max()) + 1, 1)
    assert above.total == level.total
    entries = float(above.weights.sum()) + float(above.loops.sum())
    assert entries == pytest.approx(level.total)
    rows = np.repeat(np.arange(above.num_vertices), np.diff(above.offsets.view(np.int64)))
    matrix = np.zeros((above.num_vertices, above.num_vertices))
    matrix[rows, above.targets.astype(np.int64)] = above.weights
    assert np.array_equal(matrix, matrix.T)
    assert above.modularity(1.0) == pytest.approx(level.modularity_of(labels, 1.0, 1), abs=1e-12)


@given(graphs(), st.integers(0, 5))
def test_border(graph: gf.Graph, seed: int) -> None:
    """The vertices that a refinement starts from are those with a neighbour in another community, and no others."""
    level = from_graph(graph)
    labels = np.random.default_rng(seed).integers(0, 3, graph.num_vertices).astype(level.targets.dtype)
    rows = np.repeat(np.arange(level.num_vertices), np.diff(level.offsets.view(np.int64)))
    foreign = {int(v) for v, u in zip(rows, level.targets, strict=True) if labels[v] != labels[u]}
    assert set(np.flatnonzero(search.at_borders(level, labels, 2)).tolist()) == foreign


@given(graphs(), st.integers(1, 4), st.integers(0, 5))
def test_connected_pieces(graph: gf.Graph, groups: int, seed: int) -> None:
    """Two vertices share a piece when a path inside their community joins them (networkx)."""
    level = from_graph(graph)
    n = graph.num_vertices
    labels = np.random.default_rng(seed).integers(0, max(1, min(groups, n)), n).astype(level.targets.dtype)
    pieces, sizes, largest = np.empty((3, labels.size), labels.dtype)
    refine_kernels.connected_pieces(level.arcs, labels, pieces, sizes, largest)
    inside = nx.Graph()
    inside.add_nodes_from(range(labels.size))
    rows = np.repeat(np.arange(labels.size), np.diff(level.offsets.view(np.int64)))
    inside.add_edges_from((v, int(u)) for v, u in zip(rows, level.targets, strict=True) if labels[v] == labels[u])
    for piece in nx.connected_components(inside):
        assert {int(pieces[v]) for v in piece} == {max(piece)}


def test_refinement_gains_on_grids() -> None:
    graph = grid(60, 60)
    plain, refined = (
        np.mean([gf.louvain(graph, refine=r, seed=s).modularity for s in range(5)]) for r in ("none", "vertices")
    )
    assert refined > plain + 0.002


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and threads also for the small graphs of tests."""
    monkeypatch.setattr(moving, "_SEQUENTIAL", 0)
    monkeypatch.setattr(moving, "_ALONE", 0)
    monkeypatch.setattr("goffish.algorithms.communities.levels._ONE_TASK", 0)


@pytest.mark.slow
@pytest.mark.usefixtures("side_by_side")
@pytest.mark.parametrize("refine", ["vertices", "leiden"])
@pytest.mark.parametrize("blocks", [1, 2, 5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_threads_do_not_matter(refine: Any, blocks: int, weighted: bool, directed: bool) -> None:
    """Same seed and blocks, same communities on 1, 2, 3 and 5 threads, and in repeated runs."""
    graph = planted(400, groups=8, seed=3, weighted=weighted, directed=directed)
    answers = [
        find_communities(graph, Search(seed=9, refine=refine, blocks=blocks, threads=threads))
        for threads in (1, 2, 3, 5, 2)
    ]
    for other in answers[1:]:
        assert np.array_equal(other.membership, answers[0].membership)
        assert other.modularity == answers[0].modularity
        assert all(np.array_equal(a, b) for a, b in zip(other.steps, answers[0].steps, strict=True))


@pytest.mark.usefixtures("side_by_side")
@pytest.mark.parametrize("blocks", [2, 3, 8])
def test_blocks_lose_no_quality(blocks: int) -> None:
    """Vertices of different blocks that swap communities for ever would show here.

    See docs/specs/communities.md, section 3.7.
    """
    for graph in (planted(600, groups=12, seed=1), grid(20, 30)):
        alone = [find_communities(graph, Search(seed=s, blocks=1)).modularity for s in range(5)]
        side = [find_communities(graph, Search(seed=s, blocks=blocks)).modularity for s in range(5)]
        plain = [find_communities(graph, Search(seed=s, blocks=blocks, refine="none")).modularity for s in range(5)]
        assert np.mean(plain) >= np.mean(alone) - 0.03
        assert np.mean(side) >= np.mean(alone) - 0.004


def test_ring_of_cliques() -> None:
    """Eight cliques of six in a ring; the optimum is the cliques, Q = 0.8125 (docs/specs/communities.md, section 7)."""
    ring = gf.from_networkx(nx.ring_of_cliques(8, 6))
    for refine in ("vertices", "leiden", "none"):
        for seed in range(10):
            found = gf.louvain(ring, refine=refine, seed=seed)
            assert found.modularity == pytest.approx(0.8125, abs=1e-12)
            assert found.num_communities == 8


def test_karate_club() -> None:
    """See docs/specs/communities.md, section 7: between 0.38 and the optimum 0.4198 without weights."""
    club = gf.from_networkx(nx.karate_club_graph()).unweighted()
    found = [
        gf.louvain(club, seed=seed, refine=refine).modularity for seed in range(30) for refine in ("vertices", "leiden")
    ]
    assert min(found) >= 0.38
    assert max(found) == pytest.approx(0.4197896, abs=1e-6)


def test_no_worse_than_networkx() -> None:
    """Mean over seeds, on a planted graph and on Les Misérables."""
    for theirs in (nx.les_miserables_graph(), nx.planted_partition_graph(8, 30, 0.3, 0.03, seed=4)):
        graph = gf.from_networkx(theirs)
        wanted = np.mean([
            nx.community.modularity(theirs, nx.community.louvain_communities(theirs, seed=s)) for s in range(5)
        ])  # fmt: skip
        assert np.mean([gf.louvain(graph, seed=s).modularity for s in range(5)]) >= wanted - 0.003
        assert np.mean([gf.louvain(graph, seed=s, refine="leiden").modularity for s in range(5)]) >= wanted - 0.003


def test_seeds_give_an_ensemble_and_none_draws_one() -> None:
    graph = planted(500, groups=5, seed=2, mixing=0.6)
    assert len({gf.louvain(graph, seed=s).membership.tobytes() for s in range(8)}) > 1
    assert len({gf.louvain(graph, seed=None).membership.tobytes() for _ in range(8)}) > 1


def test_order_of_edges_does_not_matter() -> None:
    """networkx 6655: the answer must not depend on how the graph was put together."""
    graph = planted(300, groups=6, seed=5)
    src, dst, _, _ = graph.edge_columns()
    shuffled = np.random.default_rng(1).permutation(src.size)
    other = gf.from_edges(dst[shuffled], src[shuffled], isolated=np.arange(300))
    assert gf.louvain(graph).to_dict() == gf.louvain(other).to_dict()


@pytest.mark.parametrize("refine", ["vertices", "leiden", "none"])
def test_degenerate_graphs(refine: Any) -> None:
    """See docs/specs/communities.md, section 7."""
    none = np.empty(0, np.int64)
    empty = gf.from_edges(none, none)
    assert gf.louvain(empty, refine=refine).num_communities == 0
    lonely = gf.from_edges(none, none, isolated=[4, 7])
    assert gf.louvain(lonely, refine=refine).to_dict() == {4: 0, 7: 1}
    edge = gf.louvain(gf.from_edges([1], [2]), refine=refine)
    assert (edge.num_communities, edge.modularity) == (1, 0.0)
    loops = gf.louvain(gf.from_edges([1, 2], [1, 2], self_loops="keep"), refine=refine)
    assert (loops.num_communities, loops.modularity) == (2, 0.5)
    weightless = gf.louvain(gf.from_edges([1, 2], [2, 3], [0.0, 0.0]), refine=refine)
    assert (weightless.num_communities, weightless.modularity) == (3, 0.0)
    tiny = gf.louvain(gf.from_edges([1, 2, 3, 3, 4, 5, 6], [2, 3, 1, 4, 5, 6, 4], np.full(7, 1e-139)), refine=refine)
    assert tiny.num_communities == 2


def test_warm_start_keeps_ids() -> None:
    """A change of few edges may not rename the communities (graphify 2452, leidenalg 127)."""
    graph = planted(1000, groups=20, seed=7)
    before = gf.louvain(graph)
    names = {v: 3 * c + 100 for v, c in before.to_dict().items()}
    src, dst, _, _ = graph.edge_columns()
    rng = np.random.default_rng(0)
    kept = rng.random(src.size) > 0.015
    after = gf.louvain(
        gf.from_edges(
            np.append(src[kept], [5000, 5000]), np.append(dst[kept], [0, 1]), isolated=np.arange(1000)
        ),
        initial=names,
    )  # fmt: skip
    new = after.to_dict()
    same = sum(new[v] == names[v] for v in range(1000))
    assert same >= 990
    assert set(new.values()) <= set(names.values()) | {max(names.values()) + 1 + i for i in range(5)}
    again = gf.louvain(graph, initial=before)
    assert again.to_dict() == before.to_dict()
    assert again.describe()["community"].to_pylist() == sorted(set(before.to_dict().values()))


def test_warm_start_finds_the_few_vertices_that_have_to_move() -> None:
    """A search from nothing gives a pass up when its first vertices gain nothing; here nearly none of them does."""
    graph = planted(12_000, groups=100, seed=7)
    before = gf.louvain(graph).to_dict()
    misplaced = {v: before[(v + 6000) % 12_000] for v in (17, 5_003, 11_888)}
    found = gf.louvain(graph, initial=before | misplaced).to_dict()
    assert {v: found[v] for v in misplaced} == {v: before[v] for v in misplaced}


@given(graphs(), st.data())
def test_fixed_vertices_stay(graph: gf.Graph, data: st.DataObject) -> None:
    held = data.draw(st.dictionaries(st.integers(0, graph.num_vertices - 1), st.sampled_from(["a", "b"]), max_size=6))
    for refine in ("vertices", "leiden", "none"):
        found = gf.louvain(graph, fixed=held, refine=refine).to_dict()
        for u in held:
            for v in held:
                assert (found[u] == found[v]) == (held[u] == held[v])


def test_fixed_labels_keep_their_community_of_the_start() -> None:
    graph = gf.from_networkx(nx.ring_of_cliques(4, 5))
    start = {v: v // 5 for v in range(20)}
    start[0] = 2
    found = gf.louvain(graph, initial=start, fixed=[0]).to_dict()
    assert found[0] == found[10] != found[1]
    assert gf.louvain(graph, initial=start).to_dict()[0] == 0
    with pytest.raises(InputError, match="vertex 3 has no community in initial"):
        gf.louvain(graph, initial={0: 1}, fixed=[3])
    with pytest.raises(InputError, match="99"):
        gf.louvain(graph, fixed={99: 1})


def test_small_communities_are_joined() -> None:
    graph = gf.from_networkx(nx.ring_of_cliques(6, 4))
    found = gf.louvain(graph, resolution=20.0, min_size=4)
    assert min(len(members) for members in found.to_sets()) >= 4
    wanted = nx.community.modularity(nx.ring_of_cliques(6, 4), found.to_sets(), resolution=20.0)
    assert found.modularity == pytest.approx(wanted, abs=1e-12)


def test_levels_can_be_limited_and_chosen() -> None:
    graph = grid(30, 30)
    whole = gf.louvain(graph)
    assert whole.num_levels >= 3
    finest = gf.louvain(graph, level=1)
    assert finest.num_communities == int(whole.maps[0].max()) + 1
    assert gf.louvain(graph, max_levels=1, refine="none").num_levels == 1
    with pytest.raises(InputError, match="must be from 1 to"):
        gf.louvain(graph, level=50)


def test_passes_are_limited() -> None:
    """A hard limit, so that no input can loop for ever (networkx 5704; scikit-network on soc-Epinions1)."""
    graph = planted(500, groups=5, seed=2, mixing=0.6)
    assert max(find_communities(graph, Search(threshold=0.0, max_passes=2)).passes) == 2


@pytest.mark.parametrize("parts", [None, 2])
def test_least_gain_stops_smaller_moves(parts: int | None) -> None:
    """On a ring of n vertices, joining a neighbour wins (1 - 2 / n) / 2 of the degree: 0.4 for ten vertices."""
    ring = gf.from_networkx(nx.cycle_graph(10))
    assert gf.run("louvain", ring, parts=parts).summary["communities"] < 10
    assert gf.run("louvain", ring, parts=parts, least_gain=0.39, refine="leiden").summary["communities"] < 10
    assert gf.run("louvain", ring, parts=parts, least_gain=0.99).summary["communities"] == 10
    assert gf.louvain(ring, least_gain=0.41).num_communities == 10


def test_truth_is_compared() -> None:
    graph = planted(400, groups=8, seed=3, mixing=0.05)
    found = gf.louvain(graph, truth=np.arange(400) * 8 // 400)
    assert found.summary["nmi"] == pytest.approx(1.0)
    assert found.summary["compared"] == 400


@pytest.mark.slow
def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    graph = gf.from_edges(*_random_pairs(300_000, 3_000_000), labels=np.arange(300_000))
    gf.louvain(graph, note=told.append, threads=1)
    assert told
    assert told[0].startswith("stage 1, pass ")
    assert "modularity +0." in told[0]


def _random_pairs(n: int, m: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(8)
    return rng.integers(0, n, m), rng.integers(0, n, m)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"seed": "soon"}, "integer of at least 0, or random"),
        ({"resolution": -1.0}, "resolution=-1.0"),
        ({"resolution": float("nan")}, "resolution=nan"),
        ({"refine": "twice"}, "refine='twice'"),
        ({"level": 0}, "level=0"),
        ({"max_passes": 0}, "max_passes=0"),
        ({"threshold": -1}, "threshold=-1"),
        ({"least_gain": 1.0}, "least_gain=1.0"),
        ({"min_size": 0}, "min_size=0"),
        ({"initial": "nowhere.parquet"}, "existing table file"),
        ({"initial": {"a": 1}}, "initial"),
        ({"blocks": 0}, "blocks=0"),
        ({"fixed": {1: 0}, "min_size": 3}, "fixed and min_size are mutually exclusive"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        gf.louvain(gf.from_edges([1, 2], [2, 3]), **options)

"""Random partitioned graphs and what networkx says about them, for the betweenness on the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from goffish.algorithms.betweenness.subgraph.messages import Kind, Phase
from goffish.algorithms.betweenness.subgraph.program import PartitionedBetweenness
from goffish.gofs import PartitionedGraph, build_layout
from goffish.gopher import BatchStep, Result, SubgraphBatch, run_program
from goffish.graph import Graph, from_edges
from goffish.partition.cut import partition_graph

FAMILIES = ("tree", "forest", "random", "preferential", "small-world", "grid", "tails")
PARTS = ("scattered", "contiguous", "metis")


def make_graph(family: str, n: int, seed: int, *, weighted: bool = False, directed: bool = False) -> nx.Graph:
    rng = np.random.default_rng(seed)
    if family in ("tree", "forest"):
        graph = nx.empty_graph(n)
        keep = 1.0 if family == "tree" else 0.8
        graph.add_edges_from((v, int(rng.integers(0, v))) for v in range(1, n) if rng.random() < keep)
    elif family == "preferential":
        graph = nx.barabasi_albert_graph(max(n, 3), 2, seed=seed)
    elif family == "small-world":
        graph = nx.watts_strogatz_graph(max(n, 5), 4, 0.2, seed=seed)
    elif family == "grid":
        width = 1 + n // 6
        graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(max(1, n // width), width))
    elif family == "tails":
        core = max(3, n // 2)
        graph = nx.gnm_random_graph(core, 2 * core, seed=seed)
        graph.add_edges_from((v, int(rng.integers(0, v))) for v in range(core, n))
    else:
        graph = nx.gnm_random_graph(n, int(rng.integers(0, 2 * n + 1)), seed=seed)
    shuffled = rng.permutation(graph.number_of_nodes()).tolist()
    out = nx.DiGraph() if directed else nx.Graph()
    out.add_nodes_from(range(graph.number_of_nodes()))
    for u, v in graph.edges:
        for a, b in ((u, v), (v, u)) if directed and rng.random() < 0.5 else ((u, v),):
            out.add_edge(shuffled[a], shuffled[b])
    if weighted:
        for u, v in out.edges:
            out.edges[u, v]["weight"] = int(rng.integers(1, 11))
    return out


def to_graph(graph: nx.Graph) -> Graph:
    edges = list(graph.edges(data="weight"))
    src, dst = (np.array([edge[i] for edge in edges], np.int64) for i in (0, 1))
    weight = np.array([edge[2] for edge in edges], float) if nx.is_weighted(graph) and edges else None
    return from_edges(src, dst, weight, directed=graph.is_directed(), labels=np.arange(graph.number_of_nodes()))


def cut(graph: nx.Graph, parts: str, k: int, seed: int, finder: str = "components") -> PartitionedGraph:
    n = graph.number_of_nodes()
    if parts == "metis":
        return partition_graph(to_graph(graph), k, "metis", units=finder)  # type: ignore[arg-type]
    owner = np.random.default_rng(seed).integers(0, k, n) if parts == "scattered" else np.arange(n) * k // max(n, 1)
    return build_layout(to_graph(graph), owner.astype(np.int32), k, finder=finder)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Case:
    """A graph, and how it is cut."""

    family: str
    n: int
    seed: int
    parts: str
    k: int
    weighted: bool
    directed: bool = False

    def graph(self) -> nx.Graph:
        return make_graph(self.family, self.n, self.seed, weighted=self.weighted, directed=self.directed)

    def layout(self, finder: str = "components") -> PartitionedGraph:
        return cut(self.graph(), self.parts, self.k, self.seed, finder)


@st.composite
def cases(draw: st.DrawFn, families: tuple[str, ...] = FAMILIES, largest: int = 60, directed: bool = False) -> Case:
    return Case(
        draw(st.sampled_from(families)), draw(st.integers(1, largest)), draw(st.integers(0, 10_000)),
        draw(st.sampled_from(PARTS)), draw(st.sampled_from((1, 2, 3, 6))), draw(st.booleans()), directed,
    )  # fmt: skip


def brandes(graph: nx.Graph) -> np.ndarray:
    weight = "weight" if nx.is_weighted(graph) and graph.number_of_edges() else None
    found = nx.betweenness_centrality(graph, normalized=False, weight=weight)
    return np.array([found[v] for v in range(graph.number_of_nodes())])


def run(
    layout: PartitionedGraph, program: PartitionedBetweenness | None = None, threads: int = 2, **options: Any
) -> Result:
    return run_program(program or PartitionedBetweenness(**options), layout, threads=threads)


def values(result: Result) -> np.ndarray:
    found: np.ndarray = result.table["betweenness"].to_numpy()
    return found


def figure(result: Result, name: str) -> float:
    assert result.stats is not None
    return float(result.stats.aggregates[name])


class Columns(PartitionedBetweenness):
    """Shows columns of the state."""

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        names = ("betweenness", "alive", "omega", "component")
        remote_parent = sg["parent"] >= sg.num_vertices
        return {**{name: sg[name] for name in names}, "remote_parent": remote_parent & ~sg["alive"]}


class Recorder(PartitionedBetweenness):
    """Keeps what is known of the first slot after stage 2, and messages, in numbers as read."""

    def __init__(self, layout: PartitionedGraph, **options: Any) -> None:
        super().__init__(**options)
        self.ids = layout.vertex_ids()
        self.distance = np.full(layout.num_vertices, np.inf)
        self.predecessors: dict[int, set[int]] = {v: set() for v in range(layout.num_vertices)}
        self.counted = np.zeros(layout.num_vertices, np.int64)
        self.leaf: set[tuple[int, int]] = set()

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        phase, ids = Phase(int(batch["phase"][0])), self.ids
        mail = step.messages
        for row in mail[mail["kind"] == Kind.LEAF]:
            self.leaf.add((int(ids[row["sender"]]), int(ids[batch.start + row["vertex"]])))
        arcs = batch.out_remotes()
        far = np.ones(arcs.source.size) if batch.weights is None else batch.weights[batch.targets < 0]
        unit = batch.subgraph_of_vertex()
        for row in mail[mail["kind"] == Kind.SUCC]:
            # A successor speaks to a subgraph: which of its vertices are meant is known by the distances.
            near = (arcs.vertex == row["sender"]) & (unit[arcs.source] == row["subgraph"])
            meant = arcs.source[near & (batch["distance_0"][arcs.source] + far == row["value"])]
            self.predecessors[int(ids[row["sender"]])].update(ids[batch.start + meant].tolist())
        if phase is Phase.SUCCESSORS and step.aggregated("sent") == 0:
            distance, own = batch["distance_0"], batch.vertex_ids
            self.distance[own] = distance
            self.counted[own] = batch["wait_0"]
            weights = np.ones(batch.targets.size) if batch.in_weights is None else batch.in_weights
            for v in range(batch.num_vertices):
                for arc in range(batch.in_offsets[v], batch.in_offsets[v + 1]):
                    if (t := batch.in_targets[arc]) >= 0:
                        u = batch.subgraph_offsets[unit[v]] + t
                        if np.isfinite(distance[u]) and distance[u] + weights[arc] == distance[v]:
                            self.predecessors[int(own[v])].add(int(own[u]))
        super().compute_batch(batch, step)

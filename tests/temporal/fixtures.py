"""Series with exact answers (docs/specs/time-series.md, section 7), and random ones for property tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from goffish.gofs import PartitionedGraph, build_layout
from goffish.gofs.series import Attribute, InstanceData, Series, SeriesSchema, write_series
from goffish.graph import Graph, from_edges
from tests.cases import Case, cases, grid, grid_blocks


@dataclass(frozen=True)
class SeriesCase:
    """A graph, how it is cut, and its instances; `expected`: docs/specs/time-series.md, section 7."""

    graph: Graph
    layout: PartitionedGraph
    schema: SeriesSchema
    instances: Sequence[InstanceData]
    expected: dict[str, Any] = field(default_factory=dict)

    def write(self, path: Path, *, pack: int | str = 10, bins: int = 5) -> PartitionedGraph:
        return write_series(self.layout, path, self.schema, self.instances, pack=pack, bins=bins, unit="1")

    def __repr__(self) -> str:
        return f"SeriesCase({self.graph!r}, {len(self.instances)} instances, {', '.join(self.schema)})"


def tiny() -> SeriesCase:
    """Four vertices, two partitions, three instances of length 5; ``edge.latency``."""
    source, target = ["S", "S", "A", "E"], ["A", "E", "C", "C"]
    by_edge = {("S", "A"): (4, 5, 2), ("S", "E"): (5, 5, 5), ("A", "C"): (3, 6, 4), ("E", "C"): (2, 9, 1)}
    graph = from_edges(source, target, directed=True)
    labels = graph.label_column().to_pylist()
    owner = np.array([0 if label in "SA" else 1 for label in labels], np.int32)
    src, dst, _, _ = graph.edge_columns()
    ends = [(labels[u], labels[v]) for u, v in zip(src, dst, strict=True)]
    instances = [
        InstanceData(5 * i, 5 * i + 5, {"edge.latency": np.array([by_edge[e][i] for e in ends])}) for i in range(3)
    ]
    expected = {
        "window": 5,
        "source": "S",
        "arrival": {"S": 0, "A": 4, "E": 5, "C": 11},
        "timestep": {"S": 0, "A": 0, "E": 0, "C": 2},
        "supersteps": [2, 1, 2],
        "departure_arrival_C": 7,
    }
    schema = SeriesSchema(edge=(Attribute("latency", "int64"),))
    return SeriesCase(graph, build_layout(graph, owner, 2), schema, instances, expected)


def grid_latency(instances: int = 12) -> SeriesCase:
    """The grid of 40 x 30 in 12 blocks, instances of length 20; ``edge.latency``, semantics W from vertex 0."""
    graph = grid(40, 30)
    src, dst, _, _ = graph.edge_columns()
    ends = src.astype(np.int64) + dst
    data = [InstanceData(20 * i, 20 * i + 20, {"edge.latency": 1 + (ends * 7 + 3 * i) % 9}) for i in range(instances)]
    expected = {
        "window": 20,
        "source": 0,
        "finalised": [24, 62, 112, 149, 194, 228, 173, 154, 104],
        "largest": 180,
        "arrival_1199": 179,
        "arrival_620": 90,
        "sum": 124_693,
        "supersteps": [1, 3, 4, 4, 4, 3, 4, 3, 3],
        "static_1199": 183,
    }
    layout = build_layout(graph, grid_blocks(40, 30), 12)
    return SeriesCase(graph, layout, SeriesSchema(edge=(Attribute("latency", "int64"),)), data, expected)


def grid_meme(meme: str = "mu") -> SeriesCase:
    """The same grid with 20 instances of who holds a meme; ``vertex.memes``."""
    graph = grid(40, 30)
    v = np.arange(1200)
    held = [((7 * v + 3 * t) % 10 < 4) & (v % 40 <= 2 * t + 1) for t in range(20)]
    data = [InstanceData(t, t + 1, {"vertex.memes": [[meme] if h else [] for h in at]}) for t, at in enumerate(held)]
    expected = {
        "coloured": 600,
        "new": [30] * 20,
        "sum_of_times": 5700,
        "supersteps": [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2],
        "counts": [
            30, 60, 90, 90, 120, 150, 150, 180, 210, 240, 270, 300, 330, 330, 360, 390, 390, 420, 450, 480,
        ],
        "total": 5040,
    }  # fmt: skip
    schema = SeriesSchema(vertex=(Attribute("memes", "list<string>", ()),))
    return SeriesCase(graph, build_layout(graph, grid_blocks(40, 30), 12), schema, data, expected)


@st.composite
def random_series(draw: st.DrawFn, largest: int = 30, longest: int = 13) -> SeriesCase:
    """Graphs of every family with attributes of every kind: full and partial columns, with defaults and without."""
    case: Case = draw(cases(largest=largest))
    n, m = case.graph.num_vertices, case.graph.num_edges
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    share = draw(st.sampled_from((0.0, 0.05, 0.5, 1.0)))
    instances, at = [], 0
    for _ in range(draw(st.integers(0, longest))):
        start = at + int(rng.integers(0, 3))
        at = start + int(rng.integers(1, 5))
        some = rng.random(n) < share
        values: dict[str, Any] = {
            "edge.latency": rng.integers(1, 50, m),
            "vertex.load": np.where(some, rng.random(n), -1.0),
            "vertex.name": [f"name {x}" if y else "none" for x, y in zip(rng.integers(0, 9, n), some, strict=True)],
            "vertex.memes": [["a", "b", "a"][: rng.integers(1, 4)] if y else [] for y in some],
            "edge.exists": rng.random(m) < share,
            "edge.codes": [list(range(rng.integers(0, 3))) for _ in range(m)],
        }
        chosen = {name: column for name, column in values.items() if name != "edge.exists" or rng.random() < 0.8}
        instances.append(InstanceData(start, at, chosen))
    schema = SeriesSchema(
        vertex=(Attribute("load", "float64", -1.0), Attribute("name", "string", "none"),
                Attribute("memes", "list<string>", ())),
        edge=(Attribute("latency", "int32"), Attribute("exists", "bool", False), Attribute("codes", "list<int64>")),
    )  # fmt: skip
    return SeriesCase(case.graph, case.layout(), schema, instances)


#: What an attribute of `random_series` is where an instance says nothing.
DEFAULTS = {"vertex.load": -1.0, "vertex.name": "none", "vertex.memes": [], "edge.exists": False}


def expected_column(case: SeriesCase, instance: int, name: str) -> list[Any]:
    count = case.graph.num_vertices if name.startswith("vertex") else case.graph.num_edges
    values = case.instances[instance].values.get(name)
    return [DEFAULTS[name]] * count if values is None else list(values)


def check_all_values(case: SeriesCase, series: Series) -> None:
    """Every value by partition, by subgraph and over the whole graph, against the arrays that were written."""
    edges = {}
    src, dst, _, _ = case.graph.edge_columns()
    for number, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        edges[u, v] = number
        if not case.graph.directed:
            edges[v, u] = number
    starts = case.layout.vertex_starts
    original = case.layout.vertex_ids()
    for i in range(len(series)):
        instance = next(iter(series.instances(int(series.starts[i]), int(series.starts[i]) + 1)))
        for name in case.schema:
            want = expected_column(case, i, name)
            place, attribute = name.split(".")
            assert getattr(instance, place)(attribute).to_pylist() == want, (i, name)
            for part in case.layout.slices():
                got = series.values(part.partition, i, name)
                got = got.tolist() if isinstance(got, np.ndarray) else got.to_pylist()
                elements = series.elements(part.partition)
                if place == "vertex":
                    assert got == [want[v] for v in part.vertex_ids]
                else:
                    for arcs, row in ((part.out_arcs, elements.edge_row), (part.in_arcs, elements.in_edge_row)):
                        for a, (u, v) in enumerate(arc_ends(part, arcs, original, starts)):
                            key = (u, v) if arcs is part.out_arcs else (v, u)
                            assert got[row[a]] == want[edges[key]]
                offsets = elements.offsets(place).tolist()
                assert len(got) == offsets[-1]
                for s, (low, high) in enumerate(pairwise(offsets)):
                    alone = series.values(part.partition, i, name, bins=elements.bins_of([s]))
                    assert alone[low:high].tolist() == got[low:high]


def arc_ends(part: Any, arcs: Any, original: np.ndarray, starts: np.ndarray) -> list[tuple[int, int]]:
    """Both ends of every arc of a slice as the graph was read, arc by arc."""
    found = []
    for s in range(part.num_subgraphs):
        for v in range(part.subgraph_offsets[s], part.subgraph_offsets[s + 1]):
            for a in range(arcs.offsets[v], arcs.offsets[v + 1]):
                t = int(arcs.targets[a])
                here = part.vertex_start + part.subgraph_offsets[s] + t
                number = here if t >= 0 else arcs.remote_vertex[arcs.remote_offsets[s] + ~t]
                found.append((int(part.vertex_ids[v]), int(original[number])))
    return found


def track(graph: nx.Graph | nx.DiGraph, holders: list[set[int]]) -> dict[int, int]:
    """Meme tracking by breadth-first search in every timestep (docs/specs/time-series.md, section 4.2)."""
    colour = dict.fromkeys(holders[0], 0) if holders else {}
    for t in range(1, len(holders)):
        queue = list(colour)
        for v in queue:
            for w in graph.neighbors(v):
                if w not in colour and w in holders[t]:
                    colour[w] = t
                    queue.append(w)
    return colour

"""Components and ranks of whole instances in memory, against the engine and networkx."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.algorithms.components.api import connected_components
from goffish.errors import InputError
from goffish.gofs import build_layout
from goffish.gofs.series import Attribute, InstanceData, Series, SeriesSchema, open_series, write_series
from goffish.graph import Graph, from_edges
from goffish.temporal import in_memory as whole
from goffish.temporal.api import run_series
from tests.temporal.programs.test_instances import by_timestep, flags


@dataclass(frozen=True)
class Case:
    """A random template with labels that are not in the order of the numbers, and what exists in its instances."""

    graph: Graph
    labels: Any
    parts: int
    seed: int
    share: int
    instances: int
    with_vertices: bool

    def exists(self, t: int) -> tuple[Any, Any, Any]:
        """Ends of all edges in the order of their attributes, which of them exist, and which vertices."""
        vertex, edge = flags(self.graph.directed, self.seed, self.share)
        src, dst = self.graph.arc_sources().astype(np.int64), self.graph.targets.astype(np.int64)
        once = np.ones(src.size, np.bool_) if self.graph.directed else src <= dst
        alive = vertex(np.arange(self.graph.num_vertices), t)
        ends = np.stack((src[once], dst[once]))
        return ends, edge(*ends, t), alive if self.with_vertices else np.ones(alive.size, np.bool_)

    def write(self, path: Path) -> Series:
        data = []
        for t in range(self.instances):
            _, there, alive = self.exists(t)
            data.append(InstanceData(t, t + 1, {"edge.exists": there, "vertex.exists": alive}))
            if not self.with_vertices:
                del data[-1].values["vertex.exists"]
        owner = (np.arange(self.graph.num_vertices) * 7 + self.seed) % self.parts
        schema = SeriesSchema(
            vertex=(Attribute("exists", "bool", False),) if self.with_vertices else (),
            edge=(Attribute("exists", "bool", False),),
        )
        layout = build_layout(self.graph, owner.astype(np.int32), self.parts)
        write_series(layout, path, schema, data, pack=2, bins=2, unit="1")
        return open_series(path)

    def networkx(self, t: int) -> Any:
        ends, there, alive = self.exists(t)
        found = nx.DiGraph() if self.graph.directed else nx.Graph()
        found.add_nodes_from(self.labels[alive].tolist())
        keep = there & alive[ends[0]] & alive[ends[1]]
        found.add_edges_from(self.labels[ends[:, keep]].T.tolist())
        return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 14))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
    ends = np.array(edges or np.empty((0, 2)), np.int64).reshape(-1, 2)
    # Texts, or numbers that descend: the rows of the answer are in the order of the labels, not of the vertices.
    names = np.array([f"v{(i * 5) % 17}" for i in range(n)]) if draw(st.booleans()) else np.arange(n)[::-1] * 10
    graph = from_edges(ends[:, 0], ends[:, 1], directed=draw(st.booleans()), labels=names.tolist(), self_loops="keep")
    return Case(
        graph, names, draw(st.integers(1, 3)), draw(st.integers(0, 999)), draw(st.sampled_from([4, 8, 10])),
        draw(st.integers(1, 3)), draw(st.booleans()),
    )  # fmt: skip


def both(application: str, series: Series, **options: Any) -> Iterator[Any]:
    """The answer in memory and that of the engine."""
    for engine in ("auto", "local"):
        found = run_series(application, series, engine=engine, threads=2 if engine == "auto" else 1, **options)
        assert (found.stats is None) == (engine == "auto")
        yield found


@given(cases())
def test_components_of_random_series(case: Case) -> None:
    with TemporaryDirectory() as folder, case.write(Path(folder) / "s") as series:
        ours, engine = both("components", series)
    assert ours.table.equals(engine.table)
    assert ours.timesteps.select(["timestep", "start", "end"]).equals(
        engine.timesteps.select(["timestep", "start", "end"])
    )
    found = by_timestep(ours.table, "component")
    number = {label: i for i, label in enumerate(case.labels.tolist())}
    for t in range(case.instances):
        sets = list(nx.connected_components(nx.Graph(case.networkx(t))))
        assert found.get(t, {}) == {v: max(c, key=number.__getitem__) for c in sets for v in c}
        assert ours.timesteps["components"][t].as_py() == len(sets)


@given(cases(), st.integers(1, 9), st.sampled_from([0.0, 0.02, 0.1]))
def test_ranks_of_random_series(case: Case, iterations: int, tolerance: float) -> None:
    with TemporaryDirectory() as folder, case.write(Path(folder) / "s") as series:
        ours, engine = both("pagerank", series, iterations=iterations, tolerance=tolerance)
        exact = run_series("pagerank", series, iterations=400, tolerance=1e-12)
    assert ours.table.drop_columns("rank").equals(engine.table.drop_columns("rank"))
    assert np.allclose(ours.table["rank"], engine.table["rank"], rtol=0, atol=1e-12)
    # The engine takes two supersteps before the first update.
    assert ours.timesteps["updates"].to_pylist() == [s - 2 for s in engine.timesteps["supersteps"].to_pylist()]
    ranks = by_timestep(exact.table, "rank")
    for t in range(case.instances):
        graph = case.networkx(t)
        assert ranks.get(t, {}) == pytest.approx(nx.pagerank(graph, tol=1e-13, max_iter=1000), abs=1e-9)


def test_without_flags_and_with_a_range(tmp_path: Path) -> None:
    graph = from_edges([0, 1, 3, 3], [1, 2, 4, 3], directed=True, self_loops="keep")
    data = [InstanceData(t, t + 1, {"edge.heavy": [t > 0, True, True, False]}) for t in range(3)]
    schema = SeriesSchema(edge=(Attribute("heavy", "bool", False),))
    write_series(build_layout(graph, np.array([0, 1, 0, 1, 0], np.int32), 2), tmp_path / "s", schema, data, unit="1")
    series = open_series(tmp_path / "s")
    for options in ({}, {"start": 1, "end": 2}, {"edge_exists": "heavy"}):
        ours, engine = both("components", series, **options)
        assert ours.table.equals(engine.table)
        ours, engine = both("pagerank", series, **options)
        assert np.allclose(ours.table["rank"], engine.table["rank"], rtol=0, atol=1e-12)
    assert run_series("components", series, edge_exists="heavy").table["component"].to_pylist()[:3] == [0, 2, 2]
    first = run_series("components", series, end=1).table
    static = connected_components(graph).table
    assert first.select(["vertex", "component"]).equals(static)
    assert run_series("components", series, start=1, temporal_parallelism=3).summary == {
        "timesteps": 2, "components": 4,
    }  # fmt: skip
    with pytest.raises(InputError, match="light"):
        run_series("components", series, edge_exists="light")
    with pytest.raises(InputError, match="engine='fast': choose one of auto, local, mpi, spark"):
        run_series("components", series, engine="fast")
    with pytest.raises(InputError, match="temporal_parallelism"):
        run_series("components", series, temporal_parallelism=0)


def test_auto_leaves_to_the_engine_what_only_it_can_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = from_edges([0, 1], [1, 2])
    data = [InstanceData(0, 1, {"edge.exists": [True, False]})]
    schema = SeriesSchema(edge=(Attribute("exists", "bool", False),))
    write_series(graph, tmp_path / "s", schema, data, unit="1")
    assert run_series("components", tmp_path / "s").stats is None
    kept = run_series("components", tmp_path / "s", checkpoint_dir=tmp_path / "c", checkpoint_every=1)
    assert kept.stats is not None and kept.stats.engine == "local" and any((tmp_path / "c").iterdir())
    monkeypatch.setattr(whole, "MOST_ARCS", 3)
    assert run_series("components", tmp_path / "s").stats is not None

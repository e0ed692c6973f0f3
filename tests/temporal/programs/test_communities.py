"""Communities of stored series against Louvain of graphs that networkx made of each instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.temporal.build import build_from_events
from goffish.temporal.evolution import community_evolution
from goffish.temporal.instance_graph import graphs_of
from tests.gopher.mpi_jobs import mpirun


def planted(seed: int) -> pa.Table:
    """Two groups of ten vertices that talk among themselves in six windows; from the fourth on one of them is split."""
    rng = np.random.default_rng(seed)
    rows = []
    for window in range(6):
        groups = (
            [np.arange(10), np.arange(10, 20)] if window < 3 else [np.arange(5), np.arange(5, 10), np.arange(10, 20)]
        )
        for group in groups:
            ends = rng.choice(group, (60, 2))
            rows.append(np.column_stack((ends, np.full(60, window * 10) + rng.integers(0, 10, 60))))
    source, target, time = np.concatenate(rows).T
    return pa.table({"source": source, "target": target, "timestamp": time, "weight": rng.integers(1, 5, time.size)})


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.slow
def test_same_as_graph_by_graph(tmp_path: Path, seed: int, weighted: bool) -> None:
    events = planted(seed)
    attributes: dict[str, Any] = {"weight": ("weight", "sum")} if weighted else {"n": "count"}
    build_from_events(events, tmp_path / "s", window=10, start=0, time_unit="1", parts=3, pack=4, attributes=attributes)
    found = gf.run_series("communities", tmp_path / "s", threads=2)
    expected = []
    for window in range(6):
        graph = nx.Graph()
        for row in events.to_pylist():
            u, v = row["source"], row["target"]
            if row["timestamp"] // 10 == window and u != v:
                before = graph.get_edge_data(u, v, {"weight": 0})["weight"]
                graph.add_edge(u, v, weight=before + row["weight"] if weighted else 1)
        edges = sorted((min(u, v), max(u, v), d) for u, v, d in graph.edges(data="weight"))
        source, target, weight = (np.array(column) for column in zip(*edges, strict=True))
        own = gf.louvain(gf.from_edges(source, target, weight.astype(float) if weighted else None), threads=1)
        expected.append((own.table["vertex"].combine_chunks(), own.table["community"].to_numpy()))
        assert found.timesteps["modularity"][window].as_py() == pytest.approx(own.modularity, abs=1e-12)
    evolution = community_evolution(expected)
    assert found.table.to_pydict() == evolution.members.select(found.table.column_names).to_pydict()
    assert found.events.to_pydict() == evolution.events.to_pydict()
    assert found.summary["split"] >= 1
    some = gf.run_series("communities", tmp_path / "s", start=20, end=50, threads=1)
    assert some.timesteps["timestep"].to_pylist() == [2, 3, 4]


def divided(store: Path, **engine: Any) -> Any:
    """Communities of each instance by Louvain on its partitioned graph, and how they go on."""
    series = gf.open_series(store)
    graphs = graphs_of(series)
    parts = [gf.run("louvain", graphs.partitioned(one), **engine).table for one in series.instances()]
    return community_evolution([(part["vertex"].combine_chunks(), part["community"].to_numpy()) for part in parts])


@pytest.mark.parametrize("directed", [False, True])
def test_on_the_engine(tmp_path: Path, directed: bool) -> None:
    """Louvain of every instance in the partitions of the store; ids last, and threads change nothing."""
    build_from_events(
        planted(1), tmp_path / "s", window=10, start=0, time_unit="1", parts=3, directed=directed,
        attributes={"weight": ("weight", "sum")},
    )  # fmt: skip
    found = gf.run_series("communities", tmp_path / "s", engine="local", threads=2)
    expected = divided(tmp_path / "s", engine="local", threads=1)
    assert found.table.to_pydict() == expected.members.select(found.table.column_names).to_pydict()
    assert found.events.to_pydict() == expected.events.to_pydict()
    assert found.summary["split"] >= 1 and min(found.timesteps["modularity"].to_pylist()) > 0.3
    some = gf.run_series("communities", tmp_path / "s", engine="local", start=20, end=50)
    assert some.timesteps["timestep"].to_pylist() == [2, 3, 4]


_ON_RANKS = """
import json, sys
from mpi4py import MPI
import goffish as gf
found = gf.run_series("communities", sys.argv[1], engine="mpi", comm=MPI.COMM_WORLD)
if MPI.COMM_WORLD.rank == 0:
    json.dump([found.table.to_pydict(), found.events.to_pydict(), found.summary], open(sys.argv[2], "w"))
"""


@pytest.mark.slow
def test_on_ranks(tmp_path: Path) -> None:
    build_from_events(planted(2), tmp_path / "s", window=10, start=0, time_unit="1", parts=3)
    code, _, error = mpirun(2, "-m", "mpi4py", "-c", _ON_RANKS, tmp_path / "s", tmp_path / "found.json")
    assert code == 0, error
    one = gf.run_series("communities", tmp_path / "s", engine="local")
    assert json.loads((tmp_path / "found.json").read_text()) == [
        one.table.to_pydict(), one.events.to_pydict(), one.summary
    ]  # fmt: skip


def test_what_is_refused(tmp_path: Path) -> None:
    build_from_events(planted(0), tmp_path / "s", window=10, start=0, time_unit="1")
    with pytest.raises(InputError, match=r"no attribute 'edge.amount' in this series"):
        gf.run_series("communities", tmp_path / "s", weight="amount")
    with pytest.raises(InputError, match=r"threshold=0"):
        gf.run_series("communities", tmp_path / "s", threshold=0)
    with pytest.raises(InputError, match=r"communities: checkpoint_dir does not apply: Louvain runs on one"):
        gf.run_series("communities", tmp_path / "s", checkpoint_dir=tmp_path / "c")
    with pytest.raises(InputError, match=r"communities: temporal_parallelism does not apply"):
        gf.run_series("communities", tmp_path / "s", engine="local", temporal_parallelism=2)

"""The three patterns as Spark jobs over a stored series, against plain Python over its instances."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from goffish.errors import InputError
from goffish.gofs.series import Series, open_series
from goffish.spark import iterate_instances, map_instances, motifs, series_frames
from goffish.temporal.build import build_from_events
from goffish.temporal.instance_graph import InstanceGraphs


@pytest.fixture(scope="module", params=[True, False], ids=["directed", "undirected"])
def series(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Series:
    """24 vertices with texts for labels, 7 instances in packs of 3, 3 partitions."""
    rng = np.random.default_rng(5)
    names = np.array([f"v{i:02d}" for i in range(24)])
    events = pa.table({
        "source": names[rng.integers(0, 24, 120)], "target": names[rng.integers(0, 24, 120)],
        "timestamp": rng.integers(0, 70, 120), "amount": rng.integers(1, 9, 120),
    })  # fmt: skip
    path = tmp_path_factory.mktemp("series") / "store"
    build_from_events(
        events, path, window=10, start=0, time_unit="1", directed=request.param, parts=3, pack=3, bins=2,
        attributes={"count": "count", "amount": ("amount", "sum")},
    )  # fmt: skip
    return open_series(path)


def edges_of(series: Series) -> list[set[tuple[str, str]]]:
    """Arcs of every instance, by way of the graphs that programs in memory see."""
    graphs = InstanceGraphs(series)
    found = []
    for instance in series.instances():
        graph = graphs.graph(instance)
        labels = graph.label_column().to_pylist()
        found.append({(labels[u], labels[v]) for u, v in zip(graph.arc_sources(), graph.targets, strict=True)})
    return found


@pytest.mark.slow
def test_frames_hold_what_exists_with_its_attributes(spark: Any, series: Series) -> None:
    frames = series_frames(series, spark=spark)
    rows = frames.edges.toArrow().to_pylist()
    assert {(r["timestep"], r["src"], r["dst"]) for r in rows} == {
        (t, u, v) for t, arcs in enumerate(edges_of(series)) for u, v in arcs
    }
    total: Counter[int] = Counter()
    for row in rows:
        total[row["timestep"]] += row["amount"]
    ways = 1 if series.graph.info.directed else 2
    for instance in series.instances():
        assert total[instance.number] == ways * np.sum(instance.edge("amount").to_numpy()), instance
    vertices = frames.vertices.toArrow()
    assert vertices.num_rows == 7 * series.graph.num_vertices
    some = series_frames(series, start=20, end=50, attributes=["edge.count"], spark=spark).edges
    assert some.columns == ["src", "dst", "timestep", "count"]
    assert {r["timestep"] for r in some.select("timestep").distinct().collect()} == {2, 3, 4}


def test_map_and_merge(spark: Any, series: Series) -> None:
    """Independent: a table of every instance. Eventually dependent: their sum."""

    def busy(instance: Any) -> dict[str, Any]:
        amount = instance.edge("amount").to_numpy()
        return {
            "edges": [int(np.sum(instance.edge("exists").to_numpy(zero_copy_only=False)))],
            "amount": [amount.sum()],
        }

    mapped = map_instances(series, busy, "edges bigint, amount bigint", spark=spark)
    rows = sorted(mapped.collect())
    expected = [(i.number, busy(i)["edges"][0], int(busy(i)["amount"][0])) for i in series.instances()]
    assert [tuple(row) for row in rows] == expected
    assert mapped.groupBy().sum("amount").collect()[0][0] == sum(amount for _, _, amount in expected)
    some = map_instances(
        series, busy, "edges bigint", start=20, end=50, attributes=["edge.exists", "edge.amount"], spark=spark
    )
    assert sorted(r["timestep"] for r in some.collect()) == [2, 3, 4]


@pytest.mark.slow
def test_iteration_carries_its_state_through_time(spark: Any, series: Series) -> None:
    """Who can have heard a rumour that takes one edge in every instance."""

    def step(state: Any, vertices: Any, edges: Any, timestep: int) -> Any:
        heard = edges.join(state.select(state.vertex.alias("src")), "src").selectExpr("dst as vertex")
        fresh = heard.distinct().join(state, "vertex", "left_anti").selectExpr("vertex", f"{timestep} as timestep")
        return state.unionAll(fresh)

    state = spark.createDataFrame([("v03", -1)], "vertex string, timestep int")
    found = {row["vertex"]: row["timestep"] for row in iterate_instances(series, state, step, keep_every=3).collect()}
    expected = {"v03": -1}
    for timestep, arcs in enumerate(edges_of(series)):
        expected |= {
            v: timestep for u, v in sorted(arcs) if u in expected and v not in expected and expected[u] < timestep
        }
    assert found == expected
    assert len(found) > 5


@pytest.mark.slow
def test_motifs_over_instances(spark: Any, series: Series) -> None:
    """Something that was passed on in the very next instance."""
    found = motifs(series_frames(series, attributes=[], spark=spark), "(a)-[e]->(b); (b)-[f]->(c)")
    passed = found.filter("f.timestep = e.timestep + 1 and e.src != f.dst").selectExpr(
        "e.timestep", "e.src", "e.dst", "f.dst"
    )
    after = defaultdict(list)
    arcs = edges_of(series)
    for timestep, those in enumerate(arcs):
        for u, v in those:
            after[timestep, u].append(v)
    expected = [(t, u, v, w) for t, those in enumerate(arcs) for u, v in those for w in after[t + 1, v] if w != u]
    # A vertex has a row for every instance, so that places are found once for each of them.
    assert set(map(tuple, passed.collect())) == set(expected)
    assert expected


def test_wrong_use(spark: Any, series: Series, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="timestep is added automatically"):
        map_instances(series, dict, "timestep int", spark=spark)
    with pytest.raises(InputError, match=r"no attribute 'edge.nothing' in this series"):
        series_frames(series, attributes=["edge.nothing"], spark=spark)
    with pytest.raises(InputError, match="outside the series"):
        series_frames(series, start=700, spark=spark)
    told = map_instances(series, lambda instance: {"x": [1]}, "y int", spark=spark)
    with pytest.raises(Exception, match="returned no column 'y'"):
        told.collect()

"""Temporal paths and triangles of stored series: on every engine the rows of the functions for columns of events."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.errors import InputError, JobError
from goffish.gofs import build_layout
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, open_series, write_series
from goffish.graph import from_edges
from goffish.temporal.build import append_from_events, build_from_events, read_events
from goffish.temporal.event_paths import temporal_paths
from goffish.temporal.event_programs import EventPaths, EventTriangles
from goffish.temporal.event_series import EventNames, PathQuery
from goffish.temporal.motifs import temporal_triangles
from tests.gopher.mpi_jobs import mpirun
from tests.temporal.arrays import ArrayValues, run_series
from tests.temporal.programs.test_event_paths import KINDS, all_paths
from tests.temporal.programs.test_motifs import all_triples

NAMES = EventNames("times", "took", "row")


def as_values(edges: Any, window: int, owner: Any, parts: int, *, directed: bool) -> ArrayValues:
    """Events (source, target, time, duration) between vertices 0 … n - 1 as instances of one length each."""
    u, v, t, _ = (np.array(column) for column in zip(*edges, strict=True))
    n = len(owner)
    graph = from_edges(u, v, directed=directed, labels=np.arange(n), self_loops="keep", parallel="first")
    start = int(t.min())

    def lists(column: int) -> Any:
        def at(source: Any, target: Any, instance: int) -> pa.Array:
            low = start + instance * window
            found = []
            for a, b in zip(source.tolist(), target.tolist(), strict=True):
                ends = {(a, b)} if directed else {(a, b), (b, a)}
                rows = [i for i, e in enumerate(edges) if (e[0], e[1]) in ends and low <= e[2] < low + window]
                found.append([(*edges[i], i)[column] for i in rows])
            return pa.array(found, pa.list_(pa.int64()))

        return at

    borders = np.arange(start, int(t.max()) + window + 1, window)
    columns = {"edge.times": lists(2), "edge.took": lists(3), "edge.row": lists(4)}
    return ArrayValues(build_layout(graph, np.asarray(owner, np.int32), parts), borders, columns)


N = 6
PARTS = st.integers(1, 4)
VERTEX = st.integers(0, N - 1)
LIMIT = st.one_of(st.none(), st.integers(-3, 9))


def events(most: int, loops: bool = True) -> Any:
    one = st.tuples(VERTEX, VERTEX, st.integers(-3, 9), st.one_of(st.integers(0, 2), st.integers(0, 9)))
    return st.lists(one if loops else one.filter(lambda e: e[0] != e[1]), min_size=1, max_size=most)


@pytest.mark.slow
@settings(max_examples=150)
@given(events(30), st.integers(1, 8), st.lists(VERTEX, min_size=N, max_size=N), PARTS, st.booleans(), LIMIT, LIMIT,
       st.booleans())  # fmt: skip
def test_paths_of_random_events(
    edges: Any, window: int, owner: Any, parts: int, directed: bool, start: Any, end: Any, undirected: bool
) -> None:
    values = as_values(edges, window, np.array(owner) % parts, parts, directed=directed)
    u, v, t, d = (np.array(column) for column in zip(*edges, strict=True))
    one_way = directed and not undirected
    for kind in KINDS:
        program = EventPaths(PathQuery(int(u[0]), kind, start, end, undirected), NAMES)  # type: ignore[arg-type]
        timesteps = range(len(values.starts))[:: -1 if kind == "latest-departure" else 1]
        found = run_series(program, values, timesteps).table.sort_by("vertex").to_pydict()
        exact = temporal_paths(
            u,
            v,
            t,
            int(u[0]),
            kind,
            duration=d,
            start=start,
            end=end,
            directed=one_way,  # type: ignore[arg-type]
        ).table.to_pydict()
        column = list(exact)[1]
        rows = dict(zip(found["vertex"], found[column], strict=True))
        assert {x: rows.pop(x) for x in exact["vertex"]} == dict(zip(exact["vertex"], exact[column], strict=True)), kind
        assert not any(value is not None for value in rows.values())  # vertices without an event


@settings(max_examples=12)
@given(events(8, loops=False), st.integers(1, 8), st.lists(VERTEX, min_size=N, max_size=N), PARTS)
def test_paths_are_those_of_all_walks(edges: Any, window: int, owner: Any, parts: int) -> None:
    values = as_values(edges, window, np.array(owner) % parts, parts, directed=True)
    at, first, last = edges[0][0], min(e[2] for e in edges), max(e[2] + e[3] for e in edges)
    best = {
        "earliest-arrival": lambda walks: min(w[2] for w in walks),
        "fastest": lambda walks: min(w[2] - w[1] for w in walks),
        "fewest-hops": lambda walks: min(w[3] for w in walks),
    }
    walks = all_paths(edges, at, first, last)
    for kind, of in best.items():
        program = EventPaths(PathQuery(at, kind), NAMES)  # type: ignore[arg-type]
        found = run_series(program, values).table
        for x, value in zip(*(found.column(i).to_pylist() for i in (0, 1)), strict=True):
            to = [w for w in walks if w[0] == x]
            assert x == at or value == (of(to) if to else None), (kind, x)
    found = run_series(EventPaths(PathQuery(at, "latest-departure"), NAMES), values, range(len(values.starts))[::-1])
    for x, value in zip(*(found.table.column(i).to_pylist() for i in (0, 1)), strict=True):
        leave = [w[1] for w in all_paths(edges, x, first, last) if w[0] == at]
        assert x == at or value == max(leave, default=None), x


@pytest.mark.slow
@settings(max_examples=150)
@given(events(40), st.integers(1, 8), st.lists(VERTEX, min_size=N, max_size=N), PARTS, st.integers(0, 9))
def test_triangles_of_random_events(edges: Any, window: int, owner: Any, parts: int, within: int) -> None:
    values = as_values(edges, window, np.array(owner) % parts, parts, directed=True)
    found = run_series(EventTriangles(within, NAMES), values).table
    counts = dict(zip(found["motif"].to_pylist(), found["count"].to_pylist(), strict=True))
    assert counts == all_triples([e[:3] for e in edges], within)


# -- stores


def table(seed: int = 1, vertices: int = 40, count: int = 900) -> pa.Table:
    """Events with many equal times, in no order, that take up to 40; windows of 10 or 25 are shorter."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, vertices, (2, count))
    return pa.table({
        "source": pa.array([f"v{x:02}" for x in ends[0]]), "target": pa.array([f"v{x:02}" for x in ends[1]]),
        "timestamp": rng.integers(-100, 200, count), "took": rng.integers(0, rng.choice([1, 5, 40]), count),
        "row": np.arange(count),
    })  # fmt: skip


LISTS: dict[str, Any] = {"times": ("timestamp", "list"), "took": ("took", "list"), "row": ("row", "list")}
OPTIONS: dict[str, Any] = {"time_unit": "1", "directed": True, "self_loops": "keep", "attributes": LISTS}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    folder = tmp_path_factory.mktemp("events")
    for parts in (1, 2, 4):
        build_from_events(table(), folder / str(parts), window=25, parts=parts, method="hash", **OPTIONS)
    return {parts: str(folder / str(parts)) for parts in (1, 2, 4)}


QUERIES: tuple[dict[str, Any], ...] = (
    *({"kind": kind} for kind in KINDS),
    *({"kind": kind, "earliest_departure": -50, "latest_arrival": 120, "undirected": True} for kind in KINDS),
)


def exact(query: dict[str, Any]) -> pa.Table:
    e = table()
    limits = {"start": query.get("earliest_departure"), "end": query.get("latest_arrival")}
    return temporal_paths(
        e["source"], e["target"], e["timestamp"], "v07", query["kind"], duration=e["took"], **limits,
        directed="undirected" not in query,
    ).table  # fmt: skip


def triangles(within: int) -> pa.Table:
    e = table()
    return temporal_triangles(e["source"], e["target"], e["timestamp"], within)


@pytest.mark.parametrize(("parts", "engine"), [(1, "auto"), (1, "local"), (2, "local"), (4, "auto"), (4, "local")])
def test_rows_are_those_in_memory(stores: dict[int, str], parts: int, engine: str) -> None:
    store = gf.open_series(stores[parts])
    for query in QUERIES[:: 1 if engine == "local" else 3]:
        found = gf.run_series("temporal-paths", store, vertex="v07", duration="took", engine=engine, **query)
        assert found.table.equals(exact(query)), query
    for within in (0, 7, 60, 1000):
        found = gf.run_series("temporal-triangles", store, within=within, order="row", engine=engine)
        assert found.table.equals(triangles(within)), within
    assert found.timesteps["timestep"].to_pylist() == list(range(len(store)))


def plain(found: Any) -> dict[str, Any]:
    """All that engines have to agree about; only the first rank has the timesteps."""
    steps = [] if found.timesteps is None else found.timesteps["supersteps"].to_pylist()
    return {"table": found.table.to_pydict(), "supersteps": steps}


def all_runs(store: str, **way: Any) -> list[dict[str, Any]]:
    runs = [{"application": "temporal-paths", "vertex": "v07", "duration": "took", **query} for query in QUERIES]
    runs.append({"application": "temporal-triangles", "within": 40, "order": "row"})
    return [plain(gf.run_series(run.pop("application"), store, **run, **way)) for run in runs]


@pytest.fixture(scope="module")
def local(stores: dict[int, str]) -> dict[int, list[dict[str, Any]]]:
    return {parts: all_runs(store, engine="local", threads=1) for parts, store in stores.items()}


@pytest.mark.slow
def test_on_threads(stores: dict[int, str], local: dict[int, Any]) -> None:
    for parts, store in stores.items():
        assert all_runs(store, engine="local", threads=3) == local[parts]


_ON_RANKS = """
import json, sys
from pathlib import Path
from mpi4py import MPI
from tests.temporal.programs.test_event_programs import all_runs
found = all_runs(sys.argv[1], engine="mpi", comm=MPI.COMM_WORLD)
if MPI.COMM_WORLD.rank == 0:
    Path(sys.argv[2]).write_text(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_on_ranks(stores: dict[int, str], local: dict[int, Any], parts: int, tmp_path: Path) -> None:
    code, _, error = mpirun(min(parts, 3), "-m", "mpi4py", "-c", _ON_RANKS, stores[parts], str(tmp_path / "found"))
    assert code == 0, error
    assert json.loads((tmp_path / "found").read_text()) == local[parts]


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_on_spark(stores: dict[int, str], local: dict[int, Any], parts: int, spark: Any) -> None:
    assert all_runs(stores[parts], engine="spark", spark=spark) == local[parts]


@pytest.mark.slow
def test_resumed_runs_are_the_same(stores: dict[int, str], tmp_path: Path) -> None:
    """Stopped in several supersteps, and taken up again: paths forward, paths backward, triangles."""
    runs: tuple[tuple[str, dict[str, Any]], ...] = (
        ("temporal-paths", {"vertex": "v07", "duration": "took", "kind": "fastest"}),
        ("temporal-paths", {"vertex": "v07", "duration": "took", "kind": "latest-departure"}),
        ("temporal-triangles", {"within": 60, "order": "row"}),
    )
    for (name, options), stop in product(runs, (1, 2, 5, 14, 23)):
        whole = plain(gf.run_series(name, stores[2], engine="local", **options))
        folder = tmp_path / f"{name}-{options.get('kind')}-{stop}"
        ways = {"engine": "local", "checkpoint_dir": folder, "checkpoint_every": 1, **options}
        with pytest.raises(JobError, match="not finished"):
            gf.run_series(name, stores[2], max_supersteps=stop, **ways)
        assert plain(gf.run_series(name, stores[2], resume=True, **ways)) == whole


def test_a_series_that_has_grown(tmp_path: Path) -> None:
    e = table(3, vertices=14, count=250).sort_by("timestamp")
    early = e["timestamp"].to_numpy() < 60
    by_row = e.sort_by([("timestamp", "ascending"), ("row", "ascending")])
    store = tmp_path / "s"
    build_from_events(e.filter(pa.array(early)), store, window=10, start=-100, parts=3, method="hash", **OPTIONS)
    more = append_from_events(
        store, e.filter(pa.array(~early)), window=10, time_unit="1", self_loops="keep", attributes=LISTS
    )
    assert more.instances
    for engine in ("auto", "local"):
        found = gf.run_series("temporal-paths", store, vertex="v07", kind="fastest", duration="took", engine=engine)
        wanted = temporal_paths(e["source"], e["target"], e["timestamp"], "v07", "fastest", duration=e["took"]).table
        assert found.table.sort_by("vertex").equals(wanted)
        counted = gf.run_series("temporal-triangles", store, within=30, engine=engine, order="row")
        assert counted.table.equals(temporal_triangles(*(by_row[c] for c in e.column_names[:3]), within=30))


def test_files_and_ranges(tmp_path: Path) -> None:
    """Without `order`, equal times count as in a table that `read_events` reads; ranges choose instances."""
    rng = np.random.default_rng(2)
    rows = np.column_stack((rng.integers(0, 12, (300, 2)), rng.integers(0, 60, 300)))
    lines = ["source,target,timestamp", *(",".join(map(str, row)) for row in rows.tolist())]
    (tmp_path / "e.csv").write_text("\n".join(lines))
    build_from_events(
        tmp_path / "e.csv", tmp_path / "s", window=7, time_unit="1", directed=True, parts=2, method="hash",
        attributes={"times": ("timestamp", "list")},
    )  # fmt: skip
    e = read_events(tmp_path / "e.csv")
    some = e.filter(pa.array((e["timestamp"].to_numpy() >= 14) & (e["timestamp"].to_numpy() < 42)))
    for engine in ("auto", "local"):
        for start, end, table_ in ((None, None, e), (14, 42, some)):
            found = gf.run_series("temporal-triangles", tmp_path / "s", within=9, engine=engine, start=start, end=end)
            assert found.table.equals(temporal_triangles(*(table_[c] for c in table_.column_names[:3]), within=9))
        paths = gf.run_series("temporal-paths", tmp_path / "s", vertex=3, duration=2, engine=engine, start=14, end=42)
        ends = (some[c] for c in some.column_names[:3])
        wanted = temporal_paths(*ends, 3, duration=2).table  # type: ignore[misc]
        assert dict(zip(*(c.to_pylist() for c in wanted.columns), strict=True)).items() <= paths.to_dict().items()


def test_dates_are_microseconds(tmp_path: Path) -> None:
    e = pa.table({
        "source": [1, 2], "target": [2, 3],
        "timestamp": pa.array([1_500_000, 2_500_000], pa.timestamp("us", "UTC")),
    })  # fmt: skip
    build_from_events(e, tmp_path / "s", window="1s", directed=True, attributes={"times": ("timestamp", "list")})
    found = gf.run_series("temporal-paths", tmp_path / "s", vertex=1, duration=100)
    assert found.to_dict() == {1: 1_500_000, 2: 1_500_100, 3: 2_500_100}
    append_from_events(
        tmp_path / "s",
        pa.table({"source": [3], "target": [1], "timestamp": pa.array([4_000], pa.timestamp("ms"))}),
        attributes={"times": ("timestamp", "list")},
    )  # fmt: skip
    counted = gf.run_series("temporal-triangles", tmp_path / "s", within=2_500_000, engine="local").to_dict()
    assert {motif: count for motif, count in counted.items() if count} == {"ab bc ca": 1}


def write(path: Path, times: Any, took: Any = 0, *, directed: bool = True) -> str:
    """Two edges 1 → 2 → 3 with the times of two instances each."""
    kinds = {"times": "list<int64>", "took": "int64", "name": "string"}
    schema = SeriesSchema(edge=tuple(Attribute(name, kind) for name, kind in kinds.items()))
    graph = from_edges([1, 2], [2, 3], directed=directed)
    data = [
        InstanceData(i, i + 1, {"edge.times": at, "edge.took": [took] * 2, "edge.name": ["a"] * 2})
        for i, at in enumerate(times)
    ]
    write_series(graph, path, schema, data, unit="1")
    return str(path)


def test_what_is_read_and_when_it_ends(tmp_path: Path) -> None:
    """A latest arrival ends the run after the first instance that begins later."""
    store = write(tmp_path / "s", [[[t], [t]] for t in range(0, 100, 10)], took=3)
    whole = gf.run_series("temporal-paths", store, vertex=1, duration="took", engine="local")
    assert whole.to_dict() == {1: 0, 2: 3, 3: 13}
    short = gf.run_series("temporal-paths", store, vertex=1, duration="took", latest_arrival=25, engine="local")
    assert short.to_dict() == {1: 0, 2: 3, 3: 13}
    assert (whole.timesteps.num_rows, short.timesteps.num_rows) == (10, 4)
    back = {"vertex": 3, "kind": "latest-departure", "duration": "took", "engine": "local"}
    assert gf.run_series("temporal-paths", store, **back).to_dict() == {1: 80, 2: 90, 3: 93}
    few = gf.run_series("temporal-paths", store, **back, earliest_departure=75, latest_arrival=93)
    assert few.to_dict() == {1: 80, 2: 90, 3: 93}
    assert few.timesteps["timestep"].to_pylist() == [7, 8, 9]
    with open_series(store, prefetch=False) as series:
        reads = gf.run_series("temporal-paths", series, vertex=1, engine="local").reads
    assert reads is not None
    assert reads.slices_read == 1


def test_without_events(tmp_path: Path) -> None:
    store = write(tmp_path / "s", [[[], []], [[], []]])
    for engine, (kind, value) in product(
        ("auto", "local"), (("earliest-arrival", None), ("latest-departure", None), ("fastest", 0), ("fewest-hops", 0))
    ):
        found = gf.run_series("temporal-paths", store, vertex=1, kind=kind, engine=engine)
        assert found.to_dict() == {1: value, 2: None, 3: None}
    limits = {"earliest_departure": 4, "latest_arrival": 9}
    for engine, (kind, value) in product(("auto", "local"), (("earliest-arrival", 4), ("latest-departure", 9))):
        found = gf.run_series("temporal-paths", store, vertex=1, kind=kind, engine=engine, **limits)
        assert found.to_dict() == {1: value, 2: None, 3: None}
    assert not np.any(gf.run_series("temporal-triangles", store, within=5, engine="local").table["count"])


@pytest.mark.parametrize("engine", ["auto", "local"])
@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("temporal-paths", {}, "vertex"),
        ("temporal-paths", {"vertex": 9}, "9"),
        ("temporal-paths", {"vertex": 1, "kind": "slowest"}, "kind"),
        ("temporal-paths", {"vertex": 1, "duration": -2}, "duration=-2: must be at least 0"),
        ("temporal-paths", {"vertex": 1, "duration": "-2"}, "duration=-2: must be at least 0"),
        ("temporal-paths", {"vertex": 1, "times": "when"}, "--attribute when=list:timestamp"),
        ("temporal-paths", {"vertex": 1, "times": "took"}, "edge.took has type int64; expected list<int64>"),
        ("temporal-paths", {"vertex": 1, "duration": "length"}, "no attribute 'edge.length'"),
        ("temporal-paths", {"vertex": 1, "duration": "name"}, "edge.name has type string; expected list<int64>"),
        ("temporal-triangles", {}, "within"),
        ("temporal-triangles", {"within": -1}, "within"),
        ("temporal-triangles", {"within": 1, "order": "took"}, "edge.took has type int64; expected list<int64>"),
    ],
)
def test_bad_input(tmp_path: Path, engine: str, name: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        gf.run_series(name, write(tmp_path / "s", [[[1], [2]], [[3], [4]]]), engine=engine, **options)


@pytest.mark.parametrize("engine", ["auto", "local"])
def test_bad_events(tmp_path: Path, engine: str) -> None:
    def fails(name: str, store: str, text: str, **options: Any) -> None:
        with pytest.raises((InputError, JobError), match=text):
            gf.run_series(name, store, engine=engine, **options)

    late = write(tmp_path / "late", [[[1], [5]], [[5], [7]]])
    text = "instance 1: edge.times holds 5, which is not after 5 in an earlier instance"
    fails("temporal-paths", late, text, vertex=1)
    fails("temporal-triangles", late, text, within=3)
    if engine == "local":
        fails("temporal-triangles", late, "is sequential; omit temporal_parallelism", within=3, temporal_parallelism=2)
        text = "instance 0: edge.times holds 5, which is not before 5 in a later instance"
    fails("temporal-paths", late, text, vertex=1, kind="latest-departure")
    fails("temporal-paths", write(tmp_path / "far", [[[2**61], [0]]]), "at most 2", vertex=1)
    negative = write(tmp_path / "negative", [[[1], [2]]], took=-4)
    fails("temporal-paths", negative, "edge.took=-4: must be at least 0", vertex=1, duration="took")
    both_ways = write(tmp_path / "both", [[[1], [2]]], directed=False)
    fails("temporal-triangles", both_ways, r"undirected; build it with directed edges \(--directed\)", within=1)
    series = SeriesSchema(edge=(Attribute("times", "list<int64>"), Attribute("took", "list<int64>")))
    data = [InstanceData(0, 1, {"edge.times": [[1], [2]], "edge.took": [[1, 2], []]})]
    write_series(from_edges([1, 2], [2, 3]), tmp_path / "uneven", series, data, unit="1")
    fails("temporal-paths", str(tmp_path / "uneven"), "edge.took: lists differ in length", vertex=1, duration="took")

"""``goffish timeseries``: from events to answers, and every wrong input in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command

import goffish as gf
from goffish.algorithms.catalogue import ALGORITHMS
from goffish.cli.app import app
from goffish.gofs.series import open_series
from goffish.temporal.event_paths import temporal_paths
from goffish.temporal.motifs import temporal_triangles
from goffish.temporal.options import APPLICATIONS
from tests.cli.conftest import Place
from tests.commands import assert_refused, subcommands

DAY = 86_400


@pytest.fixture(scope="module")
def events() -> np.ndarray:
    """300 events between 20 vertices in 10 days; in the last two of these only edges that were there before."""
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 20, (300, 2))
    ends[240:] = ends[:60]
    days = np.sort(rng.integers(0, 8 * DAY, 240)), np.sort(rng.integers(8 * DAY, 10 * DAY, 60))
    return np.column_stack((ends, np.concatenate(days), rng.integers(1, 9, 300)))


@pytest.fixture
def here(place: Place, events: np.ndarray) -> Place:
    for name, rows in (("early.csv", events[:240]), ("late.csv", events[240:]), ("all.csv", events)):
        np.savetxt(place / name, rows, fmt="%d", delimiter=",", header="source,target,timestamp,amount", comments="")
    return place


BUILD = ("--window", "1d", "--directed", "-k", "2", "--columns", "source=0,target=1,timestamp=2,weight=3")
SUM = ("--attribute", "n=count", "--attribute", "amount=sum:weight")


def test_build_info_and_append(here: Place, events: np.ndarray) -> None:
    """Two parts one after the other hold what all at once does, and nothing that was there is written again."""
    told = here("timeseries", "build", "all.csv", "-o", "whole", *BUILD, *SUM, "--json").json
    assert told["instances"] == 10
    assert here("timeseries", "build", "early.csv", "-o", "grown", *BUILD, *SUM, "--pack", "4").code == 0
    info = here("timeseries", "info", "grown", "--json").json
    first = info["instances"]
    assert (info["begins"], info["period"], info["gaps"]) == ("1970-01-01T00:00:00", "1 d", 0)
    assert [a["name"] for a in info["attributes"]] == ["edge.exists", "edge.n", "edge.amount"]
    before = {name: (here / name).stat().st_mtime_ns for name in here.files() if name.startswith("grown/p")}
    added = here("timeseries", "append", "grown", "late.csv", *BUILD[5:], *SUM, "--json").json
    assert added["instances_added"] == 10 - first
    kept = [name for name in before if (here / name).exists() and before[name] != (here / name).stat().st_mtime_ns]
    assert not [name for name in kept if (here / name).is_file()]
    whole, grown = open_series(here / "whole"), open_series(here / "grown")
    for one, other in zip(whole.instances(), grown.instances(), strict=True):
        assert (one.start, one.end) == (other.start, other.end)
        assert sum(one.edge("amount").to_pylist()) == sum(other.edge("amount").to_pylist()), one
    again = here("timeseries", "append", "grown", "late.csv", *BUILD[5:], *SUM)
    assert again.code == 0
    assert "events are before 1970-01-11T00:00:00, where the series ends and were skipped" in again.out


def test_append_new_vertices_and_compact(here: Place) -> None:
    (here / "a.csv").write_text("ann,bob,0\nbob,eve,5\n")
    (here / "b.csv").write_text("ann,zoe,10\nabe,bob,12\n")
    assert (
        here("timeseries", "build", "a.csv", "-o", "s", "--window", "10", "--time-unit", "1", "--parts", "2").code == 0
    )
    added = here("timeseries", "append", "s", "b.csv", "--time-unit", "1", "--json").json
    assert (added["instances_added"], added["vertices"], added["edges"]) == (1, 5, 4)
    assert added["notes"] == ["added to the template: 2 vertices, 2 edges"]
    info = here("timeseries", "info", "s", "--json").json
    assert (info["packs"], info["growths"]) == (2, 1)
    ran = here("timeseries", "run", "components", "s", "--json").json
    done = here("timeseries", "compact", "s", "--json").json
    assert (done["packs_before"], done["packs"]) == (2, 1) and done["bytes"] < done["bytes_before"]
    assert here("timeseries", "run", "components", "s", "--json").json["rows"] == ran["rows"]
    refused = here("timeseries", "compact", "missing")
    assert refused.code == 2 and "not a GoFFish store" in refused.err


def test_a_folder_of_graphs(here: Place) -> None:
    (here / "days").mkdir()
    for day, edges in (("2024-02-03", "1 2\n2 3\n"), ("2024-02-01", "1 2\n"), ("2024-02-02", "2 3\n3 1\n")):
        (here / "days" / f"g-{day}.txt").write_text(edges)
    named = ("--name-pattern", r"g-(.*)\.txt", "--time-format", "%Y-%m-%d", "--period", "1d")
    assert here("timeseries", "build", "days", "-o", "s", "-k", "1", *named).code == 0
    info = here("timeseries", "info", "s", "--json").json
    assert (info["instances"], info["begins"], info["ends"]) == (3, "2024-02-01T00:00:00", "2024-02-04T00:00:00")
    rows = here("timeseries", "run", "components", "s", "--json").json["rows"]
    assert {(r["timestep"], r["vertex"]): r["component"] for r in rows if r["timestep"] == 0} == {
        (0, 1): 2, (0, 2): 2, (0, 3): 3,
    }  # fmt: skip
    assert here("timeseries", "info", "s").out.startswith("s\n  instances")
    (here / "later").mkdir()
    (here / "later" / "g-2024-02-05.txt").write_text("3 1\n4 1\n")
    added = here("timeseries", "append", "s", "later", *named, "--json").json
    assert (added["instances_added"], added["vertices"], added["edges"]) == (1, 4, 4)
    info = here("timeseries", "info", "s", "--json").json
    assert (info["instances"], info["gaps"], info["ends"]) == (4, 1, "2024-02-06T00:00:00")


def test_run_gives_tables(here: Place) -> None:
    here("timeseries", "build", "all.csv", "-o", "s", *BUILD, *SUM)
    done = here(
        "timeseries", "run", "tdsp", "s", "--source", "3", "--latency", "n", "-o", "t.parquet", "--timesteps", "t.csv"
    )
    assert done.code == 0, done.err
    assert pq.read_table(here / "t.parquet").column_names == ["vertex", "arrival", "timestep", "parent"]
    assert (
        (here / "t.csv")
        .read_text()
        .startswith('"timestep","start","end","supersteps","finalised","too_long"\n0,1970-01-01')
    )
    # Times count in microseconds: an event a window is no latency to speak of, a day and more cannot be used.
    assert "takes longer" not in done.out
    (here / "slow.csv").write_text("source,target,timestamp,seconds\n1,2,5,90000000000\n2,3,90000,7\n")
    slow = ("--attribute", "latency=max:weight", *BUILD)
    assert here("timeseries", "build", "slow.csv", "-o", "slow", *slow).code == 0
    noted = here("timeseries", "run", "tdsp", "slow", "--source", "1", "--exists", "exists")
    assert "note: some edges exceed the duration of an instance (edge.latency, timesteps 0)" in noted.out
    some = here("timeseries", "run", "pagerank", "s", "--start", "1970-01-03", "--end", "1970-01-05", "--json").json
    assert [t["timestep"] for t in some["timesteps"]] == [2, 3]
    assert sum(r["rank"] for r in some["rows"] if r["timestep"] == 3) == pytest.approx(1)
    side = here(
        "timeseries", "run", "pagerank", "s", "--start", "1970-01-03", "--end", "1970-01-05", "--json",
        "--temporal-parallelism", "2",
    ).json  # fmt: skip
    assert side["rows"] == some["rows"]
    found = here("timeseries", "run", "communities", "s", "--json", "--timesteps", "c.json").json
    assert (here / "c.json").read_text().startswith('{"timestep": 0, "start": "1970-01-01T00:00:00+00:00", ')
    assert {"born", "died", "split", "merged"} <= found["summary"].keys()
    assert [t["timestep"] for t in found["timesteps"]] == list(range(10))


def test_algorithms_run_on_every_instance(here: Place, series_store: Path) -> None:
    """Rows, timesteps and notes of `gf.run_series`, in memory and on the engine."""
    shutil.copytree(series_store, here / "s")
    found = here("timeseries", "run", "triangles", "s", "--start", "1970-01-03", "--json").json
    assert found["rows"] == gf.run_series("triangles", here / "s", start="1970-01-03").table.to_pylist()
    assert [t["timestep"] for t in found["timesteps"]] == list(range(2, 10))
    engine = ("--engine", "local", "--threads", "1", "--weight", "n", "--temporal-parallelism", "2")
    done = here("timeseries", "run", "sssp", "s", "--source", "3", *engine, "-o", "t.parquet", "--timesteps", "t.csv")
    assert done.code == 0, done.err
    wanted = gf.run_series("sssp", here / "s", source=3, engine="local", weight="n")
    assert pq.read_table(here / "t.parquet").equals(wanted.table)
    assert (here / "t.csv").read_text().count("\n") == 11
    assert all(f"note: {note}" in done.out for note in wanted.notes)
    shown = here("timeseries", "run", "--help").out
    assert "triangles" in shown and "tdsp" in shown
    assert "--engine" not in here("timeseries", "run", "bridges", "--help").out


def test_every_algorithm_has_a_command() -> None:
    """Options of algorithms have other names than those of the run."""
    series = dict(subcommands(get_command(app)))["timeseries"]
    commands = dict(subcommands(dict(subcommands(series))["run"]))
    assert set(ALGORITHMS) <= set(commands)
    for name in set(ALGORITHMS) - set(APPLICATIONS):
        options = [param.name for param in commands[name].params]
        assert len(set(options)) == len(options), name
        assert {"store", "start", "weight", "temporal_parallelism"} <= set(options)


def test_paths_and_triangles(here: Place, events: np.ndarray) -> None:
    source, target, when = events[:, 0], events[:, 1], events[:, 2]
    found = here("timeseries", "paths", "all.csv", "--vertex", "3", "--kind", "fastest", "--json").json
    assert found["rows"] == temporal_paths(source, target, when, 3, "fastest").table.to_pylist()
    told = here("timeseries", "triangles", "all.csv", "--within", 2 * DAY, "--json").json
    assert told["rows"] == temporal_triangles(source, target, when, 2 * DAY).to_pylist()
    assert told["summary"]["triangles"] > 0


def test_paths_and_triangles_of_a_store(here: Place, events: np.ndarray) -> None:
    """Rows of the functions in memory, in memory and on the engine."""
    source, target, when = events[:, 0], events[:, 1], events[:, 2]
    lists = ("--attribute", "times=list:timestamp", "--self-loops", "keep")
    assert here("timeseries", "build", "all.csv", "-o", "s", *BUILD, *lists).code == 0
    paths = (
        "temporal-paths",
        "s",
        "--vertex",
        "3",
        "--kind",
        "fastest",
        "--duration",
        "50",
        "--latest-arrival",
        "500000",
    )
    exact = temporal_paths(source, target, when, 3, "fastest", duration=50, end=500_000).table
    for engine in ("auto", "local"):
        found = here("timeseries", "run", *paths, "--engine", engine, "--json").json
        assert found["rows"] == exact.to_pylist()
        told = here("timeseries", "run", "temporal-triangles", "s", "--within", 2 * DAY, "--engine", engine).out
        assert told.startswith("temporal-triangles of s")
        rows = here("timeseries", "run", "temporal-triangles", "s", "--within", 2 * DAY, "--engine", engine, "--json")
        assert rows.json["rows"] == temporal_triangles(source, target, when, 2 * DAY).to_pylist()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("build", "all.csv", "-o", "x"), "--window is required"),
        (("build", "all.csv", "-o", "x", "--window", "soon"), "window='soon': must be a positive integer"),
        (("build", "all.csv", "-o", "x", "--window", "0"), "window=0: must be a positive integer"),
        (("build", "all.csv", "-o", "x", "--window", "1d", "--pack", "0"), "--pack '0'"),
        (("build", "all.csv", "-o", "x", "--window", "1d", "--time-unit", "h"), "--time-unit 'h': choose one of s, ms"),
        (("build", "all.csv", "-o", "x", "--window", "1us"), "produces 8"),
        (("build", "all.csv", "-o", "x", "--window", "1d", "--attribute", "n"), "--attribute 'n': give NAME=count"),
        (("build", "all.csv", "-o", "x", "--window", "1d", "--attribute", "n=sum:b"), "no column 'b' in the events"),
        (("build", "all.csv", "-o", "x", "--window", "1d", "--period", "1d"), "--period applies to folders of graphs"),
        (("build", "none.csv", "-o", "x", "--window", "1d"), "none.csv"),
        (("build", "small.txt", "-o", "x", "--window", "1d"), "small.txt"),
        (("append", "s", "all.csv", "--window", "1d"), "attributes: 'n' is an attribute of the series"),
        (("append", "s", "strange.csv", "--attribute", "n=count"), "the vertex labels are string, and those of"),
        (("append", "grid.txt", "all.csv"), "grid.txt"),
        (("append", "s", "all.csv", "--attribute", "n=count", "--period", "1d"), "--period applies to folders of"),
        (("append", "s", "s", "--window", "1d"), "--window applies to files of events only"),
        (("append", "s", "small.gofs/p00000", "--name-pattern", "x"), "pattern 'x' does not match the file name"),
        (("info", "grid.gofs"), "the store has no time series"),
        (("run", "tdsp", "s", "--source", "777", "--latency", "n"), "unknown vertex 777"),
        (("run", "tdsp", "s", "--source", "x", "--latency", "n"), "unknown vertex 'x': the vertex labels"),
        (("run", "tdsp", "s", "--source", "3"), "no attribute 'edge.latency' in this series; available: edge"),
        (("run", "memes", "s", "--meme", "x"), "no attribute 'vertex.memes' in this series"),
        (("run", "pagerank", "s", "--damping", "2"), "damping=2.0"),
        (("run", "pagerank", "s", "--start", "1990-01-01"), "outside the series (1970-01-01T"),
        (("run", "pagerank", "s", "--start", "tomorrow"), "start='tomorrow': expected integer microseconds since 1970"),
        (("run", "pagerank", "s", "--start", "1970-01-05", "--end", "1970-01-02"), "is before start"),
        (("run", "tdsp", "s", "--source", "3", "--latency", "n", "--temporal-parallelism", "2"), "is sequential"),
        (("run", "pagerank", "s", "--engine", "gpu"), "--engine 'gpu': choose one of auto, local, mpi"),
        (("run", "pagerank", "s", "-o", "r.xyz"), "r.xyz"),
        (("run", "wander", "s"), "unknown application 'wander': choose one of tdsp, temporal-paths"),
        (("run", "triangles", "nope"), "nope"),
        (("run", "triangles", "s", "--edge-exists", "there"), "no attribute 'edge.there' in this series; available"),
        (("run", "triangles", "s", "--checkpoint-dir", "c"), "No such option: --checkpoint-dir"),
        (("run", "sssp", "s"), "Missing option '--source' (see goffish timeseries run sssp --help)"),
        (("run", "sssp", "s", "--source", "x"), "unknown vertex 'x': the vertex labels"),
        (("run", "sssp", "s", "--source", "777"), "instance 0: unknown vertex 777"),
        (("run", "louvain", "s", "--resolution", "-1"), "resolution=-1.0 should be greater than or equal to 0"),
        (("run", "triangles", "s", "--engine", "gpu"), "--engine 'gpu': choose one of auto, local, mpi"),
        (("run", "temporal-paths", "s", "--vertex", "3"), "build the series with --attribute times=list:timestamp"),
        (("run", "temporal-paths", "s", "--vertex", "3", "--times", "n"), "edge.n has type int64; expected list"),
        (("run", "temporal-paths", "s", "--vertex", "x"), "unknown vertex 'x': the vertex labels"),
        (("run", "temporal-paths", "s", "--vertex", "3", "--kind", "slow"), "kind"),
        (("run", "temporal-triangles", "s"), "Missing option '--within'"),
        (("run", "temporal-triangles", "s", "--within", "-1"), "within"),
        (("paths", "all.csv", "--vertex", "77"), "unknown vertex 77"),
        (("paths", "all.csv", "--vertex", "3", "--kind", "slow"), "kind='slow': choose one of earliest-arrival"),
        (("paths", "all.csv", "--vertex", "3", "--duration", "-1"), "duration=-1: must be at least 0"),
        (("triangles", "all.csv", "--within", "-1"), "within=-1: must be at least 0"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line(here: Place, series_store: Path, command: tuple[str, ...], told: str) -> None:
    shutil.copytree(series_store, here / "s")
    (here / "strange.csv").write_text("source,target,timestamp\n1,new,2000000\n")
    files = here.files()
    ended = here("timeseries", *command)
    assert_refused(ended)
    assert told in ended.err
    assert here.files() == files


@pytest.fixture(scope="module")
def series_store(samples: Path, events: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from goffish.temporal.build import build_from_events

    path = tmp_path_factory.mktemp("series") / "s"
    table = pa.table({"source": events[:, 0], "target": events[:, 1], "timestamp": events[:, 2]})
    build_from_events(table, path, window="1d", directed=True, parts=2, attributes={"n": "count"})
    return path


def test_a_damaged_slice_is_named(here: Place, series_store: Path) -> None:
    shutil.copytree(series_store, here / "s")
    name = next(name for name in here.files() if "edge.n" in name and name.endswith(".parquet"))
    data = bytearray((here / name).read_bytes())
    data[len(data) // 2] ^= 0xFF
    (here / name).write_bytes(data)
    for command in (("timeseries", "run", "tdsp", "s", "--source", "3", "--latency", "n"), ("verify", "s")):
        ended = here(*command)
        assert_refused(ended)
        assert f"{name.removeprefix('s/')}: damaged" in ended.err

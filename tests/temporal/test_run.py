"""Programs over stored series: the same answers on every engine and side by side, and no more reads than needed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import goffish as gf
from goffish.errors import InputError, JobError
from goffish.gofs.series import InstanceData, SeriesSchema, append_instances, open_series, write_series
from goffish.temporal.instances import InstanceComponents, InstancePageRank
from goffish.temporal.memes import HashtagAggregation, MemeTracking
from goffish.temporal.program import TimeSeriesProgram
from goffish.temporal.run import SeriesResult, run_series
from goffish.temporal.tdsp import TimeDependentShortestPath
from goffish.temporal.vehicles import VehicleTracking
from tests.gopher.mpi_jobs import mpirun
from tests.temporal.fixtures import grid_latency, grid_meme, tiny

PACK, BINS = 6, 5


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The grid of §7 with its latencies and its memes, in 20 instances of length 20."""
    roads, memes = grid_latency(20), grid_meme()
    both = (
        InstanceData(one.start, one.end, {**one.values, **other.values})
        for one, other in zip(roads.instances, memes.instances, strict=True)
    )
    path = tmp_path_factory.mktemp("series") / "grid"
    schema = SeriesSchema(vertex=memes.schema.vertex, edge=roads.schema.edge)
    write_series(roads.layout, path, schema, both, pack=PACK, bins=BINS, unit="1")
    return str(path)


def make(name: str) -> TimeSeriesProgram:
    programs: dict[str, Any] = {
        "tdsp": lambda: TimeDependentShortestPath(0),
        "tdsp, departure": lambda: TimeDependentShortestPath(7, semantics="departure"),
        "meme": lambda: MemeTracking("mu"),
        "hashtag": lambda: HashtagAggregation("mu"),
        "components": lambda: InstanceComponents(edge_exists=None),
        "ranks": lambda: InstancePageRank(iterations=3, edge_exists=None),
        "vehicle": lambda: VehicleTracking("mu", 0, 2.0, "latency", "memes"),
    }
    found: TimeSeriesProgram = programs[name]()
    return found


NAMES = ("tdsp", "tdsp, departure", "meme", "hashtag", "components", "ranks", "vehicle")


def plain(found: SeriesResult) -> dict[str, Any]:
    """All that engines have to agree about."""
    return {"table": found.table.to_pydict(), "timesteps": found.timesteps.to_pydict(), "summary": dict(found.summary)}


@pytest.fixture(scope="module")
def wanted(store: str) -> dict[str, Any]:
    return {name: plain(run_series(make(name), store, threads=1)) for name in NAMES}


def test_fixtures_of_the_specification(wanted: dict[str, Any]) -> None:
    roads, memes = grid_latency().expected, grid_meme().expected
    tdsp, meme, hashtag = (wanted[name] for name in ("tdsp", "meme", "hashtag"))
    assert tdsp["timesteps"]["finalised"] == roads["finalised"]
    assert tdsp["timesteps"]["supersteps"] == roads["supersteps"]
    assert tdsp["summary"] == {"timesteps": 9, "supersteps": 29}
    assert sum(tdsp["table"]["arrival"]) == roads["sum"]
    assert meme["timesteps"]["supersteps"] == memes["supersteps"]
    assert sum(t for t in meme["table"]["timestep"] if t is not None) == memes["sum_of_times"]
    assert hashtag["table"]["count"] == memes["counts"]


def test_tiny_fixture_from_a_store(tmp_path: Path) -> None:
    case = tiny()
    case.write(tmp_path / "tiny", pack=2, bins=1)
    found = run_series(TimeDependentShortestPath("S"), tmp_path / "tiny")
    assert (
        dict(zip(*(found.table[c].to_pylist() for c in ("vertex", "arrival")), strict=True)) == case.expected["arrival"]
    )
    assert found.timesteps["supersteps"].to_pylist() == case.expected["supersteps"]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_threads(store: str, wanted: dict[str, Any], threads: int) -> None:
    for name in NAMES:
        assert plain(run_series(make(name), store, threads=threads)) == wanted[name]


@pytest.mark.parametrize("count", [2, 8, 50])
def test_side_by_side(store: str, wanted: dict[str, Any], count: int) -> None:
    assert plain(run_series(make("hashtag"), store, temporal_parallelism=count)) == wanted["hashtag"]


def test_what_cannot_be_side_by_side(store: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is sequential; omit temporal_parallelism"):
        run_series(make("meme"), store, temporal_parallelism=2)
    with pytest.raises(InputError, match="temporal_parallelism"):
        run_series(make("hashtag"), store, temporal_parallelism=0)
    with pytest.raises(InputError, match="checkpoints require"):
        run_series(make("hashtag"), store, temporal_parallelism=2, checkpoint_dir=tmp_path)


class Fails(HashtagAggregation):
    """In the fifth timestep only, which is that of one group of ranks."""

    def __init__(self) -> None:
        super().__init__("mu")

    def compute_batch(self, batch: Any, step: Any) -> None:
        if step.timestep == 4:
            raise ValueError("on purpose")
        super().compute_batch(batch, step)


_ON_RANKS = """
import json, sys
from pathlib import Path
from mpi4py import MPI
from goffish.temporal.run import run_series
from goffish.errors import JobError
from tests.temporal.test_run import NAMES, Fails, make, plain
found = {name: run_series(make(name), sys.argv[1], engine="mpi", comm=MPI.COMM_WORLD) for name in NAMES}
found["groups"] = run_series(make("hashtag"), sys.argv[1], engine="mpi", temporal_parallelism=2)
found["single"] = run_series(make("hashtag"), sys.argv[1], engine="mpi", temporal_parallelism=50)
try:
    run_series(Fails(), sys.argv[1], engine="mpi", temporal_parallelism=3)
    raise SystemExit("it did not fail")
except JobError as error:
    assert "on purpose" in str(error), error
if MPI.COMM_WORLD.rank == 0:
    Path(sys.argv[2]).write_text(json.dumps({name: plain(one) for name, one in found.items()}))
"""


@pytest.mark.slow
def test_on_ranks(store: str, wanted: dict[str, Any], tmp_path: Path) -> None:
    code, _, error = mpirun(3, "-m", "mpi4py", "-c", _ON_RANKS, store, str(tmp_path / "found.json"))
    assert code == 0, error
    told = json.loads((tmp_path / "found.json").read_text())
    expected = json.loads(json.dumps(wanted))
    assert told.pop("groups") == told.pop("single") == expected["hashtag"]
    assert told == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_on_spark(store: str, spark: Any, name: str) -> None:
    there, here = (run_series(make(name), store, end=40, **way) for way in ({"engine": "spark", "spark": spark}, {}))
    assert plain(there) == plain(here)


@pytest.mark.slow
def test_side_by_side_on_spark(store: str, spark: Any) -> None:
    here = run_series(make("hashtag"), store, end=60)
    there = run_series(make("hashtag"), store, end=60, engine="spark", spark=spark, temporal_parallelism=2)
    assert plain(there) == plain(here)


def test_only_what_is_needed_is_read(store: str) -> None:
    """12 partitions of one subgraph, hence of one bin each."""
    groups = -(-20 // PACK)
    for name, slices in (("hashtag", groups * 12), ("meme", groups * 12)):
        with open_series(store, prefetch=False) as series:
            reads = run_series(make(name), series).reads
        assert reads is not None
        assert reads.slices_read == slices, name
    with open_series(store, prefetch=False) as series:
        reads = run_series(make("tdsp"), series).reads
        assert reads is not None
        # The wave has not come to all partitions in the first group; all vertices are final in the second one.
        assert 12 < reads.slices_read < 24


def test_ranges_of_time(store: str) -> None:
    assert run_series(make("hashtag"), store, start=100, end=200).table["timestep"].to_pylist() == list(range(5, 10))
    later = run_series(TimeDependentShortestPath(0), store, start=40)
    assert later.timesteps["timestep"].to_pylist()[0] == 2
    assert np.min(later.table["arrival"]) == 0
    with pytest.raises(InputError, match="outside the series"):
        run_series(make("hashtag"), store, start=10_000)


def test_attributes_that_are_not_there(store: str) -> None:
    with pytest.raises(
        InputError, match=r"no attribute 'edge.time' in this series; available: vertex.memes, edge.latency"
    ):
        run_series(TimeDependentShortestPath(0, latency="time"), store)


@pytest.mark.parametrize("stop", [1, 8, 25])
def test_a_stopped_run_goes_on(store: str, wanted: dict[str, Any], tmp_path: Path, stop: int) -> None:
    with pytest.raises(JobError, match="not finished after"):
        run_series(make("tdsp"), store, max_supersteps=stop, checkpoint_dir=tmp_path, checkpoint_every=1)
    found = run_series(make("tdsp"), store, checkpoint_dir=tmp_path, resume=True)
    assert plain(found) == wanted["tdsp"]


def test_checkpoints_are_of_one_series(store: str, tmp_path: Path) -> None:
    """An instance more is another series; so is another range of its time."""
    other = shutil.copytree(store, tmp_path / "other")
    with pytest.raises(JobError, match="not finished after"):
        run_series(make("meme"), other, max_supersteps=5, checkpoint_dir=tmp_path / "c", checkpoint_every=1)
    with pytest.raises(InputError, match="checkpoint"):
        run_series(make("meme"), other, start=20, checkpoint_dir=tmp_path / "c", resume=True)
    last = next(open_series(other).instances(start=380))
    more = {"vertex.memes": last.vertex("memes"), "edge.latency": last.edge("latency")}
    append_instances(other, [InstanceData(400, 420, more)])
    with pytest.raises(InputError, match="checkpoint"):
        run_series(make("meme"), other, end=400, checkpoint_dir=tmp_path / "c", resume=True)


def test_what_is_no_series(store: str) -> None:
    for wrong in (gf.open(store).instances(), None, 3):
        with pytest.raises(InputError, match=r"series is (None|of type (list|int)): expected a store"):
            gf.run_series("hashtags", wrong, hashtag="mu")

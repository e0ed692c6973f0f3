"""Estimates against the coefficients that made the runs; units against RTBA's definitions, worked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import goffish as gf
from goffish.errors import InputError, StoreError
from goffish.scheduling.estimate import JobShape, estimate, read_calibration, shape_of, spot_job
from goffish.scheduling.estimate import calibration as kept
from goffish.scheduling.estimate.calibration import Calibration, this_machine
from goffish.scheduling.estimate.estimates import JobEstimate
from goffish.scheduling.estimate.graphs import KINDS, SIZES, samples
from goffish.scheduling.spot.model import work_units
from tests.scheduling.estimate import job_cases as cases


def calibration() -> Calibration:
    runs = cases.exact_runs()
    return Calibration(this_machine(), [run if run.fitted else cases.times(run, 1.5) for run in runs])


def test_an_estimate_by_hand() -> None:
    """Breaks when CPU seconds are not turned into core-hours, start-up is left out, or the band is another one."""
    found = estimate(JobShape("components", "local", 10**6, 5 * 10**6, 4, 8, boundary=10**5), calibration())
    work = 0.3 + 0.5 + 2e-3 * 4 * 6
    size = 16e6 + 24e5
    assert found.core_hours == pytest.approx((1.5 + work) / 3600)
    assert found.core_hours_low == pytest.approx(found.core_hours)
    assert found.core_hours_high == pytest.approx((1.5 + 1.5 * work) / 3600)
    assert found.memory_bytes == pytest.approx(2.5e8 + 2e8 + 4e6)
    assert found.memory_bytes_high == pytest.approx(2.5e8 + 1.5 * 2.04e8)
    assert (found.checkpoint_bytes, found.checkpoint_bytes_high) == pytest.approx((size, 1.5 * size))
    assert found.checkpoint_seconds == pytest.approx(4 * 2e-3 + 4e-9 * size)
    assert found.wall_seconds[8] == pytest.approx(1.25 + work * (0.3 + 0.7 / 8))
    assert (found.startup_seconds, found.startup_core_hours) == (1.25, 1.5 / 3600)
    assert found.speedup(1) == pytest.approx(1)
    assert found.speedup(4) == pytest.approx(1 / (0.3 + 0.7 / 4))
    assert found.warnings == ()


def test_warnings() -> None:
    """Breaks when figures of another machine, or far beyond what was measured, are given without a word."""
    ours = calibration()
    other = Calibration({**ours.machine, "processor": "abacus"}, ours.runs)
    small = JobShape("components", "local", 1000, 1000, 2)
    told = f"measured on another machine ({other.describe_machine()}); run goffish calibrate to measure this one"
    assert estimate(small, other).warnings == (told,) and "abacus" in told
    huge = JobShape("components", "local", 10**9, 10**9, 2)
    assert "times as large as the largest measured one" in estimate(huge, ours).warnings[0]
    with pytest.raises(
        InputError, match="louvain on mpi is not part of the calibration; available: components on local"
    ):
        estimate(JobShape("louvain", "mpi", 1, 1, 1), ours)


def plain(**changed: float) -> JobEstimate:
    figures = {
        "core_hours": 5.0, "core_hours_low": 4.0, "core_hours_high": 8.0, "memory_bytes": 1e9,
        "memory_bytes_high": 1e9, "checkpoint_bytes": 1e9, "checkpoint_bytes_high": 6e9, "checkpoint_seconds": 1.0,
        "checkpoint_seconds_high": 10.0, "startup_seconds": 5.0, "startup_core_hours": 0.0, "serial": 0.0,
    }  # fmt: skip
    return JobEstimate(**(figures | changed), wall_seconds={})  # type: ignore[arg-type]


def test_a_job_of_rtba() -> None:
    """§2.2: 2 and 4 cores and slots of 10 minutes make a unit of 1/3 core-hour, 8 core-hours are 24 units (O-18: the
    high end counts). Checkpoints: 10 s + 6e9 / 1e7 = 610 s, two slots; start-up: 5 s + 600 s, two as well.
    """
    _, unit = work_units([2, 4], 6)
    assert spot_job(plain(), unit, 600.0, 1e7) == (24, 2, 2)
    assert spot_job(plain(core_hours_high=8.01), unit, 600.0, 1e9) == (25, 1, 1)
    assert spot_job(plain(core_hours_high=1e-6, checkpoint_bytes_high=0.0), unit, 600.0, 1e9) == (1, 1, 1)
    assert spot_job(plain(), unit, 600.0, 1e7, machine_startup_s=600.0).startup_slots == 3
    for wrong in ((0.0, 600.0, 1.0), (unit, -1.0, 1.0), (unit, 600.0, float("nan"))):
        with pytest.raises(InputError, match="must be greater than 0"):
            spot_job(plain(), *wrong)


def test_a_calibration_that_was_written_is_the_same(tmp_path: Path) -> None:
    ours = calibration()
    ours.write(tmp_path / "sub" / "c.json")
    again = read_calibration(tmp_path / "sub" / "c.json")
    assert (again.machine, again.runs, again.models) == (ours.machine, ours.runs, ours.models)
    errors = {error.quantity: (error.runs, error.median, error.worst) for error in again.errors()}
    assert errors["work"] == pytest.approx((3, 1.5, 1.5))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nothing", "not JSON"), ("[]", "no format mark"),
        ('{"format": "goffish-calibration", "version": 2}', "format 2, this GoFFish reads up to 1"),
        ('{"format": "goffish-calibration", "version": 1, "machine": {}, "runs": []}', "no machine or no runs"),
        ('{"format": "goffish-calibration", "version": 1, "machine": {}, "runs": [{"shape": {}}]}', "damaged"),
    ],
)  # fmt: skip
def test_files_that_are_no_calibrations(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(StoreError, match=told):
        read_calibration(tmp_path / "c.json")
    with pytest.raises(StoreError, match="cannot be read"):
        read_calibration(tmp_path / "missing.json")


def test_a_users_own_calibration_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a user's own figures are not used, or the shipped ones do not fill their gaps."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    shape = JobShape("components", "local", 10**6, 10**6, 4, boundary=0)
    shipped = estimate(shape)
    calibration().write(kept.user_path())
    assert kept.user_path() == tmp_path / "goffish" / "calibration.json"
    assert estimate(shape).core_hours == pytest.approx((1.5 + 0.3 + 0.1 + 0.048) / 3600)
    assert estimate(shape) != shipped
    assert estimate(JobShape("betweenness", "local", 10**4, 10**4, 4, sources=8)).core_hours > 0
    with pytest.raises(InputError, match="goffish calibrate --algorithms quotient --engine spark"):
        estimate(JobShape("quotient", "spark", 1, 1, 1))


def test_merging_keeps_what_was_not_measured_anew() -> None:
    """Breaks when measuring one algorithm forgets another, or figures of two machines are mixed."""
    ours = calibration()
    older = [cases.times(run, 9.0) for run in cases.exact_runs()]
    bfs = [
        kept.run_from_dict({**kept.run_to_dict(run), "shape": {**vars(run.shape), "algorithm": "bfs"}}, "")
        for run in older
    ]
    both = ours.merged(Calibration(ours.machine, [*older, *bfs]))
    assert [run for run in both.runs if run.key[0] == "components"] == list(ours.runs)
    assert [run for run in both.runs if run.key[0] == "bfs"] == bfs
    assert ours.merged(Calibration({}, bfs)).runs == ours.runs


@pytest.mark.parametrize("size", SIZES)
def test_no_graph_is_both_fitted_to_and_tested_on(size: str) -> None:
    """Breaks when the test is on a graph of the fit, or on nothing larger or of no other kind."""
    found = samples(size)
    fitted, tested = ({(s.kind, s.edges) for s in found if s.fitted is kind} for kind in (True, False))
    assert len(found) == len(fitted) + len(tested)
    assert not fitted & tested and len({sample.name for sample in found}) == len(found)
    assert max(edges for _, edges in tested) > max(edges for _, edges in fitted)
    assert {kind for kind, _ in tested} - {kind for kind, _ in fitted}
    # Also of another size, from which --resume may have runs.
    others = {sample.name for other in SIZES for sample in samples(other) if not sample.fitted}
    assert not others & {sample.name for sample in found if sample.fitted}


@pytest.mark.parametrize("kind", KINDS)
def test_generated_graphs_are_the_same_each_time(kind: str) -> None:
    sample = next(s for size in ("tiny", "small") for s in samples(size) if s.kind == kind)
    once, again = sample.make(True), sample.make(True)
    assert all((a == b).all() for a, b in zip(once.edge_columns()[:3], again.edge_columns()[:3], strict=True))
    assert 0.3 * sample.edges < once.num_edges <= 1.2 * sample.edges
    assert once.weights is not None and once.weights.min() >= 1 and once.weights.max() <= 255


def test_shapes_of_stores_and_files(tmp_path: Path) -> None:
    """The boundary against a count of the arcs between partitions by hand."""
    (tmp_path / "ring.txt").write_text("".join(f"{v} {(v + 1) % 8}\n" for v in range(8)))
    graph = gf.read(tmp_path / "ring.txt")
    assert shape_of(tmp_path / "ring.txt", "bfs", workers=3) == JobShape("bfs", "local", 8, 8, 3, 3)
    assert shape_of(graph, "pagerank", "mpi", 5, supersteps=30).supersteps == 30
    gf.partition(graph, parts=2, method="range").save(str(tmp_path / "ring.gofs"))
    found = shape_of(str(tmp_path / "ring.gofs"), "betweenness", workers=2, sources=4)
    assert found == JobShape("betweenness", "local", 8, 8, 2, 2, boundary=4, sources=4)
    with pytest.raises(InputError, match="partitions = 3: the graph already has 2 partitions"):
        shape_of(str(tmp_path / "ring.gofs"), "bfs", partitions=3)

"""Pictures of runs show the counters of the run, value for value."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from goffish.algorithms.run import run
from goffish.errors import InputError
from goffish.gofs import build_layout
from goffish.gopher.stats import STEP_SCHEMA, RunStats
from goffish.plot import gantt, supersteps
from tests.cases import grid, grid_blocks
from tests.plot.plot_cases import by_gid, fake_run, overlapping_texts, rectangles


def _grid_run() -> RunStats:
    stats = run("components", build_layout(grid(12, 9), grid_blocks(12, 9), 12)).stats
    assert stats is not None
    return stats


def test_supersteps_lines_and_bars_are_the_counters() -> None:
    stats = _grid_run()
    figure = supersteps(stats)
    for name in ("messages", "combined", "remote"):
        line = by_gid(figure, name)[name]
        assert line.get_xdata().tolist() == list(range(1, stats.supersteps + 1))
        assert line.get_ydata().tolist() == stats.per_superstep(name).tolist()
    bars = figure.axes[1].containers[0]
    assert [bar.get_height() for bar in bars] == stats.per_superstep("active").tolist()
    assert by_gid(figure, "subgraphs")["subgraphs"].get_ydata()[0] == stats.subgraphs
    assert overlapping_texts(figure) == []


@pytest.mark.parametrize(("messages", "scale"), [(100, "linear"), (100_000_000, "symlog")])
def test_axis_is_logarithmic_only_when_values_demand_it(messages: int, scale: str) -> None:
    figure = supersteps(fake_run(6 if scale == "linear" else 200, 2, messages=messages))
    assert figure.axes[0].get_yscale() == scale
    assert figure.axes[0].get_ylim()[0] == 0
    assert overlapping_texts(figure) == []


def test_superstep_ticks_are_whole_numbers() -> None:
    figure = supersteps(fake_run(3, 2))
    ticks = figure.axes[1].get_xticks()
    assert set(ticks) >= {1, 2, 3}
    assert all(tick == int(tick) for tick in ticks)


def test_gantt_bars_run_from_start_to_end() -> None:
    stats = fake_run(7, 5)
    figure = gantt(stats)
    rows = stats.steps.to_pylist()
    bars = by_gid(figure, "partition-")
    assert set(bars) == {f"partition-{p}" for p in range(5)}
    for p in range(5):
        mine = [row for row in rows if row["partition"] == p]
        expected = [(1e3 * r["start"], 1e3 * (r["end"] - r["start"])) for r in mine]
        assert np.allclose(rectangles(bars[f"partition-{p}"]), expected)
    totals = [bar.get_width() for bar in figure.axes[1].containers[0]]
    assert np.allclose(totals, 1e3 * stats.busy_per_partition())
    assert "ms" in figure.axes[0].get_xlabel()


def test_gantt_marks_the_slowest_partition_and_the_barriers() -> None:
    figure = gantt(fake_run(4, 3))
    slowest = by_gid(figure, "slowest-")
    assert set(slowest) == {"slowest-2"}  # partition p computes p + 1 ms and more
    assert len(slowest["slowest-2"].get_paths()) == 4
    barriers = by_gid(figure, "barriers")["barriers"]
    ends = rectangles(by_gid(figure, "partition-2")["partition-2"]).sum(axis=1)
    assert np.allclose([path[0][0] for path in barriers.get_segments()], ends)


def test_gantt_leaves_idle_partitions_empty() -> None:
    figure = gantt(fake_run(3, 4, idle=1))
    assert len(by_gid(figure, "partition-")["partition-1"].get_paths()) == 0
    assert figure.axes[0].get_xlim()[0] > 490  # idle rows hold start 0, which must not stretch the axis


def test_gantt_title_tells_imbalance_and_idle_share() -> None:
    stats = fake_run(3, 4)
    title = gantt(stats).axes[0].get_title(loc="left")
    assert f"{stats.imbalance:.2f}" in title
    assert f"{stats.idle_share:.0%}" in title


@pytest.mark.slow
def test_gantt_of_a_large_run_stays_small_and_keeps_the_compute_time() -> None:
    stats = fake_run(300, 200)
    figure = gantt(stats)
    bars = by_gid(figure, "partition-")
    assert len(bars) == 48
    assert "partition-199" in bars
    assert "partition-0" not in bars  # the fastest
    assert all(len(bar.get_paths()) <= 30 for bar in bars.values())
    drawn = rectangles(bars["partition-199"])[:, 1].sum()
    assert drawn == pytest.approx(stats.busy_per_partition()[199])
    assert "10 supersteps per bar" in figure.axes[0].get_title(loc="right")
    assert figure.get_size_inches()[1] <= 20
    assert overlapping_texts(figure) == []


def engine_run(supersteps: int) -> RunStats:
    """Eight partitions on two threads: four after each other in 0.1 ms each, then 4 ms in which messages go around."""
    stats = fake_run(supersteps, 8)
    rows = stats.steps.to_pylist()
    for row in rows:
        row["start"] = row["superstep"] * 4.4e-3 + row["partition"] // 2 * 1e-4
        row["end"] = row["start"] + 1e-4
        row["busy"] = 1e-4
    return replace(stats, steps=pa.Table.from_pylist(rows, schema=STEP_SCHEMA))


@pytest.mark.parametrize("supersteps", [4, 10, 11, 20, 40, 41, 76, 300])
@pytest.mark.slow
def test_gantt_is_made_of_bars_not_of_hairlines(supersteps: int) -> None:
    figure = gantt(engine_run(supersteps))
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    bars = by_gid(figure, "partition-")
    assert set(bars) == {f"partition-{p}" for p in range(8)}
    for collection in bars.values():
        starts, widths = rectangles(collection).T
        # At most four bars follow each other in a superstep; a quarter of the room is the most that a row can fill.
        assert widths.sum() > 0.15 * (high - low)
        assert np.median(widths) > 0.004 * (high - low), "four pixels of a thousand"
        assert np.all(starts[1:] >= (starts + widths)[:-1] - 1e-9)
        assert widths.sum() == pytest.approx(0.1 * supersteps)
    assert overlapping_texts(figure) == []


def test_gantt_of_groups_is_as_wide_as_the_slowest_partitions() -> None:
    stats = fake_run(76, 3)  # partition 2 is the slowest of all groups
    figure = gantt(stats)
    starts, widths = rectangles(by_gid(figure, "partition-2")["partition-2"]).T
    assert len(widths) == 26
    rows = [row for row in stats.steps.to_pylist() if row["partition"] == 2]
    sums = [1e3 * sum(row["busy"] for row in rows[at : at + 3]) for at in range(0, 76, 3)]
    assert np.allclose(widths, sums)
    assert np.allclose(np.diff(starts) - widths[:-1], 0.1 * np.mean(sums)), "the same room between all groups"
    assert not by_gid(figure, "barriers") and not by_gid(figure, "pause")
    assert set(by_gid(figure, "slowest-")) == {"slowest-2"}


def test_gantt_puts_a_resumed_run_on_one_clock() -> None:
    stats = fake_run(4, 2)
    rows = stats.steps.to_pylist()
    for row in rows:
        if row["superstep"] >= 3:  # the second process began its clock anew
            row["start"], row["end"] = row["start"] - 0.5, row["end"] - 0.5
    resumed = replace(stats, steps=pa.Table.from_pylist(rows, schema=STEP_SCHEMA))
    starts = rectangles(by_gid(gantt(resumed), "partition-1")["partition-1"])
    assert (np.diff(starts[:, 0]) >= starts[:-1, 1] - 1e-6).all()


@pytest.mark.parametrize("shape", [(1, 1), (4, 8), (30, 3), pytest.param((72, 40), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_no_text_covers_another(shape: tuple[int, int]) -> None:
    assert overlapping_texts(gantt(fake_run(*shape))) == []
    assert overlapping_texts(supersteps(fake_run(*shape))) == []


def test_a_run_without_supersteps_is_refused() -> None:
    empty = fake_run(0, 2)
    for draw in (supersteps, gantt):
        with pytest.raises(InputError, match="no supersteps"):
            draw(empty)


def test_counters_come_back_from_json() -> None:
    stats = _grid_run()
    again = RunStats.from_dict(json.loads(json.dumps(stats.to_dict())))
    assert again == stats
    assert again.steps.equals(stats.steps)
    assert again.to_dict() == stats.to_dict()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"supersteps": None}, "supersteps"),
        ({"partitions": -1}, "partitions=-1"),
        ({"partitions": 1}, "partition outside 0 … 0"),
        ({"supersteps": 1}, "superstep outside 1 … 1"),
        ({"steps": 7}, "steps"),
        ({"steps": [{"superstep": 1}]}, "without 'partition'"),
        ({"steps": [{"superstep": "one"}]}, "steps"),
        ({"steps": [7]}, "steps"),
        ({"phases": {"compute": "long"}}, "phases"),
        ({"phases": 3}, "phases"),
        ({"edge_cut": "low"}, "edge_cut"),
    ],
)
def test_damaged_counters_are_named(change: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        RunStats.from_dict({**fake_run(3, 2).to_dict(), **change})


def test_missing_counters_are_named() -> None:
    values = fake_run(3, 2).to_dict()
    del values["steps"], values["threads"]
    with pytest.raises(InputError, match="'threads', 'steps' missing"):
        RunStats.from_dict(values)
    with pytest.raises(InputError, match="expected an object"):
        RunStats.from_dict([1])


def test_gantt_shortens_long_pauses() -> None:
    stats = fake_run(3, 2)
    rows = stats.steps.to_pylist()
    for row in rows:  # a second between supersteps, whose compute phases take 8 ms in all
        row["start"] += row["superstep"]
        row["end"] += row["superstep"]
    figure = gantt(replace(stats, steps=pa.Table.from_pylist(rows, schema=stats.steps.schema)))
    bars = by_gid(figure, "partition-")
    expected = [1e3 * (row["end"] - row["start"]) for row in rows if row["partition"] == 1]
    assert np.allclose(rectangles(bars["partition-1"])[:, 1], expected)  # compute phases keep their lengths
    starts, lengths = rectangles(bars["partition-1"]).T
    assert np.all(starts[1:] >= (starts + lengths)[:-1])
    assert figure.axes[0].get_xlim()[1] < 20
    assert len([a for a in figure.findobj() if a.get_gid() == "pause"]) == 2
    assert {text.get_text() for text in figure.axes[0].texts} == {"1 s"}
    ends = np.array([path[0][0] for path in by_gid(figure, "barriers")["barriers"].get_segments()])
    assert np.allclose(ends, starts + lengths)

"""Pictures of what cannot be drawn: one sentence that says what can."""

from __future__ import annotations

from pathlib import Path

import pytest

import goffish as gf
from goffish import plot
from goffish.errors import InputError
from tests.plot.plot_cases import fake_run

TRIANGLE = gf.from_edges([0, 1, 2], [1, 2, 0])


@pytest.mark.parametrize("draw", [plot.gantt, plot.supersteps])
def test_runs_without_counters_get_advice(draw) -> None:
    answered = gf.connected_components(TRIANGLE)
    for given in (answered, answered.stats, None):
        with pytest.raises(InputError, match="engine='local'"):
            draw(given)
    for given in (5, "x", TRIANGLE, answered.table):
        with pytest.raises(InputError, match=r"result\.stats"):
            draw(given)


@pytest.mark.parametrize("draw", [plot.gantt, plot.supersteps])
def test_a_result_is_as_good_as_its_counters(draw) -> None:
    result = gf.run("components", TRIANGLE, engine="local")
    assert draw(result).axes[0].get_title() == draw(result.stats).axes[0].get_title()


def test_graphs_of_the_wrong_kind() -> None:
    with pytest.raises(InputError, match=r"gf\.partition"):
        plot.quotient_graph(TRIANGLE)
    with pytest.raises(InputError, match="largest"):
        plot.quotient_graph(gf.partition(TRIANGLE, 1), largest="a")
    with pytest.raises(InputError, match="to_graph"):
        plot.graph(gf.partition(TRIANGLE, 1), gf.connected_components(TRIANGLE))
    for values in (None, {"vertex": [0]}, 5):
        with pytest.raises(InputError, match="values"):
            plot.graph(TRIANGLE, values)


def test_saving_what_is_no_figure_or_nowhere(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a figure, then a path"):
        plot.save("x.png", tmp_path / "x.png")
    for path in (None, 5, "a\0.png"):
        with pytest.raises(InputError, match="path"):
            plot.save(plot.gantt(fake_run(2, 2)), path)

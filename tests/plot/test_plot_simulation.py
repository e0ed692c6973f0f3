"""Pictures of simulated runs: what is drawn is what was recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goffish.errors import InputError
from goffish.plot.simulation import simulation, simulation_page
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.simulate.run import simulate
from goffish.scheduling.simulate.scenario import make_rates, make_variability

FLOW = compile_flow(read_dataflow("linear-road"))


def run(name: str, steps: int = 24) -> Any:
    rates = make_rates("walk", FLOW, steps, 300.0, 1)
    variability = make_variability("ec2", 1)
    failures = Failures(machines={0: 3000.0})
    return simulate(FLOW, "ec2-2013-m1", make_policy(name), rates, variability, failures=failures)


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    return {name: run(name) for name in ("reactive-global", "reactive-local")}


def labels(runs: dict[str, Any]) -> list[str]:
    assert {run.summary.backlog_grows for run in runs.values()} == {True}, "goal 0.8"
    return [f"{name}, the backlog grows" for name in runs]


def drawn(figure: Any, gid: str) -> Any:
    return next(artist for axis in figure.axes for artist in axis.get_children() if artist.get_gid() == gid)


def test_the_panels_hold_what_was_recorded(runs: dict[str, Any]) -> None:
    """Breaks when a panel shows another column, another run, or another time."""
    figure = simulation(runs, FLOW.goal)
    hours = np.arange(25) / 12
    for at, result in enumerate(runs.values()):
        columns = {name: result.intervals.column(name).to_numpy() for name in result.intervals.column_names}
        panels = ((f"omega-{at}", "omega"), (f"machines-{at}", "machines"), (f"latency-{at}", "latency_s"))
        for gid, name in panels:
            data = drawn(figure, gid).get_data()
            assert np.allclose(data.values, columns[name]) and np.allclose(data.edges, hours)
        assert np.allclose(drawn(figure, f"cost-{at}").get_ydata(), [0, *columns["cost"]])
        assert drawn(figure, f"changes-{at}").get_data().values[-1] == result.summary.reconfigurations
        x, y = drawn(figure, f"failures-{at}").get_data()
        assert np.allclose(x, [10 * 300 / 3600]) and y.tolist() == [columns["machines"][10]]
    assert np.allclose(drawn(figure, "rate").get_data().values, columns["rate"])
    low, high = drawn(figure, "band").get_extents().transformed(figure.axes[1].transData.inverted()).intervaly
    assert (low, high) == (pytest.approx(0.75), pytest.approx(0.85))
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == labels(runs)


def test_the_page_is_whole_and_holds_the_same(runs: dict[str, Any], tmp_path: Path) -> None:
    """Breaks when the page needs the network, or its values are not the recorded ones."""
    page = simulation_page(runs, FLOW.goal, tmp_path / "run.html").read_text()
    assert not re.findall(r"<(?:script|link)[^>]+(?:src|href)=", page)
    traces = json.loads(re.search(r'Plotly\.newPlot\(\s*"simulation",\s*(\[.*?\]),\s*\{', page, re.S)[1])  # type: ignore[index]
    assert [trace["name"] for trace in traces] == ["external rate", *(name for name in labels(runs) for _ in range(5))]
    assert not list(tmp_path.glob(".*"))


def test_what_cannot_be_drawn(runs: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 runs: expected 1 to 7"):
        simulation({}, FLOW.goal)
    with pytest.raises(InputError, match="different numbers of intervals"):
        simulation({**runs, "short": run("reactive-local", 3)}, FLOW.goal)
    with pytest.raises(
        InputError, match="results is of type int: expected a result of simulate, or a dictionary of results by name"
    ):
        simulation({"x": 3}, FLOW.goal)  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"must be one of \.html, \.htm"):
        simulation_page(runs, FLOW.goal, tmp_path / "run.png")
    with pytest.raises(InputError, match="does not exist"):
        simulation_page(runs, FLOW.goal, tmp_path / "none" / "run.html")

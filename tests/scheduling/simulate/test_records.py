"""Results: what the tables and the summary say, and that the same seed gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from goffish.cloud.variability import like_ec2
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.control.records import TABLES
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.peers import TrueRateScaling
from goffish.scheduling.simulate.rates import scaled, walk
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.simulate.policies import Fixed, catalogue, chain

ROAD = compile_flow(read_dataflow("linear-road"))
SCRIPT = """
import sys
import numpy as np
from goffish.cloud.variability import like_ec2
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.peers import TrueRateScaling
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.simulate.rates import scaled, walk
from goffish.scheduling.simulate.run import simulate
flow = compile_flow(read_dataflow("linear-road"))
rates = scaled(flow, walk(1.0, 30, np.random.default_rng(2)))
for engine, arrivals in (("fluid", "even"), ("events", "poisson")):
    failures = Failures(mean_life_s=20000, seed=4)
    simulate(flow, "ec2-2013", TrueRateScaling(), rates, like_ec2(3), failures=failures, engine=engine,
             arrivals=arrivals, seed=int(sys.argv[2])).write(sys.argv[1] + "/" + engine)
"""


def digest(folder: Path) -> str:
    """Of all files below a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    """I13: breaks when the clock, an address, memory nobody wrote or the order of a set gets into a result."""
    for number, (name, seed) in enumerate((("a", 1), ("b", 1), ("c", 2))):
        fresh_memory = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_PERTURB_": str(85 * number + 1)}
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / name), str(seed)]
        subprocess.run(command, check=True, env=os.environ | fresh_memory)
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")


def test_summaries_follow_from_the_tables() -> None:
    """Metrics computed from the tables; breaks when a figure is not what its name says.

    See docs/specs/provisioning.md, sections 2.5 and 2.6; docs/specs/plasticc.md, section 4.6.
    """
    rates = scaled(ROAD, walk(1.0, 72, np.random.default_rng(2)))
    result = simulate(
        ROAD, "ec2-2013", TrueRateScaling(), rates, like_ec2(3), failures=Failures(shares=((3000.0, 0.25),))
    )
    told, omegas = result.summary, np.array(result.intervals["omega"].to_pylist())
    assert told.omega == pytest.approx(omegas.mean()) and told.omega_sd == pytest.approx(omegas.std())
    assert told.chi == sum(not 0.75 <= omega <= 0.85 for omega in omegas.tolist())
    assert told.compliance == pytest.approx(np.mean(omegas >= 0.75 - 1e-9))
    columns = result.intervals.to_pydict()
    assert told.latency_s == pytest.approx(np.average(columns["latency_s"], weights=columns["rate"]))
    changes = sum(sum(columns[name]) for name in ("switches", "instance_changes", "starts", "stops"))
    assert told.reconfigurations == changes > 0
    assert told.value == 1.0 and told.cost == pytest.approx(sum(result.machines["rent"].to_pylist()))
    assert told.profit == pytest.approx(1 - 0.003125 * told.cost)
    assert told.profit_against_break_even == pytest.approx(told.profit - 1 + 0.003125 * 72)
    assert told.throughput_met and told.compared == told.profit
    assert told.rate == pytest.approx(rates.sum(axis=1).mean())
    first = sum(start == 0 for start in result.machines["start_s"].to_pylist())
    assert told.starts == result.machines.num_rows - first and told.failures == sum(
        result.machines["failed"].to_pylist()
    )
    stops = sum(stop is not None for stop in result.machines["stop_s"].to_pylist())
    assert told.stops == stops - told.failures and told.failures > 0
    events = result.events.to_pylist()
    assert [e["time_s"] for e in events] == sorted(e["time_s"] for e in events)
    assert sum(e["event"] == "start" for e in events) == result.machines.num_rows
    changed = [
        any(row[name] for name in ("switches", "instance_changes", "starts", "stops"))
        for row in result.intervals.to_pylist()
    ]
    assert told.adaptations == sum(changed)
    rows = result.elements.to_pylist()
    assert len(rows) == 72 * ROAD.size and rows[10]["step"] == 1 and rows[10]["processing_element"] == ROAD.names[2]
    assert (result.planning_s > 0).all()


def test_runs_that_miss_their_goal_are_not_compared() -> None:
    """6.21: breaks when the profit of a run counts though nothing was processed."""
    result = simulate(chain(1.0, rate=10.0), catalogue(), Fixed([{0: 1}]), np.full((3, 1), 10.0))
    assert result.summary.omega == pytest.approx(0.1) and not result.summary.valid
    assert result.summary.compared is None and result.summary.chi == 3 and result.summary.queue == pytest.approx(8100)


def test_results_in_files(tmp_path: Path) -> None:
    """Breaks when the files hold other rows or figures than the run."""
    rates = scaled(ROAD, walk(1.0, 10, np.random.default_rng(2)))
    result = simulate(ROAD, "ec2-2013", TrueRateScaling(), rates, like_ec2(3))
    result.write(tmp_path / "run")
    assert json.loads((tmp_path / "run/summary.json").read_text()) == asdict(result.summary)
    for name, file in TABLES.items():
        assert pq.read_table(tmp_path / f"run/{file}.parquet").equals(getattr(result, name))


def test_latency_counts_the_queue_of_the_slowest_path() -> None:
    """First in, first out by hand: of two branches, one serves a message a second; 2 arrive, then one every 2 s.

    A message that arrives when `q` wait leaves after `q` seconds. Breaks when queues of a branch are left out.
    """
    elements = [{"id": name, "cost": cost} for name, cost in (("a", 0.01), ("slow", 1.0), ("fast", 0.01), ("z", 0.01))]
    edges = [["a", "slow"], ["a", "fast"], ["slow", "z"], ["fast", "z"]]
    flow = compile_flow(read_dataflow({"processing_elements": elements, "edges": edges, "inputs": {"a": 2.0}}))
    rates = np.repeat([2.0, 0.5], [4, 6])[:, None] * (np.arange(4) == 0)
    run = simulate(flow, catalogue(), Fixed([{at: 1} for at in range(4)]), rates, interval_s=100.0)
    arrivals = np.concatenate([np.arange(0.25, 400, 0.5), np.arange(401.0, 1000, 2.0)])
    ends = np.maximum.accumulate(arrivals - np.arange(arrivals.size)) + np.arange(1, arrivals.size + 1)
    assert run.summary.latency_s == pytest.approx((ends - arrivals).mean() + 0.02, abs=1.0)
    assert run.summary.latency_s > 200


def test_latency_of_an_element_without_machines() -> None:
    """Nothing leaves after the machine failed: by the middle of interval k, messages have waited (k - 1/2) intervals.

    Breaks when the wait stays at one interval while the queue grows.
    """
    flow, policy, failures = chain(0.25, 0.25, rate=2.0), Fixed([{0: 1}, {1: 1}]), Failures(machines={1: 100.0})
    run = simulate(flow, catalogue(), policy, np.tile(flow.rates, (6, 1)), interval_s=100.0, failures=failures)
    assert run.elements["power"].to_pylist()[3::2] == [0.0] * 5
    expected = [0.5, *(0.25 + 100.0 + wait for wait in (100, 150, 250, 350, 450))]
    assert run.intervals["latency_s"].to_pylist() == pytest.approx(expected)


@pytest.mark.parametrize("engine", ["fluid", "events"])
def test_latency_is_waiting_and_work(engine: str) -> None:
    """Little's law by hand: 2 messages a second, the second element keeps up with 1; its queue grows by 1 a second.

    Breaks when an element's wait, speed or path is another one's.
    """
    flow = chain(0.25, 1.0, rate=2.0)
    rates = np.tile(flow.rates, (3, 1))
    policy = Fixed([{0: 1}, {1: 1}])
    run = simulate(flow, catalogue(), policy, rates, engine=engine, interval_s=100.0, tick_s=0.5)  # type: ignore[arg-type]
    # On average 50, 150, 250 messages wait for the second element, of which one a second is done.
    expected = [0.25 + 1.0 + wait for wait in (50, 150, 250)]
    assert run.intervals["latency_s"].to_pylist() == pytest.approx(expected, abs=2.0 if engine == "events" else 1e-9)
    fast = simulate(flow, catalogue(speed=4.0), policy, rates, engine=engine, interval_s=100.0)  # type: ignore[arg-type]
    assert fast.intervals["latency_s"].to_pylist() == pytest.approx(
        [1.25 / 4] * 3, abs=1.0 if engine == "events" else 1e-9
    )

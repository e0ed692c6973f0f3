"""Policies that scale flows of users: models of flows, what is learned from a run, and runs on real workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.policies.policies import policy_names
from goffish.streaming.control import running
from goffish.streaming.modeled import Counted, Estimates, dataflow_of, demanded, elements_of, sent_of
from goffish.streaming.runtime.stages import divided
from goffish.streaming.topology import Topology

#: Cores that may use a fifth of a processor.
CLOUD = """
machine_types: [{name: fifth, cores: 1, speed: 0.2, price_per_hour: 0.1}]
billing: {quantum_s: 1}
startup_s: 1
"""


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def slow(record: dict[str, int]) -> dict[str, int]:
    work(0.002)
    return record


def quick(record: dict[str, int]) -> dict[str, int]:
    work(0.0005)
    return record


def numbered(n: int) -> dict[str, int]:
    return {"n": n, "key": n % 7}


def make_flow(target: Path, count: int, rate: float) -> gf.stream.Flow:
    """A flow whose stated cost is a tenth of what its function takes."""
    flow = gf.stream.Flow(f"scaled-{target.parent.name}")
    numbers = flow.source(gf.stream.generate(numbered, count=count, rate=rate), name="numbers")
    slowed = numbers.map(slow, name="slow", cost=0.0002)
    slowed.key_by("key").sum("n", name="sums").sink(gf.stream.write_json_lines(target))
    return flow


def branches() -> Topology:
    """Nine of ten records of an element go one way, and one the other; both meet again."""
    flow = gf.stream.Flow("branches")
    first = flow.source(gf.stream.generate(10, rate=50.0), name="in").map(slow, name="first", cost=0.002)
    ways = first.branch({"most": lambda n: n > 0, "few": lambda n: True})
    alternates = {"quick": gf.stream.Alternate(quick, cost=0.001, value=0.5)}
    most = ways["most"].map(slow, name="most", cost=0.004, alternates=alternates)
    few = ways["few"].map(slow, name="few", cost=0.004).map(quick, cost=0.001)
    most.union(few, name="both").sink(gf.stream.collect())
    return flow.check()


def test_elements_are_stages() -> None:
    """Breaks when sources or sinks become elements, edges are missing, or costs of followers are not counted."""
    topology = divided(branches(), ["first", "most", "few"])
    found = dataflow_of(topology)
    assert [one.id for one in found.elements] == ["first", "most", "few"]
    assert set(found.edges) == {("first", "most"), ("first", "few"), ("few", "most")}
    assert found.inputs == {"first": 50.0}
    costs = {one.id: [a.cost for a in one.choices] for one in found.elements}
    assert costs == {"first": [0.002], "most": [0.004, 0.001], "few": [0.005]}


def test_whole_flows_are_modeled_by_operators() -> None:
    found = dataflow_of(branches(), {"in": 7.0})
    assert (
        found.inputs == {"in": 7.0} and ("most", "both") in found.edges and len(found.elements) == len(branches().names)
    )


def test_what_is_learned() -> None:
    """Breaks when costs, selectivities or the shares of branches are not those of the run."""
    flow = gf.stream.Flow("learned")
    first = flow.source(gf.stream.generate(10), name="in").map(slow, name="first", cost=1.0)
    ways = first.branch({"most": lambda n: n > 0, "few": lambda n: True})
    alternates = {"quick": gf.stream.Alternate(quick, cost=0.5, value=0.5)}
    ways["most"].map(slow, name="most", cost=2.0, alternates=alternates).sink(gf.stream.collect())
    ways["few"].map(slow, name="few", cost=1.0).sink(gf.stream.collect())
    topology = divided(flow.check(), ["first", "most", "few"])
    model, active = compile_flow(dataflow_of(topology)), np.zeros(3, np.int64)
    moved = np.array([[100.0, 0, 0], [0, 90.0, 10.0], [0, 0, 0], [0, 0, 0]])
    done = Counted(np.array([100.0, 90.0, 10.0]), moved, np.array([0.0, 180.0, 10.0]), np.zeros(3))
    assert sent_of(model, done).tolist() == [50, 180, 10]
    found = Estimates.none(model).learned(model, active, done, np.array([1.0, 1.8, 0.1])).model(model, active)
    into, _ = found.ideal(active, np.array([100.0, 0, 0]))
    rows = found.rows(active)
    # Each element needs the cores that it was busy for.
    assert into * found.cost[rows] == pytest.approx([1.0, 1.8, 0.1])
    assert found.cost[1:3] == pytest.approx([0.02 * 1.8, 0.02 * 1.8 / 4]), "the alternate costs a fourth, as described"
    nothing = Counted(np.zeros(3), np.zeros((4, 3)), np.zeros(3), np.zeros(3))
    again = Estimates.none(model).learned(model, active, nothing, np.zeros(3))
    assert again.model(model, active).cost.tolist() == model.cost.tolist()


def test_rates_to_keep_up_with() -> None:
    """Breaks when what waits, at the beginning or within, or what sources could not send, does not count."""
    flow = gf.stream.Flow("chain")
    first = flow.source(gf.stream.generate(10), name="in").map(slow, name="first", cost=1.0)
    first.map(slow, name="second", cost=1.0).sink(gf.stream.collect())
    model, active = compile_flow(dataflow_of(divided(flow.check(), ["first", "second"]))), np.zeros(2, np.int64)
    came, none = np.array([100.0, 0.0]), np.zeros(2)
    assert demanded(model, active, came, 0.0, none).tolist() == [100, 0]
    assert demanded(model, active, came, 0.5, none).tolist() == [200, 0]
    assert demanded(model, active, came, 1.0, none).tolist() == [400, 0]
    assert demanded(model, active, came, 0.0, np.array([20.0, 0.0])).tolist() == [120, 0]
    assert demanded(model, active, came, 0.0, np.array([0.0, 50.0])).tolist() == [150, 0]
    assert demanded(model, active, none, 0.0, none).tolist() == [0, 0]
    assert came.tolist() == [100, 0]


REFUSED: dict[str, dict[str, Any]] = {
    "operator numbers: is a source": {"elements": ["numbers"]},
    "no operator 'else'": {"elements": ["else"]},
    "interval = 0.5: must be at least 1 s": {"interval": 0.5},
    "throughput = 1.5": {"throughput": 1.5},
    "unknown policy 'none'": {"policy": "none"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str, tmp_path: Path) -> None:
    given = REFUSED[message]
    with pytest.raises(InputError, match=re.escape(message)) as error:
        make_flow(tmp_path / "out", 10, 100).run(scaling=gf.stream.Scaling(**given))
    assert "\n" not in str(error.value)


def test_what_elements_need(tmp_path: Path) -> None:
    flow = gf.stream.Flow("cheap")
    numbers = flow.source(gf.stream.generate(10))
    numbers.map(abs, name="abs").sink(gf.stream.write_json_lines(tmp_path / "out"))
    with pytest.raises(InputError, match=r"no operator has a cost or alternates; name those .*: abs, "):
        flow.run(scaling=gf.stream.Scaling())
    with pytest.raises(InputError, match="workers = 2: scaling chooses the workers"):
        flow.run(workers=2, scaling=gf.stream.Scaling())
    flow = gf.stream.Flow("twice")
    alternates = {"b": gf.stream.Alternate(abs, cost=1.0, value=0.5)}
    one = flow.source(gf.stream.generate(10)).map(abs, name="x", cost=2.0, alternates=alternates)
    one.map(abs, name="y", cost=2.0, alternates=alternates).sink(gf.stream.write_json_lines(tmp_path / "out"))
    with pytest.raises(InputError, match="operators x and y: have alternates and the same workers"):
        elements_of(divided(flow.check(), ["x"]))


def records(target: Path) -> Counter[int]:
    """The last sum of every key, which is the largest one."""
    found = Counter[int]()
    for part in target.glob("part-*"):
        for row in map(json.loads, part.read_text().splitlines()):
            found[row["key"]] = max(found[row["key"]], row["n"])
    return found


def expected(count: int) -> Counter[int]:
    found = Counter[int]()
    for n in range(count):
        found[n % 7] += n
    return found


@pytest.mark.slow
def test_a_flow_until_its_sources_end(tmp_path: Path) -> None:
    """Breaks when records are lost or counted twice, or what was decided is not written."""
    scaling = gf.stream.Scaling(interval=1.0, output=tmp_path / "decisions")
    metrics = make_flow(tmp_path / "out", 300, 250).run(scaling=scaling)
    assert metrics.stopped == "finished" and metrics["slow"].received == 300
    assert records(tmp_path / "out") == expected(300)
    rows = pq.read_table(tmp_path / "decisions/processing_elements.parquet").to_pylist()
    assert {row["processing_element"] for row in rows} == {"slow"}
    # Intervals end at fixed times, and the last one when the flow does.
    intervals = pq.read_table(tmp_path / "decisions/intervals.parquet").to_pylist()
    assert len(intervals) == len(rows) >= 1 and intervals[-1]["cost"] > 0
    assert sum(row["rate"] for row in intervals) > 0


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_workers_follow_what_is_measured(killed: bool, tmp_path: Path) -> None:
    """The stated cost is wrong, and one core is too slow: more join, and none is lost with a worker that is killed."""
    (tmp_path / "cloud.yaml").write_text(CLOUD)
    scaling = gf.stream.Scaling(
        interval=2.0, cloud=str(tmp_path / "cloud.yaml"), output=tmp_path / "decisions", throughput=0.8
    )
    flow = make_flow(tmp_path / "out", 2400, 120)
    metrics: list[gf.stream.Metrics] = []
    thread = threading.Thread(target=lambda: metrics.append(flow.run(scaling=scaling, delivery="exactly-once")))
    thread.start()
    if killed:
        time.sleep(12)
        (found,) = [one for one in running() if one.flow == flow.name]
        pids = [one["pid"] for one in found.ask("metrics")["workers"] if one["stage"] == "slow"]
        found.close()
        assert pids[0] > 1
        os.kill(pids[0], signal.SIGKILL)
    thread.join(120)
    assert records(tmp_path / "out") == expected(2400)
    rows = pq.read_table(tmp_path / "decisions/processing_elements.parquet").to_pylist()
    assert rows[0]["instances"] == 1 and max(row["instances"] for row in rows) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_runs_a_flow(policy: str, tmp_path: Path) -> None:
    """Breaks when a policy needs something that flows of users do not have, or records are lost on its way."""
    (tmp_path / "cloud.yaml").write_text(CLOUD.replace("0.2", "0.5"))
    scaling = gf.stream.Scaling(policy, interval=1.0, cloud=str(tmp_path / "cloud.yaml"), output=tmp_path / "decisions")
    make_flow(tmp_path / "out", 300, 100).run(scaling=scaling)
    assert records(tmp_path / "out") == expected(300)
    assert pq.read_table(tmp_path / "decisions/intervals.parquet").num_rows >= 3


def test_without_the_packages_of_policies() -> None:
    """Breaks when what is missing is an internal error, or the advice installs a part of it only."""
    program = (
        "import sys; sys.modules['networkx'] = None\nimport goffish as gf\n"
        "flow = gf.stream.Flow('x'); flow.source(gf.stream.generate(3)).sink(gf.stream.collect())\n"
        "for call in (flow.to_dataflow, lambda: flow.run(scaling=gf.stream.Scaling())):\n"
        "    try: call()\n    except gf.InputError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    advice = "networkx is not installed: pip install 'goffish[service]'"
    assert out.splitlines() == [f"dataflow models: {advice}", f"scaling: {advice}"]

"""Flows on machines that are processes: results are those of plain Python, whichever machines end, and none stays."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.streaming.rented.conftest import Start
from tests.streaming.runtime.hosts import Started, children, wait_for
from tests.streaming.runtime.test_cluster import make_events, sums_of
from tests.streaming.runtime.test_hosts import write_flow

#: Machines are processes that compete for this computer.
PATIENCE_S = 180.0
_MACHINE, _AGENT = "goffish.cloud.providers.agent", "goffish.streaming.rented.agent"


#: Rents a machine at the second decision, and releases the first one at the fourth.
POLICY = """
from dataclasses import dataclass

import numpy as np

from goffish.scheduling.dataflow.deployment import Deployment, Machine


@dataclass(frozen=True)
class GrowAndShrink:
    def deploy(self, flow, catalogue):
        deployment = Deployment(catalogue, np.zeros(flow.size, np.int64))
        deployment.add_machine(Machine(-1, 0))
        deployment.put(0, -1)
        return deployment

    def adapt(self, observation, memory):
        deployment = observation.live.copy()
        if observation.step == 1:
            deployment.add_machine(Machine(-1, 0))
            deployment.put(0, -1)
        if observation.step == 4 and len(deployment.machines) > 1:
            deployment.drop_machine(min(deployment.machines))
        return deployment, memory
"""


def run_flow(start: Start, flow: Path, *more: str) -> Started:
    return start("run", str(flow), "--provider", "local", "--every", "0.2s", "--lease", "2s", "--json", *more)


def running(controller: Started, module: str) -> list[psutil.Process]:
    """Return the processes of a command that run a module, oldest first."""
    found = psutil.Process(controller.process.pid).children(recursive=True)
    named = []
    for one in found:
        try:
            named.append((one.create_time(), one) if module in one.cmdline() else None)
        except psutil.Error:
            continue
    return [process for _, process in sorted(filter(None, named), key=lambda pair: pair[0])]


def own_workers(controller: Started) -> list[int]:
    """Return the workers that run with the command, not on machines."""
    machines = {one.pid for one in running(controller, _MACHINE)}
    templates = [one for one in children(controller.process.pid) if one not in machines]
    return [worker for template in templates for worker in children(template)]


def bill_of(controller: Started) -> dict[str, Any]:
    found = json.JSONDecoder().raw_decode(controller.output, controller.output.index("{"))[0]
    return dict(found["machines"])


def totals_of(folder: Path) -> dict[tuple[int, str], int]:
    totals = Counter[tuple[int, str]]()
    for file in folder.glob("part-*.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            totals[row["group"], row["window_start"]] += row["n"]
    return totals


def has_begun(folder: Path) -> None:
    wait_for(lambda: bool(list((folder / "out").glob("part-*"))), PATIENCE_S)


@pytest.mark.slow
def test_two_machines(start: Start, tmp_path: Path) -> None:
    """Breaks when records are lost, the bill lacks a machine, or a process stays."""
    expected = make_events(tmp_path / "in", 2000)
    controller = run_flow(start, write_flow(tmp_path), "--workers", "2")
    wait_for(lambda: len(running(controller, _AGENT)) == 2, PATIENCE_S)
    agents = running(controller, _AGENT)
    assert controller.wait() == 0, controller.output
    assert sums_of(tmp_path / "out") == expected
    bill = bill_of(controller)
    assert [one["machine_type"] for one in bill["rented"]] == ["core", "core"]
    assert bill["cost"] > 0 and bill["hours"] > 0 and bill["currency"] == "core-hours"
    psutil.wait_procs(agents, 10)
    assert not any(one.is_running() for one in agents)


@pytest.mark.slow
def test_a_machine_that_is_killed(start: Start, tmp_path: Path) -> None:
    """Breaks when the loss of a machine loses records, counts some twice, or no other one is rented."""
    expected = make_events(tmp_path / "in", 4000)
    controller = run_flow(start, write_flow(tmp_path, ", rate=300"), "--workers", "2")
    has_begun(tmp_path)
    os.killpg(running(controller, _MACHINE)[0].pid, signal.SIGKILL)
    controller.printed("machine 2 joined", PATIENCE_S)
    assert controller.wait(180) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected
    rented = bill_of(controller)["rented"]
    assert len(rented) == 3 and "failed" in [one["state"] for one in rented[:2]]


@pytest.mark.slow
def test_a_notice(start: Start, tmp_path: Path) -> None:
    """Breaks when a machine that will be taken back does not hand its state over: nothing else has it here."""
    expected = make_events(tmp_path / "in", 4000)
    controller = run_flow(
        start, write_flow(tmp_path, ", rate=300"), "--workers", "2", "--replication", "0", "--machine-type", "core"
    )
    has_begun(tmp_path)
    running(controller, _AGENT)[0].send_signal(signal.SIGTERM)
    controller.printed("machine 2 joined", PATIENCE_S)
    assert controller.wait(180) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_commands_that_are_ended(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    """Breaks when a machine stays after its command, or the next run does not resume from the checkpoint."""
    expected = make_events(tmp_path / "in", 3000)
    flow, saved = write_flow(tmp_path, ", rate=800"), str(tmp_path / "saved")
    controller = run_flow(start, flow, "--workers", "2", "--checkpoint", saved)
    has_begun(tmp_path)
    processes = [*running(controller, _MACHINE), *running(controller, _AGENT)]
    assert len(processes) == 4
    controller.process.send_signal(number)
    assert controller.wait(20) == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert not psutil.wait_procs(processes, 15)[1]
    again = run_flow(start, flow, "--workers", "2", "--checkpoint", saved)
    assert again.wait(180) == 0, again.output
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_machines_follow_the_number_of_workers(start: Start, tmp_path: Path) -> None:
    """Breaks when more workers get no machines, fewer keep theirs, or records are lost on the way."""
    expected = make_events(tmp_path / "in", 9000)
    flow = write_flow(tmp_path, ", rate=150")
    controller = run_flow(start, flow, "--workers", "2", "--max-machines", "4")
    has_begun(tmp_path)
    name = str(controller.process.pid)
    refused = start("scale", name, "5")
    assert refused.wait(60) == 2
    assert "5 workers need 5 machines of type core; --max-machines 4 allows fewer" in refused.output
    more = start("scale", name, "4")
    assert more.wait(120) == 0, more.output
    assert len(running(controller, _AGENT)) == 4
    fewer = start("scale", name, "2")
    assert fewer.wait(120) == 0, fewer.output
    wait_for(lambda: len(running(controller, _AGENT)) == 2, PATIENCE_S)
    assert controller.wait(180) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected
    states = [one["state"] for one in bill_of(controller)["rented"]]
    assert len(states) == 4 and set(states) <= {"finished", "released"}


@pytest.mark.slow
def test_machines_of_a_policy(start: Start, tmp_path: Path) -> None:
    """Breaks when what a policy plans is not rented or released, or records are lost when workers move."""
    expected = make_events(tmp_path / "in", 8000)
    (tmp_path / "policy.py").write_text(POLICY)
    controller = run_flow(
        start, write_flow(tmp_path, ", rate=250"), "--policy", f"{tmp_path}/policy.py:GrowAndShrink", "--elements",
        "sums", "--interval", "4",
    )  # fmt: skip
    controller.printed("machine 0 joined", PATIENCE_S)
    wait_for(lambda: len(own_workers(controller)) == 1, PATIENCE_S)  # the one that reads the sources
    controller.printed("machine 1 joined", PATIENCE_S)
    wait_for(lambda: len(running(controller, _AGENT)) == 1, PATIENCE_S)
    assert controller.wait(180) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected
    assert len(bill_of(controller)["rented"]) == 2


@pytest.mark.slow
def test_updates_reach_machines(start: Start, tmp_path: Path) -> None:
    """Breaks when machines do not get the file of a new version, also those that are rented after the update."""
    expected = make_events(tmp_path / "in", 9000)
    flow = write_flow(tmp_path, ", rate=250")
    new = tmp_path / "groups2.py"
    new.write_text(flow.read_text().replace("% 3", "% 3 + 0"))
    controller = run_flow(start, flow, "--workers", "2")
    has_begun(tmp_path)
    update = start("update", str(controller.process.pid), str(new))
    assert update.wait(90) == 0, update.output
    os.killpg(running(controller, _MACHINE)[0].pid, signal.SIGKILL)
    controller.printed("machine 2 joined", PATIENCE_S)
    assert controller.wait(180) == 0, controller.output
    # A window that was open at the update has a result of each version.
    assert totals_of(tmp_path / "out") == expected

"""Flows on pods, which run as processes of this machine; storage is that of a server of S3."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.cloud.kubernetes_cluster import Cluster
from tests.streaming.rented.conftest import Start
from tests.streaming.rented.test_local import PATIENCE_S, bill_of, has_begun
from tests.streaming.runtime.hosts import Started, wait_for, workers_of
from tests.streaming.runtime.test_cluster import make_events, sums_of
from tests.streaming.runtime.test_hosts import write_flow

pytest.importorskip("kubernetes")

CLOUD = {"machine_types": [{"name": "m7i.medium", "cores": 1, "price_per_hour": 0.1}], "billing": {"quantum_s": 1}}


@pytest.fixture
def pods(tmp_path: Path, s3: Any, pods: Cluster) -> Cluster:
    fsspec.filesystem("s3").makedirs("flows", exist_ok=True)
    (tmp_path / "cloud.json").write_text(json.dumps(CLOUD))
    (tmp_path / "options.json").write_text(json.dumps(pods.options))
    return pods


def run_flow(start: Start, folder: Path, flow: Path, *more: str) -> Started:
    return start(
        "run", str(flow), "--provider", "kubernetes", "--provider-options", f"{folder}/options.json", "--cloud",
        f"{folder}/cloud.json", "--jobs", "s3://flows/jobs", "--listen", "127.0.0.1:0", "--workers", "2", "--every",
        "0.2s", "--lease", "2s", "--json", *more,
    )  # fmt: skip


def stored() -> list[str]:
    system = fsspec.filesystem("s3")
    system.invalidate_cache()
    return list(system.find("flows"))


@pytest.mark.slow
def test_pods_that_are_evicted_and_killed(start: Start, tmp_path: Path, pods: Cluster) -> None:
    """Breaks when a pod has another command, or a secret, does not join, is not replaced, or stays."""
    expected = make_events(tmp_path / "in", 15_000)
    controller = run_flow(start, tmp_path, write_flow(tmp_path, ", rate=300"))
    has_begun(tmp_path)
    first, second = sorted(pods.pods)
    specification = pods.pods[first]
    command = specification["spec"]["containers"][0]["command"]
    assert command[:3] == ["python", "-m", "goffish.streaming.rented.agent"]
    assert re.fullmatch(r"s3://flows/jobs/[0-9a-f]{16} [0-9a-f]{12}", " ".join(command[3:]))
    assert not specification["spec"]["containers"][0].get("env")
    assert not [name for name in stored() if "tickets" in name]
    pods.evict(first, 30)
    controller.printed("will be taken back", PATIENCE_S)
    wait_for(lambda: controller.output.count(" joined") == 3, PATIENCE_S)
    assert controller.output.count("requested") == 3
    [third] = pods.pods.keys() - {first, second}
    wait_for(lambda: [len(workers_of(pods.node.pid(name))) for name in (second, third)] == [1, 1], PATIENCE_S)
    os.killpg(pods.node.pid(second), signal.SIGKILL)
    wait_for(lambda: controller.output.count(" joined") == 4, PATIENCE_S)
    assert controller.wait(400) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected
    bill = bill_of(controller)
    states = {one["machine"]: one["state"] for one in bill["rented"]}
    assert len(states) == 4 and states[second] == "finished" and bill["currency"] == "USD"
    pods.wait_until_empty()
    assert not stored()


@pytest.mark.slow
def test_pods_of_a_run_that_was_killed(start: Start, tmp_path: Path, pods: Cluster) -> None:
    """Breaks when the next run does not find its machines, rents others, or counts records twice."""
    expected = make_events(tmp_path / "in", 6000)
    flow, saved = write_flow(tmp_path, ", rate=400"), ("--checkpoint", str(tmp_path / "saved"))
    controller = run_flow(start, tmp_path, flow, *saved)
    has_begun(tmp_path)
    before = set(pods.pods)
    controller.process.kill()
    again = run_flow(start, tmp_path, flow, *saved)
    wait_for(lambda: again.output.count(" joined") == 2, PATIENCE_S)
    assert set(pods.pods) == before and "requested" not in again.output
    assert again.wait(400) == 0, again.output
    assert sums_of(tmp_path / "out") == expected
    pods.wait_until_empty()
    assert not stored()


@pytest.mark.slow
def test_pods_whose_command_never_returns(start: Start, tmp_path: Path, pods: Cluster) -> None:
    """Breaks when machines outlive the command that has rented them."""
    make_events(tmp_path / "in", 3000)
    controller = run_flow(start, tmp_path, write_flow(tmp_path, ", rate=300"))
    has_begun(tmp_path)
    controller.process.kill()
    wait_for(lambda: all(pod["status"]["phase"] == "Failed" for pod in pods.pods.values()), PATIENCE_S)
    assert len(pods.pods) == 2

"""Flows on machines of EC2: a server of the API keeps the machines, and their user data runs as processes."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from tests.ec2 import Ec2Server, started, tags_of
from tests.streaming.rented.conftest import Start
from tests.streaming.rented.test_local import has_begun
from tests.streaming.runtime.hosts import wait_for
from tests.streaming.runtime.test_cluster import make_events
from tests.streaming.runtime.test_hosts import write_flow

pytest.importorskip("boto3")

CLOUD = {"machine_types": [{"name": "t3.small", "cores": 1, "price_per_hour": 0.1}], "billing": {"quantum_s": 1}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2Server]:
    made = started()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()  # has the address of another server
    yield made
    made.close()


def script_of(server: Ec2Server, id: str) -> str:
    data = server.ec2.get_instance(id).user_data
    text = data if isinstance(data, str) else data.decode()
    return text if text.startswith("#!") else base64.b64decode(text).decode()


def write_profile(folder: Path, server: Ec2Server) -> None:
    """Write what the instance profile is on a machine: variables with credentials do not reach the command."""
    folder.mkdir()
    found = {name.lower(): value for name, value in server.variables.items() if name != "AWS_DEFAULT_REGION"}
    lines = [f"{name.removeprefix('aws_') if name == 'aws_endpoint_url' else name} = {found[name]}" for name in found]
    (folder / "config").write_text("\n".join(["[default]", "region = us-east-1", *lines, ""]))


@pytest.mark.slow
def test_machines_join_by_their_user_data(start: Start, tmp_path: Path, server: Ec2Server) -> None:
    """Breaks when user data has a secret, lacks an extra, or starts no agent; or a machine stays after Ctrl-C."""
    make_events(tmp_path / "in", 6000)
    zones = {one.availability_zone: one for one in server.ec2.describe_subnets()}
    group = server.ec2.create_security_group("flows", "flows", vpc_id=zones["us-east-1a"].vpc_id)
    (tmp_path / "cloud.json").write_text(json.dumps(CLOUD))
    (tmp_path / "aws.json").write_text(json.dumps({
        "image": next(iter(server.ec2.amis)), "subnets": [zones["us-east-1a"].id], "security_groups": [group.id],
        "wheel": "s3://lake/goffish-1-py3-none-any.whl", "region": "us-east-1",
    }))  # fmt: skip
    bucket = server.bucket()
    controller = start(
        "run", str(write_flow(tmp_path, ", rate=300")), "--provider", "aws", "--provider-options",
        f"{tmp_path}/aws.json", "--cloud", f"{tmp_path}/cloud.json", "--jobs", f"{bucket}/flows", "--listen",
        "127.0.0.1:0", "--workers", "2", "--every", "0.2s",
    )  # fmt: skip
    wait_for(lambda: len(server.running()) == 2)
    machines = [one.id for one in server.running()]
    processes = []
    environment = os.environ | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9", "HOME": str(tmp_path)}
    write_profile(tmp_path / ".aws", server)
    for id in machines:
        script = script_of(server, id)
        assert '"[aws,service]"' in script and not re.search("PRIVATE|CERTIFICATE|token", script)
        *command, _ = shlex.split(script.splitlines()[-1])
        command = [sys.executable, *command[1:], str(time.clock_gettime(time.CLOCK_BOOTTIME))]
        processes.append(subprocess.Popen(command, env=environment))
    try:
        has_begun(tmp_path)
        tags = [tags_of(server.ec2.get_instance(id)) for id in machines]
        assert {one["goffish:goffish-flow"] for one in tags} == {"groups"}
        assert len({one["goffish:goffish-machine"] for one in tags}) == 2
        assert [one.group_id for one in server.ec2.get_instance(machines[0]).security_groups] == [group.id]
        controller.process.send_signal(signal.SIGINT)
        assert controller.wait(20) == 130, controller.output
        assert [one.wait(20) for one in processes] == [0, 0]
        assert not server.running()
        assert "2 machines: " in controller.output and controller.output.count("requested") == 2
    finally:
        for one in processes:
            one.kill()

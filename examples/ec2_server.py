"""The API of Amazon EC2, S3, IAM, STS and Service Quotas on this machine, with machines that run: to try GoFFish on.

    pip install 'goffish[aws,service]' 'moto[ec2,iam,s3,server]>=5.1'
    python examples/ec2_server.py --interrupt &

The API is that of moto (https://docs.getmoto.org), which keeps machines as entries of a list. This program adds what a
job needs from a real account: the user data of each machine runs as a process of this computer, with a metadata service
that announces interruptions; a machine that powers off, or is taken back, ends. Spot prices are recorded ones of 2015,
as a share of the price on demand. Nothing of it costs money, and no credentials or permissions are checked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64decode
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from moto.core.responses import ActionResult
from moto.ec2.models import ec2_backends
from moto.ec2.responses.spot_instances import SpotInstances
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer
from moto.servicequotas.models import ServiceQuotasBackend

from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.prices import Trace, bundled_trace, trace_of

REGION, ACCOUNT = "us-east-1", "123456789012"
#: Seconds from an announcement of an interruption to the end of the machine, as in EC2.
NOTICE_S = 120.0
#: Seconds between two looks at the list of machines.
LOOK_S = 0.2
#: Virtual processors of the account on each market.
QUOTA = 64.0
#: What 90 days of prices are made from: recorded prices of a machine type, and their price on demand.
RECORDED = {"c": ("c3.xlarge", 0.21), "m": ("r3.large", 0.175)}
#: Prices in an answer, as in EC2.
PAGE = 1000
#: Seconds between two prices, as they change today; they are at most those on demand.
STEP_S = 6 * 3600.0
#: Programs of a machine that must not run on this computer.
STUBS = {"shutdown": "exit 0", "useradd": "exit 0", "id": "exit 0"}


class Metadata:
    """The metadata service of one machine (IMDSv2)."""

    def __init__(self) -> None:
        documents: dict[str, str] = {}
        token = secrets.token_hex(8)

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self._answer(200, token)

            def do_GET(self) -> None:
                if self.headers.get("X-aws-ec2-metadata-token") != token:
                    return self._answer(401, "")
                found = documents.get(self.path.removeprefix("/latest/meta-data/"))
                return self._answer(404 if found is None else 200, found or "")

            def _answer(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *given: object) -> None:
                pass

        self.documents = documents
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Running:
    """A machine that runs its user data in a separate folder."""

    def __init__(self, instance: Any, folder: Path, endpoint: str) -> None:
        self.instance, self.metadata = instance, Metadata()
        self.noticed: float | None = None
        folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        for name, text in STUBS.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        (folder / ".aws").mkdir()
        # What the role of an instance profile gives to a machine of AWS.
        role = "aws_access_key_id = machine\naws_secret_access_key = machine"
        (folder / ".aws/config").write_text(f"[default]\nregion = {REGION}\nendpoint_url = {endpoint}\n{role}\n")
        script = b64decode(str(instance.user_data)).decode().replace("HOME=/root", f"HOME={folder}")
        (folder / "user-data").write_text(script)
        environment = {
            "PATH": f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.metadata.address,
        }  # fmt: skip
        with (folder / "console.log").open("wb") as console:
            self.process = subprocess.Popen(
                ["/bin/sh", "user-data"], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=console,
                stderr=console, start_new_session=True,
            )  # fmt: skip

    def announce(self) -> None:
        """Announce that the machine will be taken back."""
        self.noticed = time.monotonic()
        at = datetime.fromtimestamp(time.time() + NOTICE_S, UTC)
        self.metadata.documents["spot/instance-action"] = json.dumps(
            {"action": "terminate", "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        )

    def stop(self) -> None:
        """Take the power from the machine: its processes are in one session, but for those that made their own."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)  # the supervisor of the machine ends what it has started
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.metadata.close()


class Machines:
    """Runs the machines in moto's list, and ends their entries when they have powered off."""

    def __init__(self, folder: Path, endpoint: str, interrupt: bool, marked: dict[str, datetime]) -> None:
        self._folder, self._endpoint, self._interrupt, self._marked = folder, endpoint, interrupt, marked
        self._running: dict[str, Running] = {}

    def look(self) -> None:
        """Start what was requested, and stop what has ended."""
        every = {one.id: one for one in ec2_backends[ACCOUNT][REGION].all_instances()}
        for name, instance in every.items():
            if instance.state == "running" and name not in self._running and instance.user_data:
                self._running[name] = Running(instance, self._folder / name, self._endpoint)
                say(f"{name} {instance.instance_type} {instance.lifecycle or 'on demand'} started")
        for name, one in list(self._running.items()):
            if one.instance.state != "running":
                self._end(name, "terminated")
            elif one.process.poll() is not None:
                end_entry(one.instance, "Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
                self._end(name, "powered off")
            elif one.noticed is not None and time.monotonic() - one.noticed >= NOTICE_S:
                end_entry(one.instance, "Server.SpotInstanceTermination", "Spot instance termination")
                self._end(name, "taken back")
            elif self._interrupt and one.instance.lifecycle == "spot" and worker_has_begun():
                self._interrupt = False
                one.announce()
                self._marked[name] = datetime.now(UTC)
                say(f"{name} will be taken back in {NOTICE_S:.0f} s")

    def _end(self, name: str, what: str) -> None:
        self._marked.pop(name, None)
        self._running.pop(name).stop()
        say(f"{name} {what}")

    def stop(self) -> None:
        for name in list(self._running):
            self._end(name, "stopped with the server")


def worker_has_begun() -> bool:
    """Whether the worker of a job has announced itself in the folder of the job."""
    buckets = s3_backends[ACCOUNT]["aws"].buckets.values()
    return any("/worker-" in key for bucket in buckets for key in list(bucket.keys))


def end_entry(instance: Any, code: str, message: str) -> None:
    """End the entry of a machine for a reason of EC2's."""
    instance._state.name, instance._state.code = "terminated", 48
    instance._reason = f"{code} ({datetime.now(UTC):%Y-%m-%d %H:%M:%S} GMT)"
    instance.state_reason.code, instance.state_reason.message = code, message


def spot_prices() -> dict[tuple[str, str], Trace]:
    """Return 90 days of prices, the last one of tomorrow, by machine type and zone."""
    found = {}
    tomorrow = time.time() + 86_400.0
    ages = np.arange(90 * 86_400.0, -STEP_S, -STEP_S)
    for one in read_catalogue("ec2-2025").classes:
        recorded, on_demand = RECORDED[one.name[0]]
        for zone in ("a", "b"):
            trace = bundled_trace(f"us-east-1{zone}-Linux-{recorded}")
            prices = np.minimum(trace.at(trace.end - ages) / on_demand, 1.0) * one.price_per_hour
            found[one.name, f"{REGION}{zone}"] = trace_of(tomorrow - ages, prices, one.name)
    return found


def extend_moto(traces: dict[tuple[str, str], Trace], marked: dict[str, datetime]) -> None:
    """Let the server answer with these prices, and with quotas and the machines marked for termination."""
    listed = SpotInstances.describe_spot_instance_requests

    def describe_requests(self: Any) -> ActionResult:
        if "status-code" not in self._filters_from_querystring():
            return listed(self)
        rows = [
            {
                "SpotInstanceRequestId": f"sir-{name[2:]}", "State": "active", "InstanceId": name,
                "Status": {"Code": "marked-for-termination", "UpdateTime": f"{at:%Y-%m-%dT%H:%M:%SZ}"},
            }
            for name, at in marked.items()
        ]  # fmt: skip
        return ActionResult({"SpotInstanceRequests": rows})

    def describe(self: Any) -> ActionResult:
        types, zone = self._get_param("InstanceTypes", []), self._get_param("AvailabilityZone")
        first, last = (
            datetime.fromisoformat(str(self._get_param(name))).timestamp() if self._get_param(name) else default
            for name, default in (("StartTime", 0.0), ("EndTime", time.time()))
        )
        rows = []
        for (kind, where), trace in traces.items():
            if (types and kind not in types) or zone not in (None, where):
                continue
            begin = max(0, int(trace.times.searchsorted(first, "right")) - 1)  # the price that was in force
            end = int(trace.times.searchsorted(min(last, time.time()), "right"))
            rows += [
                {
                    "InstanceType": kind, "ProductDescription": "Linux/UNIX", "AvailabilityZone": where,
                    "SpotPrice": f"{trace.prices[at]:.6f}",
                    "Timestamp": f"{datetime.fromtimestamp(trace.times[at], UTC):%Y-%m-%dT%H:%M:%SZ}",
                }
                for at in range(begin, end)
            ]  # fmt: skip
        after = int(self._get_param("NextToken") or 0)
        page = rows[::-1][after : after + PAGE]
        more = {"NextToken": str(after + PAGE)} if after + PAGE < len(rows) else {}
        return ActionResult({"SpotPriceHistory": page} | more)

    SpotInstances.describe_spot_price_history = describe
    SpotInstances.describe_spot_instance_requests = describe_requests
    ServiceQuotasBackend.get_service_quota = lambda self, service_code, quota_code: {"Value": QUOTA}


def set_up(endpoint: str, bucket: str, profile: str) -> None:
    """Create what the account of a user has: a bucket, the instance profile, a route, and the roles of AWS."""
    made = {"region_name": REGION, "endpoint_url": endpoint, "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    boto3.client("s3", **made).create_bucket(Bucket=bucket)
    iam = boto3.client("iam", **made)
    iam.create_instance_profile(InstanceProfileName=profile)
    iam.create_role(RoleName=profile, AssumeRolePolicyDocument="{}")
    iam.add_role_to_instance_profile(InstanceProfileName=profile, RoleName=profile)
    ec2 = boto3.client("ec2", **made)
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    [main_table] = ec2.describe_route_tables()["RouteTables"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=main_table["VpcId"])
    ec2.create_route(RouteTableId=main_table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    for service in ("EC2Spot", "EC2Fleet"):
        iam.create_role(RoleName=f"AWSServiceRoleFor{service}", AssumeRolePolicyDocument="{}")


def say(text: str) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}  {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=5555)
    parser.add_argument("--bucket", default="my-lake", help="bucket to create")
    parser.add_argument("--profile", default="goffish-worker", help="instance profile to create")
    parser.add_argument("--interrupt", action="store_true", help="take back the first spot machine that works")
    given = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # requests
    marked: dict[str, datetime] = {}
    extend_moto(spot_prices(), marked)
    server, endpoint = ThreadedMotoServer("127.0.0.1", given.port, verbose=False), f"http://127.0.0.1:{given.port}"
    server.start()
    set_up(endpoint, given.bucket, given.profile)
    with tempfile.TemporaryDirectory(prefix="ec2-", ignore_cleanup_errors=True) as folder:
        machines = Machines(Path(folder), endpoint, given.interrupt, marked)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        say(f"EC2 answers at {endpoint}")
        try:
            while True:
                machines.look()
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            pass
        finally:
            machines.stop()


if __name__ == "__main__":
    main()

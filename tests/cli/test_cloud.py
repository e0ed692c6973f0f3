"""``goffish cloud`` against a server of the AWS API."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.prices import trace_of
from goffish.cloud.spot_market import machine_trace
from tests.cli.conftest import Place
from tests.commands import ENVIRONMENT, assert_refused
from tests.ec2 import REGION, Ec2Server, Fault, started


@pytest.fixture(scope="module")
def running_server() -> Iterator[Ec2Server]:
    server = started()
    yield server
    server.close()


@pytest.fixture
def server(running_server: Ec2Server) -> Ec2Server:
    running_server.reset()
    return running_server


@pytest.fixture
def aws(server: Ec2Server, place: Place) -> Any:
    (place / "aws.yaml").write_text(f"region: {REGION}\nimage: {next(iter(server.ec2.amis))}\n")

    def call(*args: str, **more: Any) -> Any:
        return place("cloud", *args, "--provider-options", "aws.yaml", variables=server.variables | more)

    return call


def launch(server: Ec2Server, **tags: str) -> str:
    """Start a machine as the provider does, with a volume that nobody uses and a closed group."""
    every = {"goffish": "t"} | {f"goffish:{name}": value for name, value in tags.items()}
    made = server.ec2.run_instances(
        image_id=next(iter(server.ec2.amis)), count=1, user_data=None, security_group_names=[],
        instance_type="c7i.large", is_instance_type_default=False, tags={"instance": every},
    )  # fmt: skip
    return str(made.instances[0].id)


def test_policies(place: Place) -> None:
    """Everything that changes something is limited to tagged resources; machines have no rights in EC2."""
    (place / "aws.yaml").write_text(
        "region: eu-west-1\ninstance_profile: worker\nwheel: s3://lake/w/g-1.whl\nprefix: x\n"
    )
    args = ("cloud", "policy", "aws", "--provider-options", "aws.yaml", "--storage", "s3://lake/jobs")
    found = place(*args).json
    assert found.keys() == {"launcher", "worker", "trust"}
    statements = {one["Sid"]: one for one in found["launcher"]["Statement"]}
    for name in ("StartTagged", "CreateTagged"):
        assert statements[name]["Condition"] == {"Null": {"aws:RequestTag/x": "false"}}
    assert statements["EndTagged"]["Condition"] == {"Null": {"aws:ResourceTag/x": "false"}}
    assert "ec2:TerminateInstances" in statements["EndTagged"]["Action"]
    assert statements["PassWorkerRole"]["Resource"] == ["arn:aws:iam::*:role/worker"]
    worker = {action for one in found["worker"]["Statement"] for action in one["Action"]}
    assert {action.partition(":")[0] for action in worker} == {"s3"}
    resources = [one["Resource"] for one in found["worker"]["Statement"]]
    assert resources == [["arn:aws:s3:::lake/jobs/*"], ["arn:aws:s3:::lake"], ["arn:aws:s3:::lake/w/g-1.whl"]]
    for role in found:
        assert len(json.dumps(found[role], separators=(",", ":"))) < 6144  # limit of a managed policy
        assert place(*args, role).json == found[role]
    assert "arn:aws-cn:s3:::lake" in place(*args, "--region", "cn-north-1", "worker").out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("policy", "aws"), "--region is required, or region in --provider-options"),
        (("policy", "aws", "--region", "us-east-1", "--storage", "lake"), "--storage lake: is not the URI of a bucket"),
        (("policy", "aws", "--region", "us-east-1", "--storage", "s3://*"), "s3://*: is not the URI of a bucket"),
        (("check", "azure"), "Invalid value for 'ACCOUNT': 'azure' is not one of 'aws'"),
        (("check", "aws", "--provider-options", "none.yaml"), "none.yaml: cannot be read"),
        (("machines", "aws", "--tag", "a"), "--tag a: give NAME=VALUE"),
        (("reap", "aws", "--older-than", "soon"), "must be a duration such as 90s"),
        (("machines", "aws", "--cloud", "x"), "catalogue 'x' not found"),
    ],
)  # fmt: skip
def test_bad_arguments(place: Place, args: tuple[str, ...], message: str) -> None:
    ended = place("cloud", *args, variables={"AWS_CONFIG_FILE": "/dev/null"})
    assert_refused(ended)
    assert message in ended.err


def checks(ended: Any) -> dict[str, tuple[bool, str]]:
    return {one["name"]: (one["ok"], one["detail"]) for one in json.loads(ended.out)["checks"]}


def test_check_says_what_is_missing(server: Ec2Server, aws: Any) -> None:
    server.quotas["L-34B43A08"] = 0.0
    server.faults += [
        Fault("RunInstances", "UnauthorizedOperation", "no", 9),
        Fault("DescribeFleets", "UnauthorizedOperation", "no", 9),
    ]  # fmt: skip
    ended = aws("check", "aws", "--json")
    assert ended.code == 1
    found = checks(ended)
    assert found["credentials"][0] and found["network"][0] and found["image"][0] and found["machine types"][0]
    assert found["permissions to read"][1].startswith("missing: ec2:DescribeFleets; see goffish cloud policy aws")
    assert found["permissions to start machines"][1].startswith("missing: ec2:RunInstances;")
    assert found["quota of on-demand vCPUs"] == (True, "64")
    assert found["quota of spot vCPUs"][1].startswith("0: no machine can start; run aws service-quotas")
    assert "run aws iam create-service-linked-role --aws-service-name spot" in found["role for spot"][1]
    assert found["security group"] == (True, "will be created with the first machine")
    assert not found["routes"][0] and "no NAT gateway and no endpoint for S3; machines could not" in found["routes"][1]
    assert not server.instances()


def test_check_of_an_account_that_is_ready(server: Ec2Server, aws: Any, place: Place) -> None:
    from moto.iam.models import iam_backends

    iam = iam_backends["123456789012"]["aws"]
    for role in ("AWSServiceRoleForEC2Spot", "AWSServiceRoleForEC2Fleet"):
        iam.create_role(role, "{}", "/", None, "", [], None)
    vpc, gateway = server.ec2.get_default_vpc().id, server.ec2.create_internet_gateway().id
    server.ec2.attach_internet_gateway(gateway, vpc)
    [table] = server.ec2.describe_route_tables(filters={"vpc-id": [vpc]})
    server.ec2.create_route(table.id, "0.0.0.0/0", None, gateway_id=gateway)
    bucket = boto3.client("s3", endpoint_url=server.variables["AWS_ENDPOINT_URL"], aws_access_key_id="a",
                          aws_secret_access_key="b", region_name=REGION)  # fmt: skip
    bucket.create_bucket(Bucket="lake-of-jobs")
    ended = aws("check", "aws", "--storage", "s3://lake-of-jobs/all")
    assert ended.code == 0, ended.out
    assert "MISSING" not in ended.out and REGION in ended.out
    assert "Contents" not in bucket.list_objects_v2(Bucket="lake-of-jobs")  # nothing is left
    assert_refused(refused := aws("check", "aws", "--storage", "lake"))
    assert "--storage lake: is not the URI of a bucket" in refused.err
    missing = checks(aws("check", "aws", "--storage", "s3://no-lake/all", "--json"))["storage"]
    assert not missing[0] and missing[1].startswith("s3://no-lake/all: AWS s3 HeadBucket in us-east-1: ")


def test_prices_make_a_catalogue(server: Ec2Server, aws: Any, place: Place) -> None:
    """Breaks when the price is not that of the cheapest zone, or a launch cannot read what was written."""
    now = time.time()
    hours = now - 3600.0 * np.arange(72.0, -1.0, -1.0)
    server.prices["c7i.large", "us-east-1a"] = trace_of(hours, np.where(hours < now - 86_400.0, 0.05, 0.02))
    server.prices["c7i.large", "us-east-1b"] = trace_of(hours, np.full(hours.size, 0.03))
    shown = aws("prices", "aws", "-o", "types.yaml", "--days", "2", "--json").json["machine_types"]
    assert shown.keys() == {"c7i.large"} and shown["c7i.large"]["spot_now"] == 0.02
    assert shown["c7i.large"]["spot_mean"] == pytest.approx(0.025, rel=0.01)
    [one] = read_catalogue(place / "types.yaml").classes
    found = machine_trace(one)
    assert found.prices.tolist() == [0.03, 0.02] and found.end == pytest.approx(now, abs=60.0)
    assert found.times == pytest.approx([now - 2 * 86_400.0, now - 86_400.0], abs=3700.0)
    assert one.price_per_hour == 0.08925 and one.market == "spot"
    server.prices.clear()
    assert_refused(ended := aws("prices", "aws", "-o", "types.yaml"))
    assert "no spot prices in us-east-1" in ended.err
    assert_refused(aws("prices", "aws", "-o", "types.csv"))


def test_check_without_credentials(server: Ec2Server, aws: Any) -> None:
    ended = aws("check", "aws", "--json", AWS_ACCESS_KEY_ID="", AWS_SHARED_CREDENTIALS_FILE="/dev/null",
                AWS_CONFIG_FILE="/dev/null")  # fmt: skip
    assert ended.code == 1
    assert checks(ended).keys() == {"credentials"}
    assert "no credentials; set AWS_PROFILE" in checks(ended)["credentials"][1]


def test_machines_are_listed(server: Ec2Server, aws: Any) -> None:
    one, other = launch(server, job="a"), launch(server, job="b")
    found = aws("machines", "aws", "--json").json["machines"]
    assert {machine["id"]: machine["tags"] for machine in found} == {one: {"job": "a"}, other: {"job": "b"}}
    assert all(machine["cost"] > 0 for machine in found)
    table = aws("machines", "aws", "--tag", "job=a").out
    assert one in table and other not in table


def made(server: Ec2Server) -> None:
    """All kinds of resources that crashed launchers leave."""
    tags = {"goffish": "t", "goffish:job": "a"}
    launch(server, job="a")
    launch(server, job="b")
    volume = server.ec2.create_volume(size=1, zone_name="us-east-1a")
    server.ec2.create_tags([volume.id], tags)
    server.ec2.create_launch_template("goffish-1", "", {}, {"launch-template": tags})
    vpc = server.ec2.get_default_vpc().id
    server.ec2.create_security_group("goffish-closed", "d", vpc, {"goffish": ""})
    server.ec2.create_security_group("other", "d", vpc, {"team": "x"})
    server.ec2.create_tags([launch(server, job="b")], {"aws:ec2:fleet-id": server.empty_fleet()})


def test_reap(server: Ec2Server, aws: Any) -> None:
    made(server)
    unconfirmed = aws("reap", "aws")
    assert (unconfirmed.code, unconfirmed.err) == (2, "error: nothing was removed: confirm with --yes\n")
    listed = aws("reap", "aws", "--json").json
    kinds = [one["kind"] for one in listed["found"]]
    assert kinds == ["fleet", "machine", "machine", "machine", "launch template", "volume", "security group"]
    assert listed["removed"] == [] and len(server.running()) == 3
    assert aws("reap", "aws", "--older-than", "1h", "--yes").out == f"{REGION}: nothing to remove\n"
    job = aws("reap", "aws", "--tag", "job=a", "--yes", "--json").json
    assert [one["kind"] for one in job["found"]] == ["machine", "launch template", "volume"]
    assert len(job["removed"]) == 3 and len(server.running()) == 2
    assert aws("reap", "aws", "--yes").out.endswith("4 removed\n")
    assert not server.running()
    assert [one.name for one in server.ec2.describe_security_groups() if one.name in ("other", "goffish-closed")] == [
        "other"
    ]
    assert aws("reap", "aws").out == f"{REGION}: nothing to remove\n"


def test_reap_leaves_other_installations_alone(server: Ec2Server, aws: Any, place: Place) -> None:
    launch(server)
    (place / "aws.yaml").write_text(f"region: {REGION}\nprefix: other\n")
    assert aws("reap", "aws", "--yes").out == f"{REGION}: nothing to remove\n"
    assert len(server.running()) == 1


@pytest.mark.slow
def test_reap_asks_and_stops_on_an_interrupt(server: Ec2Server, place: Place, tmp_path: Path) -> None:
    """Nothing is removed unless the answer is yes, and Ctrl-C at the question removes nothing either."""
    launch(server)
    for answer, code, left in ((b"n\n", 0, 1), (signal.SIGINT, 130, 1), (b"y\n", 0, 0)):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "goffish", "cloud", "reap", "aws"]
        variables = ENVIRONMENT | server.variables | {"AWS_REGION": REGION}
        process = subprocess.Popen(command, env=variables, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        seen = b""
        while b"Remove them?" not in seen:
            piece = os.read(process.stdout.fileno(), 4096)
            assert piece, seen
            seen += piece
        if isinstance(answer, bytes):
            os.write(ours, answer)
        else:
            time.sleep(0.2)
            process.send_signal(answer)
        process.communicate(timeout=120)
        assert process.returncode == code
        assert len(server.running()) == left
        os.close(ours)
        os.close(theirs)

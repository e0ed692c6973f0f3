"""Machines of EC2 on a server of its API, with the faults of the real one."""

from __future__ import annotations

import asyncio
import base64
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.cloud.prices import Trace, bundled_trace
from goffish.cloud.providers.protocol import CapacityError, Machine, Request
from goffish.errors import GoffishError, InputError, JobError
from tests.ec2 import REGION, Ec2Server, Fault, started

pytest.importorskip("boto3")
from botocore.loaders import Loader

from goffish.cloud.providers.boot import Job
from goffish.cloud.providers.ec2 import Ec2Provider
from goffish.cloud.providers.ec2_account import Account, Ec2Options, read_ec2_options

Value = TypeVar("Value")
LOADER = Loader(include_default_search_paths=True)
CATALOGUE = read_catalogue({
    "machine_types": [
        {"name": "c7i.large", "cores": 2, "price_per_hour": 0.09},
        {"name": "m7i.large", "cores": 2, "price_per_hour": 0.1},
        {"name": "site", "cores": 2, "price_per_hour": 0, "market": "local"},
    ],
    "billing": {"quantum_s": 1, "minimum_s": 60, "cut_off": "first-hour-free"},
})  # fmt: skip
ASKED = Request(machine_type="c7i.large", command=["work", "it's"], token="one", tags={"job": "a"})
GIB_MONTH = 20 * 0.08 / (730 * 3600)


@pytest.fixture(scope="module")
def running_server() -> Iterator[Ec2Server]:
    server = started()
    yield server
    server.close()


@pytest.fixture
def server(running_server: Ec2Server, monkeypatch: pytest.MonkeyPatch) -> Ec2Server:
    running_server.reset()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in running_server.variables.items():
        monkeypatch.setenv(name, value)
    # Pauses between repetitions are botocore's, and only make tests slow.
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    monkeypatch.setattr("botocore.retries.bucket.TokenBucket.acquire", lambda *_, **__: True)
    # Every session would read the description of EC2 again, which takes half a second.
    monkeypatch.setattr("botocore.loaders.create_loader", lambda *_: LOADER)
    return running_server


@pytest.fixture
def options(server: Ec2Server) -> dict[str, Any]:
    zones = {one.availability_zone: one.id for one in server.ec2.describe_subnets()}
    return {"image": next(iter(server.ec2.amis)), "subnets": [zones["us-east-1a"], zones["us-east-1b"]]}


def provider(options: dict[str, Any], catalogue: Catalogue = CATALOGUE, **more: Any) -> Ec2Provider:
    return Ec2Provider(catalogue, read_ec2_options(options | more))


def run(call: Awaitable[Value]) -> Value:
    async def main() -> Value:
        return await call

    return asyncio.run(main())


def one_zone(options: dict[str, Any]) -> dict[str, Any]:
    return options | {"zones": ["us-east-1a"]}


@pytest.mark.parametrize("market", ["on-demand", "spot"])
@pytest.mark.parametrize("zone", ["us-east-1b", None])
def test_a_machine_from_its_request_to_its_end(
    server: Ec2Server, options: dict[str, Any], zone: str | None, market: Any
) -> None:
    """One subnet is a call of RunInstances, several are one of CreateFleet; nothing but the machine is left."""
    rents = provider(options)
    request = replace(ASKED, zone=zone, market=market, max_price=0.05 if market == "spot" else None)
    made = run(rents.request(request))
    assert (made.state, made.machine_type, made.market, made.tags) == ("pending", "c7i.large", market, {"job": "a"})
    (found,) = run(rents.machines({"job": "a"}))
    assert (found.id, found.state, found.market, found.zone) == (made.id, "running", market, made.zone)
    assert found.started_s == pytest.approx(rents.now, abs=30)
    assert server.calls["RunInstances"] == (zone is not None)
    assert server.calls["CreateFleet"] == (zone is None)
    assert not server.ec2.launch_templates
    run(rents.release([found.id]))
    (ended,) = run(rents.machines({"job": "a"}))
    assert (ended.state, ended.ended) == ("released", True)
    assert ended.ended_s is not None and ended.started_s is not None and ended.ended_s >= ended.started_s
    run(rents.release([found.id, "i-0123456789abcdef0"]))  # ended, and not listed any more


def test_machines_are_closed_and_cleaned_up_by_ec2(server: Ec2Server, options: dict[str, Any]) -> None:
    run(provider(one_zone(options)).request(replace(ASKED, market="spot", max_price=0.05)))
    call = server.last["RunInstances"]
    expected = {
        "MetadataOptions.HttpTokens": "required", "MetadataOptions.HttpPutResponseHopLimit": "1",
        "InstanceInitiatedShutdownBehavior": "terminate", "BlockDeviceMapping.1.Ebs.Encrypted": "true",
        "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true", "BlockDeviceMapping.1.Ebs.VolumeSize": "20",
        "InstanceMarketOptions.SpotOptions.SpotInstanceType": "one-time",
        "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior": "terminate",
        "InstanceMarketOptions.SpotOptions.MaxPrice": "0.050000",
    }  # fmt: skip
    assert {name: call.get(name) for name in expected} == expected
    assert "KeyName" not in call
    kinds = {call[f"TagSpecification.{n}.ResourceType"] for n in (1, 2, 3)}
    assert kinds == {"instance", "volume", "spot-instances-request"}
    (group,) = [one for one in server.ec2.describe_security_groups() if one.name == "goffish-closed"]
    assert call["SecurityGroupId.1"] == group.id and not group.ingress_rules
    script = base64.b64decode(call["UserData"]).decode()
    packed = shlex.split(script.splitlines()[-1])[-2]
    job = Job.unpacked(packed)
    assert job.command == ["work", "it's"]
    assert job.environment == {"AWS_DEFAULT_REGION": REGION}


def test_fleets_choose_by_price_and_capacity(server: Ec2Server, options: dict[str, Any]) -> None:
    run(provider(options).request(replace(ASKED, market="spot", max_price=0.05)))
    call = server.last["CreateFleet"]
    assert call["Type"] == "instant"
    assert call["SpotOptions.AllocationStrategy"] == "price-capacity-optimized"
    assert call["SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    subnets = {call[f"LaunchTemplateConfigs.1.Overrides.{n}.SubnetId"] for n in (1, 2)}
    assert subnets == set(options["subnets"])
    template = server.last["CreateLaunchTemplate"]
    assert template["LaunchTemplateData.MetadataOptions.HttpTokens"] == "required"


@pytest.mark.parametrize("zone", ["us-east-1a", None])
def test_a_lost_response_starts_no_second_machine(server: Ec2Server, options: dict[str, Any], zone: str | None) -> None:
    action = "RunInstances" if zone else "CreateFleet"
    server.faults.append(Fault(action, ""))
    made = run(provider(options).request(replace(ASKED, zone=zone)))
    assert server.calls[action] == 2
    assert [one.id for one in server.running()] == [made.id]


@pytest.mark.parametrize("zone", ["us-east-1a", None])
def test_requests_are_repeated_after_a_crash(server: Ec2Server, options: dict[str, Any], zone: str | None) -> None:
    """Also with other options, with which AWS does not accept the same token."""
    request = replace(ASKED, zone=zone)
    first = run(provider(options).request(request))
    assert run(provider(options).request(request)).id == first.id
    assert run(provider(options, volume_gb=30).request(request)).id == first.id
    assert len(server.running()) == 1
    other = run(provider(options).request(replace(request, token="two")))
    assert other.id != first.id


def test_launch_templates_of_a_crashed_launcher(server: Ec2Server, options: dict[str, Any]) -> None:
    """One that is left does not hinder the repeated request, and is removed after it."""
    server.faults += [
        Fault("CreateFleet", "InternalError", "An internal error has occurred", 99, status=500),
        Fault("DeleteLaunchTemplate", "UnauthorizedOperation", "no"),
    ]
    with pytest.raises(JobError, match=r"CreateFleet in us-east-1: An internal error has occurred .*retry later"):
        run(provider(options).request(ASKED))
    assert len(server.ec2.launch_templates) == 1 and not server.instances()
    server.faults.clear()
    assert run(provider(options).request(ASKED)).state == "pending"
    assert not server.ec2.launch_templates and len(server.running()) == 1


def test_requests_side_by_side(server: Ec2Server, options: dict[str, Any]) -> None:
    """Two launchers that request the same machines at the same time start each once, in one group."""
    rents = [provider(one_zone(options)) for _ in range(2)]

    async def together() -> list[Machine]:
        requests = [one.request(replace(ASKED, token=str(number))) for number in range(6) for one in rents]
        return await asyncio.gather(*requests)

    made = run(together())
    assert len({one.id for one in made}) == len(server.running()) == 6
    assert [one.name for one in server.ec2.describe_security_groups()].count("goffish-closed") == 1


CODES = {
    "InsufficientInstanceCapacity": "We currently do not have sufficient c7i.large capacity",
    "SpotMaxPriceTooLow": "Your Spot request price of 0.01 is lower than the minimum required 0.04",
    "MaxSpotInstanceCountExceeded": "Max spot instance count exceeded",
    "VcpuLimitExceeded": "You have requested more vCPU capacity than your current vCPU limit of 0 allows",
}


@pytest.mark.parametrize("code", CODES)
def test_no_capacity(server: Ec2Server, options: dict[str, Any], code: str) -> None:
    server.faults.append(Fault("RunInstances", code, CODES[code]))
    server.prices = {("c7i.large", zone): flat(0.04) for zone in ("us-east-1a", "us-east-1b")}
    rents = provider(options)
    request = replace(ASKED, zone="us-east-1a", market="spot")
    with pytest.raises(CapacityError) as raised:
        run(rents.request(request))
    assert str(raised.value) == f"c7i.large, spot, us-east-1a: {CODES[code]} ({code})"
    offers = {(one.zone, one.market): one.available for one in run(rents.offers()) if one.machine_type == "c7i.large"}
    assert offers == {
        ("us-east-1a", "on-demand"): True, ("us-east-1a", "spot"): False,
        ("us-east-1b", "on-demand"): True, ("us-east-1b", "spot"): True,
    }  # fmt: skip
    assert run(rents.request(request)).zone == "us-east-1a"  # the same request, later


def test_no_capacity_anywhere(server: Ec2Server, options: dict[str, Any]) -> None:
    """Fleets without machines are answers, not errors; they are deleted, and the same request can be repeated."""
    rents = provider(options)
    for _ in range(2):
        server.no_capacity = "InsufficientInstanceCapacity"
        with pytest.raises(CapacityError, match=r"c7i.large, spot, all zones of us-east-1: .*\(Insufficient"):
            run(rents.request(replace(ASKED, market="spot")))
    assert {one.state for one in server.ec2.fleets.values()} == {"deleted_terminating"}
    server.no_capacity = ""
    assert run(rents.request(replace(ASKED, market="spot"))).state == "pending"
    assert not server.ec2.launch_templates


def test_throttled_calls_are_repeated(server: Ec2Server, options: dict[str, Any]) -> None:
    server.faults.append(Fault("*", "RequestLimitExceeded", "Request limit exceeded.", times=3, status=503))
    assert run(provider(one_zone(options)).request(ASKED)).state == "pending"
    assert len(server.running()) == 1
    server.faults.append(Fault("DescribeInstances", "RequestLimitExceeded", "Request limit exceeded.", 99, status=503))
    with pytest.raises(JobError, match=r"DescribeInstances in us-east-1: Request limit exceeded .*retry later"):
        run(provider(options).machines({}))


def test_missing_permissions(server: Ec2Server, options: dict[str, Any]) -> None:
    said = "You are not authorized to perform this operation. Encoded authorization failure message: " + "x" * 900
    server.faults.append(Fault("RunInstances", "UnauthorizedOperation", said, status=403))
    with pytest.raises(InputError) as raised:
        run(provider(one_zone(options)).request(ASKED))
    assert str(raised.value) == (
        "AWS ec2 RunInstances: permission ec2:RunInstances is missing; see goffish cloud policy aws"
    )


@pytest.mark.parametrize("code", ["ExpiredToken", "AuthFailure", "RequestExpired"])
def test_credentials_that_are_not_accepted(server: Ec2Server, options: dict[str, Any], code: str) -> None:
    server.faults.append(Fault("*", code, "AWS was not able to validate\nthe credentials", times=9, status=401))
    with pytest.raises(InputError, match=rf"credentials are not accepted \({code}: AWS was not able to validate the c"):
        run(provider(options).machines({}))


def test_clocks(server: Ec2Server, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are those of AWS; a request that is refused for its time names the clock."""
    rents = provider(options)
    run(rents.machines({}))
    assert rents.now == pytest.approx(time.time(), abs=3)
    clock = SimpleNamespace(time=lambda: time.time() - 400, sleep=time.sleep)
    monkeypatch.setattr("goffish.cloud.providers.ec2_account.time", clock)
    server.faults.append(Fault("*", "RequestExpired", "Request has expired", times=9))
    with pytest.raises(InputError, match=r"the clock of this computer is (399|400|401) s off; set it \(Req"):
        run(rents.machines({}))
    assert rents.now == pytest.approx(time.time(), abs=3)


def test_no_credentials(server: Ec2Server, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(InputError, match="no credentials; set AWS_PROFILE"):
        run(provider(options).machines({}))
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(InputError, match="no region is set; set region in the options, or AWS_REGION"):
        provider(options)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert Account(Ec2Options()).region == "eu-west-1"
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(InputError, match=r"\(nobody\) could not be found; check AWS_PROFILE"):
        provider(options)


def test_regions_that_do_not_answer(server: Ec2Server, options: dict[str, Any]) -> None:
    closed = "http://127.0.0.1:9"
    with pytest.raises(JobError, match=f"DescribeInstances: {closed} does not answer .*check region and network"):
        run(provider(options, endpoint_url=closed).machines({}))


def test_a_region_without_a_default_network(server: Ec2Server, options: dict[str, Any]) -> None:
    for subnet in server.ec2.describe_subnets():
        server.ec2.delete_subnet(subnet.id)
    rents = provider({"image": options["image"]})
    with pytest.raises(InputError, match="us-east-1 has no default VPC with subnets; list subnets"):
        run(rents.request(ASKED))
    with pytest.raises(InputError, match=r"DescribeSubnets in us-east-1: .*InvalidSubnetID.NotFound"):
        run(provider(options).offers())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"machine_type": "x1"}, "unknown machine type 'x1'; accepted: c7i.large"),
        ({"machine_type": "site"}, "site: is not a machine type of EC2"),
        ({"token": ""}, "token: is empty"),
        ({"zone": "us-east-1z"}, "zone: 'us-east-1z' has no subnet; accepted: us-east-1a, us-east-1b"),
        ({"max_price": 1.0}, "max_price = 1.0: must be positive, and the market spot"),
        ({"max_price": float("nan"), "market": "spot"}, "max_price = nan"),
        ({"tags": {"x" * 121: "1"}}, "use 1 to 120 printable characters"),
        ({"tags": {"": "1"}}, "tags: name '' is not accepted"),
        ({"tags": {"a": "x" * 257}}, "tags: a = 'x+' is not accepted; use up to 256 printable"),
        ({"tags": {"a": "b\nc"}}, r"tags: a = 'b\\nc' is not accepted"),
        ({"tags": {str(n): "" for n in range(46)}}, "tags: 46 given; at most 45 are accepted"),
        ({"environment": {"GOFFISH_TOKEN": "x"}}, "GOFFISH_TOKEN looks like a secret"),
        ({"command": []}, "command: is empty"),
    ],
)
def test_requests_that_are_not_accepted(
    server: Ec2Server, options: dict[str, Any], changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(provider(options).request(replace(ASKED, **changed)))
    assert not server.instances()


def test_tags_are_matched_exactly(server: Ec2Server, options: dict[str, Any]) -> None:
    odd = ["*", "a?", "a\\*", "ünï 日本", "a=b:c/d@e", "<&>", "x" * 256, ""]
    rents = provider(one_zone(options))
    made = {
        value: run(rents.request(replace(ASKED, token=f"t{value}"[:64], tags={"job é": value}))).id for value in odd
    }
    again = provider(options)
    assert {value: [one.id for one in run(again.machines({"job é": value}))] for value in odd} == {
        value: [key] for value, key in made.items()
    }
    assert not run(provider(options, prefix="other").machines({}))
    assert len(run(again.machines({}))) == len(odd)


@pytest.mark.parametrize(
    ("code", "state", "charged"),
    [
        ("Server.SpotInstanceTermination", "interrupted", True),
        ("Client.InstanceInitiatedShutdown", "finished", True),
        ("Client.UserInitiatedShutdown", "released", True),
        ("Server.InternalError", "failed", False),
        ("Client.VolumeLimitExceeded", "failed", False),
        ("Server.ScheduledStop", "failed", True),
    ],
)
def test_why_machines_ended(server: Ec2Server, options: dict[str, Any], code: str, state: str, charged: bool) -> None:
    rents = provider(one_zone(options))
    made = run(rents.request(replace(ASKED, market="spot")))
    server.end(made.id, code, "words of EC2")
    (found,) = run(rents.machines({}))
    assert (found.state, found.reason) == (state, "words of EC2")
    assert (found.started_s is not None) == charged
    assert found.ended_s == pytest.approx(rents.now, abs=30)


def test_interruptions_are_announced(server: Ec2Server, options: dict[str, Any]) -> None:
    rents = provider(one_zone(options))
    made, other = (run(rents.request(replace(ASKED, market="spot", token=token))) for token in "ab")
    server.mark(made.id)
    found = {one.id: one for one in run(rents.machines({}))}
    assert found[made.id].notice_s == pytest.approx(rents.now + 120, abs=10)
    assert found[made.id].at_risk and found[made.id].state == "running"
    assert found[other.id].notice_s is None and not found[other.id].at_risk
    server.end(made.id, "Server.SpotInstanceTermination")
    states = {one.id: (one.state, one.notice_s) for one in run(rents.machines({}))}
    assert states == {made.id: ("interrupted", None), other.id: ("running", None)}


def test_machines_that_are_not_visible_yet(server: Ec2Server, options: dict[str, Any]) -> None:
    rents = provider(one_zone(options))
    made = run(rents.request(ASKED))
    server.invisible = 1
    assert [(one.id, one.state) for one in run(rents.machines({"job": "a"}))] == [(made.id, "pending")]
    server.invisible = 1
    assert not run(rents.machines({"job": "b"}))
    server.faults.append(Fault("TerminateInstances", "InvalidInstanceID.NotFound", f"{made.id} does not exist"))
    run(rents.release([made.id]))
    assert not server.running()


def flat(price: float) -> Trace:
    return Trace(np.array([0.0]), np.array([price]), 4e9)


def machine(market: Any, start: float, end: float | None, **more: Any) -> Machine:
    return Machine(
        id=f"i-{start}-{end}", machine_type="c7i.large", market=market, zone="us-east-1a", reason="", tags={},
        state=more.pop("state", "released"), requested_s=start, started_s=start, ended_s=end, **more,
    )  # fmt: skip


def test_costs_follow_recorded_prices(server: Ec2Server, options: dict[str, Any]) -> None:
    """The integral of a recorded trace, in pages of 50, against a sum over seconds."""
    recorded = bundled_trace("us-east-1a-Linux-c3.xlarge")
    server.prices = {("c7i.large", "us-east-1a"): recorded, ("c7i.large", "us-east-1b"): flat(9.0)}
    first = np.floor(recorded.times[100]) + 0.0
    last = first + 2 * 86_400.0
    assert np.sum((recorded.times > first) & (recorded.times < last)) > 50
    spot = machine("spot", first, last)
    seconds = np.arange(first, last) + 0.5
    expected = recorded.at(seconds).sum() / 3600 + GIB_MONTH * (last - first)
    shorter = machine("spot", first + 7200.0, first + 7210.0)
    minute = recorded.at(first + 7200.0 + np.arange(60) + 0.5).sum() / 3600
    found = run(provider(options).costs([
        spot, shorter,
        machine("on-demand", first, first + 1800), machine("on-demand", first, first + 1),
        machine("spot", first, first + 3599, state="interrupted"),
        machine("spot", first, first + 3601, state="interrupted"),
        replace(spot, id="i-0", started_s=None),
    ]))  # fmt: skip
    hour = recorded.at(first + np.arange(3601) + 0.5).sum() / 3600
    assert found == pytest.approx([
        expected, minute + GIB_MONTH * 60, 0.045 + GIB_MONTH * 1800, 0.09 / 60 + GIB_MONTH * 60,
        GIB_MONTH * 3599, hour + GIB_MONTH * 3601, 0.0,
    ], rel=1e-3)  # fmt: skip
    assert server.calls["DescribeSpotPriceHistory"] > 2


def test_offers_have_the_prices_of_the_zones(server: Ec2Server, options: dict[str, Any]) -> None:
    now = time.time()
    rising = Trace(np.array([0.0, now - 60.0, now + 600.0]), np.array([0.02, 0.03, 0.9]), 4e9)
    server.prices = {("c7i.large", "us-east-1a"): rising, ("c7i.large", "us-east-1b"): flat(0.04)}
    found = [(one.machine_type, one.market, one.zone, one.price_per_hour) for one in run(provider(options).offers())]
    zones = ("us-east-1a", "us-east-1b")
    assert sorted(found) == sorted([
        *(("c7i.large", "on-demand", zone, 0.09) for zone in zones),
        *(("m7i.large", "on-demand", zone, 0.1) for zone in zones),
        ("c7i.large", "spot", "us-east-1a", pytest.approx(0.03)), ("c7i.large", "spot", "us-east-1b", 0.04),
    ], key=lambda row: tuple(map(str, row)))  # fmt: skip


def teams(server: Ec2Server) -> dict[str, Any]:
    """Security groups of teams."""
    return {
        tag["value"]: one
        for one in server.ec2.describe_security_groups()
        for tag in one.get_tags()
        if tag["key"] == "goffish:team"
    }


def test_machines_of_a_team_can_connect_to_each_other_alone(server: Ec2Server, options: dict[str, Any]) -> None:
    """Breaks when a team shares the group of others, or its group lets anything else in."""
    for team, token in (("job-1", "one"), ("job-1", "two"), ("job-2", "three")):
        run(provider(one_zone(options)).request(replace(ASKED, team=team, token=token)))
    groups = teams(server)
    used = [{one.id for one in machine.security_groups} for machine in server.running()]
    assert used == [{groups["job-1"].id}, {groups["job-1"].id}, {groups["job-2"].id}]
    run(provider(options).request(replace(ASKED, team="job-1", token="fleet")))
    assert server.last["CreateLaunchTemplate"]["LaunchTemplateData.SecurityGroupId.1"] == groups["job-1"].id
    for group in groups.values():
        (rule,) = group.ingress_rules
        assert (rule.ip_protocol, rule.ip_range, rule.source_group["GroupId"]) == ("-1", {}, group.id)
    given = one_zone(options) | {"security_groups": [groups["job-2"].id]}
    run(provider(given).request(replace(ASKED, team="job-3", token="four")))
    assert {one.id for one in server.running()[-1].security_groups} == {groups["job-2"].id}
    server.ec2.authorize_security_group_ingress(
        group_name_or_id=groups["job-1"].id, ip_protocol="tcp", from_port="1", to_port="9",
        ip_ranges=[{"CidrIp": "10.0.0.0/8"}],
    )  # fmt: skip
    with pytest.raises(InputError, match=f"security group {groups['job-1'].id} .* has inbound rules; remove them"):
        run(provider(options).request(replace(ASKED, team="job-1", token="five")))


def test_a_group_that_was_left_without_its_rule_gets_it(server: Ec2Server, options: dict[str, Any]) -> None:
    server.faults.append(Fault("AuthorizeSecurityGroupIngress", "UnauthorizedOperation", times=1))
    with pytest.raises(GoffishError, match="AuthorizeSecurityGroupIngress"):
        run(provider(options).request(replace(ASKED, team="job-1")))
    run(provider(options).request(replace(ASKED, team="job-1")))
    (group,) = teams(server).values()
    assert len(group.ingress_rules) == 1


def test_unused_groups_of_teams_are_deleted(server: Ec2Server, options: dict[str, Any]) -> None:
    """Old ones without machines, when another team begins; `reap` knows the rest."""
    rents = provider(one_zone(options))
    for team in ("used", "old", "young"):
        made = run(rents.request(replace(ASKED, team=team, token=team)))
        if team != "used":
            server.ec2.terminate_instances([made.id])
    for team, group in teams(server).items():
        if team != "young":
            server.ec2.create_tags([group.id], {"goffish:created": f"{time.time() - 3700:.0f}"})
    used = teams(server)["used"].id
    server.faults.append(Fault("DeleteSecurityGroup", "DependencyViolation", when=lambda call: call["GroupId"] == used))
    run(rents.request(replace(ASKED, team="next", token="next")))
    assert teams(server).keys() == {"used", "young", "next"}


def test_groups_that_someone_has_opened(server: Ec2Server, options: dict[str, Any]) -> None:
    run(provider(options).request(ASKED))
    (group,) = [one for one in server.ec2.describe_security_groups() if one.name == "goffish-closed"]
    server.ec2.authorize_security_group_ingress(
        group_name_or_id=group.id, ip_protocol="tcp", from_port="22", to_port="22", ip_ranges=[{"CidrIp": "0.0.0.0/0"}]
    )
    with pytest.raises(
        InputError, match=rf"security group {group.id} \(goffish-closed\) has inbound rules; remove them"
    ):
        run(provider(options).request(replace(ASKED, token="two")))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"image": "ubuntu"}, "image = 'ubuntu': String should match pattern"),
        ({"region": "moon"}, "region = 'moon'"),
        ({"prefix": "aws-x"}, "names that start with aws are reserved"),
        ({"wheel": "/tmp/goffish.whl"}, "wheel = '/tmp/goffish.whl'"),
        ({"python": "python3; reboot"}, "python = 'python3; reboot'"),
        ({"volume": 3}, "volume: unknown field; choose from region, image, subnets"),
    ],
)
def test_options_that_are_not_accepted(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_ec2_options(given)


@pytest.mark.slow
def test_machines_of_a_crashed_server_are_adopted(server: Ec2Server, options: dict[str, Any]) -> None:
    """1,000 machines within ten seconds, without those of the server, which shares the processor."""
    tags = {"goffish": "t", "goffish:job": "a"}
    for _ in range(1000):
        server.ec2.run_instances(
            image_id=options["image"], count=1, user_data=None, security_group_names=[], instance_type="c7i.large",
            is_instance_type_default=False, subnet_id=options["subnets"][0], tags={"instance": tags}, lifecycle="spot",
        )  # fmt: skip
    began = time.process_time() - server.busy_s
    found = run(provider(options).machines({"job": "a"}))
    assert time.process_time() - server.busy_s - began < 10
    assert len({one.id for one in found}) == 1000
    assert {(one.state, one.tags["job"]) for one in found} == {("running", "a")}


@pytest.mark.slow
def test_wheels_are_fetched_with_the_script_of_the_machine(
    server: Ec2Server, options: dict[str, Any], tmp_path: Any
) -> None:
    """The line of the script that downloads, run by itself: names with odd characters, real bytes."""
    account = Account(Ec2Options())
    account.call("s3", "create_bucket", Bucket="lake")
    account.call("s3", "put_object", Bucket="lake", Key="w'h $x/goffish-1.whl", Body=b"wheel")
    wheel = "s3://lake/w'h$x/goffish-1.whl"
    account.call("s3", "put_object", Bucket="lake", Key="w'h$x/goffish-1.whl", Body=b"wheel")
    run(provider(one_zone(options), wheel=wheel).request(ASKED))
    script = base64.b64decode(server.last["RunInstances"]["UserData"]).decode()
    begin = script.index('"$python" -c')
    lines = script[begin : script.index('"$python" -m pip install --quiet "$work"')]
    head = f"python={shlex.quote(sys.executable)} work={shlex.quote(str(tmp_path))}\n"
    subprocess.run(["/bin/sh", "-euc", head + lines], check=True, env=os.environ | server.variables)
    assert (tmp_path / "goffish-1.whl").read_bytes() == b"wheel"

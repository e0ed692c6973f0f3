"""A server of the AWS API on this machine: moto's, with faults, idempotency, recorded prices and interruptions."""

from __future__ import annotations

import io
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import pytest

from goffish.cloud.prices import Trace
from tests.s3 import S3Server

REGION, ACCOUNT = "us-east-1", "123456789012"
_XML = [("Content-Type", "text/xml")]
Fields = dict[str, str]


@dataclass
class Fault:
    """What is wrong with some calls.

    Attributes
    ----------
    action : str
    code : str
        Error code; empty: the call is carried out, but its response is lost.
    message : str
    times : int
        Number of calls that fail.
    when : callable
        Given the parameters of a call.
    status : int
    """

    action: str
    code: str
    message: str = "no"
    times: int = 1
    when: Callable[[Fields], bool] = lambda fields: True
    status: int = 400


class Ec2Server(S3Server):
    """Answers calls of EC2, STS, IAM, S3 and Service Quotas.

    Attributes
    ----------
    faults : list of Fault
    calls : Counter of str
        Numbers of calls by action.
    prices : dict
        Traces of spot prices by machine type and zone, in seconds since 1970.
    quotas : dict
        Virtual processors by code of the quota.
    invisible : int
        Number of coming descriptions of machines that show none.
    no_capacity : str
        Error code of new fleets, which get no machine; empty: they get one.
    busy_s : float
        Processor time of the server.
    """

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[Fault] = []
        self.calls = Counter[str]()
        self.prices: dict[tuple[str, str], Trace] = {}
        self.quotas: dict[str, float] = {}
        self.invisible = 0
        self.no_capacity, self.busy_s = "", 0.0
        self.last: dict[str, Fields] = {}
        self._marked: dict[str, datetime] = {}
        self._answers: dict[tuple[str, str], tuple[Fields, bytes]] = {}
        self._turn = threading.RLock()

    def reset(self) -> None:
        """Forget everything."""
        from moto.ec2.models import ec2_backends
        from moto.iam.models import iam_backends

        for backends in (ec2_backends, iam_backends):
            for account in list(backends.values()):
                for backend in list(account.values()):
                    backend.reset()
        self.faults.clear()
        self.calls.clear()
        self.prices.clear()
        self.last.clear()
        self._marked.clear()
        self._answers.clear()
        self.quotas = {"L-1216C47A": 64.0, "L-34B43A08": 64.0}
        self.invisible, self.no_capacity = 0, ""

    @property
    def ec2(self) -> Any:
        """The account that the server keeps."""
        from moto.ec2.models import ec2_backends

        return ec2_backends[ACCOUNT][REGION]

    def instances(self) -> list[Any]:
        """All machines, ended ones included."""
        return list(self.ec2.all_instances())

    def running(self) -> list[Any]:
        """The machines that cost something."""
        return [one for one in self.instances() if one.state in ("pending", "running")]

    def end(self, instance: str, code: str, message: str = "") -> None:
        """End a machine for a reason of EC2's."""
        one = self.ec2.get_instance(instance)
        one._state.name, one._state.code = "terminated", 48
        one._reason = f"{code} ({datetime.now(UTC):%Y-%m-%d %H:%M:%S} GMT)"
        one.state_reason.code, one.state_reason.message = code, message or code

    def mark(self, instance: str) -> None:
        """Announce that a machine will be taken back in two minutes."""
        self._marked[instance] = datetime.now(UTC)

    def _answer(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        began = time.thread_time()
        try:
            return self._answered(environment, start)
        finally:
            self.busy_s += time.thread_time() - began

    def _answered(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        environment["wsgi.input"] = io.BytesIO(body)
        target = environment.get("HTTP_X_AMZ_TARGET", "")
        if "ServiceQuotas" in target:
            return self._quota(json.loads(body), start)
        fields = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        action = fields.get("Action", "")
        if environment["REQUEST_METHOD"] != "POST" or not action:
            return super()._answer(environment, start)
        with self._turn:
            self.calls[action] += 1
            self.last[action] = fields
            fault = next(
                (one for one in self.faults if one.times and one.action in (action, "*") and one.when(fields)), None
            )
            if fault is not None:
                fault.times -= 1
                if fault.code:
                    return _refuse(start, fault.code, fault.message, fault.status)
            answer = self._idempotent(action, fields, environment, start)
        if fault is not None:
            environment["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        return answer

    def _idempotent(
        self, action: str, fields: Fields, environment: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer a call; moto starts one more machine for each repetition."""
        own = {
            "DescribeSpotPriceHistory": self._price_history, "DescribeSpotInstanceRequests": self._spot_requests,
            "DeleteFleets": self._delete_fleets,
        }  # fmt: skip
        if action in own and "DryRun" not in fields:
            return own[action](fields, start)
        if action == "DescribeFleets" and "FleetId.1" not in fields:  # AWS does not list instant fleets
            start("200 OK", _XML)
            return [_xml("DescribeFleetsResponse", "<fleetSet/>")]
        if action == "DescribeInstances" and self.invisible:
            self.invisible -= 1
            start("200 OK", _XML)
            return [_xml("DescribeInstancesResponse", "<reservationSet/>")]
        token = fields.get("ClientToken")
        if token is None or action not in ("RunInstances", "CreateFleet") or fields.get("DryRun") == "true":
            answer: Iterable[bytes] = self._moto(environment, start)
            return answer
        before = self._answers.get((action, token))
        if before is not None:
            if before[0] != fields:
                return _refuse(start, "IdempotentParameterMismatch", "Arguments on this idempotent request differ")
            start("200 OK", _XML)
            return [before[1]]
        if action == "CreateFleet" and self.no_capacity:
            found = self._no_machine()
            self._answers[action, token] = fields, found
            start("200 OK", _XML)
            return [found]
        codes: list[str] = []

        def remember(status: str, headers: Any, *more: Any) -> Any:
            codes.append(status)
            return start(status, headers, *more)

        found = b"".join(self._moto(environment, remember))
        if codes[0].startswith("200"):
            self._answers[action, token] = fields, found
            for fleet in re.findall(rb"<fleetId>(.*?)</fleetId>", found):
                members = re.findall(r"<item>(i-[0-9a-f]+)</item>", found.decode())
                self.ec2.create_tags(members, {"aws:ec2:fleet-id": fleet.decode()})
        return [found]

    def empty_fleet(self) -> str:
        """A fleet of the account without a machine."""
        target = {"TotalTargetCapacity": 0, "DefaultTargetCapacityType": "spot"}
        fleet = self.ec2.create_fleet(
            on_demand_options={}, spot_options={}, target_capacity_specification=target, launch_template_configs=[],
            excess_capacity_termination_policy="termination", replace_unhealthy_instances=False,
            terminate_instances_with_expiration=True, fleet_type="instant", valid_from=None, valid_until=None,
            tag_specifications=[{"ResourceType": "fleet", "Tags": [{"Key": "goffish", "Value": "t"}]}],
        )  # fmt: skip
        return str(fleet.id)

    def _no_machine(self) -> bytes:
        """The answer to a request of a fleet for which there is no machine."""
        error = f"<errorCode>{self.no_capacity}</errorCode><errorMessage>no capacity here</errorMessage>"
        body = f"<fleetId>{self.empty_fleet()}</fleetId><errorSet><item>{error}</item></errorSet><fleetInstanceSet/>"
        return _xml("CreateFleetResponse", body)

    def _delete_fleets(self, fields: Fields, start: Callable[..., Any]) -> list[bytes]:
        """Delete fleets; moto refuses to delete those without machines."""
        assert fields["TerminateInstances"] == "true", "AWS accepts nothing else for instant fleets"
        for name, fleet in fields.items():
            if name.startswith("FleetId."):
                self.ec2.fleets[fleet].state = "deleted_terminating"
                members = [one for one in self.running() if ("aws:ec2:fleet-id", fleet) in tags_of(one).items()]
                for one in members:
                    one.terminate()
        start("200 OK", _XML)
        return [_xml("DeleteFleetsResponse", "<successfulFleetDeletionSet/>")]

    def _price_history(self, fields: Fields, start: Callable[..., Any]) -> list[bytes]:
        types = {value for name, value in fields.items() if name.startswith("InstanceType.")}
        first, last = (datetime.fromisoformat(fields[name]).timestamp() for name in ("StartTime", "EndTime"))
        rows = []
        for (kind, zone), trace in self.prices.items():
            if kind not in types or fields.get("AvailabilityZone", zone) != zone:
                continue
            for at, price in zip(trace.times[::-1], trace.prices[::-1], strict=True):
                if at > last:
                    continue
                rows.append((kind, zone, at, price))
                if at <= first:
                    break  # the last change before the period is the last one in the answer
        offset, size = int(fields.get("NextToken", 0)), int(fields.get("MaxResults", 50))
        items = "".join(
            f"<item><instanceType>{kind}</instanceType><productDescription>Linux/UNIX</productDescription>"
            f"<spotPrice>{price:.6f}</spotPrice><timestamp>{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
            f"</timestamp><availabilityZone>{zone}</availabilityZone></item>"
            for kind, zone, at, price in rows[offset : offset + size]
        )
        token = f"<nextToken>{offset + size}</nextToken>" if offset + size < len(rows) else "<nextToken/>"
        start("200 OK", _XML)
        return [_xml("DescribeSpotPriceHistoryResponse", f"<spotPriceHistorySet>{items}</spotPriceHistorySet>{token}")]

    def _spot_requests(self, fields: Fields, start: Callable[..., Any]) -> list[bytes]:
        marked = fields.get("Filter.1.Name") == "status-code"
        items = ""
        for one in self.instances():
            if one.lifecycle != "spot":
                continue
            at = self._marked.get(one.id)
            if marked and (at is None or one.state == "terminated"):
                continue
            code = "marked-for-termination" if at is not None else "fulfilled"
            state = "closed" if one.state == "terminated" else "active"
            tags = "".join(
                f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
                for key, value in tags_of(one).items()
            )
            items += (
                f"<item><spotInstanceRequestId>sir-{one.id[2:]}</spotInstanceRequestId><state>{state}</state>"
                f"<status><code>{code}</code><updateTime>{at or datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}</updateTime>"
                f"</status><instanceId>{one.id}</instanceId><tagSet>{tags}</tagSet>"
                "<createTime>2026-01-01T00:00:00Z</createTime></item>"
            )
        start("200 OK", _XML)
        body = f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>"
        return [_xml("DescribeSpotInstanceRequestsResponse", body)]

    def _quota(self, fields: Mapping[str, str], start: Callable[..., Any]) -> list[bytes]:
        start("200 OK", [("Content-Type", "application/x-amz-json-1.1")])
        return [json.dumps({"Quota": {"Value": self.quotas[fields["QuotaCode"]]}}).encode()]


def tags_of(one: Any) -> Fields:
    """The tags of a resource of moto."""
    return {tag["key"]: tag["value"] for tag in one.get_tags()}


def _xml(name: str, body: str) -> bytes:
    return f'<{name} xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{body}</{name}>'.encode()


def _refuse(start: Callable[..., Any], code: str, message: str, status: int = 400) -> list[bytes]:
    start(f"{status} Refused", _XML)
    error = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return [f"<Response><Errors>{error}</Errors><RequestID>0</RequestID></Response>".encode()]


def started() -> Ec2Server:
    """Start a server."""
    pytest.importorskip("boto3")
    pytest.importorskip("moto.ec2")
    return Ec2Server()

"""Machines of Amazon EC2, on demand and on the spot market."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import math
import re
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from goffish.cloud.billing import rent
from goffish.cloud.catalogue import Catalogue
from goffish.cloud.prices import Trace, trace_of
from goffish.cloud.providers.boot import Job, user_data
from goffish.cloud.providers.ec2_account import (
    FLEET_TAG,
    NO_GROUP,
    Account,
    Ec2Options,
    Network,
    RefusedError,
    pattern_of,
    seconds,
)
from goffish.cloud.providers.protocol import CapacityError, Machine, Market, Offer, Request, State
from goffish.errors import InputError, JobError

#: Error codes of requests that another type, zone or market, or a later request, may fulfil.
_CAPACITY = frozenset({
    "InstanceLimitExceeded", "InsufficientCapacity", "InsufficientFreeAddressesInSubnet", "InsufficientHostCapacity",
    "InsufficientInstanceCapacity", "InsufficientReservedInstanceCapacity", "MaxSpotInstanceCountExceeded",
    "SpotMaxPriceTooLow", "UnfulfillableCapacity", "Unsupported", "UnsupportedOperation", "VcpuLimitExceeded",
    "VolumeLimitExceeded",
})  # fmt: skip
#: Names of what was made a moment ago may not be visible yet.
_NOT_YET = (NO_GROUP, "InvalidLaunchTemplateName.NotFoundException")
_STATES: dict[str, State] = {
    "Client.InstanceInitiatedShutdown": "finished",
    "Client.UserInitiatedShutdown": "released",
    "Server.SpotInstanceShutdown": "interrupted",
    "Server.SpotInstanceTermination": "interrupted",
}
_MARKED = ["marked-for-termination", "marked-for-stop"]
_NOTICE_S = 120.0
#: Seconds for which machines may be invisible after their request, and types unavailable after a refusal.
_INVISIBLE_S, _REFUSED_S = 60.0, 600.0
_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^)]*\)")
_UNKNOWN_ID = re.compile(r"\bi-[0-9a-f]+")
#: Maximum number of machines of a call that ends them, and of fleets.
_BATCH, _FLEET_BATCH = 500, 25
_MONTH_S = 730 * 3600.0
_MOST_TAGS, _LONGEST_KEY, _LONGEST_VALUE = 45, 128, 256


class Ec2Provider:
    """Provider of machines of Amazon EC2.

    Parameters
    ----------
    catalogue : Catalogue
        Its machine types, by the names of EC2, can be requested on both markets.
    options : Ec2Options

    Raises
    ------
    InputError
        boto3 is not installed, or no region is set.

    Notes
    -----
    A request in one subnet is a call of ``RunInstances``; over several subnets it is one of ``CreateFleet``, which
    chooses the zone by price and capacity. Requests are idempotent by a hash of their token, so that one that is
    repeated after a lost response or a crash starts one machine.

    The exit code of a command is not reported: machines have no permission to change their tags. A machine that powered
    off by itself is ``finished``. Rebalance recommendations reach the command on its machine
    (`goffish.cloud.providers.boot`), and ``at_risk`` is set when EC2 has marked the machine for termination.

    Examples
    --------
    >>> from goffish.cloud.catalogue import read_catalogue
    >>> options = Ec2Options(region="us-east-1", image="ami-0abcdef1234567890")
    >>> provider = Ec2Provider(read_catalogue("ec2-2025"), options)
    >>> provider.catalogue.classes[0].name
    'c7i.large'
    """

    def __init__(self, catalogue: Catalogue, options: Ec2Options) -> None:
        self._catalogue, self._account = catalogue, Account(options)
        self._options = options
        self._lock = threading.RLock()
        self._recent: dict[str, tuple[Machine, float]] = {}
        self._ended: dict[str, float] = {}
        self._refusals: dict[tuple[str, str, str], float] = {}
        self._deleted: set[str] = set()

    @property
    def catalogue(self) -> Catalogue:
        return self._catalogue

    @property
    def now(self) -> float:
        """Seconds since 1970 on the clock of AWS."""
        return self._account.now

    async def offers(self) -> list[Offer]:
        """Return what can be requested now: on demand at the catalogue's price, spot at that of each zone.

        Returns
        -------
        list of Offer
            One for each machine type, zone and market that EC2 offers.
        """
        return await asyncio.to_thread(self._offers)

    async def request(self, request: Request) -> Machine:
        """Request a machine.

        Parameters
        ----------
        request : Request

        Returns
        -------
        Machine

        Raises
        ------
        CapacityError
            There is none now, or a quota is reached.
        InputError
            The request is not accepted.
        """
        return await asyncio.to_thread(self._request, request)

    async def release(self, ids: Collection[str]) -> None:
        """Terminate machines."""
        await asyncio.to_thread(self._release, list(dict.fromkeys(ids)))

    async def machines(self, tags: Mapping[str, str]) -> list[Machine]:
        """Return the machines of this prefix with these tags; EC2 lists ended ones for about an hour."""
        return await asyncio.to_thread(self._machines, dict(tags))

    async def costs(self, machines: Sequence[Machine]) -> list[float]:
        """Return what machines have cost: time at the price on demand or the history of spot prices, and volumes."""
        return await asyncio.to_thread(self._costs, machines)

    async def close(self) -> None:
        """Close connections; machines go on."""
        await asyncio.to_thread(self._account.close)

    @cached_property
    def _network(self) -> Network:
        return self._account.network()

    @cached_property
    def _closed_group(self) -> str:
        return str(self._account.closed_group(self._network.vpc, create=True))

    def _groups(self, team: str) -> list[str]:
        if self._options.security_groups:
            return list(self._options.security_groups)
        return [self._account.team_group(self._network.vpc, team) if team else self._closed_group]

    @cached_property
    def _root_device(self) -> str:
        if self._options.image is None:
            raise InputError("image: is missing in the options; give a machine image (AMI)")
        found = self._account.call("ec2", "describe_images", ImageIds=[self._options.image])["Images"]
        if not found:
            raise InputError(f"image: {self._options.image} not found in {self._account.region}")
        return str(found[0]["RootDeviceName"])

    @cached_property
    def _types(self) -> dict[str, set[str]]:
        """Zones that have each machine type of the catalogue."""
        names = [one.name for one in self._catalogue.classes if one.market != "local"]
        filters = [{"Name": "instance-type", "Values": names}]
        found: dict[str, set[str]] = {name: set() for name in names}
        for one in self._account.pages(
            "ec2", "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone",
            Filters=filters,
        ):  # fmt: skip
            found.setdefault(one["InstanceType"], set()).add(one["Location"])
        return found

    def _offers(self) -> list[Offer]:
        with self._lock:
            network, types = self._network, self._types
        zones = network.zones
        spot = self._spot_now([name for name, places in types.items() if places & zones.keys()])
        found = []
        for one in self._catalogue.classes:
            if one.market == "local":
                continue
            for zone in zones:
                if zone not in types[one.name]:
                    continue
                prices: tuple[tuple[Market, float | None], ...] = (
                    ("on-demand", one.price_per_hour), ("spot", spot.get((one.name, zone))),
                )  # fmt: skip
                found += [
                    Offer(one.name, market, zone, price, one.available and self._granted(one.name, zone, market))
                    for market, price in prices
                    if price is not None
                ]
        return found

    def _granted(self, machine_type: str, zone: str, market: str) -> bool:
        """Whether no such request was refused lately."""
        now = time.monotonic()
        keys = ((machine_type, zone, market), (machine_type, "", market))
        return all(now - self._refusals.get(key, -math.inf) > _REFUSED_S for key in keys)

    def _spot_now(self, types: list[str]) -> dict[tuple[str, str], float]:
        if not types:
            return {}
        found: dict[tuple[str, str], tuple[datetime, float]] = {}
        now = datetime.fromtimestamp(self.now, UTC)
        for one in self._history(types, now, now):
            key = (one["InstanceType"], one["AvailabilityZone"])
            if key not in found or found[key][0] < one["Timestamp"]:
                found[key] = (one["Timestamp"], float(one["SpotPrice"]))
        return {key: price for key, (_, price) in found.items()}

    def _history(self, types: list[str], first: datetime, last: datetime, zone: str | None = None) -> Any:
        """Spot prices in a period, and the last change of each before it."""
        return self._account.pages(
            "ec2", "describe_spot_price_history", "SpotPriceHistory", InstanceTypes=types,
            ProductDescriptions=["Linux/UNIX"], StartTime=first, EndTime=last,
            **({} if zone is None else {"AvailabilityZone": zone}),
        )  # fmt: skip

    def _request(self, request: Request) -> Machine:
        self._check(request)
        with self._lock:
            zones = self._network.zones
            if request.zone is not None and request.zone not in zones:
                raise InputError(f"zone: {request.zone!r} has no subnet; accepted: {', '.join(zones)}")
            launch = self._launch(request)
        token = "goffish-" + hashlib.sha256(f"{self._options.prefix}\0{request.token}".encode()).hexdigest()[:40]
        subnets = {subnet: zone for zone, ids in zones.items() if request.zone in (None, zone) for subnet in ids}
        try:
            if len(subnets) == 1:
                machine = self._run(request, launch, next(iter(subnets)), token)
            else:
                machine = self._fleet(request, launch, subnets, token)
        except RefusedError as error:
            if error.code in _CAPACITY:
                raise self._no_capacity(request, error.code, error.said) from None
            if error.code not in ("IdempotentInstanceTerminated", "IdempotentParameterMismatch"):
                raise
            machine = self._requested_before(request)
        with self._lock:
            self._recent[machine.id] = (machine, time.monotonic())
        return machine

    def _check(self, request: Request) -> None:
        one = self._catalogue.classes[self._catalogue.number(request.machine_type)]
        if one.market == "local":
            raise InputError(f"{one.name}: is not a machine type of EC2")
        if not request.token:
            raise InputError("token: is empty; requests with the same token are one request")
        if request.max_price is not None and not (request.market == "spot" and 0 < request.max_price < math.inf):
            raise InputError(f"max_price = {request.max_price}: must be positive, and the market spot")
        if len(request.tags) > _MOST_TAGS:
            raise InputError(f"tags: {len(request.tags)} given; at most {_MOST_TAGS} are accepted")
        for name, value in (*request.tags.items(), ("token", request.token)):
            key = self._account.tag(name)
            if not name or not name.isprintable() or len(key) > _LONGEST_KEY:
                accepted = f"1 to {_LONGEST_KEY - len(key) + len(name)} printable characters"
                raise InputError(f"tags: name {name[:40]!r} is not accepted; use {accepted}")
            if len(value) > _LONGEST_VALUE or not (value.isprintable() or not value):
                raise InputError(
                    f"tags: {name} = {value[:40]!r} is not accepted; use up to {_LONGEST_VALUE} printable characters"
                )

    def _launch(self, request: Request) -> dict[str, Any]:
        """Parameters that ``RunInstances`` and launch templates share."""
        options = self._options
        job = Job(
            command=request.command, environment={"AWS_DEFAULT_REGION": self._account.region, **request.environment},
            lifetime_s=options.max_lifetime_h * 3600.0,
        )  # fmt: skip
        tagged = ["instance", "volume"] + ["spot-instances-request"] * (request.market == "spot")
        profile = {} if options.instance_profile is None else {"IamInstanceProfile": {"Name": options.instance_profile}}
        return profile | {
            "ImageId": options.image,
            "InstanceType": request.machine_type,
            "SecurityGroupIds": self._groups(request.team),
            "UserData": user_data(
                job, python=options.python, wheel=options.wheel, setup=options.setup, extras=request.extras
            ),
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"},
            "BlockDeviceMappings": [
                {
                    "DeviceName": self._root_device,
                    "Ebs": {
                        "VolumeSize": options.volume_gb, "VolumeType": "gp3", "Encrypted": True,
                        "DeleteOnTermination": True,
                    },
                }
            ],
            "TagSpecifications": [self._account.tags_of(one, request.tags, request.token) for one in tagged],
        }  # fmt: skip

    def _run(self, request: Request, launch: dict[str, Any], subnet: str, token: str) -> Machine:
        """Request a machine in one subnet."""
        more: dict[str, Any] = {}
        if request.market == "spot":
            spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            spot |= {} if request.max_price is None else {"MaxPrice": _money(request.max_price)}
            more["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": spot}
        reply = self._account.call(
            "ec2", "run_instances", again=_NOT_YET, MinCount=1, MaxCount=1, SubnetId=subnet, ClientToken=token,
            **launch, **more,
        )  # fmt: skip
        return self._machine(reply["Instances"][0], {})

    def _fleet(self, request: Request, launch: dict[str, Any], subnets: dict[str, str], token: str) -> Machine:
        """Request a machine in one of several subnets."""
        account, tags, spot = self._account, request.tags, request.market == "spot"
        data = launch | {"UserData": base64.b64encode(launch["UserData"].encode()).decode()}
        template = f"{token}-{hashlib.sha256(repr(sorted(data.items())).encode()).hexdigest()[:8]}"
        limit = {} if request.max_price is None else {"MaxPrice": _money(request.max_price)}
        for attempt in range(10):
            try:
                account.call(
                    "ec2", "create_launch_template", LaunchTemplateName=template, LaunchTemplateData=data,
                    TagSpecifications=[account.tags_of("launch-template", tags, request.token)],
                )  # fmt: skip
            except RefusedError as error:
                if error.code != "InvalidLaunchTemplateName.AlreadyExistsException":
                    raise
            try:
                reply = account.call(
                    "ec2", "create_fleet", again=_NOT_YET, Type="instant", ClientToken=f"{token}-{attempt}",
                    LaunchTemplateConfigs=[{
                        "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "1"},
                        "Overrides": [{"SubnetId": subnet, **limit} for subnet in subnets],
                    }],
                    TargetCapacitySpecification={
                        "TotalTargetCapacity": 1, "DefaultTargetCapacityType": request.market,
                    },
                    TagSpecifications=[account.tags_of("fleet", tags, request.token)],
                    **({"SpotOptions": {
                        "AllocationStrategy": "price-capacity-optimized", "InstanceInterruptionBehavior": "terminate",
                    }} if spot else {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}),
                )  # fmt: skip
            finally:
                with contextlib.suppress(RefusedError):  # reap finds one that is left
                    account.call("ec2", "delete_launch_template", LaunchTemplateName=template)
            made = next((one for one in reply.get("Instances", ()) if one.get("InstanceIds")), None)
            if made is not None:
                subnet = made.get("LaunchTemplateAndOverrides", {}).get("Overrides", {}).get("SubnetId", "")
                return Machine(
                    id=made["InstanceIds"][0], machine_type=request.machine_type, market=request.market,
                    zone=subnets.get(subnet, ""), state="pending", reason="", tags=dict(tags), requested_s=self.now,
                )  # fmt: skip
            # The response of a repeated call is that of the first one, whose fleet was deleted since.
            fleet = reply["FleetId"]
            found = account.call("ec2", "describe_fleets", FleetIds=[fleet])["Fleets"]
            self._delete_fleets([fleet])
            if any(one["FleetState"].startswith("deleted") for one in found):
                continue
            errors = reply.get("Errors") or [{"ErrorCode": "UnfulfillableCapacity", "ErrorMessage": "no reason given"}]
            lasting = next((one for one in errors if one["ErrorCode"] not in _CAPACITY), None)
            if lasting is not None:
                code, said = lasting["ErrorCode"], lasting.get("ErrorMessage", "")
                raise RefusedError(f"AWS ec2 CreateFleet in {account.region}: {said} ({code})", code, said)
            for one in errors:
                subnet = one.get("LaunchTemplateAndOverrides", {}).get("Overrides", {}).get("SubnetId", "")
                self._refusals[request.machine_type, subnets.get(subnet, ""), request.market] = time.monotonic()
            raise RefusedError("", errors[0]["ErrorCode"], errors[0].get("ErrorMessage", ""))
        raise RefusedError("", "UnfulfillableCapacity", "the same request was refused ten times; use another token")

    def _no_capacity(self, request: Request, code: str, said: str) -> CapacityError:
        with self._lock:
            if request.zone is not None or len(self._network.zones) == 1:
                zone = request.zone or next(iter(self._network.zones))
                self._refusals[request.machine_type, zone, request.market] = time.monotonic()
        where = request.zone or f"all zones of {self._account.region}"
        text = " ".join(said.split())[:200].rstrip(".")
        return CapacityError(f"{request.machine_type}, {request.market}, {where}: {text} ({code})")

    def _requested_before(self, request: Request) -> Machine:
        """The machine of a request that was made before, with other options or until the machine ended."""
        filters = [{"Name": f"tag:{self._options.prefix}", "Values": [pattern_of(request.token)]}]
        for one in self._instances(filters):
            if _tags(one).get(self._options.prefix) == request.token:
                return self._machine(one, {})
        raise InputError(
            f"token {request.token!r} was used before, for a machine that is not listed any more; use a new one"
        )

    def _release(self, ids: list[str]) -> None:
        for first in range(0, len(ids), _BATCH):
            batch = ids[first : first + _BATCH]
            patience = time.monotonic() + 10.0
            while batch:
                try:
                    self._account.call("ec2", "terminate_instances", InstanceIds=batch)
                    break
                except RefusedError as error:
                    if not error.code.startswith("InvalidInstanceID"):
                        raise
                    unknown = set(_UNKNOWN_ID.findall(error.said)) & set(batch)
                    if not unknown:
                        raise
                    with self._lock:
                        fresh = unknown & self._recent.keys()
                if not fresh:
                    batch = [one for one in batch if one not in unknown]
                elif time.monotonic() < patience:
                    time.sleep(0.5)  # not visible yet
                else:
                    raise JobError(f"{', '.join(sorted(fresh))}: not visible in EC2 yet; release again")

    def _machines(self, tags: dict[str, str]) -> list[Machine]:
        instances = [one for one in self._instances(self._account.filters(tags)) if self._account.has(_tags(one), tags)]
        live_spot = any(
            one.get("InstanceLifecycle") == "spot" and one["State"]["Name"] == "running" for one in instances
        )
        notices = self._notices() if live_spot else {}
        found = [self._machine(one, notices) for one in instances]
        ended = {one.id for one in found if one.ended}
        fleets = {_tags(one).get(FLEET_TAG) for one in instances if one["InstanceId"] in ended}
        with contextlib.suppress(RefusedError):  # of those who may only read
            self._delete_fleets([one for one in fleets if one is not None and one not in self._deleted])
        visible = {one.id for one in found}
        with self._lock:
            now = time.monotonic()
            self._recent = {
                key: (one, at) for key, (one, at) in self._recent.items()
                if key not in visible and now - at < _INVISIBLE_S
            }  # fmt: skip
            found += [one for one, _ in self._recent.values() if tags.items() <= one.tags.items()]
        return found

    def _instances(self, filters: list[dict[str, Any]]) -> list[dict[str, Any]]:
        pages = self._account.pages("ec2", "describe_instances", "Reservations", Filters=filters, MaxResults=1000)
        return [one for reservation in pages for one in reservation["Instances"]]

    def _notices(self) -> dict[str, float]:
        """Times at which machines will be taken back, by ID."""
        filters = [{"Name": "status-code", "Values": _MARKED}]
        found = self._account.pages(
            "ec2", "describe_spot_instance_requests", "SpotInstanceRequests", Filters=filters, MaxResults=1000
        )
        return {
            one["InstanceId"]: seconds(one["Status"]["UpdateTime"]) + _NOTICE_S for one in found
            if one.get("InstanceId") and one["Status"]["Code"] in _MARKED
        }  # fmt: skip

    def _machine(self, one: dict[str, Any], notices: Mapping[str, float]) -> Machine:
        prefix, name, tags = f"{self._options.prefix}:", one["State"]["Name"], _tags(one)
        why, code = one.get("StateTransitionReason", ""), one.get("StateReason", {}).get("Code", "")
        launched = seconds(one["LaunchTime"])
        state: State = "pending" if name == "pending" else "running"
        started, ended, reason = (None if name == "pending" else launched), None, ""
        if name not in ("pending", "running"):
            state = _STATES.get(code, "failed")
            reason = one.get("StateReason", {}).get("Message", "") or why
            ended = self._end(one["InstanceId"], why, launched)
            if state == "failed" and code != "Server.ScheduledStop":
                started = None  # failures of launches are not charged
        notice = notices.get(one["InstanceId"]) if ended is None else None
        return Machine(
            id=one["InstanceId"], machine_type=one["InstanceType"],
            market="spot" if one.get("InstanceLifecycle") == "spot" else "on-demand",
            zone=one["Placement"]["AvailabilityZone"], state=state, reason=reason,
            tags={key.removeprefix(prefix): value for key, value in tags.items() if key.startswith(prefix)},
            requested_s=launched, started_s=started, ended_s=ended, notice_s=notice, at_risk=notice is not None,
            address=one.get("PrivateIpAddress") or None,
        )  # fmt: skip

    def _end(self, key: str, why: str, launched: float) -> float:
        """When a machine ended: as EC2 says, or else when it was first seen."""
        found = _ENDED_AT.search(why)
        if found is not None:
            return max(launched, datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp())
        with self._lock:
            return self._ended.setdefault(key, max(launched, self.now))

    def _delete_fleets(self, fleets: list[str]) -> None:
        """Delete fleets whose machines have ended, or that never had one."""
        for first in range(0, len(fleets), _FLEET_BATCH):
            batch = fleets[first : first + _FLEET_BATCH]
            self._account.call("ec2", "delete_fleets", FleetIds=batch, TerminateInstances=True)
            self._deleted.update(batch)

    def _costs(self, machines: Sequence[Machine]) -> list[float]:
        now, billing = self.now, self._catalogue.billing
        spans = {one.id: (one.started_s, one.ended_s or now) for one in machines if one.started_s is not None}
        wanted: dict[tuple[str, str], tuple[float, float]] = {}
        for one in machines:
            if one.market == "spot" and one.id in spans:
                first, last = wanted.get((one.machine_type, one.zone), (math.inf, -math.inf))
                wanted[one.machine_type, one.zone] = min(first, spans[one.id][0]), max(last, spans[one.id][1])
        traces = {key: self._trace(*key, *span) for key, span in wanted.items()}
        volume = self._options.volume_gb * self._options.volume_price_gb_month / _MONTH_S
        found = []
        for one in machines:
            if one.id not in spans:
                found.append(0.0)
                continue
            first, last = spans[one.id]
            charged = max(last - first, billing.minimum_s, 1.0)
            if one.market == "on-demand":
                price = self._catalogue.classes[self._catalogue.number(one.machine_type)].price_per_hour
                hire = float(rent(last - first, price, billing))
            elif one.state == "interrupted" and (
                billing.cut_off == "free" or (billing.cut_off == "first-hour-free" and last - first < 3600.0)
            ):
                hire = 0.0
            else:
                trace = traces[one.machine_type, one.zone].between(first, first + charged)
                hire = float(np.dot(trace.durations(), trace.prices)) / 3600.0
            found.append(hire + volume * charged)
        return found

    def _trace(self, machine_type: str, zone: str, first: float, last: float) -> Trace:
        """The spot price of a machine type over a period, prolonged by what is charged at least."""
        period = (datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC))
        found = sorted(
            (seconds(one["Timestamp"]), float(one["SpotPrice"]))
            for one in self._history([machine_type], *period, zone=zone)
        )
        if not found:
            price = self._catalogue.classes[self._catalogue.number(machine_type)].price_per_hour
            found = [(first, price)]  # no history is kept: at most the price on demand
        times, prices = [at for at, _ in found], [price for _, price in found]
        end = max(last, times[-1]) + self._catalogue.billing.minimum_s + 1.0
        begin = min(first, times[0])
        if begin < times[0]:
            times, prices = [begin, *times], [prices[0], *prices]
        return trace_of([*times, end], [*prices, prices[-1]], f"{zone} {machine_type}")


def _tags(one: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}


def _money(price: float) -> str:
    return f"{price:.6f}"

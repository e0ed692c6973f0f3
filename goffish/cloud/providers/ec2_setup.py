"""What operators of an AWS account need: permissions, a check of the account, and the removal of what was left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.prices import Trace, trace_of
from goffish.cloud.providers.boot import Job, user_data
from goffish.cloud.providers.ec2_account import (
    DENIED,
    FLEET_TAG,
    TEAM,
    Account,
    Ec2Options,
    Network,
    RefusedError,
    seconds,
)
from goffish.errors import GoffishError, InputError, JobError

#: Quotas of running standard machines (A, C, D, H, I, M, R, T, Z), in virtual processors.
_QUOTAS = {"L-1216C47A": "on-demand vCPUs", "L-34B43A08": "spot vCPUs"}
_SPOT_ROLE, _FLEET_ROLE = "AWSServiceRoleForEC2Spot", "AWSServiceRoleForEC2Fleet"
_READ = (
    "DescribeAvailabilityZones", "DescribeFleets", "DescribeImages", "DescribeInstanceTypeOfferings",
    "DescribeInstances", "DescribeLaunchTemplates", "DescribeRouteTables", "DescribeSecurityGroups",
    "DescribeSpotInstanceRequests", "DescribeSpotPriceHistory", "DescribeSubnets", "DescribeVolumes",
)  # fmt: skip
_END = (
    "CancelSpotInstanceRequests", "DeleteFleets", "DeleteLaunchTemplate", "DeleteSecurityGroup", "DeleteVolume",
    "TerminateInstances",
)  # fmt: skip
_BATCH, _FLEET_BATCH = 500, 25
#: Seconds for which to wait until machines have released their security group.
_PATIENCE_S = 300.0


class Finding(NamedTuple):
    """Result of one check.

    Attributes
    ----------
    name : str
        What was checked.
    ok : bool
    detail : str
        What was found, or what is missing and how to get it.
    """

    name: str
    ok: bool
    detail: str


class Leftover(NamedTuple):
    """A resource of this installation in the account.

    Attributes
    ----------
    kind : {"spot request", "fleet", "machine", "launch template", "volume", "security group"}
    id : str
    state : str
    created_s : float, optional
        Seconds since 1970; AWS does not report it for security groups.
    tags : mapping of str to str
        Without the prefix.
    """

    kind: str
    id: str
    state: str
    created_s: float | None
    tags: Mapping[str, str]


def policies(options: Ec2Options, region: str, storage: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the least permissions as IAM policies.

    Parameters
    ----------
    options : Ec2Options
    region : str
    storage : sequence of str
        ``s3://BUCKET/PREFIX`` of jobs, which the launcher and its machines read and write.

    Returns
    -------
    dict of str to dict
        ``launcher``, ``worker`` (of the role in the instance profile) and ``trust`` (of that role).

    Raises
    ------
    InputError
        A storage is not an ``s3://`` URI.

    Examples
    --------
    >>> found = policies(Ec2Options(), "us-east-1", ["s3://lake/jobs"])
    >>> [one["Action"] for one in found["worker"]["Statement"]]
    [['s3:DeleteObject', 's3:GetObject', 's3:PutObject'], ['s3:ListBucket']]
    """
    partition = {"us-gov": "aws-us-gov", "cn": "aws-cn"}.get(region.rpartition("-")[0].rpartition("-")[0], "aws")
    ec2, tag = f"arn:{partition}:ec2:{region}:*", options.prefix
    created = {"Null": {f"aws:RequestTag/{tag}": "false"}}
    ours = {"Null": {f"aws:ResourceTag/{tag}": "false"}}
    objects = _storage(partition, storage)
    launcher = [
        {
            "Sid": "Read", "Effect": "Allow", "Action": [f"ec2:{one}" for one in _READ], "Resource": "*",
            "Condition": {"StringEquals": {"aws:RequestedRegion": region}},
        },
        {
            "Sid": "StartTagged", "Effect": "Allow", "Action": ["ec2:CreateFleet", "ec2:RunInstances"],
            "Resource": [f"{ec2}:{one}/*" for one in ("fleet", "instance", "spot-instances-request", "volume")],
            "Condition": created,
        },
        {
            "Sid": "StartFrom", "Effect": "Allow", "Action": ["ec2:CreateFleet", "ec2:RunInstances"],
            "Resource": [
                f"arn:{partition}:ec2:{region}::image/{options.image or '*'}",
                *(f"{ec2}:{one}/*" for one in ("launch-template", "network-interface", "security-group", "subnet")),
            ],
        },
        {
            "Sid": "CreateTagged", "Effect": "Allow", "Action": ["ec2:CreateLaunchTemplate", "ec2:CreateSecurityGroup"],
            "Resource": [f"{ec2}:launch-template/*", f"{ec2}:security-group/*"], "Condition": created,
        },
        {
            "Sid": "CreateInNetwork", "Effect": "Allow", "Action": ["ec2:CreateSecurityGroup"],
            "Resource": [f"{ec2}:vpc/*"],
        },
        {
            "Sid": "OpenAmongTeam", "Effect": "Allow", "Action": ["ec2:AuthorizeSecurityGroupIngress"],
            "Resource": [f"{ec2}:security-group/*"],
            "Condition": {"Null": {f"aws:ResourceTag/{tag}:{TEAM}": "false"}},
        },
        {
            "Sid": "TagWhatIsCreated", "Effect": "Allow", "Action": ["ec2:CreateTags"], "Resource": [f"{ec2}:*/*"],
            "Condition": {"StringEquals": {"ec2:CreateAction": [
                "CreateFleet", "CreateLaunchTemplate", "CreateSecurityGroup", "RunInstances",
            ]}},
        },
        {
            "Sid": "EndTagged", "Effect": "Allow", "Action": [f"ec2:{one}" for one in _END], "Resource": [f"{ec2}:*/*"],
            "Condition": ours,
        },
        {
            "Sid": "SpotRoles", "Effect": "Allow", "Action": ["iam:CreateServiceLinkedRole"], "Resource": "*",
            "Condition": {"StringEquals": {
                "iam:AWSServiceName": ["ec2fleet.amazonaws.com", "spot.amazonaws.com"],
            }},
        },
        {
            "Sid": "Check", "Effect": "Allow",
            "Action": ["iam:GetInstanceProfile", "iam:GetRole", "servicequotas:GetServiceQuota"], "Resource": "*",
        },
    ]  # fmt: skip
    if options.instance_profile is not None:
        launcher.append({
            "Sid": "PassWorkerRole", "Effect": "Allow", "Action": ["iam:PassRole"],
            "Resource": [f"arn:{partition}:iam::*:role/{options.instance_profile}"],
            "Condition": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        })  # fmt: skip
    host = "ec2.amazonaws.com.cn" if partition == "aws-cn" else "ec2.amazonaws.com"
    trust = [{"Effect": "Allow", "Principal": {"Service": host}, "Action": ["sts:AssumeRole"]}]
    worker = objects + _wheel(partition, options)
    return {
        name: {"Version": "2012-10-17", "Statement": statements}
        for name, statements in (("launcher", launcher + objects), ("worker", worker), ("trust", trust))
    }


def _storage(partition: str, storage: Sequence[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, uri in enumerate(storage, 1):
        bucket, folder = _bucket(uri)
        inside = f"{folder}/*" if folder else "*"
        found += [
            {
                "Sid": f"Objects{number}", "Effect": "Allow",
                "Action": ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"],
                "Resource": [f"arn:{partition}:s3:::{bucket}/{inside}"],
            },
            {
                "Sid": f"List{number}", "Effect": "Allow", "Action": ["s3:ListBucket"],
                "Resource": [f"arn:{partition}:s3:::{bucket}"],
                **({"Condition": {"StringLike": {"s3:prefix": [folder, inside]}}} if folder else {}),
            },
        ]  # fmt: skip
    return found


def _bucket(uri: str) -> tuple[str, str]:
    bucket, _, folder = uri.removeprefix("s3://").partition("/")
    if not uri.startswith("s3://") or not bucket or set(uri) & set("*?$"):
        raise InputError(f"--storage {uri}: is not the URI of a bucket; give s3://BUCKET or s3://BUCKET/PREFIX")
    return bucket, folder.strip("/")


def _wheel(partition: str, options: Ec2Options) -> list[dict[str, Any]]:
    if options.wheel is None or not options.wheel.startswith("s3://"):
        return []
    resource = f"arn:{partition}:s3:::{options.wheel.removeprefix('s3://')}"
    return [{"Sid": "Wheel", "Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [resource]}]


def check_account(account: Account, catalogue: Catalogue, storage: Sequence[str] = ()) -> Iterator[Finding]:
    """Check credentials, permissions, the network, the image, quotas, machine types and storage of an account.

    Parameters
    ----------
    account : Account
    catalogue : Catalogue
    storage : sequence of str
        ``s3://BUCKET/PREFIX`` of jobs; an object is written to each and deleted.

    Yields
    ------
    Finding

    Raises
    ------
    InputError
        The catalogue has no machine type on demand.
    """
    options = account.options
    if all(one.market == "local" for one in catalogue.classes):
        raise InputError("machine_types: the catalogue has none on demand")
    for uri in storage:
        _bucket(uri)
    ok, found = _try("credentials", lambda: account.call("sts", "get_caller_identity"))
    yield Finding("credentials", ok, found["Arn"] if ok else found)
    if not ok:
        return
    skew = account.skew_s
    yield Finding("clock", abs(skew) < 60.0, f"{abs(skew):.0f} s apart from AWS; at most 300 s are accepted")
    ok, network = _try("network", account.network)
    text = network if not ok else f"{network.vpc}: " + ", ".join(
        f"{zone} ({len(ids)} subnets)" if len(ids) > 1 else zone for zone, ids in network.zones.items()
    )  # fmt: skip
    yield Finding("network", ok, text)
    group = None
    if ok:
        yield _routes(account, network)
        yield (finding := _security_group(account, network.vpc))
        group = finding.detail.split()[0] if finding.ok and finding.detail.startswith("sg-") else None
    yield _image(account)
    yield _profile(account)
    if options.wheel is not None and options.wheel.startswith("s3://"):
        bucket, _, key = options.wheel.removeprefix("s3://").partition("/")
        done, answer = _try("wheel", lambda: account.call("s3", "head_object", Bucket=bucket, Key=key))
        yield Finding("wheel", done, f"{answer['ContentLength']:,} bytes" if done else answer)
    yield from _reads(account, catalogue)
    if ok:
        yield from _writes(account, catalogue, next(iter(network.zones.values()))[0], group)
    yield from _roles(account)
    yield from _quotas(account)
    yield _offered(account, catalogue)
    for uri in storage:
        yield _stored(account, uri)


def _try(name: str, call: Callable[[], Any]) -> tuple[bool, Any]:
    try:
        return True, call()
    except GoffishError as error:
        return False, str(error)


def _routes(account: Account, network: Network) -> Finding:
    """Check that machines reach object storage: by the internet, or an endpoint of their VPC."""
    subnets = [subnet for ids in network.zones.values() for subnet in ids]
    filters = [{"Name": "vpc-id", "Values": [network.vpc]}]
    ok, found = _try("routes", lambda: (
        list(account.pages("ec2", "describe_route_tables", "RouteTables", Filters=filters)),
        account.call("ec2", "describe_subnets", SubnetIds=subnets)["Subnets"],
    ))  # fmt: skip
    if not ok:
        return Finding("routes", False, found)
    tables, described = found
    of_subnet = {
        one.get("SubnetId", network.vpc): table["Routes"]  # the main table is that of all other subnets
        for table in tables for one in table.get("Associations", ())
        if "SubnetId" in one or one.get("Main")
    }  # fmt: skip
    lacking = [
        one["SubnetId"] for one in described
        if not any(_leads_out(route, one) for route in of_subnet.get(one["SubnetId"], of_subnet.get(network.vpc, ())))
    ]  # fmt: skip
    if lacking:
        text = "no public addresses with a route to an internet gateway, no NAT gateway and no endpoint for S3"
        return Finding("routes", False, f"{', '.join(lacking)}: {text}; machines could not read their jobs")
    return Finding("routes", True, "machines reach object storage")


def _leads_out(route: Mapping[str, Any], subnet: Mapping[str, Any]) -> bool:
    gateway = route.get("GatewayId") or ""
    if route.get("State") == "blackhole":
        return False
    if gateway.startswith("vpce-"):
        return True
    everywhere = route.get("DestinationCidrBlock") == "0.0.0.0/0"
    return everywhere and (not gateway.startswith("igw-") or bool(subnet.get("MapPublicIpOnLaunch")))


def _stored(account: Account, uri: str) -> Finding:
    """Check that storage is in the region of machines, and an object in it can be written, read and deleted."""
    bucket, folder = _bucket(uri)
    place = {"Bucket": bucket, "Key": f"{folder}/goffish-check".lstrip("/")}

    def use() -> str:
        # Buckets of us-east-1 are named after no region.
        where = account.call("s3", "head_bucket", Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
        account.call("s3", "put_object", Body=b"", **place)
        account.call("s3", "get_object", **place)
        account.call("s3", "list_objects_v2", Bucket=bucket, Prefix=f"{folder}/" if folder else "", MaxKeys=1)
        account.call("s3", "delete_object", **place)
        return str(where.get("x-amz-bucket-region") or account.region)

    ok, found = _try("storage", use)
    if not ok:
        return Finding("storage", False, f"{uri}: {found}")
    if found != account.region:
        text = f"is in {found}, machines in {account.region}: they read slowly, and transfers are charged"
        return Finding("storage", False, f"{uri}: {text}")
    return Finding("storage", True, f"{uri}: readable and writable, in {found}")


def _security_group(account: Account, vpc: str) -> Finding:
    if account.options.security_groups:
        given = list(account.options.security_groups)
        ok, found = _try(
            "group", lambda: account.call("ec2", "describe_security_groups", GroupIds=given)["SecurityGroups"]
        )
        if not ok:
            return Finding("security group", False, found)
        opened = [one["GroupId"] for one in found if one["IpPermissions"]]
        note = (
            f"{', '.join(opened)} with inbound rules, which only machines that connect to each other need"
            if opened
            else "closed"
        )
        return Finding("security group", True, f"{', '.join(given)}: {note}")
    ok, found = _try("group", lambda: account.closed_group(vpc, create=False))
    if not ok:
        return Finding("security group", False, found)
    return Finding("security group", True, f"{found} (closed)" if found else "will be created with the first machine")


def _image(account: Account) -> Finding:
    image = account.options.image
    if image is None:
        return Finding("image", False, "missing; set image in the options")
    ok, found = _try("image", lambda: account.call("ec2", "describe_images", ImageIds=[image])["Images"])
    if not ok or not found:
        return Finding("image", False, found or f"{image} not found in {account.region}")
    return Finding("image", True, f"{image} ({found[0].get('Name', '')}, {found[0].get('Architecture', '')})")


def _profile(account: Account) -> Finding:
    name = account.options.instance_profile
    if name is None:
        return Finding("instance profile", True, "none: machines cannot access object storage by a role")
    ok, found = _try("profile", lambda: account.call("iam", "get_instance_profile", InstanceProfileName=name))
    if not ok:
        return Finding("instance profile", False, found)
    roles = [one["RoleName"] for one in found["InstanceProfile"]["Roles"]]
    if not roles:
        return Finding("instance profile", False, f"{name} has no role; see goffish cloud policy aws worker")
    return Finding("instance profile", True, f"{name} with the role {roles[0]}")


def _reads(account: Account, catalogue: Catalogue) -> Iterator[Finding]:
    now = datetime.fromtimestamp(account.now, UTC)
    few: dict[str, Any] = {"MaxResults": 5}
    calls: dict[str, dict[str, Any]] = {
        "describe_instances": few, "describe_fleets": {}, "describe_launch_templates": {},
        "describe_spot_instance_requests": few, "describe_volumes": few,
        "describe_spot_price_history": few | {
            "StartTime": now, "EndTime": now, "ProductDescriptions": ["Linux/UNIX"],
            "InstanceTypes": [catalogue.classes[0].name],
        },
    }  # fmt: skip
    refused = []
    for operation, parameters in calls.items():
        try:
            account.call("ec2", operation, **parameters)
        except RefusedError as error:
            if error.code in DENIED:
                refused.append("ec2:" + "".join(part.capitalize() for part in operation.split("_")))
        except JobError as error:
            yield Finding("permissions to read", False, str(error))
            return
    yield _permissions("permissions to read", refused)


def _writes(account: Account, catalogue: Catalogue, subnet: str, group: str | None) -> Iterator[Finding]:
    """Try calls that change something without doing it."""
    options, kind = account.options, next(one.name for one in catalogue.classes if one.market != "local")
    name = f"{options.prefix}-check"
    script = user_data(
        Job(command=["true"], environment={}, lifetime_s=60.0), python=options.python, wheel=options.wheel
    )
    launch: dict[str, Any] = {"InstanceType": kind, "UserData": script}
    if options.image is not None:
        launch["ImageId"] = options.image
    if group is not None:
        launch["SecurityGroupIds"] = [group]
    if options.instance_profile is not None:
        launch["IamInstanceProfile"] = {"Name": options.instance_profile}
    calls: dict[str, dict[str, Any]] = {
        "run_instances": launch | {
            "MinCount": 1, "MaxCount": 1, "SubnetId": subnet,
            "TagSpecifications": [account.tags_of(one, {}, name) for one in ("instance", "volume")],
        },
        "create_launch_template": {
            "LaunchTemplateName": name, "LaunchTemplateData": {"InstanceType": kind},
            "TagSpecifications": [account.tags_of("launch-template", {}, name)],
        },
    }  # fmt: skip
    if options.image is None:
        calls.pop("run_instances")
    refused = []
    for operation, parameters in calls.items():
        try:
            account.call("ec2", operation, DryRun=True, **parameters)
        except RefusedError as error:
            if error.code in DENIED:
                refused.append("ec2:" + "".join(part.capitalize() for part in operation.split("_")))
            elif error.code != "DryRunOperation":
                yield Finding("trial request", False, str(error))
        except JobError as error:
            yield Finding("permissions to start machines", False, str(error))
            return
    yield _permissions("permissions to start machines", refused)


def _permissions(name: str, refused: list[str]) -> Finding:
    if refused:
        return Finding(name, False, f"missing: {', '.join(refused)}; see goffish cloud policy aws launcher")
    return Finding(name, True, "granted")


def _roles(account: Account) -> Iterator[Finding]:
    for role, service in ((_SPOT_ROLE, "spot"), (_FLEET_ROLE, "ec2fleet")):
        try:
            account.call("iam", "get_role", RoleName=role)
            yield Finding(f"role for {service}", True, role)
        except RefusedError as error:
            lacking = (
                f"{role} is missing; run aws iam create-service-linked-role --aws-service-name {service}.amazonaws.com"
            )
            yield Finding(f"role for {service}", False, lacking if error.code == "NoSuchEntity" else str(error))
        except JobError as error:
            yield Finding(f"role for {service}", False, str(error))


def _quotas(account: Account) -> Iterator[Finding]:
    for code, name in _QUOTAS.items():
        ok, found = _try(
            name, lambda code=code: account.call(  # type: ignore[misc]
                "service-quotas", "get_service_quota", ServiceCode="ec2", QuotaCode=code
            )
        )  # fmt: skip
        if not ok:
            yield Finding(f"quota of {name}", False, found)
            continue
        value = found["Quota"]["Value"]
        request = f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code}"
        yield Finding(
            f"quota of {name}", value > 0, f"{value:g}" if value > 0 else f"0: no machine can start; run {request}"
        )


def _offered(account: Account, catalogue: Catalogue) -> Finding:
    names = [one.name for one in catalogue.classes if one.market != "local"]
    filters = [{"Name": "instance-type", "Values": names}]
    ok, found = _try("types", lambda: {
        one["InstanceType"]
        for one in account.pages(
            "ec2", "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="region", Filters=filters
        )
    })  # fmt: skip
    if not ok:
        return Finding("machine types", False, found)
    lacking = [name for name in names if name not in found]
    if lacking:
        return Finding("machine types", False, f"{', '.join(lacking)}: not offered in {account.region}")
    return Finding("machine types", True, f"{len(names)} of the catalogue are offered in {account.region}")


def price_history(account: Account, types: Sequence[str], days: float) -> dict[str, Trace]:
    """Return the lowest spot price of each machine type over the zones in which machines can start.

    Parameters
    ----------
    account : Account
    types : sequence of str
    days : float
        Length of the history; AWS keeps 90.

    Returns
    -------
    dict of str to Trace
        Up to now; types without spot machines are left out.

    Raises
    ------
    InputError
        No type has a spot price there.
    """
    zones, last = account.network().zones, account.now
    rows: dict[str, dict[str, list[tuple[float, float]]]] = {}
    until = datetime.fromtimestamp(last, UTC)
    for one in account.pages(
        "ec2", "describe_spot_price_history", "SpotPriceHistory", InstanceTypes=list(types),
        ProductDescriptions=["Linux/UNIX"], StartTime=until - timedelta(days=days), EndTime=until,
    ):  # fmt: skip
        if one["AvailabilityZone"] in zones:
            of_zone = rows.setdefault(one["InstanceType"], {}).setdefault(one["AvailabilityZone"], [])
            of_zone.append((seconds(one["Timestamp"]), float(one["SpotPrice"])))
    if not rows:
        raise InputError(f"{', '.join(types)}: no spot prices in {account.region} ({', '.join(zones)})")
    # The first price of a zone was in force before the period.
    first = last - days * 86_400.0
    return {kind: _lowest(kind, list(rows[kind].values()), first, last) for kind in types if kind in rows}


def _lowest(kind: str, zones: Sequence[Sequence[tuple[float, float]]], first: float, last: float) -> Trace:
    """Return the lowest of the prices in several zones, from the time at which all have one."""
    traces = [
        trace_of([*(at for at, _ in found), last], [*(price for _, price in found), found[-1][1]])
        for found in (sorted(one) for one in zones)
    ]
    begin = max(first, *(trace.start for trace in traces))
    times = np.unique(np.concatenate([[begin], *(trace.times[trace.times > begin] for trace in traces), [last]]))
    return trace_of(times, np.minimum.reduce([trace.at(times) for trace in traces]), kind)


def leftovers(account: Account, tags: Mapping[str, str], older_than_s: float | None = None) -> list[Leftover]:
    """Return what this installation has in the account.

    Parameters
    ----------
    account : Account
    tags : mapping of str to str
        Which resources must have.
    older_than_s : float, optional
        Minimum age; resources of unknown age are left out.

    Returns
    -------
    list of Leftover
        In the order in which they can be removed.
    """
    return [
        one for one in _every(account, tags)
        if older_than_s is None or (one.created_s is not None and account.now - one.created_s >= older_than_s)
    ]  # fmt: skip


def _every(account: Account, tags: Mapping[str, str]) -> Iterator[Leftover]:
    def tags_of(one: Mapping[str, Any]) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in one.get("Tags") or ()}

    def leftover(kind: str, one: Mapping[str, Any], key: str, state: str, created: str | None) -> Leftover:
        prefix = account.tag("")
        named = {name.removeprefix(prefix): value for name, value in tags_of(one).items() if name.startswith(prefix)}
        at = one.get(created) if created is not None else None
        return Leftover(kind, one[key], state, None if at is None else seconds(at), named)

    filters: Any = account.filters(tags)
    for one in account.pages("ec2", "describe_spot_instance_requests", "SpotInstanceRequests", Filters=filters):
        if account.has(tags_of(one), tags) and one["State"] in ("open", "active"):
            yield leftover("spot request", one, "SpotInstanceRequestId", one["State"], "CreateTime")
    pages = account.pages("ec2", "describe_instances", "Reservations", Filters=filters, MaxResults=1000)
    every = [one for page in pages for one in page["Instances"] if account.has(tags_of(one), tags)]
    # EC2 does not list the fleets of single requests, only shows those that are named.
    fleets = sorted({tags_of(one)[FLEET_TAG] for one in every if FLEET_TAG in tags_of(one)})
    for first in range(0, len(fleets), _FLEET_BATCH):
        for one in account.call("ec2", "describe_fleets", FleetIds=fleets[first : first + _FLEET_BATCH])["Fleets"]:
            if not one["FleetState"].startswith("deleted"):
                yield leftover("fleet", one, "FleetId", one["FleetState"], "CreateTime")
    for one in every:
        if one["State"]["Name"] not in ("shutting-down", "terminated"):
            yield leftover("machine", one, "InstanceId", one["State"]["Name"], "LaunchTime")
    for one in account.pages("ec2", "describe_launch_templates", "LaunchTemplates", Filters=filters):
        if account.has(tags_of(one), tags):
            yield leftover("launch template", one, "LaunchTemplateId", "available", "CreateTime")
    for one in account.pages("ec2", "describe_volumes", "Volumes", Filters=filters):
        if account.has(tags_of(one), tags) and one["State"] == "available":
            yield leftover("volume", one, "VolumeId", one["State"], "CreateTime")
    for one in account.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=filters):
        if account.has(tags_of(one), tags):
            yield leftover("security group", one, "GroupId", "available", None)


def remove(
    account: Account, found: Sequence[Leftover], progress: Callable[[int, int | None], None] | None = None
) -> list[Leftover]:
    """Remove resources; what is gone already is no error.

    Parameters
    ----------
    account : Account
    found : sequence of Leftover
        From `leftovers`.
    progress : callable, optional
        Called with the number of removed resources, and of all.

    Returns
    -------
    list of Leftover
        Those that could not be removed yet: security groups that machines still use.

    Raises
    ------
    InputError
        A resource must not be removed.
    """
    report, done = progress or (lambda done, total: None), 0
    report(0, len(found))
    batches: tuple[tuple[str, str, str, int, dict[str, Any]], ...] = (
        ("spot request", "cancel_spot_instance_requests", "SpotInstanceRequestIds", _BATCH, {}),
        ("fleet", "delete_fleets", "FleetIds", _FLEET_BATCH, {"TerminateInstances": True}),
        ("machine", "terminate_instances", "InstanceIds", _BATCH, {}),
        ("launch template", "delete_launch_template", "LaunchTemplateId", 1, {}),
        ("volume", "delete_volume", "VolumeId", 1, {}),
        ("security group", "delete_security_group", "GroupId", 1, {}),
    )
    left: list[Leftover] = []
    patience = time.monotonic() + (_PATIENCE_S if any(one.kind == "machine" for one in found) else 0.0)
    for kind, operation, field, size, more in batches:
        chosen = [one for one in found if one.kind == kind]
        for first in range(0, len(chosen), size):
            batch = chosen[first : first + size]
            if not _end(account, operation, field, [one.id for one in batch], more, patience):
                left += batch
            done += len(batch)
            report(done, len(found))
    return left


def _end(account: Account, operation: str, field: str, ids: list[str], more: dict[str, Any], patience: float) -> bool:
    """Remove resources; those of a batch one by one if the batch is refused because one of them is gone."""
    value: Any = ids if field.endswith("s") else ids[0]
    while True:
        try:
            account.call("ec2", operation, **{field: value}, **more)
            return True
        except RefusedError as error:
            if error.code == "DependencyViolation":
                if time.monotonic() > patience:
                    return False
                time.sleep(2.0)
            elif "NotFound" in error.code or "Malformed" in error.code:
                if len(ids) > 1:
                    for one in ids:
                        _end(account, operation, field, [one], more, patience)
                return True
            else:
                raise

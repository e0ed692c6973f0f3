"""An AWS account as GoFFish uses it: options, calls with one-line errors, and the network that machines start in."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, model_validator

from goffish.cloud.catalogue import NotNegative, Positive
from goffish.definitions import Definition, read_definition
from goffish.errors import InputError, JobError
from goffish.extras import needed_for
from goffish.version import __version__

#: Pauses between repetitions of calls that name what was made a moment ago, in seconds.
_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
#: Difference between two clocks from which requests are refused (5 minutes), and from which it is corrected.
_REFUSED_SKEW_S, _CORRECTED_SKEW_S = 300.0, 2.0
_CREDENTIALS = frozenset({
    "AuthFailure", "ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidClientTokenId",
    "MissingAuthenticationToken", "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch",
    "UnrecognizedClientException",
})  # fmt: skip
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"})
_LATER = frozenset({
    "InternalError", "InternalFailure", "RequestLimitExceeded", "ServiceUnavailable", "SlowDown", "Throttling",
    "ThrottlingException", "TooManyRequestsException", "Unavailable",
})  # fmt: skip
#: Tag of EC2 at machines of fleets.
FLEET_TAG = "aws:ec2:fleet-id"
#: Tags of the security groups of teams: the team, and when the group was created, in seconds since 1970.
TEAM, _CREATED, _LONGEST_TAG = "team", "created", 256
#: Time after which a group that no machine uses is deleted, in seconds.
_TEAM_LASTS_S = 3600.0
#: Of a group that was made a moment ago.
NO_GROUP = "InvalidGroup.NotFound"
_Id = Annotated[str, Field(pattern=r"^[a-z]+-[0-9a-f]{8,17}$")]


class Ec2Options(Definition):
    """Options of the EC2 provider.

    Attributes
    ----------
    region : str, optional
        Default: that of the AWS environment (``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the profile).
    image : str, optional
        Machine image (AMI) of the machines; required to request any.
    subnets : tuple of str
        Subnets of one VPC; default: the default subnets of the default VPC.
    zones : tuple of str
        Availability zones to use; default: those of all subnets.
    security_groups : tuple of str
        Default: a group without inbound rules, which is created when it does not exist.
    instance_profile : str, optional
        Name of the instance profile whose role lets machines read and write object storage.
    wheel : str, optional
        ``s3://`` or ``https://`` URI of the GoFFish wheel that machines install; default: the image contains GoFFish.
    python : str
        Python interpreter (3.11 or newer) of the image.
    setup : tuple of str
        Shell commands that machines run first.
    volume_gb : int
        Size of the root volume, which is encrypted and deleted with the machine.
    volume_price_gb_month : float
        For costs.
    prefix : str
        Of all tags and names in the account. Installations with different prefixes do not touch each other's machines.
    max_lifetime_h : float
        After which a machine powers off, whatever it runs.
    endpoint_url : str, optional
        Address of a server with the API of AWS; default: that of the region.
    """

    region: Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[a-z]+)+-\d+$")] | None = None
    image: Annotated[str, Field(pattern=r"^ami-[0-9a-f]{8,17}$")] | None = None
    subnets: Annotated[tuple[_Id, ...], Field(max_length=100)] = ()
    zones: Annotated[tuple[str, ...], Field(max_length=30)] = ()
    security_groups: Annotated[tuple[_Id, ...], Field(max_length=5)] = ()
    instance_profile: Annotated[str, Field(pattern=r"^[\w+=,.@-]{1,128}$")] | None = None
    wheel: Annotated[str, Field(pattern=r"^(s3|https)://\S+/[^\s/]+\.whl$")] | None = None
    python: Annotated[str, Field(pattern=r"^[\w./+-]+$")] = "python3"
    setup: tuple[str, ...] = ()
    volume_gb: Annotated[int, Field(ge=8, le=16_384, strict=True)] = 20
    volume_price_gb_month: NotNegative = 0.08
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,31}$")] = "goffish"
    max_lifetime_h: Annotated[Positive, Field(le=8760)] = 168.0
    endpoint_url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None

    @model_validator(mode="after")
    def _prefix_of_users(self) -> Ec2Options:
        if self.prefix.lower().startswith("aws"):
            raise ValueError("prefix: names that start with aws are reserved; choose another")
        return self


def read_ec2_options(given: str | Path | Mapping[str, Any] | Ec2Options) -> Ec2Options:
    """Read options from a YAML or JSON file, or from a mapping.

    Raises
    ------
    InputError
        The options are invalid; names the file, the field and what is accepted.
    """
    return read_definition(Ec2Options, given, "EC2 options", "image")


class RefusedError(InputError):
    """AWS refused a call.

    Attributes
    ----------
    code : str
        Of AWS.
    said : str
        Message of AWS.
    """

    def __init__(self, text: str, code: str, said: str) -> None:
        self.code, self.said = code, said
        super().__init__(text)


class Network(NamedTuple):
    """Where machines start.

    Attributes
    ----------
    vpc : str
    zones : dict of str to list of str
        Subnets of each availability zone.
    """

    vpc: str
    zones: dict[str, list[str]]


class Account:
    """Calls of AWS with retries. Errors are one line; throttled and failed calls are repeated.

    Parameters
    ----------
    options : Ec2Options

    Raises
    ------
    InputError
        boto3 is not installed, or no region is set.
    """

    def __init__(self, options: Ec2Options) -> None:
        with needed_for("EC2", "cloud"):
            import boto3
            import botocore.exceptions
            import botocore.parsers

        self.options, self._errors = options, botocore.exceptions
        self._not_understood = botocore.parsers.ResponseParserError
        try:
            # Most programs for AWS read AWS_REGION; boto3 reads AWS_DEFAULT_REGION only.
            self._session = boto3.Session(region_name=options.region or os.environ.get("AWS_REGION"))
        except botocore.exceptions.BotoCoreError as error:
            raise InputError(f"AWS: {_one_line(error)}; check AWS_PROFILE") from None
        if self._session.region_name is None:
            raise InputError("AWS: no region is set; set region in the options, or AWS_REGION")
        self.region: str = self._session.region_name
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.skew_s = 0.0

    @property
    def now(self) -> float:
        """Seconds since 1970 on the clock of AWS."""
        return time.time() + (self.skew_s if abs(self.skew_s) > _CORRECTED_SKEW_S else 0.0)

    def tag(self, name: str) -> str:
        """Return the key of a tag in the account."""
        return f"{self.options.prefix}:{name}"

    def filters(self, tags: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the filters of resources of this installation with some tags; check the found ones with `has`."""
        found = [{"Name": f"tag:{self.tag(name)}", "Values": [pattern_of(value)]} for name, value in tags.items()]
        return [{"Name": "tag-key", "Values": [self.options.prefix]}, *found]

    def has(self, tags: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
        """Return whether the tags of a resource are those of this installation and include others."""
        return self.options.prefix in tags and all(tags.get(self.tag(name)) == value for name, value in wanted.items())

    def call(self, service: str, operation: str, again: Sequence[str] = (), **parameters: Any) -> Any:
        """Call an operation.

        Parameters
        ----------
        service, operation : str
            As in boto3.
        again : sequence of str
            Error codes after which to repeat the call: of resources that were made a moment ago.
        **parameters
            Of the operation.

        Returns
        -------
        dict

        Raises
        ------
        RefusedError
            The call is not accepted.
        JobError
            AWS does not answer, or is busy.
        """
        for pause in (*_PAUSES_S, None):
            try:
                reply = getattr(self._client(service), operation)(**parameters)
            except self._errors.ClientError as error:
                self._compare_clocks(error.response)
                if pause is not None and error.response["Error"].get("Code") in again:
                    time.sleep(pause)
                    continue
                raise self._refused(service, operation, error) from None
            except self._errors.BotoCoreError as error:
                raise self._failed(service, operation, error) from None
            except self._not_understood:  # an error page of a proxy or a server
                text = f"AWS {service} {_operation(operation)} in {self.region}: the response is no answer of AWS"
                raise JobError(f"{text}; retry later") from None
            self._compare_clocks(reply)
            return reply
        raise AssertionError  # the last repetition returns or raises

    def pages(self, service: str, operation: str, key: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Call an operation page by page, and iterate over the items under a key."""
        token: dict[str, str] = {}
        while True:
            reply = self.call(service, operation, **parameters, **token)
            yield from reply.get(key) or ()
            if not reply.get("NextToken"):
                return
            token = {"NextToken": reply["NextToken"]}

    def network(self) -> Network:
        """Find the subnets in which machines can start.

        Raises
        ------
        InputError
            There are none, or they belong to several VPCs.
        """
        options = self.options
        if options.subnets:
            found = self.call("ec2", "describe_subnets", SubnetIds=list(options.subnets))["Subnets"]
        else:
            filters = [{"Name": "default-for-az", "Values": ["true"]}]
            found = list(self.pages("ec2", "describe_subnets", "Subnets", Filters=filters))
            if not found:
                raise InputError(f"AWS: {self.region} has no default VPC with subnets; list subnets in the options")
        zones: dict[str, list[str]] = {}
        for one in sorted(found, key=lambda one: (one["AvailabilityZone"], one["SubnetId"])):
            zones.setdefault(one["AvailabilityZone"], []).append(one["SubnetId"])
        unknown = next((zone for zone in options.zones if zone not in zones), None)
        if unknown is not None:
            raise InputError(f"zones: {unknown!r} has no subnet; accepted: {', '.join(zones)}")
        vpcs = sorted({one["VpcId"] for one in found})
        if len(vpcs) > 1:
            raise InputError(f"subnets: belong to several VPCs ({', '.join(vpcs)}); give subnets of one")
        chosen = options.zones or tuple(zones)
        return Network(vpcs[0], {zone: ids for zone, ids in zones.items() if zone in chosen})

    def closed_group(self, vpc: str, *, create: bool) -> str | None:
        """Find the security group without inbound rules, or create it.

        Raises
        ------
        InputError
            The group has inbound rules.
        """
        name = f"{self.options.prefix}-closed"
        found = self._group(vpc, name)
        if found is None:
            return self._create_group(vpc, name, "Machines of GoFFish: no inbound connections", {}) if create else None
        if found["IpPermissions"]:
            raise self._opened(found)
        return str(found["GroupId"])

    def team_group(self, vpc: str, team: str) -> str:
        """Find the security group whose machines can connect to each other, and nothing else to them, or create it.

        Groups of other teams that no machine uses are deleted an hour after they were created.

        Parameters
        ----------
        vpc, team : str

        Raises
        ------
        InputError
            The group has other inbound rules.
        """
        name = f"{self.options.prefix}-{TEAM}-{hashlib.sha256(team.encode()).hexdigest()[:20]}"
        found = self._group(vpc, name)
        if found is None:
            self._delete_unused_teams(vpc)
            what = {TEAM: team[:_LONGEST_TAG], _CREATED: f"{time.time():.0f}"}
            made = self._create_group(vpc, name, "Machines of one job of GoFFish: connections among them", what)
            found = {"GroupId": made, "IpPermissions": []}
        own = str(found["GroupId"])
        if not found["IpPermissions"]:
            among = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": own}]}]
            try:
                self.call(
                    "ec2", "authorize_security_group_ingress", GroupId=own, IpPermissions=among, again=(NO_GROUP,)
                )
            except RefusedError as error:
                if error.code != "InvalidPermission.Duplicate":  # made by another process in the meantime
                    raise
        elif any(
            one.get("IpRanges") or one.get("Ipv6Ranges") or one.get("PrefixListIds")
            or any(pair["GroupId"] != own for pair in one["UserIdGroupPairs"])
            for one in found["IpPermissions"]
        ):  # fmt: skip
            raise self._opened(found)
        return own

    def _opened(self, group: Mapping[str, Any]) -> InputError:
        return InputError(
            f"AWS: security group {group['GroupId']} ({group['GroupName']}) has inbound rules; "
            "remove them, or list other security_groups in the options"
        )

    def _group(self, vpc: str, name: str) -> dict[str, Any] | None:
        filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": [name]}]
        found = self.call("ec2", "describe_security_groups", Filters=filters)["SecurityGroups"]
        return found[0] if found else None

    def _create_group(self, vpc: str, name: str, description: str, tags: Mapping[str, str]) -> str:
        try:
            made = self.call(
                "ec2", "create_security_group", GroupName=name, VpcId=vpc, Description=description,
                TagSpecifications=[self.tags_of("security-group", tags)],
            )  # fmt: skip
        except RefusedError as error:
            found = self._group(vpc, name)
            if error.code != "InvalidGroup.Duplicate" or found is None:  # made by another process in the meantime
                raise
            return str(found["GroupId"])
        return str(made["GroupId"])

    def _delete_unused_teams(self, vpc: str) -> None:
        filters = [
            *self.filters({}),
            {"Name": "tag-key", "Values": [self.tag(TEAM)]},
            {"Name": "vpc-id", "Values": [vpc]},
        ]
        for one in list(self.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=filters)):
            created = next((tag["Value"] for tag in one["Tags"] if tag["Key"] == self.tag(_CREATED)), "")
            if created.isdecimal() and time.time() - int(created) > _TEAM_LASTS_S:
                with contextlib.suppress(RefusedError):  # in use; reap names what is left
                    self.call("ec2", "delete_security_group", GroupId=one["GroupId"])

    def tags_of(self, resource: str, tags: Mapping[str, str], token: str = "") -> dict[str, Any]:
        """Return the tags of a new resource: the prefix with the token of the request, and those given."""
        given = {self.tag(name): value for name, value in sorted(tags.items())}
        if resource in ("instance", "volume"):
            given["Name"] = self.options.prefix
        every = {self.options.prefix: token} | given
        return {"ResourceType": resource, "Tags": [{"Key": key, "Value": value} for key, value in every.items()]}

    def close(self) -> None:
        """Close connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        with self._lock:  # clients are safe in threads, sessions are not
            if service not in self._clients:
                config = Config(
                    retries={"mode": "adaptive", "total_max_attempts": 6}, connect_timeout=5, read_timeout=60,
                    max_pool_connections=32, user_agent_extra=f"goffish/{__version__}",
                )  # fmt: skip
                try:
                    self._clients[service] = self._session.client(
                        service, config=config, endpoint_url=self.options.endpoint_url
                    )
                except (self._errors.BotoCoreError, ValueError) as error:
                    raise InputError(f"AWS: {_one_line(error)}") from None
            return self._clients[service]

    def _compare_clocks(self, reply: Mapping[str, Any]) -> None:
        """Note by how much the clock of AWS is ahead."""
        date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date is not None:
            self.skew_s = parsedate_to_datetime(date).timestamp() - time.time()

    def _refused(self, service: str, operation: str, error: Any) -> Exception:
        code, said = str(error.response["Error"].get("Code", "")), _one_line(error.response["Error"].get("Message", ""))
        said = said.split(" Encoded authorization failure message")[0].rstrip(".")
        name = f"AWS {service} {_operation(operation)}"
        if code in _CREDENTIALS:
            if abs(self.skew_s) >= _REFUSED_SKEW_S:
                return RefusedError(
                    f"{name}: the clock of this computer is {abs(self.skew_s):.0f} s off; set it ({code})", code, said
                )
            return RefusedError(f"{name}: credentials are not accepted ({code}: {said}); renew them", code, said)
        if code in DENIED:
            permission = f"{service}:{_operation(operation)}"
            return RefusedError(f"{name}: permission {permission} is missing; see goffish cloud policy aws", code, said)
        if code in _LATER or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400) >= 500:
            return JobError(f"{name} in {self.region}: {said or code} ({code}); retry later")
        return RefusedError(f"{name} in {self.region}: {said or code} ({code})", code, said)

    def _failed(self, service: str, operation: str, error: Exception) -> Exception:
        name = f"AWS {service} {_operation(operation)}"
        no_credentials = (self._errors.NoCredentialsError, self._errors.PartialCredentialsError)
        if isinstance(error, no_credentials):
            return InputError(f"{name}: no credentials; set AWS_PROFILE, or run on a machine with an instance profile")
        if isinstance(error, self._errors.HTTPClientError | self._errors.ConnectionError):
            where = self.options.endpoint_url or f"region {self.region}"
            return JobError(f"{name}: {where} does not answer ({type(error).__name__}); check region and network")
        return InputError(f"{name}: {_one_line(error)}")


def pattern_of(text: str) -> str:
    """Return the value of a filter that matches a text, and few others, as wildcards cannot be quoted safely."""
    return re.sub(r"[*?\\]", "?", text)


def _operation(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]


def seconds(moment: datetime) -> float:
    """Convert a time of AWS to seconds since 1970."""
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()

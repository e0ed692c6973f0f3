"""``goffish cloud``: machines of cloud accounts, their permissions, and the removal of what was left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.checks import name_values
from goffish.cli.groups import Commands
from goffish.cli.inputs import duration, progress_bar, working
from goffish.cli.options import Json
from goffish.cli.output import as_json, print_json, print_table, say
from goffish.errors import InputError

if TYPE_CHECKING:
    from goffish.cloud.catalogue import Catalogue
    from goffish.cloud.providers.ec2_account import Ec2Options
    from goffish.cloud.providers.protocol import Machine


class AccountKind(StrEnum):
    """Kinds of accounts that machines are rented with."""

    AWS = "aws"


class Policy(StrEnum):
    """Policies of an account."""

    LAUNCHER = "launcher"
    WORKER = "worker"
    TRUST = "trust"


_Kind = Annotated[AccountKind, typer.Argument(metavar="ACCOUNT", help="Kind of account: aws.", show_default=False)]
_Options = Annotated[
    str | None,
    typer.Option(
        "--provider-options", metavar="FILE", help="YAML file of provider options.", show_default="AWS environment"
    ),
]
_Cloud = Annotated[str, typer.Option(help="Catalogue of machine types: a YAML or JSON file, or a bundled name.")]
_Storage = Annotated[
    list[str] | None, typer.Option(metavar="URI", help="Object storage of jobs, as s3://BUCKET/PREFIX; repeatable.")
]
_Tag = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Tag of the machines; repeatable.")]
_DEFAULT_CLOUD = "ec2-2025"


def add_commands(app: typer.Typer) -> None:
    """Add ``goffish cloud`` with its commands."""
    cloud = typer.Typer(cls=Commands, help="Check cloud accounts, list and remove machines.", no_args_is_help=True)
    for name, command in (
        ("check", _check), ("policy", _policy), ("prices", _prices), ("machines", _machines), ("reap", _reap),
    ):  # fmt: skip
        cloud.command(name)(command)
    app.add_typer(cloud, name="cloud")


def _check(
    account: _Kind,
    options: _Options = None,
    cloud: _Cloud = _DEFAULT_CLOUD,
    storage: _Storage = None,
    json: Json = False,
) -> None:
    """Check credentials, permissions, quotas and the network of an account; exit with code 1 on a failed check."""
    from goffish.cloud.catalogue import read_catalogue
    from goffish.cloud.providers.ec2_account import Account
    from goffish.cloud.providers.ec2_setup import check_account

    types = read_catalogue(cloud)
    calls = Account(_read(options))
    with working("checking"):
        found = list(check_account(calls, types, storage or ()))
    if json:
        print_json({"account": str(account), "region": calls.region, "checks": [one._asdict() for one in found]})
    else:
        rows = [[one.name, "ok" if one.ok else "MISSING", one.detail] for one in found]
        print_table(f"{account} in {calls.region}", ["check", "state", "detail"], rows)
    if not all(one.ok for one in found):
        raise typer.Exit(1)


def _policy(
    account: _Kind,
    policy: Annotated[
        Policy | None,
        typer.Argument(metavar="POLICY", help="Policy: launcher, worker or trust.", show_default="all three"),
    ] = None,
    storage: _Storage = None,
    region: Annotated[str | None, typer.Option(help="Region of the machines.", show_default="of the options")] = None,
    options: _Options = None,
) -> None:
    """Print the least permissions as JSON: of the launcher, of machines, and the trust policy of their role."""
    from goffish.cloud.providers.ec2_setup import policies

    given = _read(options)
    where = region or given.region
    if where is None:
        raise InputError("--region is required, or region in --provider-options")
    found = policies(given, where, storage or ())
    sys.stdout.write(as_json(found if policy is None else found[policy]) + "\n")


def _prices(
    account: _Kind,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Catalogue to write, as YAML.")],
    options: _Options = None,
    cloud: _Cloud = _DEFAULT_CLOUD,
    days: Annotated[float, typer.Option(min=1, max=90, help="Length of the history in days.")] = 90.0,
    json: Json = False,
) -> None:
    """Write a catalogue of the machine types with their spot price history, as goffish launch needs it."""
    import yaml

    from goffish.cloud.catalogue import read_catalogue
    from goffish.cloud.prices import moment_text
    from goffish.cloud.providers.ec2_account import Account
    from goffish.cloud.providers.ec2_setup import price_history
    from goffish.partial import check_place, partial_file

    target, types = check_place(output, (".yaml", ".yml")), read_catalogue(cloud)
    calls = Account(_read(options))
    given = {one.name: one for one in types.classes if one.market == "on-demand"}
    if not given:
        raise InputError(f"--cloud {cloud}: has no machine types on demand")
    with working("reading prices"):
        found = price_history(calls, list(given), days)
    kinds = []
    for name, trace in found.items():
        file = f"{target.stem}-{name}.csv"
        rows = zip([*trace.times, trace.end], [*trace.prices, trace.prices[-1]], strict=True)
        lines = [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S},{price:.6f}\n" for at, price in rows]
        with partial_file(target.parent / file) as partial:
            partial.write_text("timestamp_utc,price_usd_per_hour\n" + "".join(lines))
        kinds.append(given[name].model_copy(update={"market": "spot", "prices": file}))
    source = f"EC2 spot prices of {calls.region}, {moment_text(calls.now)}; on demand: {types.source}"
    made = types.with_classes(tuple(kinds)).model_copy(update={"source": source})
    with partial_file(target) as partial:
        partial.write_text(yaml.safe_dump(made.model_dump(by_alias=True, exclude_defaults=True), sort_keys=False))
    facts = {
        name: {
            "price_per_hour": given[name].price_per_hour, "spot_mean": trace.mean, "spot_now": float(trace.prices[-1]),
        }
        for name, trace in found.items()
    }  # fmt: skip
    if json:
        print_json({"catalogue": str(target), "region": calls.region, "machine_types": facts})
        return
    shown = [[name, *values.values()] for name, values in facts.items()]
    print_table(
        f"{target}: prices of an hour in {calls.region}", ["type", "on demand", "spot, mean", "spot now"], shown
    )


def _machines(
    account: _Kind,
    tag: _Tag = None,
    options: _Options = None,
    cloud: _Cloud = _DEFAULT_CLOUD,
    json: Json = False,
) -> None:
    """List machines with their states and costs; ended ones for about an hour."""
    from goffish.cloud.catalogue import read_catalogue

    tags, types = name_values(tag, "--tag"), read_catalogue(cloud)
    with working("listing"):
        found = asyncio.run(_list(_read(options), types, tags))
    if json:
        print_json({"machines": [asdict(one) | {"cost": cost} for one, cost in found]})
        return
    rows = [
        [one.id, one.machine_type, one.market, one.zone, one.state, _time(one.requested_s), cost, _pairs(one.tags)]
        for one, cost in found
    ]
    print_table("machines", ["id", "type", "market", "zone", "state", "requested", "cost", "tags"], rows)


async def _list(options: Ec2Options, types: Catalogue, tags: Mapping[str, str]) -> list[tuple[Machine, float | None]]:
    from goffish.cloud.providers.ec2 import Ec2Provider

    provider = Ec2Provider(types, options)
    try:
        found = sorted(await provider.machines(tags), key=lambda one: (one.requested_s, one.id))
        known = [one for one in found if one.machine_type in {kind.name for kind in types.classes}]
        costs = dict(zip([one.id for one in known], await provider.costs(known), strict=True))
        return [(one, costs.get(one.id)) for one in found]
    finally:
        await provider.close()


def _reap(
    account: _Kind,
    tag: _Tag = None,
    older_than: Annotated[
        float | None, typer.Option(**duration("h"), help="Minimum age; numbers are hours.", show_default="any age")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    options: _Options = None,
    json: Json = False,
) -> None:
    """List what GoFFish has made in an account, and remove it after confirmation; --json only lists without --yes."""
    from goffish.cloud.providers.ec2_account import Account
    from goffish.cloud.providers.ec2_setup import leftovers, remove

    tags = name_values(tag, "--tag")
    calls = Account(_read(options))
    with working("listing"):
        found = leftovers(calls, tags, None if older_than is None else older_than * 3600.0)
    body: dict[str, Any] = {"region": calls.region, "found": [one._asdict() for one in found], "removed": []}
    if not json:
        if not found:
            say(f"{calls.region}: nothing to remove")
            return
        rows = [[one.kind, one.id, one.state, _time(one.created_s), _pairs(one.tags)] for one in found]
        print_table(f"resources in {calls.region}", ["kind", "id", "state", "created", "tags"], rows)
    if found and not yes:
        if json:
            print_json(body)
            return
        if not sys.stdin.isatty():
            raise InputError("nothing was removed: confirm with --yes")
        if not typer.confirm("Remove them?"):
            say("nothing was removed")
            return
    with progress_bar("removing") as update:
        left = remove(calls, found, update)
    if json:
        gone = {one.id for one in found} - {one.id for one in left}
        print_json(body | {"removed": sorted(gone)})
    else:
        say(f"{len(found) - len(left):,} removed")
    if left:
        raise InputError(f"{', '.join(one.id for one in left)}: still in use; repeat the command later")


def _read(options: str | None) -> Ec2Options:
    from goffish.cloud.providers.ec2_account import Ec2Options, read_ec2_options

    return Ec2Options() if options is None else read_ec2_options(options)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _pairs(tags: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(tags.items()))

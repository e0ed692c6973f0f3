"""``goffish reservoir``: events that are kept, queried, verified and repaired."""

from __future__ import annotations

import json as json_library
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, cast

import typer

from goffish.cli.groups import Commands
from goffish.cli.inputs import progress_bar, working
from goffish.cli.options import TABLE_FILE, Json
from goffish.cli.output import print_facts, print_json, print_table, say
from goffish.errors import InputError, JobError

_Reservoir = Annotated[str, typer.Argument(metavar="RESERVOIR", help="Folder or URI of an event reservoir.")]
_Pools = Annotated[list[str] | None, typer.Option("--pool", help="Pool; repeatable.", show_default="all")]
#: Rows that are printed.
_ROWS = 10


def add_commands(app: typer.Typer) -> None:
    """Add ``goffish reservoir`` with its commands."""
    group = typer.Typer(cls=Commands, help="Keep events in a durable store, and query them.", no_args_is_help=True)
    app.add_typer(group, name="reservoir")
    group.command("create", help="Create an empty event reservoir.")(_create)
    group.command("append", help="Append the events of a table file to a pool; repeated ones have no effect.")(_append)
    group.command("describe", help="Describe a reservoir: pools, columns, time ranges, buckets, locations.")(_describe)
    group.command("query", help="Select events by time, values and relations.")(_query)
    group.command("verify", help="Verify the checksum of every copy of the index and of every bucket.")(_verify)
    group.command("repair", help="Write missing and damaged copies again from the others.")(_repair)
    group.command("compact", help="Merge small buckets, and put events together as pools say.")(_compact)
    group.command("drop", help="Remove the events before a time.")(_drop)


def _create(
    reservoir: _Reservoir,
    bucket: Annotated[str, typer.Option(help="Span of time that a bucket covers, such as 15min, 1h or 1d.")] = "1h",
    rows: Annotated[int, typer.Option(min=1, help="Events after which a bucket is full.")] = 250_000,
    replica: Annotated[
        list[str] | None, typer.Option(help="Folder or URI that holds copies; repeatable.", show_default="none")
    ] = None,
    copies: Annotated[
        int | None, typer.Option(min=1, help="Number of locations that hold each bucket.", show_default="all")
    ] = None,
    allow_missing: Annotated[
        int, typer.Option(min=0, help="Number of locations that may be unreachable while events are appended.")
    ] = 0,
    group_related: Annotated[
        bool, typer.Option("--group-related", help="Put events together that pairs of relations join.")
    ] = False,
    json: Json = False,
) -> None:
    from goffish.gofs.reservoir import Reservoir

    made = Reservoir.create(
        reservoir, bucket=bucket, rows=rows, replicas=replica or (), copies=copies, allow_missing=allow_missing,
        group_related=group_related,
    )  # fmt: skip
    if json:
        print_json(made.describe())
    else:
        say(f"{reservoir}: created\n\nnext: goffish reservoir append {reservoir} POOL FILE")


def _append(
    reservoir: _Reservoir,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Name of the pool; created if it does not exist.")],
    events: Annotated[str, typer.Argument(metavar="FILE", help=f"{TABLE_FILE} With columns t and id.")],
    json: Json = False,
) -> None:
    from goffish.gofs.reservoir import Reservoir
    from goffish.gopher.result import read_table

    target, table = Reservoir(reservoir), read_table(events)
    with working("appending"):
        added = target.pool(pool).append(table)
    if json:
        print_json({"reservoir": reservoir, "pool": pool, "events": len(table), "added": added})
    else:
        say(f"{reservoir}: {added:,} of {len(table):,} events added to {pool}")


def _describe(reservoir: _Reservoir, json: Json = False) -> None:
    from goffish.gofs.reservoir import Reservoir

    found = Reservoir(reservoir).describe()
    if json:
        print_json(found)
        return
    facts = [
        ("span of a bucket", f"{found['bucket_s']:g} s"),
        ("events of a full bucket", found["rows"]),
        ("locations", ", ".join(found["locations"])),
        ("copies of a bucket", found["copies"]),
    ]
    print_facts(reservoir, facts if found["copy_of"] is None else [*facts, ("replica of", found["copy_of"])])
    say("")
    rows = [
        (name, one["events"], one["buckets"], one["bytes"], one["first"], one["last"], ", ".join(one["columns"]))
        for name, one in found["pools"].items()
    ]
    print_table(
        "pools" if rows else "no pools", ("pool", "events", "buckets", "bytes", "first", "last", "columns"), rows
    )


def _query(
    reservoir: _Reservoir,
    pool: _Pools = None,
    start: Annotated[
        str | None, typer.Option(help="Beginning of the time range, included: ISO 8601, or seconds since 1970.")
    ] = None,
    end: Annotated[str | None, typer.Option(help="End of the time range, excluded.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help='NAME=VALUE: a JSON value, or a text; null is a missing value. Repeatable; NAME="7" is a text.'
        ),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Column to show; repeatable.", show_default="all that have a value")
    ] = None,
    related: Annotated[
        list[str] | None, typer.Option(help="Relation that is followed from the selected events; repeatable.")
    ] = None,
    hops: Annotated[
        int, typer.Option("--max-hops", min=1, help="Number of relations that are followed one after the other.")
    ] = 1,
    direction: Annotated[str, typer.Option(help="Follow relations out, in or both ways.")] = "both",
    as_type: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TYPE", help="Convert a column, as in value=string; repeatable.")
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help=TABLE_FILE)] = None,
    json: Json = False,
) -> None:
    from goffish.gofs.reservoir import Reservoir
    from goffish.gopher.result import check_suffix, write_table

    if output is not None:
        check_suffix(output)
    values: dict[str, list[Any]] = {}
    for name, text in _pairs(where, "--where"):
        values.setdefault(name, []).append(_value(text))
    with working("selecting events"):
        found = Reservoir(reservoir).query(
            pool, start=_moment(start), end=_moment(end), where=values, columns=column, related=related, hops=hops,
            direction=cast(Any, direction), types=dict(_pairs(as_type, "--as-type")),
        )  # fmt: skip
    if output is not None:
        write_table(found, output)
        facts = {"reservoir": reservoir, "events": len(found), "output": output}
        print_json(facts) if json else say(f"{len(found):,} events written to {output}")
    elif json:
        events = [{name: _plain(value) for name, value in row.items()} for row in found.to_pylist()]
        print_json({"reservoir": reservoir, "events": events})
    else:
        shown = found.slice(0, _ROWS)
        heading = f"{len(found):,} events" if len(found) <= _ROWS else f"first {_ROWS} of {len(found):,} events"
        rows = [[_shown(value) for value in row.values()] for row in shown.to_pylist()]
        print_table(heading, shown.column_names, rows)
        if len(found) > _ROWS:
            say("\nto keep all events, add -o FILE.parquet (or .csv, .json, .arrow)")


def _pairs(given: Sequence[str] | None, option: str) -> list[tuple[str, str]]:
    found = []
    for one in given or ():
        name, separator, text = one.partition("=")
        if not separator or not name:
            raise InputError(f"{option} {one}: expected NAME={'TYPE' if option == '--as-type' else 'VALUE'}")
        found.append((name, text))
    return found


def _value(text: str) -> Any:
    try:
        return json_library.loads(text)
    except (ValueError, RecursionError):
        return text


def _moment(text: str | None) -> Any:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _shown(value: Any) -> Any:
    """Return a value as it is printed: without separators, as it may be a name."""
    return None if value is None else value if isinstance(value, bool) else str(value)


def _verify(reservoir: _Reservoir, json: Json = False) -> None:
    from goffish.gofs.reservoir import Reservoir

    with progress_bar("verifying") as update:
        found = Reservoir(reservoir).verify(progress=update)
    bad = [row for row in found.to_pylist() if row["state"] != "ok"]
    _report(reservoir, bad, json, {"copies": len(found)}, f"all {len(found):,} copies match their checksums")
    if bad:
        raise JobError(
            f"{reservoir}: {len(bad):,} of {len(found):,} copies are not as written; run goffish reservoir repair"
        )


def _repair(
    reservoir: _Reservoir,
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove buckets from the index that no location has any more.")
    ] = False,
    json: Json = False,
) -> None:
    from goffish.gofs.reservoir import Reservoir

    with working("repairing"):
        found = Reservoir(reservoir).repair(forget=forget).to_pylist()
    _report(reservoir, found, json, {}, "nothing to repair")
    left = [row for row in found if row["state"] != "restored"]
    if left and not (forget and all(row["state"] == "lost" for row in left)):
        raise JobError(f"{reservoir}: {len(left):,} copies could not be restored")


def _report(reservoir: str, rows: list[dict[str, str]], json: bool, facts: dict[str, Any], fine: str) -> None:
    if json:
        print_json({"reservoir": reservoir, **facts, "reported": rows})
    elif rows:
        print_table(reservoir, list(rows[0]), [list(row.values()) for row in rows])
    else:
        say(f"{reservoir}: {fine}")


def _compact(reservoir: _Reservoir, json: Json = False) -> None:
    from goffish.gofs.reservoir import Reservoir

    with working("compacting"):
        _changed(reservoir, Reservoir(reservoir).compact(), json)


def _drop(
    reservoir: _Reservoir,
    before: Annotated[str, typer.Option(help="Time: ISO 8601, or seconds since 1970.")],
    pool: _Pools = None,
    json: Json = False,
) -> None:
    from goffish.gofs.reservoir import Reservoir

    with working("removing events"):
        _changed(reservoir, Reservoir(reservoir).drop(_moment(before), pool), json)


def _changed(reservoir: str, sizes: dict[str, int], json: bool) -> None:
    if json:
        print_json({"reservoir": reservoir, **sizes})
    else:
        said = "{buckets_before:,} buckets ({bytes_before:,} bytes) before, {buckets:,} ({bytes:,} bytes) now"
        say(f"{reservoir}: {said.format(**sizes)}")

"""``goffish timeseries build``, ``append`` and ``info``: series in stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.checks import check_choice
from goffish.cli.options import Json
from goffish.cli.timeseries_events import Columns, Events, Separator, chosen_columns
from goffish.errors import InputError

if TYPE_CHECKING:
    from goffish.temporal.build import SeriesBuild

_Store = Annotated[str, typer.Argument(metavar="STORE", help="A store with a time series.")]
_Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        help="Edge attribute of every window: NAME=count, or NAME=HOW:COLUMN with HOW one of sum, min, max, mean, "
        "first, last, list; repeatable. Default: count=count.",
    ),
]
_Unit = Annotated[
    str | None, typer.Option(help="Of times that are numbers: s (default), ms, us, or 1: a series without a calendar.")
]
_Window = Annotated[str | None, typer.Option(help="Length of a window: a number in the unit, or 15min, 1h, 7d.")]


def add_series_commands(series: typer.Typer) -> None:
    """Add the commands to the group ``timeseries``."""
    series.command("build", help="Make a store with a time series of time-stamped edges, or of a folder of graphs.")(
        _build
    )
    series.command("append", help="Add the windows that follow to a series; nothing that is there is written again.")(
        _append
    )
    series.command("info", help="What a series holds: time, attributes, slices, bytes.")(_info)


def _build(
    events: Annotated[
        str,
        typer.Argument(metavar="INPUT", help="A file of time-stamped edges, or a folder of graphs."),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="Folder or URI of the store.")],
    window: _Window = None,
    start: Annotated[str | None, typer.Option(help="Begin of the first window, or instance.")] = None,
    attribute: _Attributes = None,
    columns: Columns = None,
    separator: Separator = None,
    time_unit: _Unit = None,
    directed: Annotated[bool, typer.Option("--directed/--undirected", help="Whether edges have a direction.")] = False,
    self_loops: Annotated[str, typer.Option(help="Events from a vertex to itself: drop or keep.")] = "drop",
    name_pattern: Annotated[
        str | None, typer.Option(help="Of a folder: regular expression that finds the time in a file's name.")
    ] = None,
    time_format: Annotated[str | None, typer.Option(help="How that time is written, such as %Y-%m-%d.")] = None,
    period: Annotated[str | None, typer.Option(help="Of a folder: length of every instance.")] = None,
    parts: Annotated[int, typer.Option("--parts", "-k", min=1, help="Number of partitions.")] = 4,
    method: Annotated[str, typer.Option(help="metis, hash, range, ldg or fennel.")] = "metis",
    pack: Annotated[str, typer.Option(help="Instances of one slice: a number, or all.")] = "10",
    bins: Annotated[int, typer.Option(min=1, help="Groups of subgraphs of a partition, a slice each.")] = 5,
    json: Json = False,
) -> None:
    from goffish.gofs import check_store_place
    from goffish.temporal.build import build_from_events, build_from_snapshots, read_events

    check_store_place(output)
    begun = time.perf_counter()
    stored: dict[str, Any] = {
        "parts": parts, "method": method, "pack": _pack(pack), "bins": bins, "directed": directed,
    }  # fmt: skip
    given = chosen_columns(columns, separator)
    with _progress("instances") as progress:
        if Path(events).is_dir():
            _refuse("of a folder of graphs", window=window, attribute=attribute)
            made = build_from_snapshots(
                events, output, pattern=name_pattern, time_format=time_format, start=_time(start), period=_time(period),
                progress=progress, **_named(time_unit=time_unit), **stored, **given,
            )  # fmt: skip
        else:
            _refuse("of a file of events", name_pattern=name_pattern, time_format=time_format, period=period)
            if window is None:
                raise InputError("--window is needed: the length of every window, such as 1h or 7d")
            made = build_from_events(
                read_events(events, **given), output, window=_time(window), start=_time(start),
                attributes=_attributes(attribute), progress=progress,
                **_named(time_unit=time_unit, self_loops=self_loops), **stored,
            )  # fmt: skip
    _print_build(made, output, time.perf_counter() - begun, json)


def _append(
    store: _Store,
    events: Events,
    window: _Window = None,
    attribute: _Attributes = None,
    columns: Columns = None,
    separator: Separator = None,
    time_unit: _Unit = None,
    self_loops: Annotated[str, typer.Option(help="Events from a vertex to itself: drop or keep.")] = "drop",
    json: Json = False,
) -> None:
    from goffish.temporal.build import append_from_events, read_events

    begun = time.perf_counter()
    table = read_events(events, **chosen_columns(columns, separator))
    with _progress("instances") as progress:
        made = append_from_events(
            store, table, window=_time(window), attributes=_attributes(attribute), progress=progress,
            **_named(time_unit=time_unit, self_loops=self_loops),
        )  # fmt: skip
    _print_build(made, store, time.perf_counter() - begun, json, added=True)


def _info(store: _Store, json: Json = False) -> None:
    from goffish.cli.output import print_facts, print_json, print_table
    from goffish.temporal.figures import describe_series

    facts = describe_series(store)
    if json:
        print_json(facts)
        return
    attributes = facts.pop("attributes")
    print_facts(store, [(name.replace("_", " "), value) for name, value in facts.items()])
    header = ("attribute", "type", "default", "slices", "bytes")
    print_table("\nattributes", header, [[a[name] for name in ("name", *header[1:])] for a in attributes])


def _attributes(given: list[str] | None) -> dict[str, str | tuple[str, str]] | None:
    """``name=count`` and ``name=sum:column`` as `build_from_events` wants them."""
    if not given:
        return None
    found: dict[str, str | tuple[str, str]] = {}
    for text in given:
        name, sign, how = (part.strip() for part in text.partition("="))
        rule, colon, column = (part.strip() for part in how.partition(":"))
        if not (sign and name and rule) or (colon and not column) or bool(colon) == (rule == "count"):
            raise InputError(f"--attribute {text!r}: write NAME=count or NAME=HOW:COLUMN, as in amount=sum:weight")
        found[name] = (column, rule) if colon else rule
    return found


def _named(**given: str | None) -> dict[str, Any]:
    """Options that were given, their choices checked."""
    choices = {"time_unit": ("s", "ms", "us", "1"), "self_loops": ("drop", "keep")}
    for name, value in given.items():
        check_choice(name.replace("_", "-"), value, choices[name])
    return {name: value for name, value in given.items() if value is not None}


def _pack(text: str) -> Any:
    if text != "all" and not (text.isdigit() and int(text)):
        raise InputError(f"--pack {text!r}: give a positive whole number, or all")
    return text if text == "all" else int(text)


def _time(text: str | None) -> Any:
    """Numbers as numbers; dates and lengths such as 1h stay texts."""
    return int(text) if text is not None and text.lstrip("-").isdigit() else text


def _refuse(place: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} is not an option {place}")


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int], None]]:
    from goffish.cli.inputs import progress_bar

    with progress_bar(what) as update:
        yield lambda done: update(done, None)


def _print_build(made: SeriesBuild, store: str, seconds: float, json: bool, *, added: bool = False) -> None:
    from goffish.cli.output import print_facts, print_json, say

    facts = {
        "instances" if not added else "instances added": made.instances,
        "vertices": made.store.num_vertices,
        "edges": made.store.num_edges,
        "partitions": made.store.num_partitions,
    }
    if json:
        named = {name.replace(" ", "_"): value for name, value in facts.items()}
        print_json({"store": store, **named, "notes": list(made.notes), "seconds": seconds})
        return
    print_facts(f"{store}: {seconds:.2f} s", facts.items())
    for note in made.notes:
        say(f"  {note}")

"""``goffish timeseries build``, ``append``, ``compact`` and ``info``: time series of graphs in stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.checks import check_choice
from goffish.cli.groups import Commands
from goffish.cli.options import DIRECTED, METHOD, PARTS, SELF_LOOPS, SERIES_STORE, STORE_TARGET, Json
from goffish.cli.timeseries_events import Columns, Separator, add_event_commands, chosen_columns
from goffish.cli.timeseries_plots import add_series_plots
from goffish.cli.timeseries_run import add_series_runs
from goffish.errors import InputError

if TYPE_CHECKING:
    from goffish.temporal.build import SeriesBuild

_Store = Annotated[str, typer.Argument(metavar="STORE", help=SERIES_STORE)]
_Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        help="Edge attribute per window: NAME=count, or NAME=sum|min|max|mean|first|last|list:COLUMN; repeatable.",
        show_default="count=count",
    ),
]
_Unit = Annotated[
    str | None, typer.Option(help="Unit of numeric times: s, ms, us, or 1 (no calendar).", show_default="s")
]
_Window = Annotated[str | None, typer.Option(help="Window length: a number of time units, or 15min, 1h, 7d.")]
_SelfLoops = Annotated[str, typer.Option(help=SELF_LOOPS)]
_Input = Annotated[str, typer.Argument(metavar="INPUT", help="File of time-stamped edges, or folder of graphs.")]
_NamePattern = Annotated[
    str | None, typer.Option(help="For folders: regular expression that matches the time in a file name.")
]
_TimeFormat = Annotated[str | None, typer.Option(help="For folders: format of that time, such as %Y-%m-%d.")]
_Period = Annotated[str | None, typer.Option(help="For folders: length of every instance.")]


def add_commands(app: typer.Typer) -> None:
    """Add ``goffish timeseries`` with its commands."""
    series = typer.Typer(
        cls=Commands, help="Build, extend, analyze and plot time series of graphs.", no_args_is_help=True
    )
    app.add_typer(series, name="timeseries")
    series.command("build", help="Build a store with a time series from time-stamped edges or a folder of graphs.")(
        _build
    )
    series.command("append", help="Append later windows or graphs, also with new vertices and edges, to a series.")(
        _append
    )
    series.command("compact", help="Rewrite a series that has been appended to, for faster reading.")(_compact)
    series.command("info", help="Describe a series: time range, attributes, slices, bytes.")(_info)
    add_series_runs(series)
    add_event_commands(series)
    add_series_plots(series)


def _build(
    events: _Input,
    output: Annotated[str, typer.Option("-o", "--output", help=STORE_TARGET)],
    window: _Window = None,
    start: Annotated[str | None, typer.Option(help="Start of the first window or instance.")] = None,
    attribute: _Attributes = None,
    columns: Columns = None,
    separator: Separator = None,
    time_unit: _Unit = None,
    directed: Annotated[bool, typer.Option("--directed/--undirected", help=DIRECTED)] = False,
    self_loops: _SelfLoops = "drop",
    name_pattern: _NamePattern = None,
    time_format: _TimeFormat = None,
    period: _Period = None,
    parts: Annotated[int, typer.Option("--parts", "-k", min=1, help=PARTS)] = 4,
    method: Annotated[str, typer.Option(help=METHOD)] = "metis",
    pack: Annotated[str, typer.Option(help="Instances per slice: a number, or all.")] = "10",
    bins: Annotated[
        int, typer.Option(min=1, help="Number of slices per partition, each with a group of subgraphs.")
    ] = 5,
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
            _refuse("files of events", window=window, attribute=attribute)
            made = build_from_snapshots(
                events, output, pattern=name_pattern, time_format=time_format, start=_time(start), period=_time(period),
                progress=progress, **_named(time_unit=time_unit), **stored, **given,
            )  # fmt: skip
        else:
            _refuse("folders of graphs", name_pattern=name_pattern, time_format=time_format, period=period)
            if window is None:
                raise InputError("--window is required: the length of a window, such as 1h or 7d")
            made = build_from_events(
                read_events(events, **given), output, window=_time(window), start=_time(start),
                attributes=_attributes(attribute), progress=progress,
                **_named(time_unit=time_unit, self_loops=self_loops), **stored,
            )  # fmt: skip
    _print_build(made, output, time.perf_counter() - begun, json)


def _append(
    store: _Store,
    events: _Input,
    window: _Window = None,
    start: Annotated[str | None, typer.Option(help="For folders: start of the first instance.")] = None,
    attribute: _Attributes = None,
    columns: Columns = None,
    separator: Separator = None,
    time_unit: _Unit = None,
    self_loops: Annotated[str | None, typer.Option(help=SELF_LOOPS, show_default="drop")] = None,
    name_pattern: _NamePattern = None,
    time_format: _TimeFormat = None,
    period: _Period = None,
    json: Json = False,
) -> None:
    from goffish.temporal.build import append_from_events, append_from_snapshots, read_events

    begun = time.perf_counter()
    given = chosen_columns(columns, separator)
    named = _named(**{name: x for name, x in (("time_unit", time_unit), ("self_loops", self_loops)) if x is not None})
    with _progress("instances") as progress:
        if Path(events).is_dir():
            _refuse("files of events", window=window, attribute=attribute)
            made = append_from_snapshots(
                store, events, pattern=name_pattern, time_format=time_format, start=_time(start), period=_time(period),
                progress=progress, **named, **given,
            )  # fmt: skip
        else:
            _refuse("folders of graphs", name_pattern=name_pattern, time_format=time_format, period=period, start=start)
            made = append_from_events(
                store, read_events(events, **given), window=_time(window), attributes=_attributes(attribute),
                progress=progress, **named,
            )  # fmt: skip
    _print_build(made, store, time.perf_counter() - begun, json, added=True)


def _compact(store: _Store, json: Json = False) -> None:
    from goffish.cli.output import print_facts, print_json
    from goffish.gofs.series import compact_series

    begun = time.perf_counter()
    with _progress("instances") as progress:
        made = compact_series(store, progress=progress)
    seconds, facts = time.perf_counter() - begun, {name: value for name, value in vars(made).items() if name != "store"}
    if json:
        print_json({"store": store, **facts, "seconds": seconds})
        return
    print_facts(f"{store}: {seconds:.2f} s", ((name.replace("_", " "), value) for name, value in facts.items()))


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
    """Parse ``name=count`` and ``name=sum:column`` into the form of `build_from_events`."""
    if not given:
        return None
    found: dict[str, str | tuple[str, str]] = {}
    for text in given:
        name, sign, how = (part.strip() for part in text.partition("="))
        rule, colon, column = (part.strip() for part in how.partition(":"))
        if not (sign and name and rule) or (colon and not column) or bool(colon) == (rule == "count"):
            raise InputError(f"--attribute {text!r}: give NAME=count or NAME=RULE:COLUMN, such as amount=sum:weight")
        found[name] = (column, rule) if colon else rule
    return found


def _named(**given: str | None) -> dict[str, Any]:
    """Return the given options after checking their choices."""
    choices = {"time_unit": ("s", "ms", "us", "1"), "self_loops": ("drop", "keep")}
    for name, value in given.items():
        check_choice(name.replace("_", "-"), value, choices[name])
    return {name: value for name, value in given.items() if value is not None}


def _pack(text: str) -> Any:
    if text != "all" and not (text.isdigit() and int(text)):
        raise InputError(f"--pack {text!r}: give a positive whole number, or all")
    return text if text == "all" else int(text)


def _time(text: str | None) -> Any:
    """Parse a number; return dates and durations such as 1h unchanged."""
    return int(text) if text is not None and text.lstrip("-").isdigit() else text


def _refuse(place: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} applies to {place} only")


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

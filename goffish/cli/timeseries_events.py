"""``goffish timeseries paths`` and ``triangles``: queries on time-stamped edges, without a store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.options import COLUMNS, DIRECTED, SEPARATOR, TABLE_FILE, Json, parse_columns
from goffish.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Events = Annotated[
    str, typer.Argument(metavar="EVENTS", help="Time-stamped edges: .csv, .txt, .tsv, .parquet …, also .gz.")
]
Columns = Annotated[
    str | None,
    typer.Option(help=COLUMNS, show_default="the first three"),
]
Separator = Annotated[str | None, typer.Option(help=SEPARATOR, show_default="detected")]
_Directed = Annotated[bool, typer.Option("--directed/--undirected", help=DIRECTED)]
_Output = Annotated[str | None, typer.Option("-o", "--output", help=TABLE_FILE)]


def add_event_commands(series: typer.Typer) -> None:
    """Add the commands to the group ``timeseries``."""
    series.command("paths", help="Find time-respecting paths from or to a vertex.")(_paths)
    series.command("triangles", help="Count temporal triangles within a time span, by order and direction.")(_triangles)


def chosen_columns(columns: str | None, separator: str | None) -> dict[str, Any]:
    """Return keyword arguments of `goffish.temporal.build.read_events`."""
    return {"columns": None if columns is None else parse_columns(columns), "separator": separator}


def _paths(
    events: Events,
    vertex: Annotated[str, typer.Option(help="Source of the paths; for latest-departure, their target.")],
    kind: Annotated[
        str, typer.Option(help="Kind of paths: earliest-arrival, latest-departure, fastest or fewest-hops.")
    ] = "earliest-arrival",
    duration: Annotated[int, typer.Option(help="Duration of every edge, in time units.")] = 0,
    start: Annotated[int | None, typer.Option(help="Earliest departure time.", show_default="none")] = None,
    end: Annotated[int | None, typer.Option(help="Latest arrival time.", show_default="none")] = None,
    directed: _Directed = True,
    output: _Output = None,
    columns: Columns = None,
    separator: Separator = None,
    json: Json = False,
) -> None:
    from goffish.temporal.event_paths import temporal_paths

    table, times = _read(events, columns, separator, output)
    begun = time.perf_counter()
    found = temporal_paths(
        table["source"], table["target"], times, _label(vertex, table["source"].type), kind,  # type: ignore[arg-type]
        duration=duration, start=start, end=end, directed=directed,
    )  # fmt: skip
    reached = found.table.num_rows - found.table.column(1).null_count
    summary = {"events": table.num_rows, "vertices": found.table.num_rows, "reached": reached}
    _print(f"{kind} {vertex}", events, found.table, summary, time.perf_counter() - begun, output, json)


def _triangles(
    events: Events,
    within: Annotated[int, typer.Option(help="Maximum time from the first edge to the last, in time units.")],
    output: _Output = None,
    columns: Columns = None,
    separator: Separator = None,
    json: Json = False,
) -> None:
    from goffish.temporal.motifs import temporal_triangles

    table, times = _read(events, columns, separator, output)
    begun = time.perf_counter()
    found = temporal_triangles(table["source"], table["target"], times, within)
    summary = {"events": table.num_rows, "triangles": sum(found["count"].to_pylist())}
    _print(f"triangles within {within:,}", events, found, summary, time.perf_counter() - begun, output, json)


def _read(events: str, columns: str | None, separator: str | None, output: str | None) -> tuple[pa.Table, Any]:
    """Read events and their times; dates and texts become microseconds since 1970."""
    from goffish.cli.checks import check_result_target
    from goffish.cli.inputs import working
    from goffish.temporal.build import event_times, read_events

    if output is not None:
        check_result_target(output, events)
    with working("reading"):
        table = read_events(events, **chosen_columns(columns, separator))
    return table, event_times(table["timestamp"])


def _label(text: str, kind: Any) -> int | str:
    if str(kind) in ("string", "large_string"):
        return text
    try:
        return int(text)
    except ValueError:
        raise InputError(f"unknown vertex {text!r}: the vertices of these events are integers") from None


def _print(
    title: str, events: str, table: pa.Table, summary: dict[str, Any], seconds: float, output: str | None, json: bool
) -> None:
    from goffish.cli.output import print_json, print_result
    from goffish.gopher import Result

    result = Result(title, table, summary)
    saved = None if output is None else str(result.write(output))
    if json:
        rows = {"rows": table.to_pylist()} if saved is None else {}
        print_json({"input": events, "summary": summary, "seconds": seconds, "output": saved, **rows})
    else:
        print_result(result, f"{title} of {events}: {seconds:.2f} s", saved)

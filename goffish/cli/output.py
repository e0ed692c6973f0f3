"""Output of the commands: tables, or JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from goffish.gopher import Result, RunStats

_PREVIEW_ROWS = 10
_MOST_PARTITIONS = 32

# Identifiers, not quantities: printed without thousands separators.
_NAMES = {"vertex", "component", "parent", "partition", "subgraph", "neighbor", "value"}


def print_json(body: Mapping[str, Any]) -> None:
    """Print one JSON document; NaN and infinities become null."""
    sys.stdout.write(as_json(body) + "\n")


def as_json(body: Mapping[str, Any]) -> str:
    """Return a standard JSON document; NaN and infinities become null."""
    return json.dumps(_finite(body), default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def say(text: str) -> None:
    """Print one line of text, unformatted."""
    sys.stdout.write(f"{text}\n")


def print_facts(title: str, facts: Iterable[tuple[str, Any]]) -> None:
    """Print a heading and one line per fact."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(f"  {name}", _text(show(value)))
    _print(title, table)


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a heading and a table with right-aligned numbers."""
    from rich.table import Table

    body = [list(row) for row in rows]
    table = Table(box=None, show_header=True, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for at, name in enumerate(header):
        numeric = bool(body) and all(isinstance(row[at], int | float) or row[at] is None for row in body)
        table.add_column(("" if at else "  ") + name, justify="right" if numeric else "left", overflow="fold")
    for row in body:
        table.add_row(*(_text(("" if at else "  ") + show(value)) for at, value in enumerate(row)))
    _print(title, table)


def _text(text: str) -> Any:
    from rich.text import Text

    return Text(text)  # labels in square brackets are not markup


def _print(title: str, table: Table) -> None:
    console = _console()
    console.print(_text(title), style="bold", soft_wrap=True)
    if not console.is_terminal:
        # Output to a program or file: no wrapped lines, no trailing blanks.
        with console.capture() as captured:
            console.print(table)
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
        return
    console.print(table)


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=100_000, force_terminal=False)


def show(value: Any) -> str:
    """Format a value for reading."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def print_result(result: Result, title: str, saved: str | None) -> None:
    """Print the summary, and either the first rows or the output file."""
    rows = result.table.num_rows
    print_facts(title, [(name.replace("_", " "), v) for name, v in result.summary.items()] or [("rows", rows)])
    if saved is not None:
        say(f"\n{rows:,} rows written to {saved}")
        return
    preview = result.table.slice(0, _PREVIEW_ROWS)
    heading = f"{rows:,} rows" if rows > preview.num_rows else "all rows"
    heading = f"first {preview.num_rows} of {heading}" if rows > preview.num_rows else heading
    columns = (_labels_as_text(name, preview) for name in preview.column_names)
    say("")
    print_table(heading if rows else "no rows", result.table.column_names, zip(*columns, strict=True))
    if rows > preview.num_rows:
        say("\nto keep all rows, add -o FILE.parquet (or .csv, .json, .arrow)")


def _labels_as_text(name: str, table: Any) -> list[Any]:
    values: list[Any] = table.column(name).to_pylist()
    if name in _NAMES:
        # Without separators.
        return [None if v is None else str(v) for v in values]
    return values


def print_stats(stats: RunStats) -> None:
    """Print the counters of a run."""
    figures = [
        ("engine", f"{stats.engine}, {stats.threads} threads"),
        ("partitions / subgraphs", f"{stats.partitions:,} / {stats.subgraphs:,}"),
        ("supersteps", stats.supersteps),
        ("messages sent", stats.messages),
        ("after combining", stats.total("combined")),
        ("to other partitions", stats.total("remote")),
        ("bytes to other partitions", stats.total("remote_bytes")),
        ("edge cut (share of arcs)", None if stats.edge_cut is None else f"{stats.edge_cut:.2%}"),
        ("imbalance (largest / mean compute)", f"{stats.imbalance:.2f}"),
        ("idle share of threads", f"{stats.idle_share:.1%}"),
        *((f"{name} seconds", f"{seconds:.3f}") for name, seconds in stats.phases.items()),
    ]
    say("")
    print_facts("counters", figures)
    busy = stats.busy_per_partition()
    sums = {
        name: stats.steps.group_by("partition").aggregate([(name, "sum")]).sort_by("partition")
        for name in ("messages", "remote")
    }
    rows = [
        (str(p), f"{busy[p]:.3f}", *(int(sums[n][f"{n}_sum"][p].as_py()) for n in ("messages", "remote")))
        for p in range(min(stats.partitions, sums["messages"].num_rows))
    ]
    print_partitions(("partition", "compute seconds", "messages", "remote"), rows)


def print_partitions(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print one line per partition, up to 32."""
    say("")
    print_table("per partition", header, rows[:_MOST_PARTITIONS])
    if len(rows) > _MOST_PARTITIONS:
        say(f"  … and {len(rows) - _MOST_PARTITIONS:,} more (--json has all)")

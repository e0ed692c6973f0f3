"""What the commands print: tables for people on a terminal, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goffish.gopher import Result, RunStats

_PREVIEW_ROWS = 10


def print_json(body: Mapping[str, Any]) -> None:
    """One JSON document on standard output; NaN and infinities become null."""
    import sys

    sys.stdout.write(json.dumps(_finite(body), default=str) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def say(text: str) -> None:
    """One line of text on standard output."""
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(text, markup=False)


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table with a title; numbers are set to the right."""
    from rich.console import Console
    from rich.table import Table

    body = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold")
    for at, name in enumerate(header):
        numeric = bool(body) and all(isinstance(row[at], int | float) or row[at] is None for row in body)
        table.add_column(name, justify="right" if numeric else "left")
    for row in body:
        table.add_row(*(show(value) for value in row))
    Console(highlight=False).print(table)


def show(value: Any) -> str:
    """A value as a person wants to read it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def print_result(result: Result, seconds: float, saved: str | None) -> None:
    """Summary, the first rows, and where the table went."""
    print_table(
        f"{result.algorithm} in {seconds:.2f} s",
        ("figure", "value"),
        [(name.replace("_", " "), show(value)) for name, value in result.summary.items()]
        or [("rows", show(result.table.num_rows))],
    )
    preview = result.table.slice(0, _PREVIEW_ROWS)
    print_table(
        f"first {preview.num_rows} of {result.table.num_rows:,} rows",
        result.table.column_names,
        zip(*(_labels_as_text(name, preview) for name in preview.column_names), strict=True),
    )
    say(f"all rows: {saved}" if saved else "all rows: add -o FILE.parquet (or .csv, .json)")


def _labels_as_text(name: str, table: Any) -> list[Any]:
    values: list[Any] = table.column(name).to_pylist()
    # Vertex labels are names, not quantities: no thousands separators.
    if name in ("vertex", "component", "parent"):
        return [None if v is None else str(v) for v in values]
    return values


def print_stats(stats: RunStats) -> None:
    """The counters of a run."""
    figures = [
        ("engine", f"{stats.engine}, {stats.threads} threads"),
        ("partitions / sub-graphs", f"{stats.partitions:,} / {stats.subgraphs:,}"),
        ("supersteps", stats.supersteps),
        ("messages sent", stats.messages),
        ("after combining", stats.total("combined")),
        ("to other partitions", stats.total("remote")),
        ("bytes to other partitions", stats.total("remote_bytes")),
        ("edge cut (share of arcs)", stats.edge_cut),
        ("imbalance (largest / mean compute)", stats.imbalance),
        ("idle share of threads", stats.idle_share),
        *((f"{name} seconds", seconds) for name, seconds in stats.phases.items()),
    ]
    print_table("counters", ("counter", "value"), [(name, show(value)) for name, value in figures])
    busy = stats.busy_per_partition()
    sums = {
        name: stats.steps.group_by("partition").aggregate([(name, "sum")]).sort_by("partition")
        for name in ("messages", "remote")
    }
    rows = [
        (p, float(busy[p]), *(int(sums[n][f"{n}_sum"][p].as_py()) for n in ("messages", "remote")))
        for p in range(min(stats.partitions, sums["messages"].num_rows))
    ]
    print_table("per partition", ("partition", "compute seconds", "messages", "remote"), rows[:64])

"""Command-line options that several commands share."""

from __future__ import annotations

import inspect
from typing import Any

import typer

from goffish.cli.flags import parameter
from goffish.errors import InputError

_READING = ("format", "directed", "separator", "header", "columns", "self_loops", "parallel")


def input_argument() -> inspect.Parameter:
    """INPUT, a raw file or a store."""
    return parameter("input", str, typer.Argument(..., metavar="INPUT", help="A graph file or a store."))


def json_option() -> inspect.Parameter:
    """``--json``."""
    return parameter("json", bool, typer.Option(False, "--json", help="Print everything as JSON."))


def reading_parameters() -> list[inspect.Parameter]:
    """How to read a raw file; names and meanings of `goffish.read`."""
    group = "Reading a raw file"
    options: dict[str, tuple[Any, Any]] = {
        "format": (
            str | None,
            typer.Option(
                None, help="edges, metis, mtx, dimacs, parquet, arrow, graphml or gml; default: found out.",
                rich_help_panel=group,
            ),
        ),
        "directed": (
            bool | None,
            typer.Option(None, "--directed/--undirected", help="Override what the file says.", rich_help_panel=group),
        ),
        "separator": (
            str | None,
            typer.Option(None, help="Column separator of an edge list, one character.", rich_help_panel=group),
        ),
        "header": (
            bool | None,
            typer.Option(None, "--header/--no-header", help="Whether line 1 names the columns.", rich_help_panel=group),
        ),
        "columns": (
            str | None,
            typer.Option(
                None, help="Columns by name or position, as in source=0,target=1; also weight and timestamp.",
                rich_help_panel=group,
            ),
        ),
        "self_loops": (str | None, typer.Option(None, help="drop (default) or keep.", rich_help_panel=group)),
        "parallel": (
            str | None,
            typer.Option(
                None, help="Several rows for one edge: min (default), sum, first or keep.", rich_help_panel=group
            ),
        ),
    }  # fmt: skip
    return [parameter(name, *options[name]) for name in _READING]


def reading_options(given: dict[str, Any]) -> dict[str, Any]:
    """Take the reading options out of a command's arguments, in the form `goffish.read` wants."""
    reading = {name: given.pop(name) for name in _READING}
    if reading["columns"] is not None:
        reading["columns"] = parse_columns(reading["columns"])
    return reading


def parse_columns(text: str) -> dict[str, str | int]:
    """``source=0,target=to`` as a mapping."""
    columns: dict[str, str | int] = {}
    for item in text.split(","):
        role, sign, column = (part.strip() for part in item.partition("="))
        if not sign or not role or not column:
            raise InputError(f"--columns {text!r}: write ROLE=COLUMN pairs, as in source=0,target=1")
        columns[role] = int(column) if column.isdigit() else column
    return columns

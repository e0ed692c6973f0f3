"""Command-line options that several commands share."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from goffish.errors import InputError


def parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """A keyword parameter that typer turns into an option or argument."""
    default = inspect.Parameter.empty if option.default is ... else option.default
    option.default = ...
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default)


def command_type(annotation: Any) -> Any:
    """The type of an option on the command line; ``None`` for those that need Python or JSON."""
    if annotation == int | str or typing.get_origin(annotation) is typing.Literal:
        return str
    if typing.get_origin(annotation) is Annotated:
        return command_type(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        inner = [a for a in typing.get_args(annotation) if a is not type(None)]
        kinds = {command_type(a) for a in inner} - {None}
        return kinds.pop() | None if len(kinds) == 1 else None
    return annotation if annotation in (int, float, bool, str) else None


def field_parameter(
    name: str, field: FieldInfo, *, optional: bool = False, group: str | None = None
) -> inspect.Parameter | None:
    """The parameter of one model field; `optional` drops its default, so that "not given" can be told."""
    kind = command_type(field.annotation)
    if kind is None and any(_is_text(getattr(item, "json_schema", None)) for item in field.metadata):
        kind = str
    if kind is None:
        return None
    flag = "--" + name.replace("_", "-")
    choices = _choices(field.annotation)
    text = (field.description or "") + (f" One of {', '.join(choices)}." if choices else "")
    names = [f"{flag}/--no-{flag[2:]}"] if kind in (bool, bool | None) else [flag]
    if optional:
        if not field.is_required():
            text += f" Default: {('no', 'yes')[field.default] if kind is bool else field.default}."
        return parameter(name, kind | None, typer.Option(None, *names, help=text, rich_help_panel=group))
    return parameter(name, kind, typer.Option(... if field.is_required() else field.default, *names, help=text))


def _is_text(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"


def _choices(annotation: Any) -> list[str]:
    if typing.get_origin(annotation) is typing.Literal:
        return [str(value) for value in typing.get_args(annotation)]
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return [c for a in typing.get_args(annotation) for c in _choices(a)]
    return []


def apply_signature(command: Any, parameters: list[inspect.Parameter]) -> None:
    """Give a ``**kwargs`` function the signature that typer reads."""
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {p.name: p.annotation for p in parameters}


Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
_READING = ("format", "directed", "separator", "header", "columns", "self_loops", "parallel")


def input_argument() -> inspect.Parameter:
    """INPUT, a raw file or a store."""
    return parameter("input", str, typer.Argument(..., metavar="INPUT", help="A graph file or a store."))


def json_option() -> inspect.Parameter:
    """``--json``."""
    return inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, annotation=Json, default=False)


def reads_graph(command: Callable[..., None], flags: Sequence[inspect.Parameter] = ()) -> Callable[..., None]:
    """Give a command INPUT and the options of reading it, which it gets as its first argument.

    Parameters
    ----------
    command : callable
        With annotations for its own options; ``input`` and ``json`` are known.
    flags : sequence of Parameter
        Further options; those that are given come as a dict, the second argument.
    """

    def called(**given: Any) -> None:
        options = {one.name: given.pop(one.name) for one in flags}
        more = [{name: value for name, value in options.items() if value is not None}] if flags else []
        command(reading_options(given), *more, **given)

    own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.kind == one.KEYWORD_ONLY]
    last = [json_option()] if any(one.name == "json" for one in own) else []
    own = [one for one in own if one.name not in ("input", "json")]
    apply_signature(called, [input_argument(), *own, *flags, *reading_parameters(), *last])
    return called


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

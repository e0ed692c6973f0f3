"""Command-line options shared by several commands."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from goffish.errors import InputError


def parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """Return a keyword parameter that typer converts to an option or argument."""
    default = inspect.Parameter.empty if option.default is ... else option.default
    option.default = ...
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default)


def command_type(annotation: Any) -> Any:
    """Return the command-line type of an option, or ``None`` if it requires Python or JSON."""
    if annotation == int | str or typing.get_origin(annotation) is typing.Literal:
        return str
    if typing.get_origin(annotation) is Annotated:
        return command_type(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        inner = [a for a in typing.get_args(annotation) if a is not type(None)]
        kinds = {command_type(a) for a in inner} - {None}
        return kinds.pop() | None if len(kinds) == 1 else None
    return annotation if annotation in (int, float, bool, str) else None


#: Options whose flag differs from the name of the model field.
_FLAGS = {"least_gain": "--min-gain"}


def field_parameter(
    name: str, field: FieldInfo, *, optional: bool = False, group: str | None = None
) -> inspect.Parameter | None:
    """Return the parameter of a model field; with `optional`, its default is ``None``, which means "not given"."""
    kind = command_type(field.annotation)
    if kind is None and any(_is_text(getattr(item, "json_schema", None)) for item in field.metadata):
        kind = str
    if kind is None:
        return None
    flag = _FLAGS.get(name) or "--" + name.replace("_", "-")
    choices = _choices(field.annotation)
    # A default that is not a value is stated in the description; in brackets, Rich would take it for markup.
    text, _, stated = (field.description or "").removesuffix("].").partition(" [default: ")
    text += ("." if stated else "") + (f" One of {', '.join(choices)}." if choices else "")
    names = [f"{flag}/--no-{flag[2:]}"] if kind in (bool, bool | None) else [flag]
    if optional:
        shown: bool | str = True
        if not field.is_required():
            shown = stated or (("no", "yes")[field.default] if kind is bool else str(field.default))
        made = typer.Option(None, *names, help=text, show_default=shown, rich_help_panel=group)
        return parameter(name, kind | None, made)
    default = ... if field.is_required() else field.default
    return parameter(name, kind, typer.Option(default, *names, help=text, show_default=stated or True))


def _is_text(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"


def _choices(annotation: Any) -> list[str]:
    if typing.get_origin(annotation) is typing.Literal:
        return [str(value) for value in typing.get_args(annotation)]
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return [c for a in typing.get_args(annotation) for c in _choices(a)]
    return []


def apply_signature(command: Any, parameters: list[inspect.Parameter]) -> None:
    """Set the signature of a ``**kwargs`` function for typer."""
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {p.name: p.annotation for p in parameters}


#: Help texts of options that several commands define with different types.
TABLE_FILE = "Table file or URI: .parquet, .csv, .json or .arrow."
PICTURE_FILE = "Image file: .png, .svg or .pdf."
STORE_TARGET = "Folder or URI of the store to write."
SERIES_STORE = "Folder or URI of a store with a time series."
HTML_FILE = "Write an interactive page: FILE.html."
HOURS_HELP = "Simulated duration; numbers are hours. The acceptable costs of the goal are scaled to it."
DEADLINE_HELP = "Deadline from now; numbers are hours."
CHECKPOINT_EVERY = "Supersteps between checkpoints."
MAX_SUPERSTEPS = "Maximum number of supersteps; exceeding it is an error."
CHECKPOINT_DIR = "Folder or URI for checkpoints."
RESUME = "Resume from the newest checkpoint."
THREADS = "Number of threads."
ALL_CORES = "all cores"
DIRECTED = "Whether edges are directed."
SEPARATOR = "Column separator, one character."
COLUMNS = "Columns by name or position, such as source=0,target=1; also weight and timestamp."
SELF_LOOPS = "Edges from a vertex to itself: drop or keep."
PARTS = "Number of partitions."
METHOD = "Partitioning method: metis, hash, range, ldg or fennel."
UNITS = "Unit of computation: components (subgraphs), single (partitions) or vertex."

TOKEN = "Client token; @FILE reads it from a file."

Json = Annotated[bool, typer.Option("--json", help="Print the output as JSON.")]
Store = Annotated[str, typer.Argument(metavar="STORE", help="Folder or URI of a store.")]
Plot = Annotated[str | None, typer.Option(metavar="FILE", help="Plot to write: .png, .svg or .pdf.")]
_READING = ("format", "directed", "separator", "header", "columns", "self_loops", "parallel")


def input_argument() -> inspect.Parameter:
    """Return the argument INPUT: a raw file or a store."""
    return parameter("input", str, typer.Argument(..., metavar="INPUT", help="Graph file or store."))


def json_option() -> inspect.Parameter:
    """Return the option ``--json``."""
    return inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, annotation=Json, default=False)


def reads_graph(command: Callable[..., None], flags: Sequence[inspect.Parameter] = ()) -> Callable[..., None]:
    """Add INPUT and the reading options to a command, which receives the options as its first argument.

    Parameters
    ----------
    command : callable
        Function with annotated options; ``input`` and ``json`` need no annotation.
    flags : sequence of Parameter
        Further options; those given on the command line are passed as a dict, the second argument.
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
    """Return the reading options of raw files, named as in `goffish.read`."""
    group = "Reading a raw file"
    options: dict[str, tuple[Any, Any]] = {
        "format": (
            str | None,
            typer.Option(
                None, help="File format: edges, metis, mtx, dimacs, parquet, arrow, csr, graphml or gml.",
                show_default="detected",
                rich_help_panel=group,
            ),
        ),
        "directed": (
            bool | None,
            typer.Option(
                None, "--directed/--undirected", help=DIRECTED, show_default="as in the file", rich_help_panel=group
            ),
        ),
        "separator": (
            str | None,
            typer.Option(None, help=SEPARATOR, show_default="detected", rich_help_panel=group),
        ),
        "header": (
            bool | None,
            typer.Option(
                None, "--header/--no-header", help="Whether line 1 names the columns.", show_default="detected",
                rich_help_panel=group,
            ),
        ),
        "columns": (
            str | None,
            typer.Option(
                None, help=COLUMNS, show_default="detected",
                rich_help_panel=group,
            ),
        ),
        "self_loops": (
            str | None, typer.Option(None, help=SELF_LOOPS, show_default="drop", rich_help_panel=group)
        ),
        "parallel": (
            str | None,
            typer.Option(
                None, help="Merging of parallel edges: min, sum, first or keep.", show_default="min",
                rich_help_panel=group,
            ),
        ),
    }  # fmt: skip
    return [parameter(name, *options[name]) for name in _READING]


def reading_options(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the reading options from a command's arguments and return them as keywords of `goffish.read`."""
    reading = {name: given.pop(name) for name in _READING}
    if reading["columns"] is not None:
        reading["columns"] = parse_columns(reading["columns"])
    return reading


def parse_columns(text: str) -> dict[str, str | int]:
    """Parse ``source=0,target=to`` into a mapping."""
    columns: dict[str, str | int] = {}
    for item in text.split(","):
        role, sign, column = (part.strip() for part in item.partition("="))
        if not sign or not role or not column:
            raise InputError(f"--columns {text!r}: give ROLE=COLUMN pairs, such as source=0,target=1")
        columns[role] = int(column) if column.isdigit() else column
    return columns


def read_token(token: str | None) -> str | None:
    """Return a token, which ``@FILE`` reads from a file.

    Parameters
    ----------
    token : str, optional

    Returns
    -------
    str or None

    Raises
    ------
    InputError
        The file cannot be read.
    """
    if token is None or not token.startswith("@"):
        return token
    try:
        return Path(token[1:]).read_text("utf-8").strip()
    except OSError as error:
        raise InputError(f"--token {token}: cannot be read ({error.strerror})") from None

"""Typer parameters made from pydantic fields, so that help, names and defaults come from one definition."""

from __future__ import annotations

import inspect
import types
import typing
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo


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

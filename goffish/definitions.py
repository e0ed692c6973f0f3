"""Definitions that users write in YAML or JSON: read, checked against a typed model, refused in one line."""

from __future__ import annotations

import typing
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from goffish.errors import GoffishWarning, InputError
from goffish.extras import needed_for

Model = TypeVar("Model", bound=BaseModel)
_LONGEST = 60


@dataclass(frozen=True)
class NamesFile:
    """Mark in the type of a text: it names a file, which a service resolves before anything reads it."""


@dataclass(frozen=True)
class KnownName:
    """Mark in the type of a text: it is compared with known names, or shown; no file is opened by it."""


class Marked(BaseModel):
    """Base of what a service takes from clients: each text in its fields is a `Literal`, or has one of the two marks.

    Raises
    ------
    TypeError
        When a class is defined with another text, which might be opened as a file of the server.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **given: Any) -> None:
        """Check the fields of a subclass."""
        super().__pydantic_init_subclass__(**given)
        for name, field in cls.model_fields.items():
            if None in _marks(field.annotation, field.metadata):
                accepted = "make it a Literal, or mark its type with NamesFile or KnownName"
                raise TypeError(f"{cls.__name__}.{name} takes any text: {accepted}")

    @classmethod
    def files(cls) -> list[str]:
        """Names of the fields whose texts name files."""
        return [
            name for name, field in cls.model_fields.items() if NamesFile in _marks(field.annotation, field.metadata)
        ]


def _marks(annotation: Any, metadata: Any = ()) -> Iterator[type[NamesFile] | type[KnownName] | None]:
    """The marks of the texts in a type; ``None`` for one without a mark."""
    marks = [type(one) for one in (*metadata, *getattr(annotation, "__metadata__", ())) if isinstance(one, _MARKS)]
    if marks:
        yield from marks
    elif typing.get_origin(annotation) is not typing.Literal:
        parts = typing.get_args(annotation)
        for part in parts[:1] if hasattr(annotation, "__metadata__") else parts:
            if part is not Ellipsis:
                yield from _marks(part)
        if not parts and not (isinstance(annotation, type) and issubclass(annotation, _NO_TEXTS)):
            yield None


_MARKS = (NamesFile, KnownName)
#: Types of which no value is a text; models have fields of their own.
_NO_TEXTS = (int, float, bool, type(None), Enum, BaseModel)


class Definition(BaseModel):
    """Base of everything that a definition holds: unknown fields are errors, and nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def read_definition(model: type[Model], given: str | Path | Mapping[str, Any] | Model, name: str, needs: str) -> Model:
    """Read and check a definition.

    Parameters
    ----------
    model : type
        What it has to be.
    given
        A YAML (or JSON) file, what such a file would hold, or the definition itself.
    name : str
        What a mapping is called in messages.
    needs : str
        What an empty file is told to hold at least.

    Raises
    ------
    InputError
        In one line: the file, the field, what is wrong and what is accepted. Also where PyYAML is missing.
    """
    if isinstance(given, model):
        return given
    if isinstance(given, Mapping):
        body: dict[str, Any] = dict(given)
    elif isinstance(given, str | Path):
        name, body = str(given), _read_yaml(Path(given), needs)
        _warn_of_old_keys(model, body, name)
    else:
        raise InputError(f"{name} is of type {type(given).__name__}: give a file, a mapping or a {model.__name__}")
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise InputError(f"{name}: {_told(error, body, model)}") from None


def shipped_definitions(room: Traversable) -> list[str]:
    """Names of the definitions that come along in a folder of the package."""
    return sorted(entry.name.removesuffix(".yaml") for entry in room.iterdir() if entry.name.endswith(".yaml"))


def read_shipped(
    model: type[Model], given: str | Path | Mapping[str, Any] | Model, room: Traversable, name: str, needs: str
) -> Model:
    """The same as `read_definition`, or one of those in a folder of the package by its name."""
    known = shipped_definitions(room)
    if isinstance(given, str) and given in known:
        with resources.as_file(room / f"{given}.yaml") as path:
            return read_definition(model, path, name, needs)
    if isinstance(given, str | Path) and not Path(given).exists():
        raise InputError(f"no {name} {str(given)!r}: give a file, or one of {', '.join(known)}")
    return read_definition(model, given, name, needs)


def _read_yaml(path: Path, needs: str) -> dict[str, Any]:
    with needed_for("YAML files"):
        import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
        """Refuses a field that is given twice, which YAML itself lets pass."""

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        names = [loader.construct_object(key, deep=True) for key, _ in node.value]
        twice = [name for at, name in enumerate(names) if name in names[:at]]
        if twice:
            raise yaml.MarkedYAMLError(problem=f"{twice[0]} is given twice", problem_mark=node.start_mark)
        found: dict[Any, Any] = yaml.SafeLoader.construct_mapping(loader, node, deep=True)
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        body = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not a text file in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        problem = getattr(error, "problem", None) or "is not YAML"
        raise InputError(f"{path}{line}: {problem}") from None
    if not isinstance(body, dict):
        raise InputError(f"{path}: holds no fields; it needs at least {needs}")
    return body


def _warn_of_old_keys(model: type[BaseModel], body: Mapping[str, Any], name: str) -> None:
    """Warn about keys of a file that are the Python names of fields with an alias: earlier versions wrote those."""
    for old, field in model.model_fields.items():
        if field.alias is not None and old in body:
            warnings.warn(f"{name}: {old} is deprecated; use {field.alias}", GoffishWarning, stacklevel=3)


def _told(error: ValidationError, body: Any, model: type[BaseModel]) -> str:
    """The first problem, with the field as a user writes it."""
    item = error.errors(include_url=False, include_context=False)[0]
    field, value = "", body
    for step in item["loc"]:
        if not isinstance(value, dict | list):
            break  # the names of a type's alternatives are pydantic's, not the user's
        field += f"[{step}]" if isinstance(step, int) else f".{step}"
        there = step in value if isinstance(value, dict) else isinstance(step, int) and step < len(value)
        value = value[step] if there else None  # type: ignore[index]
    field = field.lstrip(".")
    if item["type"] == "extra_forbidden":
        accepted = [known.alias or name for name, known in _home(model, item["loc"][:-1]).model_fields.items()]
        return f"{field}: unknown field; there are {', '.join(accepted)}"
    if item["type"] == "missing":
        return f"{field}: is missing"
    text = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{field} = {_short(item['input'])}: {text}" if field else text


def _home(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """The model of the field at a location; where it is one of several, the first that has a name of the location."""
    homes: list[type[BaseModel]] = [model]
    for step in location:
        fields = [field for home in homes for name, field in home.model_fields.items() if step in (name, field.alias)]
        found = [one for field in fields for one in _models(field.annotation)]
        homes = found or homes
    return homes[0]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation names, also inside of lists, mappings and unions."""
    if not typing.get_args(annotation):
        return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []
    return [model for part in typing.get_args(annotation) for model in _models(part)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

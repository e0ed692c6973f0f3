"""Definition files in YAML or JSON, validated against typed models with one-line errors."""

from __future__ import annotations

import re
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
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def duration_s(text: str, unit: str | None = None) -> float | None:
    """Return the seconds of a duration such as ``90s``, ``30m``, ``15min``, ``2h``, ``1.5d`` or ``1w``.

    Parameters
    ----------
    text : str
    unit : {"us", "ms", "s", "m", "min", "h", "d", "w"}, optional
        Unit of plain numbers, which are not accepted by default.

    Returns
    -------
    float or None
        ``None`` for any other text.
    """
    found = re.fullmatch(rf"\s*(\d+(?:\.\d*)?|\.\d+)\s*({'|'.join(_SECONDS)})?\s*", text)
    unit = (found[2] or unit) if found else None
    return None if found is None or unit is None else float(found[1]) * _SECONDS[unit]


@dataclass(frozen=True)
class NamesFile:
    """Type annotation of a text that names a file, which services resolve before use."""


@dataclass(frozen=True)
class KnownName:
    """Type annotation of a text that is compared with known names or displayed, and never opened as a file."""


class Marked(BaseModel):
    """Base of models that services accept from clients: every text is a `Literal` or has one of the two annotations.

    Raises
    ------
    TypeError
        A subclass has any other text field, which might be opened as a file of the server.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **given: Any) -> None:
        """Check the fields of a subclass."""
        super().__pydantic_init_subclass__(**given)
        for name, field in cls.model_fields.items():
            if None in _marks(field.annotation, field.metadata):
                accepted = "make it a Literal, or mark its type with NamesFile or KnownName"
                raise TypeError(f"{cls.__name__}.{name} accepts any text: {accepted}")

    @classmethod
    def files(cls) -> list[str]:
        """Return the names of the fields that name files."""
        return [
            name for name, field in cls.model_fields.items() if NamesFile in _marks(field.annotation, field.metadata)
        ]


def _marks(annotation: Any, metadata: Any = ()) -> Iterator[type[NamesFile] | type[KnownName] | None]:
    """Iterate over the annotations of the texts in a type; ``None`` for a text without one."""
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
#: Types without text values; the fields of models are checked separately.
_NO_TEXTS = (int, float, bool, type(None), Enum, BaseModel)


class Definition(BaseModel):
    """Base of definition models: immutable, and unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


def read_definition(model: type[Model], given: str | Path | Mapping[str, Any] | Model, name: str, needs: str) -> Model:
    """Read and validate a definition.

    Parameters
    ----------
    model : type
        Model of the definition.
    given
        A YAML or JSON file, the content of such a file, or the definition itself.
    name : str
        Name of a mapping in error messages.
    needs : str
        Required fields, named in the error for an empty file.

    Raises
    ------
    InputError
        The definition is invalid, or PyYAML is missing; names the file, the field and the accepted values.
    """
    if isinstance(given, model):
        return given
    if isinstance(given, Mapping):
        body: dict[str, Any] = dict(given)
    elif isinstance(given, str | Path):
        name, body = str(given), _read_yaml(Path(given), needs)
        _warn_of_old_keys(model, body, name)
    else:
        raise InputError(f"{name}: type {type(given).__name__}; give a file, a mapping or a {model.__name__}")
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise InputError(f"{name}: {_describe(error, body, model)}") from None


def shipped_definitions(folder: Traversable) -> list[str]:
    """Return the names of the bundled definitions in a folder of the package."""
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def read_shipped(
    model: type[Model], given: str | Path | Mapping[str, Any] | Model, folder: Traversable, name: str, needs: str
) -> Model:
    """Read a definition as `read_definition`, or a bundled one by name."""
    known = shipped_definitions(folder)
    if isinstance(given, str) and given in known:
        with resources.as_file(folder / f"{given}.yaml") as path:
            return read_definition(model, path, name, needs)
    if isinstance(given, str | Path) and not Path(given).exists():
        raise InputError(f"{name} {str(given)!r} not found; give a file, or one of {', '.join(known)}")
    return read_definition(model, given, name, needs)


def _read_yaml(path: Path, needs: str) -> dict[str, Any]:
    with needed_for("YAML files"):
        import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
        """Loader that rejects duplicate fields."""

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        names = [loader.construct_object(key, deep=True) for key, _ in node.value]
        twice = [name for at, name in enumerate(names) if name in names[:at]]
        if twice:
            raise yaml.MarkedYAMLError(problem=f"duplicate field {twice[0]}", problem_mark=node.start_mark)
        found: dict[Any, Any] = yaml.SafeLoader.construct_mapping(loader, node, deep=True)
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        body = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not a UTF-8 text file") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        problem = getattr(error, "problem", None) or "is not YAML"
        raise InputError(f"{path}{line}: {problem}") from None
    if not isinstance(body, dict):
        raise InputError(f"{path}: has no fields; requires at least {needs}")
    return body


def _warn_of_old_keys(model: type[BaseModel], body: Mapping[str, Any], name: str) -> None:
    """Warn about keys of a file that are the Python names of fields with an alias: earlier versions wrote those."""
    for old, field in model.model_fields.items():
        if field.alias is not None and old in body:
            warnings.warn(f"{name}: {old} is deprecated; use {field.alias}", GoffishWarning, stacklevel=3)


def _describe(error: ValidationError, body: Any, model: type[BaseModel]) -> str:
    """Return the first problem, with the field as written in the file."""
    item = error.errors(include_url=False, include_context=False)[0]
    field, value = "", body
    for at, step in enumerate(item["loc"], 1):
        if not isinstance(value, dict | list):
            break  # names of union members are internal
        if isinstance(value, dict) and step not in value and at < len(item["loc"]):
            continue  # the tag of a union member
        field += f"[{step}]" if isinstance(step, int) else f".{step}"
        there = step in value if isinstance(value, dict) else isinstance(step, int) and step < len(value)
        value = value[step] if there else None  # type: ignore[index]
    field = field.lstrip(".")
    if item["type"] == "extra_forbidden":
        accepted = [known.alias or name for name, known in _home(model, item["loc"][:-1]).model_fields.items()]
        return f"{field}: unknown field; choose from {', '.join(accepted)}"
    if item["type"] == "missing":
        return f"{field}: is missing"
    text = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{field} = {_short(item['input'])}: {text}" if field else text


def _home(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the model at a location; of several, the first with a matching field."""
    homes: list[type[BaseModel]] = [model]
    for step in location:
        fields = [field for home in homes for name, field in home.model_fields.items() if step in (name, field.alias)]
        found = [one for field in fields for one in _models(field.annotation)]
        homes = found or [home for home in homes if _is_tagged(home, step)] or homes
    return homes[0]


def _is_tagged(model: type[BaseModel], tag: int | str) -> bool:
    """Return whether a model is the member of a union with a tag."""
    kinds = [field.annotation for field in model.model_fields.values()]
    return any(typing.get_origin(kind) is typing.Literal and tag in typing.get_args(kind) for kind in kinds)


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models in an annotation, including those in lists, mappings and unions."""
    if not typing.get_args(annotation):
        return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []
    return [model for part in typing.get_args(annotation) for model in _models(part)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

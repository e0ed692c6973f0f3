"""``goffish run FILE.py:PROGRAM``: a program of the user as a command, with the options of its constructor."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from typing import TYPE_CHECKING, Any

from pydantic import create_model

from goffish.algorithms.algorithm import Algorithm, Label, Name
from goffish.errors import InputError
from goffish.modules import load_module
from goffish.partial import local_path

if TYPE_CHECKING:
    from goffish.gofs import PartitionedGraph

#: Types of options, as fields of a model have them.
_TYPES: dict[Any, Any] = {int: int, float: float, bool: bool, str: Name, int | str: Label}


class _Program(Algorithm):
    kind: typing.ClassVar[Any] = None

    def program(self, graph: PartitionedGraph) -> Any:
        if (pickler := sys.modules.get("pyspark.cloudpickle")) is not None:  # executors do not have the file
            pickler.register_pickle_by_value(sys.modules[self.kind.__module__])
        try:
            return self.kind(**{name: getattr(self, name) for name in type(self).model_fields})
        except Exception as error:  # of the user's code
            raise InputError(f"{self.name}: {type(error).__name__}: {error}") from None

    def needs_engine(self) -> bool:
        return True


def is_program(name: str) -> bool:
    """Return whether the name of an algorithm is that of a program in a file."""
    return ".py:" in name or name.endswith(".py")


def load_program(given: str) -> type[Algorithm]:
    """Return a program of a Python file as an algorithm.

    Parameters
    ----------
    given : str
        Path of the file, with ``:Class`` if it has several programs.

    Raises
    ------
    InputError
        The file cannot be run, or has no such program, or the constructor takes what no option can be.
    """
    from goffish.gopher import SubgraphProgram

    path, _, name = given.rpartition(":") if ".py:" in given else (given, "", "")
    file = local_path(path)
    if not file.is_file():
        raise InputError(f"{path}: no such file")
    module = load_module(file)
    programs = {
        key: value for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, SubgraphProgram) and value.__module__ == file.stem
    }  # fmt: skip
    if name and name not in programs:
        raise InputError(f"{path}: no program {name!r}; it has {', '.join(programs) or 'none'}")
    if not name and len(programs) != 1:
        found = f"it has {', '.join(programs)}; name one, as in {path}:{next(iter(programs))}" if programs else ""
        raise InputError(f"{path}: must have one subclass of goffish.SubgraphProgram; {found or 'it has none'}")
    kind = programs[name or next(iter(programs))]
    base = types.new_class(kind.__name__, (_Program,), {}, lambda space: space.update(
        name=given, title=(inspect.getdoc(kind) or "").partition("\n")[0] or f"Program of {path}.", kind=kind,
        __module__=__name__,
    ))  # fmt: skip
    return create_model(kind.__name__, __base__=base, **_options(kind, path))


def _options(kind: Any, path: str) -> dict[str, Any]:
    """Return the fields of a model for the parameters of a constructor."""
    if kind.__init__ is object.__init__:
        return {}
    try:
        hints = typing.get_type_hints(kind.__init__)
    except Exception as error:  # of names in annotations of the user
        raise InputError(f"{path}: the annotations of {kind.__name__}.__init__: {error}") from None
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(kind).parameters.values()):
        hint = hints.get(parameter.name)
        optional = typing.get_origin(hint) in (types.UnionType, typing.Union) and type(None) in typing.get_args(hint)
        plain = typing.Union[*(one for one in typing.get_args(hint) if one is not type(None))] if optional else hint
        made = plain if typing.get_origin(plain) is typing.Literal else _TYPES.get(plain)
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        if made is None and default is ...:
            accepted = "int, float, bool, str, int | str (a vertex) or Literal"
            raise InputError(f"{path}: {kind.__name__}(…, {parameter}): annotate it with {accepted}")
        if made is not None:
            fields[parameter.name] = (made | None if optional else made, default)
    return fields

"""Guards of public functions: what has the wrong type is refused with one sentence that says what is accepted."""

from __future__ import annotations

import dataclasses
import operator
import os
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from goffish.errors import InputError
from goffish.partial import is_uri

T = TypeVar("T")

#: Advice in errors of all functions that take a graph.
GRAPH_ADVICE = "expected a goffish Graph or PartitionedGraph; create one with gf.read(path) or gf.from_networkx(G)"


def expect(value: Any, kinds: type | tuple[type, ...], name: str, advice: str) -> None:
    """Refuse a `value` that is not of one of `kinds`; `advice` says what to give instead."""
    if not isinstance(value, kinds):
        raise InputError(f"{name} is {_described(value)}: {advice}")


def expect_library(value: Any, module: str, kind: str, advice: str) -> None:
    """Refuse what is not an object of the class `kind` of an optional library."""
    if not from_library(value, module, kind):
        raise InputError(f"this is {_described(value)}: {advice}")


def from_library(value: Any, module: str, kind: str) -> bool:
    """Whether `value` is of a class of an optional library, which is then loaded already."""
    library = getattr(sys.modules.get(module), kind, None)
    return library is not None and isinstance(value, library)


def check_memory(nbytes: int, what: str) -> None:
    """Refuse what takes more memory than the machine has, before the system ends the process.

    Raises
    ------
    InputError
        Names `what`, its size and that of the memory.
    """
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > most:
        raise InputError(f"{what} do not fit in memory: {nbytes / 1e9:,.1f} GB, of {most / 1e9:,.1f} GB")


def whole_number(value: Any, name: str, lowest: int = 1) -> int:
    """`value` as an int of at least `lowest`; truth values, fractions and texts are refused."""
    try:
        number = operator.index(value)
    except TypeError:
        number = lowest - 1
    if isinstance(value, bool | np.bool_) or number < lowest:
        raise InputError(f"{name}={value!r}: must be an integer of at least {lowest}")
    return number


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not one of `choices`."""
    if value not in choices:
        raise InputError(f"{name}={value!r}: choose one of {', '.join(choices)}")


def options_of(kind: type[T], given: Mapping[str, Any]) -> T:
    """The dataclass of options `kind` made from keyword arguments.

    Raises
    ------
    InputError
        There is no option of that name.
    """
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise InputError(f"unknown option {name!r}; accepted: {', '.join(known)}")
    return kind(**given)


def path_name(path: Any, name: str = "path") -> str:
    """The name of a file or folder, from a text or a path object."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InputError(f"{name} is {_described(path)}: expected a file name (str or pathlib.Path)")
    if not text or "\0" in text:
        raise InputError(f"{name}={text!r}: not a file name")
    is_uri(path)  # refuses a path object made from a URI
    return text


def _described(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"of type {kind}"

"""What a time series says of a graph: its attributes, its instances, and the moments they cover."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.encoding import decode_arrays, encode_arrays

Place = Literal["vertex", "edge"]
Unit = Literal["us", "1"]
PLACES: tuple[Place, Place] = ("vertex", "edge")
UNITS: tuple[Unit, Unit] = ("us", "1")
#: The attribute that says whether a vertex or edge is there in an instance.
EXISTS = "exists"

_INTEGERS = {f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)}
_SCALARS: dict[str, Any] = {
    "bool": pa.bool_(), **_INTEGERS, "float32": pa.float32(), "float64": pa.float64(), "string": pa.string(),
}  # fmt: skip
_LISTS = {f"list<{name}>": pa.list_(kind) for name, kind in _SCALARS.items() if name in ("string", *_INTEGERS)}
#: Arrow types of attributes by name.
TYPES: dict[str, Any] = _SCALARS | _LISTS
_LONGEST_NAME = 120
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def type_name(kind: Any) -> str:
    """The name in `TYPES` of an Arrow type or of one of the usual names; others raise `InputError`."""
    if isinstance(kind, str):
        name = {"float": "float32", "double": "float64", "int": "int64", "str": "string", "boolean": "bool"}.get(kind)
        name = name or kind
    elif not isinstance(kind, pa.DataType):
        name = str(kind)
    elif pa.types.is_dictionary(kind):
        return type_name(kind.value_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        name = f"list<{type_name(kind.value_type)}>"
    elif pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        name = "string"
    else:
        name = {"float": "float32", "double": "float64"}.get(str(kind), str(kind))
    if name not in TYPES:
        raise InputError(f"attribute type {kind!s}: choose one of {', '.join(TYPES)}")
    return name


@dataclass(frozen=True)
class Attribute:
    """A dynamic attribute: one value per vertex or edge and instance.

    Attributes
    ----------
    name : str
    type : str
        A name in `TYPES`; Arrow types are accepted and named.
    default : bool, int, float, str or (), optional
        What an element has in an instance that gives it no value; of lists only the empty one.
    default_column : str, optional
        Static attribute of the template, of the same vertices or edges, that holds the default of each element.
    """

    name: str
    type: str
    default: Any = None
    default_column: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or len(quote(self.name)) > _LONGEST_NAME:
            raise InputError(f"attribute name {self.name!r}: must be a string of at most {_LONGEST_NAME} characters")
        object.__setattr__(self, "type", type_name(self.type))
        if self.default is None:
            return
        if self.default_column is not None:
            raise InputError(f"attribute {self.name!r}: default and default_column are mutually exclusive")
        object.__setattr__(self, "default", self._checked_default())

    def _checked_default(self) -> Any:
        given = self.default.item() if isinstance(self.default, np.generic) else self.default
        if self.is_list:
            if isinstance(given, list | tuple) and not given:
                return ()
            raise InputError(
                f"attribute {self.name!r}: default={given!r}: a list attribute accepts only the default () or none"
            )
        try:
            if isinstance(given, bool) != (self.type == "bool"):
                raise TypeError(f"it is a {type(given).__name__}")
            return pa.scalar(given, self.arrow_type).as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            problem = f"default={given!r} is not of type {self.type} ({error})"
            raise InputError(f"attribute {self.name!r}: {problem}") from None

    @property
    def arrow_type(self) -> Any:
        return TYPES[self.type]

    @property
    def is_list(self) -> bool:
        return self.type in _LISTS

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """NumPy type of the values, or ``None`` for texts and lists, which stay Arrow arrays."""
        if self.is_list or self.type == "string":
            return None
        return np.dtype(self.type)

    @property
    def has_default(self) -> bool:
        return self.default is not None or self.default_column is not None

    @property
    def filler(self) -> Any:
        """What stands for a value that is not there: the default, or NaN, 0, False or null."""
        if self.default is not None:
            return self.default if self.dtype is not None or not self.is_list else []
        if self.dtype is None:
            return None
        return math.nan if self.dtype.kind == "f" else self.dtype.type(0)


@dataclass(frozen=True)
class SeriesSchema:
    """The dynamic attributes of a series; those of vertices are called ``vertex.NAME``, those of edges ``edge.NAME``.

    A boolean attribute ``exists`` says whether an element is there: programs ignore one that is not, and its other
    attributes may be missing.
    """

    vertex: tuple[Attribute, ...] = ()
    edge: tuple[Attribute, ...] = ()
    _known: Mapping[str, Attribute] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        known: dict[str, Attribute] = {}
        for place in PLACES:
            given = tuple(getattr(self, place))
            object.__setattr__(self, place, given)
            for attribute in given:
                name = f"{place}.{attribute.name}"
                if name in known:
                    raise InputError(f"two {place} attributes are named {attribute.name!r}; rename one")
                if attribute.name == EXISTS and attribute.type != "bool":
                    raise InputError(f"{name} has type {attribute.type}; it states existence and must be bool")
                known[name] = attribute
        object.__setattr__(self, "_known", known)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> Attribute:
        """The attribute ``vertex.NAME`` or ``edge.NAME``; an unknown name raises `InputError`."""
        try:
            return self._known[name]
        except (KeyError, TypeError):
            known = ", ".join(self._known) or "none"
            raise InputError(f"no attribute {name!r} in this series; available: {known}") from None


@dataclass(frozen=True, eq=False)
class SparseColumn:
    """Values of some elements only.

    Attributes
    ----------
    elements : int array, shape (rows,)
        Distinct numbers of vertices (as the graph was read) or of edges (in the order of `Graph.edge_columns`, or of
        the graph's edge attributes).
    values : array-like, shape (rows,)
    """

    elements: Any
    values: Any


@dataclass(frozen=True, eq=False)
class InstanceData:
    """One instance to be written.

    Attributes
    ----------
    start, end : int or moment
        It covers ``start <= t < end``: microseconds since 1970 (UTC), or any number of a series without a calendar.
        A date and time is accepted too, as `moment` does.
    values : mapping
        ``vertex.NAME`` or ``edge.NAME`` to a column (NumPy, Arrow, list …) with one value for every vertex in the order
        of reading, or every edge, or to a `SparseColumn`. A null is a missing value, a NaN is a value (but of pandas,
        where it stands for a null); attributes that are left out are missing.
    """

    start: Any
    end: Any
    values: Mapping[str, Any] = field(default_factory=dict)


def moment(value: Any, unit: Unit, name: str = "time") -> int:
    """A moment on the time axis of a series as an integer.

    Parameters
    ----------
    value : int, datetime, date, numpy.datetime64 or str
        Whole numbers are on the axis already; dates and ISO texts (UTC unless they say otherwise) need ``unit="us"``.
    unit : {"us", "1"}
        Microseconds since 1970 (UTC), or plain numbers.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return int(value)
    if unit == "us":
        try:
            if isinstance(value, str):
                value = datetime.fromisoformat(value)
            if isinstance(value, np.datetime64) and not np.isnat(value):
                return int(value.astype("datetime64[us]").astype(np.int64))
            if isinstance(value, date) and not isinstance(value, datetime):
                value = datetime(value.year, value.month, value.day, tzinfo=UTC)
            if isinstance(value, datetime):
                value = value if value.tzinfo else value.replace(tzinfo=UTC)
                since: timedelta = value - _EPOCH
                return since // timedelta(microseconds=1)
        except ValueError:
            pass
    accepted = "integer microseconds since 1970, a date, or a date and time" if unit == "us" else "an integer"
    raise InputError(f"{name}={value!r}: expected {accepted}")


def moment_text(value: int, unit: Unit) -> str:
    """A moment as people read it."""
    if unit == "us":
        try:
            return (_EPOCH + timedelta(microseconds=int(value))).isoformat().removesuffix("+00:00")
        except OverflowError:
            pass
    return str(int(value))


@dataclass(frozen=True, eq=False)
class Groups:
    """Which instances lie together in the slices, and of which generation of the template they are.

    Attributes
    ----------
    starts : int64, shape (groups,)
        First instance of each group.
    generations : int64, shape (groups,)
        How often the template had grown when the group was written.
    count : int
        Instances.
    """

    starts: NDArray[np.int64]
    generations: NDArray[np.int64]
    count: int

    @classmethod
    def regular(cls, count: int, pack: int) -> Groups:
        """Those of a series whose template did not grow."""
        starts = np.arange(0, count, pack)
        return cls(starts, np.zeros_like(starts), count)

    def __len__(self) -> int:
        return int(self.starts.size)

    def find(self, instance: int) -> tuple[int, int]:
        """Group of an instance, and its place in the group."""
        group = int(np.searchsorted(self.starts, instance, side="right")) - 1
        return group, instance - int(self.starts[group])

    def span(self, group: int) -> tuple[int, int]:
        """First instance of a group, and the number of its instances."""
        first = int(self.starts[group])
        last = self.count if group + 1 == len(self) else int(self.starts[group + 1])
        return first, last - first


def encode_facts(
    starts: Sequence[int] | NDArray[np.int64],
    ends: Sequence[int] | NDArray[np.int64],
    unit: Unit,
    pack: int,
    bins: int,
    schema: SeriesSchema,
    groups: Groups | None = None,
) -> pa.Buffer:
    """The bytes of the file `series`: when the instances begin and end, and what is known of all of them."""
    attributes = {place: [asdict(a) for a in getattr(schema, place)] for place in PLACES}
    facts = json.dumps({"unit": unit, "pack": pack, "bins": bins, "schema": attributes}, sort_keys=True)
    arrays: dict[str, Any] = {"starts": np.asarray(starts, np.int64), "ends": np.asarray(ends, np.int64)}
    if groups is not None and not np.array_equal(groups.starts, np.arange(0, groups.count, pack)):
        arrays["group_starts"] = groups.starts
    if groups is not None and groups.generations.any():
        arrays["group_generations"] = groups.generations
    return encode_arrays(arrays | {"facts": pa.array([facts])})


class Facts(NamedTuple):
    """What is known of all instances of a series; see `Series`."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    unit: Unit
    pack: int
    bins: int
    schema: SeriesSchema
    groups: Groups


def decode_facts(data: pa.Buffer) -> Facts:
    """The inverse of `encode_facts`."""
    arrays = {name: array if name == "facts" else array.to_numpy() for name, array in decode_arrays(data).items()}
    facts = json.loads(arrays["facts"][0].as_py())
    places = {place: tuple(Attribute(**a) for a in facts["schema"][place]) for place in PLACES}
    groups = Groups.regular(arrays["starts"].size, facts["pack"])
    starts = arrays.get("group_starts", groups.starts)
    groups = Groups(starts, arrays.get("group_generations", np.zeros_like(starts)), groups.count)
    known = (facts["unit"], facts["pack"], facts["bins"], SeriesSchema(**places))
    return Facts(arrays["starts"], arrays["ends"], *known, groups)

"""Patterns that other packages add to CGQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError, JobError
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.checks import Arguments
from goffish.streaming.graphs.pattern_kernels import EDGE_OFF, EDGE_ON
from goffish.streaming.graphs.patterns import Deltas, Found, Numbers, Pattern, longest
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.trees import alike
from goffish.streaming.graphs.updates import FLOAT, INTEGER


class Seen:
    """What a query sees of the changes between two comparisons of answers, in their order.

    Vertices and edges are numbers. A number is given to another element after all changes of the former one were seen:
    its edges and values are gone, and it satisfies no predicate.
    """

    def __init__(self, deltas: Deltas, sets: tuple[str, ...], *measured: tuple[str, ...]) -> None:
        self._deltas, self._sets, self._measured = deltas, sets, measured

    @property
    def edges(self) -> tuple[NDArray[np.int64], Numbers, Numbers, Numbers]:
        """Edges that have come, with the sign 1, or have gone, with -1: signs, edges, sources and targets."""
        rows = np.flatnonzero((self._deltas.kinds == EDGE_OFF) | (self._deltas.kinds == EDGE_ON))
        signs = np.where(self._deltas.kinds[rows] == EDGE_ON, 1, -1)
        return signs, self._deltas.elements[rows], self._deltas.sources[rows], self._deltas.targets[rows]

    def vertices(self, name: str) -> tuple[NDArray[np.int64], Numbers]:
        """Return vertices that satisfy the predicates of an argument from now on, with the sign 1, or no more, with -1.

        Parameters
        ----------
        name : str
            One of the ``sets`` of the arguments.

        Returns
        -------
        signs, vertices : int64 arrays
        """
        off = EDGE_ON + 1 + 2 * self._sets.index(name)
        rows = np.flatnonzero((self._deltas.kinds == off) | (self._deltas.kinds == off + 1))
        return np.where(self._deltas.kinds[rows] == off, -1, 1), self._deltas.elements[rows]

    def values_of_vertices(self, attribute: str) -> tuple[Numbers, NDArray[np.float64]]:
        """Return new values of an attribute of vertices, also of those that the query does not see.

        Parameters
        ----------
        attribute : str
            One that the pattern has in `measured`.

        Returns
        -------
        vertices : int64 array
        values : float64 array
            NaN where there is none any more, or one that is no number.
        """
        return self._values(self._measured[0].index(attribute))

    def values_of_edges(self, attribute: str) -> tuple[Numbers, NDArray[np.float64]]:
        """Return new values of an attribute of edges, also of those that the query does not see.

        Parameters
        ----------
        attribute : str
            One that the pattern has in `measured_of_edges`.

        Returns
        -------
        edges : int64 array
        values : float64 array
            NaN where there is none any more, or one that is no number.
        """
        return self._values(len(self._measured[0]) + self._measured[1].index(attribute))

    def _values(self, at: int) -> tuple[Numbers, NDArray[np.float64]]:
        rows = np.flatnonzero(self._deltas.kinds == EDGE_ON + 1 + 2 * len(self._sets) + at)
        kinds, bits = self._deltas.sources[rows], self._deltas.targets[rows]
        found = np.full(len(rows), np.nan)
        found[kinds == INTEGER] = bits[kinds == INTEGER]
        found[kinds == FLOAT] = bits[kinds == FLOAT].view(np.float64)
        return self._deltas.elements[rows], found


class CustomPattern(ABC):
    """A pattern of another package, whose answers are vertices.

    A package adds a subclass to CGQL through the entry point group ``goffish.cgql.patterns``, by the name that queries
    have after ``DETECT``. One object follows one query.

    Parameters
    ----------
    given : mapping
        Values of the arguments that a query gives, except for ``sets``.

    Attributes
    ----------
    arguments : Arguments
        What a query gives in parentheses; `argument` returns the values.
    statuses : (str, str)
        Of an event that ends an answer, and of one that begins one.
    value : str, optional
        Name of the column of values of answers.
    dtype : numpy.dtype
        Of these values.
    columns_of_vertices, columns_of_edges : mapping
        Names and types of arrays with a number for each vertex or edge, 0 at the beginning. They are attributes of the
        object, grow with the graph, and are part of checkpoints: all state that must not be lost has to be in them.
    measured, measured_of_edges : tuple of str
        Attributes of vertices and edges whose values are followed; `__init__` can set them from arguments.

    Raises
    ------
    InputError
        The subclass has statuses or columns that are not accepted.

    Notes
    -----
    Answers are compared after each record, or less often with ``EMIT EVERY``; each comparison calls `follow` and
    `holds` once, with all changes since the last one. An exception in them ends the query, not the live graph; raise
    `goffish.errors.JobError` for a limit.

    Examples
    --------
    Vertices that receive more edges than they send:

    >>> import numpy as np
    >>> import goffish as gf
    >>> class Imbalance(gf.stream.CustomPattern):
    ...     arguments = gf.stream.Arguments(numbers=("least",), required=("least",))
    ...     statuses, value = ("EASED", "OVERLOADED"), "excess"
    ...     columns_of_vertices = {"excess": np.int64}
    ...
    ...     def follow(self, seen):
    ...         signs, _, sources, targets = seen.edges
    ...         np.add.at(self.excess, targets, signs)
    ...         np.subtract.at(self.excess, sources, signs)
    ...         return np.concatenate([sources, targets])
    ...
    ...     def holds(self, vertices):
    ...         return self.excess[vertices] >= self.argument("least")
    ...
    ...     def values(self, vertices):
    ...         return self.excess[vertices]

    With the entry point ``Imbalance = "package.module:Imbalance"``, queries are such as
    ``DETECT Imbalance(least: 3) WINDOW 10m AS busy``.
    """

    arguments: ClassVar[Arguments] = Arguments()
    statuses: ClassVar[tuple[str, str]]
    value: ClassVar[str | None] = None
    dtype: ClassVar[Any] = np.int64
    columns_of_vertices: ClassVar[Mapping[str, Any]] = {}
    columns_of_edges: ClassVar[Mapping[str, Any]] = {}
    measured: tuple[str, ...] = ()
    measured_of_edges: tuple[str, ...] = ()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        statuses: Any = getattr(cls, "statuses", None)
        if (
            not isinstance(statuses, tuple) or len(set(statuses)) != 2
            or not all(isinstance(one, str) and one.isidentifier() for one in statuses)
        ):  # fmt: skip
            what = "must be two names, of an end and of a beginning"
            raise InputError(f"{cls.__name__}.statuses = {statuses!r:.60}: {what}")
        names = [*cls.columns_of_vertices, *cls.columns_of_edges]
        for name in names:
            if hasattr(CustomPattern, name) or not name.isidentifier() or names.count(name) > 1:
                raise InputError(f"{cls.__name__}: column {name!r:.60}: the name is in use, or not accepted")

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        for name, kind in {**self.columns_of_vertices, **self.columns_of_edges}.items():
            setattr(self, name, np.zeros(0, kind))

    @abstractmethod
    def follow(self, seen: Seen) -> NDArray[np.int64]:
        """Follow changes.

        Parameters
        ----------
        seen : Seen

        Returns
        -------
        int64 array
            Vertices that may be answers now, or no more; some of them more than once.
        """

    @abstractmethod
    def holds(self, vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether vertices are answers.

        Parameters
        ----------
        vertices : int64 array, shape (n,)

        Returns
        -------
        bool array, shape (n,)
        """

    def values(self, vertices: NDArray[np.int64]) -> NDArray[Any]:
        """Return the values of vertices, if answers have any.

        Parameters
        ----------
        vertices : int64 array, shape (n,)

        Returns
        -------
        array, shape (n,)
        """
        return np.zeros(len(vertices), self.dtype)

    def argument(self, name: str, default: Any = None) -> Any:
        """Return the value of an argument, as a query gives it.

        Parameters
        ----------
        name : str
        default : object
            For arguments that are not given.

        Returns
        -------
        int, bool, str or object
        """
        return self._given.get(name, default)


class Hosted(Pattern):
    """State of the answers of a query for a pattern of another package.

    Parameters
    ----------
    query : Query
    kind : type
        Of the pattern.
    """

    columns = ("vertex",)
    operator = "a pattern of another package"
    kept = ("_held", "_shown", "_touched")

    def __init__(self, query: syntax.Query, kind: type[CustomPattern]) -> None:
        super().__init__(query)
        self._hosted = hosted = kind(self._arguments)
        self.statuses, self.value, self.dtype = hosted.statuses, hosted.value, hosted.dtype  # type: ignore[misc]
        self.measured, self.measured_of_edges = tuple(hosted.measured), tuple(hosted.measured_of_edges)
        self.roles = hosted.arguments.sets
        self.first_value = EDGE_ON + 1 + 2 * len(self.roles)
        self._held, self._shown = np.zeros(0, np.bool_), np.zeros(0, self.dtype)
        self._touched = np.zeros(0, np.int64)

    @property
    def pending(self) -> bool:
        return len(self._touched) > 0

    @property
    def touched(self) -> tuple[Numbers, Numbers]:
        return self.slots(self._touched, self._touched)

    @property
    def _columns(self) -> dict[str, NDArray[Any]]:
        hosted = self._hosted
        return {name: getattr(hosted, name) for name in (*hosted.columns_of_vertices, *hosted.columns_of_edges)}

    def saved(self) -> dict[str, Any]:
        return super().saved() | {"columns": self._columns}

    def install(self, saved: Mapping[str, Any]) -> None:
        others, now = dict(saved), self._columns
        columns = others.pop("columns", {})
        if columns.keys() != now.keys() or not all(alike(columns[name], now[name]) for name in now):
            raise ValueError(f"it has the columns {', '.join(columns)}, and not {', '.join(now)}, or other types")
        super().install(others)
        for name, column in columns.items():
            setattr(self._hosted, name, column)

    def fit(self, vertices: int, edges: int, deltas: Deltas) -> None:
        hosted = self._hosted
        for names, size in ((hosted.columns_of_vertices, vertices), (hosted.columns_of_edges, edges)):
            for name in names:
                setattr(hosted, name, longest(getattr(hosted, name), size))
        self._held, self._shown = longest(self._held, vertices), longest(self._shown, vertices)

    def step(self, deltas: Deltas, *, ends: bool) -> Found:
        bounds = [0, *np.flatnonzero(deltas.begins).tolist(), len(deltas.kinds)]
        nothing = np.zeros(0, np.int64)
        parts = [Found(nothing, nothing.astype(np.int8), nothing, self._shown[:0])]
        for number, (first, last) in enumerate(pairwise(bounds)):
            if number:
                parts.append(self._compared(number - 1))
            if first < last:
                rows = Deltas._make(column[first:last] for column in deltas)
                with self._named():
                    seen = Seen(rows, self.roles, self.measured, self.measured_of_edges)
                    found = np.asarray(self._hosted.follow(seen), np.int64)
                    if len(found) and not 0 <= found.min() <= found.max() < len(self._held):
                        raise ValueError("follow has returned what is no vertex")
                self._touched = np.concatenate([self._touched, found])
        if ends:
            parts.append(self._compared(len(bounds) - 2))
        return Found._make(np.concatenate(columns) for columns in zip(*parts, strict=True))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Let the query end, and not the live graph, if the code of the pattern fails."""
        try:
            yield
        except JobError:
            raise
        except Exception as error:
            raise JobError(f"{type(self._hosted).__name__}: {type(error).__name__}: {error}") from error

    def _compared(self, observation: int) -> Found:
        """Compare the answers that may have changed."""
        vertices = np.unique(self._touched)
        self._touched = self._touched[:0]
        with self._named():
            now = np.asarray(self._hosted.holds(vertices), np.bool_)
            if now.shape != vertices.shape:
                raise ValueError(f"holds has returned the shape {now.shape}, and not {vertices.shape}")
            self._shown[vertices] = self._hosted.values(vertices)
        changed = vertices[now != self._held[vertices]]
        self._held[vertices] = now
        codes = self._held[changed].astype(np.int8)
        return Found(np.full(len(changed), observation), codes, changed, self._shown[changed])

    def answers(self) -> tuple[Numbers, NDArray[Any]]:
        found = np.flatnonzero(self._held)
        return found, self._shown[found]

    def shown(self, encoder: Encoder, keys: Numbers, values: NDArray[Any]) -> dict[str, pa.Array]:
        return super().shown(encoder, keys, np.asarray(values, self.dtype))

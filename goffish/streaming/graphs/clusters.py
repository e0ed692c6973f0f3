"""Clusters: components of a graph that satisfy conditions, with ids that they keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.streaming.graphs import cluster_kernels
from goffish.streaming.graphs.attributes import Bits, Kinds
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.syntax import CgqlError
from goffish.streaming.graphs.cluster_kernels import EXACT, INEXACT, NOTHING, OTHER, SCALE
from goffish.streaming.graphs.pattern_kernels import EDGE_ON
from goffish.streaming.graphs.patterns import MOST_MEMBERS, Deltas, Found, Numbers, Pattern, with_space
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.state import Adjacency, arrow_column, fitted, no_adjacency
from goffish.streaming.graphs.updates import FLOAT, INTEGER, NONE

_MEASURES = {
    "size": cluster_kernels.SIZE, "edges": cluster_kernels.EDGES, "density": cluster_kernels.DENSITY,
    "diameter": cluster_kernels.DIAMETER, "sum": cluster_kernels.SUM, "count": cluster_kernels.COUNT,
    "avg": cluster_kernels.AVERAGE, "min": cluster_kernels.LEAST, "max": cluster_kernels.MOST,
}  # fmt: skip
#: Numbers up to this one are added exactly: those of a million vertices together fit into 64 bits.
_LARGEST = (1 << 43) / SCALE
#: Attributes that are added up for one query.
_MOST_MEASURED = 16


class Forest(NamedTuple):
    """Components of a graph, and their clusters; see `cluster_kernels`."""

    # Edges.
    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    is_tree: NDArray[np.bool_]
    outgoing: Adjacency
    incoming: Adjacency
    # Vertices.
    trees_out: NDArray[np.int32]
    trees_in: NDArray[np.int32]
    component: Numbers
    following: Numbers
    preceding: Numbers
    before: Numbers
    is_moved: NDArray[np.bool_]
    moved: Numbers
    leaves: NDArray[np.int8]
    leaving: Numbers
    is_contained: NDArray[np.bool_]
    marks: NDArray[np.int8]
    queues: tuple[Numbers, Numbers]
    # Attributes of vertices.
    kinds: NDArray[np.int8]
    numbers: Numbers
    floats: NDArray[np.float64]
    # Components.
    first: Numbers
    size: Numbers
    edges: Numbers
    contained: Numbers
    sums: Numbers
    tallies: Numbers
    ids: Numbers
    last_size: Numbers
    is_old: NDArray[np.bool_]
    is_good: NDArray[np.bool_]
    is_touched: NDArray[np.bool_]
    touched: Numbers
    free: Numbers
    scratch: Numbers
    # Cluster of a vertex and of a component as of the last report, and hops in searches.
    shown: Numbers
    reported: Numbers
    hops: Numbers
    #: Of `moved`, `touched`, `free` and `leaving`, and the last id.
    counts: Numbers


#: Fields of `Forest` by what they have an entry for, and what new entries are.
_BY_EDGE = ("sources", "targets", "is_tree")
_BY_VERTEX = (
    "trees_out", "trees_in", "component", "following", "preceding", "before", "is_moved", "moved", "leaves", "leaving",
    "is_contained", "marks", "kinds", "numbers", "shown", "hops",
)  # fmt: skip
_BY_COMPONENT = (
    "first", "size", "edges", "contained", "sums", "tallies", "ids", "last_size", "is_old", "is_good", "is_touched",
    "touched", "free", "scratch", "reported",
)  # fmt: skip
_NEW = {"component": -1, "scratch": -1, "hops": -2}


class Conditions(NamedTuple):
    """Conditions on measures, those first that are quickly evaluated.

    Attributes
    ----------
    codes, attributes, bounds : arrays
        Measures, the attributes that they are of, and what they are compared with.
    less, equal, more : bool arrays
        Results of comparisons that are accepted.
    """

    codes: Numbers
    attributes: Numbers
    bounds: NDArray[np.float64]
    less: NDArray[np.bool_]
    equal: NDArray[np.bool_]
    more: NDArray[np.bool_]


class Rules(NamedTuple):
    """What a cluster is, and which events are reported."""

    min_size: int
    contains: bool
    grow: int
    members: bool
    most_members: int
    lists: bool
    follows: bool
    conditions: Conditions


class Change(NamedTuple):
    """What an event of a cluster says beside its id."""

    code: int
    other: int
    size: int
    members: NDArray[np.int32]
    measures: tuple[float, ...]
    #: Vertices that it is about, if they are not the members.
    about: NDArray[np.int32] | None = None


class Measured(Pattern):
    """Groups of vertices with conditions on measures of them; their numbers are keys.

    Parameters
    ----------
    query : Query
    """

    columns, dtype = ("cluster",), object
    #: Statuses that come with the size, members and measures.
    _begun: ClassVar[tuple[int, ...]]

    def __init__(self, query: syntax.Query) -> None:
        super().__init__(query)
        parts = [*query.arguments, *query.where]
        given = [one for one in parts if isinstance(one, syntax.Comparison) and str(one.left) != "status"]
        conditions = [one for one in given if isinstance(one.left, syntax.Aggregate) or len(one.left.names) == 1]
        self._others = tuple(one for one in given if one not in conditions)
        self._names = tuple(str(one.left) for one in conditions)
        read = [_measure(one.left) for one in conditions]
        self.measured = tuple(sorted({name for _, name in read if name}))
        if len(self.measured) > _MOST_MEASURED:
            raise CgqlError(f"{len(self.measured)} attributes are added up; accepted are {_MOST_MEASURED}", query.at)
        #: Places of the conditions in the order of their evaluation.
        self._quick = sorted(range(len(read)), key=lambda at: read[at][0] in _SLOW)
        operators = [conditions[at].operator for at in self._quick]
        names = [read[at][1] for at in self._quick]
        bounds: list[Any] = [conditions[at].right for at in self._quick]
        self._most_members = int(self._options.get("max_members", MOST_MEMBERS))
        self._conditions = Conditions(
            np.array([read[at][0] for at in self._quick], np.int64),
            np.array([self.measured.index(name) if name else 0 for name in names], np.int64),
            np.array([float(one.value) for one in bounds]),
            np.array([one in ("<", "<=", "!=") for one in operators], np.bool_),
            np.array([one in ("=", "<=", ">=") for one in operators], np.bool_),
            np.array([one in (">", ">=", "!=") for one in operators], np.bool_),
        )

    def encoded(self, kinds: Kinds, bits: Bits) -> tuple[NDArray[np.int8], Numbers]:
        return values_of(kinds, bits)

    def _made(self) -> tuple[Any, ...]:
        """Return space for what is found."""
        return np.zeros((0, 8), np.int64), np.zeros((0, len(self._names))), np.zeros(0, np.int64), 0, 0

    def _found(self, made: tuple[Any, ...]) -> Found:
        rows, measures, vertices, count, _ = made
        values = np.empty(count, object)
        back = np.argsort(self._quick)
        for at, (row, numbers) in enumerate(zip(rows[:count].tolist(), measures[:count], strict=True)):
            members, about = (vertices[row[k] : row[k + 1]].astype(np.int32) for k in (5, 6))
            measured = tuple(numbers[back].tolist())
            values[at] = Change(row[1], row[3], row[4], members, measured, about if len(about) else None)
        return Found(rows[:count, 0], rows[:count, 1].astype(np.int8), rows[:count, 2], values)

    def shown(self, encoder: Encoder, keys: Numbers, values: NDArray[Any]) -> dict[str, pa.Array]:
        changes: list[Change] = values.tolist()
        begun = (-1, *self._begun)
        sized = (*begun, cluster_kernels.GROWN)
        columns = {"cluster": pa.array(keys, pa.int64())}
        columns["size"] = pa.array([one.size if one.code in sized else None for one in changes], pa.int64())
        listed = {"members": begun}
        if cluster_kernels.SPLIT in begun:
            for name, code in (("parent", cluster_kernels.SPLIT), ("into", cluster_kernels.MERGED)):
                columns[name] = pa.array([one.other if one.code == code else None for one in changes], pa.int64())
            listed["members"] = (*begun, cluster_kernels.MERGED)
            listed["vertices"] = (cluster_kernels.JOINED, cluster_kernels.PARTED)
        for name, codes in listed.items():
            columns[name] = _lists(
                encoder, [one.members if one.code in codes and len(one.members) else None for one in changes]
            )
        for at, name in enumerate(self._names):
            if name != "size":
                numbers = [one.measures[at] if one.measures and one.code in begun else None for one in changes]
                columns[name] = pa.array(numbers, pa.float64())
        return columns

    def _is_cluster(self, part: int) -> bool:
        return True

    def slots(self, keys: Numbers, values: NDArray[Any]) -> tuple[Numbers, Numbers]:
        nothing = np.zeros(0, np.int64)
        about = (one.about for one in values if one.about is not None)
        return np.concatenate([nothing, *(one.members for one in values), *about]), nothing

    def vertices(self, key: int, value: Any) -> frozenset[int]:
        return frozenset((value.members if value.about is None else value.about).tolist())


class Cluster(Measured):
    """Components that satisfy conditions.

    Parameters
    ----------
    query : Query
    """

    operator = "a spanning forest; when one of its edges goes, the smaller half looks for another one"
    statuses = ("DISAPPEARED", "MERGED", "SPLIT", "CREATED", "GROWN", "JOINED", "PARTED")
    closing, opening, presence = 2, frozenset([2, 3]), frozenset([2, 3, 5])
    _begun = (cluster_kernels.SPLIT, cluster_kernels.CREATED)
    kept = ("_forest",)

    def __init__(self, query: syntax.Query) -> None:
        super().__init__(query)
        kept = [one for one in query.arguments if isinstance(one, syntax.Member | syntax.OneOf)]
        others = (*self._others, *kept)
        self._of_vertices = [syntax.Predicates(others)] if others else []
        contains = any(isinstance(one, syntax.NamedPredicates) and one.name == "contains" for one in query.arguments)
        self._rules = Rules(
            int(self._arguments.get("min_size", 2)), contains, int(self._arguments.get("grow", 0)),
            bool(self._arguments.get("members", False)), self._most_members, False, False,
            self._conditions,
        )  # fmt: skip
        self.roles = ("node", "contains") if contains else ("node",)
        self._forest = empty_forest(len(self.measured))

    @property
    def pending(self) -> bool:
        return bool(self._forest.counts[1])

    @property
    def narrowed(self) -> list[syntax.Predicates]:
        return self._of_vertices

    def fit(self, vertices: int, edges: int, deltas: Deltas) -> None:
        forest = self._forest
        if vertices > len(forest.component) or edges > len(forest.sources):
            forest = larger_forest(forest, vertices, edges)
        new = deltas.kinds == EDGE_ON
        self._forest = forest._replace(
            outgoing=with_space(forest.outgoing, deltas.sources[new]),
            incoming=with_space(forest.incoming, deltas.targets[new]),
        )

    def step(self, deltas: Deltas, *, ends: bool) -> Found:
        rules = self._rules._replace(most_members=1 << 62, lists=True) if self.lists_all else self._rules
        moves = np.zeros((0, 4), np.int64), 0
        made, (rows, count) = cluster_kernels.clusters(
            deltas, self._forest, rules, self._keys, self._made(), moves, 0, ends
        )
        if rules.follows:
            self.moved = tuple(rows[:count].T.copy())
        return self._found(made)

    def saved(self) -> dict[str, Any]:
        return super().saved() | {"follows": self._rules.follows}

    def install(self, saved: Mapping[str, Any]) -> None:
        saved = dict(saved)
        self._rules = self._rules._replace(follows=bool(saved.pop("follows")))
        super().install(saved)

    @property
    def touched(self) -> tuple[Numbers, Numbers]:
        forest = self._forest
        return np.flatnonzero(forest.is_moved | (forest.component >= 0) | (forest.leaves != 0)), forest.moved[:0]

    def follow_members(self) -> None:
        """Report moves of members from now on."""
        if self._rules.follows:
            return
        self._rules = self._rules._replace(follows=True)
        forest = self._forest
        vertices, clusters = self.members()
        forest.shown[vertices] = clusters
        forest.reported[:] = np.where(forest.is_old, forest.ids, -1)

    def members(self) -> tuple[Numbers, Numbers]:
        """Return the members of clusters as of the last observation, and their clusters."""
        forest = self._forest
        components = np.where(forest.is_moved, forest.before, forest.component)
        members = np.flatnonzero((components >= 0) & (forest.ids[components] > 0))
        return members, forest.ids[components[members]]

    def answers(self) -> tuple[Numbers, NDArray[Any]]:
        members, clusters = self.members()
        order = np.argsort(clusters, kind="stable")
        ids, firsts = np.unique(clusters[order], return_index=True)
        values = np.empty(len(ids), object)
        for at, found in enumerate(np.split(members[order], firsts[1:]) if len(ids) else ()):
            values[at] = Change(-1, 0, len(found), found.astype(np.int32), ())
        return ids, values


class Component(Cluster):
    """Components of at least some size."""


#: Measures that are computed from all members.
_SLOW = (
    cluster_kernels.DENSITY, cluster_kernels.DIAMETER, cluster_kernels.LEAST, cluster_kernels.MOST,
)  # fmt: skip


def _measure(operand: syntax.Operand) -> tuple[int, str]:
    """Return the code of a measure, and the attribute that it is of."""
    if isinstance(operand, syntax.Reference):
        return _MEASURES[operand.names[0]], ""
    if len(operand.of.names) == 1:
        return cluster_kernels.COUNT_ALL, ""
    return _MEASURES[operand.function], operand.of.names[1]


def values_of(kinds: Kinds, bits: Bits) -> tuple[NDArray[np.int8], Numbers]:
    """Return values as what is added up: numbers that are multiples of a millionth exactly."""
    codes = np.full(len(kinds), OTHER, np.int8)
    codes[kinds == NONE] = NOTHING
    numbers = np.zeros(len(kinds), np.int64)
    given = np.where(kinds == FLOAT, bits.view(np.float64), bits.astype(np.float64))
    number = (kinds == INTEGER) | (kinds == FLOAT)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.round(given * SCALE)
        exact = number & (np.abs(given) <= _LARGEST) & (scaled / SCALE == given)
    codes[number], codes[exact] = INEXACT, EXACT
    numbers[number] = given[number].view(np.int64)
    numbers[exact] = scaled[exact].astype(np.int64)
    return codes, numbers


def empty_forest(measured: int) -> Forest:
    """Return a forest without vertices, for some attributes that are added up."""
    none = np.zeros(0, np.int64)
    small, flags, ends = none.astype(np.int8), none.astype(np.bool_), none.astype(np.int32)
    numbers = np.zeros((measured, 0), np.int64)
    return Forest(
        ends, ends, flags, no_adjacency(), no_adjacency(), ends, ends, none, none, none, none, flags, none, small, none,
        flags, small, (none, none), np.zeros((measured, 0), np.int8), numbers, numbers.view(np.float64), none, none,
        none, none, numbers, np.zeros((measured, 4, 0), np.int64), none, none, flags, flags, flags, none, none,
        np.zeros((7, 0), np.int64), none, none, none, np.zeros(5, np.int64),
    )  # fmt: skip


def larger_forest(forest: Forest, vertices: int, edges: int) -> Forest:
    """Return a forest with space for more vertices and edges."""
    # Components that were there at the last observation keep their numbers until the next one.
    sizes = dict.fromkeys(_BY_EDGE, edges) | dict.fromkeys(_BY_VERTEX, vertices)
    sizes |= dict.fromkeys(_BY_COMPONENT, 2 * vertices + 2)
    had, made = len(forest.size), dict[str, Any]()
    for name, size in sizes.items():
        column = getattr(forest, name)
        more = size - column.shape[-1]
        if more > 0:
            new = np.full((*column.shape[:-1], more), _NEW.get(name, 0), column.dtype)
            made[name] = np.ascontiguousarray(np.concatenate([column, new], axis=-1))
    larger = forest._replace(
        **made, outgoing=fitted(forest.outgoing, vertices, edges), incoming=fitted(forest.incoming, vertices, edges)
    )
    queues = np.zeros(len(larger.component), np.int64), np.zeros(len(larger.component), np.int64)
    larger = larger._replace(floats=larger.numbers.view(np.float64), queues=queues)
    count, space = int(larger.counts[2]), len(larger.size)
    larger.free[count : count + space - had] = np.arange(space - 1, had - 1, -1)
    larger.counts[2] += space - had
    return larger


def _lists(encoder: Encoder, members: list[NDArray[np.int32] | None]) -> pa.Array:
    """Return labels of vertices, in their order."""
    given = [one.astype(np.int64) for one in members if one is not None]
    flat = np.concatenate([np.zeros(0, np.int64), *given])
    labels = arrow_column(encoder.vertices.keys(flat)).to_pylist()
    found, at = list[Any](), 0
    for one in members:
        if one is None:
            found.append(None)
        else:
            found.append(sorted(labels[at : at + len(one)]))
            at += len(one)
    kind = pa.string() if not labels or isinstance(labels[0], str) else pa.int64()
    return pa.array(found, pa.list_(kind))

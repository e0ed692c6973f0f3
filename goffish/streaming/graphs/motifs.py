"""Motifs: matches of a pattern of a few vertices and edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import JobError
from goffish.streaming.graphs import motif_kernels
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.syntax import CgqlError
from goffish.streaming.graphs.motif_kernels import OWN_ID
from goffish.streaming.graphs.pattern_kernels import EDGE_ON, INCOMING, OUTGOING
from goffish.streaming.graphs.patterns import Deltas, Found, Numbers, Pattern, longest, with_space
from goffish.streaming.graphs.predicates import Tables
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.state import Adjacency, Attributes, arrow_column, fitted, no_adjacency
from goffish.streaming.graphs.trees import alike
from goffish.streaming.key_table import KeyTable, longer

#: Candidates that are looked at for one change, and bytes of the matches that come or go at a time.
_MOST_LOOKED, _MOST_BYTES = 100_000_000, 1 << 28
#: Attributes in comparisons of two variables.
_MOST_COMPARED = 32
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
#: Of vertices, below the bits of what they need of their neighbors; no pattern has as many classes of either.
_NEEDS = 8

_Permutation = tuple[int, ...]


class Shape(NamedTuple):
    """A pattern; see `motif_kernels`.

    Attributes
    ----------
    sources, targets, directed : arrays
        Of its edges.
    want, edge_want : arrays
        Bits that vertices and edges must have: classes, and needs.
    parallel : array
        By edge: positions of the others between the same vertices.
    operators, lefts, left_names, rights, right_names : arrays
        Comparisons: their positions, and the numbers of the attributes.
    compared : bool array
        Positions in them.
    images : array, shape (automorphisms, positions)
    needs : array, shape (2, edges)
        What the sources, and the targets, need because of an edge.
    need_sides, need_edges, need_vertices, need_bits : arrays
        What vertices need of their edges: a side, and classes of the edge and of its other end.
    first_value, vertex_classes : int
        Kinds of changes: the first one that is a value, and how many roles are of vertices.
    reasons : array
        By kind of change: why a search may begin.
    """

    sources: Numbers
    targets: Numbers
    directed: NDArray[np.bool_]
    want: Numbers
    edge_want: Numbers
    parallel: Numbers
    operators: Numbers
    lefts: Numbers
    left_names: Numbers
    rights: Numbers
    right_names: Numbers
    compared: NDArray[np.bool_]
    images: Numbers
    needs: Numbers
    need_sides: Numbers
    need_edges: Numbers
    need_vertices: Numbers
    need_bits: Numbers
    first_value: int
    vertex_classes: int
    reasons: Numbers


class Plan(NamedTuple):
    """Searches: where they begin.

    Attributes
    ----------
    edges, firsts : arrays
        The edge that is bound at first and the vertex that is its source, or -1 and a vertex.
    reasons : array
    smaller, larger : arrays, shape (searches, positions)
        Positions whose slots must be smaller, and larger.
    """

    edges: Numbers
    firsts: Numbers
    reasons: Numbers
    smaller: Numbers
    larger: Numbers


class Net(NamedTuple):
    """What a query sees of the graph."""

    outgoing: Adjacency
    incoming: Adjacency
    words: Numbers
    counts: NDArray[np.int32]
    bits: NDArray[np.int16]
    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    live: NDArray[np.bool_]
    of_vertices: Attributes
    of_edges: Attributes


class Work(NamedTuple):
    """Where a search is."""

    bound: Numbers
    vertices: Numbers
    edges: Numbers
    masks: Numbers
    places: Numbers
    ends: Numbers
    others: Numbers
    sides: Numbers
    cursor: Numbers
    most: int


class _Compared(NamedTuple):
    """A comparison: positions and attributes, or a literal."""

    operator: str
    left: tuple[int, str]
    right: tuple[int, str] | syntax.Value
    at: syntax.Position


class Variables:
    """The vertices and edges of a pattern, with what is asked of them.

    Parameters
    ----------
    query : Query

    Attributes
    ----------
    names : list of str
        Of the vertices, in the order of their first appearance.
    edges : list of (int, int, bool)
        Source, target, and whether the direction matters.
    predicates : list of list of Predicates
        Of the vertices, then of the edges.
    comparisons : list of _Compared
        Of two variables.
    """

    def __init__(self, query: syntax.Query) -> None:
        paths = [one for one in query.arguments if isinstance(one, syntax.Path)]
        given = {node.variable for path in paths for node in path.nodes}
        self.names: list[str] = []
        self.edges: list[tuple[int, int, bool]] = []
        found: list[list[syntax.Predicates]] = []
        of_edges: list[syntax.Predicates | None] = []
        numbers: dict[str, int] = {}
        named: list[str | None] = []
        for path in paths:
            ends = []
            for node in path.nodes:
                name, count = node.variable or "", len(self.names)
                while not name or (node.variable is None and name in {*given, *self.names}):
                    count += 1
                    name = f"v{count}"
                if name not in numbers:
                    numbers[name] = len(self.names)
                    self.names.append(name)
                    found.append([])
                if node.predicates is not None:
                    found[numbers[name]].append(node.predicates)
                ends.append(numbers[name])
            for (a, b), edge in zip(pairwise(ends), path.edges, strict=True):
                self.edges.append((b, a, True) if edge.direction == "<" else (a, b, edge.direction == ">"))
                named.append(edge.variable)
                of_edges.append(edge.predicates)
        for at, variable in enumerate(named):
            if variable is not None:
                numbers[variable] = len(self.names) + at
        every = [_compared(one, numbers) for one in query.arguments if isinstance(one, syntax.Comparison)]
        #: What is the same under an automorphism.
        self._alike = [
            *(tuple(sorted(map(str, parts))) for parts in found),
            *((directed, str(parts)) for (_, _, directed), parts in zip(self.edges, of_edges, strict=True)),
        ]
        self._every = every
        self.predicates = found + [[] if one is None else [one] for one in of_edges]
        for one in every:
            if not isinstance(one.right, tuple):
                left = syntax.Reference((one.left[1],), one.at)
                compared = syntax.Comparison(left, one.operator, one.right, one.at)
                self.predicates[one.left[0]].append(syntax.Predicates((compared,)))
        self.comparisons = [one for one in every if isinstance(one.right, tuple)]

    @property
    def size(self) -> int:
        """Number of positions."""
        return len(self.names) + len(self.edges)

    def automorphisms(self) -> list[_Permutation]:
        """Return the permutations of positions under which the pattern is the same; the first one changes nothing."""
        count = len(self.names)
        compared = Counter(_renamed(one, range(self.size)) for one in self._every)
        found = []
        for renamed in permutations(range(count)):
            if any(self._alike[n] != self._alike[renamed[n]] for n in range(count)):
                continue
            for of_edges in self._edge_images(renamed, ()):
                to = (*renamed, *(count + at for at in of_edges))
                if Counter(_renamed(one, to) for one in self._every) == compared:
                    found.append(to)
        return found

    def _edge_images(self, renamed: Sequence[int], chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == len(self.edges):
            yield chosen
            return
        count, at = len(self.names), len(chosen)
        a, b, directed = self.edges[at]
        ends = renamed[a], renamed[b]
        for other, (x, y, _) in enumerate(self.edges):
            same = ends == (x, y) or (not directed and ends == (y, x))
            if other not in chosen and same and self._alike[count + at] == self._alike[count + other]:
                yield from self._edge_images(renamed, (*chosen, other))


def _compared(one: syntax.Comparison, numbers: dict[str, int]) -> _Compared:
    def side(reference: syntax.Reference) -> tuple[int, str]:
        return numbers[reference.names[0]], ".".join(reference.names[1:])

    assert isinstance(one.left, syntax.Reference)
    right = side(one.right) if isinstance(one.right, syntax.Reference) else one.right
    return _Compared(one.operator, side(one.left), right, one.at)


def _renamed(one: _Compared, to: Sequence[int]) -> Any:
    sides = [(to[one.left[0]], one.left[1]), one.right]
    if isinstance(one.right, tuple):
        sides[1] = to[one.right[0]], one.right[1]
    return one.operator, frozenset(sides) if one.operator in ("=", "!=") else tuple(sides)


def _orders(group: list[_Permutation]) -> list[tuple[int, int]]:
    """Return pairs of positions whose slots must be in order, so that one of the images of each match remains.

    References
    ----------
    Grochow, J. A., Kellis, M.: Network motif discovery using subgraph enumeration and symmetry-breaking. RECOMB 2007.
    """
    found: list[tuple[int, int]] = []
    while len(group) > 1:
        first = next(at for at in range(len(group[0])) if any(one[at] != at for one in group))
        found += [(first, other) for other in sorted({one[first] for one in group} - {first})]
        group = [one for one in group if one[first] == first]
    return found


class Motif(Pattern):
    """Matches of a pattern.

    Parameters
    ----------
    query : Query
    """

    operator = "a search from each edge that comes or goes, along the edges of the pattern"
    statuses, columns = ("UNMATCHED", "MATCHED"), ()
    kept = ("_net",)

    def __init__(self, query: syntax.Query) -> None:
        super().__init__(query)
        variables = self._variables = Variables(query)
        count = len(variables.names)
        keys = [tuple(sorted(map(str, parts))) for parts in variables.predicates]
        of_vertices = list(dict.fromkeys(key for key in keys[:count] if key))
        of_edges = list(dict.fromkeys(key for key in keys[count:] if key))
        by_key = dict(zip(keys, variables.predicates, strict=True))
        self._of_roles = [by_key[key] for key in of_vertices]
        self.roles = tuple(map(str, range(len(of_vertices))))
        self.edge_roles = [by_key[key] for key in of_edges]
        self._classes = [
            *(1 << of_vertices.index(key) if key else 0 for key in keys[:count]),
            *(1 << of_edges.index(key) if key else 0 for key in keys[count:]),
        ]
        sides = [side for one in variables.comparisons for side in (one.left, one.right)]
        names = [{name for at, name in sides if (at >= count) == edges and name != "id"} for edges in (False, True)]  # type: ignore[misc]
        self.measured = tuple(sorted(names[0]))
        self.measured_of_edges = tuple(sorted(names[1] - {"time"}))
        self.follows_times = "time" in names[1]
        compared = len(names[0]) + len(names[1])
        if compared > _MOST_COMPARED:
            raise CgqlError(f"{compared} attributes are compared with others; accepted are {_MOST_COMPARED}", query.at)
        self._group = variables.automorphisms()
        self.first_value = EDGE_ON + 1 + 2 * (len(of_vertices) + len(of_edges))
        self._shape = self._make_shape()
        self._plan = self._make_plan()
        steps: list[Any] = [np.zeros(8, np.int64) for _ in range(3)]
        parts: list[Any] = [np.zeros((2, 8), np.int64) for _ in range(4)]
        bound, cursor = np.zeros(variables.size, np.int64), np.zeros(10, np.int64)
        self._work = Work._make([bound, *steps, *parts, cursor, _MOST_LOOKED])
        self._net = self._empty_net()
        self._tables: Tables | None = None
        #: Of changes of matches: bindings, whether they are gained (1) or lost (-1), and observations.
        self._rows: NDArray[Any] = np.zeros((16, variables.size), np.int32)
        self._signs: NDArray[Any] = np.zeros(16, np.int8)
        self._observations: NDArray[Any] = np.zeros(16, np.int64)
        self._table = np.zeros(64, np.int32)

    # The pattern, for compiled code.

    def _names(self, *, edges: bool) -> dict[str, int]:
        measured = (*self.measured_of_edges, *(("time",) if self.follows_times else ())) if edges else self.measured
        return {name: at for at, name in enumerate(measured)} | {"id": OWN_ID}

    def _make_shape(self) -> Shape:
        variables, count = self._variables, len(self._variables.names)
        names = self._names(edges=False), self._names(edges=True)
        sides = [(one.left, one.right) for one in variables.comparisons]
        lefts, rights = ([one[at] for one in sides] for at in (0, 1))

        def positions(given: list[Any]) -> Numbers:
            return np.array([at for at, _ in given], np.int64)

        def numbers(given: list[Any]) -> Numbers:
            return np.array([names[at >= count][name] for at, name in given], np.int64)

        # Needs: a side, a class of the edge, and one of its other end.
        needs: dict[tuple[int, int, int], int] = {}
        of_edges = np.zeros((2, len(variables.edges)), np.int64)
        want = list(self._classes[:count])
        for at, (a, b, directed) in enumerate(variables.edges):
            for end, (vertex, other, side) in enumerate(((a, b, OUTGOING), (b, a, INCOMING))):
                key = side if directed else OUTGOING | INCOMING, self._classes[count + at], self._classes[other]
                of_edges[end, at] = needs.setdefault(key, len(needs))
                want[vertex] |= 1 << (_NEEDS + needs[key])
        pairs = [frozenset((a, b)) for a, b, _ in variables.edges]
        parallel = [
            sum(1 << (count + other) for other, one in enumerate(pairs) if one == pairs[at] and other != at)
            for at in range(len(pairs))
        ]
        ends = np.array(variables.edges, np.int64)
        need_sides, need_edges, need_vertices = (np.array(one, np.int64) for one in zip(*needs, strict=True))
        compared = np.zeros(variables.size, np.bool_)
        compared[[at for pair in sides for at, _ in pair]] = True  # type: ignore[misc]
        reasons = self._reasons()
        return Shape(
            ends[:, 0].copy(), ends[:, 1].copy(), ends[:, 2] > 0, np.array(want, np.int64),
            np.array(self._classes[count:], np.int64), np.array(parallel, np.int64),
            np.array([_OPERATORS.index(one.operator) for one in variables.comparisons], np.int64), positions(lefts),
            numbers(lefts), positions(rights), numbers(rights), compared, np.array(self._group, np.int64), of_edges,
            need_sides,
            need_edges, need_vertices, 1 << (_NEEDS + np.arange(len(needs))), self.first_value, len(self.roles),
            reasons,
        )  # fmt: skip

    def _reasons(self) -> Numbers:
        """Return a bit for each kind of change; those of edges come first."""
        values = len(self._names(edges=False)) + len(self._names(edges=True)) - 2
        kinds = self.first_value + values
        found = np.ones(kinds, np.int64)
        for kind in range(EDGE_ON + 1, kinds):
            place = (kind - EDGE_ON - 1) >> 1
            if kind >= self.first_value:
                place = (self.first_value - EDGE_ON - 1) // 2 + kind - self.first_value
            found[kind] = 1 << (1 + place)
        return found

    def _concerns(self, position: int) -> int:
        """Return the reasons for which a search begins at a position."""
        count = len(self._variables.names)
        edge = position >= count
        reasons, found = self._shape.reasons, int(edge)
        for at in range(8):
            if self._classes[position] >> at & 1:
                found |= int(reasons[EDGE_ON + 1 + 2 * (at + edge * len(self.roles))])
        names = self._names(edges=edge)
        first = self.first_value + edge * len(self.measured)
        for one in self._variables.comparisons:
            for at, name in (one.left, one.right):  # type: ignore[misc]
                if at == position and name != "id":
                    found |= int(reasons[first + names[name]])
        return found

    def _make_plan(self) -> Plan:
        variables, group = self._variables, self._group
        count = len(variables.names)
        starts: list[tuple[int, int, int, list[_Permutation]]] = []  # edge, first vertex, reasons, stabilizer
        seen: set[tuple[int, int]] = set()
        for at, (a, b, directed) in enumerate(variables.edges):
            for first in (a,) if directed else (a, b):
                if (at, first) not in seen:
                    seen |= {(one[count + at] - count, one[first]) for one in group}
                    fixing = [one for one in group if one[count + at] == count + at and one[first] == first]
                    starts.append((at, first, self._concerns(count + at), fixing))
        for first in range(count):
            if (-1, first) not in seen:
                seen |= {(-1, one[first]) for one in group}
                reasons = self._concerns(first)
                if reasons:
                    starts.append((-1, first, reasons, [one for one in group if one[first] == first]))
        starts.append((-1, 0, 0, group))  # all matches
        columns = [np.array([one[at] for one in starts], np.int64) for at in range(3)]
        orders = [np.zeros((len(starts), variables.size), np.int64) for _ in range(2)]
        plan = Plan(columns[0], columns[1], columns[2], orders[0], orders[1])
        for start, (_, _, _, fixing) in enumerate(starts):
            for one, two in _orders(fixing):
                plan.larger[start, one] |= 1 << two
                plan.smaller[start, two] |= 1 << one
        return plan

    def _empty_net(self) -> Net:
        nothing = np.zeros(0, np.int64)
        ends = nothing.astype(np.int32)
        return Net(
            no_adjacency(np.int64), no_adjacency(np.int64), nothing,
            np.zeros((len(self._shape.need_bits), 0), np.int32), ends.astype(np.int16), ends, ends,
            nothing.astype(np.bool_), Attributes.empty(len(self._names(edges=False)) - 1, 0),
            Attributes.empty(len(self._names(edges=True)) - 1, 0),
        )  # fmt: skip

    # Changes.

    def predicates(self, role: str) -> list[syntax.Predicates]:
        return self._of_roles[int(role)]

    def saved(self) -> dict[str, Any]:
        count = int(self._work.cursor[motif_kernels.COUNT])
        return super().saved() | {"rows": self._rows[:count], "signs": self._signs[:count]}

    def install(self, saved: Mapping[str, Any]) -> None:
        saved = dict(saved)
        rows, signs = saved.pop("rows"), saved.pop("signs")
        super().install(saved)
        if not (
            alike(rows, self._rows) and alike(signs, self._signs) and rows.shape == (len(signs), self._variables.size)
        ):
            raise ValueError("matches have another form")
        count = len(signs)
        space = max(16, 2 * count)
        self._rows, self._signs = np.zeros((space, self._variables.size), np.int32), np.zeros(space, np.int8)
        self._observations = np.zeros(space, np.int64)
        self._rows[:count], self._signs[:count] = rows, signs
        self._work.cursor[motif_kernels.COUNT] = count

    def slots(self, keys: NDArray[Any], values: NDArray[Any]) -> tuple[Numbers, Numbers]:
        keys, count = keys.reshape(-1, self._variables.size).astype(np.int64), len(self._variables.names)
        return keys[:, :count].ravel(), keys[:, count:].ravel()

    @property
    def touched(self) -> tuple[Numbers, Numbers]:
        return self.slots(self._rows[: self._work.cursor[motif_kernels.COUNT]], self._signs[:0])

    def see(self, encoder: Encoder, deltas: Deltas) -> Deltas:
        self._tables = Tables(
            encoder.values.texts.columns, encoder.vertices.columns, encoder.edges.columns, encoder.values.lists
        )
        return deltas

    def fit(self, vertices: int, edges: int, deltas: Deltas) -> None:
        net = self._net
        if vertices > len(net.words) or edges > len(net.live):
            net = Net(
                fitted(net.outgoing, vertices, edges), fitted(net.incoming, vertices, edges),
                longest(net.words, vertices), _wider(net.counts, vertices), longest(net.bits, edges),
                longest(net.sources, edges), longest(net.targets, edges), longest(net.live, edges),
                _wider_values(net.of_vertices, vertices), _wider_values(net.of_edges, edges),
            )  # fmt: skip
        new = deltas.kinds == EDGE_ON
        self._net = net._replace(
            outgoing=with_space(net.outgoing, deltas.sources[new]),
            incoming=with_space(net.incoming, deltas.targets[new]),
        )

    def step(self, deltas: Deltas, *, ends: bool) -> Found:
        cursor = self._work.cursor
        cursor[motif_kernels.DELTA] = cursor[motif_kernels.OBSERVATION] = cursor[motif_kernels.MARK] = 0
        state = -1
        while state != motif_kernels.DONE:
            out = self._rows, self._signs, self._observations, self._table
            state = motif_kernels.motifs(
                deltas, self._net, self._shape, self._plan, self._work, out, self._tables, ends
            )
            self._more_space(state)
        mark, count = int(cursor[motif_kernels.MARK]), int(cursor[motif_kernels.COUNT])
        found = Found(
            self._observations[:mark].copy(), (self._signs[:mark] > 0).astype(np.int8), self._rows[:mark].copy(),
            np.zeros(mark, np.int64),
        )  # fmt: skip
        self._rows[: count - mark] = self._rows[mark:count].copy()
        self._signs[: count - mark] = self._signs[mark:count].copy()
        cursor[motif_kernels.COUNT] = count - mark
        return found

    def _more_space(self, state: int) -> None:
        if state == motif_kernels.LIMIT:
            raise JobError(f"limit: more than {_MOST_LOOKED:,} candidates for one change; give more predicates")
        if state == motif_kernels.TABLE:
            self._table = np.zeros(4 * len(self._signs), np.int32)
        if state == motif_kernels.ROWS:
            had, size = len(self._signs), 2 * len(self._signs)
            if size * (self._rows.itemsize * self._rows.shape[1] + 9) > _MOST_BYTES:
                raise JobError(f"limit: more than {had:,} matches at a time; give more predicates")
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._signs, self._observations = longer(self._signs, had, size), longer(self._observations, had, size)

    @property
    def pending(self) -> bool:
        return bool(self._work.cursor[motif_kernels.COUNT])

    # Answers.

    def answers(self) -> tuple[Numbers, Numbers]:
        cursor, kept = self._work.cursor.copy(), (self._rows, self._signs, self._observations)
        pending = int(cursor[motif_kernels.COUNT])
        before = zip(self._rows[:pending].tolist(), self._signs[:pending].tolist(), strict=True)
        self._rows, self._signs, self._observations = (np.zeros_like(one[:16]) for one in kept)
        try:
            self._work.cursor[:] = 0
            state = -1 if self._tables is not None else motif_kernels.DONE
            while state != motif_kernels.DONE:
                out = self._rows, self._signs, self._observations, self._table
                state = motif_kernels.all_matches(self._net, self._shape, self._plan, self._work, out, self._tables)
                self._more_space(state)
            found: Any = self._rows[: self._work.cursor[motif_kernels.COUNT]]
        finally:
            self._work.cursor[:] = cursor
            self._rows, self._signs, self._observations = kept
        if pending:  # what has changed since the last observation does not count
            held = Counter(map(tuple, found.tolist()))
            for row, sign in before:
                held[tuple(row)] -= sign
            found = np.array([row for row, count in held.items() if count > 0], np.int32)
            found = found.reshape(-1, self._variables.size)
        return found, np.zeros(len(found), np.int64)

    def vertices(self, key: Any, value: Any) -> frozenset[int]:
        return frozenset(key[: len(self._variables.names)])

    def parts(self, keys: Numbers) -> tuple[Numbers, ...]:
        return tuple(keys.reshape(len(keys), self._variables.size).T.astype(np.int64))

    def _table_of(self, encoder: Encoder, part: int) -> KeyTable:
        return encoder.vertices if part < len(self._variables.names) else encoder.edges

    def labels(self, encoder: Encoder, keys: Numbers) -> list[list[Any]]:
        found, count = super().labels(encoder, keys), len(self._variables.names)
        return [*found[:count], [list(one) for one in zip(*found[count:], strict=True)]]

    def shown(self, encoder: Encoder, keys: Numbers, values: NDArray[Any]) -> dict[str, pa.Array]:
        names, parts = self._variables.names, self.parts(keys)
        columns = {name: arrow_column(encoder.vertices.keys(part)) for name, part in zip(names, parts, strict=False)}
        edges = np.stack(parts[len(names) :], axis=1)
        labels = arrow_column(encoder.edges.keys(edges.ravel()))
        offsets = pa.array(np.arange(0, edges.size + 1, edges.shape[1]), pa.int32())
        return columns | {"edges": pa.ListArray.from_arrays(offsets, labels)}


def _wider(columns: NDArray[Any], size: int) -> NDArray[Any]:
    found = np.zeros((len(columns), max(size, columns.shape[1])), columns.dtype)
    found[:, : columns.shape[1]] = columns
    return found


def _wider_values(values: Attributes, size: int) -> Attributes:
    bits = _wider(values.bits, size)
    return Attributes(_wider(values.kinds, size), bits, bits.view(np.float64))

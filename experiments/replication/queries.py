"""Queries that share operators: one graph for all of them.

See docs/specs/selective-replication.md, sections 2.1 and 2.3.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError


class Operator(NamedTuple):
    """An operator of a query.

    Attributes
    ----------
    kind : str
        Operators of the kind ``destination`` are never shared.
    parameter : hashable
        Its predicate, window and the like.
    inputs : tuple of int
        Places of its inputs among the operators of the query, all before its own.
    cost : float
        Core-seconds for one tuple.
    selectivity : float
        Tuples sent for one that came in.
    rate : float
        Tuples per second that come from outside.
    tuple_size : float
        Of what it sends.
    commutative : bool
        Whether the order of its inputs means nothing.
    """

    kind: str
    parameter: Hashable = None
    inputs: tuple[int, ...] = ()
    cost: float = 0.0
    selectivity: float = 1.0
    rate: float = 0.0
    tuple_size: float = 1.0
    commutative: bool = False


class SharedQueries:
    """The graph of all running queries; operators that are equal, with equal inputs, are there once."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[Operator, tuple[int, ...]]] = {}
        self._keys: dict[Hashable, int] = {}
        self._queries: dict[int, tuple[int, ...]] = {}
        self._next = 0
        self._next_query = 0
        self._input: dict[int, float] = {}

    def add(self, query: Sequence[Operator]) -> int:
        """Merge a query in; gives its number.

        Parameters
        ----------
        query : sequence of Operator
            Each behind its inputs.
        """
        for at, operator in enumerate(query):
            if any(not 0 <= before < at for before in operator.inputs):
                raise InputError(f"operator {at} of the query: its inputs {operator.inputs} are not before it")
        images: list[int] = []
        for operator in query:
            inputs = tuple(images[at] for at in operator.inputs)
            if operator.commutative:
                inputs = tuple(sorted(inputs))
            # A destination belongs to one query, whatever it is like.
            own = self._next_query if operator.kind == "destination" else None
            key = (operator.kind, operator.parameter, inputs, own)
            node = self._keys.get(key)
            if node is None:
                node, self._next = self._next, self._next + 1
                self._keys[key] = node
                self._nodes[node] = (operator, inputs)
                coming = sum(self._input[u] * self._selectivity(u) for u in inputs)
                self._input[node] = operator.rate + coming
            images.append(node)
        number, self._next_query = self._next_query, self._next_query + 1
        self._queries[number] = tuple(dict.fromkeys(images))
        return number

    def remove(self, query: int) -> None:
        """Take a query away, and the operators that no other one needs."""
        if query not in self._queries:
            raise InputError(f"no query {query} runs")
        del self._queries[query]
        needed = {node for some in self._queries.values() for node in some}
        for node in [n for n in self._nodes if n not in needed]:
            del self._nodes[node], self._input[node]
        self._keys = {key: node for key, node in self._keys.items() if node in needed}

    def _selectivity(self, node: int) -> float:
        operator = self._nodes[node][0]
        return 1.0 if operator.kind == "source" else operator.selectivity

    @property
    def size(self) -> int:
        """Number of operators."""
        return len(self._nodes)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Ids of operators, ascending: their order in all that follows. An id is never used twice."""
        return tuple(self._nodes)

    @property
    def running(self) -> tuple[int, ...]:
        """Numbers of the queries, ascending: their order in `query_operators`."""
        return tuple(self._queries)

    def input_rates(self) -> NDArray[np.float64]:
        """Tuples per second that each operator gets."""
        return np.array([self._input[node] for node in self._nodes])

    def loads(self) -> NDArray[np.float64]:
        """Cores that each operator uses."""
        return np.array([self._input[node] * operator.cost for node, (operator, _) in self._nodes.items()])

    def edges(self) -> list[tuple[int, int]]:
        """Producer and consumer, by their places in `nodes`."""
        return list(self.traffic())

    def traffic(self) -> dict[tuple[int, int], float]:
        """What flows along each edge per second."""
        place = {node: at for at, node in enumerate(self._nodes)}
        return {
            (place[u], place[v]): self._input[u] * self._selectivity(u) * self._nodes[u][0].tuple_size
            for v, (_, inputs) in self._nodes.items()
            for u in inputs
        }

    def query_operators(self) -> list[list[int]]:
        """Operators of each query, by their places in `nodes`."""
        place = {node: at for at, node in enumerate(self._nodes)}
        return [[place[node] for node in some] for some in self._queries.values()]

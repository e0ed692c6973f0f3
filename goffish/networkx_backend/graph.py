"""networkx graphs as columns: conversion, and the object that networkx passes to this backend's functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, compress
from numbers import Real
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.graph import Graph, from_edges
from goffish.graph.assembly import Parallel

if TYPE_CHECKING:
    import networkx as nx

#: From here on sums of whole numbers would be rounded, which networkx does not do.
EXACT = float(2**53)
#: Types of weights that are added as networkx adds them; a numpy.float32 or a fraction, say, is not.
_WHOLE, _FRACTIONS = {int, bool, np.bool_, np.int64}, {float, np.float64}
_VALUES = methodcaller("values")

Attributes = dict[Any, Any]


class BackendGraph:
    """A graph of networkx's four kinds as columns, never changed after it was made.

    Nodes are any hashable objects; a node's position in the original graph's order is its vertex number. Weights are
    looked at only when a function asks for them.

    Attributes
    ----------
    nodes : list
        The user's nodes in their order.
    src, dst : int64, shape (edges,)
        Positions of the ends; an undirected edge stands once, with src ≤ dst.
    columns : dict
        Converted edge attributes, one list with a value per edge each.
    edge_dicts, node_dicts : list or None
        All attributes of each edge and of each node; `None` where they were not asked for.
    edge_keys : list or None
        The keys of a multigraph's edges.
    graph : dict
        The graph's own attributes.
    """

    __networkx_backend__ = "goffish"

    def __init__(
        self,
        nodes: list[Any],
        src: NDArray[np.int64],
        dst: NDArray[np.int64],
        *,
        directed: bool,
        multigraph: bool,
        columns: dict[Any, list[Any]],
        edge_dicts: list[Attributes] | None = None,
        edge_keys: list[Any] | None = None,
        node_dicts: list[Attributes] | None = None,
        graph: Attributes | None = None,
    ) -> None:
        self.nodes, self.src, self.dst = nodes, src, dst
        self.columns, self.edge_dicts, self.edge_keys, self.node_dicts = columns, edge_dicts, edge_keys, node_dicts
        self.graph: Attributes = {} if graph is None else graph
        #: networkx keeps what it converts back here.
        self.__networkx_cache__: dict[str, Any] = {}
        self._directed, self._multigraph = directed, multigraph
        self._weights: dict[Any, Weights] = {}
        self._graphs: dict[tuple[Any, str], Graph] = {}

    def is_directed(self) -> bool:
        return self._directed

    def is_multigraph(self) -> bool:
        return self._multigraph

    def number_of_nodes(self) -> int:
        return len(self.nodes)

    def number_of_edges(self) -> int:
        return self.src.size

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.nodes)

    def __contains__(self, node: object) -> bool:
        try:
            return node in self.position
        except TypeError:  # networkx, too, takes something unhashable for no node
            return False

    def __repr__(self) -> str:
        kind = ("Multi" if self._multigraph else "") + ("DiGraph" if self._directed else "Graph")
        return f"BackendGraph({kind}, {len(self):,} nodes, {self.src.size:,} edges)"

    @cached_property
    def position(self) -> dict[Any, int]:
        """Vertex number of each node."""
        return dict(zip(self.nodes, range(len(self.nodes)), strict=True))

    @cached_property
    def plain(self) -> Graph:
        """The graph without weights; parallel edges and self-loops are kept."""
        return self._build(None, "keep")

    @cached_property
    def component(self) -> NDArray[np.integer[Any]]:
        """A number for each vertex that all vertices of its (weakly) connected component share, shape (n,)."""
        from goffish.algorithms.components.in_memory import component_of

        return component_of(self.plain)

    def weights(self, attribute: Hashable) -> Weights:
        """The values of an edge attribute as numbers.

        Raises
        ------
        NotImplementedError
            Values that are not 64-bit numbers, or that `goffish.algorithms.weights.check_range` refuses; networkx then
            runs its own code.
        """
        if attribute not in self._weights:
            if attribute in self.columns:
                values: Sequence[Any] = self.columns[attribute]
            elif self.edge_dicts is not None:
                values = list(map(methodcaller("get", attribute, 1), self.edge_dicts))
            else:
                raise NotImplementedError(f"the edge attribute {attribute!r} was not converted")
            self._weights[attribute] = _as_weights(values, attribute)
        return self._weights[attribute]

    def weighted(self, attribute: Hashable, parallel: Parallel = "keep") -> Graph:
        """The graph with the weights of an attribute, or `plain` where they would all be 1.

        Parameters
        ----------
        attribute
            Name of the edge attribute; `None` ignores weights.
        parallel : {"keep", "min", "sum"}
            What becomes of a multigraph's parallel edges.

        Raises
        ------
        NotImplementedError
            Weights that are negative, not finite or not numbers; networkx then runs its own code.
        """
        parallel = parallel if self._multigraph else "keep"
        ones = attribute is None or self.weights(attribute).ones
        if ones and parallel != "sum":
            return self.plain
        key = (None if ones else attribute, parallel)
        if key not in self._graphs:
            values = np.ones(self.src.size) if ones else self.weights(attribute).values
            with declining():
                self._graphs[key] = self._build(values, parallel)
        return self._graphs[key]

    def _build(self, weight: NDArray[np.float64] | None, parallel: Parallel) -> Graph:
        return from_edges(
            self.src,
            self.dst,
            weight,
            directed=self._directed,
            labels=np.arange(len(self.nodes)),
            self_loops="keep",
            parallel=parallel,
        )


@dataclass(frozen=True, eq=False)
class Weights:
    """Values of an edge attribute.

    Attributes
    ----------
    values : float64, shape (edges,)
    whole : bool
        They were all integers, so that sums of them are to be integers.
    ones : bool
        They are all 1.
    """

    values: NDArray[np.float64]
    whole: bool
    ones: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ones", self.whole and bool((self.values == 1).all()))


def _as_weights(values: Sequence[Any], attribute: object) -> Weights:
    kinds = set(map(type, values))
    whole = kinds <= _WHOLE
    if not kinds <= _WHOLE | _FRACTIONS:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds - _WHOLE - _FRACTIONS))
        raise NotImplementedError(f"the edge attribute {attribute!r} holds values of type {shown}")
    try:
        column = np.array(values, np.int64 if whole else np.float64)
    except OverflowError:
        raise NotImplementedError(f"the edge attribute {attribute!r} holds numbers of more than 64 bits") from None
    weights = column.astype(np.float64, copy=False)
    with declining():
        check_range(weights)
    return Weights(weights, whole)


def is_real(value: object) -> TypeGuard[float]:
    """Whether an option is a real number of any kind."""
    return isinstance(value, Real)


@contextmanager
def declining() -> Iterator[None]:
    """Turn a refusal of the graph into the exception that makes networkx go on with its own code."""
    try:
        yield
    except InputError as error:
        raise NotImplementedError(str(error)) from error


def convert(graph: nx.Graph) -> BackendGraph:
    """Convert a networkx graph with all its attributes, for any number of networkx calls.

    Parameters
    ----------
    graph : networkx.Graph, DiGraph, MultiGraph or MultiDiGraph
        Later changes of it are not seen.

    Returns
    -------
    BackendGraph
        networkx functions that are given it run in GoFFish; the others need ``networkx.config.fallback_to_nx``.

    Raises
    ------
    InputError
        Not a networkx graph.
    """
    if isinstance(graph, BackendGraph):
        return graph
    from goffish.graph.guards import expect_library

    expect_library(graph, "networkx", "Graph", "expected a NetworkX graph")
    return convert_from_nx(graph, preserve_edge_attrs=True, preserve_node_attrs=True, preserve_graph_attrs=True)


def convert_from_nx(
    graph: nx.Graph,
    *,
    edge_attrs: Mapping[Any, Any] | None = None,
    node_attrs: Mapping[Any, Any] | None = None,
    preserve_edge_attrs: bool = False,
    preserve_node_attrs: bool = False,
    preserve_graph_attrs: bool = False,
    name: str | None = None,
    graph_name: str | None = None,
) -> BackendGraph:
    """Convert a networkx graph; networkx calls this, and caches what it returns by the attributes asked for.

    Parameters
    ----------
    graph : networkx.Graph, DiGraph, MultiGraph or MultiDiGraph
    edge_attrs, node_attrs : mapping from attribute to default, optional
        Which attributes to convert; a default of `None` leaves missing ones out.
    preserve_edge_attrs, preserve_node_attrs, preserve_graph_attrs : bool
        Convert all of them.
    name, graph_name : str, optional
        The function that is called and its argument; networkx passes them for messages.
    """
    nodes = list(graph)
    multi, directed = graph.is_multigraph(), graph.is_directed()
    adjacency = dict(graph.adjacency())
    rows: list[Mapping[Any, Any]] = list(map(adjacency.__getitem__, nodes))
    if not all(type(row) is dict for row in rows):
        # The rows of a view may count what they hide, those of other classes need not be mappings.
        rows = [{u: dict(data) for u, data in graph[v].items()} for v in nodes]
    n = len(nodes)
    counts = np.fromiter(map(len, rows), np.int64, n)
    ends: Iterator[Any] = chain.from_iterable(rows)
    if nodes != list(range(n)):
        ends = map(dict(zip(nodes, range(n), strict=True)).__getitem__, ends)
    dst = np.fromiter(ends, np.int64, int(counts.sum()))
    src = np.repeat(np.arange(n), counts)
    if multi:
        parallel = np.fromiter(map(len, chain.from_iterable(map(_VALUES, rows))), np.int64, dst.size)
        src, dst = np.repeat(src, parallel), np.repeat(dst, parallel)
    # networkx keeps an undirected edge in the rows of both ends.
    kept = None if directed else src <= dst
    chosen: list[bool] = [] if kept is None else kept.tolist()

    def once(per_arc: Iterator[Any]) -> Iterator[Any]:
        return per_arc if kept is None else compress(per_arc, chosen)

    def data() -> Iterator[Attributes]:
        inner = chain.from_iterable(map(_VALUES, rows))
        return once(chain.from_iterable(map(_VALUES, inner)) if multi else inner)

    columns: dict[Any, list[Any]] = {}
    edge_dicts = edge_keys = None
    if multi:
        edge_keys = list(once(chain.from_iterable(chain.from_iterable(map(_VALUES, rows)))))
    if preserve_edge_attrs:
        edge_dicts = list(map(dict, data()))
    else:
        for attribute, default in (edge_attrs or {}).items():
            columns[attribute] = list(map(methodcaller("get", attribute, default), data()))
    node_dicts = None
    if preserve_node_attrs:
        node_dicts = [dict(graph.nodes[v]) for v in nodes]
    elif node_attrs:
        node_dicts = [_selected(graph.nodes[v], node_attrs) for v in nodes]
    return BackendGraph(
        nodes,
        src if kept is None else src[kept],
        dst if kept is None else dst[kept],
        directed=directed,
        multigraph=multi,
        columns=columns,
        edge_dicts=edge_dicts,
        edge_keys=edge_keys,
        node_dicts=node_dicts,
        graph=dict(graph.graph) if preserve_graph_attrs else None,
    )


def _selected(attributes: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> Attributes:
    found = {name: attributes.get(name, default) for name, default in wanted.items()}
    return {name: value for name, value in found.items() if value is not None}


def convert_to_nx(result: Any, *, name: str | None = None) -> Any:
    """A networkx graph with everything that was converted; what is no `BackendGraph` is returned as it is."""
    if not isinstance(result, BackendGraph):
        return result
    import networkx as nx

    kinds = {(False, False): nx.Graph, (True, False): nx.DiGraph, (False, True): nx.MultiGraph}
    graph = kinds.get((result.is_directed(), result.is_multigraph()), nx.MultiDiGraph)()
    graph.graph.update(result.graph)
    if result.node_dicts is None:
        graph.add_nodes_from(result.nodes)
    else:
        graph.add_nodes_from((v, dict(d)) for v, d in zip(result.nodes, result.node_dicts, strict=True))
    ends = [[result.nodes[i] for i in column.tolist()] for column in (result.src, result.dst)]
    if result.edge_dicts is not None:
        rows: Iterator[Attributes] = map(dict, result.edge_dicts)
    else:
        columns = result.columns
        rows = (
            {name: values[i] for name, values in columns.items() if values[i] is not None}
            for i in range(result.number_of_edges())
        )
    graph.add_edges_from(zip(*ends, *([] if result.edge_keys is None else [result.edge_keys]), rows, strict=True))
    return graph

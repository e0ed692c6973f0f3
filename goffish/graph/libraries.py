"""Graphs from and to the objects of other graph libraries: SciPy, NetworkX, igraph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.graph import kernels
from goffish.graph.assembly import Parallel, SelfLoops
from goffish.graph.columns import attribute_column, named_columns
from goffish.graph.graph import Graph, from_edges
from goffish.graph.guards import expect, expect_library
from goffish.graph.tables import vertices_to_arrow

if TYPE_CHECKING:
    import igraph
    import networkx as nx
    from scipy import sparse

MissingReverse = Literal["add", "error"]


def from_scipy(
    matrix: sparse.sparray | sparse.spmatrix,
    *,
    directed: bool | None = None,
    labels: Any = None,
    weighted: bool | None = None,
    missing_reverse: MissingReverse = "add",
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
) -> Graph:
    """Build a graph from a SciPy sparse adjacency matrix.

    Every stored entry is an edge, including stored zeros.

    Parameters
    ----------
    matrix : scipy.sparse array or matrix, shape (n, n)
        Adjacency matrix.
    directed : bool, optional
        Whether edges have a direction [default: True unless the matrix is symmetric].
    labels : array-like of int or str, shape (n,), optional
        Vertex labels [default: 0 to n - 1].
    weighted : bool, optional
        Use the entries as weights [default: True unless all entries are 1 or True].
    missing_reverse : {"add", "error"}
        With ``directed=False``: what to do with an entry whose reverse is missing or different. "add" makes it an
        undirected edge, merged by `parallel` with a different reverse; "error" raises `InputError` [default: "add"].
    self_loops : {"drop", "keep"}
        What to do with entries on the diagonal [default: "drop"].
    parallel : {"min", "sum", "first", "keep"}
        What to do with entries that are stored twice; see `from_edges` [default: "min"].

    Returns
    -------
    Graph
        Vertices in the order of the rows.

    Raises
    ------
    InputError
        If `matrix` is not sparse, square and real, or an entry has no equal reverse with ``missing_reverse="error"``.

    Examples
    --------
    >>> import goffish as gf
    >>> from scipy.sparse import csr_array
    >>> gf.from_scipy(csr_array([[0, 1, 0], [1, 0, 2], [0, 2, 0]]))
    Graph(3 vertices, 2 edges, undirected, weighted)
    """
    if not hasattr(matrix, "tocoo"):
        raise InputError(
            f"matrix is of type {type(matrix).__name__}: expected a sparse matrix; use scipy.sparse.csr_array(matrix)"
        )
    if matrix.ndim != 2:
        raise InputError(f"the matrix is not square (shape {matrix.shape})")
    entries = matrix.tocoo()
    n, columns = entries.shape
    if n != columns:
        raise InputError(f"the matrix is not square ({n} x {columns})")
    if missing_reverse not in ("add", "error"):
        raise InputError(f"missing_reverse={missing_reverse!r}: choose one of add, error")
    src, dst, data = entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data
    if weighted is None:
        weighted = bool((data != 1).any())
    try:
        values = data.astype(np.float64, casting="same_kind") if data.dtype != bool else data.astype(np.float64)
    except TypeError:
        raise InputError(f"the matrix holds {data.dtype}; weights must be real numbers") from None
    paired = _has_reverse(src, dst, values, n)
    if directed is None:
        directed = not paired.all()
    if not directed:
        if missing_reverse == "error" and not paired.all():
            at = int(np.flatnonzero(~paired)[0])
            raise InputError(
                f'entry ({src[at]}, {dst[at]}) has no equal reverse; use directed=True, or missing_reverse="add"'
            )
        keep = (src <= dst) | ~paired  # a pair is one edge
        src, dst, values = src[keep], dst[keep], values[keep]
    return from_edges(
        src,
        dst,
        values if weighted else None,
        directed=directed,
        labels=np.arange(n) if labels is None else labels,
        self_loops=self_loops,
        parallel=parallel,
    )


def _has_reverse(
    src: NDArray[np.int64], dst: NDArray[np.int64], values: NDArray[np.float64], n: int
) -> NDArray[np.bool_]:
    """For every entry whether (j, i) is stored as often and with the same values as (i, j)."""
    forward, backward = np.lexsort((values, dst, src)), np.lexsort((values, src, dst))
    mirrored = np.zeros(src.size, bool)
    if (
        np.array_equal(src[forward], dst[backward])
        and np.array_equal(dst[forward], src[backward])
        and np.array_equal(values[forward], values[backward], equal_nan=True)
    ):
        mirrored[:] = True
        return mirrored
    # Not symmetric as a whole: number the distinct (i, j, value), compare how often each and its mirror
    # occur.
    here = np.rec.fromarrays((src, dst, values))
    there = np.rec.fromarrays((dst, src, values))
    _, inverse = np.unique(np.concatenate((here, there)), return_inverse=True)
    inverse = inverse.ravel()
    count_here = np.bincount(inverse[: src.size], minlength=2 * src.size)
    count_there = np.bincount(inverse[src.size :], minlength=2 * src.size)
    own = inverse[: src.size]
    return np.asarray(count_here[own] == count_there[own])


def to_scipy(graph: Graph) -> sparse.csr_array:
    """Convert a graph to a SciPy sparse adjacency matrix.

    Parameters
    ----------
    graph : Graph
        Graph in memory.

    Returns
    -------
    scipy.sparse.csr_array, shape (n, n)
        Weights, or 1.0 without weights; rows and columns in vertex order. The matrix of an undirected graph is
        symmetric. Parallel edges are separate entries. Column indices and weights are shared with the graph (below 2^31
        arcs): do not modify them.

    Raises
    ------
    InputError
        If `graph` is not a `Graph`, or SciPy is missing.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.to_scipy(gf.from_edges([1, 2], [2, 3])).toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    with needed_for("to_scipy"):
        from scipy import sparse

    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    data = np.ones(graph.num_arcs) if graph.weights is None else graph.weights
    n = graph.num_vertices
    # SciPy wants one index type; it would widen the targets otherwise
    offsets = graph.offsets.astype(graph.targets.dtype) if graph.num_arcs < 2**31 else graph.offsets
    return sparse.csr_array((data, graph.targets, offsets), shape=(n, n))


def from_networkx(
    graph: nx.Graph,
    *,
    weight: str | None = "weight",
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
) -> Graph:
    """Build a graph from a NetworkX graph or multigraph.

    Parameters
    ----------
    graph : networkx.Graph
        Any of the four NetworkX graph classes.
    weight : str or None
        Edge attribute with the weights, used if any edge has it; edges without it get weight 1. ``None`` ignores
        weights [default: "weight"].
    self_loops : {"drop", "keep"}
        What to do with self-loops [default: "drop"].
    parallel : {"min", "sum", "first", "keep"}
        What to do with parallel edges; see `from_edges` [default: "min"].

    Returns
    -------
    Graph
        Vertices are numbered by ascending label. Other attributes become columns, with nulls where they are missing.

    Raises
    ------
    InputError
        If nodes are neither all integers nor all strings (relabel them with
        `networkx.convert_node_labels_to_integers`), or the values of an attribute have no common type.

    Examples
    --------
    >>> import goffish as gf
    >>> import networkx as nx
    >>> gf.from_networkx(nx.path_graph(3))
    Graph(3 vertices, 2 edges, undirected)
    """
    expect_library(graph, "networkx", "Graph", "expected a NetworkX graph")
    nodes = list(graph)
    kinds = {int if isinstance(v, int | np.integer) and not isinstance(v, bool) else type(v) for v in nodes}
    if not kinds <= {int} and not kinds <= {str}:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(
            f"vertex labels must be all integers or all strings, got {shown}; use "
            "networkx.convert_node_labels_to_integers(graph, label_attribute=...)"
        )
    labels = sorted(nodes)
    number = {label: i for i, label in enumerate(labels)}
    rows = list(graph.edges(data=True))
    src = np.fromiter((number[u] for u, _, _ in rows), np.int64, len(rows))
    dst = np.fromiter((number[v] for _, v, _ in rows), np.int64, len(rows))
    edge_data = [data for _, _, data in rows]
    weights = None
    if weight is not None and any(weight in data for data in edge_data):
        weights = [data.get(weight, 1.0) for data in edge_data]
    return from_edges(
        src,
        dst,
        weights,
        directed=graph.is_directed(),
        labels=labels,
        self_loops=self_loops,
        parallel=parallel,
        vertex_attributes=_attributes([graph.nodes[label] for label in labels], set(), "vertex"),
        edge_attributes=_attributes(edge_data, {weight}, "edge"),
    )


def _attributes(rows: Sequence[dict[Any, Any]], without: set[Any], what: str) -> pa.Table | None:
    names = dict.fromkeys(name for row in rows for name in row if name not in without)
    columns = {str(name): attribute_column([row.get(name) for row in rows], name, what) for name in names}
    return pa.table(columns) if columns else None


def to_networkx(graph: Graph, *, weight: str = "weight") -> nx.Graph:
    """Convert a graph to a NetworkX graph.

    Parameters
    ----------
    graph : Graph
        Graph in memory.
    weight : str
        Name of the edge attribute for weights [default: "weight"].

    Returns
    -------
    networkx.Graph, DiGraph, MultiGraph or MultiDiGraph
        The class that matches the graph: directed or not, and a multigraph if there are parallel edges. Null attributes
        are left out.

    Raises
    ------
    InputError
        If `graph` is not a `Graph`, or NetworkX is missing.

    Examples
    --------
    >>> import goffish as gf
    >>> sorted(gf.to_networkx(gf.from_edges([1, 2], [2, 3])).edges)
    [(1, 2), (2, 3)]
    """
    with needed_for("to_networkx"):
        import networkx as nx

    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    multi = kernels.has_parallel(graph.offsets, graph.targets)
    kinds = {(False, False): nx.Graph, (True, False): nx.DiGraph, (False, True): nx.MultiGraph}
    result = kinds.get((graph.directed, multi), nx.MultiDiGraph)()
    vertices = vertices_to_arrow(graph, vertex="")
    labels = vertices.column(0).to_pylist()
    result.add_nodes_from(zip(labels, _dictionaries(graph.vertex_attributes, len(labels)), strict=True))
    src, dst, weights, attributes = graph.edge_columns()
    data = _dictionaries(attributes, src.size)
    if weights is not None:
        for row, value in zip(data, weights.tolist(), strict=True):
            row[weight] = value
    ends = ((labels[u], labels[v]) for u, v in zip(src.tolist(), dst.tolist(), strict=True))
    result.add_edges_from((u, v, row) for (u, v), row in zip(ends, data, strict=True))
    return result


def _dictionaries(table: pa.Table | None, rows: int) -> list[dict[str, Any]]:
    if table is None:
        return [{} for _ in range(rows)]
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


def from_igraph(
    graph: igraph.Graph,
    *,
    weight: str | None = "weight",
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
) -> Graph:
    """Build a graph from an igraph graph.

    Parameters
    ----------
    graph : igraph.Graph
        Graph to convert. The vertex attribute ``name``, if it exists, becomes the labels; otherwise labels are 0 to n -
        1.
    weight : str or None
        Edge attribute with the weights, used if it exists; ``None`` ignores weights [default: "weight"].
    self_loops : {"drop", "keep"}
        What to do with self-loops [default: "drop"].
    parallel : {"min", "sum", "first", "keep"}
        What to do with parallel edges; see `from_edges` [default: "min"].

    Returns
    -------
    Graph
        Vertices in the order of `graph`, with all other attributes as columns.

    Raises
    ------
    InputError
        If `graph` is not an igraph graph, names are not distinct, or the values of an attribute have no common type.

    Examples
    --------
    >>> import goffish as gf
    >>> import igraph
    >>> gf.from_igraph(igraph.Graph([(0, 1), (1, 2)]))
    Graph(3 vertices, 2 edges, undirected)
    """
    expect_library(graph, "igraph", "Graph", "expected an igraph.Graph")
    ends = np.array(graph.get_edgelist(), np.int64).reshape(-1, 2)
    names = graph.vs["name"] if "name" in graph.vs.attributes() else np.arange(graph.vcount())
    vertex_attributes = {a: attribute_column(graph.vs[a], a, "vertex") for a in graph.vs.attributes() if a != "name"}
    edge_attributes = {a: attribute_column(graph.es[a], a, "edge") for a in graph.es.attributes() if a != weight}
    return from_edges(
        ends[:, 0],
        ends[:, 1],
        graph.es[weight] if weight in graph.es.attributes() else None,
        directed=graph.is_directed(),
        labels=names,
        self_loops=self_loops,
        parallel=parallel,
        vertex_attributes=vertex_attributes or None,
        edge_attributes=edge_attributes or None,
    )


def to_igraph(graph: Graph, *, weight: str = "weight") -> igraph.Graph:
    """Convert a graph to an igraph graph.

    Parameters
    ----------
    graph : Graph
        Graph in memory.
    weight : str
        Name of the edge attribute for weights [default: "weight"].

    Returns
    -------
    igraph.Graph
        Vertices in the same order. Labels other than 0 to n - 1 become the vertex attribute ``name``.

    Raises
    ------
    InputError
        If `graph` is not a `Graph`.
    ImportError
        If igraph is not installed.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.to_igraph(gf.from_edges([1, 2], [2, 3])).vs["name"]
    [1, 2, 3]
    """
    import igraph

    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    src, dst, weights, attributes = graph.edge_columns()
    result = igraph.Graph(graph.num_vertices, np.column_stack((src, dst)), directed=graph.directed)
    if graph.labels is not None:
        result.vs["name"] = graph.labels.to_pylist()
    if weights is not None:
        result.es[weight] = weights.tolist()
    for sequence, table in ((result.vs, graph.vertex_attributes), (result.es, attributes)):
        for name, column in named_columns(table):
            sequence[name] = column.to_pylist()
    return result

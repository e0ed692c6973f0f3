"""Random walks and embeddings: the calls, and their options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Label, Note, TableFile

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph

Answer = TypeVar("Answer")
_Seed = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Sampled(Algorithm):
    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}


class Walks(_Sampled):
    """Random walks."""

    name = "walks"
    title = "Random walks along arcs: uniform, by weight, or biased (node2vec)."
    final_table = False

    length: int = Field(default=80, ge=1, le=1 << 30, description="Steps of each walk.")
    walks: int = Field(default=10, ge=1, le=1 << 30, description="Walks from each source.")
    sources: tuple[Label, ...] | None = Field(default=None, description="Where walks begin [default: all vertices].")
    weighted: bool = Field(default=False, description="Follow arcs with probabilities proportional to their weights.")
    p: float = Field(default=1.0, ge=1e-9, le=1e9, description="Return parameter: steps back count 1 / p.")
    q: float = Field(default=1.0, ge=1e-9, le=1e9, description="In-out parameter: steps farther away count 1 / q.")
    seed: _Seed = Field(default=0, description="Random seed.")

    def labels(self) -> list[int | str]:
        return list(self.sources or ())

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.walks.in_memory import check_walks
        from goffish.algorithms.walks.subgraph import BiasedWalks, RandomWalks

        check_walks(graph.num_vertices if self.sources is None else len(self.sources), self.walks, self.length)
        options = self.length, self.walks, self.sources, self.weighted, self.seed
        biased = self.p != 1.0 or self.q != 1.0
        return BiasedWalks(*options, biases=(1.0 / self.p, 1.0 / self.q)) if biased else RandomWalks(*options)

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        import numpy as np

        walk, step = table["walk"].to_numpy(), table["step"].to_numpy()
        walks = int((step == 0).sum())
        return table.take(np.lexsort((step, walk))), {"walks": walks, "steps": walk.size - walks}

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.walks.in_memory import random_walks

        return random_walks(graph, threads=threads, **self.options())


class FastRP(_Sampled):
    """FastRP embeddings."""

    name = "fastrp"
    title = "Vectors of vertices by random projection (FastRP), for learning."
    in_memory = True

    dimension: int = Field(default=128, ge=1, le=1 << 20, description="Length of the vectors.")
    iteration_weights: tuple[Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)], ...] = Field(
        default=(0.0, 1.0, 1.0), min_length=1,
        description="What the projection, its means over neighbors, over their neighbors, and so on count.",
    )  # fmt: skip
    degree_exponent: float = Field(
        default=0.0, ge=-3.0, le=3.0, description="Exponent of degrees in the projection; below 0, hubs count less."
    )
    weighted: bool = Field(default=False, description="Weigh neighbors by the weights of arcs.")
    seed: _Seed = Field(default=0, description="Random seed.")

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.walks.in_memory import fastrp

        return fastrp(graph, threads=threads, **self.options())


class HashGNN(_Sampled):
    """HashGNN features."""

    name = "hashgnn"
    title = "Binary vectors of vertices by hashing of their neighbors' features (HashGNN), for learning."
    in_memory = True

    features: TableFile = Field(
        default=None,
        description="Table with the column vertex and a column of 0 and 1 for each feature [default: random features].",
    )
    dimension: int = Field(default=128, ge=1, le=1 << 20, description="Number of random features, without features.")
    iterations: int = Field(default=2, ge=1, le=1 << 10, description="Steps from which features arrive.")
    density: int = Field(default=32, ge=1, le=1 << 16, description="Features drawn for each vertex in each iteration.")
    initial_density: int = Field(
        default=4, ge=1, le=1 << 16, description="Random features of each vertex at the beginning, without features."
    )
    neighbor_influence: float = Field(
        default=1.0, ge=0.0, le=1e9, description="How often features of neighbors are drawn; 0 is never."
    )
    seed: _Seed = Field(default=0, description="Random seed.")

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.walks.hashing import hashgnn

        return hashgnn(graph, threads=threads, **self.options())


def random_walks(
    graph: AnyGraph, *, length: int = 80, walks: int = 10, sources: Sequence[int | str] | None = None,
    weighted: bool = False, p: float = 1.0, q: float = 1.0, seed: int = 0, threads: int | None = None,
) -> NDArray[np.integer[Any]]:  # fmt: skip
    """Walk at random along arcs.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to walk on; a partitioned graph is put together in memory. An undirected edge counts as two arcs.
    length : int
        Number of steps, from 1 to 2^30 [default: 80].
    walks : int
        Number of walks from each source, from 1 to 2^30 [default: 10].
    sources : sequence of int or str, optional
        Labels of the vertices where walks begin [default: all vertices].
    weighted : bool
        Follow arcs with probabilities proportional to their weights [default: False].
    p, q : float
        Biases of node2vec, from 1e-9 to 1e9: after a step from t, a step back to t counts 1 / `p`, one to a vertex to
        which an arc leads from t counts 1, any other 1 / `q` [default: 1, no bias].
    seed : int
        Random seed, at least 0 [default: 0].
    threads : int, optional
        Number of threads [default: all processors]. All numbers give the same walks.

    Returns
    -------
    array of int32 or int64, shape (sources * walks, length + 1)
        Vertex numbers (see `Graph.labels_of`): `walks` rows for each source, in order of the sources. A walk ends early
        where no arc goes on; the rest of its row is -1.

    Raises
    ------
    InputError
        If an option is out of range, a source is unknown, or the graph has no weights to follow.

    Notes
    -----
    A step takes constant time, with weights a binary search. Biased steps are drawn by rejection, of about
    max(q, 1 / q) proposals, and from all arcs after as many proposals as there are, so that extreme biases cost time in
    proportion to the degree. Random numbers are hashes of seed, walk, step and attempt. With weights, 8 bytes an arc
    beside the graph. ``gf.run("walks", …)`` returns the same walks as a table, on engines, too.

    References
    ----------
    B. Perozzi, R. Al-Rfou, S. Skiena, "DeepWalk: online learning of social representations", KDD, 2014.

    A. Grover, J. Leskovec, "node2vec: scalable feature learning for networks", KDD, 2016.

    K. Yang, M. Zhang, K. Chen, X. Ma, Y. Bai, Y. Jiang, "KnightKing: a fast distributed graph random walk engine",
    SOSP, 2019.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.random_walks(gf.from_edges([0, 1], [1, 2], directed=True), length=3, walks=1)
    array([[ 0,  1,  2, -1],
           [ 1,  2, -1, -1],
           [ 2, -1, -1, -1]], dtype=int32)
    """
    from goffish.algorithms.walks.in_memory import walks_of

    given = None if sources is None else tuple(sources)
    asked = Walks.checked(
        length=length, walks=walks, sources=given, weighted=weighted, p=p, q=q, seed=seed,
    )  # fmt: skip
    return _answer(graph, walks_of, asked, threads)


def fastrp(
    graph: AnyGraph, *, dimension: int = 128, iteration_weights: Sequence[float] = (0.0, 1.0, 1.0),
    degree_exponent: float = 0.0, weighted: bool = False, seed: int = 0, threads: int | None = None,
) -> NDArray[np.float32]:  # fmt: skip
    """Embed vertices as vectors by random projection (FastRP): near vertices get similar vectors.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to embed; a partitioned graph is put together in memory. In directed graphs, means are over out-neighbors.
    dimension : int
        Length of the vectors, from 1 to 2^20 [default: 128].
    iteration_weights : sequence of float
        Factors of the random projection, of its means over neighbors, of the means of these, and so on, from -1e6 to
        1e6 [default: (0, 1, 1)].
    degree_exponent : float
        Rows of the projection are multiplied by the share of the arcs that leave the vertex to this power, from -3
        to 3; below 0, hubs count less [default: 0].
    weighted : bool
        Weigh neighbors by the weights of arcs [default: False].
    seed : int
        Random seed, at least 0 [default: 0].
    threads : int, optional
        Number of threads [default: all processors]. All numbers give the same bits.

    Returns
    -------
    array of float32, shape (n, dimension)
        A row for each vertex, in vertex order. Vertices without arcs have zeros, unless the first factor is not 0.

    Raises
    ------
    InputError
        If an option is out of range, the graph has no weights, or the matrices do not fit in memory.

    Notes
    -----
    Each matrix has its rows scaled to length 1 before it is multiplied by its factor and added. A pass takes
    ``dimension`` operations an arc; three matrices of 4 bytes an entry are held.

    References
    ----------
    H. Chen, S. F. Sultan, Y. Tian, M. Chen, S. Skiena, "Fast and accurate network embeddings via very sparse random
    projection", CIKM, 2019.

    Examples
    --------
    >>> import goffish as gf
    >>> vectors = gf.fastrp(gf.from_edges([0, 0, 3, 3], [1, 2, 1, 2]), dimension=32)
    >>> vectors.shape, bool((vectors[0] == vectors[3]).all())
    ((4, 32), True)
    """
    from goffish.algorithms.walks.in_memory import fastrp_of

    asked = FastRP.checked(
        dimension=dimension, iteration_weights=tuple(iteration_weights), degree_exponent=degree_exponent,
        weighted=weighted, seed=seed,
    )  # fmt: skip
    return _answer(graph, fastrp_of, asked, threads)


def hashgnn(
    graph: AnyGraph, features: Any = None, *, dimension: int = 128, iterations: int = 2, density: int = 32,
    initial_density: int = 4, neighbor_influence: float = 1.0, seed: int = 0, threads: int | None = None,
) -> NDArray[np.uint8]:  # fmt: skip
    """Embed vertices as binary vectors by hashing (HashGNN): near vertices, and such with like features, share entries.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to embed; a partitioned graph is put together in memory. In directed graphs, features are passed on from
        out-neighbors. Weights are ignored.
    features : array-like of bool or 0 and 1, shape (n, features); table or file of a table, optional
        Features of the vertices, in vertex order; or a table with the column ``vertex`` and a column for each feature,
        in which missing vertices have none [default: random features].
    dimension : int
        Number of random features, from 1 to 2^20; has no effect with `features` [default: 128].
    iterations : int
        Number of steps from which features arrive, from 1 to 1,024 [default: 2].
    density : int
        Number of features drawn for each vertex in each iteration, from 1 to 2^16; some are drawn repeatedly
        [default: 32].
    initial_density : int
        Number of random features of each vertex at the beginning; has no effect with `features` [default: 4].
    neighbor_influence : float
        How often features of neighbors are drawn, from 0 (never) to 1e9 [default: 1].
    seed : int
        Random seed, at least 0 [default: 0].
    threads : int, optional
        Number of threads [default: all processors]. All numbers give the same bits.

    Returns
    -------
    array of uint8, shape (n, features)
        1 for the features that were drawn for a vertex in the last iteration, at most `density` in a row.

    Raises
    ------
    InputError
        If an option is out of range, `features` has another shape or other values, or vectors do not fit in memory.

    Notes
    -----
    Each of the `density` draws has three hash functions of features, h1 to h3, other ones in each iteration. A vertex
    offers the feature of it with the smallest h1, and its neighbors the one with the smallest h3 among the features
    that each of them chooses by h2. That of the neighbors is drawn if h3 is smaller than `neighbor_influence` times h1.
    There is no training, and features that two vertices share are likely to be drawn for both.

    An iteration takes `density` hashes an arc and ``density`` times the number of features for each vertex. Memory:
    12 ``density`` bytes a vertex, and the result.

    References
    ----------
    W. Wu, B. Li, C. Luo, W. Nejdl, "Hashing-accelerated graph neural networks for link prediction", WWW, 2021.

    Examples
    --------
    >>> import goffish as gf
    >>> vectors = gf.hashgnn(gf.from_edges([0, 0, 3, 3], [1, 2, 1, 2]), dimension=64)
    >>> vectors.shape, int(vectors.max())
    ((4, 64), 1)
    >>> gf.hashgnn(gf.from_edges([0], [1]), [[1, 0, 0], [0, 0, 1]]).tolist()
    [[1, 0, 1], [1, 0, 1]]
    """
    from goffish.algorithms.walks.hashing import hashgnn_of

    asked = HashGNN.checked(
        features=features, dimension=dimension, iterations=iterations, density=density,
        initial_density=initial_density, neighbor_influence=neighbor_influence, seed=seed,
    )  # fmt: skip
    return _answer(graph, hashgnn_of, asked, threads)


def _answer(graph: AnyGraph, call: Callable[..., Answer], asked: _Sampled, threads: int | None) -> Answer:
    """An array for a graph of any kind."""
    from goffish.gofs import PartitionedGraph
    from goffish.graph import Graph
    from goffish.graph.guards import GRAPH_ADVICE, expect
    from goffish.threads import interruptible

    expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
    whole = graph.to_graph() if isinstance(graph, PartitionedGraph) else graph
    # Whatever the graph, walks may be many and vectors long.
    return interruptible(1 << 62, lambda: call(whole, threads=threads, **asked.options()))

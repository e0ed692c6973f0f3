"""Eigenvector centrality, Katz centrality, HITS and spectral embeddings: the calls, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Note

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


class _Spectral(Algorithm):
    weighted: bool = Field(default=False, description="Multiply arcs by their weights.")
    tolerance: float = Field(default=1e-6, gt=0.0, lt=1.0, description="Maximum relative residual.")
    max_iterations: int = Field(default=1000, ge=1, description="Maximum number of passes; the job fails beyond it.")

    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}


def _figures(stats: RunStats, value: str) -> dict[str, Any]:
    """The summary of an eigenvector or of HITS from an engine's counters."""
    found = stats.aggregates
    figures = {"iterations": int(found.get("iterations", 0)), "residual": float(found.get("error", 0.0))}
    return {**figures, value: float(found.get("value", 0.0))}


class Eigenvector(_Spectral):
    """Eigenvector centrality."""

    name = "eigenvector"
    title = "Eigenvector centrality, along incoming arcs, to a guaranteed residual."

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.spectral.subgraph import PrincipalVector

        return PrincipalVector(False, **self.options())

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, _figures(stats, "eigenvalue")

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.spectral.in_memory import eigenvector

        return eigenvector(graph, threads=threads, **self.options())


class Katz(_Spectral):
    """Katz centrality."""

    name = "katz"
    title = "Katz centrality: walks that end at each vertex, to a guaranteed error."

    alpha: float | None = Field(
        default=None, gt=0.0, allow_inf_nan=False,
        description="Factor for each arc of a walk [default: 1 / (1 + largest sum of incoming weights)].",
    )  # fmt: skip
    tolerance: float = Field(default=1e-6, gt=0.0, lt=1.0, description="Maximum relative error of each value.")

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.spectral.subgraph import KatzSums

        return KatzSums(**self.options())

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        found = stats.aggregates
        figures = {"iterations": int(found.get("iterations", 0)), "error_bound": float(found.get("change", 0.0))}
        return table, {**figures, "alpha": float(found.get("alpha", 0.0))}

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.spectral.in_memory import katz

        return katz(graph, threads=threads, **self.options())


class Hits(_Spectral):
    """Hubs and authorities."""

    name = "hits"
    title = "Hubs and authorities (HITS), to a guaranteed residual."

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.spectral.subgraph import PrincipalVector

        return PrincipalVector(True, **self.options())

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        return table, _figures(stats, "singular_value")

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.spectral.in_memory import hits

        return hits(graph, threads=threads, **self.options())


class SpectralEmbedding(_Spectral):
    """Spectral embeddings."""

    name = "spectral-embedding"
    title = "Vectors of vertices from the normalized Laplacian, to a guaranteed residual; for clustering."
    in_memory = True

    dimension: int = Field(default=8, ge=1, le=1 << 12, description="Length of the vectors.")
    weighted: bool = Field(default=False, description="Use the weights of edges.")
    tolerance: float = Field(default=1e-6, gt=0.0, lt=1.0, description="Maximum residual.")
    max_iterations: int = Field(
        default=1000, ge=1, le=1 << 30, description="Maximum number of restarts of the iteration; the job fails beyond."
    )
    seed: int = Field(default=0, ge=0, description="Random seed of the first vector.")

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.spectral.embedding import spectral_embedding

        return spectral_embedding(graph, threads=threads, **self.options())


def eigenvector(
    graph: AnyGraph, *, weighted: bool = False, tolerance: float = 1e-6, max_iterations: int = 1000,
    threads: int | None = None,
) -> Result:  # fmt: skip
    """Compute the eigenvector centrality of each vertex.

    The value of a vertex is proportional to the sum of the values of the vertices from which arcs lead to it.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. An undirected edge counts as two arcs. For arcs that leave a vertex, pass
        ``graph.reverse``.
    weighted : bool
        Multiply arcs by their weights [default: False].
    tolerance : float
        Upper bound of the relative residual, greater than 0 and less than 1 [default: 1e-6].
    max_iterations : int
        Maximum number of passes over the arcs, at least 1 [default: 1000].
    threads : int, optional
        Number of threads [default: all processors]. All numbers give the same bits.

    Returns
    -------
    Result
        Columns ``vertex`` and ``eigenvector`` (float64, not negative; the sum of squares is 1). `summary` holds
        ``iterations``, ``residual`` (relative, at most `tolerance`) and ``eigenvalue`` (the largest); for a partitioned
        graph also ``supersteps``.

    Raises
    ------
    InputError
        If an option is out of range, or the graph has no weights to multiply by.
    JobError
        If the residual exceeds `tolerance` after `max_iterations` passes. Directed graphs without cycles have no
        positive eigenvalue.

    Notes
    -----
    With the adjacency matrix A, the result x and the eigenvalue λ satisfy ``‖Aᵀ x - λ x‖₂ <= tolerance * λ``: x is an
    exact eigenvector of a matrix that differs from Aᵀ by at most ``tolerance * λ`` in the spectral norm. If several
    components have the same largest eigenvalue, x has a part in each of them.

    Undirected graphs use locally optimal conjugate gradients, which take about as many passes as the square root of
    those of a power iteration; directed graphs use power iteration. Beside the graph, 56 bytes a vertex. On a
    partitioned graph, a pass takes two supersteps; the partitions decide on the last digits, but the bound holds.

    References
    ----------
    P. Bonacich, "Power and centrality: a family of measures", American Journal of Sociology 92(5), 1987.

    A. Knyazev, "Toward the optimal preconditioned eigensolver", SIAM Journal on Scientific Computing 23(2), 2001.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.eigenvector(gf.from_edges([1, 1, 1], [2, 3, 4]))
    >>> round(found[1] / found[2], 6), round(found.summary["eigenvalue"] ** 2, 6)
    (1.732051, 3.0)
    """
    from goffish.algorithms.dispatch import answer

    asked = Eigenvector.checked(weighted=weighted, tolerance=tolerance, max_iterations=max_iterations)
    return answer(asked, graph, threads=threads)


def katz(
    graph: AnyGraph, *, alpha: float | None = None, weighted: bool = False, tolerance: float = 1e-6,
    max_iterations: int = 1000, threads: int | None = None,
) -> Result:  # fmt: skip
    """Compute the Katz centrality of each vertex.

    The value of a vertex is the number of walks that end there, where a walk of k arcs counts ``alpha ** k``.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. An undirected edge counts as two arcs. For walks that begin at a vertex,
        pass ``graph.reverse``.
    alpha : float, optional
        Factor for each arc, greater than 0 and less than one over the largest eigenvalue [default: 1 / (1 + largest
        number, or sum of weights, of incoming arcs)].
    weighted : bool
        Multiply arcs by their weights [default: False].
    tolerance : float
        Upper bound of the relative error of each value, greater than 0 and less than 1 [default: 1e-6].
    max_iterations : int
        Maximum number of passes over the arcs, at least 1 [default: 1000].
    threads : int, optional
        Number of threads [default: all processors]. All numbers give the same bits.

    Returns
    -------
    Result
        Columns ``vertex`` and ``katz`` (float64, at least 1: the walk without arcs). `summary` holds ``iterations``,
        ``error_bound`` (proved relative error, at most `tolerance`) and ``alpha``; for a partitioned graph also
        ``supersteps``.

    Raises
    ------
    InputError
        If an option is out of range, or the graph has no weights to multiply by.
    JobError
        If the error is not proved after `max_iterations` passes, or `alpha` is so large that values grow without bound.

    Notes
    -----
    The values solve ``x = alpha Aᵀ x + 1`` with the adjacency matrix A. If the changes of a pass are at most ρ < 1, the
    matrix has a nonnegative inverse, and no value has a relative error above ρ, rounding apart. A pass reduces the
    error by the factor ``alpha * λ``, with the largest eigenvalue λ. Beside the graph, 24 bytes a vertex. On a
    partitioned graph, a pass takes one superstep; the partitions decide on the last digits, but the bound holds.

    References
    ----------
    L. Katz, "A new status index derived from sociometric analysis", Psychometrika 18(1), 1953.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 2], [2, 3], directed=True)
    >>> gf.katz(graph, alpha=0.5).to_dict()
    {1: 1.0, 2: 1.5, 3: 1.75}
    """
    from goffish.algorithms.dispatch import answer

    asked = Katz.checked(alpha=alpha, weighted=weighted, tolerance=tolerance, max_iterations=max_iterations)
    return answer(asked, graph, threads=threads)


def hits(
    graph: AnyGraph, *, weighted: bool = False, tolerance: float = 1e-6, max_iterations: int = 1000,
    threads: int | None = None,
) -> Result:  # fmt: skip
    """Compute hubs and authorities (HITS).

    Authorities have arcs from good hubs, and hubs have arcs to good authorities.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze. In undirected graphs both values are the same.
    weighted : bool
        Multiply arcs by their weights [default: False].
    tolerance : float
        Upper bound of the relative residual, greater than 0 and less than 1 [default: 1e-6].
    max_iterations : int
        Maximum number of iterations, each with two passes over the arcs, at least 1 [default: 1000].
    threads : int, optional
        Number of threads [default: all processors]. All numbers give the same bits.

    Returns
    -------
    Result
        Columns ``vertex``, ``hub`` and ``authority`` (float64, not negative; each sums to 1; without arcs all hubs are
        0). `summary` holds ``iterations``, ``residual`` (relative, at most `tolerance`) and ``singular_value`` (the
        largest); for a partitioned graph also ``supersteps``.

    Raises
    ------
    InputError
        If an option is out of range, or the graph has no weights to multiply by.
    JobError
        If the residual exceeds `tolerance` after `max_iterations`.

    Notes
    -----
    With the adjacency matrix A and its largest singular value σ, authorities a and hubs h satisfy ``h = A a`` and
    ``‖Aᵀ h - σ² a‖₂ <= tolerance * σ² ‖a‖₂``, before both are divided by their sums. The method is that of
    `eigenvector` for undirected graphs. Beside the graph and its reverse, 72 bytes a vertex. On a partitioned graph, an
    iteration takes three supersteps; the partitions decide on the last digits, but the bound holds.

    References
    ----------
    J. Kleinberg, "Authoritative sources in a hyperlinked environment", Journal of the ACM 46(5), 1999.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.hits(gf.from_edges([1, 2, 3], [4, 4, 5], directed=True))
    >>> round(found.to_dict("authority")[4], 6), round(found.to_dict("hub")[1], 6)
    (1.0, 0.5)
    """
    from goffish.algorithms.dispatch import answer

    asked = Hits.checked(weighted=weighted, tolerance=tolerance, max_iterations=max_iterations)
    return answer(asked, graph, threads=threads)


def spectral_embedding(
    graph: AnyGraph, *, dimension: int = 8, weighted: bool = False, tolerance: float = 1e-6, max_iterations: int = 1000,
    seed: int = 0, threads: int | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """Embed vertices by eigenvectors of the normalized Laplacian: well connected vertices get similar vectors.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to embed; a partitioned graph is put together in memory. Directions are ignored: arcs between the same
        two vertices in both directions are one edge, which has the sum of their weights.
    dimension : int
        Length of the vectors, from 1 to 4096 [default: 8].
    weighted : bool
        Use the weights of edges [default: False].
    tolerance : float
        Maximum residual, 0 < `tolerance` < 1 [default: 1e-6].
    max_iterations : int
        Maximum number of restarts of the Lanczos iteration [default: 1000].
    seed : int
        Random seed of the first vector, at least 0 [default: 0].
    threads : int, optional
        Number of threads [default: all processors]. They share the products with the matrix.

    Returns
    -------
    array of float64, shape (n, dimension)
        A row for each vertex, in vertex order. Columns are orthogonal eigenvectors of length 1, by ascending
        eigenvalue; the entry of the largest magnitude is positive.

    Raises
    ------
    InputError
        If an option is out of range, or the graph has no weights to use.
    JobError
        If the residual exceeds `tolerance` after `max_iterations` restarts.

    Notes
    -----
    With ``L = I - D⁻¹ᐟ² A D⁻¹ᐟ²``, each column x satisfies ``‖L x - λ x‖₂ <= tolerance``; the residual is computed anew
    from the result. Eigenvectors of eigenvalue 0 are left out: each component has one. In a graph of many components,
    a column therefore separates parts of one component, as a rule the largest, and 0 on the others within `tolerance`.
    Vertices without edges get 0; columns beyond the number of vertices with edges less that of their components are 0.
    Eigenvectors of equal eigenvalues are any orthogonal ones. A self-loop counts once in A and D. Takes 8 bytes a
    vertex for each of ``max(40, 4 * dimension)`` vectors. Requires SciPy for graphs of more than 256 vertices.

    References
    ----------
    U. von Luxburg, "A tutorial on spectral clustering", Statistics and Computing 17 (2007).

    Examples
    --------
    >>> import goffish as gf
    >>> vectors = gf.spectral_embedding(gf.from_edges([1, 2, 3, 3, 4, 5, 6], [2, 3, 1, 4, 5, 6, 4]), dimension=1)
    >>> (vectors[:, 0] > 0).tolist()
    [True, True, True, False, False, False]
    """
    from goffish.algorithms.spectral.embedding import embedding_of
    from goffish.gofs import PartitionedGraph
    from goffish.graph import Graph
    from goffish.graph.guards import GRAPH_ADVICE, expect
    from goffish.threads import interruptible

    asked = SpectralEmbedding.checked(
        dimension=dimension, weighted=weighted, tolerance=tolerance, max_iterations=max_iterations, seed=seed,
    )  # fmt: skip
    expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
    whole = graph.to_graph() if isinstance(graph, PartitionedGraph) else graph
    # Whatever the graph, iterations may be many.
    return interruptible(1 << 62, lambda: embedding_of(whole, threads=threads, **asked.options()).vectors)

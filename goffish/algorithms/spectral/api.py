"""Eigenvector centrality, Katz centrality and HITS: the calls, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Note

if TYPE_CHECKING:
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gopher import Result
    from goffish.graph import Graph


class _Spectral(Algorithm):
    in_memory = True

    weighted: bool = Field(default=False, description="Multiply arcs by their weights.")
    tolerance: float = Field(default=1e-6, gt=0.0, lt=1.0, description="Maximum relative residual.")
    max_iterations: int = Field(default=1000, ge=1, description="Maximum number of passes; the job fails beyond it.")

    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}


class Eigenvector(_Spectral):
    """Eigenvector centrality."""

    name = "eigenvector"
    title = "Eigenvector centrality, along incoming arcs, to a guaranteed residual."

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

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.spectral.in_memory import katz

        return katz(graph, threads=threads, **self.options())


class Hits(_Spectral):
    """Hubs and authorities."""

    name = "hits"
    title = "Hubs and authorities (HITS), to a guaranteed residual."

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.spectral.in_memory import hits

        return hits(graph, threads=threads, **self.options())


def eigenvector(
    graph: AnyGraph, *, weighted: bool = False, tolerance: float = 1e-6, max_iterations: int = 1000,
    threads: int | None = None,
) -> Result:  # fmt: skip
    """Compute the eigenvector centrality of each vertex.

    The value of a vertex is proportional to the sum of the values of the vertices from which arcs lead to it.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. An undirected edge counts as two arcs. For arcs
        that leave a vertex, pass ``graph.reverse``.
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
        ``iterations``, ``residual`` (relative, at most `tolerance`) and ``eigenvalue`` (the largest).

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
    those of a power iteration; directed graphs use power iteration. Beside the graph, 56 bytes a vertex.

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
        Graph to analyze; a partitioned graph is put together in memory. An undirected edge counts as two arcs. For
        walks that begin at a vertex, pass ``graph.reverse``.
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
        ``error_bound`` (proved relative error, at most `tolerance`) and ``alpha``.

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
    error by the factor ``alpha * λ``, with the largest eigenvalue λ. Beside the graph, 24 bytes a vertex.

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
        Graph to analyze; a partitioned graph is put together in memory. In undirected graphs both values are the same.
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
        largest).

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
    `eigenvector` for undirected graphs. Beside the graph and its reverse, 72 bytes a vertex.

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

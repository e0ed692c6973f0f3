"""How far apart vertices are: calls and options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from goffish.algorithms.algorithm import Algorithm, Note

if TYPE_CHECKING:
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gopher import Result
    from goffish.graph import Graph


class Eccentricity(Algorithm):
    """Eccentricity of each vertex."""

    name = "eccentricity"
    title = "Hops from each vertex to the farthest one that it reaches."
    in_memory = True
    one_thread = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.extents.in_memory import eccentricity

        return eccentricity(graph)


class Diameter(Algorithm):
    """Largest distance."""

    name = "diameter"
    title = "Largest number of hops between two vertices, and such a pair."
    in_memory = True
    one_thread = True

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.extents.in_memory import diameter

        return diameter(graph)


class Neighborhood(Algorithm):
    """Pairs of vertices within each number of hops."""

    name = "neighborhood"
    title = "Estimated number of pairs within each number of hops (HyperANF)."
    in_memory = True

    registers: int = Field(default=64, ge=16, le=65536, description="Registers of each vertex, a power of two.")
    seed: int = Field(default=0, description="Random seed.")

    @field_validator("registers")
    @classmethod
    def _power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            raise ValueError("must be a power of two")
        return value

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.extents.in_memory import neighborhood_function

        return neighborhood_function(graph, registers=self.registers, seed=self.seed, threads=threads)


def eccentricity(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Compute the eccentricity of each vertex: the hops to the farthest vertex that it reaches.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Weights are ignored; arcs are followed in their
        direction. Vertices that cannot be reached do not count.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        Columns ``vertex`` and ``eccentricity`` (int64). `summary` holds ``diameter`` and ``radius`` (largest and
        smallest eccentricity) and ``searches``.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    Exact. Each breadth-first search bounds the eccentricities of all vertices of its strongly connected component, from
    above by way of its source and from below by the triangle inequality; vertices whose bounds meet are not searched.
    Undirected graphs take few searches; the components of a directed graph with one vertex take up to one each. 57
    bytes a vertex beside the graph.

    References
    ----------
    F. W. Takes, W. A. Kosters, "Computing the eccentricity distribution of large graphs", Algorithms 6(1), 2013.

    T. Akiba, Y. Iwata, Y. Kawata, "An exact algorithm for diameters of large real directed graphs", SEA 2015.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.eccentricity(gf.from_edges([1, 2, 3], [2, 3, 4])).to_dict()
    {1: 3, 2: 2, 3: 2, 4: 3}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Eccentricity(), graph, threads=threads)


def diameter(graph: AnyGraph, *, threads: int | None = None) -> Result:
    """Compute the diameter of a graph: the largest number of hops from a vertex to one that it reaches.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze, as for `eccentricity`. Pairs of vertices without a path do not count, so that the diameter of
        a disconnected graph is the largest one of its components.
    threads : int, optional
        The kernel uses one thread and warns if you pass this option.

    Returns
    -------
    Result
        Columns ``source``, ``target`` and ``distance`` (int64), with one row: a pair of vertices that are so far apart.
        `summary` holds ``diameter`` and ``searches``.

    Raises
    ------
    InputError
        If `graph` is not a graph, or `threads` is not a positive integer.

    Notes
    -----
    Exact, with the method and memory of `eccentricity`, until no vertex can have a larger eccentricity than the largest
    one that was found. In the worst case a search for each vertex.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.diameter(gf.from_edges([1, 2, 3], [2, 3, 4])).summary["diameter"]
    3
    """
    from goffish.algorithms.dispatch import answer

    return answer(Diameter(), graph, threads=threads)


def neighborhood_function(graph: AnyGraph, *, registers: int = 64, seed: int = 0, threads: int | None = None) -> Result:
    """Estimate the number of pairs of vertices within each number of hops, and the effective diameter.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Weights are ignored; arcs are followed in their
        direction.
    registers : int
        Registers of the counter of each vertex, a power of two from 16 to 65,536 [default: 64]. The relative standard
        error of a counter is 1.04 over the square root of this number, 13 % for 64; that of the sums over many vertices
        is smaller.
    seed : int
        Random seed [default: 0].
    threads : int, optional
        Number of threads [default: all processors]. The result does not depend on it.

    Returns
    -------
    Result
        Columns ``hops`` and ``pairs`` (float64: estimated number of pairs of a vertex and one that it reaches within so
        many hops, that of a vertex and itself included). `summary` holds ``effective_diameter`` (interpolated number of
        hops that 90 % of the pairs with a path need at most) and ``mean_distance`` (of different vertices with a path).

    Raises
    ------
    InputError
        If an option is out of range.

    Notes
    -----
    HyperANF: a HyperLogLog counter for each vertex, of the vertices within t hops, is the union of those of its
    neighbors within t - 1 hops. One pass over the arcs of vertices next to changed counters for each hop, until no
    counter changes. 2 bytes a register and 10 bytes a vertex beside the graph.

    References
    ----------
    P. Boldi, M. Rosa, S. Vigna, "HyperANF", Proc. 20th International Conference on World Wide Web, 2011.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.neighborhood_function(gf.from_edges([1, 2, 3], [2, 3, 4]), registers=1024)
    >>> [round(pairs) for _, pairs in found]
    [4, 10, 14, 16]
    """
    from goffish.algorithms.dispatch import answer

    return answer(Neighborhood.checked(registers=registers, seed=seed), graph, threads=threads)

"""Similarity of vertices: the call, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from goffish.algorithms.algorithm import Algorithm, Note, TableFile

if TYPE_CHECKING:
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gopher import Result
    from goffish.graph import Graph

Metric = Literal["jaccard", "common_neighbors", "overlap", "cosine", "adamic_adar", "resource_allocation"]


class Similarity(Algorithm):
    """Similarity of vertices by their common neighbors."""

    name = "similarity"
    title = "Similar vertices that are not neighbors (link prediction), or the similarity of given pairs."
    in_memory = True
    undirected = True

    pairs: TableFile = Field(default=None, description="Table of pairs to compare, with the columns source and target.")
    metric: Metric = Field(default="jaccard", description="Measure of similarity.")
    top: int = Field(default=10, ge=1, lt=1 << 62, description="Number of pairs to return, without pairs.")
    each: bool = Field(default=True, description="Return the top pairs of each vertex, not of the whole graph.")

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from pathlib import Path

        from goffish.algorithms.similarity.in_memory import similarity
        from goffish.gopher.result import read_table

        pairs = read_table(self.pairs) if isinstance(self.pairs, str | Path) else self.pairs
        return similarity(graph, pairs, metric=self.metric, top=self.top, each=self.each, threads=threads)


def similarity(
    graph: AnyGraph,
    pairs: Any = None,
    *,
    metric: Metric = "jaccard",
    top: int = 10,
    each: bool = True,
    threads: int | None = None,
) -> Result:
    """Compare vertices by their common neighbors: given pairs, or the most similar vertices that are not neighbors.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to analyze; a partitioned graph is put together in memory. Directions, weights, self-loops and parallel
        edges are ignored.
    pairs : table, file of a table, or tuple of two columns, optional
        Pairs of vertex labels to compare: columns ``source`` and ``target`` [default: all pairs of vertices that have a
        common neighbor and no edge between them].
    metric : {"jaccard", "common_neighbors", "overlap", "cosine", "adamic_adar", "resource_allocation"}
        Measure of similarity; see Notes [default: "jaccard"].
    top : int
        Number of pairs to return, at least 1; has no effect with `pairs` [default: 10].
    each : bool
        Return the `top` most similar vertices of each vertex, or else the `top` pairs of the graph; has no effect with
        `pairs` [default: True].
    threads : int, optional
        Number of threads [default: all processors]. All numbers give the same bits.

    Returns
    -------
    Result
        Columns ``source``, ``target`` and ``similarity`` (float64): `pairs` in their order; or the best pairs of each
        vertex by descending similarity; or the best pairs of the graph, each once. Pairs of equal similarity are in the
        order of the vertices. `summary` holds ``pairs`` (number of rows) and ``largest`` (largest similarity).

    Raises
    ------
    InputError
        If an option is out of range, or `pairs` lacks a column or names an unknown vertex.

    Notes
    -----
    With the neighbors N(u), their number d(u) and the common neighbors C of two vertices:

    ===================== =======================
    metric                value
    ===================== =======================
    common_neighbors      number of C
    jaccard               C / (d(u) + d(v) - C)
    overlap               C / min(d(u), d(v))
    cosine                C / sqrt(d(u) d(v))
    adamic_adar           sum of 1 / log d(w) over C
    resource_allocation   sum of 1 / d(w) over C
    ===================== =======================

    Given pairs take at most d(u) + d(v) steps each. The best pairs take a step for each path of two edges, and no
    memory for pairs that are not returned: 20 bytes for each pair, and 12 bytes a vertex and thread.

    References
    ----------
    D. Liben-Nowell, J. Kleinberg, "The link prediction problem for social networks", CIKM, 2003.

    T. Zhou, L. Lü, Y.-C. Zhang, "Predicting missing links via local information", European Physical Journal B 71, 2009.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges(["ann", "ann", "bob", "bob", "eve"], ["x", "y", "x", "y", "y"])
    >>> gf.similarity(graph, (["ann", "ann"], ["bob", "eve"])).to_dict()
    {('ann', 'bob'): 1.0, ('ann', 'eve'): 0.5}
    >>> gf.similarity(graph, metric="common_neighbors", top=1, each=False).to_dict()
    {('ann', 'bob'): 2.0}
    """
    from goffish.algorithms.dispatch import answer

    return answer(Similarity.checked(pairs=pairs, metric=metric, top=top, each=each), graph, threads=threads)

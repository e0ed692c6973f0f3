"""What can be said about, and done to, a division of a graph's vertices into communities.

A division is a column of community ids, one per vertex in vertex order.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.communities import community_kernels as kernels
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.graph import Graph
from goffish.graph.guards import expect, whole_number
from goffish.kernels.csr import NO_WEIGHTS, Csr

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

GRAPH_IN_MEMORY = "expected a goffish Graph; convert a PartitionedGraph with to_graph()"
#: An id range up to this many times the number of values is numbered through a table, not by sorting.
_DENSE_FACTOR = 4


@dataclass(frozen=True, eq=False)
class CommunitySums:
    """Weights of every community, shape (communities,) each.

    Attributes
    ----------
    inside : float64
        Arcs within; an undirected edge counts from both ends, an undirected loop twice.
    out, into : float64
        Arcs from and to the members; of an undirected graph both are the sum of the weighted degrees.
    cut : float64
        Arcs that leave or, in a directed graph, come in.
    total : float
        All arcs: 2m of an undirected graph, m of a directed one.
    """

    inside: Floats
    out: Floats
    into: Floats
    cut: Floats
    total: float

    def modularity(self, resolution: float) -> float:
        """Modularity of the division that was summed."""
        if self.total == 0:
            return 0.0
        expected = (self.out / self.total) * (self.into / self.total)
        return float(np.sum(self.inside / self.total - resolution * expected))

    def volume(self, *, directed: bool) -> Floats:
        """Sum of the weighted degrees of the members."""
        return self.out + self.into if directed else self.out

    def conductance(self, *, directed: bool) -> Floats:
        """Cut over the smaller volume of the community and of the rest; 0 without a cut."""
        volume = self.volume(directed=directed)
        # The rest has at least the weight of the cut, whatever was rounded.
        smaller = np.maximum(np.minimum(volume, volume.sum() - volume), self.cut)
        shares: Floats = np.divide(self.cut, smaller, out=np.zeros(volume.size), where=self.cut > 0)
        return shares


def community_sums(graph: Graph, community: Ids, count: int) -> CommunitySums:
    """Sum the weights of communities 0 … `count` - 1 in one pass over the arcs.

    Raises
    ------
    InputError
        Weights out of range, see `goffish.algorithms.weights.check_range`.
    """
    check_range(graph.weights)
    inside, out, into, cut = np.zeros((4, count))
    kernels.community_sums(arcs_of(graph), graph.directed, community, inside, out, into, cut)
    return CommunitySums(inside, out, into if graph.directed else out, cut, float(out.sum()))


def weighted_degrees(graph: Graph) -> Floats:
    """Weighted degree of every vertex, shape (n,): a loop counts twice; of a directed graph, out plus in."""
    sums = community_sums(graph, np.arange(graph.num_vertices), graph.num_vertices)
    return sums.out + sums.into if graph.directed else sums.out


def arcs_of(graph: Graph) -> Csr:
    """The arcs of a graph, as kernels take them."""
    return Csr(graph.offsets, graph.targets, NO_WEIGHTS if graph.weights is None else graph.weights)


def modularity(graph: Graph, membership: ArrayLike, resolution: float = 1.0) -> float:
    """Modularity of a division.

    Undirected graphs: M. E. J. Newman, M. Girvan, Phys. Rev. E 69 (2004), with the adjacency matrix of
    docs/specs/communities.md, section 2: a loop of weight w has A_ii = 2w and counts 2w in the degree. Directed
    graphs: E. A. Leicht, M. E. J. Newman, Phys. Rev. Lett. 100 (2008),
    ``Q = 1/m sum_ij (A_ij - resolution * out_i * in_j / m) [c_i = c_j]``.

    Parameters
    ----------
    graph : Graph
    membership : integers, shape (n,)
        Community of every vertex in vertex order; any numbers.
    resolution : float
        Factor of the expected weight; larger values favor smaller communities.

    Returns
    -------
    float
        0 for a graph without edges (or with weights of 0 only).

    Raises
    ------
    InputError
        A column of another length or type, or weights out of range, see `goffish.algorithms.weights.check_range`.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.algorithms.communities.communities import modularity
    >>> modularity(gf.from_edges([0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]), [0, 0, 0, 1, 1, 1])
    0.5
    """
    expect(graph, Graph, "graph", GRAPH_IN_MEMORY)
    community, count = _numbered(id_column(membership, graph.num_vertices, "membership"))
    return community_sums(graph, community, count).modularity(check_resolution(resolution))


def conductance(graph: Graph, membership: ArrayLike) -> Floats:
    """Conductance of the communities of a division, by ascending id; see `goffish.conductance`."""
    expect(graph, Graph, "graph", GRAPH_IN_MEMORY)
    column = id_column(membership, graph.num_vertices, "membership")
    ids, community = np.unique(column, return_inverse=True)
    return community_sums(graph, community.astype(np.int64), ids.size).conductance(directed=graph.directed)


def normalise(membership: ArrayLike) -> Ids:
    """The same division with ids 0 … c-1 in order of first appearance, the numbering of all results.

    Parameters
    ----------
    membership : integers, shape (n,)

    Returns
    -------
    int64, shape (n,)
    """
    return _numbered(id_column(membership, None, "membership"))[0]


def merge_small(graph: Graph, membership: ArrayLike, min_size: int, *, resolution: float = 1.0) -> Ids:
    """Join every community with fewer than `min_size` vertices to a neighboring one.

    The smallest community (of equally small ones that with the smaller id) is joined to the neighbor with which
    modularity gains most or loses least (of equally good ones, to the smaller id), whose id the two then bear; this is
    repeated until every community is large enough or has no edge to another. O(a log min_size) for the a arcs of the
    vertices in communities that are or become part of a small one.

    Parameters
    ----------
    graph : Graph
        Edges count in both directions; also edges of weight 0 make neighbors.
    membership : integers, shape (n,)
        Ids as by `normalise` break ties.
    min_size : int
        Vertices that a community must have; 0 and 1 leave everything as it is.
    resolution : float
        Of the modularity.

    Returns
    -------
    int64, shape (n,)
        Ids as by `normalise`.

    Raises
    ------
    InputError
        A column of another length or type, a negative `min_size`, or weights out of range, see
        `goffish.algorithms.weights.check_range`.
    """
    expect(graph, Graph, "graph", GRAPH_IN_MEMORY)
    min_size = whole_number(min_size, "min_size", 0)
    resolution = check_resolution(resolution)
    community, count = _numbered(id_column(membership, graph.num_vertices, "membership"))
    size = np.bincount(community, minlength=count)
    if not count or size.min() >= min_size:
        return community
    sums = community_sums(graph, community, count)
    # A power of two near 1 / total: products of weights neither overflow nor are rounded by it.
    scale = float(np.ldexp(1.0, -int(np.frexp(sums.total)[1]))) if sums.total > np.finfo(np.float64).tiny else 1.0
    root = np.empty(count, np.int64)
    kernels.merge_small(
        arcs_of(graph), arcs_of(graph.reverse), community, size, sums.out * scale, sums.into * scale, scale, resolution,
        min_size, root,
    )  # fmt: skip
    return _numbered(root[community])[0]


def match_ids(old: ArrayLike, new: ArrayLike) -> Ids:
    """Give new communities the ids of the old ones that they continue.

    Every new community takes the id of the old one with which it shares most vertices. No id is given twice: the
    largest overlap is served first, of equal ones that of the smaller old, then of the smaller new id. New
    communities that are left without one are numbered from the largest old id + 1 on, by ascending new id.

    Parameters
    ----------
    old : integers, shape (n,)
        Earlier communities, 0 or larger; -1 for a vertex that was not there.
    new : integers, shape (n,)
        Communities of the same vertices now.

    Returns
    -------
    int64, shape (n,)
        The division `new` under the ids described.

    Raises
    ------
    InputError
        Columns of different length, or ids below those allowed.
    """
    after = id_column(new, None, "new")
    before = id_column(old, after.size, "old")
    for name, column, lowest in (("old", before, -1), ("new", after, 0)):
        if column.size and column.min() < lowest:
            row = int(np.flatnonzero(column < lowest)[0])
            raise InputError(f"{name}: row {row} holds {column[row]}; ids must be at least {lowest}")
    known = before >= 0
    old_ids, from_old = np.unique(before[known], return_inverse=True)
    new_ids, to_new = np.unique(after, return_inverse=True)
    pairs, shared = np.unique(from_old * new_ids.size + to_new[known], return_counts=True)
    # Pairs ascend by old, then by new id, and a stable sort keeps that among equal overlaps.
    pairs = pairs[np.argsort(-shared, kind="stable")]
    partner = np.full(new_ids.size, -1, np.int64)
    kernels.match_greedily(
        pairs // max(new_ids.size, 1), pairs % max(new_ids.size, 1), np.zeros(old_ids.size, bool), partner
    )
    fresh = partner < 0
    given = np.empty(new_ids.size, np.int64)
    given[~fresh] = old_ids[partner[~fresh]]
    given[fresh] = int(before.max(initial=-1)) + 1 + np.arange(np.count_nonzero(fresh))
    return given[to_new]


def id_column(values: ArrayLike, rows: int | None, name: str) -> Ids:
    """Community ids as an int64 column of `rows` rows (`None`: of any length).

    Raises
    ------
    InputError
    """
    try:
        column = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: expected one column of community ids ({error})") from None
    if column.ndim != 1 or (rows is not None and column.size != rows):
        wanted = "(vertices,)" if rows is None else f"({rows},)"
        raise InputError(f"{name} has shape {column.shape}, expected {wanted}: one community id per vertex")
    if column.size and column.dtype.kind not in "iu":
        raise InputError(f"{name}: community ids must be integers, not {column.dtype}")
    if column.dtype == np.uint64 and column.size and column.max() > np.uint64(np.iinfo(np.int64).max):
        raise InputError(f"{name}: community ids must fit in int64")
    return np.ascontiguousarray(column, np.int64)


def check_resolution(resolution: Any) -> float:
    """A finite resolution of at least 0."""
    if isinstance(resolution, bool) or not isinstance(resolution, Real) or not 0 <= float(resolution) < np.inf:
        raise InputError(f"resolution={resolution!r}: must be a number of at least 0")
    return float(resolution)


def _numbered(column: Ids) -> tuple[Ids, int]:
    """Ids in order of first appearance, and how many there are."""
    if not column.size:
        return np.empty(0, np.int64), 0
    low, high = int(column.min()), int(column.max())
    if high - low < _DENSE_FACTOR * column.size + 1024:
        values = column
    else:
        distinct, values = np.unique(column, return_inverse=True)
        low, high = 0, distinct.size - 1
    out = np.empty(column.size, np.int64)
    count = kernels.renumber(values, low, np.full(high - low + 1, -1, np.int64), out)
    return out, int(count)

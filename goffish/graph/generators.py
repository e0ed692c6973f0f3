"""Random and regular graphs. The same seed gives the same graph, whatever the number of threads.

Vertices are 0 to n - 1. Graphs have no self-loops and no parallel edges, except where a function says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.graph import generator_kernels as k
from goffish.graph.assembly import assemble
from goffish.graph.columns import attribute_table
from goffish.graph.graph import Graph
from goffish.graph.guards import expect, whole_number
from goffish.graph.labels import vertex_dtype
from goffish.graph.parallel import run_tasks, thread_count
from goffish.threads import interruptible

__all__ = [
    "barabasi_albert", "configuration_model", "erdos_renyi", "grid", "lfr", "rmat", "stochastic_block_model",
    "watts_strogatz", "with_times",
]  # fmt: skip

_Ends = NDArray[np.integer[Any]]
#: Edges of one task, which takes some 10 ms.
_TASK = 1 << 18
_LARGEST_SCALE = 40


def rmat(
    scale: int,
    edge_factor: int = 16,
    *,
    probabilities: Sequence[float] = (0.57, 0.19, 0.19, 0.05),
    directed: bool = False,
    seed: int = 0,
    threads: int | None = None,
) -> Graph:
    """Draw an R-MAT graph: many vertices with few edges, few with many, as in social networks.

    Parameters
    ----------
    scale : int
        The graph has 2^scale vertices, at most 2^40.
    edge_factor : int
        Edges drawn per vertex; repeated ones count once [default: 16].
    probabilities : sequence of float, length 4
        Chances of the quadrants of the adjacency matrix [default: (0.57, 0.19, 0.19, 0.05), as in Graph500].
    directed : bool
        Whether edges have a direction [default: False].
    seed : int
        Beginning of the random numbers [default: 0].
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Graph
        Vertex numbers are scrambled, so that they say nothing about degrees.

    Raises
    ------
    InputError
        If a number is out of range, or the probabilities do not add up to 1.

    Notes
    -----
    Chakrabarti, Zhan and Faloutsos (SDM 2004). Each edge takes 16 bytes while the graph is drawn.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.generators.rmat(10, seed=1).num_vertices
    1024
    """
    scale, edge_factor = whole_number(scale, "scale", 0), whole_number(edge_factor, "edge_factor", 0)
    if scale > _LARGEST_SCALE:
        raise InputError(f"scale={scale}: must be at most {_LARGEST_SCALE}")
    chances = _chances(probabilities, "probabilities")
    if chances.shape != (4,) or not math.isclose(chances.sum(), 1, abs_tol=1e-6):
        raise InputError(f"probabilities={probabilities!r}: must be four numbers that add up to 1")
    bounds = np.rint(np.cumsum(chances)[:3] * (1 << 21)).astype(np.int64)
    n, edges = 1 << scale, edge_factor << scale
    src, dst = _ends(n, edges)
    _draw(k.rmat_edges, edges, threads, (scale, bounds, _salt(seed), src, dst))
    return _graph(src, dst, n, directed)


def erdos_renyi(
    n: int, probability: float, *, directed: bool = False, seed: int = 0, threads: int | None = None
) -> Graph:
    """Draw a graph in which each pair of vertices has an edge with the same chance.

    Parameters
    ----------
    n : int
        Number of vertices.
    probability : float
        Chance of each edge, 0 to 1.
    directed : bool
        Whether edges have a direction [default: False].
    seed : int
        Beginning of the random numbers [default: 0].
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Graph

    Raises
    ------
    InputError
        If a number is out of range.

    Notes
    -----
    G(n, p), in time that grows with the number of edges and vertices: Batagelj and Brandes (Physical Review E 71,
    2005).

    Examples
    --------
    >>> import goffish as gf
    >>> gf.generators.erdos_renyi(5, 1.0)
    Graph(5 vertices, 10 edges, undirected)
    """
    chance = float(_chances(probability, "probability"))
    return stochastic_block_model([whole_number(n, "n", 0)], [[chance]], directed=directed, seed=seed, threads=threads)


def stochastic_block_model(
    sizes: ArrayLike, probabilities: ArrayLike, *, directed: bool = False, seed: int = 0, threads: int | None = None
) -> Graph:
    """Draw a graph of blocks, in which the chance of an edge depends on the blocks of its ends.

    Parameters
    ----------
    sizes : array-like of int, shape (blocks,)
        Number of vertices of each block; blocks follow one another.
    probabilities : array-like of float, shape (blocks, blocks)
        Chance of an edge from a vertex of one block to one of another; symmetric unless `directed`.
    directed : bool
        Whether edges have a direction [default: False].
    seed : int
        Beginning of the random numbers [default: 0].
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Graph
        With the vertex attribute ``block``, if there are several.

    Raises
    ------
    InputError
        If a number is out of range, or the shapes do not fit.

    Notes
    -----
    Holland, Laskey and Leinhardt (Social Networks 5, 1983). The time grows with the number of edges, and of vertices
    times blocks.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.generators.stochastic_block_model([2, 2], [[1, 0], [0, 1]]).edges.to_pylist()
    [{'source': 0, 'target': 1}, {'source': 2, 'target': 3}]
    """
    counts = _counts(sizes, "sizes")
    chances = _chances(probabilities, "probabilities")
    if chances.shape != (counts.size, counts.size):
        raise InputError(f"probabilities: shape {chances.shape}, expected ({counts.size}, {counts.size}) as for sizes")
    if not directed and not np.array_equal(chances, chances.T):
        raise InputError("probabilities: must be symmetric, or directed=True")
    begins = np.concatenate([[0], np.cumsum(counts)])
    n = int(begins[-1])
    with np.errstate(divide="ignore"):
        skips = np.where(chances == 0, -np.inf, 1 / np.log1p(-chances))
    expected = counts @ chances @ counts / (1 if directed else 2)
    bounds = np.linspace(0, n, 2 + int((expected + n) // _TASK)).astype(np.int64).tolist()
    given, none = (begins, skips, not directed, _salt(seed)), np.empty(0, np.int64)
    rows, used = list(pairwise(bounds)), thread_count(threads)
    # Twice the same numbers: memory for the edges is allocated in between.
    found = interruptible(
        int(expected) + n, run_tasks, k.block_edges, [(*row, *given, none, none) for row in rows], used
    )
    ends = np.concatenate([[0], np.cumsum(found, dtype=np.int64)]).tolist()
    src, dst = _ends(n, ends[-1])
    parts = [(*row, *given, src[a:b], dst[a:b]) for row, (a, b) in zip(rows, pairwise(ends), strict=True) if a < b]
    interruptible(int(expected) + n, run_tasks, k.block_edges, parts, used)
    blocks = {"block": np.repeat(np.arange(counts.size), counts)} if counts.size > 1 else None
    return _graph(src, dst, n, directed, blocks)


def barabasi_albert(n: int, edges: int, *, seed: int = 0, threads: int | None = None) -> Graph:
    """Draw a graph that grows: each new vertex is connected with earlier ones in proportion to their degrees.

    Parameters
    ----------
    n : int
        Number of vertices.
    edges : int
        Edges that each new vertex draws; repeated ones count once, mostly among the first vertices.
    seed : int
        Beginning of the random numbers [default: 0].
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Graph
        Undirected and connected; vertices are numbered in the order in which they joined.

    Raises
    ------
    InputError
        If a number is out of range.

    Notes
    -----
    Barabási and Albert (Science 286, 1999), drawn in parallel as by Sanders and Schulz (Information Processing
    Letters 116, 2016). The first vertex begins with twice `edges` chances.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.generators.barabasi_albert(4, 1, seed=1).num_edges
    3
    """
    n, edges = whole_number(n, "n", 0), whole_number(edges, "edges")
    src, dst = _ends(n, max(n - 1, 0) * edges)
    _draw(k.preferential_edges, n, threads, (edges, _salt(seed), src, dst), begin=1, each=edges)
    return _graph(src, dst, n, False)


def watts_strogatz(n: int, degree: int, probability: float, *, seed: int = 0, threads: int | None = None) -> Graph:
    """Draw a small world: a ring of vertices that are connected with the next ones, and some edges that end elsewhere.

    Parameters
    ----------
    n : int
        Number of vertices.
    degree : int
        Neighbors of each vertex on the ring: even, and below `n`.
    probability : float
        Chance of each edge to end at a random vertex, 0 to 1.
    seed : int
        Beginning of the random numbers [default: 0].
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Graph
        Undirected; edges that coincide count once.

    Raises
    ------
    InputError
        If a number is out of range.

    Notes
    -----
    Watts and Strogatz (Nature 393, 1998).

    Examples
    --------
    >>> import goffish as gf
    >>> gf.generators.watts_strogatz(6, 2, 0.0)
    Graph(6 vertices, 6 edges, undirected)
    """
    n, degree = whole_number(n, "n", 1), whole_number(degree, "degree", 0)
    if degree % 2 or degree >= n:
        raise InputError(f"degree={degree}: must be even and below n={n}")
    chance = float(_chances(probability, "probability"))
    src, dst = _ends(n, n * degree // 2)
    _draw(k.ring_edges, n, threads, (n, degree // 2, chance, _salt(seed), src, dst), each=degree // 2)
    return _graph(src, dst, n, False)


def grid(rows: int, columns: int, *, periodic: bool = False) -> Graph:
    """Build a grid, in which each vertex is connected with the next one of its row and of its column.

    Parameters
    ----------
    rows, columns : int
        Vertex ``row * columns + column`` has these coordinates.
    periodic : bool
        Whether the last row and column are connected with the first ones [default: False].

    Returns
    -------
    Graph
        Undirected.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.generators.grid(2, 3)
    Graph(6 vertices, 7 edges, undirected)
    """
    rows, columns = whole_number(rows, "rows", 0), whole_number(columns, "columns", 0)
    ids = np.arange(rows * columns, dtype=vertex_dtype(rows * columns)).reshape(rows, columns)
    if periodic:
        right, below = np.roll(ids, -1, 1), np.roll(ids, -1, 0)
        ends = [(ids, right), (ids, below)]
    else:
        ends = [(ids[:, :-1], ids[:, 1:]), (ids[:-1], ids[1:])]
    src, dst = (np.concatenate([pair[at].ravel() for pair in ends]) for at in (0, 1))
    return _graph(src, dst, rows * columns, False)


def configuration_model(degrees: ArrayLike, in_degrees: ArrayLike | None = None, *, seed: int = 0) -> Graph:
    """Draw a graph whose vertices have given degrees.

    Parameters
    ----------
    degrees : array-like of int, shape (n,)
        Degree of each vertex; with `in_degrees`, the number of arcs that leave it.
    in_degrees : array-like of int, shape (n,), optional
        Number of arcs that arrive at each vertex: the graph is directed.
    seed : int
        Beginning of the random numbers [default: 0].

    Returns
    -------
    Graph
        Ends are matched at random. A self-loop or repeated edge exchanges an end with a random other edge; the few
        that cannot are left out, so that degrees are at most those given.

    Raises
    ------
    InputError
        If a degree is negative, the degrees add up to an odd number, or both sums differ.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.generators.configuration_model([2, 2, 2], seed=1)
    >>> graph.degrees()["degree"].to_pylist()
    [2, 2, 2]
    """
    given = _counts(degrees, "degrees")
    rng, vertices = np.random.default_rng(_seed(seed)), np.arange(given.size)
    if in_degrees is None:
        if given.sum() % 2:
            raise InputError(f"degrees: add up to {given.sum():,}, which is odd")
        stubs = rng.permutation(np.repeat(vertices, given))
    else:
        arriving = _counts(in_degrees, "in_degrees")
        if arriving.shape != given.shape or arriving.sum() != given.sum():
            raise InputError("in_degrees: must be as many as degrees, with the same sum")
        stubs = np.empty(2 * int(given.sum()), np.int64)
        stubs[0::2] = rng.permutation(np.repeat(vertices, given))
        stubs[1::2] = rng.permutation(np.repeat(vertices, arriving))
    left = _match(stubs, given.size, None, in_degrees is not None, seed)
    return _graph(stubs[2 * left :: 2], stubs[2 * left + 1 :: 2], given.size, in_degrees is not None)


def lfr(
    n: int,
    *,
    degrees: tuple[float, int] = (20, 200),
    communities: tuple[int, int] = (50, 1000),
    mixing: float = 0.3,
    exponents: tuple[float, float] = (2.0, 1.0),
    seed: int = 0,
    threads: int | None = None,
) -> Graph:
    """Draw a graph with planted communities, degrees and sizes of which follow power laws.

    Parameters
    ----------
    n : int
        Number of vertices.
    degrees : tuple of (float, int)
        Average and largest degree [default: (20, 200)].
    communities : tuple of (int, int)
        Smallest and largest community [default: (50, 1000)].
    mixing : float
        Part of the edges of a vertex that leave its community, 0 to 1 [default: 0.3].
    exponents : tuple of (float, float)
        Exponents of the degrees and of the sizes of communities [default: (2, 1)].
    seed : int
        Beginning of the random numbers [default: 0].
    threads : int, optional
        Number of threads [default: all processors].

    Returns
    -------
    Graph
        Undirected, with the vertex attribute ``community``.

    Raises
    ------
    InputError
        If a number is out of range, or no community is large enough for the degrees.

    Notes
    -----
    Lancichinetti, Fortunato and Radicchi (Physical Review E 78, 2008). Ends are matched as in `configuration_model`,
    inside each community and between communities.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.generators.lfr(1000, degrees=(10, 50), communities=(20, 100), seed=1)
    >>> gf.louvain(graph, seed=1).summary["communities"] > 10
    True
    """
    n, share = whole_number(n, "n", 1), float(_chances(mixing, "mixing"))
    rng = np.random.default_rng(_seed(seed))
    degree = -np.sort(-_powers_of_mean(rng, n, degrees, exponents[0]))
    sizes = -np.sort(-_sizes(rng, n, communities, exponents[1]))
    inside = np.floor(degree * (1 - share) + rng.random(n)).astype(np.int64)
    order = np.argsort(-inside, kind="stable")
    community, slots = np.empty(n, np.int64), np.repeat(np.arange(sizes.size), sizes)
    put = k.draw_communities(inside[order], sizes, slots, _salt(seed), community)
    if put < n:
        size, wanted = int(sizes[0]), int(inside[order[put]])
        raise InputError(
            f"communities={communities!r}: too few have more than {wanted} vertices, as vertices of {wanted} edges"
            f" inside their community need; the largest has {size}. Allow larger ones, or more mixing"
        )
    community[order] = community.copy()
    names = rng.permutation(n)
    src, dst = _edges_inside(rng, names, inside, community, seed, threads)
    away = np.repeat(names, degree - inside)
    stubs = rng.permutation(away)[: away.size - away.size % 2]
    groups = np.empty(n, np.int64)
    groups[names] = community
    left = _match(stubs, n, groups, False, seed)
    src, dst = np.concatenate([src, stubs[2 * left :: 2]]), np.concatenate([dst, stubs[2 * left + 1 :: 2]])
    return _graph(src, dst, n, False, {"community": groups})


def _edges_inside(
    rng: np.random.Generator, names: _Ends, inside: _Ends, community: _Ends, seed: int, threads: int | None
) -> tuple[_Ends, _Ends]:
    """Match the ends inside each community."""
    stubs, owner = np.repeat(names, inside), np.repeat(community, inside)
    order = np.lexsort((rng.random(stubs.size), owner))
    stubs = stubs[order]
    counts = np.bincount(owner, minlength=int(community.max()) + 1)
    bounds = np.concatenate([[0], np.cumsum(counts)]).tolist()
    pieces = [stubs[a : b - (b - a) % 2] for a, b in pairwise(bounds)]
    tasks = [(piece, names.size, None, False, (seed, at)) for at, piece in enumerate(pieces)]
    left = interruptible(32 * stubs.size, run_tasks, _match, tasks, thread_count(threads))
    kept = [piece[2 * bad :] for piece, bad in zip(pieces, left, strict=True)]
    ends = np.concatenate(kept) if kept else stubs[:0]
    return ends[0::2], ends[1::2]


def _powers_of_mean(rng: np.random.Generator, n: int, wanted: tuple[float, int], exponent: float) -> _Ends:
    """Draw whole numbers from a power law with a given mean and largest value."""
    mean, most = wanted
    values = np.arange(1, whole_number(most, "the largest degree") + 1, dtype=np.float64)
    if not 1 <= mean <= most:
        raise InputError(f"degrees={wanted!r}: the average must be from 1 to the largest")
    low, high = 1.0, float(most)
    for _ in range(60):  # a smallest value of which a part is drawn, so that every mean can be reached
        least = (low + high) / 2
        chances = _power_law(values, least, exponent)
        low, high = (least, high) if chances @ values < mean else (low, least)
    return rng.choice(values.astype(np.int64), n, p=_power_law(values, high, exponent))


def _power_law(values: NDArray[np.float64], least: float, exponent: float) -> NDArray[np.float64]:
    """Chances of whole numbers; of those around the smallest one, a part."""
    chances = values**-exponent * np.clip(values - least + 1, 0, 1)
    return np.asarray(chances / chances.sum())


def _sizes(rng: np.random.Generator, n: int, allowed: tuple[int, int], exponent: float) -> _Ends:
    """Draw sizes of communities that add up to `n`."""
    least, most = whole_number(allowed[0], "the smallest community"), whole_number(allowed[1], "the largest community")
    if not least <= most or n < least:
        raise InputError(f"communities={allowed!r}: expected (smallest, largest), of which the smallest is at most n")
    values = np.arange(least, most + 1)
    drawn = rng.choice(values, n // least + 1, p=_power_law(values.astype(np.float64), least, exponent))
    sizes = drawn[: int(np.searchsorted(np.cumsum(drawn), n, side="right"))]
    rest = n - int(sizes.sum())
    while 0 < rest < least and (free := np.flatnonzero(sizes < most)[:rest]).size:
        sizes[free] += 1
        rest -= free.size
    return np.append(sizes, rest) if rest else sizes


def with_times(graph: Graph, events: int, span: int, *, seed: int = 0) -> Graph:
    """Draw events on the edges of a graph: a temporal graph.

    Parameters
    ----------
    graph : Graph
        Graph in memory, with edges.
    events : int
        Number of events; each is on a random edge.
    span : int
        Times are whole numbers from 0 to `span` - 1.
    seed : int
        Beginning of the random numbers [default: 0].

    Returns
    -------
    Graph
        One edge per event, ordered by its ends, with the edge attribute ``timestamp``: the columns of `Graph.edges` are
        what `goffish.temporal_paths` takes. Weights and attributes of edges are left out.

    Raises
    ------
    InputError
        If a number is out of range, or the graph has no edges.

    Examples
    --------
    >>> import goffish as gf
    >>> events = gf.generators.with_times(gf.generators.grid(2, 2), 100, 3600, seed=1)
    >>> events.num_edges, events.edges.column_names
    (100, ['source', 'target', 'timestamp'])
    """
    expect(graph, Graph, "graph", "expected a goffish Graph")
    events, span = whole_number(events, "events", 0), whole_number(span, "span")
    if graph.num_edges == 0:
        raise InputError("graph: has no edges")
    rng = np.random.default_rng(_seed(seed))
    src, dst, _, _ = graph.edge_columns()
    drawn = rng.integers(graph.num_edges, size=events)
    times = {"timestamp": np.sort(rng.integers(span, size=events))}
    return Graph(*assemble(
        src[drawn], dst[drawn], None, graph.num_vertices, graph.directed, "keep", "keep", graph.labels,
        graph.vertex_attributes, attribute_table(times, events, "edge_attributes"),
    ))  # fmt: skip


def _match(stubs: _Ends, n: int, groups: _Ends | None, directed: bool, seed: Any) -> int:
    table = np.full(1 << max(4, (2 * stubs.size).bit_length()), -1, np.int64)
    given = np.empty(0, np.int64) if groups is None else groups
    return int(k.match_stubs(stubs, n, given, directed, _salt(seed), table))


def _graph(
    src: _Ends, dst: _Ends, n: int, directed: bool, attributes: dict[str, NDArray[np.int64]] | None = None
) -> Graph:
    table = None if attributes is None else attribute_table(attributes, n, "vertex_attributes")
    ends = (np.ascontiguousarray(one, vertex_dtype(n)) for one in (src, dst))
    return Graph(*interruptible(
        8 * src.size, assemble, *ends, None, n, directed, "drop", "min", None, table, None,
    ))  # fmt: skip


def _draw(
    draw: Callable[..., None], count: int, threads: int | None, given: tuple[Any, ...], begin: int = 0, each: int = 1
) -> None:
    """Call ``draw(first, last, *given)`` for ranges of `count` numbers, each with `each` edges."""
    step = max(1, _TASK // each) if each else count + 1
    tasks = [(first, min(first + step, count), *given) for first in range(begin, count, step)]
    interruptible(count * each * 8, run_tasks, draw, tasks, thread_count(threads))


def _ends(n: int, edges: int) -> tuple[_Ends, _Ends]:
    try:
        return np.empty(edges, vertex_dtype(n)), np.empty(edges, vertex_dtype(n))
    except (MemoryError, ValueError):
        raise InputError(f"{edges:,} edges do not fit in memory") from None


def _salt(seed: Any) -> np.uint64:
    return np.uint64(np.random.SeedSequence(_seed(seed)).generate_state(1, np.uint64)[0])


def _seed(seed: Any) -> Any:
    return seed if isinstance(seed, tuple) else whole_number(seed, "seed", 0)


def _counts(values: ArrayLike, name: str) -> NDArray[np.int64]:
    found = np.asarray(values)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu") or (found < 0).any():
        raise InputError(f"{name}: must be one column of non-negative integers")
    return found.astype(np.int64)


def _chances(values: ArrayLike, name: str) -> NDArray[np.float64]:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name}={values!r}: must be numbers from 0 to 1") from None
    if not ((found >= 0) & (found <= 1)).all():
        raise InputError(f"{name}={values!r}: must be numbers from 0 to 1")
    return found

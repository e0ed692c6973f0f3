"""Communities: the calls, and the options of Louvain, Leiden and Infomap."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from goffish.algorithms.algorithm import Algorithm, Note, TableFile
from goffish.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import ArrayLike, NDArray

    from goffish.algorithms.communities.communities import Communities
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


def _as_seed(value: Any) -> Any:
    if isinstance(value, str):
        if value == "random":
            return None
        if value.isdecimal():
            return int(value)
        raise ValueError("must be an integer of at least 0, or random")
    return value


Seed = Annotated[
    Annotated[int, Field(ge=0)] | Literal["random"] | None,
    BeforeValidator(_as_seed),
    WithJsonSchema({"type": "string"}),
]


class Louvain(Algorithm):
    """Communities of high modularity."""

    name = "louvain"
    title = "Communities of high modularity, by the parallel Louvain or Leiden method."
    final_table = False
    extra_tables: ClassVar = {
        "hierarchy": "Table of all levels: level, vertex, community.",
        "communities": "Table of the communities: size, weights, conductance, central members.",
    }

    resolution: float = Field(
        default=1.0,
        ge=0.0,
        allow_inf_nan=False,
        description="Resolution: above 1 for smaller communities, below 1 for larger ones.",
    )
    seed: Seed = Field(
        default=0, description="Random seed; the result does not depend on the number of threads. random: draw a seed."
    )
    refine: Literal["vertices", "leiden", "none"] = Field(
        default="vertices",
        description="Move single vertices again at the end, guarantee connected communities (leiden), or none.",
    )
    variant: Literal["default", "partitioned", "sequential"] = Field(
        default="default",
        description="partitioned: the published algorithm, on the engine; sequential: the published baseline, in one "
        "thread.",
    )
    level: int | None = Field(
        default=None, ge=1, description="Level of the hierarchy to return; 1 is the finest [default: the coarsest]."
    )
    max_levels: int | None = Field(default=None, ge=1, description="Maximum number of collapses [default: unlimited].")
    max_passes: int = Field(default=20, ge=1, description="Maximum number of passes over the vertices of a level.")
    threshold: float = Field(
        default=1e-6,
        ge=0.0,
        allow_inf_nan=False,
        description="Stop after a level that increases the modularity by no more than this.",
    )
    least_gain: float = Field(
        default=3e-4, ge=0.0, lt=1.0,
        description="Minimum gain of a move, as a share of the vertex's edges. Published variants accept any gain.",
    )  # fmt: skip
    min_size: int = Field(default=1, ge=1, description="Merge smaller communities into a neighboring one.")
    initial: TableFile = Field(
        default=None, description="Warm start: table of an earlier result, whose communities keep their ids."
    )
    fixed: TableFile = Field(
        default=None,
        description="Fixed vertices: table with the column vertex and, without initial, the column community.",
    )
    truth: TableFile = Field(
        default=None, description="Table of known communities to compare the result with (NMI, ARI, AMI)."
    )
    order: Literal["random", "ascending", "descending", "neighbour", "natural"] = Field(
        default="random", description="Order in which the variants partitioned and sequential visit vertices."
    )
    repair_rounds: int = Field(
        default=3,
        ge=0,
        description="On the engine: maximum number of boundary rounds without refinement or with more than 2^25 rows.",
    )
    null_model: Literal["local", "global"] = Field(
        default="local", description="On the engine: count cut edges in degrees on level 1 (global) or not (local)."
    )
    blocks: int | None = Field(
        default=None,
        ge=1,
        description="Number of vertex blocks that are scanned in parallel [default: by the size of the graph].",
    )

    def needs_engine(self) -> bool:
        return self.variant == "partitioned"

    def single_threaded(self) -> str | None:
        return "variant='sequential'" if self.variant == "sequential" else super().single_threaded()

    def only_whole(self) -> list[str]:
        return ["variant"] * (self.variant == "sequential")

    @model_validator(mode="after")
    def _agree(self) -> Louvain:
        if self.fixed is not None and self.min_size > 1:
            raise ValueError(
                "fixed and min_size are mutually exclusive: a small community of fixed vertices cannot be merged"
            )
        for name in ("initial", "fixed"):
            if self.variant != "default" and getattr(self, name) is not None:
                raise ValueError(f"{name} requires variant='default'")
        return self

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        from goffish.algorithms.communities.named import starting_point
        from goffish.algorithms.communities.subgraph.program import PartitionedLouvain, Refinement

        if self.variant == "sequential":
            raise InputError("variant='sequential' works only in memory; omit parts and engine")
        start, fixed = starting_point(graph, _table(self.initial), _held(_table(self.fixed)))
        published = self.variant == "partitioned"
        # The levels as published have neither directions nor a start.
        refine = not published and (self.refine != "none" or graph.info.directed or start is not None)
        return PartitionedLouvain(
            order=self.order,
            seed=self._seed(),
            eps=self.threshold,
            resolution=self.resolution,
            max_levels=self.max_levels,
            repair_rounds=0 if published else self.repair_rounds,
            refine=refine,
            connected=self.refine == "leiden",
            null_model=self.null_model,
            refinement=Refinement(self.least_gain, self.max_passes, self.blocks, start, fixed),
        )

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        if self.variant == "sequential":
            return self._chosen(self._sequential(graph))
        from goffish.algorithms.communities.in_memory import louvain

        def report(stage: int, passes: int, gain: float) -> None:
            if note is not None:
                note(f"stage {stage}, pass {passes}, modularity +{gain:.5f}")

        return self._chosen(
            louvain(
                graph,
                **{name: getattr(self, name) for name in _WHOLE},
                initial=_table(self.initial),
                fixed=_held(_table(self.fixed)),
                threads=threads,
                progress=None if note is None else report,
            )
        )

    def _sequential(self, graph: Graph) -> Communities:
        from goffish.algorithms.communities.communities import make_communities
        from goffish.algorithms.communities.sequential import sequential_louvain

        run = sequential_louvain(
            graph, order=self.order, seed=self._seed(), eps=self.threshold,
            resolution=self.resolution, max_levels=self.max_levels,
        )  # fmt: skip
        figures = {"passes": sum(run.passes), "first_level_share": round(run.first_level_share, 4)}
        made = make_communities(
            graph, run.maps, modularity=run.modularity[-1], resolution=self.resolution, summary_extra=figures
        )
        return made.without_small(self.min_size)

    def conclude(self, graph: PartitionedGraph, table: pa.Table, stats: RunStats, note: Note | None = None) -> Result:
        from goffish.algorithms.communities.communities import from_levels

        made = from_levels(graph, table, stats, self.resolution).without_small(self.min_size)
        return self._chosen(made if self.initial is None else made.named_like(_table(self.initial)))

    def _chosen(self, found: Communities) -> Communities:
        """The level that was asked for, compared with the truth."""
        if self.level is not None:
            found = found.at_level(self.level)
        if self.truth is not None:
            found = found.compared_with(_table(self.truth))
        return found

    def write_extra(self, result: Any, name: str, path: str) -> None:
        if name == "hierarchy":
            result.write_hierarchy(path)
        else:
            result.write_communities(path)

    def _seed(self) -> int:
        """The seed, or one that is drawn now."""
        import secrets

        return self.seed if isinstance(self.seed, int) else secrets.randbits(32)


class Infomap(Algorithm):
    """Communities that a random walk rarely leaves."""

    name = "infomap"
    title = "Communities that a random walk rarely leaves, by the map equation (Infomap)."
    in_memory = True
    extra_tables: ClassVar = {"communities": Louvain.extra_tables["communities"]}

    damping: float = Field(
        default=0.85, ge=0.0, lt=1.0, description="In directed graphs: probability of following an arc."
    )
    seed: Seed = Field(default=0, description="Random seed. random: draw a seed.")
    trials: int = Field(default=1, ge=1, le=1 << 20, description="Number of searches; the shortest code is returned.")
    threshold: float = Field(
        default=2e-3,
        ge=0.0,
        allow_inf_nan=False,
        description="Stop after an iteration that shortens the code by no more than this, in bits.",
    )

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        from goffish.algorithms.communities.infomap import infomap

        def report(iteration: int, gain: float) -> None:
            if note is not None:
                note(f"iteration {iteration}, code length -{gain:.5f} bits")

        assert not isinstance(self.seed, str)
        return infomap(
            graph, damping=self.damping, seed=self.seed, trials=self.trials, threshold=self.threshold, threads=threads,
            progress=report,
        )  # fmt: skip

    def write_extra(self, result: Any, name: str, path: str) -> None:
        result.write_communities(path)


_WHOLE = ("resolution", "seed", "refine", "threshold", "max_levels", "max_passes", "min_size", "blocks", "least_gain")


def _table(given: Any) -> Any:
    """A table file as a table, anything else as it is."""
    if isinstance(given, str | Path):
        from goffish.gopher.result import read_table

        return read_table(given)
    return given


def _held(given: Any) -> Any:
    """Fixed vertices as labels or as a mapping, also where a table names them."""
    import pyarrow as pa

    if not isinstance(given, pa.Table):
        return given
    if "vertex" not in given.column_names:
        raise InputError(f"fixed has no column 'vertex'; available: {', '.join(given.column_names) or 'none'}")
    labels = given["vertex"].to_pylist()
    if "community" not in given.column_names:
        return labels
    return dict(zip(labels, given["community"].to_pylist(), strict=True))


def louvain(
    graph: AnyGraph,
    *,
    resolution: float = 1.0,
    seed: int | None = 0,
    refine: Literal["vertices", "leiden", "none"] = "vertices",
    level: int | None = None,
    min_size: int = 1,
    initial: Any = None,
    fixed: Any = None,
    truth: Any = None,
    threads: int | None = None,
    **more: Any,
) -> Communities:
    """Find communities of high modularity with the Louvain or Leiden method.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to divide. A directed graph is divided by directed modularity (Leicht and Newman 2008); the variants
        "partitioned" and "sequential" maximize the modularity of A + Aᵀ. A partitioned graph runs on the engine.
    resolution : float
        Resolution γ of the null model, at least 0: above 1 for smaller communities, below 1 for larger ones [default:
        1.0].
    seed : int or None
        Random seed, at least 0 [default: 0]. The same seed gives the same communities for any number of threads and any
        order of the edges; ``None`` draws a seed.
    refine : {"vertices", "leiden", "none"}
        Refinement. "vertices" moves single vertices and small communities again at the end; "leiden" guarantees that
        each community is connected and takes about twice as long [default: "vertices"].
    level : int, optional
        Level of the hierarchy to return, 1 being the finest [default: the coarsest].
    min_size : int
        Merge communities of fewer vertices into a neighboring one [default: 1].
    initial : Communities, table, mapping or array-like, optional
        Warm start: communities to start from, which keep their ids. Not with a `variant`.
    fixed : sequence of labels, or mapping of label to community, optional
        Vertices that stay in their community of `initial`; with a mapping, vertices of the same community stay together
        and those of different communities stay apart. Not with `min_size` or a `variant`.
    truth : Communities, table, mapping or array-like, optional
        Known communities to compare the result with.
    threads : int, optional
        Number of threads [default: all processors]. ``variant="sequential"`` uses one thread and warns if you pass this
        option.
    **more
        Further options, listed under Other Parameters.

    Returns
    -------
    Communities
        Columns ``vertex`` and ``community``. `summary` holds ``communities``, ``modularity``, ``levels`` and
        ``passes``; with `truth` also ``nmi``, ``ari``, ``ami`` and ``compared``; on the engine ``level_1_communities``,
        ``merged_vertices``, ``cut_fraction`` and ``supersteps``.

    Other Parameters
    ----------------
    variant : {"default", "partitioned", "sequential"}
        "partitioned" is the published algorithm, on the engine; "sequential" the published baseline, in one thread
        [default: "default"].
    max_levels : int
        Maximum number of collapses, at least 1 [default: unlimited].
    max_passes : int
        Maximum number of passes over the vertices of a level, at least 1 [default: 20].
    threshold : float
        Stop after a level that increases the modularity by no more than this [default: 1e-6].
    least_gain : float
        Minimum gain of a move, as a share of the edges of the vertex, 0 <= value < 1 [default: 3e-4]. Larger values
        keep communities apart; published variants accept any gain.
    order : {"random", "ascending", "descending", "neighbour", "natural"}
        Order in which the variants "partitioned" and "sequential" visit vertices [default: "random"].
    repair_rounds : int
        On the engine: maximum number of rounds over the boundary without refinement or with more than 2^25 rows
        [default: 3].
    null_model : {"local", "global"}
        On the engine: whether degrees on level 1 count cut edges ("global") or not ("local") [default: "local"].
    blocks : int
        Number of vertex blocks that are scanned in parallel, at least 1, with at most one thread each [default: chosen
        by the size of the graph, 2 up to 67 M arcs]. The result depends on it.
    note : callable
        Called with a line of text that reports the progress.
    parts, method, units, comm, spark, output, max_supersteps : optional
        Options of the engine; see `goffish.run`.
    checkpoint_dir, checkpoint_every, resume, progress : optional
        Options of the engine; see `goffish.run`.

    Raises
    ------
    InputError
        If an option is unknown, out of range or contradicts another one, or `initial`, `fixed` or `truth` does not
        match the vertices of the graph.

    Notes
    -----
    Vertices move to the neighboring community with the largest gain of modularity; communities are then collapsed to
    vertices, and the process repeats. Each pass is linear in the number of arcs.

    References
    ----------
    V. Blondel, J.-L. Guillaume, R. Lambiotte, E. Lefebvre, "Fast unfolding of communities in large networks", JSTAT
    P10008 (2008). V. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden", Scientific Reports 9 (2019). E.
    Leicht, M. Newman, "Community structure in directed networks", Physical Review Letters 100 (2008).

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.louvain(gf.from_edges([1, 2, 3, 3, 4, 5, 6], [2, 3, 1, 4, 5, 6, 4]))
    >>> found.to_dict()
    {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1}
    >>> round(found.modularity, 4)
    0.3571
    """
    from goffish.algorithms.dispatch import RUN_OPTIONS, answer

    running = {name: more.pop(name) for name in RUN_OPTIONS & more.keys()}
    asked = Louvain.checked(
        resolution=resolution, seed=seed, refine=refine, level=level, min_size=min_size, initial=initial, fixed=fixed,
        truth=truth, **more,
    )  # fmt: skip
    return cast("Communities", answer(asked, graph, threads=threads, **running))


def infomap(
    graph: AnyGraph, *, damping: float = 0.85, seed: int | None = 0, trials: int = 1, threshold: float = 2e-3,
    threads: int | None = None, note: Note | None = None,
) -> Communities:  # fmt: skip
    """Find communities that a random walk rarely leaves (Infomap, two levels).

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to divide, with or without directions and weights; a partitioned graph is put together in memory.
    damping : float
        In directed graphs: probability of following an arc, 0 <= `damping` < 1 [default: 0.85].
    seed : int or None
        Random seed, at least 0 [default: 0]. The same seed gives the same communities for any number of threads;
        ``None`` draws a seed.
    trials : int
        Number of searches, of which the shortest code is returned, from 1 to 2^20 [default: 1].
    threshold : float
        Stop a search after an iteration that shortens the code by no more than this, in bits [default: 0.002].
    threads : int, optional
        Number of threads [default: all processors]. They share the trials; a single search moves vertices on one
        thread.
    note : callable, optional
        Called with a line of text that reports the progress.

    Returns
    -------
    Communities
        Columns ``vertex`` and ``community``, one level. `summary` holds ``communities``, ``modularity``, ``levels``,
        ``codelength`` (bits per step) and ``passes``. Each community is connected if directions are ignored, and the
        code is not longer than that of the connected components.

    Raises
    ------
    InputError
        If an option is out of range, or a weight is negative or out of range.

    Notes
    -----
    Minimizes the map equation, see `codelength`. Vertices move to the neighboring community with which the code is
    shortest, communities are collapsed to vertices, and the process repeats; then vertices of every level move again.
    Each iteration divides the communities into parts by moves from single vertices and moves these parts. A pass is
    linear in the number of arcs. Memory beyond the graph: about 70 bytes a vertex, in directed graphs also 40 bytes an
    arc.

    References
    ----------
    M. Rosvall, C. Bergstrom, "Maps of random walks on complex networks reveal community structure", PNAS 105 (2008).
    M. Rosvall, D. Axelsson, C. Bergstrom, "The map equation", European Physical Journal Special Topics 178 (2009).
    R. Lambiotte, M. Rosvall, "Ranking and clustering of nodes in networks with smart teleportation", Physical Review E
    85 (2012).

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.infomap(gf.from_edges([1, 2, 3, 3, 4, 5, 6], [2, 3, 1, 4, 5, 6, 4]))
    >>> found.to_dict()
    {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1}
    >>> round(found.codelength, 4)
    2.3207
    """
    from goffish.algorithms.dispatch import answer

    asked = Infomap.checked(damping=damping, seed=seed, trials=trials, threshold=threshold)
    return cast("Communities", answer(asked, graph, threads=threads, note=note))


def agreement(first: Any, second: Any) -> dict[str, float]:
    """Measure how well two divisions of the same items agree.

    Parameters
    ----------
    first, second : array-like, shape (n,)
        Group of each item, in the same order: numbers, strings or other hashable values.

    Returns
    -------
    dict of str to float
        ``nmi``: mutual information divided by the arithmetic mean of the entropies (0 to 1); ``ari``: adjusted Rand
        index; ``ami``: adjusted mutual information. All three are symmetric and 1 for equal divisions; ``ari`` and
        ``ami`` average 0 for random divisions.

    Raises
    ------
    InputError
        If the columns are empty or differ in length, or an item has no group.

    References
    ----------
    L. Hubert, P. Arabie, "Comparing partitions", Journal of Classification 2 (1985). N. X. Vinh, J. Epps, J. Bailey,
    "Information theoretic measures for clusterings comparison", JMLR 11 (2010).

    Examples
    --------
    >>> import goffish as gf
    >>> gf.agreement([0, 0, 1, 1], [5, 5, 7, 7])
    {'nmi': 1.0, 'ari': 1.0, 'ami': 1.0}
    """
    from goffish.algorithms.communities.agreement import agreement as compare

    return compare(first, second)


def modularity(graph: Graph, membership: Any, resolution: float = 1.0) -> float:
    """Compute the modularity of a division of a graph.

    Parameters
    ----------
    graph : Graph
        Graph in memory. Weights are used if there are any.
    membership : array-like of int, shape (n,)
        Community of each vertex, in vertex order.
    resolution : float
        Resolution γ of the null model, at least 0 [default: 1.0].

    Returns
    -------
    float
        Modularity, at most 1; 0 for a graph without edges.

    Raises
    ------
    InputError
        If `membership` does not have one integer per vertex, or `resolution` is negative or not finite.

    Notes
    -----
    ``Q = Σ_c (w_c / m - γ (k_c / 2m)²)`` for undirected graphs, with the internal weight w_c and the total degree k_c
    of each community and the total weight m; ``Q = Σ_c (w_c / m - γ k_c⁺ k_c⁻ / m²)`` for directed ones.

    References
    ----------
    M. Newman, "Modularity and community structure in networks", PNAS 103 (2006).

    Examples
    --------
    >>> import goffish as gf
    >>> gf.modularity(gf.from_edges([1, 2, 3, 4, 5, 6], [2, 3, 1, 5, 6, 4]), [0, 0, 0, 1, 1, 1])
    0.5
    """
    from goffish.algorithms.communities.divisions import modularity as of

    return of(graph, membership, resolution)


def codelength(graph: Graph, membership: ArrayLike, damping: float = 0.85) -> float:
    """Compute the code length of a division of a graph by the map equation: the shorter, the better.

    Parameters
    ----------
    graph : Graph
        Graph in memory. Weights are used if there are any.
    membership : array-like of int, shape (n,)
        Community of each vertex, in vertex order.
    damping : float
        In directed graphs: probability of following an arc, 0 <= `damping` < 1 [default: 0.85].

    Returns
    -------
    float
        Bits per step of a random walk; 0 for a graph without edges.

    Raises
    ------
    InputError
        If `membership` does not have one integer per vertex, or `damping` or a weight is out of range.

    Notes
    -----
    ``L = H(enter) + Σ_c H(leave_c, flow of the vertices of c)``, where each entropy is multiplied by the sum of its
    flows. In an undirected graph an edge carries its share of the weight in both directions, a self-loop twice. In a
    directed graph the walker follows arcs by their weights; with probability ``1 - damping``, and from vertices without
    arcs, it goes to a vertex drawn by the weight of its out-arcs. Only steps along arcs are encoded (unrecorded
    teleportation). Flows have a total error of at most
    1e-9 for `damping` up to 0.98.

    References
    ----------
    M. Rosvall, D. Axelsson, C. Bergstrom, "The map equation", European Physical Journal Special Topics 178 (2009).

    Examples
    --------
    >>> import goffish as gf
    >>> triangles = gf.from_edges([1, 2, 3, 4, 5, 6], [2, 3, 1, 5, 6, 4])
    >>> round(gf.codelength(triangles, [0, 0, 0, 1, 1, 1]), 4), round(gf.codelength(triangles, [0] * 6), 4)
    (1.585, 2.585)
    """
    from goffish.algorithms.communities.map_equation import codelength as of

    return of(graph, membership, Infomap.checked(damping=damping).damping)


def conductance(graph: Graph, membership: ArrayLike) -> NDArray[np.float64]:
    """Compute the conductance of each community of a division: the lower, the better it is separated.

    Parameters
    ----------
    graph : Graph
        Graph in memory. Weights are used if there are any.
    membership : array-like of int, shape (n,)
        Community of each vertex, in vertex order.

    Returns
    -------
    array of float64, shape (communities,)
        Conductance from 0 to 1, in ascending order of the ids of the communities.

    Raises
    ------
    InputError
        If `membership` does not have one integer per vertex, or a weight is negative or out of range.

    Notes
    -----
    Weight of the edges that leave the community, divided by the smaller volume (sum of the weighted degrees) of the
    community and of the rest; 0 without such edges. In directed graphs, arcs out and in count.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.conductance(gf.from_edges([1, 2, 3, 3, 4, 5, 6], [2, 3, 1, 4, 5, 6, 4]), [8, 8, 8, 9, 9, 9]).round(3)
    array([0.143, 0.143])
    """
    from goffish.algorithms.communities.divisions import conductance as of

    return of(graph, membership)

"""The call of `aggregate_messages`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from goffish.algorithms.aggregation.columns import Message
    from goffish.algorithms.dispatch import AnyGraph
    from goffish.gopher import Result
    from goffish.graph import Graph


def aggregate_messages(
    graph: AnyGraph | None,
    message: Message | None = None,
    *,
    combine: Literal["sum", "min", "max", "mean", "count"] = "sum",
    direction: Literal["out", "in", "both"] = "out",
    values: Any = None,
    engine: str = "auto",
    parts: int | None = None,
    method: str | None = None,
    **running: Any,
) -> Result:
    """Send a message along every edge and combine the messages at each vertex.

    Parameters
    ----------
    graph : Graph, PartitionedGraph or None
        Graph to analyze; ``None`` as in `goffish.run`.
    message : callable, optional
        Called with three columns (float64, one entry per edge of a batch): the values of the senders, the values of the
        receivers, and the weights (1 in an unweighted graph). Returns a column of as many numbers (NumPy or Arrow), or
        one number; NaN and null send nothing. Each message must depend on its own edge only. Default: the value of the
        sender.
    combine : {"sum", "min", "max", "mean", "count"}
        How the messages to a vertex are combined [default: "sum"].
    direction : {"out", "in", "both"}
        Send along the edges, against them, or both ways [default: "out"]. In an undirected graph, every edge carries
        messages both ways.
    values : array-like of shape (n,), or str, optional
        Number of each vertex, in vertex order, or the name of a vertex attribute [default: 1].
    engine : {"auto", "local", "mpi", "spark"}
        As in `goffish.run` [default: "auto"].
    parts, method : optional
        Partitions of a `Graph` on the engine; see `goffish.run`.
    **running
        Other options of the engine: `threads`, `comm`, `spark`, `units`, `max_supersteps` and `progress`.

    Returns
    -------
    Result
        Columns ``vertex`` and ``value`` (float64; int64 for "count"), in vertex order. Without messages, a sum or count
        is 0, and a minimum, maximum or mean is null.

    Raises
    ------
    InputError
        If an option is unknown, `values` does not have one number per vertex, or `message` does not return one number
        per edge.
    JobError
        If `message` fails.

    Notes
    -----
    Linear in the number of edges, with 32 bytes for each of up to 2^20 edges at a time. Messages to a vertex are added
    in the order of the senders, so sums are the same to the last bit in memory and on all engines. On an engine, two
    supersteps; an edge between partitions is a message of 41 bytes.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 1, 2], [2, 3, 3], [1.0, 5.0, 2.0], directed=True)
    >>> gf.aggregate_messages(graph, values=[10, 20, 30]).to_dict()
    {1: 0.0, 2: 10.0, 3: 30.0}
    >>> longer = lambda sent, there, weight: sent + weight
    >>> gf.aggregate_messages(graph, longer, combine="min", values=[0, 1, 9]).to_dict()
    {1: None, 2: 1.0, 3: 3.0}
    """
    from goffish.algorithms.aggregation.columns import as_values, check_names, concluded
    from goffish.errors import InputError
    from goffish.gopher import Result
    from goffish.graph import Graph

    check_names(combine, direction)
    if message is not None and not callable(message):
        raise InputError(f"message={message!r}: expected a function of (sent, there, weight)")
    for name in ("output", "checkpoint_dir", "checkpoint_every", "resume"):
        if name in running:
            raise InputError(f"aggregate_messages has no option {name!r}: it runs two supersteps and returns a table")
    size = None if graph is None else getattr(graph, "num_vertices", None)
    if values is not None and not isinstance(values, str):
        values = as_values(values, size)
    if isinstance(graph, Graph) and engine == "auto" and parts is None and method is None and not running:
        from goffish.algorithms.aggregation.in_memory import aggregate

        table = aggregate(graph, message, combine, direction, _column(graph, values))
        return Result("aggregate-messages", table, {}, None)
    from goffish.algorithms.aggregation.subgraph import AggregateMessages
    from goffish.algorithms.dispatch import answer

    program = AggregateMessages(message, combine, direction, values)
    found = answer(program, graph, engine, parts=parts, method=method, **running)
    table = found.table
    if "total" in table.column_names:
        table = concluded(
            table["vertex"].combine_chunks(), table["total"].to_numpy(), table["count"].to_numpy(), combine
        )
    return Result("aggregate-messages", table, found.summary, found.stats)


def _column(graph: Graph, values: Any) -> Any:
    """The values of vertices of a graph in memory."""
    import numpy as np

    from goffish.algorithms.aggregation.columns import as_values
    from goffish.errors import InputError

    if values is None:
        return np.ones(graph.num_vertices)
    if not isinstance(values, str):
        return values
    table = graph.vertex_attributes
    names = [] if table is None else table.column_names
    if table is None or values not in names:
        raise InputError(
            f"values={values!r}: no vertex attribute of this name; available: {', '.join(names) or 'none'}"
        )
    return as_values(table[values].to_numpy(), graph.num_vertices)

"""Results of betweenness as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.algorithms.betweenness.accuracy import compared
from goffish.algorithms.betweenness.in_memory import Betweenness as Found
from goffish.algorithms.betweenness.in_memory import betweenness, edge_betweenness
from goffish.algorithms.betweenness.sampling import estimate_betweenness
from goffish.algorithms.timing import told_to
from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph import Graph

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Note
    from goffish.algorithms.betweenness.options import BetweennessOptions


def exact(
    graph: Graph,
    options: BetweennessOptions,
    threads: int | None,
    note: Note | None = None,
    *,
    checkpoint_dir: Path | None = None,
    resume: bool = False,
) -> Result:
    """The exact values, estimates after a time limit; columns ``vertex`` and ``betweenness``."""
    if options.compare:
        raise InputError(
            "compare is for estimates, and these values are exact: give epsilon or pivots, or leave it out"
        )

    found = betweenness(
        graph, weighted=options.weighted, normalized=options.normalized, endpoints=options.endpoints,
        sources=options.sources, targets=options.targets,
        reductions=options.reductions, threads=threads, time_limit=options.time_limit, checkpoint_dir=checkpoint_dir,
        resume=resume, progress=told_to(note),
    )  # fmt: skip
    table = pa.table({"vertex": graph.label_column(), "betweenness": pa.array(found.scores)})
    return Result("betweenness", only_top(table, options.how_many(graph.num_vertices)), _saved(found))


def exact_edges(graph: Graph, *, reductions: Any, **options: Any) -> Result:
    """The exact values of all edges; columns ``source``, ``target`` and ``betweenness``."""
    found = edge_betweenness(graph, reductions=() if reductions == "none" else reductions, **options)
    labels, (source, target, _, _) = graph.label_column(), graph.edge_columns()
    ends = {"source": labels.take(pa.array(source)), "target": labels.take(pa.array(target))}
    table = pa.table({**ends, "betweenness": pa.array(found.scores)})
    return Result("edge_betweenness", table, _saved(found))


def _saved(found: Found) -> dict[str, Any]:
    """What each reduction saved, as a share of the work, and the share that was left to search."""
    shares = {f"removed_by_{entry.reduction}": round(entry.share, 4) for entry in found.removed}
    estimated = {} if found.done == 1.0 else {"searches_done": round(found.done, 4)}
    return shares | {"searched": round(found.share_left, 4)} | estimated


def sampled(graph: Graph, options: BetweennessOptions, threads: int | None, note: Note | None = None) -> Result:
    """Estimates with proved bounds; columns ``vertex``, ``betweenness``, ``least`` and ``most``."""

    def tell(done: int, most: int) -> None:
        if note is not None:
            note(f"{done:,} of at most {most:,} samples")

    n, top = graph.num_vertices, options.how_many(graph.num_vertices)
    assert options.epsilon is not None
    found = estimate_betweenness(
        graph, options.epsilon, options.delta, top=top, weighted=options.weighted, seed=options.seed, threads=threads,
        progress=tell,
    )  # fmt: skip
    pairs = n * (n - 1) / (1.0 if graph.directed else 2.0)
    agreement = against_exact(graph, options, found.score * pairs, threads, note) if options.compare else {}
    if options.normalized:
        pairs = n / (n - 2) if n > 2 else 1.0
    table = pa.table({
        "vertex": graph.label_column(),
        "betweenness": pa.array(found.score * pairs),
        "least": pa.array(np.maximum(found.score - found.below, 0.0) * pairs),
        "most": pa.array((found.score + found.above) * pairs),
    })  # fmt: skip
    summary = {
        "samples": found.samples,
        "most_samples": found.most,
        "epsilon": options.epsilon,
        "delta": options.delta,
        "certain": found.certain,
    }
    if top is not None:
        summary["certain_members"] = found.members
    return Result("betweenness", only_top(table, top), summary | agreement)


def against_exact(
    graph: Graph,
    options: BetweennessOptions,
    estimate: NDArray[np.float64],
    threads: int | None,
    note: Note | None = None,
) -> dict[str, Any]:
    """Compute the exact values and tell how far the estimates, one per vertex in vertex order, are from them."""
    tell = told_to(note, "exact values, to compare: ")
    exact_values = betweenness(graph, weighted=options.weighted, threads=threads, progress=tell).scores
    top = options.how_many(graph.num_vertices)
    return compared(exact_values, estimate, top=top, directed=graph.directed)


def only_top(table: pa.Table, top: int | None) -> pa.Table:
    """The `top` rows of largest betweenness in falling order, ties as in the table; ``None``: all rows as they are."""
    if top is None:
        return table
    row = pa.array(np.arange(table.num_rows))
    keys = pa.table({"value": table["betweenness"], "row": row})
    order = pc.sort_indices(keys, [("value", "descending"), ("row", "ascending")])
    return table.take(order[:top])

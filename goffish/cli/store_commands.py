"""Commands that convert graphs: import, export, partition, info."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from goffish.cli.checks import check_choice, check_graph_target
from goffish.cli.inputs import is_store, load, progress_bar, working
from goffish.cli.options import (
    METHOD,
    PARTS,
    STORE_TARGET,
    UNITS,
    Json,
    Store,
    field_parameter,
    reads_graph,
)
from goffish.cli.output import print_facts, print_json, print_partitions, say, show
from goffish.errors import InputError

if TYPE_CHECKING:
    from goffish.gofs import PartitionedGraph
    from goffish.graph import Graph
    from goffish.partition.figures import PartitionQuality


_GRAPH_FILE = "Graph file, such as .csr, .arrow, .parquet, .csv, .tsv, .metis or .mtx."


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command(
        "import",
        help="Convert a graph file to another format, such as .csr, which opens at once.",
    )(reads_graph(_import))
    app.command("export", help="Write the graph of a store as a graph file.")(_export)
    app.command("partition", help="Partition a graph file and write a store.")(reads_graph(_partition, _method_flags()))
    app.command("info", help="Describe a graph file or a store.")(reads_graph(_info))
    app.command("verify", help="Verify the checksums of a store.")(_verify)


def _import(
    reading: dict[str, Any], *, input: str,
    output: Annotated[
        str, typer.Option("-o", "--output", help=_GRAPH_FILE)
    ],
    json: Json,
) -> None:  # fmt: skip
    _convert(input, output, reading, json)


def _export(
    store: Store,
    output: Annotated[str, typer.Option("-o", "--output", help=_GRAPH_FILE)],
    json: Json = False,
) -> None:
    if not is_store(store):
        raise InputError(f"{store}: is not a store; create one with goffish partition")
    _convert(store, output, {}, json)


def _convert(path: str, output: str, reading: dict[str, Any], json: bool) -> None:
    from goffish.graph import Graph
    from goffish.graph.io import write

    check_graph_target(output)
    begun = time.perf_counter()
    loaded = load(path, reading)
    graph = loaded if isinstance(loaded, Graph) else loaded.to_graph()
    with working("writing"):
        write(graph, output)
    seconds = time.perf_counter() - begun
    if json:
        print_json({"input": path, "output": output, "seconds": seconds, **_graph_facts(graph)})
    else:
        say(f"{graph!r} written to {output} in {seconds:.2f} s")


def _option_names() -> dict[str, None]:
    from goffish.partition.options import OPTIONS

    return dict.fromkeys(name for model in OPTIONS.values() for name in model.model_fields)


def _method_flags() -> list[Any]:
    """Return one flag per option of the partitioning methods; ``None`` means the default of the method."""
    from goffish.partition.options import OPTIONS

    flags: dict[str, Any] = {}
    users = {name: [m for m, model in OPTIONS.items() if name in model.model_fields] for name in _option_names()}
    for name, methods in users.items():
        # Help groups options by the methods that accept them.
        field = OPTIONS[methods[0]].model_fields[name]
        flags[name] = field_parameter(name, field, optional=True, group=f"Options of {', '.join(methods)}")
    return [flag for flag in flags.values() if flag is not None]


def _partition(
    reading: dict[str, Any], options: dict[str, Any], *, input: str,
    output: Annotated[str, typer.Option("-o", "--output", help=STORE_TARGET)],
    parts: Annotated[int, typer.Option("--parts", "-k", help=PARTS)] = 4,
    method: Annotated[
        str, typer.Option(help=f"{METHOD} Or predefined, with --assignment.")
    ] = "metis",
    units: Annotated[
        str, typer.Option(help=UNITS)
    ] = "components",
    split: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum vertices per subgraph; larger subgraphs are split.", show_default="unlimited"
        ),
    ] = None,
    json: Json,
) -> None:  # fmt: skip
    from goffish.algorithms.dispatch import UNITS
    from goffish.gofs import check_store_place, write_store
    from goffish.graph import Graph
    from goffish.partition.assignment import check_parts
    from goffish.partition.cut import partition_graph
    from goffish.partition.figures import quality
    from goffish.partition.options import check_options

    check_store_place(output)
    check_parts(parts)
    check_choice("units", units, UNITS)
    check_options(method, options)
    begun = time.perf_counter()
    loaded = load(input, reading)
    graph = loaded if isinstance(loaded, Graph) else loaded.to_graph()
    with working(f"partitioning by {method}"):
        cut = partition_graph(graph, parts, method, units=cast(Any, units), split=split, **options)
    with progress_bar("writing partitions") as update:
        write_store(cut, output, progress=update)
    seconds = time.perf_counter() - begun
    figures = quality(graph, cut.owner(), parts)
    if json:
        print_json({"input": input, "store": output, "seconds": seconds, **_quality_facts(figures, cut)})
        return
    _print_quality(figures, cut, f"{output}: {seconds:.2f} s")
    say(f"\nnext: goffish run components {output}")


def _info(reading: dict[str, Any], *, input: str, json: Json) -> None:
    from goffish.graph import Graph

    loaded = load(input, reading)
    if isinstance(loaded, Graph):
        facts = _graph_facts(loaded)
        if json:
            print_json({"input": input, **facts})
        else:
            print_facts(input, [(k.replace("_", " "), v) for k, v in facts.items() if v is not None])
        return
    from goffish.partition.figures import quality

    figures = quality(loaded.to_graph(), loaded.owner(), loaded.num_partitions)
    if json:
        print_json({"store": input, **_quality_facts(figures, loaded)})
    else:
        _print_quality(figures, loaded, input)


def _graph_facts(graph: Graph) -> dict[str, Any]:
    degrees = graph.out_degrees
    return {
        "vertices": graph.num_vertices,
        "edges": graph.num_edges,
        "directed": graph.directed,
        "weighted": graph.weights is not None,
        "labels": "0 … n-1" if graph.labels is None else str(graph.labels.type),
        "vertex_attributes": ", ".join(graph.vertex_attributes.column_names) if graph.vertex_attributes else "none",
        "edge_attributes": ", ".join(graph.edge_attributes.column_names) if graph.edge_attributes else "none",
        "largest_degree": int(degrees.max(initial=0)),
        "mean_degree": float(degrees.mean()) if degrees.size else 0.0,
        "isolated": int((degrees == 0).sum()) if not graph.directed else None,
        "bytes_per_arc": graph.nbytes / graph.num_arcs if graph.num_arcs else None,
    }


def _quality_facts(figures: PartitionQuality, graph: PartitionedGraph) -> dict[str, Any]:
    return {
        "directed": graph.info.directed,
        "weighted": graph.info.weighted,
        "partitioner": dict(graph.info.partitioner),
        "units": graph.info.finder,
        "quality": figures.to_dict(),
    }


def _print_quality(figures: PartitionQuality, graph: PartitionedGraph, title: str) -> None:
    info = graph.info
    method = info.partitioner.get("method", "unknown")
    exact = "" if figures.diameter_exact else " at least"
    rows = [
        ("vertices / edges", f"{figures.vertices:,} / {figures.edges:,}"),
        ("partitions / subgraphs", f"{figures.parts:,} / {figures.subgraphs:,}"),
        ("method", method),
        ("directed / weighted", f"{show(info.directed)} / {show(info.weighted)}"),
        ("units", info.finder),
        ("edge cut", f"{figures.edge_cut:,} ({figures.edge_cut_share:.1%})"),
        ("communication volume", figures.communication_volume),
        ("vertex balance (largest / mean)", f"{figures.vertex_balance:.3f}"),
        ("arc balance (largest / mean)", f"{figures.arc_balance:.3f}"),
        ("quotient graph edges", figures.quotient_edges),
        (f"quotient graph diameter{exact}", figures.quotient_diameter),
    ]
    print_facts(title, rows)
    columns = (
        figures.part_vertices, figures.part_arcs, figures.part_boundary, figures.part_volume,
        figures.part_subgraphs,
    )  # fmt: skip
    parts = [(str(p), *(int(column[p]) for column in columns)) for p in range(figures.parts)]
    print_partitions(("partition", "vertices", "arcs", "boundary", "volume", "subgraphs"), parts)


def _verify(store: Store, json: Json = False) -> None:
    from goffish.cli.inputs import progress_bar
    from goffish.cli.output import print_json, say
    from goffish.gofs import verify_store

    with progress_bar("verifying") as update:
        total = verify_store(store, progress=update)
    if json:
        print_json({"store": store, "ok": True, "bytes": total})
    else:
        say(f"{store}: all checksums match ({total:,} bytes)")

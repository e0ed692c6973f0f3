"""``goffish plot``: pictures of stores, runs and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.options import reads_graph

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from goffish.gopher.stats import RunStats

_Run = Annotated[
    str,
    typer.Argument(metavar="RUN.json", help="Counters that goffish run wrote with --stats-file, or its --json output."),
]
Output = Annotated[str, typer.Option("-o", "--output", help="Picture file: .png, .svg or .pdf.")]


def add_plot_commands(app: typer.Typer) -> None:
    """Add the group ``plot`` to `app`."""
    plots = typer.Typer(help="Draw a store, a run or a result.", no_args_is_help=True)
    plots.command("quotient", help="The subgraphs of a store and the edges cut between them.")(_quotient)
    plots.command("supersteps", help="Messages and active subgraphs of every superstep of a run.")(_supersteps)
    plots.command("gantt", help="When every partition computed, and which one the others waited for.")(_gantt)
    plots.command("graph", help="A small graph, coloured by a column of a result.")(reads_graph(_graph))
    plots.command("communities", help="The largest communities, the edges between them, and their sizes.")(
        reads_graph(_communities)
    )
    app.add_typer(plots, name="plot")


def _quotient(
    store: Annotated[str, typer.Argument(help="A store.")],
    output: Output,
    largest: Annotated[int, typer.Option(min=1, help="Subgraphs that get a node of their own.")] = 60,
) -> None:
    from goffish.cli.inputs import is_store
    from goffish.errors import InputError
    from goffish.gofs import open_store
    from goffish.plot import check_picture, quotient_graph

    check_picture(output)
    if not is_store(store):
        raise InputError(f"{store}: is not a store; make one with goffish partition")
    save_picture(quotient_graph(open_store(store), largest=largest), output)


def _supersteps(run: _Run, output: Output) -> None:
    from goffish.plot import check_picture, supersteps

    check_picture(output)
    save_picture(supersteps(read_counters(run)), output)


def _gantt(run: _Run, output: Output) -> None:
    from goffish.plot import check_picture, gantt

    check_picture(output)
    save_picture(gantt(read_counters(run)), output)


def _graph(
    reading: dict[str, Any], *, input: str,
    result: Annotated[str, typer.Argument(metavar="RESULT", help="Table that goffish run wrote with -o.")],
    output: Output,
    column: Annotated[str | None, typer.Option(help="Column to colour by; default: the second one.")] = None,
    labels: Annotated[
        bool | None, typer.Option("--labels/--no-labels", help="Write the vertex labels; default: up to 60.")
    ] = None,
) -> None:  # fmt: skip
    from goffish.cli.inputs import load
    from goffish.gopher.result import read_table
    from goffish.graph import Graph
    from goffish.plot import check_picture, check_size, graph

    check_picture(output)
    table = read_table(result)
    loaded = load(input, reading)
    check_size(loaded.num_vertices)
    drawn = loaded if isinstance(loaded, Graph) else loaded.to_graph()
    save_picture(graph(drawn, table, column, labels=labels), output)


def _communities(
    reading: dict[str, Any], *, input: str,
    result: Annotated[str, typer.Argument(metavar="RESULT", help="Table with the columns vertex and community.")],
    output: Output,
    largest: Annotated[int, typer.Option(min=1, help="Communities that get a node of their own; up to 500.")] = 40,
) -> None:  # fmt: skip
    from goffish.cli.inputs import load
    from goffish.gopher.result import read_table
    from goffish.graph import Graph
    from goffish.plot import check_picture, communities

    check_picture(output)
    table = read_table(result)
    loaded = load(input, reading)
    graph = loaded if isinstance(loaded, Graph) else loaded.to_graph()
    save_picture(communities(graph, table, largest=largest), output)


def read_counters(path: str) -> RunStats:
    """The counters in a JSON file: alone, or under the key ``stats``.

    Raises
    ------
    InputError
        The file is missing, not JSON, or holds no counters.
    """
    import json
    from pathlib import Path

    from goffish.errors import FormatError, InputError
    from goffish.gopher.stats import RunStats

    try:
        body = json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise FormatError(path, error.lineno, f"not JSON ({error.msg})") from None
    except UnicodeDecodeError:
        raise FormatError(path, None, "not JSON (not UTF-8 text)") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    if isinstance(body, dict) and "steps" not in body:
        if body.get("stats") is None:
            raise InputError(
                f"{path}: holds no run counters; write them with goffish run … --stats-file {path} "
                "(a raw file also needs --engine local)"
            )
        body = body["stats"]
    try:
        return RunStats.from_dict(body)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def save_picture(figure: Figure, output: str) -> None:
    from goffish.cli.output import say
    from goffish.plot import save

    say(f"picture: {save(figure, output)}")

"""``goffish plot``: plots of stores, runs and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.options import PICTURE_FILE, Store, reads_graph

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from goffish.gopher.stats import RunStats

LABELS = "up to 60 vertices"
_Run = Annotated[
    str,
    typer.Argument(metavar="RUN.json", help="Counters written by goffish run --stats-file or --json."),
]
Output = Annotated[str, typer.Option("-o", "--output", help=PICTURE_FILE)]
Labels = Annotated[bool | None, typer.Option("--labels/--no-labels", help="Draw vertex labels.", show_default=LABELS)]


def add_commands(app: typer.Typer) -> None:
    """Add the group ``plot`` to `app`."""
    plots = typer.Typer(help="Plot a store, a run or a result.", no_args_is_help=True)
    plots.command("quotient", help="Plot the subgraphs of a store and the cut edges between them.")(_quotient)
    plots.command("supersteps", help="Plot messages and active subgraphs per superstep of a run.")(_supersteps)
    plots.command("gantt", help="Plot compute and idle time per partition of a run.")(_gantt)
    plots.command("graph", help="Plot a small graph, colored by a column of a result.")(reads_graph(_graph))
    plots.command("communities", help="Plot the largest communities, their sizes and the edges between them.")(
        reads_graph(_communities)
    )
    app.add_typer(plots, name="plot")


def _quotient(
    store: Store,
    output: Output,
    largest: Annotated[int, typer.Option(min=1, help="Number of subgraphs drawn separately.")] = 60,
) -> None:
    from goffish.cli.inputs import is_store
    from goffish.errors import InputError
    from goffish.gofs import open_store
    from goffish.plot import check_picture, quotient_graph

    check_picture(output)
    if not is_store(store):
        raise InputError(f"{store}: is not a store; create one with goffish partition")
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
    result: Annotated[str, typer.Argument(metavar="RESULT", help="Result table written by goffish run -o.")],
    output: Output,
    column: Annotated[
        str | None, typer.Option(help="Column to plot.", show_default="the second column")
    ] = None,
    labels: Labels = None,
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
    largest: Annotated[int, typer.Option(min=1, help="Number of communities drawn separately, up to 500.")] = 40,
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
    """Read run counters from a JSON file, at the top level or under the key ``stats``.

    Raises
    ------
    InputError
        The file is missing, is not JSON, or has no counters.
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
                f"{path}: has no run counters; write them with goffish run … --stats-file {path} "
                "(a raw file also requires --engine local)"
            )
        body = body["stats"]
    try:
        return RunStats.from_dict(body)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def save_picture(figure: Figure, output: str) -> None:
    from goffish.cli.output import say
    from goffish.plot import save

    say(f"plot written to {save(figure, output)}")

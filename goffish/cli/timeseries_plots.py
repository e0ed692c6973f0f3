"""``goffish timeseries plot``: plots of time-series results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.groups import Commands
from goffish.cli.options import reads_graph
from goffish.cli.plot_commands import Labels, Output, save_picture
from goffish.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_STEPS_HELP = "Timestep table written by goffish timeseries run --timesteps; adds empty timesteps and dates."
_TABLE_HELP = "Result table of goffish timeseries run or paths: .parquet, .csv, .arrow or .json."
_Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help=_TABLE_HELP,
    ),
]
_Time = Annotated[str, typer.Option(help="Column of the timestep numbers.")]
_Steps = Annotated[str | None, typer.Option("--timesteps", metavar="FILE", help=_STEPS_HELP)]
_Window = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Window length in time units, if the column of --time holds times such as arrival.",
    ),
]
_Origin = Annotated[int | None, typer.Option(help="Start of the first --window.", show_default="earliest time")]
_Size = Annotated[
    int | None,
    typer.Option(min=1, help="Number of vertices of the graph, if the table omits unreached vertices."),
]


class _Pictures(Commands):
    noun = "plot"


def add_series_plots(series: typer.Typer) -> None:
    """Add ``goffish timeseries plot`` with its commands."""
    plots = typer.Typer(cls=_Pictures, help="Plot a result over a time series.", no_args_is_help=True)
    series.add_typer(plots, name="plot")
    plots.command("values", help="Plot a value over time: its distribution, or selected vertices.")(_values)
    plots.command("wavefront", help="Plot newly reached vertices per timestep and their cumulative share.")(_wavefront)
    plots.command("spread", help="Plot reached and active vertices per timestep.")(_spread)
    plots.command("animate", help="Animate a small graph over time, as HTML or GIF.")(reads_graph(_animate))


def _values(
    table: _Table,
    output: Output,
    column: Annotated[str | None, typer.Option(help="Column to plot.", show_default="the first value column")] = None,
    vertices: Annotated[
        str | None,
        typer.Option(help="Vertices to plot, such as a,b,c.", show_default="quartiles over all vertices"),
    ] = None,
    largest: Annotated[
        bool,
        typer.Option("--largest", help="Plot the size of the largest group; the column names groups."),
    ] = False,
    time: _Time = "timestep",
    timesteps: _Steps = None,
    unit: Annotated[str | None, typer.Option(help="Unit of the values, for the axis label.")] = None,
) -> None:
    from goffish.plot import check_picture, largest_groups, values_over_time

    check_picture(output)
    if largest and vertices is not None:
        raise InputError("--largest and --vertices exclude each other; --largest uses all vertices")
    values, steps = _read(table), _steps(timesteps)
    if largest:
        values, column, unit = largest_groups(values, column, time), None, unit or "vertices"
    chosen = None if vertices is None else [label.strip() for label in vertices.split(",")]
    save_picture(values_over_time(values, column, vertices=chosen, time=time, timesteps=steps, unit=unit), output)


def _wavefront(
    table: _Table,
    output: Output,
    time: _Time = "timestep",
    timesteps: _Steps = None,
    window: _Window = None,
    origin: _Origin = None,
    size: _Size = None,
) -> None:
    from goffish.plot import check_picture, wavefront

    check_picture(output)
    values, time = _windows(_read(table), time, window, origin)
    save_picture(wavefront(values, time=time, timesteps=_steps(timesteps), vertices=size), output)


def _spread(
    table: _Table,
    output: Output,
    active: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Table of active vertices: a row per vertex and timestep, or a count per timestep.",
        ),
    ] = None,
    active_column: Annotated[str | None, typer.Option(help="Column of the count in the table of --active.")] = None,
    active_time: Annotated[
        str, typer.Option(help="Column of the timestep in the table of --active; for hashtags: at.")
    ] = "timestep",
    time: _Time = "timestep",
    timesteps: _Steps = None,
    window: _Window = None,
    origin: _Origin = None,
    size: _Size = None,
) -> None:
    from goffish.plot import check_picture, spread_curve

    check_picture(output)
    for option, needs in (("active-column", active_column is not None), ("active-time", active_time != "timestep")):
        if needs and active is None:
            raise InputError(f"--{option} requires --active")
    values, time = _windows(_read(table), time, window, origin)
    busy = None if active is None else _read(active)
    figure = spread_curve(
        values, busy, active_column=active_column, time=time, active_time=active_time, timesteps=_steps(timesteps),
        vertices=size,
    )  # fmt: skip
    save_picture(figure, output)


def _animate(
    reading: dict[str, Any], *, input: str,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help=_TABLE_HELP)
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", help="Animation file: .html or .gif.")
    ],
    column: Annotated[
        str | None,
        typer.Option(
            help="Column to plot.", show_default="whether a vertex was reached"
        ),
    ] = None,
    time: _Time = "timestep",
    timesteps: _Steps = None,
    window: _Window = None,
    origin: _Origin = None,
    around: Annotated[
        str | None, typer.Option(help="Draw only this vertex and its neighborhood.", show_default="the whole graph")
    ] = None,
    hops: Annotated[
        int, typer.Option(min=1, help="Radius of --around, in hops along edges of either direction.")
    ] = 1,
    keep: Annotated[
        bool | None,
        typer.Option(
            "--keep/--no-keep",
            help="Keep the last value of a vertex without a value.",
            show_default="if each vertex has at most one value",
        ),
    ] = None,
    coordinates: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Table with the columns vertex, x and y.", show_default="computed layout"
        ),
    ] = None,
    labels: Labels = None,
    title: Annotated[str | None, typer.Option(help="Title of the animation.")] = None,
    seconds: Annotated[float, typer.Option(help="Duration of a timestep in a GIF, in seconds.")] = 0.5,
) -> None:  # fmt: skip
    from goffish.cli.inputs import load
    from goffish.cli.output import say
    from goffish.graph import Graph
    from goffish.plot import MOST_VERTICES, animate, check_animation, write_animation
    from goffish.plot.animation import MOST_EDGES

    check_animation(output)
    values, time = _windows(_read(table), time, window, origin)
    steps = _steps(timesteps)
    places = None if coordinates is None else _read(coordinates)
    loaded = load(input, reading)
    if around is None and (loaded.num_vertices > MOST_VERTICES or loaded.num_edges > MOST_EDGES):
        raise InputError(
            f"{input}: {loaded.num_vertices:,} vertices and {loaded.num_edges:,} edges; up to {MOST_VERTICES:,} and "
            f"{MOST_EDGES:,} can be animated; select a part with --around VERTEX"
        )
    graph = loaded if isinstance(loaded, Graph) else loaded.to_graph()
    if around is not None:
        graph, values = _near(graph, values, around, hops)
        places = None if places is None else _rows_of(graph, places)
    found = animate(
        graph, values, column, time=time, timesteps=steps, keep=keep, coordinates=places, labels=labels, title=title
    )
    say(f"animation: {write_animation(found, output, seconds=seconds)}")


def _near(graph: Any, values: pa.Table, vertex: str, hops: int) -> tuple[Any, pa.Table]:
    """Return the neighborhood of a vertex, and the table rows of its vertices."""
    from goffish.algorithms.algorithm import as_label
    from goffish.plot import around

    part = around(graph, as_label(vertex, graph), hops)
    rows = _rows_of(part, values)
    if not rows.num_rows:
        raise InputError(f"--around {vertex}: the table has no row for this vertex or its neighborhood")
    return part, rows


def _rows_of(graph: Any, table: pa.Table) -> pa.Table:
    """Return the rows of a graph's vertices; all rows if the label types differ, which is an error later."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if "vertex" not in table.column_names:
        return table
    labels = graph.label_column()
    try:
        return table.filter(pc.is_in(table["vertex"].cast(labels.type), value_set=labels))
    except pa.ArrowException:
        return table


def _read(path: str) -> pa.Table:
    from goffish.gopher.result import read_table

    return read_table(path)


def _steps(path: str | None) -> pa.Table | None:
    if path is None:
        return None
    table = _read(path)
    if "timestep" not in table.column_names:
        raise InputError(
            f"{path}: has no column 'timestep'; give the table written by goffish timeseries run --timesteps"
        )
    return table


def _windows(table: pa.Table, time: str, window: int | None, origin: int | None) -> tuple[pa.Table, str]:
    """Return the table and the name of its timestep column."""
    from goffish.plot import in_windows

    if window is None:
        if origin is not None:
            raise InputError("--origin requires --window")
        return table, time
    return in_windows(table, time, window, origin), "timestep"

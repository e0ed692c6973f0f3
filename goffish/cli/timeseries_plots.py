"""``goffish timeseries plot``: pictures of what applications over a time series found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.options import reads_graph
from goffish.cli.plot_commands import Output, save_picture
from goffish.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_STEPS_HELP = (
    "Table that --timesteps of goffish timeseries run wrote: timesteps without a row are drawn too, "
    "and the axis shows dates if the series has a calendar."
)
_Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="What goffish timeseries run or paths wrote with -o: .parquet, .csv, .arrow or .json, with a column "
        "timestep (or another one, see --time).",
    ),
]
_Time = Annotated[str, typer.Option(help="Column with the numbers of the timesteps.")]
_Steps = Annotated[str | None, typer.Option("--timesteps", metavar="FILE", help=_STEPS_HELP)]
_Window = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The column of --time holds points in time, such as arrival: count them in windows of this length "
        "(in their unit).",
    ),
]
_Origin = Annotated[
    int | None, typer.Option(help="Where the first --window begins; default: at the earliest point in time.")
]
_Size = Annotated[
    int | None,
    typer.Option(min=1, help="Vertices of the graph, where the table leaves out some that were not reached."),
]


def add_series_plots(plots: typer.Typer) -> None:
    """Add the commands to the group ``timeseries plot``."""
    plots.command("values", help="A value over time: its distribution over all vertices, or chosen vertices.")(_values)
    plots.command("wavefront", help="Vertices that were newly reached in each timestep, and their share so far.")(
        _wavefront
    )
    plots.command("spread", help="Vertices that were reached up to each timestep, and those active in it.")(_spread)
    plots.command("animate", help="A small graph over time, as a page (.html) or as a GIF.")(reads_graph(_animate))


def _values(
    table: _Table,
    output: Output,
    column: Annotated[str | None, typer.Option(help="What to draw; default: the first column that is no key.")] = None,
    vertices: Annotated[
        str | None, typer.Option(help="A line for each of these, as in a,b,c; default: quartiles over all vertices.")
    ] = None,
    largest: Annotated[
        bool,
        typer.Option("--largest", help="The column names groups, such as component: draw the size of the largest."),
    ] = False,
    time: _Time = "timestep",
    timesteps: _Steps = None,
    unit: Annotated[str | None, typer.Option(help="Of the values, for the axis.")] = None,
) -> None:
    from goffish.plot import check_picture, largest_groups, values_over_time

    check_picture(output)
    if largest and vertices is not None:
        raise InputError("--largest is about groups of all vertices: leave out --vertices")
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
            help="What was active: a table with a row per vertex and timestep, or with one number per timestep.",
        ),
    ] = None,
    active_column: Annotated[str | None, typer.Option(help="The column with that number.")] = None,
    active_time: Annotated[
        str, typer.Option(help="The column of timesteps in that table; at in what hashtags writes.")
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
            raise InputError(f"--{option} is about the table of --active: give that too")
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
        str, typer.Argument(metavar="TABLE", help="What goffish timeseries run or paths wrote with -o.")
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", help="File: .html (a page that needs nothing else) or .gif.")
    ],
    column: Annotated[
        str | None,
        typer.Option(
            help="Column to colour by; default: whether a vertex was reached, in the first timestep it has a row."
        ),
    ] = None,
    time: _Time = "timestep",
    timesteps: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Table that --timesteps of goffish timeseries run wrote: also timesteps without a row, and dates.",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            min=1, help="The column of --time holds points in time: count them in windows of this length."
        ),
    ] = None,
    origin: Annotated[
        int | None, typer.Option(help="Where the first --window begins; default: the earliest.")
    ] = None,
    around: Annotated[
        str | None, typer.Option(help="Only this vertex, and what is near it: for graphs of any size.")
    ] = None,
    hops: Annotated[
        int, typer.Option(min=1, help="How near, with --around; the direction of edges does not count.")
    ] = 1,
    keep: Annotated[
        bool | None,
        typer.Option(
            "--keep/--no-keep",
            help="Whether a vertex without a value keeps its last; default: if each vertex has at most one.",
        ),
    ] = None,
    coordinates: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Table with the columns vertex, x and y; default: a layout of GoFFish's own."
        ),
    ] = None,
    labels: Annotated[
        bool | None, typer.Option("--labels/--no-labels", help="Write the vertex labels; default: up to 60.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Above the graph.")] = None,
    seconds: Annotated[float, typer.Option(help="How long a GIF shows each timestep.")] = 0.5,
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
            f"{MOST_EDGES:,} can be animated: take a part with --around VERTEX"
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
    """A part of the graph, and the rows of its vertices."""
    from goffish.algorithms.algorithm import as_label
    from goffish.plot import around

    part = around(graph, as_label(vertex, graph), hops)
    rows = _rows_of(part, values)
    if not rows.num_rows:
        raise InputError(f"the table has no row of vertex {vertex}, or of one near it")
    return part, rows


def _rows_of(graph: Any, table: pa.Table) -> pa.Table:
    """The rows of a graph's vertices; all of them where the labels are of another type, which is an error later."""
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
            f"{path}: has no column 'timestep'; give what --timesteps of goffish timeseries run wrote, not its result"
        )
    return table


def _windows(table: pa.Table, time: str, window: int | None, origin: int | None) -> tuple[pa.Table, str]:
    """The table, and its column of timesteps."""
    from goffish.plot import in_windows

    if window is None:
        if origin is not None:
            raise InputError("--origin is where the first --window begins: give that too")
        return table, time
    return in_windows(table, time, window, origin), "timestep"

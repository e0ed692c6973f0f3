"""A small graph over time: one state of every vertex per timestep, drawn as a page or as a GIF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.guards import expect
from goffish.plot.canvas import Canvas
from goffish.plot.colouring import Colouring, colour_by
from goffish.plot.layout import fit, place, separate
from goffish.plot.series_data import Floats, Ints, column_of, dates_of, keys_of, steps_of, table_of, time_axis
from goffish.plot.style import ALARM, COLOURS, INK, NOTHING, count, new_figure, settings, shorten
from goffish.plot.vertices import check_size

#: #: Size limits of an animation.
MOST_EDGES = 20_000
MOST_STATES = 400_000
#: #: Size of the figure in inches, and the part of it for the graph.
SIZE = (9.0, 6.4)
STAGE = (0.015, 0.075, 0.755, 0.85)
FONT = 8.0
ARROWS = 400
_LABELLED = 60
_APART = 300
_LONGEST = 40
#: #: States of a vertex by reachability, as (text, color, marker); shapes differ as well.
_REACHED = (("not reached", NOTHING, "o"), ("reached now", ALARM, "D"), ("reached before", COLOURS[0], "o"))


@dataclass(frozen=True)
class State:
    """Appearance of a vertex, and its description."""

    text: str
    colour: str
    marker: str


@dataclass(frozen=True, eq=False)
class Animation:
    """A graph over time.

    Attributes
    ----------
    title : str
    about : str
        Size of the graph.
    timesteps : int64, shape (timesteps,)
        Number of each timestep.
    states : list of State
    shown : int32, shape (timesteps, vertices)
        Index of the state of each vertex in `states`.
    status : list of str, one per timestep
    labels : list of str, one per vertex
    written : list of (text, x, y)
        Labels in the picture, centered at these positions.
    places : float64, shape (vertices, 2)
        Positions in points, the origin at the lower left; the stage is `width` by `height`.
    radius, width, height : float
        In points.
    src, dst : int64, shape (edges,)
    arrows : bool
        Whether edges have arrow heads.
    key : Colouring
        The key of the colors.
    """

    title: str
    about: str
    timesteps: Ints
    states: list[State]
    shown: NDArray[np.int32]
    status: list[str]
    labels: list[str]
    written: list[tuple[str, float, float]]
    places: Floats
    radius: float
    width: float
    height: float
    src: Ints
    dst: Ints
    arrows: bool
    key: Colouring


def animate(
    graph: Graph,
    values: Result | pa.Table,
    column: str | None = None,
    *,
    time: str = "timestep",
    timesteps: Sequence[int] | pa.Table | None = None,
    keep: bool | None = None,
    coordinates: pa.Table | None = None,
    labels: bool | None = None,
    title: str | None = None,
) -> Animation:
    """Prepare an animation of a small graph with its vertices colored by a value, or by whether they were reached.

    Parameters
    ----------
    graph : Graph
        Graph of at most 2,000 vertices and 20,000 edges; vertices times timesteps at most 400,000.
    values : Result or pyarrow.Table
        Table with the columns ``vertex`` and `time`; rows without a timestep are ignored.
    column : str, optional
        Column to color by, as in `goffish.plot.graph`, with one scale for all timesteps [default: color the vertices
        that were reached, that is, from the first timestep in which they have a row].
    time : str
        Column of timesteps [default: "timestep"].
    timesteps : sequence of int or pyarrow.Table, optional
        Timesteps to show, as in `values_over_time` [default: those of `values`].
    keep : bool, optional
        Keep the last value of a vertex in timesteps without one, instead of drawing it gray [default: True if no vertex
        has more than one row].
    coordinates : pyarrow.Table, optional
        Columns ``vertex``, ``x``, ``y`` (y points up; equal scales), one row per vertex [default: the layout of
        `goffish.plot.graph`, which depends on the graph only].
    labels : bool, optional
        Draw the vertex labels where they fit [default: True up to 60 vertices].
    title : str, optional
        Title of the animation.

    Returns
    -------
    Animation
        Input of `animation_page`, `still` and `write_animation`.

    Raises
    ------
    InputError
        If the graph or the series is too large, the table is empty, lacks a column or has several values for a vertex
        in a timestep, a vertex is unknown or has no coordinates, or matplotlib is missing.

    Examples
    --------
    >>> import goffish as gf
    >>> import pyarrow as pa
    >>> from goffish import plot
    >>> reached = pa.table({"vertex": [1, 2, 3], "timestep": [0, 0, 1]})
    >>> plot.animate(gf.from_edges([1, 2], [2, 3]), reached).timesteps
    array([0, 1])
    """
    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    check_size(graph.num_vertices)
    if graph.num_edges > MOST_EDGES:
        raise InputError(f"the graph has {graph.num_edges:,} edges; at most {MOST_EDGES:,} can be animated")
    table = table_of(values)
    vertex = _vertices(graph, keys_of(table))
    steps, known = steps_of(table, time)
    picked = None if column is None else column_of(table, column)
    axis = time_axis(steps[known], values, time, timesteps)
    if axis.size * graph.num_vertices > MOST_STATES:
        raise InputError(
            f"{count(graph.num_vertices, 'vertex')} in {count(axis.size, 'timestep')}: up to {MOST_STATES:,} states "
            "(vertices times timesteps) can be animated: take a part of the graph, or a shorter range of time"
        )
    with settings():
        if picked is None:
            states, shown, status, key = _reached(vertex[known], steps[known], axis, graph.num_vertices)
        else:
            rows = pa.array(known)
            found = vertex[known], steps[known], picked.filter(rows)
            states, shown, status, key = _values(column or "", *found, axis, graph.num_vertices, keep, time)
        if dates := dates_of(values, time, timesteps):
            begins = (dates.get(step, "").replace("\n", " ") for step in axis.tolist())
            status = [f"from {begin}: {text}" if begin else text for begin, text in zip(begins, status, strict=True)]
        src, dst, _, _ = graph.edge_columns()
        canvas = Canvas(new_figure(*SIZE), STAGE)
        radius = float(np.clip(0.16 * np.sqrt(canvas.width * canvas.height / graph.num_vertices), 2.0, 11.0))
        places = _places(graph, coordinates, src, dst, radius, canvas)
        texts = [shorten(str(label), _LONGEST) for label in graph.label_column().to_pylist()]
        write = labels or (labels is None and graph.num_vertices <= _LABELLED)
        written = _written(canvas, places, radius, texts) if write else []
    result = values.algorithm if isinstance(values, Result) else ""
    default = ": ".join(part for part in (result, column or "reached") if part)
    arrows = graph.directed and graph.num_edges <= ARROWS
    about = f"{count(graph.num_vertices, 'vertex')}, {count(graph.num_edges, 'edge')}"
    if graph.directed:
        about += " (directed)" if arrows else " (directed; no arrow heads)"
    return Animation(
        title=shorten(title if title is not None else default, 60), about=about, timesteps=axis, states=states,
        shown=shown, status=status, labels=texts, written=written, places=places, radius=radius, width=canvas.width,
        height=canvas.height, src=src.astype(np.int64), dst=dst.astype(np.int64), arrows=arrows, key=key,
    )  # fmt: skip


def _vertices(graph: Graph, keys: pa.Array) -> Ints:
    """Vertex number of each row."""
    labels = graph.label_column()
    try:
        keys = keys.cast(labels.type)
    except pa.ArrowException:
        raise InputError(
            f"vertices have type {keys.type} in the table and {labels.type} in the graph; use the table of this graph"
        ) from None
    rows = pc.index_in(keys, value_set=labels)
    if rows.null_count:
        unknown = keys.filter(rows.is_null())[0].as_py()
        raise InputError(f"vertex {unknown!r} of the table is not in the graph")
    return np.asarray(rows.to_numpy(zero_copy_only=False), np.int64)


def _reached(
    vertex: Ints, steps: Ints, axis: Ints, vertices: int
) -> tuple[list[State], NDArray[np.int32], list[str], Colouring]:
    first = np.full(vertices, axis[-1] + 1)
    np.minimum.at(first, vertex, steps)
    shown = ((axis[:, None] >= first).astype(np.int32) + (axis[:, None] > first)).astype(np.int32)
    new, before = (shown == 1).sum(axis=1), (shown == 2).sum(axis=1)
    status = [
        f"{n:,} newly reached, {n + b:,} of {count(vertices, 'vertex')} so far ({(n + b) / vertices:.1%})"
        for n, b in zip(new.tolist(), before.tolist(), strict=True)
    ]
    nothing = np.empty(0, object), np.empty(0, str)
    return [State(*state) for state in _REACHED], shown, status, Colouring("state", *nothing, list(_REACHED))


def _values(
    name: str, vertex: Ints, steps: Ints, column: pa.Array, axis: Ints, vertices: int, keep: bool | None, time: str
) -> tuple[list[State], NDArray[np.int32], list[str], Colouring]:
    from matplotlib.colors import to_hex

    cell = vertex * axis.size + steps - axis[0]
    order = np.argsort(cell, kind="stable")
    twice = np.flatnonzero(np.diff(cell[order]) == 0)
    if twice.size:
        raise InputError(f"the table has several rows of a vertex with {time} {steps[order[twice[0]]]}")
    colouring = colour_by(name, column)
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    distinct, first = np.unique(codes, return_index=True)
    states = [State("no value", NOTHING, "o")]
    state_of = np.zeros(len(encoded.dictionary) + 1, np.int32)  # the last state is that of nulls, -1
    for code, row in zip(distinct.tolist(), first.tolist(), strict=True):
        colour, value = to_hex(colouring.colours[row]), column[row].as_py()
        missing = value is None or (isinstance(value, float) and not np.isfinite(value))
        if not missing:
            text = f"{value:,.6g}" if isinstance(value, float) else str(value)
            state_of[code] = len(states)
            states.append(State(shorten(text, _LONGEST), colour, str(colouring.markers[row])))
    shown = np.zeros((axis.size, vertices), np.int32)
    shown[steps - axis[0], vertex] = state_of[codes]
    if keep is None:
        keep = np.unique(vertex).size == vertex.size
    if keep:
        last = np.where(shown > 0, np.arange(axis.size)[:, None], 0)
        np.maximum.accumulate(last, axis=0, out=last)
        shown = np.take_along_axis(shown, last, axis=0)
    have = (shown > 0).sum(axis=1).tolist()
    status = [f"{n:,} of {count(vertices, 'vertex')} with a value" for n in have]
    # The key of a single picture counts rows, which would be those of all timesteps here.
    legend = [(text.rsplit(" (", 1)[0], *rest) for text, *rest in colouring.legend if rest[0] != NOTHING]
    if (shown == 0).any():
        legend.append(("no value", NOTHING, "o"))
    key = Colouring(
        name, colouring.colours, colouring.markers, [(a, b, c) for a, b, c in legend], colouring.scale, colouring.ticks
    )
    return states, shown, status, key


def _places(graph: Graph, coordinates: pa.Table | None, src: Any, dst: Any, radius: float, canvas: Canvas) -> Floats:
    margin = radius + 6
    room = (canvas.width - 2 * margin, canvas.height - 2 * margin)
    if coordinates is not None:
        return fit(_given_places(graph, coordinates), *room) + margin
    places = fit(place(graph.num_vertices, src, dst, aspect=room[0] / room[1]), *room) + margin
    if graph.num_vertices <= _APART:
        places = separate(places, np.full(len(places), radius), canvas.width, canvas.height, 1.5)
    return places


def _given_places(graph: Graph, coordinates: pa.Table) -> Floats:
    expect(coordinates, pa.Table, "coordinates", "expected a pyarrow.Table with the columns vertex, x and y")
    rows = _vertices(graph, keys_of(coordinates))
    places = np.full((graph.num_vertices, 2), np.nan)
    for at, name in enumerate("xy"):
        column = column_of(coordinates, name)
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise InputError(f"coordinates: column {name!r} has type {column.type}; expected numbers")
        places[rows, at] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    missing = np.flatnonzero(~np.isfinite(places).all(axis=1))
    if missing.size:
        label = graph.label_column()[int(missing[0])].as_py()
        raise InputError(f"coordinates: missing for vertex {label!r} ({missing.size:,} vertices in total)")
    return places


def _written(canvas: Canvas, places: Floats, radius: float, texts: list[str]) -> list[tuple[str, float, float]]:
    """Positions of labels: inside the circles or next to them, where they fit."""
    for at in places:
        canvas.occupy_circle(at, radius)
    for at, text in zip(places, texts, strict=True):
        short = shorten(text, 24)
        if not canvas.text_inside(short, at, radius, FONT, INK):
            canvas.text_beside(short, at, radius, FONT)
    return [(text.get_text(), *map(float, text.get_position())) for text in canvas.axes.texts]

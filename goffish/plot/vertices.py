"""A small graph colored by a column of a result, and the neighborhood of a vertex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.guards import expect
from goffish.plot.canvas import Canvas
from goffish.plot.colouring import Colouring, colour_by
from goffish.plot.layout import fit, place, separate
from goffish.plot.style import QUIET, count, ink_on, legend_beside, marker_size, new_figure, shorten, styled

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure


import pyarrow as pa
import pyarrow.compute as pc

from goffish.graph import from_edges
from goffish.graph.guards import whole_number


def around(graph: Graph, vertex: int | str, hops: int = 1) -> Graph:
    """Extract the neighborhood of a vertex.

    Parameters
    ----------
    graph : Graph
        Graph in memory.
    vertex : int or str
        Label of the central vertex.
    hops : int
        Maximum distance from it, ignoring directions [default: 1].

    Returns
    -------
    Graph
        The vertices within `hops`, in the order of `graph`, and the edges between them; without weights and attributes.

    Raises
    ------
    InputError
        If the vertex is not in the graph, or `hops` is negative.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish import plot
    >>> plot.around(gf.from_edges([1, 2, 3], [2, 3, 4]), 1)
    Graph(2 vertices, 1 edges, undirected)
    """
    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    labels = graph.label_column()
    try:
        start = pc.index(labels, pa.scalar(vertex).cast(labels.type)).as_py()
    except (pa.ArrowException, TypeError):
        start = -1
    if start < 0:
        raise InputError(f"unknown vertex {vertex!r}: not in the graph")
    src, dst, _, _ = graph.edge_columns()
    inside = np.zeros(graph.num_vertices, np.bool_)
    inside[start] = True
    for _ in range(min(whole_number(hops, "hops"), graph.num_vertices)):
        forward, backward = dst[inside[src]], src[inside[dst]]
        before = int(inside.sum())
        inside[forward] = inside[backward] = True
        if int(inside.sum()) == before:
            break
    kept = inside[src] & inside[dst]
    number = np.cumsum(inside) - 1
    return from_edges(
        number[src[kept]], number[dst[kept]], directed=graph.directed, labels=labels.filter(pa.array(inside)),
        self_loops="keep", parallel="keep",
    )  # fmt: skip


MOST_VERTICES = 2000
_LABELLED = 60
_ARROWS = 400
_FONT = 7.0


@styled
def graph(graph: Graph, values: Result | pa.Table, column: str | None = None, *, labels: bool | None = None) -> Figure:
    """Draw a small graph with its vertices colored by a result.

    Parameters
    ----------
    graph : Graph
        Graph of at most 2,000 vertices.
    values : Result or pyarrow.Table
        Table with a column ``vertex`` of labels; vertices without a row are gray.
    column : str, optional
        Column to color by [default: the second column]. Strings, booleans and group names (``component``,
        ``community``, ...) get one color and shape each; other numbers use a color scale.
    labels : bool, optional
        Draw the vertex labels [default: True up to 60 vertices].

    Returns
    -------
    matplotlib.figure.Figure
        The layout depends on the graph only, so that figures of several columns can be compared.

    Raises
    ------
    InputError
        If the graph is too large or empty, a column is missing, the table does not match the vertices of the graph, or
        matplotlib is missing.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish import plot
    >>> graph = gf.from_edges([1, 2, 5], [2, 3, 6])
    >>> figure = plot.graph(graph, gf.connected_components(graph))
    """
    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    check_size(graph.num_vertices)
    table = values.table if isinstance(values, Result) else values
    name, found = _column(graph, table, column)
    colouring = colour_by(name, found)
    figure = new_figure(10.5, 7.5)
    canvas = Canvas(figure, (0.015, 0.05, 0.765, 0.88))
    radius = _radius(graph.num_vertices, canvas)
    src, dst, _, _ = graph.edge_columns()
    margin = radius + 6
    room = (canvas.width - 2 * margin, canvas.height - 2 * margin)
    places = fit(place(graph.num_vertices, src, dst, aspect=room[0] / room[1]), *room) + margin
    if graph.num_vertices <= 300:
        places = separate(places, np.full(len(places), radius), canvas.width, canvas.height, 1.5)
    arrows = graph.directed and graph.num_edges <= _ARROWS
    draw_edges(canvas, places, src, dst, radius, arrows)
    _draw_vertices(canvas, places, radius, colouring)
    if labels or (labels is None and graph.num_vertices <= _LABELLED):
        _label(canvas, places, radius, graph, colouring)
    title = values.algorithm + ": " if isinstance(values, Result) else ""
    figure.text(0.015, 0.955, f"{title}{name}", fontsize=11.0, fontweight="bold")
    about = f"{count(graph.num_vertices, 'vertex')}, {count(graph.num_edges, 'edge')}"
    if graph.directed:
        about += " (directed)" if arrows else " (directed; arrow heads are left out)"
    figure.text(0.78, 0.957, about, fontsize=8.0, color=QUIET, ha="right")
    draw_legend(figure, canvas, colouring)
    return figure


def check_size(vertices: int) -> None:
    """Reject a graph that is too large or empty for a drawing of single vertices.

    Parameters
    ----------
    vertices : int
        Number of vertices.

    Raises
    ------
    InputError
        If there are no vertices, or more than `MOST_VERTICES` (2,000).

    Examples
    --------
    >>> from goffish import plot
    >>> plot.check_size(100)
    """
    if vertices > MOST_VERTICES:
        raise InputError(
            f"the graph has {vertices:,} vertices; up to {MOST_VERTICES:,} can be drawn: "
            "draw its quotient graph, or a part of it such as the neighborhood of one vertex"
        )
    if vertices == 0:
        raise InputError("the graph has no vertices")


def _column(graph: Graph, table: pa.Table, column: str | None) -> tuple[str, pa.Array]:
    """Name and values of a column, one per vertex in the order of the graph, null for vertices without a row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    expect(table, pa.Table, "values", "expected a Result or a pyarrow.Table")
    names = table.column_names
    if "vertex" not in names:
        raise InputError(f"the table has no column 'vertex'; available: {', '.join(names) or 'none'}")
    others = [name for name in names if name != "vertex"]
    if column is not None and column not in names:
        raise InputError(f"unknown column {column!r}; available: {', '.join(others) or 'none'}")
    if column is None and not others:
        raise InputError("the table has only the column 'vertex'; a second column is required for colors")
    name = others[0] if column is None else column
    labels = graph.label_column()
    keys = table.column("vertex").combine_chunks()
    try:
        keys = keys.cast(labels.type)
    except pa.ArrowException:
        raise InputError(
            f"vertices have type {keys.type} in the table and {labels.type} in the graph; use the table of this graph"
        ) from None
    unknown = pc.filter(keys, pc.invert(pc.is_in(keys, value_set=labels)))
    if len(unknown):
        raise InputError(f"vertex {unknown[0].as_py()!r} of the table is not in the graph")
    if len(keys.unique()) != len(keys):
        raise InputError("the table has several rows of a vertex")
    rows = pc.index_in(labels, value_set=keys)
    return name, table.column(name).combine_chunks().take(rows)


def _radius(vertices: int, canvas: Canvas) -> float:
    share = 0.16 * np.sqrt(canvas.width * canvas.height / max(vertices, 1))
    return float(np.clip(share, 2.0, 11.0))


def draw_edges(
    canvas: Canvas, places: NDArray[np.float64], src: NDArray[Any], dst: NDArray[Any], radius: float, arrows: bool
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import FancyArrowPatch

    if not src.size:
        return
    if arrows:
        for u, v in zip(src, dst, strict=True):
            canvas.axes.add_patch(
                FancyArrowPatch(
                    places[u],
                    places[v],
                    arrowstyle="-|>",
                    mutation_scale=4 + 0.5 * radius,
                    color="#999999",
                    linewidth=0.8,
                    shrinkA=radius,
                    shrinkB=radius,
                    zorder=1,
                )
            )
        return
    dense = float(np.clip(600 / src.size, 0.25, 1.0))
    lines = LineCollection(
        list(np.stack([places[src], places[dst]], axis=1)), colors="#8c8c8c", linewidths=0.4 + 0.6 * dense,
        alpha=0.3 + 0.4 * dense, zorder=1, gid="edges",
    )  # fmt: skip
    canvas.axes.add_collection(lines, autolim=False)


def _draw_vertices(canvas: Canvas, places: NDArray[np.float64], radius: float, colouring: Colouring) -> None:
    for marker, rows in colouring.by_marker():
        canvas.axes.scatter(
            places[rows, 0], places[rows, 1], s=marker_size(radius, marker), c=colouring.colours[rows], marker=marker,
            edgecolors="white", linewidths=0.6 if radius > 3 else 0.3, zorder=2, gid=f"vertices-{marker}",
        )  # fmt: skip


def _label(canvas: Canvas, places: NDArray[np.float64], radius: float, graph: Graph, colouring: Colouring) -> None:
    texts = [shorten(str(label), 24) for label in graph.label_column().to_pylist()]
    for at in places:
        canvas.occupy_circle(at, radius)
    for v, text in enumerate(texts):
        if not canvas.text_inside(text, places[v], radius, _FONT, ink_on(colouring.colours[v])):
            canvas.text_beside(text, places[v], radius, _FONT)


def draw_legend(figure: Figure, canvas: Canvas, colouring: Colouring) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=8, label=shorten(text, 26))
        for text, colour, marker in colouring.legend
    ]
    if colouring.scale is None:
        legend_beside(canvas.axes, handles, f"{shorten(colouring.name, 18)} (vertices)")
        return
    bar = figure.colorbar(colouring.scale, cax=figure.add_axes((0.82, 0.25, 0.022, 0.6)))
    bar.ax.yaxis.set_major_locator(colouring.ticks)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    bar.set_label(shorten(colouring.name, 60))
    bar.outline.set_visible(False)
    bar.ax.minorticks_off()
    if handles:
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.805, 0.2), borderaxespad=0.0)

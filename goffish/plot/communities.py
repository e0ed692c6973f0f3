"""The graph of communities, and the distributions of community sizes and vertex degrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import community_kernels as kernels
from goffish.algorithms.communities.communities import Communities, make_communities, modularity, normalise
from goffish.algorithms.communities.divisions import arcs_of, weighted_degrees
from goffish.algorithms.communities.named import full_division
from goffish.errors import InputError
from goffish.graph import Graph
from goffish.graph.guards import expect, whole_number
from goffish.plot.canvas import Canvas
from goffish.plot.circles import circle_radii, draw_links, place_circles
from goffish.plot.style import (
    COLOURS,
    QUIET,
    SEQUENCE,
    count,
    ink_on,
    marker_size,
    new_figure,
    shorten,
    styled,
    text_size,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from goffish.gopher.result import Result

#: #: Maximum number of nodes of a picture.
MOST_COMMUNITIES = 500
#: #: Maximum number of lines per node; the weakest are left out.
_LINKS = 2.5
_FONT = 7.5
_LABEL = 16
_CURVE = 1000


@dataclass(frozen=True)
class _Nodes:
    """The largest communities, by decreasing size, and the strongest links between them.

    Attributes
    ----------
    size : int64, shape (nodes,)
    conductance : float64, shape (nodes,)
    names : list of str
        Label of the most central member of each community.
    ends : int64, shape (2, links); weights : float64, shape (links,)
    weaker : int
        Number of links that are not drawn.
    """

    size: NDArray[np.int64]
    conductance: NDArray[np.float64]
    names: list[str]
    ends: NDArray[np.int64]
    weights: NDArray[np.float64]
    weaker: int


@styled
def communities(graph: Communities | Graph, division: Result | Any = None, *, largest: int = 40) -> Figure:
    """Draw communities and the edges between them, with the distributions of community sizes and degrees.

    Parameters
    ----------
    graph : Communities or Graph
        A result of community detection, or a graph with a `division`.
    division : Result, table, mapping or array-like, optional
        With a `Graph`: a result or table (Arrow, pandas, Polars) with the columns ``vertex`` and ``community``, a
        mapping of vertex label to community, or one community per vertex in vertex order. Every vertex needs a
        community.
    largest : int
        Number of the largest communities that are drawn as nodes, at most 500 [default: 40]. The caption counts the
        others.

    Returns
    -------
    matplotlib.figure.Figure
        The area of a node is its number of vertices and its color the conductance; its label is the member with the
        largest weighted degree inside the community. The width of a line is the weight of the edges between two
        communities; the strongest link of every node and the strongest of all are drawn.

    Raises
    ------
    InputError
        If the division does not match the vertices of the graph, there are no communities, or matplotlib is missing.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish import plot
    >>> found = gf.louvain(gf.from_edges([1, 2, 3, 3, 4, 5, 6], [2, 3, 1, 4, 5, 6, 4]))
    >>> figure = plot.communities(found)
    """
    largest = whole_number(largest, "largest")
    if largest > MOST_COMMUNITIES:
        raise InputError(f"largest = {largest}: must be 1 to {MOST_COMMUNITIES}")
    found = _result(graph, division)
    if found.graph.num_vertices == 0:
        raise InputError("the graph has no vertices")
    sizes = np.bincount(found.membership, minlength=found.num_communities)
    nodes = _choose(found, sizes, largest)
    figure = new_figure(12.0, 7.4)
    canvas = Canvas(figure, (0.012, 0.15, 0.655, 0.785))
    radii = circle_radii(nodes.size, canvas.width * canvas.height)
    places, floor = place_circles(nodes.ends, radii, canvas.width, canvas.height)
    if not nodes.weights.size:
        places += np.array([canvas.width, canvas.height]) / 2 - (places.min(axis=0) + places.max(axis=0)) / 2
    draw_links(canvas, nodes.ends, nodes.weights, places, radii)
    if nodes.weights.size and floor > 0:
        _head_rows(canvas, floor)
    _draw_nodes(figure, canvas, nodes, places, radii)
    figure.text(
        0.012, 0.955, f"{_communities(found.num_communities)} of {count(found.graph.num_vertices, 'vertex')}, "
        f"modularity {found.modularity:.4f}",
        fontsize=11.0, fontweight="bold",
    )  # fmt: skip
    figure.text(0.012, 0.02, _caption(nodes, found), fontsize=8.0, color=QUIET, linespacing=1.35)
    weighted = "weighted degree" if found.graph.weights is not None else "degree"
    if found.graph.directed:
        weighted += " (in + out)"
    _curve(figure.add_axes((0.745, 0.585, 0.24, 0.34)), sizes, "Sizes of communities", "vertices", "communities")
    _curve(
        figure.add_axes((0.745, 0.095, 0.24, 0.34)), weighted_degrees(found.graph), "Degrees of vertices", weighted,
        "vertices",
    )  # fmt: skip
    return figure


def _result(graph: Communities | Graph, division: Any) -> Communities:
    if isinstance(graph, Communities) and division is None:
        return graph
    expect(
        graph,
        Graph,
        "graph",
        "expected Communities, or a goffish Graph with a division; call to_graph() on a store",
    )
    assert isinstance(graph, Graph)
    if isinstance(division, Communities) and division.graph is graph:
        return division
    given = getattr(division, "table", division)
    ids = normalise(full_division(graph, given, "the division" if division is not given else "the table"))
    return make_communities(graph, [ids], modularity=modularity(graph, ids))


def _choose(found: Communities, sizes: NDArray[np.int64], largest: int) -> _Nodes:
    kept = np.argsort(-sizes, kind="stable")[:largest]
    table = found.describe(central=1).take(kept)
    of_community = np.full(sizes.size, -1, np.int64)
    of_community[kept] = np.arange(kept.size)
    matrix = np.zeros((kept.size, kept.size))
    kernels.weight_between(
        arcs_of(found.graph), found.graph.directed, of_community[found.membership], matrix
    )  # fmt: skip
    ends = np.stack(np.nonzero(np.triu(matrix, 1)))
    weights = matrix[ends[0], ends[1]]
    order = np.argsort(-weights, kind="stable")
    chosen = np.zeros(weights.size, bool)
    chosen[order[: int(_LINKS * kept.size)]] = True
    both, at = ends[:, order].T.ravel(), np.repeat(order, 2)
    _, first = np.unique(both, return_index=True)
    chosen[at[first]] = True
    return _Nodes(
        size=sizes[kept],
        conductance=table["conductance"].to_numpy(),
        names=[shorten(str(central[0]), _LABEL) for central in table["central"].to_pylist()],
        ends=ends[:, chosen],
        weights=weights[chosen],
        weaker=int(np.count_nonzero(~chosen)),
    )


def _head_rows(canvas: Canvas, floor: float) -> None:
    text = "without an edge to another one drawn:"
    middle = np.array([4 + text_size(text, 8.0)[0] / 2, floor + 12])
    canvas.text_along(text, middle, middle, 8.0)


def _draw_nodes(
    figure: Figure, canvas: Canvas, nodes: _Nodes, places: NDArray[np.float64], radii: NDArray[np.float64]
) -> None:
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    highest = max(0.5, np.ceil(10 * float(nodes.conductance.max())) / 10)
    scale = ScalarMappable(Normalize(0.0, highest), matplotlib.colormaps[SEQUENCE])
    colours = scale.to_rgba(nodes.conductance)
    for v in range(radii.size):
        canvas.axes.scatter(
            *places[v], s=marker_size(radii[v], "o"), facecolor=colours[v], edgecolor="white", linewidth=0.8, zorder=2,
            gid=f"community-{v}",
        )  # fmt: skip
    for v in range(radii.size):
        name, size = nodes.names[v], f"{nodes.size[v]:,}"
        if not canvas.text_inside(f"{name}\n{size}", places[v], float(radii[v]), _FONT, ink_on(colours[v])):
            canvas.text_beside(f"{name} ({size})", places[v], float(radii[v]), _FONT)
    bar = figure.colorbar(scale, cax=figure.add_axes((0.51, 0.122, 0.155, 0.014)), orientation="horizontal")
    bar.set_ticks([0.0, highest / 2, highest])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.0, length=2.0, pad=1.5)
    figure.text(0.502, 0.12, "conductance", fontsize=8.0, ha="right")


def _caption(nodes: _Nodes, found: Communities) -> str:
    lines = [
        "Area and number of a node: its vertices. Name, if it fits: its most central member. "
        "Color: conductance (cut weight over volume)."
    ]
    if nodes.weights.size:
        drawn = f"Width of a line: weight of the edges between two communities, at most {nodes.weights.max():,.6g}."
        if nodes.weaker:
            drawn += f" Left out: {nodes.weaker:,} weaker ones of {nodes.weaker + nodes.weights.size:,} links."
        lines.append(drawn)
    others = found.num_communities - nodes.size.size
    if others:
        share = 1 - nodes.size.sum() / found.graph.num_vertices
        lines.append(f"Not drawn: {_communities(others, 'other ')} with {share:.1%} of the vertices.")
    return "\n".join(lines)


def _communities(number: int, kind: str = "") -> str:
    return f"{number:,} {kind}{'community' if number == 1 else 'communities'}"


def _curve(axes: Any, values: NDArray[Any], title: str, name: str, things: str) -> None:
    """Plot the share of the `things` with at least x, on logarithmic axes."""
    axes.set_title(title)
    axes.set_xlabel(f"{name}, at least")
    axes.set_ylabel(f"share of {things}")
    positive = np.sort(values[values > 0])
    if not positive.size:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no edges", transform=axes.transAxes, ha="center", va="center", color=QUIET)
        return
    distinct, first = np.unique(positive, return_index=True)
    share = (positive.size - first) / values.size
    if distinct.size > _CURVE:
        # Evenly along the axis, including both ends.
        at = np.geomspace(distinct[0], distinct[-1], _CURVE)
        rows = np.unique(np.clip(np.searchsorted(distinct, at), 0, distinct.size - 1))
        distinct, share = distinct[rows], share[rows]
    axes.plot(
        distinct, share, color=COLOURS[0], linewidth=1.2, marker="o", markersize=2.5 if distinct.size > 1 else 5.0,
        drawstyle="steps-pre", clip_on=False, gid=f"curve-{things}",
    )  # fmt: skip
    _log_axis(axes.set_xscale, axes.xaxis, axes.set_xlim, distinct)
    _log_axis(axes.set_yscale, axes.yaxis, axes.set_ylim, share, highest=1.0)
    axes.grid(color="#e4e4e4", linewidth=0.8)
    missing = values.size - positive.size
    if missing:
        axes.text(
            0.98, 0.96, f"{missing:,} without edges", transform=axes.transAxes, ha="right", va="top", fontsize=7.5,
            color=QUIET,
        )  # fmt: skip


def _log_axis(set_scale: Any, axis: Any, set_limits: Any, values: NDArray[Any], highest: float | None = None) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = float(values.min()), float(values.max()) if highest is None else highest
    set_scale("log")
    # Slightly beyond the values, or rounding removes the tick at an end.
    beyond = 1.5 if low == high else 1.001
    set_limits(low / beyond, high * beyond)
    if low == high:
        axis.set_major_locator(FixedLocator([low]))
    elif high / low < 4:
        axis.set_major_locator(MaxNLocator(4, integer=bool(np.all(values == np.round(values)))))
    else:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 80 else (1.0,), numticks=8))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}" if value >= 1e-4 else f"{value:.0e}"))

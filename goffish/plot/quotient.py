"""The graph of subgraphs."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.gofs import PartitionedGraph
from goffish.graph.guards import expect, whole_number
from goffish.plot.canvas import Canvas
from goffish.plot.circles import FEW_LINKS, circle_radii, clear_links, draw_links, place_circles
from goffish.plot.style import (
    CATEGORIES,
    NOTHING,
    QUIET,
    SEQUENCE,
    count,
    ink_on,
    legend_beside,
    look,
    marker_size,
    new_figure,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: #: Maximum number of partitions whose remaining subgraphs have a separate node; for more, the caption summarizes
#: them.
_MOST_RESTS = 24
_REST_RADIUS = 21.0
_FONT = 7.5


@dataclass(frozen=True)
class _Nodes:
    """Nodes and links of the picture: the largest subgraphs, then one node per partition for its remaining subgraphs.

    Attributes
    ----------
    partition, vertices, subgraphs : int64, shape (nodes,)
    single : int
        Number of nodes for one subgraph; the following nodes represent several.
    ends : int64, shape (2, links); links : int64
        Pairs of nodes, and the number of edges between them.
    hidden : int
        Number of subgraphs without a node.
    """

    partition: NDArray[np.int64]
    vertices: NDArray[np.int64]
    subgraphs: NDArray[np.int64]
    single: int
    ends: NDArray[np.int64]
    links: NDArray[np.int64]
    hidden: int
    total_links: int


@styled
def quotient_graph(graph: PartitionedGraph, *, largest: int = 60) -> Figure:
    """Draw the quotient graph: the subgraphs of a partitioned graph and the edges between them.

    Parameters
    ----------
    graph : PartitionedGraph
        Graph to draw.
    largest : int
        Number of the largest subgraphs that are drawn as separate nodes, at least 1 [default: 60]. The other subgraphs
        of a partition share one dashed node; with more than 24 partitions they are only counted in the caption. Of
        equally large subgraphs every partition shows some.

    Returns
    -------
    matplotlib.figure.Figure
        The area of a node is its number of vertices and its color the partition; the width of a line is the number of
        edges between two nodes. Nodes without such edges are in rows at the bottom.

    Raises
    ------
    InputError
        If the graph is not partitioned, `largest` is not positive, or matplotlib is missing.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish import plot
    >>> figure = plot.quotient_graph(gf.partition(gf.from_edges([1, 2], [2, 3]), parts=2))
    """
    expect(graph, PartitionedGraph, "graph", "expected a PartitionedGraph; call gf.partition(graph, parts)")
    largest = whole_number(largest, "largest")
    nodes = _choose(graph, largest)
    figure = new_figure(10.5, 7.0)
    canvas = Canvas(figure, (0.015, 0.075, 0.735, 0.85))
    radii = _radii(nodes, canvas.width * canvas.height)
    places, floor = place_circles(nodes.ends, radii, canvas.width, canvas.height)
    if 0 < floor < canvas.height:
        canvas.axes.text(4, floor + 6, "subgraphs without cut edges:", fontsize=8.0, color=QUIET)
    places = clear_links(places, radii, nodes.ends[:, _numbered(nodes)], canvas.width, canvas.height, floor)
    draw_links(canvas, nodes.ends, nodes.links, places, radii)
    _draw_nodes(canvas, nodes, places, radii, graph.num_partitions)
    _label_links(canvas, nodes, places)
    figure.text(
        0.015, 0.955, f"Quotient graph: {count(graph.num_subgraphs, 'subgraph')} in "
        f"{count(graph.num_partitions, 'partition')}, {count(nodes.total_links, 'edge')} between them",
        fontsize=11.0, fontweight="bold",
    )  # fmt: skip
    figure.text(0.015, 0.012, _caption(nodes, graph), fontsize=8.0, color=QUIET)
    _legend(figure, canvas, graph, nodes)
    return figure


def _choose(graph: PartitionedGraph, largest: int) -> _Nodes:
    slices = graph.slices()
    none = [np.empty(0, np.int64)]
    size = np.concatenate(none + [np.diff(part.subgraph_offsets) for part in slices])
    owner = np.repeat(np.arange(graph.num_partitions), graph.info.subgraphs)
    degree = np.concatenate(none + [np.diff(part.neighbor_offsets) for part in slices])
    src = np.repeat(np.arange(size.size), degree)
    dst = np.concatenate(none + [part.neighbor_subgraph for part in slices])
    links = np.concatenate(none + [part.neighbor_links for part in slices])
    once = src < dst
    src, dst, links = src[once], dst[once], links[once]

    # Among equally large ones, the first of every partition, then the second of every partition, and so on.
    order = np.lexsort((-size, owner))
    turn = np.empty(size.size, np.int64)
    turn[order] = np.arange(size.size) - graph.subgraph_starts[owner[order]]
    kept = np.sort(np.lexsort((owner, turn, -size))[:largest])
    node = np.full(size.size, -1, np.int64)
    node[kept] = np.arange(kept.size)
    rest = np.flatnonzero(node < 0)
    rest_parts, at = np.unique(owner[rest], return_inverse=True)
    drawn = rest_parts.size <= _MOST_RESTS
    if drawn:
        node[rest] = kept.size + at
    else:
        rest_parts, at = rest_parts[:0], at[:0]
    alone = rest if drawn else rest[:0]
    pair = np.stack([node[src], node[dst]])
    inside = (pair.min(axis=0, initial=np.iinfo(np.int64).max) >= 0) & (pair[0] != pair[1])
    ends, at_pair = np.unique(np.sort(pair[:, inside], axis=0), axis=1, return_inverse=True)
    many = np.bincount(at, minlength=rest_parts.size)
    return _Nodes(
        partition=np.concatenate([owner[kept], rest_parts]).astype(np.int64),
        vertices=np.concatenate([size[kept], np.bincount(at, size[alone], rest_parts.size)]).astype(np.int64),
        subgraphs=np.concatenate([np.ones(kept.size), many]).astype(np.int64),
        single=int(kept.size),
        ends=ends,
        links=np.bincount(at_pair.ravel(), links[inside], ends.shape[1]).astype(np.int64),
        hidden=0 if drawn else int(rest.size),
        total_links=int(links.sum()),
    )


def _radii(nodes: _Nodes, area: float) -> NDArray[np.float64]:
    rests = np.full(nodes.vertices.size - nodes.single, _REST_RADIUS)
    return np.concatenate([circle_radii(nodes.vertices[: nodes.single], area), rests])


def _draw_nodes(
    canvas: Canvas, nodes: _Nodes, places: NDArray[np.float64], radii: NDArray[np.float64], partitions: int
) -> None:
    for v in np.argsort(-radii, kind="stable"):
        colour, marker = _look(int(nodes.partition[v]), partitions)
        several = v >= nodes.single
        canvas.axes.scatter(
            *places[v], s=marker_size(radii[v], marker), marker=marker, facecolor="white" if several else colour,
            edgecolor=colour if several else "white", linewidth=1.6 if several else 0.8,
            linestyle=(0, (3, 2)) if several else "solid", zorder=2, gid=f"node-{v}",
        )  # fmt: skip
        text = f"+{nodes.subgraphs[v]:,}\nsmall" if several else f"{nodes.vertices[v]:,}"
        canvas.text_inside(text, places[v], float(radii[v]), _FONT, "black" if several else ink_on(colour))


def _label_links(canvas: Canvas, nodes: _Nodes, places: NDArray[np.float64]) -> None:
    """Number the lines if there are few, the heaviest first, where the numbers fit."""
    if nodes.links.size > FEW_LINKS:
        return
    for link in np.argsort(-nodes.links, kind="stable")[: np.count_nonzero(_numbered(nodes))]:
        a, b = places[nodes.ends[0, link]], places[nodes.ends[1, link]]
        canvas.text_along(f"{nodes.links[link]:,}", a, b, _FONT)


def _numbered(nodes: _Nodes) -> NDArray[np.bool_]:
    """Links that are heavy enough for a number: not the few edges of every small subgraph."""
    most: NDArray[np.bool_] = nodes.links * 100 >= nodes.links.max(initial=0)
    return most


def _look(partition: int, partitions: int) -> tuple[Any, str]:
    if partitions <= CATEGORIES:
        return look(partition)
    import matplotlib

    return matplotlib.colormaps[SEQUENCE](partition / (partitions - 1)), "o"


def _caption(nodes: _Nodes, graph: PartitionedGraph) -> str:
    few, numbered = nodes.links.size <= FEW_LINKS, _numbered(nodes)
    numbers = " and number" if few else ""
    notes = [f"Area and number of a node: vertices. Width{numbers} of a line: edges cut."]
    if few and not numbered.all():
        notes.append(f"Lines without a number: fewer than {nodes.links[numbered].min():,}.")
    if nodes.single < nodes.subgraphs.size:
        small = int(nodes.subgraphs[nodes.single :].sum())
        share = nodes.vertices[nodes.single :].sum() / max(graph.num_vertices, 1)
        notes.append(f"Dashed (not to scale): {small:,} small subgraphs with {share:.1%} of the vertices.")
    if nodes.hidden:
        share = 1 - nodes.vertices.sum() / max(graph.num_vertices, 1)
        notes.append(f"Not drawn: {nodes.hidden:,} small subgraphs with {share:.1%} of the vertices.")
    return fill(" ".join(notes), 150)


def _legend(figure: Figure, canvas: Canvas, graph: PartitionedGraph, nodes: _Nodes) -> None:
    from matplotlib.lines import Line2D

    partitions = graph.num_partitions
    if partitions > CATEGORIES:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        scale = ScalarMappable(Normalize(0, partitions - 1), SEQUENCE)
        figure.colorbar(scale, cax=figure.add_axes((0.80, 0.2, 0.02, 0.6)), label="partition")
        return
    handles = []
    for p in range(partitions):
        colour, marker = _look(p, partitions)
        text = f"{p}: {count(graph.info.vertices[p], 'vertex')},\n{count(graph.info.subgraphs[p], 'subgraph')}"
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=9, label=text))
    if nodes.single < nodes.subgraphs.size:
        handles.append(
            Line2D(
                [],
                [],
                markerfacecolor="white",
                markeredgecolor=NOTHING,
                marker="o",
                linestyle="none",
                markersize=9,
                markeredgewidth=1.4,
                label="dashed: several small\nsubgraphs together",
            )
        )
    legend_beside(canvas.axes, handles, "partitions")

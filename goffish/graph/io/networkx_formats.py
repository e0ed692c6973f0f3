"""GraphML and GML, through networkx: for small graphs with attributes."""

from __future__ import annotations

import io
import re
from typing import Any, BinaryIO
from xml.etree.ElementTree import ParseError

from goffish.errors import FormatError, InputError
from goffish.extras import needed_for
from goffish.graph.graph import Graph
from goffish.graph.io.options import ReadOptions
from goffish.graph.io.streams import Source
from goffish.graph.libraries import from_networkx, to_networkx

_INTEGER = re.compile(r"(0|-?[1-9][0-9]{0,18})$")
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def read_graphml(source: Source, options: ReadOptions) -> Graph:
    """Read a GraphML file; see `goffish.graph.io.read`."""
    with needed_for("GraphML files"):
        import networkx as nx

    try:
        graph = nx.read_graphml(io.BytesIO(source.read_all()))
    except (ParseError, nx.NetworkXException, KeyError, ValueError, TypeError) as error:
        line = error.position[0] if isinstance(error, ParseError) else None
        raise FormatError(source.name, line, f"not readable as GraphML ({error})") from None
    return _build(source, graph, options)


def read_gml(source: Source, options: ReadOptions) -> Graph:
    """Read a GML file; see `goffish.graph.io.read`. Vertices go by ``label``, or else by ``id``."""
    with needed_for("GML files"):
        import networkx as nx

    try:
        lines = source.read_all().decode("utf-8-sig").splitlines()
        try:
            graph = nx.parse_gml(lines, label="label", destringizer=_large_integer)
        except nx.NetworkXError as error:
            if "no 'label' attribute" not in str(error):
                raise
            graph = nx.parse_gml(lines, label="id", destringizer=_large_integer)
    except (nx.NetworkXException, KeyError, ValueError, TypeError) as error:
        found = re.search(r"\((\d+), \d+\)", str(error))
        raise FormatError(source.name, int(found[1]) if found else None, f"not readable as GML ({error})") from None
    return _build(source, graph, options)


def _large_integer(text: str) -> int:
    """GML numbers have 32 bits; networkx writes larger ones as strings, and so do we."""
    if _INTEGER.match(text) and not -(2**31) <= int(text) < 2**31:
        return int(text)
    raise ValueError(text)


def _build(source: Source, graph: Any, options: ReadOptions) -> Graph:
    """Ids are text in these formats: all canonical integers become integers."""
    import networkx as nx

    if options.columns:
        raise InputError(f"{source.name}: columns does not apply to this format")
    labels = {node: _INTEGER.match(str(node)) is not None and _SMALLEST <= int(node) <= _LARGEST for node in graph}
    if labels and all(labels.values()):
        graph = nx.relabel_nodes(graph, {node: int(node) for node in graph})
    elif any(not isinstance(node, str) for node in graph):
        graph = nx.relabel_nodes(graph, {node: str(node) for node in graph})
    if options.directed is not None and options.directed != graph.is_directed():
        graph = graph.to_directed() if options.directed else _forget_directions(graph)
    has_weight = any("weight" in data for *_, data in graph.edges(data=True))
    if options.weighted and not has_weight:
        raise FormatError(source.name, None, "weighted=True: no edge has a 'weight'")
    if options.weighted is False:
        for *_, data in graph.edges(data=True):
            data.pop("weight", None)
    return from_networkx(graph, self_loops=options.self_loops, parallel=options.parallel)


def _forget_directions(graph: Any) -> Any:
    """As a multigraph, so that `parallel` decides what becomes of u -> v and v -> u."""
    import networkx as nx

    undirected = nx.MultiGraph()
    undirected.add_nodes_from(graph.nodes(data=True))
    undirected.add_edges_from((u, v, data) for u, v, data in graph.edges(data=True))
    return undirected


def write_graphml(graph: Graph, file: BinaryIO) -> None:
    """Write GraphML; string labels that are all integers come back as integers."""
    import networkx as nx

    try:
        nx.write_graphml_xml(to_networkx(graph), file)
    except (nx.NetworkXException, TypeError, ValueError) as error:
        raise InputError(f"GraphML cannot store this graph: {error}") from None


def write_gml(graph: Graph, file: BinaryIO) -> None:
    """Write GML; string labels that are all integers come back as integers, booleans as 0 and 1."""
    import networkx as nx

    try:
        nx.write_gml(to_networkx(graph), file)
    except (nx.NetworkXException, TypeError, ValueError) as error:
        raise InputError(f"GML cannot store this graph: {error}") from None

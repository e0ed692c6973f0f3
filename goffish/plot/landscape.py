"""A self-contained HTML page to zoom from communities to their central members.

Uses its own script, as neither Vega-Lite nor Plotly zooms into packed circles with labels at every depth, and D3, which
does, would be ten times the size.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from goffish.algorithms.landscape.levels import CommunityLandscape
from goffish.graph.guards import expect, path_name
from goffish.partial import check_place, local_path, output_file
from goffish.plot.landscape_tree import MOST_CHILDREN, MOST_MEMBERS, Node, drawn_tree
from goffish.plot.style import COLOURS, count, shorten
from goffish.version import __version__

_SUFFIXES = (".html", ".htm")
#: #: Maximum length of a label, chosen so that all labels together stay below this number of bytes.
_LABEL_LENGTHS, _LABEL_BYTES = (80, 40, 16, 8), 1_000_000


def check_page(path: str | Path) -> None:
    """Refuse a page that `write_page` could not write, before any computation.

    Raises
    ------
    InputError
        If the suffix is not .html or .htm, or the folder is missing or not writable.
    """
    path_name(path)
    check_place(path, _SUFFIXES)


def write_page(found: CommunityLandscape, path: str | Path, *, name: str = "graph") -> Path:
    """Write `page` to a file, atomically.

    Raises
    ------
    InputError
        See `check_page`; also if `found` is not a landscape.
    """
    check_page(path)
    text = page(found, name=name)
    target = local_path(path)
    with output_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return target


def page(found: CommunityLandscape, *, name: str = "graph") -> str:
    """Convert a landscape to an HTML page: nested circles, and tables of the central members.

    The page makes no requests (enforced by its content security policy), works offline, and is deterministic. Its size
    does not grow with the graph: it has at most 2000 circles, and ten members of each; the page lists omissions.

    Parameters
    ----------
    found : CommunityLandscape
    name : str
        Name of the graph, for the title.

    Raises
    ------
    InputError
        If `found` is not a landscape.
    """
    expect(found, CommunityLandscape, "found", "expected the result of goffish.landscape")
    # A file name may contain bytes that are not text.
    title = f"Communities of {shorten(name.encode('utf-8', 'replace').decode(), 120)}"
    style, script = _part("page.css"), _part("page.js")
    return Template(_part("page.html")).substitute(
        title=html.escape(title), style=style, script=script, style_hash=digest(style), script_hash=digest(script),
        data=as_json(_data(found, title)),
    )  # fmt: skip


def _part(name: str) -> str:
    return (resources.files("goffish.plot") / "landscape_page" / name).read_text(encoding="utf-8").rstrip("\n")


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def as_json(body: Any) -> str:
    """Encode JSON so that no HTML parser treats it as markup, whatever the labels are."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _data(found: CommunityLandscape, title: str) -> dict[str, Any]:
    nodes = drawn_tree(found)
    number: dict[int, int] = {}
    for node in nodes:
        for vertex in node.members.tolist():
            number.setdefault(vertex, len(number))
    home = {number[v]: at for at, node in enumerate(nodes) if len(node.dots) for v in node.members.tolist()}
    labels, cut_to = _labels(found, list(number))
    return {
        "title": title,
        "facts": _facts(found),
        "options": _options(found),
        "left_out": _left_out(found, nodes, cut_to),
        "value": "betweenness" if found.options.paths == "graph" else "betweenness within",
        "bound": found.summary["betweenness"] == "sampled",
        "colours": COLOURS[:-1],  # yellow is too close to white
        "labels": labels,
        "home": [home[at] for at in range(len(labels))],
        "nodes": {
            "parent": [node.parent for node in nodes],
            "level": [node.level for node in nodes],
            "finest": [node.finest for node in nodes],
            "community": [node.community for node in nodes],
            "size": [node.size for node in nodes],
            "merged": [node.merged for node in nodes],
            "undrawn": [node.undrawn for node in nodes],
            "inside": [_short(node.inside) for node in nodes],
            "cut": [_short(node.cut) for node in nodes],
            "place": [[_short(value) for value in node.place] for node in nodes],
            "members": [[number[v] for v in node.members.tolist()] for node in nodes],
            "scores": [[_short(value) for value in node.scores.tolist()] for node in nodes],
            "dots": [[[_short(value) for value in dot] for dot in node.dots.tolist()] for node in nodes],
        },
    }


def _short(value: float) -> float | int:
    """Round to six significant digits."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() else rounded


def _labels(found: CommunityLandscape, vertices: list[int]) -> tuple[list[str], int | None]:
    """Labels as text, and the length to which some were cut."""
    import pyarrow as pa

    texts = [str(value) for value in found.graph.label_column().take(pa.array(vertices, pa.int64())).to_pylist()]
    for length in _LABEL_LENGTHS:
        cut = [shorten(text, length) for text in texts]
        if len(as_json(cut).encode()) <= _LABEL_BYTES:
            break
    return cut, length if cut != texts else None


def _facts(found: CommunityLandscape) -> list[tuple[str, str]]:
    graph, top = found.graph, found.communities
    kind = ("directed" if graph.directed else "undirected") + (", weighted" if graph.weights is not None else "")
    return [
        ("vertices", f"{graph.num_vertices:,}"),
        ("edges", f"{graph.num_edges:,} ({kind})"),
        ("communities", f"{top.num_communities:,}"),
        ("levels", f"{top.num_levels}"),
        ("modularity", f"{top.modularity:.4f}"),
    ]


def _options(found: CommunityLandscape) -> list[tuple[str, str]]:

    options = found.options
    lengths = {
        "graph": "exact, in the whole graph",
        "community": "exact, of shortest paths within the community",
    }[options.paths]
    if found.summary["betweenness"] == "sampled":
        epsilon, samples = found.summary["epsilon"], found.summary["samples"]
        lengths = (
            f"in the whole graph, from {samples:,} sampled shortest paths: with probability 0.9 no value is off by "
            f"more than {epsilon:g} of all pairs"
        )
    return [
        ("communities", f"Louvain, resolution {options.resolution:g}, refine {options.refine}"),
        ("betweenness", lengths + (", weights as lengths" if options.weighted else ", each edge of length 1")),
        ("members named", f"{options.members} per community"),
        ("seed", str(options.seed)),
        ("created by", f"GoFFish {__version__}"),
    ]


def _left_out(found: CommunityLandscape, nodes: list[Node], cut_to: int | None) -> list[str]:
    notes = []
    merged = sum(node.merged for node in nodes)
    if merged:
        notes.append(
            f"{merged:,} small {'community' if merged == 1 else 'communities'}, with more than {MOST_CHILDREN} "
            "siblings, are merged into dashed circles, which are never larger than their largest sibling."
        )
    closed = sum(node.undrawn > 0 for node in nodes)
    if closed:
        notes.append(f"{count(closed, 'circle')}: finer communities inside are not drawn.")
    lower = found.levels[0].number - 1
    if lower:
        notes.append(f"{count(lower, 'finer level')} {'was' if lower == 1 else 'were'} left out by the option levels.")
    if found.options.members > MOST_MEMBERS:
        notes.append(f"Of {found.options.members:,} named members per community, the first {MOST_MEMBERS} are shown.")
    if cut_to is not None:
        notes.append(f"Labels are cut to {cut_to} characters.")
    notes.append(
        "Of every community only its most central members are shown; the table of the same run has all levels."
    )
    return notes

"""Output of animations: a self-contained page, single pictures, and a GIF."""

from __future__ import annotations

import html
from collections.abc import Callable
from importlib import resources
from io import BytesIO
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph.guards import expect, path_name, whole_number
from goffish.partial import check_place, local_path, output_file
from goffish.plot.animation import FONT, SIZE, STAGE, Animation
from goffish.plot.canvas import Canvas
from goffish.plot.landscape import as_json, digest
from goffish.plot.style import (
    INK,
    MARKERS,
    NOTHING,
    QUIET,
    count,
    marker_size,
    new_figure,
    require_matplotlib,
    settings,
    styled,
)
from goffish.plot.vertices import draw_edges, draw_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: #: Maximum number of pictures of a GIF, which are in memory until it is written, half a megabyte each.
MOST_PICTURES = 300
_GIF_DPI = 90
_SUFFIXES = (".html", ".htm", ".gif")
_STOPS = 33
_SHADES = 52
_DIGITS = 1


def check_animation(path: str | Path) -> None:
    """Check that `write_animation` can write to a path, before any work is done.

    Parameters
    ----------
    path : str or path-like
        Local file ending in ``.html``, ``.htm`` or ``.gif``.

    Raises
    ------
    InputError
        If the suffix is unknown, the folder is missing or not writable, or matplotlib is missing.

    Examples
    --------
    >>> from goffish import plot
    >>> plot.check_animation("spread.html")
    """
    path_name(path)
    check_place(path, _SUFFIXES)
    require_matplotlib()


def write_animation(found: Animation, path: str | Path, *, seconds: float = 0.5) -> Path:
    """Write an animation as an HTML page or as an endlessly repeating GIF, by the suffix of the path.

    The file is published when it is complete, and equal animations produce equal bytes.

    Parameters
    ----------
    found : Animation
        What `animate` returned.
    path : str or path-like
        Local file ending in ``.html``, ``.htm`` or ``.gif``.
    seconds : float
        Duration of each timestep in a GIF, 0.02 to 60 seconds [default: 0.5]. A page has a control for it.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InputError
        As in `check_animation`, or if a GIF would have more than 300 timesteps or `seconds` is out of range.

    Examples
    --------
    >>> import goffish as gf
    >>> import pyarrow as pa
    >>> from goffish import plot
    >>> reached = pa.table({"vertex": [1, 2, 3], "timestep": [0, 0, 1]})
    >>> found = plot.animate(gf.from_edges([1, 2], [2, 3]), reached)
    >>> plot.write_animation(found, "spread.html").name
    'spread.html'
    """
    check_animation(path)
    expect(found, Animation, "found", "expected the result of goffish.plot.animation.animate")
    target = local_path(path)
    gif = target.suffix.lower() == ".gif"
    if gif and found.timesteps.size > MOST_PICTURES:
        raise InputError(
            f"{target}: {count(found.timesteps.size, 'timestep')}; a GIF holds up to {MOST_PICTURES}: "
            "write a page (.html), or take a shorter range of time"
        )
    if not isinstance(seconds, int | float) or not 0.02 <= seconds <= 60:
        raise InputError(f"seconds = {seconds!r}: must be 0.02 to 60")
    body = _gif(found, seconds) if gif else page(found).encode()
    with output_file(target) as temporary:
        temporary.write_bytes(body)
    return target


@styled
def still(found: Animation, at: int = 0) -> Figure:
    """Draw one timestep of an animation.

    Parameters
    ----------
    found : Animation
        What `animate` returned.
    at : int
        Position in ``found.timesteps``, from 0 [default: 0].

    Returns
    -------
    matplotlib.figure.Figure
        The timestep.

    Raises
    ------
    InputError
        If there is no such timestep.

    Examples
    --------
    >>> import goffish as gf
    >>> import pyarrow as pa
    >>> from goffish import plot
    >>> reached = pa.table({"vertex": [1, 2, 3], "timestep": [0, 0, 1]})
    >>> figure = plot.still(plot.animate(gf.from_edges([1, 2], [2, 3]), reached), at=1)
    """
    expect(found, Animation, "found", "expected the result of goffish.plot.animation.animate")
    if whole_number(at, "at", 0) >= found.timesteps.size:
        raise InputError(f"at = {at}: the animation has {count(found.timesteps.size, 'timestep')}, counted from 0")
    figure, show = _picture(found)
    show(at)
    return figure


def _picture(found: Animation) -> tuple[Figure, Callable[[int], None]]:
    """A figure, and a function that changes it to another timestep."""
    from matplotlib.patheffects import withStroke

    figure = new_figure(*SIZE)
    canvas = Canvas(figure, STAGE)
    draw_edges(canvas, found.places, found.src, found.dst, found.radius, found.arrows)
    colours = np.array([state.colour for state in found.states], object)
    marker_of = np.array([state.marker for state in found.states])
    drawn = {
        marker: canvas.axes.scatter(
            [], [], s=marker_size(found.radius, marker), marker=marker, edgecolors="white",
            linewidths=0.6 if found.radius > 3 else 0.3, zorder=2, gid=f"vertices-{marker}",
        )
        for marker in MARKERS if marker in marker_of
    }  # fmt: skip
    for text, x, y in found.written:
        canvas.axes.text(
            x, y, text, fontsize=FONT, color=INK, ha="center", va="center_baseline", zorder=4,
            path_effects=[withStroke(linewidth=2.0, foreground="white")],
        )  # fmt: skip
    figure.text(0.015, 0.95, found.title, fontsize=11.0, fontweight="bold")
    figure.text(0.77, 0.952, found.about, fontsize=8.0, color=QUIET, ha="right")
    moment = figure.text(0.015, 0.025, "", fontsize=11.0, fontweight="bold", gid="timestep")
    status = figure.text(0.77, 0.026, "", fontsize=9.0, color=QUIET, ha="right", gid="status")
    draw_legend(figure, canvas, found.key)

    def show(at: int) -> None:
        state = found.shown[at]
        for marker, points in drawn.items():
            rows = np.flatnonzero(marker_of[state] == marker)
            points.set_offsets(found.places[rows])
            points.set_facecolors(colours[state[rows]].tolist())
        moment.set_text(f"timestep {found.timesteps[at]:,}")
        status.set_text(found.status[at])

    return figure, show


def _gif(found: Animation, seconds: float) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    palette = Image.new("P", (1, 1))
    palette.putpalette(_palette(found).ravel().tolist())
    pictures = []
    with settings():
        figure, show = _picture(found)
        figure.set_dpi(_GIF_DPI)
        canvas = FigureCanvasAgg(figure)
        for at in range(found.timesteps.size):
            show(at)
            canvas.draw()
            colours = np.asarray(canvas.buffer_rgba())[:, :, :3]
            pictures.append(Image.fromarray(colours).quantize(palette=palette, dither=Image.Dither.NONE))
    body = BytesIO()
    pictures[0].save(
        body, format="GIF", save_all=True, append_images=pictures[1:], duration=round(1000 * seconds), loop=0,
        optimize=False,
    )  # fmt: skip
    return body.getvalue()


def _palette(found: Animation) -> NDArray[np.uint8]:
    """Return up to 256 colors for all pictures of a GIF, shape (colors, 3).

    A separate palette for each picture, as in matplotlib, shifts rare colors: a grey vertex among yellow ones turns
    lilac.
    """
    from matplotlib.colors import to_rgb

    scale = found.key.scale
    base = np.array([to_rgb(colour) for colour in sorted({state.colour for state in found.states})])
    if scale is not None:
        base = np.vstack((to_rgb(NOTHING), scale.get_cmap()(np.linspace(0, 1, _SHADES))[:, :3]))
    greys = np.linspace(0, 1, 32)[:, None].repeat(3, axis=1)
    blends = [1 - share * (1 - base) for share in (1.0, 0.75, 0.5, 0.25)]  # edges of shapes fade into white
    return np.asarray(np.round(255 * np.vstack((greys, *blends))), np.uint8)


def page(found: Animation) -> str:
    """Return an animation as one HTML page: an SVG, a time slider and a play button.

    The page is self-contained: its content security policy forbids all network access. It works from a local file and
    with the keyboard alone. Without JavaScript it shows the first timestep. Equal animations produce equal pages.

    Parameters
    ----------
    found : Animation
        What `animate` returned.

    Returns
    -------
    str
        The HTML page.

    Raises
    ------
    InputError
        If `found` is not an animation.

    Examples
    --------
    >>> import goffish as gf
    >>> import pyarrow as pa
    >>> from goffish import plot
    >>> reached = pa.table({"vertex": [1, 2, 3], "timestep": [0, 0, 1]})
    >>> page = plot.animation_page(plot.animate(gf.from_edges([1, 2], [2, 3]), reached))
    >>> page.startswith("<!DOCTYPE html>")
    True
    """
    expect(found, Animation, "found", "expected the result of goffish.plot.animation.animate")
    style, script = _part("page.css"), _part("page.js")
    shapes = {marker: shape(marker, found.radius) for marker in MARKERS}
    data = {
        "timesteps": found.timesteps.tolist(),
        "states": [[state.text, state.colour, state.marker] for state in found.states],
        "shapes": shapes,
        "labels": found.labels,
        "status": found.status,
        "changes": _changes(found.shown),
    }
    return Template(_part("page.html")).substitute(
        title=safe(found.title), about=safe(found.about), style=style, script=script, style_hash=digest(style),
        script_hash=digest(script), stage=_stage(found, shapes), key_name=safe(found.key.name), key=_key(found),
        first=str(found.timesteps[0]), last=str(found.timesteps.size - 1), status=safe(found.status[0]),
        data=as_json(data),
    )  # fmt: skip


def _part(name: str) -> str:
    return (resources.files("goffish.plot") / "animation_page" / name).read_text(encoding="utf-8").rstrip("\n")


def safe(text: str) -> str:
    # External text may contain lone surrogates, which cannot be encoded.
    return html.escape(text.encode("utf-8", "replace").decode())


def _changes(shown: Any) -> list[list[list[int]]]:
    """Vertices whose state differs from that of the previous timestep (at first: from state 0), and their states."""
    before = np.vstack((np.zeros_like(shown[:1]), shown[:-1]))
    rows = [np.flatnonzero(line) for line in shown != before]
    return [[which.tolist(), states[which].tolist()] for which, states in zip(rows, shown, strict=True)]


def shape(marker: str, radius: float) -> str:
    """A marker around the origin as the path of an SVG, with the area of a circle of this radius."""
    r = round(radius, 2)
    if marker == "o":
        return f"M{-r},0a{r},{r} 0 1 0 {2 * r},0a{r},{r} 0 1 0 {-2 * r},0z"
    h = round(radius * np.sqrt(np.pi) / 2, 2)
    if marker == "s":
        return f"M{-h},{-h}h{2 * h}v{2 * h}h{-2 * h}z"
    d = round(h * np.sqrt(2), 2)
    return f"M0,{-d}L{d},0L0,{d}L{-d},0z"


def _stage(found: Animation, shapes: dict[str, str]) -> str:
    places = np.round(np.column_stack((found.places[:, 0], found.height - found.places[:, 1])), _DIGITS)
    at = [f"{x:g},{y:g}" for x, y in places.tolist()]
    dense = float(np.clip(600 / max(found.src.size, 1), 0.25, 1.0))
    lines = [
        f'<svg id="stage" viewBox="0 0 {found.width:g} {found.height:g}" role="img" aria-label="{safe(found.title)}">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0,0L8,4L0,8z"/></marker></defs>',
        f'<g id="edges" stroke-width="{0.4 + 0.6 * dense:.2f}" stroke-opacity="{0.3 + 0.4 * dense:.2f}">',
        *(_arrows(found, places) if found.arrows else _straight(found, at)),
        '</g>\n<g id="vertices">',
    ]
    for label, where, code in zip(found.labels, at, found.shown[0].tolist(), strict=True):
        state = found.states[code]
        title = safe(f"{label}: {state.text}")
        lines.append(
            f'<path transform="translate({where})" d="{shapes[state.marker]}" fill="{state.colour}">'
            f"<title>{title}</title></path>"
        )
    lines.append(f'</g>\n<g id="labels" font-size="{FONT:g}">')
    lines += [f'<text x="{x:.1f}" y="{found.height - y:.1f}">{safe(text)}</text>' for text, x, y in found.written]
    return "\n".join([*lines, "</g>\n</svg>"])


def _straight(found: Animation, at: list[str]) -> list[str]:
    path = "".join(f"M{at[u]}L{at[v]}" for u, v in zip(found.src.tolist(), found.dst.tolist(), strict=True) if u != v)
    return [f'<path d="{path}"/>'] if path else []


def _arrows(found: Animation, places: Any) -> list[str]:
    """Lines that end at the rim of a vertex, so that their arrow heads are visible."""
    there = found.src != found.dst
    start, end = places[found.src[there]], places[found.dst[there]]
    way = end - start
    length = np.maximum(np.hypot(way[:, 0], way[:, 1]), 1e-9)[:, None]
    end = np.round(end - way * np.minimum((found.radius + 1) / length, 0.9), _DIGITS)
    return [
        f'<line x1="{a:g}" y1="{b:g}" x2="{c:g}" y2="{d:g}" marker-end="url(#head)"/>'
        for a, b, c, d in np.column_stack((start, end)).tolist()
    ]


def _key(found: Animation) -> str:
    from matplotlib.colors import to_hex

    items = [
        f'<li><svg viewBox="-8 -8 16 16" aria-hidden="true"><path d="{shape(marker, 6.0)}" fill="{to_hex(colour)}"/>'
        f"</svg><span>{safe(text)}</span></li>"
        for text, colour, marker in found.key.legend
    ]
    listed = "\n".join(["<ul>", *items, "</ul>"]) if items else ""
    return "\n".join(part for part in (_scale(found), listed) if part)


def _scale(found: Animation) -> str:
    """The color bar, if the values are a scale."""
    from matplotlib.colors import to_hex

    scale = found.key.scale
    if scale is None:
        return ""
    low, high = scale.norm.vmin, scale.norm.vmax
    with settings():
        ticks = np.array([t for t in found.key.ticks.tick_values(low, high) if low <= t <= high] or [low])
        heights = np.asarray(scale.norm(ticks), float)
        stops = [to_hex(colour) for colour in scale.get_cmap()(np.linspace(0, 1, _STOPS))]
    lines = [
        '<svg id="scale" viewBox="0 0 130 260" role="img" aria-label="color scale">',
        '<defs><linearGradient id="shades" x1="0" y1="1" x2="0" y2="0">',
        *(f'<stop offset="{i / (_STOPS - 1):.3f}" stop-color="{colour}"/>' for i, colour in enumerate(stops)),
        '</linearGradient></defs><rect x="0" y="10" width="20" height="240" fill="url(#shades)"/>',
    ]
    for value, height in zip(ticks.tolist(), heights.tolist(), strict=True):
        y = 250 - 240 * height
        lines.append(f'<path d="M20,{y:.1f}h4" stroke="{QUIET}"/>')
        lines.append(f'<text x="28" y="{y:.1f}" fill="{INK}" dominant-baseline="central">{value:,.6g}</text>')
    return "\n".join([*lines, "</svg>"])

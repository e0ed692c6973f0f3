"""Shared style of all pictures: colors, fonts, the figure, and the deferred import of matplotlib."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec

from goffish.extras import needed_for
from goffish.notebook import in_notebook, show_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")

DPI = 150
#: M. Okabe, K. Ito, Color Universal Design (2008), without black.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
#: #: With the colors, these distinguish up to 21 categories.
MARKERS = ("o", "s", "D")
CATEGORIES = len(COLOURS) * len(MARKERS)
#: #: Uniform for all kinds of color vision, and in greyscale print.
SEQUENCE = "viridis"
NOTHING = "#c4c4c4"
INK = "#222222"
QUIET = "#666666"
ALARM = "#D55E00"

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.edgecolor": QUIET,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "text.color": INK,
    "text.usetex": False,
    "text.parse_math": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def require_matplotlib() -> Any:
    """Import matplotlib, or raise an `InputError` that names the extra."""
    with needed_for("pictures"):
        import matplotlib
    return matplotlib


@contextmanager
def settings(**more: Any) -> Iterator[None]:
    """GoFFish's settings of matplotlib, independent of the user's."""
    matplotlib = require_matplotlib()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, **more})
        yield


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run a drawing function under `settings`."""

    @functools.wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with settings():
            figure = draw(*args, **kwargs)
            figure.draw_without_rendering()  # creates the ticks, which would otherwise use the user's settings
            if in_notebook():
                show_figures()
            return figure

    return inner


def new_figure(width: float, height: float, *, fitted: bool = False) -> Figure:
    """Create an empty figure (inches) outside matplotlib's global registry; `fitted`: use matplotlib's layout."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1) if fitted else None
    return Figure(figsize=(width, height), dpi=DPI, layout=layout)


def look(category: int) -> tuple[str, str]:
    """Color and marker of a category below `CATEGORIES`."""
    return COLOURS[category % len(COLOURS)], MARKERS[category // len(COLOURS) % len(MARKERS)]


def marker_size(radius: float, marker: str) -> float:
    """matplotlib's `s` of a marker with the area of a circle of this radius (points)."""
    return (2 * radius) ** 2 * (1.0 if marker == "o" else 0.7854)


def shades(count: int) -> list[Any]:
    """`count` colors in order, dark to light."""
    import matplotlib

    return [matplotlib.colormaps[SEQUENCE](0.05 + 0.9 * (i / (count - 1) if count > 1 else 0.5)) for i in range(count)]


def ink_on(colour: Any) -> str:
    """Black or white, whichever is readable on `colour` (relative luminance, WCAG 2)."""
    from matplotlib.colors import to_rgb

    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if luminance < 0.3 else "black"


def text_size(text: str, points: float) -> tuple[float, float]:
    """Width and height of a text in points, to keep texts apart before rendering."""
    lines = text.split("\n")
    return 0.64 * points * max(len(line) for line in lines), 1.2 * points * len(lines)


def count(number: int, noun: str) -> str:
    """``1 vertex``, ``1,200 vertices``."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-2]}ices" if noun.endswith("vertex") else f"{noun}s"
    return f"{number:,} {plural}"


def shorten(text: str, most: int) -> str:
    """Cut to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def integer_ticks(axis: Any, most: int = 10) -> None:
    """Ticks at integers only, with thousands separators."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most, integer=True, steps=(1, 2, 5, 10), min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def legend_beside(axes: Any, handles: Sequence[Any], title: str) -> Any:
    """Add a legend to the right of `axes`, aligned with its top."""
    legend = axes.legend(
        handles=list(handles), title=title, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0,
        alignment="left", title_fontsize=9.0, labelspacing=0.55, handletextpad=0.5,
    )  # fmt: skip
    legend.get_title().set_fontweight("bold")
    return legend

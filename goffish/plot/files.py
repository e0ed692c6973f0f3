"""Writing pictures: whole or not at all, and the same figure as the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.graph.guards import expect_library, path_name
from goffish.partial import check_place, output_file
from goffish.plot.style import DPI, require_matplotlib, settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: No dates: they would make equal pictures different.
_METADATA: dict[str, dict[str, Any]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_picture(path: str | Path) -> Path:
    """The local path of a picture; refuses one that `save` could not write, before any work is done for it.

    Raises
    ------
    InputError
        The suffix names no format, the folder is missing, or matplotlib is.
    """
    target = check_place(path_name(path), _METADATA)
    require_matplotlib()
    return target


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by the suffix of `path`.

    The file appears whole or not at all, and equal figures give equal bytes.

    Raises
    ------
    InputError
        The suffix names no format, or the folder is missing or cannot be written.
    """
    target = check_picture(path)
    expect_library(figure, "matplotlib.figure", "Figure", "give the figure first, then the path")
    suffix = target.suffix.lower()
    with output_file(target) as temporary, settings(**{"svg.hashsalt": "goffish"}):
        figure.savefig(temporary, format=suffix[1:], dpi=DPI, metadata=_METADATA[suffix])
    return target

"""Output of pictures: atomic and deterministic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.graph.guards import expect_library, path_name
from goffish.partial import check_place, output_file
from goffish.plot.style import DPI, require_matplotlib, settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: #: No dates, which would make equal pictures differ.
_METADATA: dict[str, dict[str, Any]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_picture(path: str | Path) -> Path:
    """Return the local path of a picture; refuse one that `save` could not write, before any computation.

    Raises
    ------
    InputError
        If the suffix is unknown, the folder is missing, or matplotlib is missing.
    """
    target = check_place(path_name(path), _METADATA)
    require_matplotlib()
    return target


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by the suffix of `path`.

    The file is written atomically; equal figures have equal bytes.

    Raises
    ------
    InputError
        If the suffix is unknown, or the folder is missing or not writable.
    """
    target = check_picture(path)
    expect_library(figure, "matplotlib.figure", "Figure", "expected a figure, then a path")
    suffix = target.suffix.lower()
    with output_file(target) as temporary, settings(**{"svg.hashsalt": "goffish"}):
        figure.savefig(temporary, format=suffix[1:], dpi=DPI, metadata=_METADATA[suffix])
    return target

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
    """Check that `save` can write a figure to a path, before any work is done.

    Parameters
    ----------
    path : str or path-like
        Local file ending in ``.png``, ``.svg`` or ``.pdf``.

    Returns
    -------
    pathlib.Path
        The local path.

    Raises
    ------
    InputError
        If the suffix is unknown, the folder is missing or not writable, or matplotlib is missing.

    Examples
    --------
    >>> from goffish import plot
    >>> plot.check_picture("cut.png").name
    'cut.png'
    """
    target = check_place(path_name(path), _METADATA)
    require_matplotlib()
    return target


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by the suffix of the path.

    The file is published when it is complete, and equal figures produce equal bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Figure to write.
    path : str or path-like
        Local file ending in ``.png``, ``.svg`` or ``.pdf``.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InputError
        If the suffix is unknown, or the folder is missing or not writable.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish import plot
    >>> store = gf.partition(gf.from_edges([1, 2], [2, 3]), parts=2)
    >>> plot.save(plot.quotient_graph(store), "cut.svg").name
    'cut.svg'
    """
    target = check_picture(path)
    expect_library(figure, "matplotlib.figure", "Figure", "expected a figure, then a path")
    suffix = target.suffix.lower()
    with output_file(target) as temporary, settings(**{"svg.hashsalt": "goffish"}):
        figure.savefig(temporary, format=suffix[1:], dpi=DPI, metadata=_METADATA[suffix])
    return target

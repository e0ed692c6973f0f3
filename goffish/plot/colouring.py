"""Colors and shapes of the values of a column, and their key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.plot.style import CATEGORIES, MARKERS, NOTHING, SEQUENCE, look, shades

if TYPE_CHECKING:
    import pyarrow as pa

#: #: Integer columns that contain names, not quantities.
GROUPS = ("cluster", "community", "component", "group", "label", "owner", "parent", "partition", "subgraph", "vertex")
_FEW = 8
_LOG_FROM = 30


@dataclass(frozen=True, eq=False)
class Colouring:
    """Appearance of each row.

    Attributes
    ----------
    name : str
    colours : object array of colours; markers : array of str, shape (rows,)
    legend : list of (text, colour, marker)
    scale : matplotlib ScalarMappable or None
        Scale of the color bar, if the values are a scale.
    ticks : matplotlib Locator or None
        Ticks of the color bar.
    height : float64, shape (rows,), or None
        The value of each row if the values are a scale; -inf for rows without a value.
    """

    name: str
    colours: NDArray[Any]
    markers: NDArray[np.str_]
    legend: list[tuple[str, Any, str]] = field(default_factory=list)
    scale: Any = None
    ticks: Any = None
    height: NDArray[np.float64] | None = None

    def by_marker(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Rows by marker, in the order of drawing: rows without a value first, high values on top."""
        for marker in sorted(set(self.markers.tolist()), key=MARKERS.index):
            rows = np.flatnonzero(self.markers == marker)
            if self.height is None:
                height = np.array([not isinstance(self.colours[r], str) or self.colours[r] != NOTHING for r in rows])
            else:
                height = self.height[rows]
            yield marker, rows[np.argsort(height, kind="stable")]


def colour_by(name: str, values: pa.Array) -> Colouring:
    """Choose colors for a column: groups, a few ordered numbers, or a scale. Nulls, NaN and infinities are grey."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not number:
        if pa.types.is_nested(kind):
            raise InputError(f"column {name!r} has type {kind}; expected numbers or strings to color vertices by")
        texts = values.cast(pa.string()) if not pa.types.is_null(kind) else pa.nulls(len(values), pa.string())
        return _groups(name, np.array(texts.to_pylist(), object))
    if pa.types.is_integer(kind) and name in GROUPS:
        return _groups(name, np.array(values.to_pylist(), object))
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    known = np.isfinite(numbers)
    distinct = np.unique(numbers[known])
    if distinct.size <= _FEW and np.array_equal(distinct, np.round(distinct)):
        return _steps(name, numbers, known, distinct)
    return _scale(name, numbers, known)


def _blank(rows: int) -> tuple[NDArray[Any], NDArray[np.str_]]:
    colours = np.empty(rows, object)
    colours[:] = NOTHING
    return colours, np.full(rows, "o")


def _grey_key(known: NDArray[np.bool_]) -> list[tuple[str, Any, str]]:
    missing = int((~known).sum())
    return [(f"no value ({missing:,})", NOTHING, "o")] if missing else []


def _groups(name: str, values: NDArray[Any]) -> Colouring:
    colours, markers = _blank(values.size)
    known = np.array([value is not None for value in values], bool)
    groups: dict[Any, list[int]] = {}
    for row in np.flatnonzero(known):
        groups.setdefault(values[row], []).append(int(row))
    by_size = sorted(groups, key=lambda value: (-len(groups[value]), value))
    shown = by_size if len(by_size) <= CATEGORIES else by_size[: CATEGORIES - 1]
    legend = []
    for at, value in enumerate(shown):
        colour, marker = look(at)
        colours[groups[value]], markers[groups[value]] = colour, marker
        legend.append((f"{value} ({len(groups[value]):,})", colour, marker))
    others = by_size[len(shown) :]
    if others:
        rows = sum(len(groups[value]) for value in others)
        for value in others:
            colours[groups[value]] = "#7a7a7a"
        legend.append((f"{len(others):,} others ({rows:,})", "#7a7a7a", "o"))
    return Colouring(name, colours, markers, legend + _grey_key(known))


def _steps(
    name: str, numbers: NDArray[np.float64], known: NDArray[np.bool_], distinct: NDArray[np.float64]
) -> Colouring:
    colours, markers = _blank(numbers.size)
    legend = []
    for value, colour in zip(distinct, shades(distinct.size), strict=True):
        rows = np.flatnonzero(numbers == value)
        for row in rows:
            colours[row] = colour
        legend.append((f"{value:,.0f} ({rows.size:,})", colour, "o"))
    return Colouring(name, colours, markers, legend + _grey_key(known))


def _scale(name: str, numbers: NDArray[np.float64], known: NDArray[np.bool_]) -> Colouring:
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import LogLocator, MaxNLocator

    colours, markers = _blank(numbers.size)
    low, high = float(numbers[known].min()), float(numbers[known].max())
    log = low > 0 and high / low > _LOG_FROM
    scale = ScalarMappable((LogNorm if log else Normalize)(low, high), matplotlib.colormaps[SEQUENCE])
    shade = scale.to_rgba(numbers[known])
    for row, colour in zip(np.flatnonzero(known), shade, strict=True):
        colours[row] = tuple(colour)
    ticks = (
        LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 1000 else (1.0,))
        if log
        else MaxNLocator(8, steps=(1, 2, 2.5, 5, 10))
    )
    return Colouring(name, colours, markers, _grey_key(known), scale, ticks, np.where(known, numbers, -np.inf))

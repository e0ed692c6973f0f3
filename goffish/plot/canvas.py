"""Axes whose data unit is one point (1/72 inch), so that circles, texts and gaps can be laid out together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.plot.style import INK, text_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = NDArray[np.float64]
_Box = tuple[float, float, float, float]


class Canvas:
    """Frameless axes in points, and the occupied areas.

    Attributes
    ----------
    axes : matplotlib Axes
    width, height : float
        Size in points.
    """

    def __init__(self, figure: Figure, rectangle: tuple[float, float, float, float]) -> None:
        inches = figure.get_size_inches()
        self.width = float(inches[0]) * rectangle[2] * 72
        self.height = float(inches[1]) * rectangle[3] * 72
        self.axes: Any = figure.add_axes(rectangle)
        self.axes.set_axis_off()
        self.axes.set_xlim(0, self.width)
        self.axes.set_ylim(0, self.height)
        self._circles: list[tuple[float, float, float]] = []
        self._boxes: list[_Box] = []

    def occupy_circle(self, centre: Point, radius: float) -> None:
        """Reserve an area that texts must avoid."""
        self._circles.append((float(centre[0]), float(centre[1]), radius))

    def text_inside(self, text: str, centre: Point, radius: float, points: float, colour: str) -> bool:
        """Write into a circle if the text fits; return whether it did."""
        wide, high = text_size(text, points)
        if np.hypot(wide, high) / 2 > radius - 0.5:
            return False
        self.axes.text(
            *centre, text, fontsize=points, color=colour, ha="center", va="center_baseline", zorder=4, linespacing=1.0
        )
        return True

    def text_along(self, text: str, start: Point, end: Point, points: float) -> bool:
        """Write on a line near its middle, on a white background, if the text fits."""
        for share in (0.5, 0.42, 0.58, 0.35, 0.65, 0.28, 0.72):
            if self._write(text, start + share * (end - start), points, ground=True):
                return True
        return False

    def text_beside(self, text: str, centre: Point, radius: float, points: float) -> bool:
        """Write next to a circle, on a side with enough space."""
        wide, high = text_size(text, points)
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
            reach = radius + 2.0 if 0 in (dx, dy) else 0.75 * radius + 1.5
            away = np.array([dx * (reach + wide / 2), dy * (reach + high / 2)])
            if self._write(text, centre + away, points, ground=False):
                return True
        return False

    def _write(self, text: str, at: Point, points: float, *, ground: bool) -> bool:
        wide, high = text_size(text, points)
        box = (at[0] - wide / 2 - 1, at[1] - high / 2 - 1, at[0] + wide / 2 + 1, at[1] + high / 2 + 1)
        if not self._free(box):
            return False
        self._boxes.append(box)
        white = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.9}
        written = self.axes.text(
            *at, text, fontsize=points, color=INK, ha="center", va="center_baseline", zorder=3,
            bbox=white if ground else None,
        )  # fmt: skip
        if not ground:
            from matplotlib.patheffects import withStroke

            written.set_path_effects([withStroke(linewidth=2.0, foreground="white")])
        return True

    def _free(self, box: _Box) -> bool:
        left, low, right, high = box
        if left < 0 or low < 0 or right > self.width or high > self.height:
            return False
        if any(left < r and right > l and low < h and high > b for l, b, r, h in self._boxes):  # noqa: E741
            return False
        return all(
            np.hypot(x - np.clip(x, left, right), y - np.clip(y, low, high)) >= radius for x, y, radius in self._circles
        )

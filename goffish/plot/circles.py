"""Circles and the lines between them, shared by the pictures of collapsed graphs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from goffish.plot.canvas import Canvas
from goffish.plot.layout import fit, place, separate

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

#: #: Number of links above which lines are thinner and without numbers.
FEW_LINKS = 60
#: #: Largest share of the picture covered by circles.
_COVERED = 0.14
_RADIUS = 34.0
_SMALLEST = 3.5
#: #: Minimum distance between a circle and the line between two others, in points.
_CLEAR = 5.0


def circle_radii(sizes: Ids, area: float) -> Floats:
    """Radii in points with areas proportional to `sizes`, leaving enough space for the lines in `area`."""
    share = sizes / max(int(sizes.max(initial=1)), 1)
    largest = min(_RADIUS, float(np.sqrt(_COVERED * area / (np.pi * max(share.sum(), 1.0)))))
    return np.maximum(_SMALLEST, largest * np.sqrt(share))


def place_circles(ends: Ids, radii: Floats, width: float, height: float) -> tuple[Floats, float]:
    """Centers of circles: linked circles by their distances, the others in rows below.

    Parameters
    ----------
    ends : int64, shape (2, links)
    radii : float64, shape (circles,)
    width, height : float
        Size of the area, in the unit of the radii.

    Returns
    -------
    places : float64, shape (circles, 2)
    floor : float
        Upper end of the rows.
    """
    places = np.zeros((radii.size, 2))
    linked = np.zeros(radii.size, bool)
    linked[ends.ravel()] = True
    at, floor = [], 0.0
    alone = np.flatnonzero(~linked)
    alone = alone[np.argsort(-radii[alone], kind="stable")]
    x, high = 0.0, 0.0
    for v in alone:
        if x > 0 and x + 2 * radii[v] > width - 8:
            x, floor, high = 0.0, floor + high + 5, 0.0
        high = max(high, 2 * float(radii[v]))
        at.append((x + radii[v] + 4, floor, v))
        x += 2 * float(radii[v]) + 6
    floor += high
    for x, y, v in at:
        places[v] = x, floor - y - radii[v]
    both = np.flatnonzero(linked)
    if both.size:
        number = np.zeros(radii.size, np.int64)
        number[both] = np.arange(both.size)
        src, dst = number[ends]
        length = radii[ends].sum(axis=0) + 45.0
        margin = float(radii[both].max()) + 4
        bottom = floor + 26 if alone.size else 0.0
        room = height - bottom
        inner = (max(width - 2 * margin, 1.0), max(room - 2 * margin, 1.0))
        laid = fit(place(both.size, src, dst, length, aspect=width / room), *inner, largest_scale=1.8) + margin
        places[both] = separate(laid, radii[both], width, room, 7.0) + np.array([0.0, bottom])
    return places, floor


def clear_links(places: Floats, radii: Floats, ends: Ids, width: float, height: float, floor: float) -> Floats:
    """Move circles off the straight lines between the pairs `ends` of other circles; those below `floor` stay."""
    places, free = places.copy(), places[:, 1] > floor
    for _ in range(60):
        push = np.zeros_like(places)
        for a, b in ends.T:
            along = places[b] - places[a]
            length = float(np.hypot(*along))
            if length < 1e-9:
                continue
            along /= length
            at = np.clip((places - places[a]) @ along, 0.0, length)
            away = places - places[a] - at[:, None] * along
            far = np.hypot(*away.T)
            hit = free & (far < radii + _CLEAR) & (at > 0.0) & (at < length)
            hit[[a, b]] = False
            side = np.where((away @ np.array([-along[1], along[0]]) >= 0)[:, None], 1.0, -1.0)
            normal = side * np.array([-along[1], along[0]])
            push[hit] += ((radii + _CLEAR - far)[:, None] * normal)[hit]
        if not push.any():
            break
        places += push
        lift = np.array([0.0, floor])
        places[free] = separate(places[free] - lift, radii[free], width, height - floor, 7.0) + lift
    return places


def draw_links(canvas: Canvas, ends: Ids, weights: NDArray[np.int64] | Floats, places: Floats, radii: Floats) -> None:
    """Draw lines between centers, with widths by the root of their weight, and reserve their areas from texts."""
    from matplotlib.collections import LineCollection

    for at, radius in zip(places, radii, strict=True):
        canvas.occupy_circle(at, float(radius))
    if not weights.size:
        return
    order = np.argsort(-weights, kind="stable")
    widest = 7.0 * min(1.0, max(0.2, FEW_LINKS / order.size))
    widths = 0.2 + 0.07 * widest + widest * np.sqrt(weights[order] / weights.max())
    lines = LineCollection(
        list(places[ends[:, order].T]), linewidths=widths, colors="#b9b9b9", zorder=1, gid="links", capstyle="butt"
    )
    canvas.axes.add_collection(lines, autolim=False)

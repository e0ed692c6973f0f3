"""Layered drawing of a flow: each operator comes after those that send to it; few channels cross."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from goffish.streaming.topology import Topology

#: Width and height of a box; distance between boxes of a layer, and between layers, along either axis.
BOX = (196.0, 72.0)
_BETWEEN, _LAYERS_X, _LAYERS_Y, _MARGIN = 26.0, 92.0, 52.0, 24.0
#: Distance from boxes at which channels that lead back turn, and between such channels.
_TURN, _LANE = 16.0, 24.0
_BEND = 14.0  # distance of a channel that passes a layer to its neighbors
#: Flows with more layers are drawn from top to bottom, as pages scroll that way.
_MOST_ACROSS = 6
_SWEEPS = 12

Point = tuple[float, float]


class Layout(NamedTuple):
    """Places for a drawing.

    Attributes
    ----------
    width, height : float
    boxes : dict
        Upper left corner of each operator.
    paths : list of (str, Point)
        SVG path of each channel of the topology, and the place of its label.
    """

    width: float
    height: float
    boxes: dict[str, Point]
    paths: list[tuple[str, Point]]


def layout(topology: Topology) -> Layout:
    """Return the places of operators and channels.

    Parameters
    ----------
    topology : Topology

    Returns
    -------
    Layout

    Notes
    -----
    The method of Sugiyama, Tagawa and Toda (1981): layers by the longest path, order by barycenters, then positions
    close to the neighbors.
    """
    layer: dict[str, int] = {}
    for one in topology.operators:
        layer[one.name] = max((layer[c.source] + 1 for c in one.inputs if not c.feedback), default=0)
    layers: list[list[str]] = [[] for _ in range(max(layer.values()) + 1)]
    for name, at in layer.items():
        layers[at].append(name)
    chains: list[list[str]] = []  # a channel with the points at which it passes layers
    for number, channel in enumerate(topology.channels):
        between = range(layer[channel.source] + 1, layer[channel.target])
        bends = [] if channel.feedback else [f"\n{number} {at}" for at in between]
        for at, bend in zip(between, bends, strict=False):
            layers[at].append(bend)
        chains.append([channel.source, *bends, channel.target])
    neighbors: dict[str, tuple[list[str], list[str]]] = {name: ([], []) for names in layers for name in names}
    for channel, chain in zip(topology.channels, chains, strict=True):
        if not channel.feedback:
            for first, second in pairwise(chain):
                neighbors[second][0].append(first)
                neighbors[first][1].append(second)
    across = len(layers) <= _MOST_ACROSS
    size = BOX[1] if across else BOX[0]
    centers = _positions(layers, neighbors, size)
    deep = [at * ((BOX[0] + _LAYERS_X) if across else (BOX[1] + _LAYERS_Y)) for at in range(len(layers))]
    middle = (BOX[0] if across else BOX[1]) / 2
    places: dict[str, Point] = {}
    for at, names in enumerate(layers):
        for name in names:
            place = deep[at] + middle + _MARGIN, centers[name] + size / 2 + _MARGIN
            places[name] = place if across else place[::-1]
    boxes = {name: (places[name][0] - BOX[0] / 2, places[name][1] - BOX[1] / 2) for name in layer}
    lane = max(centers.values()) + size + 2 * _MARGIN
    used: dict[tuple[str, str], int] = {}
    paths = []
    for channel, chain in zip(topology.channels, chains, strict=True):
        again = used.get((channel.source, channel.target), 0)
        used[channel.source, channel.target] = again + 1
        points = [places[name] for name in chain]
        paths.append(_back(points, across, lane) if channel.feedback else _path(points, across, again * 13.0))
        lane += _LANE if channel.feedback else 0.0
    length = deep[-1] + 2 * (middle + _MARGIN)
    width, height = (length, lane) if across else (lane, length)
    return Layout(width, height, boxes, paths)


def _positions(
    layers: list[list[str]], neighbors: Mapping[str, tuple[list[str], list[str]]], size: float
) -> dict[str, float]:
    """Order each layer in place, and return the positions of its members, of which the least is 0."""
    gap = {name: _BEND if name.startswith("\n") else (size + _BETWEEN) / 2 for names in layers for name in names}
    place = {name: float(at) for names in layers for at, name in enumerate(names)}
    for sweep in range(_SWEEPS):
        side = sweep % 2
        for names in layers[::-1] if side else layers:
            mean = {n: _mean([place[m] for m in neighbors[n][side]], place[n]) for n in names}
            names.sort(key=mean.__getitem__)
            place |= {name: float(at) for at, name in enumerate(names)}
    for names in layers:
        at = 0.0
        for before, name in zip([None, *names], names, strict=False):
            at += 0.0 if before is None else gap[before] + gap[name]
            place[name] = at
        for name in names:
            place[name] -= at / 2
    for sweep in range(2 * _SWEEPS):
        for names in layers[::-1] if sweep % 2 else layers:
            wanted = [_mean([place[m] for side in neighbors[n] for m in side], place[n]) for n in names]
            up, down = [*wanted], [*wanted]
            for i in range(1, len(names)):
                up[i] = max(up[i], up[i - 1] + gap[names[i - 1]] + gap[names[i]])
            for i in range(len(names) - 2, -1, -1):
                down[i] = min(down[i], down[i + 1] - gap[names[i]] - gap[names[i + 1]])
            place |= {name: (a + b) / 2 for name, a, b in zip(names, up, down, strict=True)}
    least = min(place.values())
    return {name: one - least for name, one in place.items()}


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _path(points: list[Point], across: bool, shift: float) -> tuple[str, Point]:
    """Return a curve through some points, from the edge of the first box to that of the last, and its label's place."""
    (ax, ay), (bx, by) = points[0], points[-1]
    dx, dy = (BOX[0] / 2, 0.0) if across else (0.0, BOX[1] / 2)
    stops = [(ax + dx, ay + dy), *points[1:-1], (bx - dx - (5 if across else 0), by - dy - (0 if across else 5))]
    text = f"M{stops[0][0]:.1f},{stops[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(stops):
        xm, ym = (x0 + x1) / 2, (y0 + y1) / 2
        near, far = ((xm, y0), (xm, y1)) if across else ((x0, ym), (x1, ym))
        text += f" C{near[0]:.1f},{near[1]:.1f} {far[0]:.1f},{far[1]:.1f} {x1:.1f},{y1:.1f}"
    at = len(stops) // 2
    (x0, y0), (x1, y1) = stops[at - 1], stops[at]
    return text, ((x0 + x1) / 2, (y0 + y1) / 2 + shift - (9 if across else -4))


def _back(points: list[Point], across: bool, lane: float) -> tuple[str, Point]:
    """Return the path of a channel that leads back: between the layers, and beside all boxes."""
    (a, at_a), (b, at_b) = points if across else [point[::-1] for point in points]
    half = BOX[0 if across else 1] / 2
    out, into = a + half + _TURN, b - half - _TURN
    corners = [(a + half, at_a), (out, at_a), (out, lane), (into, lane), (into, at_b), (b - half - 5, at_b)]
    shown = corners if across else [corner[::-1] for corner in corners]
    middle = (out + into) / 2
    text = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in shown)
    return text, (middle, lane - 7) if across else (lane, middle)

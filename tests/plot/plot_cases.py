"""Runs and stores to draw, and what every picture must keep: texts that do not overlap."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from goffish.gopher.stats import STEP_SCHEMA, RunStats


def fake_run(supersteps: int, partitions: int, *, idle: int | None = None, messages: int = 1000) -> RunStats:
    """Partition p computes for (p + 1 + superstep mod 3) ms in every superstep; `idle` never does."""
    rows, now = [], 0.5
    for step in range(1, supersteps + 1):
        spans = [(p + 1 + step % 3) * 1e-3 for p in range(partitions)]
        for p, span in enumerate(spans):
            ran = p != idle
            rows.append({
                "superstep": step, "partition": p, "active": 2 * ran, "messages": messages // step * ran,
                "combined": messages // (2 * step) * ran, "remote": messages // (4 * step) * ran, "remote_bytes": 0,
                "start": now * ran, "end": (now + span) * ran, "busy": span * ran,
            })  # fmt: skip
        now += max(spans) + 1e-3
    steps = pa.Table.from_pylist(rows, schema=STEP_SCHEMA)
    return RunStats(
        "Fake", "local", partitions, 2, 2 * partitions, supersteps, steps, {"compute": now - 0.5}, edge_cut=0.25
    )


def by_gid(figure: Figure, prefix: str) -> dict[str, Any]:
    """Artists whose gid begins with `prefix`."""
    return {a.get_gid(): a for a in figure.findobj() if (a.get_gid() or "").startswith(prefix)}


def rectangles(collection: Any) -> np.ndarray:
    """(x, width) of each bar of a broken_barh."""
    boxes = [path.get_extents() for path in collection.get_paths()]
    return np.array([(box.x0, box.width) for box in boxes])


def overlapping_texts(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of visible texts that cover each other on the rendered picture."""
    FigureCanvasAgg(figure).draw()
    renderer = figure.canvas.get_renderer()
    placed, outside = [], set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        outside |= {t.label1 for t in axis.get_major_ticks() if not low - 1e-9 <= t.get_loc() <= high + 1e-9}
    for text in dict.fromkeys(figure.findobj(Text)):
        if text.get_visible() and text.get_text().strip() and text not in outside:
            # Text's own extent: that of an annotation or a text with an outline would include what is around it.
            box = Text.get_window_extent(text, renderer)
            if box.width > 0 and box.height > 0:
                placed.append((text.get_text(), box.padded(-1.0)))
    return [(a, b) for (a, box), (b, other) in itertools.combinations(placed, 2) if box.overlaps(other)]

"""Plots of partitioned graphs, runs and results: pure functions that return matplotlib figures.

They do not change matplotlib's global state and need no display::

    from goffish import plot

    figure = plot.quotient_graph(store) plot.save(figure, "cut.png")
"""

from goffish.plot.animation import animate
from goffish.plot.animation_files import check_animation, still, write_animation
from goffish.plot.animation_files import page as animation_page
from goffish.plot.communities import communities
from goffish.plot.counters import supersteps
from goffish.plot.files import check_picture, save
from goffish.plot.graph_events import check_graph_events, graph_events, write_graph_events
from goffish.plot.quotient import quotient_graph
from goffish.plot.series import spread_curve, values_over_time, wavefront
from goffish.plot.series_data import in_windows, largest_groups
from goffish.plot.timeline import gantt
from goffish.plot.vertices import MOST_VERTICES, around, check_size, graph

__all__ = [
    "MOST_VERTICES", "animate", "animation_page", "around", "check_animation", "check_graph_events", "check_picture",
    "check_size", "communities", "gantt", "graph", "graph_events", "in_windows", "largest_groups", "quotient_graph",
    "save", "spread_curve", "still", "supersteps", "values_over_time", "wavefront", "write_animation",
    "write_graph_events",
]  # fmt: skip

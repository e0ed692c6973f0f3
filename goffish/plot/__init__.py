"""Pictures of partitioned graphs, runs and results: pure functions that return matplotlib figures.

Nothing here touches matplotlib's global state or needs a display::

    from goffish import plot

    figure = plot.quotient_graph(store)
    plot.save(figure, "cut.png")
"""

from goffish.plot.communities import communities
from goffish.plot.counters import supersteps
from goffish.plot.files import check_picture, save
from goffish.plot.quotient import quotient_graph
from goffish.plot.timeline import gantt
from goffish.plot.vertices import MOST_VERTICES, check_size, graph

__all__ = [
    "MOST_VERTICES", "check_picture", "check_size", "communities", "gantt", "graph", "quotient_graph", "save",
    "supersteps",
]  # fmt: skip

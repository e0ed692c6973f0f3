"""GoFFish on a Spark cluster: the session, graphs as DataFrames and GraphFrames, and what ``spark-submit`` starts.

`session` builds a session that suits the engine; ``goffish.run(..., engine="spark", spark=session)`` runs on it.
`vertices_and_edges`, `to_graphframe` and `from_graphframe` bring graphs to Spark and back, `motifs` finds patterns;
`map_instances`, `series_frames` and `iterate_instances` do the like for time series.
"""

from pathlib import Path

from goffish.gopher.spark.session import session
from goffish.spark.frames import from_graphframe, to_graphframe, vertices_and_edges
from goffish.spark.motifs import motifs
from goffish.spark.series import iterate_instances, map_instances, series_frames

__all__ = [
    "entry",
    "from_graphframe",
    "iterate_instances",
    "map_instances",
    "motifs",
    "series_frames",
    "session",
    "to_graphframe",
    "vertices_and_edges",
]


def entry() -> Path:
    """The script that ``spark-submit`` runs: it takes the arguments of the command line ``goffish``."""
    return Path(__file__).parents[1] / "__main__.py"

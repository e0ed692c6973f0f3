"""GoFFish on a Spark cluster: sessions, graphs as DataFrames and GraphFrames, motifs and time series.

`session` creates a session with the settings that the engine needs; ``goffish.run(..., engine="spark", spark=session)``
runs on it. `from_dataframe` writes the graph of a DataFrame as a store; `vertices_and_edges`, `to_graphframe` and
`from_graphframe` convert graphs, and `motifs` finds patterns. `to_dataframe` and `save_as_table` take results.
`map_instances`, `series_frames` and `iterate_instances` process time series.
"""

from pathlib import Path

from goffish.gopher.spark.session import session
from goffish.spark.frames import from_dataframe, from_graphframe, to_graphframe, vertices_and_edges
from goffish.spark.motifs import motifs
from goffish.spark.series import iterate_instances, map_instances, series_frames
from goffish.spark.tables import save_as_table, to_dataframe

__all__ = [
    "entry",
    "from_dataframe",
    "from_graphframe",
    "iterate_instances",
    "map_instances",
    "motifs",
    "save_as_table",
    "series_frames",
    "session",
    "to_dataframe",
    "to_graphframe",
    "vertices_and_edges",
]


def entry() -> Path:
    """Return the script to pass to ``spark-submit``; it accepts the arguments of the command ``goffish``.

    Returns
    -------
    pathlib.Path
        The script.

    Examples
    --------
    >>> from goffish.spark import entry
    >>> entry().name
    '__main__.py'
    """
    return Path(__file__).parents[1] / "__main__.py"

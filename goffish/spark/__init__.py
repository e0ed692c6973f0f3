"""GoFFish on a Spark cluster: the session, graphs as DataFrames and GraphFrames, and what ``spark-submit`` starts.

`session` builds a session that suits the engine; ``goffish.run(..., engine="spark", spark=session)`` runs on it.
`vertices_and_edges`, `to_graphframe` and `from_graphframe` bring graphs to Spark and back, `motifs` finds patterns.
"""

from pathlib import Path

from goffish.gopher.spark.session import session
from goffish.spark.frames import from_graphframe, to_graphframe, vertices_and_edges
from goffish.spark.motifs import motifs

__all__ = ["entry", "from_graphframe", "motifs", "session", "to_graphframe", "vertices_and_edges"]


def entry() -> Path:
    """The script that ``spark-submit`` runs: it takes the arguments of the command line ``goffish``."""
    return Path(__file__).with_name("submit.py")

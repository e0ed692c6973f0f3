"""GoFFish on a Spark cluster: the session, and what ``spark-submit`` starts.

`session` builds a session that suits the engine; ``goffish.run(..., engine="spark", spark=session)`` runs on it.
"""

from pathlib import Path

from goffish.gopher.spark.session import session

__all__ = ["entry", "session"]


def entry() -> Path:
    """The script that ``spark-submit`` runs: it takes the arguments of the command line ``goffish``."""
    return Path(__file__).with_name("submit.py")

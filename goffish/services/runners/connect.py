"""Sessions of Spark Connect, in a process apart: ``python -m goffish.services.runners.connect [SESSION]``.

Without a session, it checks that the server whose URL is in ``SPARK_REMOTE`` accepts one; otherwise it ends that
session and all that runs in it.
"""

from __future__ import annotations

import os
import sys
import time

from goffish.errors import GoffishError
from goffish.gopher.spark.master import REMOTE, Master
from goffish.spark import session

#: What the server says about a session that has ended.
_CLOSED = "SESSION_CLOSED"
#: Seconds in which cancelled tasks end: Spark kills their Python workers after two (spark.python.task.killTimeout).
_ENDS_S = 4.0


def main() -> None:
    """Open a session and end it."""
    url = os.environ.pop(REMOTE)
    if len(sys.argv) > 1:
        url = Master.of(url).in_session(sys.argv[1])
    try:
        spark = session(master=url)
        spark.interruptAll()
        spark.stop()
        if len(sys.argv) > 1:
            time.sleep(_ENDS_S)  # the next attempt writes its checkpoints where these tasks do
    except GoffishError as error:
        if _CLOSED not in str(error):
            sys.stderr.write(f"error: {error}\n")
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

"""A worker process of a program that follows a live graph.

``python -m goffish.streaming.graphs.programs.process FOLDER NUMBER SNAPSHOT``: the folder has the sockets of all
workers and the one of the process that started them; the folder above has the program and, if its name is not empty,
the snapshot with which to begin.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from goffish.streaming.graphs.programs.worker import Worker


def main() -> None:
    """Run a worker."""
    folder, number, snapshot = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sys.path[:], place = json.loads((folder.parent / "path").read_text())
    os.chdir(place)
    Worker(folder, number, snapshot).run()


if __name__ == "__main__":
    main()

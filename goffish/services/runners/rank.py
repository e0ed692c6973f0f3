"""Rank of a graph job on several machines: ``python -m goffish.services.runners.rank TURN``.

All ranks get the same command; each machine passes the folder of its files in the environment.
"""

from __future__ import annotations

import os
import sys

from goffish.environment import end_with_parent
from goffish.services.runners.worker import main as work

#: Variable with the folder of the files of the machine.
FOLDER_VARIABLE = "GOFFISH_JOB_FOLDER"


def main() -> None:
    """Run a rank, which ends with its proxy."""
    end_with_parent()
    sys.argv[1:1] = [os.environ[FOLDER_VARIABLE]]
    work()


if __name__ == "__main__":
    main()

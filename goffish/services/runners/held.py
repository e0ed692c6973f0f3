"""What a job holds of its provider, and what it has cost, kept beyond a crash of the server."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass

from goffish.services.runners.folder import Busy, JobFolder, write_whole
from goffish.services.runners.processes import end_worker

#: Tags of machines, and the file of `Kept`.
JOB, TURN, _KEPT = "goffish-job", "goffish-turn", "cloud.json"
#: Maximum time until a worker ends after its machine or server, and the interval of looks at it, in seconds.
_ENDS_S, _LOOK_S = 10.0, 0.05


def wait_until_free(folder: JobFolder) -> None:
    """Wait for the worker of a stopped machine; kill it after a timeout."""
    end = time.monotonic() + _ENDS_S
    while folder.busy:
        if time.monotonic() > end:
            end_worker(folder, None)
            break
        time.sleep(_LOOK_S)
    if folder.busy:
        raise Busy(f"{folder.path}: a worker cannot be stopped")


@dataclass
class Kept:
    """What a job keeps for the attempts after a crash of the server.

    Attributes
    ----------
    costs : dict
        By the turn of the machine; those of attempts without turns have the key "".
    core_hours : float, optional
        Left from the last checkpoint.
    """

    costs: dict[str, float]
    core_hours: float | None = None

    @classmethod
    def read(cls, folder: JobFolder, cost: float = 0.0) -> Kept:
        """Read what is kept; costs are those of the job at least."""
        kept = cls({})
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            kept = cls(**json.loads((folder.path / _KEPT).read_text()))
        if (missing := cost - sum(kept.costs.values())) > 0:
            kept.costs[""] = kept.costs.get("", 0.0) + missing
        return kept

    def write(self, folder: JobFolder) -> None:
        """Write all, for `read`."""
        write_whole(folder.path / _KEPT, json.dumps(asdict(self)), durable=False)

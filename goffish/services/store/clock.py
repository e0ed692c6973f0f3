"""The time of day, as a server keeps it."""

from __future__ import annotations

import time


class Clock:
    """Seconds since 1970 that never jump: read from the computer's clock once, counted from there on.

    A deadline is not missed because somebody sets the clock of the computer while the server runs.
    """

    def __init__(self) -> None:
        self._ahead = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970 (UTC)."""
        return self._ahead + time.monotonic()

"""A time until which the workers of a host may go on without an answer from the controller of their flow."""

from __future__ import annotations

import struct
import time
from mmap import mmap
from pathlib import Path

#: File with the lease, in the folder of the workers of another host than the controller's.
LEASE = "lease"
_TIME = struct.Struct("<d")


def lease_clock() -> float:
    """Return a time in seconds that also passes while the host is suspended; setting its clock changes nothing."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """A lease that processes of one host share.

    Parameters
    ----------
    path : Path
        File; made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            if file.tell() < _TIME.size:
                file.truncate(_TIME.size)
            self._memory = mmap(file.fileno(), _TIME.size)

    def renew(self, until: float) -> None:
        """Set the time of `lease_clock` at which the lease ends."""
        _TIME.pack_into(self._memory, 0, until)

    @property
    def expired(self) -> bool:
        """Whether the lease has ended."""
        (until,) = _TIME.unpack_from(self._memory)
        return lease_clock() > float(until)

    def close(self) -> None:
        """Close the file."""
        self._memory.close()

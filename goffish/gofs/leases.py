"""One writer at a time in object storage, which has no locks.

A lease is a file with a number: only one process can create it, and its holder changes it at intervals. Another process
takes the next number after the file says that the lease has ended, or once it has not changed for the time that it
names. Clocks of different machines are not compared. The newest file remains, so that numbers only grow.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from contextlib import suppress
from typing import Any, NamedTuple

from goffish.errors import StoreError
from goffish.storage import reason_of

#: Folder of the files of a lease.
FOLDER = ".lease"
#: Seconds after which a lease that was not renewed is free, the accepted maximum, and between two looks at it.
_LASTS_S, _LONGEST_S, _LOOK_S = 15.0, 300.0, 0.5
#: Attempts to take a lease that is free, which fail where others take it first, or where storage answers from a cache.
_ATTEMPTS = 50
#: Renewals in the time that a lease lasts.
_RENEWALS = 4


class _Held(NamedTuple):
    """The newest file of a lease; without a holder if it cannot be read."""

    number: int
    holder: str = ""
    beat: int = 0
    lasts_s: float = _LASTS_S
    ended: bool = False


class Lease:
    """Right to change a folder of object storage; renewed on a thread while it is held.

    Parameters
    ----------
    system
        File system of `goffish.storage.open_filesystem`.
    root : str
        Path of the folder in it.
    location : str
        Name of the folder in errors.
    lasts_s : float
        Seconds after which others take the lease of a holder that has died.

    Notes
    -----
    A holder that was halted for longer finds out when it renews the lease, or by `check` before it changes something. A
    change that is sent when the lease ends can still arrive later.
    """

    def __init__(self, system: Any, root: str, location: str, lasts_s: float = _LASTS_S) -> None:
        self._system, self._location, self._lasts_s = system, location, lasts_s
        self._folder = f"{root.rstrip('/')}/{FOLDER}"
        self._mine = _Held(-1)
        self._renewed_s = 0.0
        self._lost = False
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, wait_s: float = 0.0) -> None:
        """Take the lease.

        Parameters
        ----------
        wait_s : float
            Seconds to wait for a holder that renews it.

        Raises
        ------
        StoreError
            Another process holds it, or storage cannot be used.
        """
        until, seen, since, left = time.monotonic() + wait_s, None, 0.0, _ATTEMPTS
        while True:
            try:
                held, now = self._newest(), time.monotonic()
                if held is None or held.ended or (held == seen and now - since >= held.lasts_s):
                    if self._take(0 if held is None else held.number + 1):
                        return
                    left -= 1
                    if left <= 0 and now >= until:
                        raise StoreError(f"{self._location}: other processes are writing this store; retry later")
                    continue
            except OSError as error:
                raise StoreError(f"{self._location}: cannot be locked ({reason_of(error)})") from error
            if held != seen:
                if seen is not None and now >= until:
                    raise StoreError(f"{self._location}: another process is writing this store; retry later")
                seen, since = held, now
            time.sleep(min(_LOOK_S, held.lasts_s / _RENEWALS))

    def check(self) -> None:
        """Check that the lease is still held, from what is known here.

        Raises
        ------
        StoreError
            It was not renewed in time, or another process has taken it.
        """
        if self._lost or time.monotonic() - self._renewed_s > self._lasts_s:
            raise StoreError(
                f"{self._location}: was not reached for {self._lasts_s:g} s, so that another process may write here; "
                "retry later"
            )

    def release(self) -> None:
        """Let others take the lease at once."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
        if not self._lost:
            with suppress(OSError):  # then it ends by itself
                self._write(self._mine._replace(beat=self._mine.beat + 1, ended=True))

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:012d}"

    def _numbers(self) -> list[int]:
        self._system.invalidate_cache(self._folder)
        try:
            found = self._system.ls(self._folder, detail=False)
        except FileNotFoundError as error:
            if reason_of(error) != "no such file":
                raise
            return []
        names = [name.rstrip("/").rpartition("/")[2] for name in found]
        return sorted(int(name) for name in names if name.isdecimal() and len(name) == 12)

    def _newest(self) -> _Held | None:
        numbers = self._numbers()
        if not numbers:
            return None
        try:
            found = json.loads(self._system.cat_file(self._name(numbers[-1])))
            one = _Held(numbers[-1], str(found["holder"]), int(found["beat"]), float(found["lasts_s"]), found["ended"])
        except FileNotFoundError:  # replaced in this moment
            return _Held(numbers[-1])
        except (ValueError, KeyError, TypeError, RecursionError):
            return _Held(numbers[-1])
        lasts_s = one.lasts_s if 0 <= one.lasts_s <= _LONGEST_S else _LONGEST_S  # also for NaN
        return one._replace(lasts_s=lasts_s, ended=one.ended is True)

    def _encoded(self, held: _Held) -> bytes:
        return json.dumps(held._asdict()).encode()

    def _write(self, held: _Held) -> None:
        self._system.pipe_file(self._name(held.number), self._encoded(held))

    def _take(self, number: int) -> bool:
        mine, begun_s = _Held(number, uuid.uuid4().hex, 0, self._lasts_s), time.monotonic()
        self._system.makedirs(self._folder, exist_ok=True)
        try:
            self._system.pipe_file(self._name(number), self._encoded(mine), mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            if "ConditionalRequestConflict" in str(error):  # of S3: two at once, of whom none has it yet
                return False
            if not isinstance(error.__cause__, TypeError | ValueError | NotImplementedError):
                raise
            # A file system that cannot refuse a second creation; what is read back names the last of them.
            self._write(mine)
        if self._newest() != mine:
            # Another one has gone further since the look at the files.
            with suppress(OSError):
                if self._numbers()[-1] != number:
                    self._system.rm_file(self._name(number))
            return False
        self._mine, self._renewed_s, self._lost = mine, begun_s, False
        for one in self._numbers():
            if one < number:
                with suppress(OSError):  # another one may have removed it
                    self._system.rm_file(self._name(one))
        self._ends.clear()
        self._thread = threading.Thread(target=self._renew, name="goffish lease", daemon=True)
        self._thread.start()
        return True

    def _renew(self) -> None:
        while not self._ends.wait(self._lasts_s / _RENEWALS):
            begun_s, following = time.monotonic(), self._mine._replace(beat=self._mine.beat + 1)
            with suppress(OSError):  # `check` notices if this lasts
                if self._numbers()[-1] != following.number:
                    self._lost = True
                    return
                self._write(following)
                self._mine, self._renewed_s = following, begun_s

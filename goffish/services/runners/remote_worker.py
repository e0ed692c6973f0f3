"""Worker of a graph job whose folder is in object storage.

``python -m goffish.services.runners.remote_worker URI TURN`` works in a temporary folder: it reads the order and the
checkpoint of the workers before, starts `worker`, and writes what is new to storage in the background. SIGTERM is the
notice that the machine will be taken back: the worker ends with a checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from goffish.errors import GoffishError, StoreError
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.mirror import Mirror
from goffish.services.runners.processes import bound, start, worker_command
from goffish.services.runners.worker import NO_STORAGE, NOT_NOW

#: Seconds between two looks at what is new, and at what the server asks for.
_LOOK_S, _WISHES_S = 1.0, 5.0
#: Seconds to wait for the lease of a worker whose machine is gone, and for storage that cannot be written.
_LEASE_S, _PATIENCE_S = 30.0, 60.0


def main() -> None:
    """Run an attempt at a job of object storage."""
    place, turn = sys.argv[1:3]
    noticed = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: noticed.set())
    with tempfile.TemporaryDirectory(prefix="goffish-job-") as home:
        mirror = Mirror(JobFolder(Path(home)), place)
        try:
            with mirror.store.locked(_LEASE_S):
                code = _run(mirror, turn, noticed)
        except StoreError as error:  # the next worker resumes from what was written
            sys.stderr.write(f"error: {error}\n")
            sys.exit(NO_STORAGE)
        except GoffishError as error:
            sys.stderr.write(f"error: {error}\n")
            sys.exit(error.exit_code)
    sys.exit(code)


def _run(mirror: Mirror, turn: str, noticed: threading.Event) -> int:
    folder = mirror.folder
    mirror.fetch_all()
    if folder.turn != turn:
        return NOT_NOW
    if folder.done is not None:
        return 0
    mirror.say(turn)
    process = start(bound(worker_command(folder.path, turn)), folder, os.environ)
    passed_on, next_wishes, written = False, 0.0, time.monotonic()
    try:
        while (code := _ended(process)) is None:
            if noticed.is_set() and not passed_on:
                passed_on = True
                process.send_signal(signal.SIGUSR1)
            try:
                if time.monotonic() >= next_wishes:
                    mirror.fetch_wishes()
                    next_wishes = time.monotonic() + _WISHES_S
                mirror.write_news()
                written = time.monotonic()
            except StoreError:
                if time.monotonic() - written > _PATIENCE_S:
                    raise
    finally:
        process.kill()
        process.wait()
    mirror.write_news()
    mirror.write_result()
    mirror.say(turn, code=code)
    return code


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_LOOK_S)
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    main()

"""Entry point: runs a command where Ctrl-C can always reach it, and turns errors into one line and an exit code."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn

from goffish.cli.mpi import LAST_TO_LEAVE_S
from goffish.cli.process import (
    INTERRUPTED,
    TERMINATED,
    Terminated,
    end_children,
    explain,
    leave,
    output_failed,
    run_command,
    stop,
    terminate,
)
from goffish.partial import remove_partial_files


def main() -> NoReturn:
    """Run the command line and leave with its exit code.

    0: done; 1: the job failed; 2: bad input; 130: interrupted; 143: terminated.
    """
    worker, outcome, done = None, dict[str, Any](), threading.Event()
    if sys.argv[1:2] == ["serve"]:
        # A server stops in its own time, and its event loop hears signals in the main thread only.
        run_command(_app, outcome, done)
        leave(*explain(outcome))
    try:
        signal.signal(signal.SIGTERM, terminate)
        worker = threading.Thread(target=run_command, args=(_app, outcome, done), name="command", daemon=True)
        # Kernels release the GIL but never look at signals: the main thread waits for them where it can.
        worker.start()
        # Not `join`: interrupted, it takes the thread for ended (Python 3.11, bpo-45274).
        while not done.wait(0.2):
            pass
    except KeyboardInterrupt as stopped:
        with contextlib.suppress(KeyboardInterrupt):
            stop(worker, done)
        ended = isinstance(stopped, Terminated)
        what = "terminated" if ended else "interrupted"
        leave(f"{what}; files are written whole or not at all", TERMINATED if ended else INTERRUPTED)
    message, code = explain(outcome)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader has seen enough
    except OSError as error:
        message, code = message or output_failed(error), code or 1
    leave(message, code)


def _app() -> Any:
    from goffish.cli.app import app

    return app


def work() -> NoReturn:
    """The process that does the work of a rank; the one that guards it sees to interrupts."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not to outlive the guard
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    outcome, done = dict[str, Any](), threading.Event()
    threading.Thread(target=run_command, args=(_app, outcome, done), name="command", daemon=True).start()
    while not done.wait(0.2):
        pass
    message, code = explain(outcome)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        if message is not None:
            os.write(2, f"{' '.join(message.splitlines())}\n".encode(errors="backslashreplace"))
    end_children()
    for thread in threading.enumerate():
        if thread.name.startswith("gopher"):
            thread.join(LAST_TO_LEAVE_S)
            if thread.is_alive():  # in a kernel, after another rank has failed
                os._exit(code)
    # Not os._exit: MPICH tells its launcher in an exit handler that all is well, which else ends the other ranks.
    raise SystemExit(code)


def _end(number: int, frame: FrameType | None) -> None:
    remove_partial_files()
    os._exit(128 + number)

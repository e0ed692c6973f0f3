"""Entry point: run a command interruptibly, and convert errors to a one-line message and an exit code."""

from __future__ import annotations

import contextlib
import gc
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
from goffish.environment import end_with_parent
from goffish.partial import remove_partial_files

#: New objects between two searches for garbage; imports make many that stay, and would be searched again and again.
_COLLECTS = 50_000


def main() -> NoReturn:
    """Run the command line and exit.

    Exit codes: 0 success, 1 failed job, 2 invalid input, 130 interrupted, 143 terminated.
    """
    gc.set_threshold(_COLLECTS)
    worker, outcome, done = None, dict[str, Any](), threading.Event()
    if sys.argv[1:2] in (["serve"], ["stream"], ["launch"]):
        # Servers, flows and launchers shut down gracefully; they receive signals in the main thread only.
        if sys.argv[1:2] == ["launch"]:
            signal.signal(signal.SIGTERM, terminate)
        run_command(_app, outcome, done)
        leave(*explain(outcome))
    try:
        signal.signal(signal.SIGTERM, terminate)
        worker = threading.Thread(target=run_command, args=(_app, outcome, done), name="command", daemon=True)
        # Kernels release the GIL but do not handle signals: the main thread stays free to receive them.
        worker.start()
        # Not `join`: after an interrupt it reports a live thread as ended (Python 3.11, bpo-45274).
        while not done.wait(0.2):
            pass
    except KeyboardInterrupt as stopped:
        with contextlib.suppress(KeyboardInterrupt):
            stop(worker, done)
        ended = isinstance(stopped, Terminated)
        what = "terminated" if ended else "interrupted"
        leave(f"{what}; no partial output files were left", TERMINATED if ended else INTERRUPTED)
    message, code = explain(outcome)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader closed the pipe
    except OSError as error:
        message, code = message or output_failed(error), code or 1
    leave(message, code)


def _app() -> Any:
    from goffish.cli.app import app

    return app


def work() -> NoReturn:
    """Run the command of an MPI rank in a worker process; its parent process handles interrupts."""
    end_with_parent()
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
    # Not os._exit: MPICH reports success to its launcher in an exit handler; otherwise the other ranks are killed.
    raise SystemExit(code)


def _end(number: int, frame: FrameType | None) -> None:
    remove_partial_files()
    os._exit(128 + number)

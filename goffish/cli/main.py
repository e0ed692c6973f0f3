"""Entry point: runs a command where Ctrl-C can always reach it, and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, NoReturn

from goffish.errors import GoffishError

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line and leave with its exit code.

    0: done; 1: the job failed; 2: bad input; 130: interrupted.
    """
    from goffish.cli.app import app

    outcome: dict[str, Any] = {}

    def command() -> None:
        try:
            outcome["code"] = app(standalone_mode=False) or 0
        except BaseException as error:
            outcome["error"] = error

    # Kernels release the GIL but never look at signals: the main thread waits for them where it can.
    worker = threading.Thread(target=command, name="command", daemon=True)
    worker.start()
    try:
        while worker.is_alive():
            worker.join(0.2)
    except KeyboardInterrupt:
        _leave("interrupted; files are written whole or not at all, so nothing is half-done", INTERRUPTED)
    _leave(*_explain(outcome))


def _explain(outcome: dict[str, Any]) -> tuple[str | None, int]:
    error = outcome.get("error")
    if error is None:
        code = outcome.get("code", 0)
        return None, code if isinstance(code, int) else 0
    if isinstance(error, SystemExit):
        return None, error.code if isinstance(error.code, int) else 1
    if isinstance(error, GoffishError):
        return f"error: {error}", error.exit_code
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return "interrupted", INTERRUPTED
    if hasattr(error, "format_message"):  # a usage error of the command-line library
        return f"error: {error.format_message()} (see --help)", 2
    if isinstance(error, BrokenPipeError):
        return None, 0
    if isinstance(error, MemoryError):
        return "error: not enough memory for this graph on this machine", 1
    if os.environ.get("GOFFISH_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    told = f"error: {type(error).__name__}: {error}"
    return f"{told} (this is a fault of GoFFish; GOFFISH_TRACEBACK=1 shows where)", 1


def _leave(message: str | None, code: int) -> NoReturn:
    """Say the last words and leave without waiting for threads that are inside a kernel."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            code = code or 0
    if message is not None:
        os.write(2, f"{message}\n".encode())
    _end_children()
    os._exit(code)


def _end_children() -> None:
    """End helper processes (METIS runs in one), which would otherwise outlive an interrupt."""
    import signal
    from pathlib import Path

    try:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for task in Path("/proc/self/task").iterdir():
            children += (task / "children").read_text().split()
    except OSError:
        return
    for child in set(children):
        try:
            os.kill(int(child), signal.SIGTERM)
        except ProcessLookupError:
            continue

"""Process handling: interrupts, one-line errors, exit codes, and termination of helper processes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from goffish.errors import GoffishError, GoffishWarning
from goffish.extras import missing
from goffish.partial import remove_partial_files
from goffish.threads import interrupt

INTERRUPTED, TERMINATED = 130, 143

#: Seconds that an interrupted command has for cleanup.
GRACE = 0.8


#: Longer times that commands have asked for with `time_for_cleanup`.
_CLEANUPS: list[float] = []


@contextlib.contextmanager
def time_for_cleanup(seconds: float) -> Iterator[None]:
    """Give the command more time for cleanup, should it be interrupted in this context."""
    _CLEANUPS.append(seconds)
    try:
        yield
    finally:
        _CLEANUPS.remove(seconds)


class Terminated(KeyboardInterrupt):
    """SIGTERM, as sent by batch systems; handled like Ctrl-C."""


def run_command(app: Callable[[], Callable[..., Any]], outcome: dict[str, Any], done: threading.Event) -> None:
    """Run the command line loaded by `app`, and record its exit code or error."""
    try:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by the caller
                setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
            # Escape labels that the terminal encoding cannot represent.
            getattr(sys, name).reconfigure(errors="backslashreplace")
        warnings.showwarning = partial(show_warning, warnings.showwarning)
        outcome["code"] = app()(standalone_mode=False, prog_name="goffish") or 0
    except BaseException as error:
        outcome["error"] = error
    finally:
        done.set()


def show_warning(otherwise: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Print a GoFFish warning as one line on standard error, without a code location; pass on other warnings."""
    if issubclass(category, GoffishWarning):
        sys.stderr.write(f"warning: {message}\n")
    else:
        otherwise(message, category, *where)


def terminate(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM: raise `Terminated` in the main thread."""
    raise Terminated


def explain(outcome: dict[str, Any]) -> tuple[str | None, int]:
    """Return the message and the exit code for the outcome of a command."""
    error = outcome.get("error")
    if error is None:
        code = outcome.get("code", 0)
        return None, code if isinstance(code, int) else 0
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        return None, 0
    if isinstance(error, SystemExit):
        return None, error.code if isinstance(error.code, int) else 1
    if os.environ.get("GOFFISH_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, GoffishError):
        return f"error: {error}", error.exit_code
    if isinstance(error, ModuleNotFoundError):
        command = sys.argv[1] if len(sys.argv) > 1 else ""
        lacking = missing(error.name or "", command)
        if lacking is not None:
            return f"error: goffish {command}: {lacking}", 2
    if isinstance(error, Terminated):
        return "terminated", TERMINATED
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return "interrupted", INTERRUPTED
    if type(error).__name__ == "NoArgsIsHelpError":
        return None, 2  # the help was printed
    if hasattr(error, "format_message"):  # a usage error of the command-line library
        return _usage_error(error), 2
    if isinstance(error, MemoryError):
        return "error: out of memory", 1
    if isinstance(error, OSError):
        if error.filename is None:
            return output_failed(error), 1
        return f"error: {error.filename}: {error.strerror or error}", 1
    text = " ".join(f"{type(error).__name__}: {error}".split())
    text = text if len(text) <= 300 else f"{text[:299]}…"
    return f"error: {text} (internal error; set GOFFISH_TRACEBACK=1 for a traceback)", 1


def _usage_error(error: Any) -> str:
    text = error.format_message().rstrip(".")
    for words, plain in (
        ("Input should be a valid integer, unable to parse string as an integer", "must be a whole number"),
        ("Input should be a valid number, unable to parse string as a number", "must be a number"),
        ("Input should be", "must be"),
        ("Value error, ", ""),
    ):
        text = text.replace(words, plain)
    context = getattr(error, "ctx", None)
    return f"error: {text} (see {'goffish' if context is None else context.command_path} --help)"


def output_failed(error: OSError) -> str:
    """Return the message for standard output that cannot be written."""
    return f"error: standard output cannot be written ({error.strerror or error})"


def stop(worker: threading.Thread | None, done: threading.Event) -> None:
    """Interrupt the command and let it clean up; if a kernel is running, only remove its partial files."""
    if worker is not None and worker.ident is not None:
        # A thread being started has the ID of its parent and may receive the interrupt instead.
        sys.unraisablehook = lambda _: None
        interrupt(worker)
        end_children()
        done.wait(max([GRACE, *_CLEANUPS]))
    remove_partial_files()
    if sys.stderr is not None and sys.stderr.isatty():
        os.write(2, b"\r\x1b[2K\x1b[?25h")  # clear the progress line, show the cursor


def leave(message: str | None, code: int) -> NoReturn:
    """Print the message and exit without waiting for threads inside kernels."""
    if message is not None:
        line = " ".join(message.splitlines())
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode(errors="backslashreplace"))
    end_children()
    os._exit(code)


def end_children() -> None:
    """Terminate helper processes, such as that of METIS."""
    children: list[str] = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            children += (task / "children").read_text().split()
    for child in set(children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGTERM)

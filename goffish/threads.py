"""Interrupts of threads that compute."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

Answer = TypeVar("Answer")

#: Steps that take some 10 ms at least; starting a thread takes 0.1 ms.
_LONG = 1 << 20
#: Seconds that an interrupted thread has to end before it is left behind.
_GRACE_S = 0.2


def interrupt(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in a thread, as soon as it returns from the kernel that it runs."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))


def interruptible(work: int, call: Callable[..., Answer], *given: Any) -> Answer:
    """Return ``call(*given)``; if it takes about `work` steps and that is long, Ctrl-C ends the wait at once.

    Kernels release the GIL but handle no signals, so that they run on a thread of their own. One that is running when
    Ctrl-C is pressed continues on arrays that are no longer read; nothing is started after it.
    """
    if work < _LONG or threading.current_thread() is not threading.main_thread():
        return call(*given)
    answers: list[Answer] = []
    errors: list[BaseException] = []
    stopped, done = threading.Event(), threading.Event()

    def run() -> None:
        try:
            if not stopped.is_set():
                answers.append(call(*given))
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=copy_context().run, args=(run,), name="goffish algorithm", daemon=True)
    try:
        thread.start()
        # In short steps: a library (polars) may have put its own signal handler in between, which does not wake a wait.
        while not done.wait(0.1):
            pass
    except BaseException:
        stopped.set()  # a thread that has not begun yet cannot be interrupted
        interrupt(thread)
        done.wait(_GRACE_S)
        raise
    if errors:
        raise errors[0]
    return answers[0]

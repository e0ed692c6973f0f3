"""The thread helper: ranges cover all rows, answers keep their order, errors come through."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count
from goffish.threads import interruptible


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 9))
def test_ranges_cover_all_rows_and_differ_by_one_row_at_most(degrees, parts):
    offsets = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
    bounds = balanced_rows(offsets, parts)
    assert bounds.size == parts + 1
    assert (bounds[0], bounds[-1]) == (0, len(degrees))
    work = np.diff(offsets[bounds] + bounds)
    assert (work >= 0).all()
    largest_row = max(degrees, default=0) + 1
    assert (work <= (int(offsets[-1]) + len(degrees)) / parts + largest_row + 1).all()


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_answers_keep_the_order_of_the_tasks(threads):
    assert run_tasks(lambda a, b: a * b, [(i, i + 1) for i in range(100)], threads) == [i * (i + 1) for i in range(100)]
    assert run_tasks(lambda: 1, [], threads) == []


@pytest.mark.parametrize("threads", [1, 3])
def test_an_exception_in_any_thread_reaches_the_caller(threads):
    def fail(i: int) -> None:
        if i == 13:
            raise ZeroDivisionError("thirteen")

    for _ in range(20):
        with pytest.raises(ZeroDivisionError, match="thirteen"):
            run_tasks(fail, [(i,) for i in range(30)], threads)


def test_thread_count_default_and_errors():
    assert 1 <= thread_count() <= (os.cpu_count() or 1)
    assert thread_count(3) == 3
    for bad in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="threads"):
            thread_count(bad)


def test_a_long_kernel_can_be_interrupted() -> None:
    begun, ended = threading.Event(), threading.Event()

    def kernel() -> None:
        begun.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        ended.wait(60)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test runner may have it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            interruptible(1 << 30, kernel)
        assert begun.is_set()
    finally:
        ended.set()
        signal.signal(signal.SIGINT, before)
    for work in (0, 1 << 30):
        assert interruptible(work, divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            interruptible(work, divmod, 7, 0)


def test_an_interrupted_thread_starts_nothing_more() -> None:
    begun, ended, after = threading.Event(), threading.Event(), threading.Event()

    def algorithm() -> None:
        try:
            begun.set()
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            ended.set()
            raise
        finally:
            after.set()

    timer = threading.Timer(0.1, lambda: begun.wait() and _thread.interrupt_main())
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(1 << 30, algorithm)
    assert after.wait(5) and ended.is_set()


def test_an_interrupt_before_the_thread_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when an interrupted algorithm runs in the background, or the process loses its hook for lost errors."""
    kept: list[threading.Thread] = []
    ran: list[int] = []
    hook, start = sys.unraisablehook, threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        kept.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        interruptible(1 << 30, ran.append, 1)
    start(kept[0])
    kept[0].join(10)
    assert not kept[0].is_alive() and ran == [] and sys.unraisablehook is hook

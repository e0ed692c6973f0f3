"""Processes for plans that take long: a call that nobody waits for any more ends with its process."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import signal
import traceback
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from goffish.errors import GoffishError, JobError
from goffish.services.server.clients import ANYBODY
from goffish.services.server.guard import caller
from goffish.services.server.limits import TooMuch

Answer = TypeVar("Answer")
#: PR_SET_PDEATHSIG of Linux.
_DIES_WITH_PARENT = 1


class Planners:
    """Processes that answer one call at a time each, started when they are needed first.

    A client that has a name holds all of them but one at most, so that one is left for the others.

    Parameters
    ----------
    count : int
        Calls at a time; the others wait.
    most_s : float
        Seconds for a call, from when its process begins with it.
    """

    def __init__(self, count: int, most_s: float) -> None:
        self._places, self._most_s = asyncio.Semaphore(count), most_s
        self._own: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(max(1, count - 1)))
        self._idle: list[_Planner] = []
        self._busy: set[_Planner] = set()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="planner")

    async def call(self, call: Callable[..., Answer], *given: Any) -> Answer:
        """Call in a process; both ways only our own objects are sent.

        Raises
        ------
        TooMuch
            It took longer than it may.
        JobError
            The process was lost, as it happens when memory runs out.
        """
        client = caller.get()
        # Where everybody is the same client there are no others to leave one for.
        async with nullcontext() if client is ANYBODY else self._own[client.name], self._places:
            planner = self._take()
            try:
                answered, answer = await asyncio.get_running_loop().run_in_executor(
                    self._threads, planner.ask, call, given, self._most_s
                )
            except BaseException:
                # Lost, too slow, or (CancelledError) the client has gone or its deadline is over.
                planner.kill()
                raise
            else:
                self._idle.append(planner)
            finally:
                self._busy.discard(planner)
        if not answered:
            raise answer
        return answer  # type: ignore[no-any-return]

    def _take(self) -> _Planner:
        planner = self._idle.pop() if self._idle else _Planner()
        self._busy.add(planner)
        return planner

    def close(self) -> None:
        """End the processes."""
        for planner in (*self._idle, *self._busy):
            planner.kill()
        self._threads.shutdown(cancel_futures=True)
        for planner in (*self._idle, *self._busy):
            planner.bury()


class _Planner:
    """A process, from this side. All but `kill` is called by one thread at a time."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection[Any, Any] | None = None
        self._killed = False

    def ask(self, call: Callable[..., Any], given: tuple[Any, ...], most_s: float) -> tuple[bool, Any]:
        """Whether a call came to its end, and its answer or its exception; waits for that.

        Raises
        ------
        TooMuch, JobError
            The process has to be killed, or is dead.
        """
        try:
            try:
                pipe = self._begin(call, given)
            except (EOFError, OSError):
                if self._killed:
                    raise
                self.bury()  # it was killed while it had nothing to do
                pipe = self._begin(call, given)
            if pipe.poll(most_s):
                answer: tuple[bool, Any] = pipe.recv()
                return answer
        except (EOFError, OSError):
            self.kill()
            self.bury()
            raise JobError("the process that planned was lost; ask for something smaller") from None
        self.kill()
        self.bury()
        raise TooMuch(f"a plan may take {most_s:g} s on this server; ask for something smaller")

    def _begin(self, call: Callable[..., Any], given: tuple[Any, ...]) -> Connection[Any, Any]:
        pipe = self._start() if self._pipe is None else self._pipe
        pipe.send((call, given))
        pipe.recv()
        return pipe

    def _start(self) -> Connection[Any, Any]:
        # Not a fork: this process has threads, and gRPC does not survive one.
        context = multiprocessing.get_context("spawn")
        pipe, other = context.Pipe()
        process = context.Process(target=_answer, args=(other,), name="planner", daemon=True)
        process.start()
        other.close()
        self._process, self._pipe = process, pipe
        # `kill` may have come before there was anything to kill: either it sees the process, or it is seen here.
        if self._killed:
            process.kill()
        pipe.recv()
        return pipe

    def kill(self) -> None:
        """End it at once, whatever it does; a thread that asks it is told so."""
        self._killed = True
        process = self._process
        if process is not None:
            process.kill()

    def bury(self) -> None:
        """Wait until a dead process is gone, and forget it."""
        if self._process is not None and self._pipe is not None:
            self._process.join()
            self._pipe.close()
            self._process = self._pipe = None


def _answer(pipe: Connection[Any, Any]) -> None:
    """What a process does: answer until the server ends."""
    # Not to outlive the server, also when that is killed, and to leave Ctrl-C to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    import_module("goffish.services.server.plans")
    pipe.send(None)
    while True:
        try:
            call, given = pipe.recv()
        except EOFError:
            return
        pipe.send(None)  # it has begun
        try:
            pipe.send((True, call(*given)))
        except Exception as error:
            if not isinstance(error, GoffishError):
                error.add_note(traceback.format_exc())  # of this process, for the server's log
            pipe.send((False, error))

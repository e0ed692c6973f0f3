"""Processes for plans that take long: a call that nobody waits for any more ends with its process.

Own code, since the workers of Pebble, like all of `multiprocessing`, get the server's whole environment; these get none
of its secrets.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import subprocess
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from goffish.environment import child_environment
from goffish.errors import GoffishError, JobError
from goffish.services.api.clients import ANYBODY
from goffish.services.api.guard import caller
from goffish.services.api.limits import TooMuch
from goffish.services.runners.limits import limit_memory, reserve_nothing

Answer = TypeVar("Answer")
#: PR_SET_PDEATHSIG of Linux.
_DIES_WITH_PARENT = 1
#: With the number of a pipe as its argument.
_PLANNER = "import sys; from goffish.services.api.planners import answer; answer(*map(int, sys.argv[1:]))"


class Planners:
    """Processes that answer one call at a time each, started when they are needed first.

    A client that has a name holds all of them but one at most, so that one is left for the others.

    Parameters
    ----------
    count : int
        Calls at a time; the others wait.
    most_s : float
        Seconds for a call, from when its process begins with it.
    most_mb : int
        Memory of a process.
    """

    def __init__(self, count: int, most_s: float, most_mb: int) -> None:
        self._places, self._most_s, self._most_mb = asyncio.Semaphore(count), most_s, most_mb
        self._own: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(max(1, count - 1)))
        self._idle: list[_Planner] = []
        self._busy: set[_Planner] = set()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="planner")
        #: Calls under way that others may share, and how many wait for each.
        self._shared: dict[Hashable, asyncio.Task[Any]] = {}
        self._waiting: Counter[Hashable] = Counter()

    async def share(self, key: Hashable, call: Callable[..., Answer], *given: Any) -> Answer:
        """As `call`, once for all who ask with the same key while it is under way; it ends when none waits any more."""
        task = self._shared.get(key)
        if task is None:
            task = self._shared[key] = asyncio.create_task(self.call(call, *given))
        self._waiting[key] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._shared[key]
                task.cancel()

    async def call(self, call: Callable[..., Answer], *given: Any) -> Answer:
        """Call in a process; both ways only our own objects are sent.

        Raises
        ------
        TooMuch
            It took longer than it may, or more memory.
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
        planner = self._idle.pop() if self._idle else _Planner(self._most_mb)
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

    def __init__(self, most_mb: int) -> None:
        self._most_mb = most_mb
        self._process: subprocess.Popen[bytes] | None = None
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
        raise TooMuch(f"a plan may take {most_s:g} s on this server (--max-plan-time); ask for something smaller")

    def _begin(self, call: Callable[..., Any], given: tuple[Any, ...]) -> Connection[Any, Any]:
        pipe = self._start() if self._pipe is None else self._pipe
        pipe.send((call, given))
        pipe.recv()
        return pipe

    def _start(self) -> Connection[Any, Any]:
        # Not multiprocessing, which hands on the environment with all its secrets.
        pipe, other = Pipe()
        command = [sys.executable, "-c", _PLANNER, str(other.fileno()), str(self._most_mb)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=(other.fileno(),), env=child_environment()
        )
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
            self._process.wait()
            self._pipe.close()
            self._process = self._pipe = None


def answer(number: int, most_mb: int) -> None:
    """Answer the calls of a pipe until the server ends: what a process does."""
    pipe: Connection[Any, Any] = Connection(number)
    # Not to outlive the server, also when that is killed, and to leave Ctrl-C to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    reserve_nothing()
    limit_memory(most_mb)
    import_module("goffish.services.api.plans")
    pipe.send(None)
    while True:
        try:
            call, given = pipe.recv()
        except EOFError:
            return
        pipe.send(None)  # it has begun
        try:
            pipe.send((True, call(*given)))
        except MemoryError:
            told = f"a plan may take {most_mb:,} MB on this server (--max-plan-memory); ask for something smaller"
            pipe.send((False, TooMuch(told)))
            return  # what was allocated may not come back
        except Exception as error:
            if not isinstance(error, GoffishError):
                error.add_note(traceback.format_exc())  # of this process, for the server's log
            pipe.send((False, error))

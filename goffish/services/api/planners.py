"""Worker processes for long planning calls; cancelling a call kills its process.

Workers of `multiprocessing` inherit the environment of the server; these do not, to protect its secrets.
"""

from __future__ import annotations

import asyncio
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

from goffish.environment import child_environment, end_with_parent
from goffish.errors import GoffishError, JobError
from goffish.services.api.clients import LOCAL_CLIENT
from goffish.services.api.guard import caller
from goffish.services.api.limits import TooMuch
from goffish.services.runners.limits import is_no_memory, limit_memory, reserve_nothing

Answer = TypeVar("Answer")
#: Program of a worker; its arguments are the descriptor of a pipe and the memory limit.
_PLANNER = "import sys; from goffish.services.api.planners import answer; answer(*map(int, sys.argv[1:]))"


class Planners:
    """Pool of planning processes, started on demand; each runs one call at a time.

    An authenticated client uses at most all processes but one.

    Parameters
    ----------
    count : int
        Maximum number of concurrent calls; others wait.
    most_s : float
        Time limit of a call, in seconds.
    most_mb : int
        Memory limit of a process, in MB.
    """

    def __init__(self, count: int, most_s: float, most_mb: int) -> None:
        self._places, self._most_s, self._most_mb = asyncio.Semaphore(count), most_s, most_mb
        self._own: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(max(1, count - 1)))
        self._idle: list[_Planner] = []
        self._busy: set[_Planner] = set()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="planner")
        #: Shared calls in progress, and the number of waiters for each.
        self._shared: dict[Hashable, asyncio.Task[Any]] = {}
        self._waiting: Counter[Hashable] = Counter()

    async def share(self, key: Hashable, call: Callable[..., Answer], *given: Any) -> Answer:
        """Share one `call` among concurrent requests with the same key; cancel it when no request is left."""
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
        """Run a call in a process; only trusted objects are pickled.

        Raises
        ------
        TooMuch
            The time or memory limit was exceeded.
        JobError
            The process was lost, for example because memory ran out.
        """
        client = caller.get()
        # Without authentication, all callers are one client, which may use all processes.
        async with nullcontext() if client is LOCAL_CLIENT else self._own[client.name], self._places:
            planner = self._take()
            try:
                answered, answer = await asyncio.get_running_loop().run_in_executor(
                    self._threads, planner.ask, call, given, self._most_s
                )
            except BaseException:
                # Lost, too slow, or (CancelledError) cancelled by the client or its deadline.
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
        """Kill all processes."""
        for planner in (*self._idle, *self._busy):
            planner.kill()
        self._threads.shutdown(cancel_futures=True)
        for planner in (*self._idle, *self._busy):
            planner.bury()


class _Planner:
    """Handle of a planning process. Only `kill` may be called concurrently."""

    def __init__(self, most_mb: int) -> None:
        self._most_mb = most_mb
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection[Any, Any] | None = None
        self._killed = False

    def ask(self, call: Callable[..., Any], given: tuple[Any, ...], most_s: float) -> tuple[bool, Any]:
        """Run a call; return whether it succeeded, and its result or exception.

        Raises
        ------
        TooMuch, JobError
            The process exceeded a limit, or was lost.
        """
        try:
            try:
                pipe = self._begin(call, given)
            except (EOFError, OSError):
                if self._killed:
                    raise
                self.bury()  # the idle process was killed
                pipe = self._begin(call, given)
            if pipe.poll(most_s):
                answer: tuple[bool, Any] = pipe.recv()
                return answer
        except (EOFError, OSError):
            self.kill()
            self.bury()
            raise JobError("the planning process was lost, possibly out of memory; reduce the problem size") from None
        self.kill()
        self.bury()
        raise TooMuch(f"planning exceeded {most_s:g} s (--max-plan-time); reduce the problem size")

    def _begin(self, call: Callable[..., Any], given: tuple[Any, ...]) -> Connection[Any, Any]:
        pipe = self._start() if self._pipe is None else self._pipe
        pipe.send((call, given))
        pipe.recv()
        return pipe

    def _start(self) -> Connection[Any, Any]:
        # Not multiprocessing, which passes on the environment with its secrets.
        pipe, other = Pipe()
        command = [sys.executable, "-c", _PLANNER, str(other.fileno()), str(self._most_mb)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=(other.fileno(),), env=child_environment()
        )
        other.close()
        self._process, self._pipe = process, pipe
        # `kill` may run before the process exists.
        if self._killed:
            process.kill()
        pipe.recv()
        return pipe

    def kill(self) -> None:
        """Kill the process; a waiting `ask` raises an error."""
        self._killed = True
        process = self._process
        if process is not None:
            process.kill()

    def bury(self) -> None:
        """Reap a killed process."""
        if self._process is not None and self._pipe is not None:
            self._process.wait()
            self._pipe.close()
            self._process = self._pipe = None


def answer(number: int, most_mb: int) -> None:
    """Run calls from a pipe until the server exits; main function of a worker."""
    pipe: Connection[Any, Any] = Connection(number)
    # Exit together with the server, even if it is killed; leave Ctrl-C to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    reserve_nothing()
    limit_memory(most_mb)
    import_module("goffish.services.api.plans")
    pipe.send(None)
    while True:
        try:
            call, given = pipe.recv()
        except EOFError:
            return
        pipe.send(None)  # started
        try:
            pipe.send((True, call(*given)))
        except Exception as error:
            if is_no_memory(error):
                text = f"planning exceeded {most_mb:,} MB (--max-plan-memory); reduce the problem size"
                pipe.send((False, TooMuch(text)))
                return  # memory may not be released
            if not isinstance(error, GoffishError):
                error.add_note(traceback.format_exc())  # for the server's log
            pipe.send((False, error))

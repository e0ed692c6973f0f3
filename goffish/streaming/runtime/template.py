"""A process that has imported what workers need, and starts each of them as a copy of itself.

Imports take a second of processor time in a new process, and a copy takes milliseconds. One template serves all flows
of the process that started it: ``python -m goffish.streaming.runtime.template DESCRIPTOR``, that of a socket. It ends
when that socket is closed and all copies have ended.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

_MODULE = "goffish.streaming.runtime.template"
#: Module of the workers of flows; copies import those of others.
_IMPORTED = "goffish.streaming.runtime.process"
_REQUEST_BYTES = 1 << 16
#: Beginnings of the names of variables that are read when modules are imported.
_READ_AT_IMPORT = ("ARROW", "GOFFISH", "LD_", "MKL", "NUMBA", "OMP", "OPENBLAS", "PYTHON")
_NUMBER = struct.Struct("<i")
_ENDS_S, _LOOKS_S = 1.0, 0.002


def start_process(command: Sequence[str], descriptors: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a process that ignores Ctrl-C also while it starts, as that reaches all processes of a terminal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=descriptors)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Copy:
    """A process that is a copy of the template.

    Parameters
    ----------
    status : int
        End of a pipe to which the template writes the number of the process and, once it has ended, its exit code.

    Attributes
    ----------
    pid : int
        Number of the process; 0 until the template has written it.
    """

    def __init__(self, status: int) -> None:
        self.pid = 0
        self._status, self._numbers = os.fdopen(status, "rb", buffering=0), list[int]()
        os.set_blocking(status, False)

    def poll(self) -> int | None:
        """Return the exit code, or None if the process has not ended."""
        if len(self._numbers) < 2:
            data = self._status.read(2 * _NUMBER.size)  # None if there is nothing to read
            self._numbers += (number for (number,) in _NUMBER.iter_unpack(data or b""))
            self.pid = self._numbers[0] if self._numbers else 0
            if data == b"" and not _runs(self.pid):  # the template was killed
                self._numbers = [self.pid, -signal.SIGKILL]
        if len(self._numbers) < 2:
            return None
        self._status.close()
        return self._numbers[1]

    def kill(self) -> None:
        """End the process at once."""
        while self.poll() is None and not self.pid:
            time.sleep(_LOOKS_S)
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; raise `subprocess.TimeoutExpired` after so many seconds."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(_MODULE, timeout or 0.0)
            time.sleep(_LOOKS_S)
        return code


def _runs(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return pid > 0
    return False


class _Template:
    """The template, as the process that starts it sees it."""

    def __init__(self) -> None:
        self._owner, self._environment = os.getpid(), dict(os.environ)
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            descriptor = other.fileno()
            self._process = start_process([sys.executable, "-m", _MODULE, str(descriptor)], [descriptor])
        atexit.register(self._end)

    @property
    def fits(self) -> bool:
        """Whether copies would be like new processes."""
        changed = self._changed
        alike = not any(name.startswith(_READ_AT_IMPORT) for name in changed)
        alike &= len(json.dumps(changed)) < _REQUEST_BYTES // 2
        return alike and self._owner == os.getpid() and self._process.poll() is None

    @property
    def _changed(self) -> dict[str, str | None]:
        """Return variables of the environment that have other values than in the template; None if they have gone."""
        before = self._environment
        names = {name for name, value in os.environ.items() if before.get(name) != value} | (before.keys() - os.environ)
        return {name: os.environ.get(name) for name in names}

    def start(self, command: Sequence[str]) -> Copy:
        """Start a module of Python with arguments."""
        status, other = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps([self._changed, *command]).encode()], [other, 1, 2])
        except BaseException:
            os.close(status)
            raise
        finally:
            os.close(other)
        return Copy(status)

    def close(self) -> None:
        """Let the template end after its copies."""
        atexit.unregister(self._end)
        self._socket.close()

    def _end(self) -> None:
        if self._owner == os.getpid():
            self._socket.close()
            try:
                self._process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


_lock = threading.Lock()
_templates: list[_Template] = []  # the one of this process


def start_copy(command: Sequence[str]) -> Copy:
    """Start a module of Python, with arguments, as a copy of the template of this process."""
    with _lock:
        if _templates and not _templates[0].fits:
            _templates.pop().close()
        if _templates:
            with suppress(ConnectionError):  # it was killed a moment ago
                return _templates[0].start(command)
            _templates.pop().close()
        _templates.append(_Template())
        return _templates[0].start(command)


def _serve(connection: socket.socket) -> list[Any]:
    """Start copies until the socket is closed and all have ended; return in a copy, with what it is to run."""
    running: dict[int, int] = {}  # pipes of processes
    ended, wakeup = socket.socketpair()
    for one in ended, wakeup:
        one.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(ended, selectors.EVENT_READ)
    selector.register(connection, selectors.EVENT_READ)
    asked = True
    while asked or running:
        for key, _ in selector.select():
            if key.fileobj is ended:
                ended.recv(1 << 12)
                _report(running)
                continue
            data, descriptors, *_ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
            if not data:
                selector.unregister(connection)
                asked = False
                continue
            status, *outputs = descriptors
            try:
                pid = os.fork()
            except OSError as error:  # its copy has ended, as nothing is written to the pipe
                os.write(outputs[1], f"error: a worker cannot be started ({error.strerror})\n".encode())
                for descriptor in descriptors:
                    os.close(descriptor)
                continue
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for number, output in enumerate(outputs, 1):
                    os.dup2(output, number)
                selector.close()
                for one in connection, ended, wakeup:
                    one.close()
                for descriptor in (*descriptors, *running.values()):
                    os.close(descriptor)
                return list(json.loads(data))
            for output in outputs:
                os.close(output)
            running[pid] = status
            _write(status, pid)
    raise SystemExit(0)


def _report(running: dict[int, int]) -> None:
    """Write the exit codes of processes that have ended."""
    for pid, status in list(running.items()):
        ended, code = os.waitpid(pid, os.WNOHANG)
        if ended:
            _write(status, os.waitstatus_to_exitcode(code))
            os.close(running.pop(pid))


def _write(status: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the reader has closed it
        os.write(status, _NUMBER.pack(number))


def main() -> None:
    """Serve as a template, and in each copy as a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    connection = socket.socket(fileno=int(sys.argv[1]))
    import_module(_IMPORTED)
    gc.freeze()  # copies share this memory, which a collection would write to
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of threads of imported libraries
        changed, module, *arguments = _serve(connection)
    for name, value in changed.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # otherwise functions draw the same numbers in all copies
    sys.argv[1:] = arguments
    import_module(module).main()


if __name__ == "__main__":
    main()

"""Observe and control flows from other processes: each flow that runs listens on a Unix socket.

A request is one line of JSON, such as ``{"request": "switch", "operator": "price", "alternate": "rough"}``, and so is
its answer: ``{"answer": …}`` or ``{"error": "…", "code": 2}``. When the flow ends, every client receives
``{"ended": "finished"}``, or ``{"ended": "failed", "error": "…"}``.

The sockets are in a folder that only the user can enter. A separate thread serves them, so that the flow waits for no
client; what a client sends is bounded, and its next request is read once it has received the last answer.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import selectors
import socket
import stat
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from goffish.errors import GoffishError, GoffishWarning, InputError, JobError
from goffish.streaming.metrics import Metrics
from goffish.streaming.topology import Topology
from goffish.streaming.updates.bounds import requirement_of
from goffish.streaming.updates.forecast import Setup, forecast_of
from goffish.streaming.updates.plan import UpdatePlan
from goffish.streaming.updates.rollout import UpdateReport
from goffish.streaming.updates.versions import PartialWindow, Strategy, partial_window_of, strategy_of

#: Bounds of a request and of an answer in bytes, and of clients at once: of more, one is closed that has asked
#: nothing, or the longest silent one.
_MOST_REQUEST, _MOST_ANSWER, _MOST_CLIENTS = 1 << 16, 1 << 24, 32
_TICK_S, _CLOSES_S = 0.5, 1.0
#: Seconds that a client waits for an answer: a flow holds the interpreter lock while compiled code runs.
_ANSWERS_S = 5.0
_NAME = re.compile(r"(?P<flow>.*)-(?P<pid>\d+)-\d+\.socket")
_numbers = itertools.count()


class Controlled(Protocol):
    """A flow that runs; all methods can be called on any thread, and return at once."""

    topology: Topology
    #: Reads another version of the flow from a file, if the process that runs the flow accepts files.
    load: Callable[[str], Topology] | None
    #: Updates that have ended.
    updates: list[UpdateReport]

    @property
    def updating(self) -> bool:
        """Whether an update is in progress."""

    @property
    def setup(self) -> Setup:
        """How the flow runs, for the bounds of updates."""

    def plan(self, new: Topology, strategy: Strategy, partial_windows: PartialWindow) -> UpdatePlan:
        """Compare the flow with another version of it."""

    def update(self, new: Topology, strategy: Strategy, partial_windows: PartialWindow) -> None:
        """Begin to update the flow."""

    def metrics(self) -> Metrics:
        """Return the metrics so far."""

    def switch(self, operator: str, alternate: str) -> None:
        """Switch to an alternate before the next batch."""

    def stop(self) -> None:
        """Stop after the current batches."""

    def scale(self, workers: int | Mapping[str, int]) -> None:
        """Begin to run on another number of workers."""


class Request(NamedTuple):
    """A request that flows answer: its function, and the names of its arguments, which are texts."""

    answer: Callable[..., Any]
    arguments: tuple[str, ...] = ()


def _topology(flow: Controlled) -> dict[str, Any]:
    return flow.topology.to_dict()


def metrics_of(flow: Controlled) -> dict[str, Any]:
    """Return the metrics of a flow and its process id as a mapping for JSON."""
    return flow.metrics().to_dict() | {"pid": os.getpid()}


def _switch(flow: Controlled, operator: str, alternate: str) -> None:
    flow.switch(operator, alternate)


def _stop(flow: Controlled) -> None:
    flow.stop()


def read_workers(text: str) -> int | dict[str, int]:
    """Return numbers of workers: of a flow, as ``4``, or of operators, as ``parse=2,score=4``.

    Parameters
    ----------
    text : str

    Returns
    -------
    int or dict

    Raises
    ------
    InputError
        The text is something else.
    """
    if re.fullmatch("[0-9]{1,9}", text):
        return int(text)
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        if not equals or not name or not re.fullmatch("[0-9]{1,9}", number) or name in found:
            raise InputError(f"workers = {text!r:.60}: give a number, or one for each operator, as parse=2,score=4")
        found[name] = int(number)
    return found


def _scale(flow: Controlled, workers: str) -> None:
    flow.scale(read_workers(workers))


def _loaded(flow: Controlled, file: str) -> Topology:
    if flow.load is None:
        raise InputError(f"flow {flow.topology.name}: runs in a Python program, which updates it by Run.update()")
    return flow.load(file)


def _plan(flow: Controlled, file: str, strategy: str, partial_windows: str) -> dict[str, Any]:
    new = _loaded(flow, file)
    return flow.plan(new, strategy_of(strategy), partial_window_of(partial_windows)).to_dict()


def _predict(flow: Controlled, file: str, partial_windows: str, require: str) -> dict[str, Any]:
    requirements = [requirement_of(one) for one in require.split(",") if one]
    return forecast_of(flow, _loaded(flow, file), partial_window_of(partial_windows)).to_dict(requirements)


def _update(flow: Controlled, file: str, strategy: str, partial_windows: str) -> None:
    flow.update(_loaded(flow, file), strategy_of(strategy), partial_window_of(partial_windows))


def _updates(flow: Controlled) -> dict[str, Any]:
    return {"updating": flow.updating, "reports": [report.to_dict() for report in flow.updates]}


REQUESTS = {
    "metrics": Request(metrics_of),
    "topology": Request(_topology),
    "switch": Request(_switch, ("operator", "alternate")),
    "stop": Request(_stop),
    "scale": Request(_scale, ("workers",)),
    "plan": Request(_plan, ("file", "strategy", "partial_windows")),
    "predict": Request(_predict, ("file", "partial_windows", "require")),
    "update": Request(_update, ("file", "strategy", "partial_windows")),
    "updates": Request(_updates),
}


def answer_to(flow: Controlled, line: bytes) -> bytes:
    """Return the answer to a request, as a line of JSON.

    Parameters
    ----------
    flow : Controlled
    line : bytes

    Returns
    -------
    bytes
    """
    try:
        given = json.loads(line)
        if not isinstance(given, dict):
            raise InputError("a request must be a JSON object")
        name = given.pop("request", None)
        if not isinstance(name, str) or name not in REQUESTS:
            raise InputError(f"unknown request {name!r:.60}; accepted are {', '.join(REQUESTS)}")
        request = REQUESTS[name]
        if set(given) != set(request.arguments) or not all(isinstance(value, str) for value in given.values()):
            raise InputError(f"request {name}: accepted are texts for {', '.join(request.arguments) or 'no fields'}")
        return _line(answer=request.answer(flow, **given))
    except GoffishError as error:
        return _line(error=str(error), code=error.exit_code)
    except (ValueError, RecursionError):
        return _line(error="a request must be one line of JSON", code=2)
    except Exception as error:  # a defect here must not end the thread
        return _line(error=f"{type(error).__name__}: {error}", code=1)


def _line(**body: Any) -> bytes:
    return json.dumps(body).encode() + b"\n"


@dataclass
class _Client:
    """A connection, what it has sent, and the answer that it has not taken yet."""

    connection: socket.socket
    input: bytearray = field(default_factory=bytearray)
    output: memoryview = field(default_factory=lambda: memoryview(b""))
    last: bool = False  # whether to close it after the answer
    answered: bool = False
    seen: float = field(default_factory=time.monotonic)


class Control:
    """The socket of a flow that runs, and the thread that serves it.

    Where it cannot listen, a warning says so, and the flow runs all the same.

    Parameters
    ----------
    flow : Controlled
    """

    def __init__(self, flow: Controlled) -> None:
        self._flow = flow
        self._clients: dict[socket.socket, _Client] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listener: socket.socket | None = None
        self._file = ""
        self._ended: bytes | None = None
        try:
            self._listen()
        except (GoffishError, OSError) as error:
            text = f"flow {flow.topology.name}: cannot be controlled by other processes ({error})"
            warnings.warn(text, GoffishWarning, stacklevel=2)
        self._thread = threading.Thread(target=self._serve, name="goffish control", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        flow = re.sub(r"[^A-Za-z0-9_.]", "_", self._flow.topology.name)[:40]
        with _folder() as folder:
            _sockets(folder)  # removes those of dead processes
            self._file = f"{flow}-{os.getpid()}-{next(_numbers)}.socket"
            listener = socket.socket(socket.AF_UNIX)
            try:
                listener.bind(f"/proc/self/fd/{folder}/{self._file}")  # longer paths than a socket may have
                listener.listen(_MOST_CLIENTS)
            except OSError:
                listener.close()
                raise
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._listener = listener

    def follow(self, flow: Controlled) -> None:
        """Answer requests by another object from now on, as the flow begins."""
        self._flow = flow

    def close(self, ended: str, error: str | None = None) -> None:
        """Send all clients how the flow ended, and close the socket.

        Parameters
        ----------
        ended : str
        error : str, optional
        """
        self._ended = _line(ended=ended) if error is None else _line(ended="failed", error=error)
        with contextlib.suppress(OSError):  # the thread has ended
            self._wake.send(b"\n")
        self._thread.join(_CLOSES_S)

    def _serve(self) -> None:
        sampled = 0.0
        try:
            while self._ended is None:
                for key, _ in self._selector.select(_TICK_S):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.data is not None:
                        self._handle(key.data)
                if (now := time.monotonic()) > sampled + 2 * _TICK_S:
                    sampled = now
                    with contextlib.suppress(RuntimeError):  # a counter appeared meanwhile
                        self._flow.metrics()  # takes a sample for the rates of the last seconds
        finally:
            self._end()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no file descriptor is free
            time.sleep(_TICK_S)
            return
        connection.setblocking(False)
        if len(self._clients) >= _MOST_CLIENTS:
            self._drop(min(self._clients.values(), key=lambda one: (one.answered, one.seen)))
        client = _Client(connection)
        self._clients[connection] = client
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _drop(self, client: _Client) -> None:
        del self._clients[client.connection]
        self._selector.unregister(client.connection)
        client.connection.close()

    def _handle(self, client: _Client) -> None:
        """Continue with a client: send the rest of an answer, or read, and answer one request."""
        if client.connection not in self._clients:
            return  # dropped since the selector returned
        client.seen = time.monotonic()
        try:
            if not client.output:
                data = client.connection.recv(_MOST_REQUEST)
                if not data:
                    self._drop(client)
                    return
                client.input += data
            self._answer(client)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(client)

    def _answer(self, client: _Client) -> None:
        while True:
            if client.output:
                client.output = client.output[client.connection.send(client.output) :]
            elif client.last:
                self._drop(client)
                return
            else:
                line, found, rest = client.input.partition(b"\n")
                if not found and len(line) < _MOST_REQUEST:
                    break
                client.input = rest
                client.last = len(line) >= _MOST_REQUEST
                too_long = _line(error=f"a request must have less than {_MOST_REQUEST:,} bytes", code=2)
                body = too_long if client.last else answer_to(self._flow, bytes(line))
                client.answered |= body.startswith(b'{"answer"')
                client.output = memoryview(body)
            wanted = selectors.EVENT_WRITE if client.output else selectors.EVENT_READ
            self._selector.modify(client.connection, wanted, client)

    def _end(self) -> None:
        """Send the last message to clients that have taken all others, and close everything."""
        if self._listener is not None:
            with contextlib.suppress(GoffishError, OSError), _folder() as folder:
                os.unlink(self._file, dir_fd=folder)
            self._listener.close()
        for client in list(self._clients.values()):
            with contextlib.suppress(OSError):
                if not client.output and self._ended is not None:
                    client.connection.send(self._ended)
            self._drop(client)
        self._selector.close()
        self._wake.close()
        self._woken.close()


@contextmanager
def _folder() -> Iterator[int]:
    """Open the folder of the sockets, which belongs to this user and no one else can enter.

    Raises
    ------
    InputError
        The folder belongs to another user, or others can enter it.
    """
    given = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    own = given.is_absolute() and given.is_dir() and given.stat().st_uid == os.getuid()  # it is another's after sudo
    path = given / "goffish" if own else Path(tempfile.gettempdir()) / f"goffish-{os.getuid()}"
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{path}: must be a folder of this user ({error.strerror})") from None
    try:
        status = os.fstat(folder)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise InputError(f"{path}: must belong to this user and have mode 700; remove it or change its mode")
        yield folder
    finally:
        os.close(folder)


def _sockets(folder: int) -> list[tuple[str, int]]:
    """Return names and process ids of the sockets in the folder; remove those of processes that have ended."""
    found = []
    for name in sorted(os.listdir(folder)):
        parts = _NAME.fullmatch(name)
        if parts is None:
            continue
        pid = int(parts["pid"])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            with contextlib.suppress(OSError):
                # One in use is of a process that this one cannot see, as in a container with the same folder.
                if not _listens(folder, name):
                    os.unlink(name, dir_fd=folder)
            continue
        except (OSError, OverflowError):
            continue
        found.append((name, pid))
    return found


def _listens(folder: int, name: str) -> bool:
    try:
        _connect(folder, name).close()
    except ConnectionRefusedError:
        return False
    return True


def _connect(folder: int, name: str) -> socket.socket:
    """Connect to a socket in the folder; wait until the flow accepts, but for a bounded time."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        # With a timeout of Python, connections beyond the backlog fail at once.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_ANSWERS_S), 0))
        connection.connect(f"/proc/self/fd/{folder}/{name}")
    except OSError:
        connection.close()
        raise
    return connection


class Connection:
    """A connection to a flow that runs on this machine.

    Attributes
    ----------
    flow : str
        Name of the flow.
    pid : int
        Process that runs it.
    ended : dict or None
        How the flow ended.
    """

    def __init__(self, connection: socket.socket, flow: str, pid: int) -> None:
        self._connection, self.flow, self.pid = connection, flow, pid
        self._input = b""
        #: Seconds to wait for an answer.
        self.answers_s = _ANSWERS_S
        self.ended: dict[str, Any] | None = None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(self, request: str, **arguments: str) -> Any:
        """Return the answer of the flow, or ``None`` if it has ended.

        Parameters
        ----------
        request : str
        **arguments : str

        Raises
        ------
        InputError
            The request is not accepted.
        JobError
            The flow does not answer.
        """
        self._connection.settimeout(self.answers_s)
        try:
            self._connection.sendall(json.dumps({"request": request, **arguments}).encode() + b"\n")
        except TimeoutError:
            raise self._silent from None
        except OSError:
            pass  # it has ended, but its last message may be there
        body = self._receive()
        if body is None or "ended" in body:
            self.ended = body or {"ended": "failed", "error": "the process ended without a message"}
            return None
        if "error" in body:
            raise (InputError if body.get("code") == 2 else JobError)(body["error"])
        return body["answer"]

    def wait(self, seconds: float) -> bool:
        """Wait until the flow ends, but at most some seconds; return whether it has.

        Parameters
        ----------
        seconds : float

        Returns
        -------
        bool
        """
        self._connection.settimeout(seconds)
        try:
            while self.ended is None:
                body = self._receive()
                self.ended = body or {"ended": "failed", "error": "the process ended without a message"}
        except _Silent:
            return False
        return True

    @property
    def _silent(self) -> JobError:
        return _Silent(f"{self.flow}: process {self.pid} does not answer")

    def _receive(self) -> dict[str, Any] | None:
        """Return the next message; ``None`` if there is no more."""
        while b"\n" not in self._input:
            try:
                data = self._connection.recv(1 << 16)
            except TimeoutError:
                raise self._silent from None
            except OSError:
                data = b""
            if not data or len(self._input) > _MOST_ANSWER:
                return None
            self._input += data
        line, _, self._input = self._input.partition(b"\n")
        body: dict[str, Any] = json.loads(line)
        return body


class _Silent(JobError):
    """A flow does not answer."""


def running() -> list[Connection]:
    """Connect to all flows of this user that run on this machine.

    Returns
    -------
    list of Connection
        A flow that does not answer has the name of its socket.
    """
    connections = []
    with _folder() as folder:
        for name, pid in _sockets(folder):
            with contextlib.suppress(OSError):  # it has just ended, or is not there yet
                connections.append(Connection(_connect(folder, name), name.rsplit("-", 2)[0], pid))
    found = []
    for one in connections:
        with contextlib.suppress(JobError):
            topology = one.ask("topology")
            if topology is None:
                one.close()
                continue
            one.flow = topology["flow"]
        found.append(one)
    return found


def of_process(pid: int) -> Connection | None:
    """Connect to the flow of a process of this user, if it runs one.

    Parameters
    ----------
    pid : int

    Returns
    -------
    Connection or None
    """
    with _folder() as folder:
        for name, found in _sockets(folder):
            if found == pid:
                with contextlib.suppress(OSError):  # it has just ended, or is not there yet
                    return Connection(_connect(folder, name), name.rsplit("-", 2)[0], pid)
    return None


def find(name: str) -> Connection:
    """Connect to the flow of a name or process id.

    Parameters
    ----------
    name : str

    Returns
    -------
    Connection

    Raises
    ------
    InputError
        No flow or several flows match; lists those that run.
    """
    connections = running()
    matching = [one for one in connections if name in (one.flow, str(one.pid))]
    for one in connections:
        if len(matching) != 1 or one is not matching[0]:
            one.close()
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(f"{one.flow} ({one.pid})" for one in matching or connections) or "none"
    if matching:
        raise InputError(f"flow {name}: {len(matching)} flows match; give the process id of one: {listed}")
    raise InputError(f"flow {name}: does not run; running flows: {listed}")

"""Worker of a machine of a team: ``python -m goffish.services.runners.member URI NAME``.

It registers in the folder of the job in storage, waits for the server to write a team with its name, and runs the MPI
rank of its machine. When the team ends because another machine was lost, it waits for the next team. SIGTERM is the
notice that this machine will be taken back: the ranks of all machines end with a checkpoint, and this machine leaves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from goffish.errors import GoffishError, JobError, StoreError
from goffish.gopher.shared import SHARED_VARIABLE
from goffish.partial import is_uri
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.mirror import Mirror
from goffish.services.runners.processes import bound, launcher
from goffish.services.runners.rank import FOLDER_VARIABLE
from goffish.services.runners.team import SHARED, Launch, Team, ranks_command
from goffish.services.runners.worker import NO_STORAGE, NOT_NOW, NOTICED

#: Seconds between two looks at what is new, in storage or on this host, and at what the server asks for.
_LOOK_S, _LOCAL_LOOK_S, _WISHES_S = 1.0, 0.2, 3.0
#: Seconds to wait for the lease of a machine that is gone, for storage, and for the other machines of a team.
_LEASE_S, _PATIENCE_S, _JOIN_S = 30.0, 60.0, 120.0
#: Seconds without a team after which a machine ends, as no server needs it.
_IDLE_S = 1800.0
_RANK = "goffish.services.runners.rank"
_ADVICE = "several machines need MPICH: pip install 'goffish[mpi]'"
#: Last line of ``mpiexec -launcher manual`` before it waits for proxies, and the beginning of those before.
_READY, _PROXY = "HYDRA_LAUNCH_END", "HYDRA_LAUNCH:"


class _Superseded(Exception):
    """The server has opened another turn."""


class Member:
    """A machine of a job, which runs one rank of each of its teams.

    Parameters
    ----------
    mirror : Mirror
    name : str
        Of the machine.
    noticed : Event
        Set when the machine will be taken back.
    """

    def __init__(self, mirror: Mirror, name: str, noticed: threading.Event) -> None:
        self._mirror, self._name, self._noticed = mirror, name, noticed
        self._look_s = _LOOK_S if is_uri(mirror.place) else _LOCAL_LOOK_S

    def run(self) -> int:
        """Take part in teams until the job ends, and return the exit code of this machine."""
        mirror, ran = self._mirror, ""
        mirror.say(self._name)
        answered = idle = time.monotonic()
        while not self._noticed.is_set():
            try:
                if mirror.is_done():
                    return 0
                team = Team.read(mirror.store)
                answered = time.monotonic()
                if team is not None and team.turn != ran and self._name in team.machines:
                    ran = team.turn
                    self._take_part(team)
                    idle = time.monotonic()
                    continue
            except StoreError:
                if time.monotonic() - answered > _PATIENCE_S:
                    raise
            if time.monotonic() - idle > _IDLE_S:
                return NOT_NOW
            self._noticed.wait(self._look_s)
        mirror.say(self._name, code=NOTICED)
        return NOTICED

    def _take_part(self, team: Team) -> None:
        """Run the rank of this machine until the team ends, or the server opens another turn."""
        mirror, rank = self._mirror, team.machines.index(self._name)
        mirror.fetch_all(checkpoints=False)
        if mirror.folder.turn != team.turn:
            return
        with suppress(_Superseded), ExitStack() as held:
            if rank:
                self._watch(team, held, self._join(team))
                return
            held.enter_context(mirror.store.locked(_LEASE_S))
            mirror.say(team.turn)
            code = self._watch(team, held, self._lead(team, held), leads=True)
            mirror.write_news()
            mirror.write_result()
            mirror.say(team.turn, code=code)

    def _lead(self, team: Team, held: ExitStack) -> tuple[subprocess.Popen[bytes], Launch]:
        """Start what waits for the proxies of all machines, and write where."""
        folder = self._mirror.folder
        said = folder.path / "launch.txt"
        command = ranks_command(
            launcher("mpiexec", _ADVICE), len(team.machines), [sys.executable, "-m", _RANK, team.turn]
        )
        with said.open("wb") as out:
            process = self._start(command, out.fileno(), held)
        until = time.monotonic() + _JOIN_S
        while _READY not in (lines := said.read_text(errors="replace").splitlines()):
            if process.poll() is not None or time.monotonic() > until:
                raise JobError(f"mpiexec does not wait for proxies ({_ADVICE}): {folder.log_end(1000).strip()}")
            time.sleep(0.02)
        launch = Launch.of(next(line for line in lines if line.startswith(_PROXY)).removeprefix(_PROXY))
        launch.write(self._mirror.store, team.turn)
        return process, launch

    def _join(self, team: Team) -> tuple[None, Launch]:
        """Wait until the first machine has written where it waits for proxies."""
        until = time.monotonic() + _JOIN_S
        while (launch := Launch.read(self._mirror.store, team.turn)) is None:
            if time.monotonic() > until or self._noticed.is_set() or not self._mirror.is_current(team.turn):
                raise _Superseded
            time.sleep(self._look_s)
        return None, launch

    def _watch(
        self,
        team: Team,
        held: ExitStack,
        started: tuple[subprocess.Popen[bytes] | None, Launch],
        *,
        leads: bool = False,
    ) -> int:
        """Run the proxy of this machine until the ranks end; return the exit code of all, or of this one."""
        mpiexec, launch = started
        program = launcher("hydra_pmi_proxy", _ADVICE)
        command = launch.proxy(program, team.address, team.machines.index(self._name))
        with self._mirror.folder.log.open("ab") as log:
            proxy = self._start(command, log.fileno(), held, self._environment(team))
        watched, passed_on = mpiexec or proxy, False
        written, next_wishes = time.monotonic(), time.monotonic() + _WISHES_S
        while (code := _ended(watched, self._look_s)) is None:
            if self._noticed.is_set() and not passed_on:
                passed_on = True
                _notify(proxy)
            try:
                if time.monotonic() >= next_wishes:
                    next_wishes = time.monotonic() + _WISHES_S
                    if not self._mirror.is_current(team.turn):
                        raise _Superseded
                    self._mirror.fetch_wishes()
                if leads:
                    self._mirror.write_news()
                written = time.monotonic()
            except StoreError:
                if time.monotonic() - written > _PATIENCE_S:
                    raise
        return code

    def _environment(self, team: Team) -> dict[str, str]:
        """Return the environment of the rank of this machine."""
        mirror = self._mirror
        return {
            **os.environ, FOLDER_VARIABLE: str(mirror.folder.path), SHARED_VARIABLE: f"{mirror.place}/{SHARED}",
            **_network(team.address),
        }  # fmt: skip

    def _start(
        self, command: list[str], out: int, held: ExitStack, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that ends with this one, and at the latest with the team."""
        with self._mirror.folder.log.open("ab") as log:
            process = subprocess.Popen(
                bound(command), stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                env=environment,
            )  # fmt: skip
        held.callback(process.wait)
        held.callback(process.kill)
        return process


def _network(address: str) -> dict[str, str]:
    """Return the variables that keep MPI on this host, where all machines are."""
    return {"UCX_NET_DEVICES": "lo"} if address in ("127.0.0.1", "::1") else {}


def _notify(proxy: subprocess.Popen[bytes]) -> None:
    """Pass the notice on to the rank of a proxy."""
    with suppress(psutil.Error):
        for one in psutil.Process(proxy.pid).children():
            one.send_signal(signal.SIGUSR1)


def _ended(process: subprocess.Popen[bytes], wait_s: float) -> int | None:
    try:
        return process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None


def main() -> None:
    """Run a machine of a job."""
    place, name = sys.argv[1:3]
    noticed = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: noticed.set())
    with tempfile.TemporaryDirectory(prefix="goffish-job-") as home:
        mirror = Mirror(JobFolder(Path(home)), place)
        try:
            code = Member(mirror, name, noticed).run()
        except GoffishError as error:
            sys.stderr.write(f"error: {error}\n")
            code = NO_STORAGE if isinstance(error, StoreError) else error.exit_code
            with suppress(StoreError):
                mirror.say(name, code=code, error=str(error)[:1000])
    sys.exit(code)


if __name__ == "__main__":
    main()

"""What runs on a rented machine: the script that installs the worker, and the supervisor of one command.

The script ends with the machine's power: when the command ends, when the installation fails, and at the maximum
lifetime, which is scheduled before anything else. The supervisor (``python -m goffish.cloud.providers.boot``) polls the
metadata service of the machine (IMDSv2) for interruption notices.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import math
import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from types import FrameType

from goffish.environment import child_environment, looks_secret
from goffish.errors import InputError

#: Maximum size of user data, in bytes (EC2).
MOST_USER_DATA = 16_384
#: Variable with the file that appears when the provider announces an interruption or recommends to move the work.
NOTICE_VARIABLE = "GOFFISH_NOTICE"
#: Unprivileged user of the command, which the script creates.
USER = "goffish"
_ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_ENDPOINT = "http://169.254.169.254"
_TOKEN_S, _TIMEOUT_S = 21_600, 2.0
#: Seconds between SIGTERM and SIGKILL at the end of the lifetime, and before an announced interruption.
_GRACE_S, _MARGIN_S = 60.0, 3.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_FETCH = """import sys, boto3
bucket, key, file = sys.argv[1:]
boto3.client("s3").download_file(bucket, key, file)"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The command of a machine.

    Attributes
    ----------
    command : sequence of str
    environment : mapping of str to str
    lifetime_s : float
        After which the command is stopped and the machine powers off.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    lifetime_s: float

    def packed(self) -> str:
        """Return the job as text of letters, digits, ``+``, ``/`` and ``=``.

        Raises
        ------
        InputError
            A text cannot be passed to a process, or the name of a variable looks like that of a secret.
        """
        if not self.command or not self.command[0]:
            raise InputError("command: is empty; give a program and its arguments")
        for name in self.environment:
            if not _NAME.fullmatch(name):
                raise InputError(f"environment: {name!r} is not the name of a variable; use letters, digits and _")
            if looks_secret(name):
                raise InputError(
                    f"environment: {name} looks like a secret, which user data must not have; use the instance profile"
                )
        body = {"command": list(self.command), "environment": dict(self.environment), "lifetime_s": self.lifetime_s}
        for text in (*self.command, *self.environment.values()):
            if "\0" in text:
                raise InputError(f"command and environment: {text[:40]!r} contains a null character")
        try:
            raw = json.dumps(body, sort_keys=True, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"command and environment: not valid Unicode ({error.reason})") from None
        return base64.b64encode(zlib.compress(raw, 9)).decode()

    @classmethod
    def unpacked(cls, text: str) -> Job:
        """Return the job of a text from `packed`."""
        return cls(**json.loads(zlib.decompress(base64.b64decode(text))))


def user_data(
    job: Job, *, python: str, wheel: str | None, setup: Sequence[str] = (), extras: Sequence[str] = ()
) -> str:  # fmt: skip
    """Return the script that a machine runs when it starts.

    Parameters
    ----------
    job : Job
    python : str
        Interpreter: of the image if it contains GoFFish, else the one for which the wheel is installed.
    wheel : str, optional
        ``s3://`` or ``https://`` URI of a wheel; default: the image contains GoFFish.
    setup : sequence of str
        Shell commands to run first.
    extras : sequence of str
        Extras of the wheel, beside ``aws``.

    Returns
    -------
    str

    Raises
    ------
    InputError
        The script exceeds 16 KiB, or the job cannot be passed to a process.
    """
    minutes = max(1, math.ceil(job.lifetime_s / 60.0))
    lines = [
        "#!/bin/sh",
        "# GoFFish: install the worker, run one command, power off.",
        f"shutdown -P +{minutes}",
        "began=$(cut -d. -f1 /proc/uptime)",
        "trap 'echo \"goffish: exit code $?, powering off\"; shutdown -P now' EXIT",
        "trap 'exit 143' TERM INT HUP",
        "set -eu",
        "export HOME=/root PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore",
        f"id {USER} >/dev/null 2>&1 || useradd --system --create-home {USER}",
        *setup,
        f"python={shlex.quote(python)}",
    ]
    if wheel is not None:
        file = f'"$work"/{shlex.quote(PurePosixPath(wheel).name)}'
        lines += ['"$python" -m venv /opt/goffish', "python=/opt/goffish/bin/python", "work=$(mktemp -d)"]
        if wheel.startswith("s3://"):
            bucket, _, key = wheel.removeprefix("s3://").partition("/")
            lines += [
                '"$python" -m pip install --quiet boto3',
                f'"$python" -c {shlex.quote(_FETCH)} {shlex.quote(bucket)} {shlex.quote(key)} {file}',
            ]
        else:
            lines.append(
                f"\"$python\" -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' "
                f"{shlex.quote(wheel)} {file}"
            )
        lines.append(f'"$python" -m pip install --quiet {file}"[{",".join(("aws", *extras))}]"')
    lines.append(f'"$python" -m goffish.cloud.providers.boot \'{job.packed()}\' "$began"')
    script = "\n".join(lines) + "\n"
    if len(script.encode()) > MOST_USER_DATA:
        raise InputError(
            f"command and environment: {len(script.encode()):,} bytes of user data, at most {MOST_USER_DATA:,} are "
            "accepted; pass large values by a file in object storage"
        )
    return script


class Metadata:
    """Client of the metadata service of a machine, version 2.

    Parameters
    ----------
    endpoint : str
        Address of the service.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint, self._token = endpoint.rstrip("/"), ""
        # The service is never behind a proxy.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str) -> str | None:
        """Return a document, or ``None`` if there is none.

        Raises
        ------
        OSError
            The service does not answer.
        """
        for _ in range(2):
            if not self._token:
                headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
                self._token = self._ask("PUT", "/latest/api/token", headers)
            try:
                return self._ask("GET", f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._token})
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                if error.code != 401:
                    raise
                self._token = ""  # expired
        raise OSError("the token of the metadata service is not accepted")

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(f"{self._endpoint}{path}", method=method, headers=headers)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                return str(answer.read().decode())
        except http.client.HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from None


def _with_interpreter(command: Sequence[str]) -> list[str]:
    """Return a command whose program ``python`` is the interpreter that has GoFFish."""
    return [sys.executable if command[0] == "python" else command[0], *command[1:]]


class Supervisor:
    """Runs a command, and stops it before its machine is taken back.

    Parameters
    ----------
    job : Job
    metadata : Metadata
    folder : path
        Working folder of the command.
    poll_s : float
        Interval between two questions to the metadata service.
    """

    def __init__(self, job: Job, metadata: Metadata, folder: str | Path, poll_s: float = 5.0) -> None:
        self._job, self._metadata, self._folder, self._poll_s = job, metadata, Path(folder), poll_s
        self._process: subprocess.Popen[bytes] | None = None
        self._kill_at = math.inf  # on the monotonic clock
        self._noticed: set[str] = set()
        self._stopped = self._reachable = False

    def run(self) -> int:
        """Run the command to its end, and return its exit code, as shells do: 128 and the number of a signal.

        Raises
        ------
        InputError
            The command cannot be started.
        """
        notice = self._folder / "notice.json"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # for goffish itself
        environment = (
            child_environment() | {"PATH": path} | dict(self._job.environment) | {NOTICE_VARIABLE: str(notice)}
        )
        user: dict[str, object] = {}
        if os.geteuid() == 0:
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(USER)
                user = {"user": USER, "group": entry.pw_gid, "extra_groups": []}
                environment |= {"HOME": entry.pw_dir, "USER": USER, "LOGNAME": USER}
                os.chown(self._folder, entry.pw_uid, entry.pw_gid)
        ends = time.monotonic() + max(0.0, self._job.lifetime_s - _GRACE_S)
        try:
            self._process = subprocess.Popen(
                _with_interpreter(self._job.command), env=environment, cwd=self._folder, stdin=subprocess.DEVNULL,
                start_new_session=True, **user,  # type: ignore[call-overload]
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise InputError(f"command: {self._job.command[0]!r} cannot be started ({error})") from None
        code = self._wait(0.0)
        while code is None:
            now = time.monotonic()
            if now >= ends:
                self._stop("the maximum lifetime has passed", _GRACE_S)
            if now >= self._kill_at:
                _log("killing the command")
                self._signal_group(signal.SIGKILL)
            self._look(notice)
            code = self._wait(max(0.05, min(self._poll_s, ends - now if ends > now else 1.0, self._kill_at - now)))
        self._signal_group(signal.SIGKILL)  # what the command has left behind
        return code if code >= 0 else 128 - code

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM: the machine shuts down."""
        self._stop("the machine shuts down", _GRACE_S)

    def _wait(self, seconds: float) -> int | None:
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _look(self, notice: Path) -> None:
        """Ask the metadata service for notices, and act on a new one."""
        try:
            action = self._metadata.get("spot/instance-action")
            advice = self._metadata.get("events/recommendations/rebalance")
            self._reachable = True
        except OSError as error:
            if self._reachable or not self._noticed:
                _log(f"the metadata service does not answer ({error})")
                self._noticed.add("unreachable")
            self._reachable = False
            return
        for text, kind, field in ((advice, "rebalance", "noticeTime"), (action, "interruption", "time")):
            # An interruption is the last word: a recommendation, whose time may change, does not replace it.
            known = {kind, "interruption"} if kind == "rebalance" else {text}
            if text is None or self._noticed & known:
                continue
            self._noticed |= {text, kind}
            try:
                body = json.loads(text)
                at = datetime.fromisoformat(body[field]).astimezone(UTC)
            except (ValueError, KeyError, TypeError):
                _log(f"unexpected notice: {text[:200]}")
                body, at = {}, datetime.now(UTC)
            _log(f"notice: {kind} {body.get('action', '')} at {at.isoformat()}")
            _write(notice, {"kind": kind, "action": body.get("action", ""), "time": at.isoformat()})
            if kind == "interruption":
                self._stop("the machine will be taken back", max(0.0, at.timestamp() - time.time() - _MARGIN_S))

    def _stop(self, why: str, grace_s: float) -> None:
        """Send SIGTERM to the command, and SIGKILL to all its processes when the grace has passed."""
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s)
        if not self._stopped and self._process is not None:
            self._stopped = True
            _log(f"stopping the command: {why}; {grace_s:.0f} s left")
            self._process.send_signal(signal.SIGTERM)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


def _write(path: Path, body: Mapping[str, str]) -> None:
    """Write a file at once; the command never sees a part of it."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(body))
    partial.chmod(0o644)
    partial.replace(path)


def _log(text: str) -> None:
    sys.stderr.write(f"goffish: {text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """Run the job of a machine.

    Parameters
    ----------
    arguments : sequence of str
        The packed job, and the uptime of the machine when its script began, in seconds.

    Returns
    -------
    int
        Exit code of the command; 2 if it cannot be started.
    """
    packed, began = arguments
    job = Job.unpacked(packed)
    job = replace(job, lifetime_s=job.lifetime_s - (time.clock_gettime(time.CLOCK_BOOTTIME) - float(began)))
    with tempfile.TemporaryDirectory(prefix="goffish-", ignore_cleanup_errors=True) as folder:
        metadata = Metadata(os.environ.get(_ENDPOINT_VARIABLE) or _ENDPOINT)
        supervisor = Supervisor(job, metadata, folder)
        signal.signal(signal.SIGTERM, supervisor.terminate)
        try:
            return supervisor.run()
        except InputError as error:
            _log(f"error: {error}")
            return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

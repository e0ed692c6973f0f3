"""What runs on a rented machine: its script under a real shell, and the supervisor of its command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from goffish.cloud.providers.boot import MOST_USER_DATA, Job, Metadata, Supervisor, user_data
from goffish.errors import InputError
from tests.metadata import MetadataServer

ODD = ["a b", "it's", '"$HOME"', "`id`", "$(id)", "line\nline", "ünï → 日本", "\\", "!", "-n", ""]


@pytest.fixture
def service() -> Iterator[MetadataServer]:
    server = MetadataServer()
    yield server
    server.close()


def job(*command: str, lifetime_s: float = 3600.0, **environment: str) -> Job:
    return Job(command=command, environment=environment, lifetime_s=lifetime_s)


def supervised(service: MetadataServer, tmp_path: Path, one: Job) -> int:
    return Supervisor(one, Metadata(service.address), tmp_path, poll_s=0.05).run()


def test_jobs_are_packed_without_loss() -> None:
    one = job("echo", *ODD, A_B="it's\n日本")
    assert Job.unpacked(one.packed()) == Job(
        command=["echo", *ODD], environment={"A_B": "it's\n日本"}, lifetime_s=3600.0
    )
    assert one.packed() == job("echo", *ODD, A_B="it's\n日本").packed()  # repeated requests are equal


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (job(), "command: is empty"),
        (job(""), "command: is empty"),
        (job("a\0b"), "contains a null character"),
        (job("\ud800"), "not valid Unicode"),
        (Job(command=["a"], environment={"A B": "1"}, lifetime_s=1), "'A B' is not the name of a variable"),
        (job("a", AWS_SECRET_ACCESS_KEY="x"), "AWS_SECRET_ACCESS_KEY looks like a secret"),
        (job("a", DB_PASSWORD="x"), "DB_PASSWORD looks like a secret"),
        (job("a", A=os.urandom(13_000).hex()), f"at most {MOST_USER_DATA:,} are accepted"),
    ],
)
def test_jobs_that_cannot_be_passed(one: Job, message: str) -> None:
    with pytest.raises(InputError, match=message):
        user_data(one, python="python3", wheel=None)


def test_large_texts_that_compress_are_accepted() -> None:
    assert len(user_data(job("a", A="x" * 100_000), python="python3", wheel=None)) < 2000


def stub(folder: Path, name: str, text: str = "exit 0") -> None:
    (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >> "{folder}/calls"\n{text}\n')
    (folder / name).chmod(0o755)


def booted(folder: Path, script: str, service: MetadataServer) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the script of a machine with a power switch that is recorded."""
    for name in ("shutdown", "useradd", "id"):
        stub(folder, name)
    (folder / "script").write_text(script)
    environment = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}", "AWS_EC2_METADATA_SERVICE_ENDPOINT": service.address,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    ended = subprocess.run(
        ["/bin/sh", "script"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return ended, (folder / "calls").read_text().splitlines()


@pytest.mark.slow
def test_script_of_an_image(service: MetadataServer, tmp_path: Path) -> None:
    """Breaks when the shell sees a part of the command, or the machine stays on."""
    show = "import os, sys; print(repr(sys.argv[1:]), os.environ['A'])"
    one = job(sys.executable, "-c", show, *ODD, A="it's\n'$(reboot)", lifetime_s=90.0)
    script = user_data(one, python=sys.executable, wheel=None, setup=["setup=done"])
    assert script.startswith("#!/bin/sh\n") and script.isascii()
    ended, calls = booted(tmp_path, script, service)
    assert f"{ODD!r} it's\n'$(reboot)" in ended.stdout
    assert ended.returncode == 0
    assert calls[0] == "shutdown -P +2" and calls[-1] == "shutdown -P now"


@pytest.mark.parametrize("setup", ["false", "exit 7"])
def test_machines_power_off_when_the_installation_fails(service: MetadataServer, tmp_path: Path, setup: str) -> None:
    script = user_data(job("touch", str(tmp_path / "ran")), python=sys.executable, wheel=None, setup=[setup])
    ended, calls = booted(tmp_path, script, service)
    assert ended.returncode in (1, 7)
    assert calls[-1] == "shutdown -P now"
    assert not (tmp_path / "ran").exists()


def test_wheels_are_installed_from_object_storage(service: MetadataServer, tmp_path: Path) -> None:
    """The interpreter is a stub that records its calls: the test has no package index."""
    stub(tmp_path, "python3.12", f"mkdir -p {tmp_path}/made; exit 9")
    script = user_data(job("true"), python="python3.12", wheel="s3://lake/w'heels/goffish-1-py3-none-any.whl")
    ended, calls = booted(tmp_path, script, service)
    assert "python3.12 -m venv /opt/goffish" in calls
    assert ended.returncode == 9  # and nothing after the step that failed
    assert "lake 'w'\"'\"'heels/goffish-1-py3-none-any.whl'" in script
    assert subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=False).returncode == 0


def test_commands_find_the_programs_of_the_installation(service: MetadataServer, tmp_path: Path) -> None:
    assert supervised(service, tmp_path, job("python", "-c", f"import sys; assert sys.prefix == {sys.prefix!r}")) == 0


def test_exit_codes(service: MetadataServer, tmp_path: Path) -> None:
    assert supervised(service, tmp_path, job("/bin/sh", "-c", "exit 3")) == 3
    assert supervised(service, tmp_path, job("/bin/sh", "-c", "kill -9 $$")) == 128 + signal.SIGKILL
    with pytest.raises(InputError, match="'no such program' cannot be started"):
        supervised(service, tmp_path, job("no such program"))


WAITS = "import json, os, signal, sys, time\n{}\nopen('ready', 'w')\ntime.sleep(60)"
SAVES = WAITS.format(
    "def end(*_):\n    print(open(os.environ['GOFFISH_NOTICE']).read(), file=open('saved', 'w'))\n    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, end)"
)


def when_ready(tmp_path: Path, what: object) -> None:
    def act() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        what()  # type: ignore[operator]

    threading.Thread(target=act, daemon=True).start()


def test_commands_get_sigterm_at_a_notice(service: MetadataServer, tmp_path: Path) -> None:
    when_ready(tmp_path, service.interrupt)
    assert supervised(service, tmp_path, job(sys.executable, "-c", SAVES)) == 0
    assert '"kind": "interruption", "action": "terminate"' in (tmp_path / "saved").read_text()


def test_tokens_of_the_metadata_service_are_renewed(service: MetadataServer, tmp_path: Path) -> None:
    def expire() -> None:
        service.tokens.clear()
        service.interrupt()

    when_ready(tmp_path, expire)
    assert supervised(service, tmp_path, job(sys.executable, "-c", SAVES)) == 0
    assert service.refused >= 1


def test_recommendations_do_not_stop_commands(service: MetadataServer, tmp_path: Path) -> None:
    service.rebalance()
    seen = "import os, time\nwhile not os.path.exists(os.environ['GOFFISH_NOTICE']): time.sleep(0.01)"
    assert supervised(service, tmp_path, job(sys.executable, "-c", seen)) == 0
    assert '"kind": "rebalance"' in (tmp_path / "notice.json").read_text()


def test_recommendations_do_not_replace_interruptions(service: MetadataServer, tmp_path: Path) -> None:
    def both() -> None:
        service.interrupt()
        time.sleep(0.15)
        service.rebalance()

    when_ready(tmp_path, both)
    again = SAVES.replace("sys.exit(0)", "time.sleep(0.6); saved = open(os.environ['GOFFISH_NOTICE']).read(); "
                          "open('saved', 'w').write(saved); sys.exit(0)")  # fmt: skip
    assert supervised(service, tmp_path, job(sys.executable, "-c", again)) == 0
    assert '"kind": "interruption"' in (tmp_path / "saved").read_text()


def test_commands_that_ignore_sigterm_are_killed_before_the_machine_ends(
    service: MetadataServer, tmp_path: Path
) -> None:
    ignores = WAITS.format("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    when_ready(tmp_path, lambda: service.interrupt(4.5))
    began = time.time()
    assert supervised(service, tmp_path, job(sys.executable, "-c", ignores)) == 128 + signal.SIGKILL
    assert time.time() - began < 30


def test_lifetime(service: MetadataServer, tmp_path: Path) -> None:
    """A command gets SIGTERM a minute before its machine powers off, here at once."""
    assert supervised(service, tmp_path, job("sleep", "60", lifetime_s=60.2)) == 128 + signal.SIGTERM


def test_processes_that_a_command_left_behind_end_with_it(service: MetadataServer, tmp_path: Path) -> None:
    assert supervised(service, tmp_path, job("/bin/sh", "-c", "sleep 60 & echo $! > child")) == 0
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    for _ in range(200):
        if not state.exists() or state.read_text().split(") ")[1][0] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("the process still runs")


def test_machines_without_a_metadata_service(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    silent = Metadata("http://127.0.0.1:9")
    assert Supervisor(job("sleep", "0.3"), silent, tmp_path, poll_s=0.05).run() == 0
    assert capfd.readouterr().err.count("the metadata service does not answer") == 1

"""Workers are copies of a process that has imported what they need, and do as new processes do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from goffish.streaming.runtime.launch import Handle, start_here
from tests.streaming.runtime.hosts import children, workers_of

Start = Callable[..., Handle]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("modules")


@pytest.fixture
def start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a function with arguments, in a copy of the template of this module."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))

    def started(text: str, *arguments: str) -> Handle:
        name = f"worker_{abs(hash(text))}"
        (folder / f"{name}.py").write_text("def main():\n" + textwrap.indent(textwrap.dedent(text), "    "))
        return start_here(0, [sys.executable, "-m", name, *arguments])

    return started


def template_of(copy: Handle) -> int:
    """Return the process of a template of which a worker is a copy."""
    while not copy.pid:
        assert copy.poll() is None
        time.sleep(0.01)
    return next(one for one in children(os.getpid()) if copy.pid in children(one))


def test_copies_end_with_the_codes_of_their_functions(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    codes = {"pass": 0, "raise SystemExit(3)": 3, "import os; os._exit(4)": 4, "import os; os.abort()": -signal.SIGABRT}
    copies = {text: start(text) for text in codes}
    assert {text: copy.wait(60) for text, copy in copies.items()} == codes
    assert capfd.readouterr().err == ""
    assert start("raise ValueError('no such user')").wait(60) == 1
    assert capfd.readouterr().err.endswith("ValueError: no such user\n")


def test_copies_have_arguments_outputs_and_the_environment_of_the_moment(
    start: Start, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os, sys; print(sys.argv[1:], *map(os.getenv, ('HUE', 'NUMBA_HUE'))); sys.stdin.read()"
    copies = [start("import time; time.sleep(0.2)\n" + text, "1", "two words")]
    template = template_of(copies[0])
    assert copies[0].wait(60) == 0
    assert capfd.readouterr().out == "['1', 'two words'] None None\n"
    monkeypatch.setenv("HUE", "blue")
    copies.append(start("import time; time.sleep(0.2)\n" + text))
    assert template_of(copies[1]) == template
    assert copies[1].wait(60) == 0
    assert capfd.readouterr().out == "[] blue None\n"
    monkeypatch.delenv("HUE")
    monkeypatch.setenv("NUMBA_HUE", "red")  # read at import
    copies.append(start(text))
    assert copies[2].wait(60) == 0
    assert capfd.readouterr().out == "[] None red\n"


def test_a_large_environment(start: Start, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that a request cannot hold starts another template."""
    assert start("pass").wait(60) == 0
    monkeypatch.setenv("HUE", "x" * 100_000)
    assert start("import os; print(len(os.environ['HUE']))").wait(60) == 0
    assert capfd.readouterr().out == "100000\n"


@pytest.mark.slow
def test_copies_draw_different_numbers(start: Start, tmp_path: Path) -> None:
    text = f"""
        import random, sys, numpy as np
        with open({str(tmp_path)!r} + "/" + sys.argv[1], "w") as file:
            print(random.random(), np.random.random(), file=file)
    """
    copies = [start(text, str(number)) for number in range(3)]
    assert [copy.wait(60) for copy in copies] == [0, 0, 0]
    drawn = [value for number in range(3) for value in (tmp_path / str(number)).read_text().split()]
    assert len(set(drawn)) == 6


def test_copies_use_the_threads_of_libraries(start: Start) -> None:
    text = """
        import numpy as np, pyarrow as pa, pyarrow.compute as pc
        import goffish as gf
        square = np.ones((300, 300)) @ np.ones((300, 300))
        assert square.sum() == 300**3
        table = pa.table({"k": np.arange(100_000) % 7, "v": np.ones(100_000)}).group_by("k").aggregate([("v", "sum")])
        assert pc.sum(table["v_sum"]).as_py() == 100_000
        graph = gf.generators.grid(60, 60)
        assert len(gf.pagerank(graph, threads=2).to_dict()) == 3600
    """
    copies = [start(text) for _ in range(2)]
    assert [copy.wait(60) for copy in copies] == [0, 0]


def test_killed_copies_and_templates(start: Start) -> None:
    """Workers run on when their template is killed, and others start from a new one."""
    first, second = start("import time; time.sleep(60)"), start("import time; time.sleep(60)")
    template = template_of(first)
    assert template_of(second) == template
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.01)
    first.kill()
    assert first.wait(60) == -signal.SIGKILL
    os.kill(template, signal.SIGKILL)
    os.waitid(os.P_PID, template, os.WEXITED | os.WNOWAIT)  # with all its threads
    third = start("import time; time.sleep(60)")
    assert template_of(third) != template
    assert second.poll() is None
    for copy in second, third:
        copy.kill()
        assert copy.wait(60) == -signal.SIGKILL


def test_a_template_that_is_killed_before_it_serves(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    before = children(os.getpid())
    monkeypatch.setenv("GOFFISH_COLOR", "red")
    copy = start("import time; time.sleep(60)")
    (template,) = set(children(os.getpid())).difference(before)
    os.kill(template, signal.SIGKILL)
    assert copy.wait(60) == -signal.SIGKILL


def test_no_more_processes(
    start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a template ends, or a copy is waited for, where the system refuses another process."""
    refuses = "import os\ndef refuse(): raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = refuse"
    (tmp_path / "sitecustomize.py").write_text(refuses)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    for _ in range(2):
        assert start("pass").wait(60) == -signal.SIGKILL
    error = "error: a worker cannot be started (Resource temporarily unavailable)\n"
    assert capfd.readouterr().err == 2 * error


def test_templates_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("import time\ndef main():\n    time.sleep(1.5)\n")
    (tmp_path / "parent.py").write_text(
        "import sys, time\nfrom goffish.streaming.runtime.launch import start_here\n"
        "start_here(0, [sys.executable, '-m', 'worker'])\nprint('started', flush=True)\ntime.sleep(60)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, str(tmp_path / "parent.py")]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        while not (workers := workers_of(parent.pid)):
            time.sleep(0.02)
        pids = [*workers, *children(parent.pid)]
        assert len(pids) == 2
        parent.kill()
    end = time.monotonic() + 60
    while any(map(_runs, pids)):
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False

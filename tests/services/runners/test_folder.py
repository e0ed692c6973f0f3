"""What server and worker tell each other in a job's folder."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from goffish.services.runners.attempt import Attempt
from goffish.services.runners.folder import Busy, JobFolder, write_whole
from goffish.services.runners.processes import EventWriter

_HOLDS = """
import sys, time
from pathlib import Path
from goffish.services.runners.folder import JobFolder
with JobFolder(Path(sys.argv[1])).taken():
    print("taken", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    made = JobFolder(tmp_path / "job")
    made.prepare({"algorithm": "bfs"}, 1)
    return made


def test_one_worker_at_a_time_and_none_after_its_death(folder: JobFolder) -> None:
    """Breaks when two workers have a folder, or a killed one keeps it."""
    with subprocess.Popen([sys.executable, "-c", _HOLDS, str(folder.path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "taken\n"
        assert folder.busy
        with pytest.raises(Busy), folder.taken():
            pass
        with pytest.raises(Busy):
            folder.prepare({}, 2)
        assert folder.turn == "1"
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert not folder.busy
    folder.prepare({}, 2)
    assert folder.turn == "2"


def test_files_are_seen_whole(tmp_path: Path) -> None:
    """Breaks when a reader sees a part of what is written, also if the writer is killed in the middle."""
    path = tmp_path / "told.json"
    code = (
        "import sys; from pathlib import Path; from goffish.services.runners.folder import write_whole\n"
        "at = 0\nwhile True:\n    write_whole(Path(sys.argv[1]), str(at) * 5000, durable=False); at = (at + 1) % 10\n"
    )
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", code, str(path)]) as writer:
            end = time.monotonic() + 20
            while not path.exists() and time.monotonic() < end:
                time.sleep(0.01)
            for _ in range(200):
                text = path.read_text()
                assert len(text) == 5000 and len(set(text)) == 1
            writer.kill()
        assert len(path.read_text()) == 5000


def test_before_anything_happened(tmp_path: Path) -> None:
    """Breaks when a job without a folder cannot be looked at."""
    nothing = JobFolder(tmp_path / "none")
    assert (nothing.turn, nothing.done, nothing.progress, nothing.busy) == ("", None, {}, False)
    assert nothing.session is None and nothing.log_end(100) == ""


def test_the_end_of_a_log(folder: JobFolder) -> None:
    """Breaks when a log is cut in the middle of a line, or of a letter."""
    folder.log.write_text("".join(f"{at} ü\n" for at in range(1000)))
    found = folder.log_end(100).splitlines()
    assert found[-1] == "999 ü" and found == [f"{at} ü" for at in range(1000 - len(found), 1000)]
    write_whole(folder.log, "short")
    assert folder.log_end(100) == "short"


def test_a_checkpoint_is_told_of_when_it_is_complete(folder: JobFolder) -> None:
    """Breaks when a checkpoint is said to be saved while it is being written, or one of before is told of again."""
    told: list[str] = []
    attempt = SimpleNamespace(folder=folder, job=SimpleNamespace(progress=0), note=lambda _, text: told.append(text))
    (folder.checkpoints / "step-00000002").mkdir(parents=True)
    manifest = folder.checkpoints / "checkpoint.json"
    manifest.write_text('{"superstep": 2}')
    events = EventWriter(cast(Attempt, attempt))
    (folder.checkpoints / "step-00000004").mkdir()
    (folder.checkpoints / "rows-aa.jsonl").touch()
    events.write()
    assert told == [] and folder.saved == 2
    manifest.write_text('{"superstep": 4}')
    events.write()
    events.write()
    assert told == ["checkpoint of superstep 4"]
    manifest.write_text("")
    events.write()
    assert len(told) == 1 and folder.saved is None

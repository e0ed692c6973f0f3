"""Runs of graph queries that are killed at any moment, and go on as if they had not been."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.cli.query_commands import run_queries
from goffish.cli.query_options import GraphOptions, QueryFile
from goffish.streaming.graphs import durable, parts
from goffish.streaming.graphs.recovery import verify
from tests.streaming.graphs.test_durable import QUERIES, everything
from tests.streaming.graphs.test_queries import some_records

#: No checkpoint that was written is damaged.
pytestmark = pytest.mark.filterwarnings("error::goffish.errors.GoffishWarning")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with queries and records, of which few are taken at a time, with many checkpoints."""
    monkeypatch.setattr(parts, "_CHUNK", 15)
    monkeypatch.setattr(durable, "_MOST_UPDATES", 60)
    (tmp_path / "q.cgql").write_text(QUERIES)
    lines = [json.dumps(one) + "\n" for one in some_records(random.Random(11), 300)]
    (tmp_path / "u.jsonl").write_text("".join(lines))
    return tmp_path


def run(folder: Path, out: str, state: str | None) -> None:
    run_queries(
        QueryFile(str(folder / "q.cgql")), [str(folder / "u.jsonl")], str(folder / out),
        GraphOptions(3.0, state=None if state is None else str(folder / state)), lambda text: None, as_document=True,
    )  # fmt: skip


def killed_at(moment: int, folder: Path, *, half: bool) -> int:
    """Run in another process, which is killed at the n-th call that changes a file; return how many there were."""
    reads, writes = os.pipe()
    process = os.fork()
    if process == 0:
        calls = 0

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **more: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == moment:
                    if half and function is os_write:
                        function(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **more)

            return call

        os_write = os.write
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            for owner, name in ((os, "write"), (os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "open")):
                setattr(owner, name, counted(getattr(owner, name)))
            run(folder, "killed", "state")
            os_write(writes, str(calls).encode())
        finally:
            os._exit(1)
    os.close(writes)
    _, status = os.waitpid(process, 0)
    told = os.read(reads, 20)
    os.close(reads)
    assert told or os.WIFSIGNALED(status), status
    return int(told or 0)


def outputs(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.mark.parametrize("times", [6, pytest.param(120, marks=pytest.mark.slow)])
def test_it_is_killed(folder: Path, times: int) -> None:
    """Breaks when a file of events has another byte than that of a run that was not killed, or a state differs."""
    run(folder, "whole", None)
    wanted = outputs(folder / "whole")
    assert sum(map(bool, wanted.values())) > 5
    calls = killed_at(0, folder, half=False)
    assert calls > 200
    assert outputs(folder / "killed") == wanted
    rng = random.Random(times)
    kills = 0
    while kills < times:  # one run after the other goes on, until it is complete
        for name in ("state", "killed"):
            (folder / name).rename(folder / f"{name}-{kills}")
        while kills < times and not killed_at(rng.randrange(1, calls // 3), folder, half=rng.random() < 0.5):
            kills += 1
        run(folder, "killed", "state")
        assert outputs(folder / "killed") == wanted
        assert {one["result"] for one in verify(folder / "state")} <= {"same", "first"}
    with gf.stream.LiveGraph(lateness=3, state=folder / "state") as kept:
        plain = gf.stream.LiveGraph(lateness=3)
        plain.submit(QUERIES)
        plain.feed(folder / "u.jsonl")
        plain.end()
        assert everything(kept) == everything(plain)


def test_files_of_another_run(folder: Path) -> None:
    """Breaks when a file of events that was cut or is of something else is continued."""
    run(folder, "out", "state")
    wanted = outputs(folder / "out")
    file = folder / "out" / "parts.jsonl"
    file.write_bytes(wanted["parts.jsonl"][:-200])
    run(folder, "out", "state")
    assert outputs(folder / "out") == wanted
    file.write_text("something\n")
    with pytest.raises(gf.errors.InputError, match=r"parts.jsonl: its last line is not an event"):
        run(folder, "out", "state")

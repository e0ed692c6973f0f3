"""What a measured run tells: bytes against those on the disk, CPU time and memory against the kernel's figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import goffish as gf
from goffish.scheduling.estimate import probe


def test_bytes_of_checkpoints_are_those_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a size is taken before a checkpoint is whole, or of another than the largest one."""
    ids = np.arange(400).reshape(20, 20)
    src = np.concatenate((ids[:, :-1].ravel(), ids[:-1].ravel()))
    dst = np.concatenate((ids[:, 1:].ravel(), ids[1:].ravel()))
    graph = gf.partition(gf.from_edges(src, dst), parts=4)
    plain = gf.run("pagerank", graph, engine="local", supersteps=5)
    seen, measure = list[int](), probe.folder_bytes

    def watched(folder: Path) -> int:
        assert (folder / "checkpoint.json").is_file()
        assert len(list(folder.glob("step-*"))) == 1
        on_disk = sum(Path(at, name).stat().st_size for at, _, names in os.walk(folder) for name in names)
        seen.append(on_disk)
        assert measure(folder) == on_disk
        return on_disk

    monkeypatch.setattr(probe, "folder_bytes", watched)
    request: dict[str, Any] = {"algorithm": "pagerank", "folder": str(tmp_path), "options": {"supersteps": 5}}
    found = probe._checkpointed(request, {"engine": "local", "threads": 1}, graph, plain)
    assert found["supersteps"] == len(seen) == 5
    assert found["checkpoint_bytes"] == max(seen) > 400 * 8
    assert found["checkpoint_seconds"] > 0
    assert not list(tmp_path.iterdir())


CHILD = """
import subprocess, sys, time
block = bytearray(80 * 2**20)
block[::4096] = b"x" * len(block[::4096])
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
print("ready", flush=True)
sys.stdin.read()
"""


#: A process without other children: those of other tests may end meanwhile.
PARENT = """
import json, subprocess, sys
from goffish.scheduling.estimate import probe

found = [probe.usage()]
with subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    assert child.stdout.readline() == b"ready\\n"
    found.append(probe.usage())
    child.communicate()
print(json.dumps([*found, probe.usage()]))
"""


def test_usage_counts_processes_that_still_run() -> None:
    """Breaks when a JVM or its Python workers, which outlive a run, are not counted."""
    command = [sys.executable, "-c", PARENT, CHILD]
    before, during, after = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert 0.25 < during[0] - before[0] < 3.0
    assert 80 * 2**20 < during[1] - before[1] < 400 * 2**20
    assert after[0] >= during[0] - 0.05, "what has ended counts among the children"
    assert after[1] >= 0.9 * before[1] > 10 * 2**20

"""Stores while something goes wrong: a full disk, a kill, and what a killed writer left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import goffish
from goffish.errors import StoreError
from goffish.gofs import build_layout, open_store, verify_store
from goffish.gofs.files import open_folder
from goffish.graph import from_edges
from tests.cases import grid, grid_blocks
from tests.gofs.test_store import rich_store, same


@pytest.mark.parametrize("fail_at", range(1, 14))
def test_disk_full_leaves_the_old_version_and_no_half_written_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    path = tmp_path / "s"
    old = from_edges([0, 1], [1, 2])
    build_layout(old, np.zeros(3, np.int32), 1).save(path)
    files_before = open_folder(path).list()
    calls = iter(range(1, 1000))

    def fsync(descriptor: int) -> None:
        if next(calls) >= fail_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreError, match=r"cannot be written \(No space left on device\)"):
        rich_store(path)
    monkeypatch.undo()
    assert open_folder(path).list() == files_before
    same(open_store(path).to_graph(), old)


def test_a_really_full_disk_leaves_no_half_store(tmp_path: Path) -> None:
    """A file system of 64 KiB, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system is not permitted here; the injected error covers the path")
    try:
        with pytest.raises(StoreError, match="No space left on device"):
            build_layout(grid(200, 100), grid_blocks(200, 100), 12).save(disk / "s")
        assert open_folder(disk / "s").list() == []
    finally:
        subprocess.run(["umount", disk], check=True)


_WRITER = """
import sys, numpy as np
from goffish.gofs import build_layout
from tests.cases import grid, grid_blocks
small = build_layout(grid(20, 15), grid_blocks(20, 15), 12)
large = build_layout(grid(60, 45), grid_blocks(60, 45), 12)
print("ready", flush=True)
while True:
    for layout in (small, large):
        layout.save(sys.argv[1])
"""


@pytest.mark.slow
def test_kill_at_any_moment_leaves_one_whole_version(tmp_path: Path) -> None:
    """`kill -9` while two versions are written in turn: what is found is one of them, complete."""
    path = tmp_path / "s"
    build_layout(grid(20, 15), grid_blocks(20, 15), 12).save(path)
    rng = np.random.default_rng(5)
    for _ in range(6):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, path], stdout=subprocess.PIPE, cwd=Path.cwd())
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(float(rng.uniform(0.0, 0.2)))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        verify_store(path)
        graph = open_store(path).to_graph()
        assert graph.num_vertices in (300, 2700)
        assert goffish.connected_components(graph).summary["components"] == 1
    # What the killed writers left behind goes away with the next write.
    build_layout(grid(20, 15), grid_blocks(20, 15), 12).save(path)
    assert not [n for n in open_folder(path).list() if n.endswith(".partial")]


def test_first_write_killed_before_its_manifest_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "s" / "p00000").mkdir(parents=True)
    (tmp_path / "s" / "p00000" / ".topology-1234.arrow.99.partial").write_bytes(b"half")
    rich_store(tmp_path / "s")
    assert not list((tmp_path / "s").rglob("*.partial"))

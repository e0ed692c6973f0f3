"""Ingest jobs that are killed or interrupted; each starts a JVM of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark.ingest.rows import files_of, quarantined, stamped_rows, stamped_spec

pytest.importorskip("pyspark")


ROOT = Path(__file__).resolve().parents[2]


def _started(spec: Path, store: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "goffish", "ingest", str(spec), "-o", str(store), "--master", "local[2]", "--json"]
    command += more
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _wait_for(folder: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 240
    while not list(folder.glob(pattern)):
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["done.rows.*", "done.edges.*", "done.places.*"])
def test_killed_in_the_middle_goes_on_to_the_same_store(stamped: Any, tmp_path: Path, step: str) -> None:
    folder, _, spec, _ = stamped
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    process = _started(tmp_path / "spec.yaml", tmp_path / "s")
    _wait_for(tmp_path, f"s.work/{step}", process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "s" / "manifest.json").exists()
    again = _started(tmp_path / "spec.yaml", tmp_path / "s")
    report = json.loads(again.communicate()[0])
    assert again.returncode == 0 and report["continued"]
    assert files_of(tmp_path / "s") == files_of(folder / "s")
    assert not (tmp_path / "s.work").exists()


@pytest.mark.slow
def test_interrupted_ends_at_once(stamped: Any, tmp_path: Path) -> None:
    _, _, spec, _ = stamped
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    process = _started(tmp_path / "spec.yaml", tmp_path / "s")
    _wait_for(tmp_path, "s.work/done.rows.*", process)
    begun = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and time.monotonic() - begun < 10
    assert errors.splitlines()[-1].startswith("interrupted")
    assert not (tmp_path / "s" / "manifest.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["done.vertices-0.*", "done.described-0.*", "done.labels.*"])
def test_killed_with_tables_of_vertices(stamped: Any, spark: Any, tmp_path: Path, step: str) -> None:
    """Breaks when rows of vertices are lost, or counted twice, by the run that resumes."""
    from goffish.spark.ingest import ingest

    _, _, spec, _ = stamped
    (tmp_path / "v.csv").write_text("id,kind\n" + "".join(f"{at},{at % 3}\n" for at in range(-9, 40)) + "1,9\nx,1\n")
    files = [{"path": str(tmp_path / "v.csv"), "options": {"header": True}}]
    spec = {**spec, "vertices": {"inputs": files, "vertex": "id", "attributes": {"kind": "integer"}}}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    process = _started(tmp_path / "spec.yaml", tmp_path / "s")
    _wait_for(tmp_path, f"s.work/{step}", process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "s" / "manifest.json").exists()
    again = _started(tmp_path / "spec.yaml", tmp_path / "s")
    report = json.loads(again.communicate()[0])
    assert again.returncode == 0 and report["continued"] and not (tmp_path / "s.work").exists()
    whole = ingest(spec, tmp_path / "t", spark)
    assert files_of(tmp_path / "s") == files_of(tmp_path / "t") and report["vertex_rows"] == whole.vertex_rows
    assert report["vertex_rows"]["rules"] == {"duplicate": 1, "vertex_unreadable": 1}


@pytest.mark.slow
@pytest.mark.parametrize("step", ["key.*", "done.rows.*", "done.earlier.*", "done.edges.*", "done.places.*"])
def test_killed_in_an_incremental_load(spark: Any, tmp_path: Path, step: str) -> None:
    """Breaks when a load that is killed changes the store, or the next one loses rows or counts them twice."""
    import goffish as gf
    from goffish.spark.ingest import ingest

    (tmp_path / "in").mkdir()
    rows = stamped_rows(4, 200)
    texts = [f"{u} {v} {w!r} {t}\n" for u, v, w, t in rows]
    spec = stamped_spec(tmp_path / "in" / "*.txt")
    (tmp_path / "in" / "a.txt").write_text("".join(texts[:100]) + "x 1 2 3\n")
    first = ingest(spec, tmp_path / "s", spark, incremental=True)
    (tmp_path / "in" / "b.txt").write_text("".join(texts[100:]) + "y 1 2 3\n")
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    process = _started(tmp_path / "spec.yaml", tmp_path / "s", "--incremental")
    _wait_for(tmp_path, f"s.work/{step}", process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert gf.open(tmp_path / "s").fingerprint() == first.fingerprint
    again = _started(tmp_path / "spec.yaml", tmp_path / "s", "--incremental")
    report = json.loads(again.communicate()[0])
    whole = ingest(spec, tmp_path / "t", spark)
    assert again.returncode == 0 and report["continued"] and report["fingerprint"] == whole.fingerprint
    assert report["rows"] == report["kept"] + report["merged"] + report["quarantined"] == 101
    assert len(quarantined(tmp_path / "s.quarantine")) == whole.quarantined

"""Damaged, foreign and newer stores, and checkpoints of other jobs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Place
from tests.commands import assert_refused


def slice_file(store: Path) -> Path:
    [file] = (store / "p00001").glob("topology-*")
    return file


def cut_in_half(store: Path) -> str:
    file = slice_file(store)
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.truncate(size // 2)
    return f"{file.name}: damaged"


def flip_a_byte(store: Path) -> str:
    file = slice_file(store)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    return f"{file.name}: damaged (its bytes do not match the checksum in the manifest)"


def lose_a_folder(store: Path) -> str:
    shutil.rmtree(store / "p00001")
    return "topology-"


def newer_version(store: Path) -> str:
    manifest = store / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 99}))
    return "manifest.json: store format 99 is not supported; accepted: up to 2"


def cut_manifest(store: Path) -> str:
    manifest = store / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:300])
    return "manifest.json: damaged or not a GoFFish store"


def foreign_manifest(store: Path) -> str:
    (store / "manifest.json").write_text('{"name": "app"}')
    return "manifest.json: not a GoFFish store"


@pytest.mark.parametrize(
    "damage", [cut_in_half, flip_a_byte, lose_a_folder, newer_version, cut_manifest, foreign_manifest]
)
def test_damaged_store(place: Place, damage: object) -> None:
    assert callable(damage)
    told = damage(place / "grid.gofs")
    for args in (("verify", "grid.gofs"), ("run", "components", "grid.gofs", "-o", "out.csv")):
        ended = place(*args)
        assert_refused(ended)
        assert told in ended.err
    assert not (place / "out.csv").exists()


def test_checkpoint_of_another_job(place: Place) -> None:
    base = ("run", "sssp", "grid.gofs", "--units", "vertex", "--checkpoint-dir", "steps", "--checkpoint-every", "2")
    stopped = place(*base, "--source", "0", "--max-supersteps", "7")
    assert_refused(stopped, code=1)
    assert "not finished after 7 supersteps" in stopped.err
    for args, told in (
        ((*base, "--source", "1", "--resume"), "the checkpoint belongs to another job (options was"),
        (("run", "bfs", *base[2:], "--source", "0", "--resume"), "belongs to another job (program was"),
        (("run", "sssp", "grid.gofs", *base[5:], "--source", "0", "--resume"), "(another graph or partitioning)"),
    ):
        ended = place(*args)
        assert_refused(ended)
        assert told in ended.err
    [part] = (place / "steps").glob("step-*/part-00001.npz")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 0xFF
    part.write_bytes(data)
    ended = place(*base, "--source", "0", "--resume")
    assert_refused(ended)
    assert "part-00001.npz: damaged checkpoint (its bytes do not match their checksum)" in ended.err

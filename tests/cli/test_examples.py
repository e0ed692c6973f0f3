"""``goffish examples``: the bundled data and programs, in the folder of the user."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Place
from tests.commands import ROOT, assert_refused


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for part in ("data", "examples")
        for path in (folder / part).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_examples_are_copied_and_files_of_the_user_are_kept(place: Place) -> None:
    """Breaks when a file is missing or damaged, or a second run overwrites what the user changed."""
    first = place("examples", "new", "--json").json
    assert files(place / "new") == files(ROOT) and first == {"folder": "new", "written": len(files(ROOT)), "kept": 0}
    changed, removed = place / "new/data/README.md", place / "new/examples/main_job.py"
    changed.write_text("mine")
    removed.unlink()
    assert place("examples", "new").out == f"new: 1 files written, {first['written'] - 1} kept\n"
    assert changed.read_text() == "mine" and removed.is_file()
    assert place("info", "new/data/power.metis.gz", "--json").json["vertices"] == 4941


def test_examples_where_nothing_can_be_written(place: Place) -> None:
    (place / "file").write_text("")
    ended = place("examples", "file")
    assert ended.code == 1 and ended.err.count("\n") == 1 and "file" in ended.err
    assert_refused(place("examples", "a", "b"))
    before = place.files()
    assert_refused(place("examples", "s3://bucket/x"))
    assert place.files() == before

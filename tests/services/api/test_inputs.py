"""Room for uploads: of all together, of those under way, after kills, and after some are forgotten."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from goffish.services.api.inputs import Inputs, Upload
from goffish.services.api.limits import TooMuch


def begun(inputs: Inputs, data: bytes) -> Upload:
    upload = inputs.upload("x.txt", len(data), hashlib.sha256(data).hexdigest())
    upload.write(data)
    return upload


def test_all_uploads_together(tmp_path: Path) -> None:
    """Breaks when clients can fill the disk with uploads that are small enough one by one, or room is lost for ever."""
    room = tmp_path / "uploads"
    inputs = Inputs([], room, 60, 100)
    kept, under_way = begun(inputs, b"a" * 60).finish(), begun(inputs, b"b" * 40)
    with pytest.raises(TooMuch, match="100 bytes"):
        begun(inputs, b"c")
    under_way.drop()
    assert begun(inputs, b"d" * 40).finish() != kept
    with pytest.raises(TooMuch):
        begun(inputs, b"e")

    again = Inputs([], room, 60, 100)
    with pytest.raises(TooMuch):
        begun(again, b"f")
    path = Path(again.resolve(kept))
    os.utime(path.parent, (1000, 1000))
    again.forget(1000.0, ())
    again.forget(2000.0, {"edges.txt", kept})
    assert path.exists()
    again.forget(2000.0, {"edges.txt"})
    assert not path.exists()
    begun(again, b"g" * 60).finish()


def test_the_same_file_again(tmp_path: Path) -> None:
    """Breaks when a submission that is sent again, upload and all, is another job than before, or fills the disk."""
    inputs = Inputs([], tmp_path / "uploads", 60, 100)
    first, second = begun(inputs, b"a" * 40), begun(inputs, b"a" * 40)
    uri = first.finish()
    assert second.finish() == uri == begun(inputs, b"a" * 40).finish()
    assert Path(inputs.resolve(uri)).read_bytes() == b"a" * 40
    assert [path.name for path in (tmp_path / "uploads").iterdir()] == [Path(inputs.resolve(uri)).parent.name]
    other = inputs.upload("y.txt", 1, hashlib.sha256(b"a").hexdigest())
    other.write(b"a")
    assert other.finish() != begun(inputs, b"a").finish(), "a name tells the format"
    begun(inputs, b"b" * 58).finish()
    with pytest.raises(TooMuch):
        begun(inputs, b"c")


def test_what_a_killed_server_left_of_an_upload_is_removed(tmp_path: Path) -> None:
    """Breaks when pieces of uploads that never ended stay, or count."""
    begun(Inputs([], tmp_path / "uploads", 60, 100), b"a" * 60)
    begun(Inputs([], tmp_path / "uploads", 60, 100), b"b" * 60).finish()
    assert len(list((tmp_path / "uploads").iterdir())) == 1

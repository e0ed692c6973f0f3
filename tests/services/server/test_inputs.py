"""Room for uploads: of all together, of those under way, after kills, and after some are forgotten."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from goffish.services.server.inputs import Inputs, Upload
from goffish.services.server.limits import TooMuch


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
    os.utime(path.parent, (0, 0))
    again.forget(3600)
    assert not path.exists()
    begun(again, b"g" * 60).finish()


def test_what_a_killed_server_left_of_an_upload_is_removed(tmp_path: Path) -> None:
    """Breaks when pieces of uploads that never ended stay, or count."""
    begun(Inputs([], tmp_path / "uploads", 60, 100), b"a" * 60)
    begun(Inputs([], tmp_path / "uploads", 60, 100), b"b" * 60).finish()
    assert len(list((tmp_path / "uploads").iterdir())) == 1

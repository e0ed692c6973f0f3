"""Local files to write: their paths, and a temporary name until a file is complete."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from goffish.errors import InputError

#: What pathlib leaves of the beginning of a URI; a single letter may be a drive.
_FLATTENED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_open: set[Path] = set()


def is_uri(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a URI of something other than a local file.

    Raises
    ------
    InputError
        It is a path object made from a URI, or a ``file://`` URI without an absolute path.
    """
    text = os.fspath(path)
    if not isinstance(path, str) and _FLATTENED.match(text):
        raise InputError(f"{text}: a path object cannot hold a URI; give the URI as a text")
    if not text.lower().startswith("file://"):
        return "://" in text
    if not text[7:].startswith("/"):
        raise InputError(f"{text}: a file URI needs an absolute path, as in file:///folder/name")
    return False


def local_path(path: str | os.PathLike[str]) -> Path:
    """The local path that a user gave for something to write: a path, or a ``file://`` URI.

    Every such path goes through this function: a path made from any other URI would be a local folder ``s3:``.

    Raises
    ------
    InputError
        `path` is another URI.
    """
    if is_uri(path):
        raise InputError(f"{path}: URIs are not supported here; give a local path")
    text = os.fspath(path)
    return Path(text[7:] if text.lower().startswith("file://") else text)


@contextmanager
def partial_file(target: Path) -> Iterator[Path]:
    """A temporary name beside `target`; what is written there takes the place of `target` when the block ends well.

    After an exception the temporary file is gone and `target` is as it was before.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    _open.add(temporary)
    try:
        yield temporary
        temporary.replace(target)
    finally:
        _remove(temporary)
        _open.discard(temporary)


def remove_partial_files() -> None:
    """Remove what is being written, for a process that leaves without unwinding its threads."""
    for temporary in tuple(_open):
        _remove(temporary)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()

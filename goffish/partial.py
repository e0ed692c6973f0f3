"""Files on their way: written under a temporary name, published by one rename, removed when the process is stopped."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_open: set[Path] = set()


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

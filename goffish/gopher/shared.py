"""Places of temporary stores, by which processes on other machines get a graph that only one process has."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path

from goffish.errors import StoreError
from goffish.gofs.files import open_folder
from goffish.partial import absolute_place, is_uri

#: Variable with a folder or URI for temporary stores that all processes of a job can use.
SHARED_VARIABLE = "GOFFISH_SHARED"


def shared_place() -> str | None:
    """The folder or URI that `SHARED_VARIABLE` names, if any."""
    return os.environ.get(SHARED_VARIABLE) or None


def temporary_place() -> str:
    """A new place for a temporary store: shared, or else a folder of this machine."""
    shared = shared_place()
    if shared is None:
        return tempfile.mkdtemp(prefix="goffish-")
    place = absolute_place(shared).rstrip("/")
    if not is_uri(place):
        Path(place).mkdir(parents=True, exist_ok=True)
    return f"{place}/goffish-{secrets.token_hex(8)}"


def remove_place(place: str) -> None:
    """Remove a folder, as far as that is possible."""
    with contextlib.suppress(OSError, StoreError):
        if is_uri(place):
            folder = open_folder(place)
            folder.delete_all(folder.list())
        else:
            shutil.rmtree(place)

"""Processes that a test has started."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil


def child_in(folder: Path) -> psutil.Process:
    """The child process of this one whose working folder is below another folder."""
    found = []
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if one.cwd().startswith(str(folder)):
                found.append(one)
    [child] = found
    return child

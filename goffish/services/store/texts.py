"""Texts that clients read."""

from __future__ import annotations

import re

_FOLDERS = re.compile(r"(?:file://|(?<![\w:/.~-]))(?:/[^\s/:'\"`,;()<>|]+)+/(?=[^\s/])")


def without_folders(text: str) -> str:
    """The text with absolute paths cut down to the names of their files: where a server keeps things is its own."""
    return _FOLDERS.sub("", text)

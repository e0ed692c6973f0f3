"""The fenced blocks of the documentation."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def fenced(page: Path) -> list[tuple[str, str]]:
    """Return language and text of every fenced block."""
    found = re.findall(r"^ *```(\S*)\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [(language, textwrap.dedent(text)) for language, text in found]


def blocks(page: Path, language: str) -> str:
    """Return the blocks in one language, one after the other."""
    return "\n".join(text for found, text in fenced(page) if found == language)


def commands(page: Path) -> list[str]:
    r"""Return the shell commands: blocks of ``sh``, and the lines after ``$`` in blocks of ``console``.

    A command whose printed answer begins with ``error:`` is negated.
    """
    found = []
    for language, text in fenced(page):
        joined = text.replace("\\\n", " ")
        if language == "sh":
            found += [line for line in joined.splitlines() if line.strip()]
        elif language == "console":
            for line, fails in re.findall(r"^\$ (.*)\n(error: )?", joined, re.MULTILINE):
                found.append(f"! {line}" if fails else line)
    return found

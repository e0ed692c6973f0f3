"""Words of user-visible text: docstrings, messages, help, pages and documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.package.pages import ROOT

#: A pattern, and what to write instead.
WORDS = {
    r"\b(?:tells?|telling|told)\b": "report, print, return, log",
    r"\b(?:whoever|somebody|nobody|anybody)\b": "the subject: you, the client, the caller",
    r"\bfor ever\b": "indefinitely",
    r"\b(?:comes?|that came) along\b|\bshipped\b": "bundled",
    r"\bcomes? again\b": "retry later",
    r"\b(?:can(?:not)?|to) be had\b": "is (not) available",
    r"\bsub-graphs?\b": "subgraph",
    r"(?<!\.)\bpeers?\b(?!\()": "baseline",
    r"\brooms?\b": "space, package",
    r"(?<!you )\bwants?\b": "needs, requires, asks for",
    r"\bknows?\b": "the fact itself",
    r"\btaken away\b": "interrupted, reclaimed",
    r"\bhang(?:s|ing)? up\b": "close the channel",
    r"\bgoes? on with\b": "resume",
    r"\bof its own\b": "its own …, separate",
    r"\b(?:what|that) is there\b|\bthat are there\b": "existing",
    r"\bplanners? of places\b": "placement algorithm",
    r"\bno time at all\b": "must be positive",
    r"\bmachine class(?:es)?\b": "machine type",
}
#: Words of dataflows, which are ordinary words elsewhere.
DATAFLOW_WORDS = {r"(?<!processing )(?<!array )(?<!matrix )\belements?\b(?! wise)": "processing element (PE)"}
DATAFLOW_CODE = ("goffish/scheduling", "goffish/cloud", "goffish/services", "goffish/client", "goffish/cli", "proto")
#: Of docstrings: code, shapes of arrays such as ``shape (elements,)``, and names such as ``elements : tuple``.
CODE = re.compile(r"``[^`]*``|`[^`]*`|shape \([^)]*\)|^ *\w+(?:, \w+)* : .*", re.MULTILINE)
#: Pages that quote what others wrote.
QUOTING = ("docs/specs",)


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string in a module that has words: docstrings, messages, help."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            if "_" in node.value and re.fullmatch(r"[a-z_ ]+", node.value):
                continue  # names of a named tuple
            yield node.lineno, CODE.sub("", node.value)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of what is read by users in a file."""
    if path.suffix == ".py":
        yield from strings(path)
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield number, re.sub(r"`[^`]*`", "", line)


def files() -> list[Path]:
    """Return all files that users read text of."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for place, suffixes in {
        "goffish": (".py", ".html", ".js", ".yaml"), "docs": (".md",), "examples": (".py", ".md", ".yaml"),
        "proto": (".proto",),
    }.items():  # fmt: skip
        found += [path for path in sorted((ROOT / place).rglob("*")) if path.suffix in suffixes]
    return [path for path in found if "_pb2" not in path.name and ".min." not in path.name]


@pytest.mark.parametrize("package", sorted({"/".join(path.relative_to(ROOT).parts[:2]) for path in files()}))
def test_words(package: str) -> None:
    """Breaks when a text says in other words what has a term, or speaks of a program as of a person."""
    wrong = []
    for path in files():
        place = path.relative_to(ROOT).as_posix()
        if not (place + "/").startswith(package + "/") or place.startswith(QUOTING):
            continue
        words = WORDS | (DATAFLOW_WORDS if place.startswith(DATAFLOW_CODE) else {})
        for line, text in texts(path):
            for pattern, instead in words.items():
                wrong += [
                    f"{place}:{line}: {found[0]}: {instead}" for found in re.finditer(pattern, text, re.IGNORECASE)
                ]
    assert not wrong, "\n".join(wrong)

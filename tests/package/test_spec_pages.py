"""The pages in docs/specs, and what code and documentation cite of them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.package.pages import ROOT

SPECS = ROOT / "docs" / "specs"
PAGES = sorted(SPECS.glob("*.md"))
NUMBER = r"\d+(?:\.\d+)*"
NUMBERS = rf"{NUMBER}(?:(?:, and|,| and| to)\s+{NUMBER})*"
#: A citation; in code it may go on in the next line, behind the sign of a comment.
CITED = re.compile(rf"docs/specs/([\w-]+)\.md(?:,\s+(?:#:?\s+)?sections?\s+(?:#:?\s+)?({NUMBERS}))?")
#: A link in a page, or from elsewhere, with a section behind it.
WITHIN = re.compile(rf"\]\(([\w-]+)\.md\),\s+sections?\s+({NUMBERS})")
LINKED = re.compile(rf"\]\([\w./]*specs/([\w-]+)\.md\),\s+sections?\s+({NUMBERS})")
#: A section sign in a module of the package belongs to the pages that the module cites; these are of papers.
OF_PAPERS = ("closeness/in_memory.py", "paths/in_memory.py", "spot/peers.py")
UNNAMED = re.compile(
    r"[Ss]pecifications?(?:\s+of\s+[\w\s-]{1,40})?(?:'s)?\s*(?:,|\(|:)?\s*(?:§|sections?\b|equations?\b|\d+\.\d)"
)
GENERATED = ("pb2", "services/web")


@cache
def sections(page: str) -> frozenset[str]:
    """Numbers of the headings of a page."""
    text = (SPECS / f"{page}.md").read_text(encoding="utf-8")
    return frozenset(re.findall(rf"^#+ ({NUMBER}) ", text, re.MULTILINE))


def files() -> list[Path]:
    """Return code and documentation that cite pages."""
    code = [
        path
        for place in ("goffish", "experiments", "benchmarks", "tests", "examples")
        for path in (ROOT / place).rglob("*.py")
    ]
    text = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").glob("*.md")]
    found = [path for path in code + text if not any(part in path.as_posix() for part in GENERATED)]
    return [path for path in found if path != Path(__file__)]


def missing(page: str, numbers: str) -> list[str]:
    """Return what is cited of a page and is not there."""
    if not (SPECS / f"{page}.md").is_file():
        return [f"docs/specs/{page}.md"]
    return [f"{page}, section {number}" for number in re.findall(NUMBER, numbers) if number not in sections(page)]


def test_pages_and_sections_that_are_cited_exist() -> None:
    """Breaks when a page is renamed, a section moves, or a citation names one that is not there."""
    found, wrong = 0, []
    for path in files():
        text = path.read_text(encoding="utf-8")
        for page, numbers in CITED.findall(text) + (WITHIN if path.parent == SPECS else LINKED).findall(text):
            found += 1
            wrong += [f"{path.relative_to(ROOT)}: {what}" for what in missing(page, numbers)]
    assert found > 200
    assert not wrong


def test_section_signs_belong_to_pages_that_the_module_cites() -> None:
    """Breaks when a docstring says §3.4 and no page that its module names has that section."""
    wrong = []
    for path in (ROOT / "goffish").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if any(part in path.as_posix() for part in (*GENERATED, *OF_PAPERS)):
            continue
        cited = {page for page, _ in CITED.findall(text)}
        known = frozenset[str]().union(*(sections(page) for page in cited if (SPECS / f"{page}.md").is_file()))
        signs = sorted(set(re.findall(rf"§({NUMBER})", text)) - known)
        wrong += [f"{path.relative_to(ROOT)}: §{number} of {sorted(cited) or 'no page'}" for number in signs]
    assert not wrong


def test_no_specification_without_a_name() -> None:
    """Breaks when a user is sent to a document that is not in the repository."""
    places = [*(ROOT / "goffish").rglob("*.py"), ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in places
        if not any(part in path.as_posix() for part in GENERATED)
        for found in UNNAMED.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page: Path) -> None:
    """Breaks when a link, or a file that the page names, is gone, or sections are not numbered in order."""
    text = page.read_text(encoding="utf-8")
    assert not [
        link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link and not (page.parent / link).exists()
    ]
    named = re.findall(r"`((?:goffish|tests|experiments|benchmarks|docs)/[\w./-]+)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]
    modules = re.findall(r"python -m ([\w.]+)", text)
    places = [ROOT / name.replace(".", "/") for name in modules]
    assert not [one for one in places if not (one.with_suffix(".py").is_file() or (one / "__main__.py").is_file())]
    scripts = re.findall(r"python (benchmarks/\w+\.py)", text)
    assert not [name for name in scripts if not (ROOT / name).is_file()]
    numbers = [[int(n) for n in number.split(".")] for number in re.findall(rf"^#+ ({NUMBER}) ", text, re.MULTILINE)]
    assert numbers == sorted(numbers)
    assert len(numbers) == len({tuple(number) for number in numbers})
    if page.stem != "index":
        assert numbers, "code cites sections by number"
        assert re.search(r"^## \d+ References$", text, re.MULTILINE)
        assert f"]({page.name})" in (SPECS / "index.md").read_text(encoding="utf-8")

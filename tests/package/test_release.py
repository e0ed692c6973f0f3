"""What a release says about itself: one version everywhere, a changelog of a known form, complete tables of extras."""

from __future__ import annotations

import datetime
import re
import tomllib
from typing import Any

import yaml

from goffish.extras import EXTRAS
from goffish.version import __version__
from tests.package.pages import ROOT

KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def releases(text: str) -> list[tuple[str, str]]:
    """Return heading and body of every release of a changelog."""
    parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def test_changelog() -> None:
    """Breaks when a release has no date, is out of order, or has a kind of change that Keep a Changelog lacks."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = releases(text)
    assert found[0][0] == "[Unreleased]"
    headings = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})", heading) for heading, _ in found[1:]]
    dated = [
        (tuple(map(int, one.groups()[:3])), datetime.date.fromisoformat(one[4])) for one in headings if one is not None
    ]
    assert len(dated) == len(headings), [heading for heading, _ in found]
    assert dated == sorted(dated, reverse=True)
    assert ".".join(map(str, dated[0][0])) == __version__
    for heading, body in found:
        kinds = re.findall(r"^### (.*)$", body, re.MULTILINE)
        assert kinds == [kind for kind in KINDS if kind in kinds], heading
        changes = re.split(r"^### .*\n", body, flags=re.MULTILINE)
        assert not changes[0].strip(), f"{heading}: changes of no kind"
        assert all(part.strip().startswith("- ") for part in changes[1:]), heading
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_the_version_is_defined_once() -> None:
    assert PROJECT["dynamic"] == ["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    [date] = re.findall(
        rf"^## \[{re.escape(__version__)}\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert citation["date-released"].isoformat() == date
    assert set(citation["keywords"]) == {"BSP" if word == "bsp" else word for word in PROJECT["keywords"]}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[><=!; ]", requirement)[0] for requirement in requirements}


def test_the_table_of_extras() -> None:
    """Breaks when docs/install.md lacks an extra or a package, or lists one that is gone."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.partition("| extra |")[2].partition("\n\n")[0].splitlines()[2:]
    ]
    extras = PROJECT["optional-dependencies"]
    assert [row[0] for row in rows] == [f"`{name}`" for name in extras]
    for name, enables, packages, size in ((row[0].strip("`"), *row[1:]) for row in rows):
        if name != "dev":
            assert set(re.findall(r"`([^`]+)`", packages)) == names(extras[name]), name
            assert int(size) > 0
        for command in EXTRAS[name].commands if name in EXTRAS else ():
            assert re.search(rf"`(goffish )?{command}`", enables), command


def test_versions_and_packages_of_the_installation_page() -> None:
    page = " ".join((ROOT / "docs" / "install.md").read_text(encoding="utf-8").split())
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert f"CPython {', '.join(versions[:-1])} or {versions[-1]}" in page
    assert f">={versions[0]}" == PROJECT["requires-python"]
    [listed] = re.findall(r"It consists of (.*?) and their dependencies", page)
    assert set(re.split(r", ", listed.lower())) == names(PROJECT["dependencies"])

"""The documentation's Python blocks run, in a copy of the checkout's data, and say what they claim."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.package.pages import PAGES, ROOT, blocks, fenced

#: ``python``, ``sh`` and ``console`` (``$`` before commands) are run; ``py`` needs a server, a cluster or a session.
LANGUAGES = {"python", "py", "sh", "console", "text", "yaml", "json", "ini", "nginx"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.name == "README.md" else pytest.mark.slow, id=page.name)
        for page in PAGES
        if blocks(page, "python")
    ],
)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    for name, text in re.findall(r"^cat > (\S+) <<'END'\n(.*?)^END$", blocks(page, "sh"), re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    code = blocks(page, "python")
    # A comment behind a bare expression or a print is a claim about its value.
    claims = re.findall(r"^(?:print\()?(\S.*?)\)?\s+# (\{.*\}|Graph\(.*\)|\d[\d ]*)$", code, re.MULTILINE)
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(code, page.name, "exec"), names)
    for expression, claim in claims:
        value = eval(f"({expression},)", names)
        assert " ".join(str(v) for v in value) == claim, f"{page.name}: {expression}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_block_names_its_language(page: Path) -> None:
    """Breaks when a block has no language: its commands would not be run."""
    assert {language for language, _ in fenced(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_example_of_the_engine_counts_4_and_7(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import max_vertex_value
    finally:
        sys.path.pop(0)
    monkeypatch.setattr(sys, "argv", ["max_vertex_value.py"])
    max_vertex_value.main()
    said = capsys.readouterr().out
    assert "4 supersteps, 8 messages" in said
    assert "vertex-centric: 7 supersteps, 35 messages" in said


def test_the_main_job_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import main_job
    finally:
        sys.path.pop(0)
    arguments = ["main_job.py", str(ROOT / "data" / "email-enron.txt.gz"), str(tmp_path), str(tmp_path / "x.svg")]
    monkeypatch.setattr(sys, "argv", arguments)
    main_job.main()
    said = capsys.readouterr().out
    assert "36,692 vertices, 183,831 edges" in said
    assert "1,065, the largest of 33,696" in said
    for name in ("components.parquet", "pagerank.parquet", "distances.csv", "quotient.png", "components-gantt.png"):
        assert (tmp_path / name).stat().st_size > 1000
    assert "<svg" in (tmp_path / "x.svg").read_text()

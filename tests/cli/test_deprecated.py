"""Former option names still work, with one line on standard error."""

from __future__ import annotations

from typing import Any

import pytest
from typer.main import get_command

from goffish.cli.app import app
from goffish.cli.deprecated import RENAMED, with_current_names
from tests.cli.conftest import Place


@pytest.mark.slow
def test_current_names_exist() -> None:
    """Breaks when a renamed option is renamed again without its entry, or a former name is still an option."""
    for command, names in RENAMED.items():
        found: Any = get_command(app)
        for name in command:
            found = found.get_command(None, name)
        options = {flag for one in found.params for flag in one.opts}
        assert set(names.values()) <= options, command
        assert not set(names) & options, command


def test_former_names(capsys: pytest.CaptureFixture[str]) -> None:
    """Values stay as they are, also behind an equals sign or two dashes; other commands keep their options."""
    given = ["jobs", "submit", "--most-attempts=3", "--memory", "5", "--", "--key"]
    assert with_current_names(given) == ["jobs", "submit", "--max-attempts=3", "--max-memory", "5", "--", "--key"]
    assert capsys.readouterr().err == (
        "warning: --most-attempts is deprecated; use --max-attempts\n"
        "warning: --memory is deprecated; use --max-memory\n"
    )
    assert with_current_names(["ingest", "--memory", "4g"]) == ["ingest", "--memory", "4g"]
    assert capsys.readouterr().err == ""


def test_a_command_with_a_former_name(place: Place) -> None:
    ended = place("simulate", "linear-road", "--hours", "0.1", "--mean-life", "5", "--json")
    assert ended.json["runs"]
    assert ended.err == "warning: --mean-life is deprecated; use --mean-lifetime\n"

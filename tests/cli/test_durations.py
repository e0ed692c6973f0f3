"""Durations on the command line: numbers of a unit, and texts such as 30m."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import goffish
from goffish.cli import options
from goffish.cli.inputs import duration
from goffish.definitions import duration_s
from tests.cli.conftest import Place
from tests.commands import assert_refused


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("30m", 1800), ("15min", 900), ("2h", 7200), ("1.5d", 129_600), ("1w", 604_800), (" 2 h ", 7200),
        (".5h", 1800), ("250ms", 0.25), ("7us", 7e-6), ("0h", 0), ("90", None), ("-1h", None), ("2h30m", None),
        ("h", None), ("1 hour", None), ("30M", None), ("nanh", None), ("1e3s", None), ("", None), ("1.2.3s", None),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float | None) -> None:
    """Breaks when a unit is another one: m are minutes everywhere."""
    assert duration_s(text) == (None if seconds is None else pytest.approx(seconds))
    assert duration_s("90", "m") == 5400 and duration_s("90s", "m") == 90


@pytest.mark.parametrize(("unit", "hour"), [("s", 3600), ("m", 60), ("h", 1)])
def test_numbers_keep_their_unit(unit: str, hour: float) -> None:
    parse = duration(unit)["parser"]
    assert parse("1.5") == 1.5 == parse(1.5) and parse("1e1") == 10
    assert [parse(text) for text in ("90m", "1.5h", "5400s", "0.0625d")] == pytest.approx([1.5 * hour] * 4)
    for text in ("abc", "-1", "nan", "inf", "1e400", "", "2h30m", "1 h 5"):
        with pytest.raises(
            typer.BadParameter, match=r"must be a duration such as 90s, 30m, 2h or 1\.5d, or a number of"
        ):
            parse(text)
    with pytest.raises(typer.BadParameter, match=r"of at least 2 [smh].*, not '1.9s'"):
        duration(unit, 2)["parser"]("1.9s")


def test_options_say_their_unit() -> None:
    """Breaks when the help of an option names another unit than its parser takes."""
    places = Path(goffish.__file__).with_name("cli").glob("*.py")
    text = "\n".join(path.read_text() for path in places)
    found = re.findall(r'duration\("(\w)"[^)]*\),\s*help=(?:"([^"]*)"|(\w+))', text)
    assert len(found) == text.count("**duration(") >= 15
    for unit, words, constant in found:
        name = {"s": "seconds", "m": "minutes", "h": "hours"}[unit]
        assert f"numbers are {name}." in (words or getattr(options, constant)), words


def test_a_run_of_a_duration(place: Place) -> None:
    """Breaks when 90m are not 1.5 hours, or a wrong duration is not named in one line."""
    runs = [
        place("simulate", "sc13-diamond", "--hours", hours, "--interval", interval, "--json").json["runs"]
        for hours, interval in (("1.5", "300"), ("90m", "5min"), ("5400s", "300s"))
    ]
    found = [run["reactive-global"] for run in runs]
    assert len(found[0]["intervals"]) == 18
    for one in found:
        one.pop("planning_s_median"), one.pop("planning_s_max"), one.pop("planning_s_most")
    assert found[0] == found[1] == found[2]
    ended = place("simulate", "sc13-diamond", "--hours", "soon")
    assert_refused(ended)
    assert "'--hours': must be a duration such as 90s, 30m, 2h or 1.5d, or a number of hours, not 'soon'" in ended.err

"""``goffish timeseries plot``: every picture from saved tables, and wrong input in one line that leaves nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from goffish.gopher import Result
from goffish.gopher.result import read_table
from tests.cli.conftest import Place
from tests.commands import assert_refused

DAY = 86_400
PNG, PDF = b"\x89PNG", b"%PDF"


@pytest.fixture(scope="module")
def here(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A series of six days from 1 March 2024, tables of it in all formats, and one of arrivals."""
    place = Place(tmp_path_factory.mktemp("plots"))
    rng = np.random.default_rng(5)
    events = np.column_stack((rng.integers(0, 12, (80, 2)), np.sort(rng.integers(0, 6 * DAY, 80)) + 1_709_251_200))
    np.savetxt(place / "events.csv", events, fmt="%d", delimiter=",", header="source,target,timestamp", comments="")
    for command in (
        ("build", "events.csv", "-o", "s", "--window", "1d", "--directed", "-k", "2"),
        ("run", "components", "s", "-o", "components.csv", "--timesteps", "days.csv"),
        ("run", "pagerank", "s", "-o", "ranks.arrow", "--timesteps", "days.parquet"),
        ("run", "communities", "s", "-o", "communities.json"),
        ("paths", "events.csv", "--vertex", str(events[0, 0]), "-o", "arrivals.parquet"),
    ):
        done = place("timeseries", *command)
        assert done.code == 0, done.err
    yield place


WINDOWS = ("--time", "arrival", "--window", DAY, "--origin", 1_709_251_200)


@pytest.mark.parametrize(
    ("picture", "output", "kind"),
    [
        (
            ("values", "ranks.arrow", "--vertices", "1, 2", "--timesteps", "days.parquet", "--unit", "share"),
            "v.svg",
            b"",
        ),
        (("values", "components.csv", "--largest", "--timesteps", "days.csv"), "l.pdf", PDF),
        (("wavefront", "arrivals.parquet", *WINDOWS, "--size", 20), "w.svg", b""),
        (("spread", "arrivals.parquet", *WINDOWS, "--active", "communities.json"), "s.png", PNG),
    ],
)
def test_pictures(here: Place, picture: tuple[str, ...], output: str, kind: bytes) -> None:
    done = here("timeseries", "plot", *picture, "-o", output)
    assert (done.code, done.out, done.err) == (0, f"plot written to {output}\n", "")
    body = (here / output).read_bytes()
    assert body.startswith(kind) and len(body) > 3000
    if picture[0] == "values" and output.endswith(".svg"):
        assert b"<!-- 2024-03-03 -->" in body and b"<!-- rank (share) -->" in body
    if picture[0] == "wavefront":
        assert b"of 20 vertices reached" in body


@pytest.mark.slow
def test_animations(here: Place) -> None:
    steps = ("--timesteps", "days.csv")
    done = here("timeseries", "plot", "animate", "s", "arrivals.parquet", *WINDOWS, *steps, "-o", "a.html")
    assert (done.code, done.out) == (0, "animation: a.html\n"), done.err
    data = _data(here / "a.html")
    assert data["timesteps"] == list(range(6)) and len(data["labels"]) == 12
    assert [told[:16] for told in data["status"]] == [f"from 2024-03-0{day}:" for day in range(1, 7)]
    arrival = read_table(here / "arrivals.parquet")
    day = [None if a is None else (a - 1_709_251_200) // DAY for a in arrival["arrival"].to_pylist()]
    for step in range(6):
        expected = f"{day.count(step)} newly reached, {sum(d is not None and d <= step for d in day)} of 12 vertices"
        assert expected in data["status"][step]
    ranks = ("animate", "s", "ranks.arrow", "--column", "rank", "--seconds", "0.2", "--title", "Ranks", "--no-labels")
    assert here("timeseries", "plot", *ranks, "-o", "a.gif").code == 0
    with Image.open(here / "a.gif") as picture:
        assert (picture.format, picture.n_frames, picture.info["duration"]) == ("GIF", 6, 200)


def test_animation_of_what_is_near(here: Place) -> None:
    """A file instead of the store, too large to be drawn whole, with places for its vertices."""
    path = np.arange(2500)
    np.savetxt(here / "path.txt", np.column_stack((path[:-1], path[1:])), fmt="%d")
    for name, columns in (("times.csv", {"timestep": path}), ("places.csv", {"x": path, "y": path % 7})):
        Result("t", pa.table({"vertex": path, **columns})).write(here / name)
    command = ("timeseries", "plot", "animate", "path.txt", "times.csv", "-o", "near.html")
    refused = here(*command)
    assert_refused(refused)
    assert "2,500 vertices" in refused.err and "--around" in refused.err and not (here / "near.html").exists()
    done = here(*command, "--around", "40", "--hops", "3", "--coordinates", "places.csv", "--undirected")
    assert done.code == 0, done.err
    data = _data(here / "near.html")
    assert (data["labels"], data["timesteps"]) == ([str(v) for v in range(37, 44)], list(range(37, 44)))


def _data(path: Path) -> Any:
    found = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("values", "none.csv", "-o", "x.png"), "none.csv: no such file"),
        (("values", "events.csv", "-o", "x.png"), "has no column 'timestep'; available: source, target, timestamp"),
        (("values", "ranks.arrow", "-o", "x.jpg"), "the suffix must be one of .png, .svg, .pdf"),
        (("values", "ranks.arrow", "--vertices", "1", "--largest", "-o", "x.png"), "--vertices exclude each other"),
        (("values", "ranks.arrow", "--timesteps", "events.csv", "-o", "x.png"), "events.csv: has no column 'timestep'"),
        (("wavefront", "arrivals.parquet", "--origin", "5", "-o", "x.png"), "--origin requires --window"),
        (
            ("spread", "arrivals.parquet", *WINDOWS[:3], 3600, "--timesteps", "days.csv", "-o", "x.png"),
            "give the table of timesteps of the same run",
        ),
        (("spread", "ranks.arrow", "--active-time", "at", "-o", "x.png"), "--active-time requires --active"),
        (("animate", "s", "ranks.arrow", "--around", "99", "-o", "x.gif"), "unknown vertex 99"),
        (("picture", "ranks.arrow", "-o", "x.gif"), "unknown plot 'picture': choose one of values, wavefront"),
    ],
)  # fmt: skip
def test_wrong_input(here: Place, command: tuple[str, ...], told: str) -> None:
    before = here.files()
    ended = here("timeseries", "plot", *command)
    assert_refused(ended)
    assert told in ended.err
    assert here.files() == before

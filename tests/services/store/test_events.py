"""Kinds of events: those that are documented and no others, and the few of many that a picture is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sa

from goffish.services.store.database import open_database
from goffish.services.store.records import EVENT_KINDS, OFTEN
from goffish.services.store.spec import JobSpec
from goffish.services.store.store import Jobs
from goffish.services.store.tables import EventRow

ROOT = Path(__file__).parents[3]
SPEC = JobSpec.model_validate({"graph": {"algorithm": "bfs", "input_uri": "g"}})


@pytest.fixture
def jobs(url: str) -> Iterator[Jobs]:
    engine = open_database(url)
    yield Jobs(engine, "here")
    engine.dispose()


def test_the_documentation_has_the_kinds_that_there_are() -> None:
    """Breaks when a kind, or a key of its details, is added, renamed or removed on one side only."""
    page = (ROOT / "docs" / "guides" / "service-policies.md").read_text("utf-8")
    table = page[page.index("| kind | meaning | keys of `details` |") :].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert {kind.strip("`"): (what, keys) for kind, what, keys in rows} == EVENT_KINDS
    proto = (ROOT / "proto" / "goffish" / "v1" / "jobs.proto").read_text("utf-8")
    told = re.search(r"// (submitted, .*)\.\n  string kind = 3;", proto)
    assert told is not None and re.split(r", | or ", told[1]) == list(EVENT_KINDS)


def test_an_event_of_no_kind_is_not_written(tmp_path: Path) -> None:
    jobs = Jobs(open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}"), "here")
    job = jobs.submit(SPEC, "ann")[0]
    jobs.claim()
    with pytest.raises(AssertionError, match="no kind of event 'lost machine'"):
        jobs.note(jobs.get(job.id), "lost machine")
    assert [event.kind for event in jobs.events(job.id)] == ["submitted", "state"]


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("progress", "cost"), ("progress", "checkpoint", "cost", "progress")])
def test_one_of_many(jobs: Jobs, kinds: tuple[str, ...]) -> None:
    """Breaks when a kind that takes turns with others is left out altogether, or one that comes rarely at all."""
    job, count = jobs.submit(SPEC, "ann")[0], 20_000
    made = [
        {"job": job.number, "number": n, "time": 0.0, "state": "queued", "text": "",
         "kind": "lost" if n % 5000 == 7 else kinds[n % len(kinds)]}
        for n in range(2, count)
    ]  # fmt: skip
    with jobs._writes.begin() as connection:
        connection.execute(sa.insert(EventRow), made)
    assert len(jobs.events(job.id, 0, count)) == count - 1
    for every in (2, 8, 64):
        found = jobs.events(job.id, 0, count, every)
        numbers = [event.number for event in found]
        assert numbers == sorted(set(numbers)) and numbers[0] == 1
        assert [n for n, event in zip(numbers, found, strict=True) if event.kind == "lost"] == [7, 5007, 10007, 15007]
        for kind in set(kinds):
            held = sum(event.kind == kind for event in found)
            there = sum(one["kind"] == kind for one in made)
            assert held == pytest.approx(there / every, rel=0.1), (kind, every)
        often = [n for n, event in zip(numbers, found, strict=True) if event.kind in OFTEN]
        assert max(b - a for a, b in pairwise(often)) <= 4 * every
        assert jobs.events(job.id, numbers[50], 20, every) == found[51:71]

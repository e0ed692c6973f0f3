"""The journal of a calibration: what a later session goes on from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from goffish.errors import InputError, StoreError
from goffish.scheduling.estimate.calibration import Calibration, this_machine
from goffish.scheduling.estimate.measuring import CalibrationPlan, Journal
from tests.scheduling.estimate import job_cases as cases


def test_a_journal_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Breaks when a run is lost, a line that was cut short counts, or a journal is resumed that should not be."""
    path, (one, two, three, *_) = tmp_path / "sub" / "c.runs", cases.exact_runs()
    journal = Journal(path, resume=True)
    journal.add(one)
    journal.add(two)
    with path.open("a") as stream:
        stream.write('{"graph": "cut sho')
    assert Journal(path, resume=True).runs == [one, two]
    older = Calibration(this_machine(), [cases.times(one, 5.0), three])
    assert Journal(path, True, older).runs == [three, one, two]
    assert Journal(path, True, Calibration({}, [])).runs == [three, one, two]
    assert Journal(path, False, older).runs == []
    assert path.read_text() == json.dumps(this_machine()) + "\n"


def test_journals_that_cannot_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "c.runs"
    path.write_text('{"processor": "abacus"}\n')
    with pytest.raises(InputError, match="another machine"):
        Journal(path, resume=True)
    path.write_text("nonsense\n")
    with pytest.raises(StoreError, match="damaged journal"):
        Journal(path, resume=True)
    path.write_text(json.dumps(this_machine()) + '\n{"graph": "g"}\n')
    with pytest.raises(StoreError, match="damaged calibration"):
        Journal(path, resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        Journal(tmp_path / "file" / "c.runs", resume=False)


def test_a_plan_knows_all_its_runs() -> None:
    plan = CalibrationPlan(("bfs", "cores"), ("local",), "tiny")
    assert len(plan.keys) == 2 * 9
    assert ("cores", "local", "rmat-4000") in plan.keys

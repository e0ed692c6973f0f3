"""The walk-forward evaluation: what it scales by, and what it concludes."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.holdout import rates
from experiments.holdout.rates import BUNDLED, Case, Outcome, better_and_worse, gain, rates_of, summarize

BASE = Outcome("linear-road", "spikes", 100, "plasticc", 0.8, 1.0, 10.0, 0.5, True, 3)


def with_log(tmp_path: Path, seconds: np.ndarray) -> None:
    (tmp_path / "request-rates").mkdir(exist_ok=True)
    text = " ".join(map(str, seconds.astype(int))).encode()
    with tarfile.open(tmp_path / "request-rates" / "other.tar.bz2", "w:bz2") as archive:
        member = tarfile.TarInfo("log.txt")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))


def test_rates_are_scaled_by_the_day_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a case uses its own mean, which is not available when it begins: 2 a second on the first day, 6 on the
    second, so three times the expected rate.
    """
    with_log(tmp_path, np.repeat([2, 6, 100], 86_400))
    monkeypatch.setenv(rates.DATA, str(tmp_path))
    rates.read_log.cache_clear()
    flow, found = rates_of(Case("linear-road", "other", 2))
    assert found == pytest.approx(np.tile(3.0 * flow.rates, (144, 1)))
    every = rates.cases(["linear-road"], 30)
    assert [case.number for case in every if case.source == "other"] == [2, 3]
    rates.read_log.cache_clear()


def test_only_unseen_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a case that the configurations were developed on is part of the evaluation."""
    monkeypatch.delenv(rates.DATA, raising=False)
    every = rates.cases(["linear-road", "sc13-diamond"], 100)
    assert all(case.number >= 74 for case in every if case.source == BUNDLED)
    assert all(case.number >= 200 for case in every if case.source != BUNDLED)
    assert len(every) == len(set(every)) == 2 * (2 * 20 + 5 * 4)


def test_the_better_run_meets_the_goal() -> None:
    """Else a policy is the better one as it saved the money for the throughput."""
    cheap = replace(BASE, profit=0.9, met=False)
    assert better_and_worse(BASE, cheap) == (BASE, cheap)
    assert better_and_worse(BASE, replace(cheap, met=True))[0].profit == 0.9
    assert gain(replace(BASE, profit=-0.2), replace(BASE, profit=-0.4)) == pytest.approx(0.5)


def test_gains_of_all_cases() -> None:
    """By hand: auto equals the better policy in one case, and is 10 % below it in the other."""
    profits = {"auto": (0.5, 0.54), "plasticc": (0.5, 0.6), "reactive-global": (0.4, 0.3)}
    outcomes = [
        replace(BASE, policy=label, number=number, profit=profits.get(label, (0.2, 0.2))[number])
        for number in (0, 1)
        for label in rates.POLICIES
    ]
    found = summarize(outcomes)
    better = found["auto over the better of reactive-global and plasticc"]
    assert (better["mean"], better["worst"]) == (pytest.approx(-0.05), pytest.approx(-0.1))
    assert found["auto over the worse of the two"]["mean"] == pytest.approx((0.25 + 0.8) / 2)
    assert found["plasticc over reactive-global"]["won"] == 1.0

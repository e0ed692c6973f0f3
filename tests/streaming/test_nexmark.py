"""The flows of the Nexmark benchmark against pandas."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import goffish as gf

_FOLDER = Path(__file__).parents[2] / "benchmarks"
_COUNT, _PER_SECOND = 8000, 200  # 40 s: four windows of 10 s
Frame = Any


@pytest.fixture(scope="module")
def nexmark() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("_nexmark", _FOLDER / "_nexmark.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_nexmark"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["_nexmark"]


@pytest.fixture(scope="module")
def folder(nexmark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("nexmark")
    nexmark.write(made, _COUNT, _PER_SECOND)
    return made


@pytest.fixture(scope="module")
def frames(nexmark: Any) -> dict[str, Frame]:
    return {name: table.to_pandas() for name, table in nexmark.events(_COUNT, _PER_SECOND).items()}


def _q0(person: Frame, auction: Frame, bid: Frame) -> Frame:
    return bid[["auction", "bidder", "price", "dateTime", "extra"]]


def _q1(person: Frame, auction: Frame, bid: Frame) -> Frame:
    return _q0(person, auction, bid).assign(price=bid.price * 0.908)


def _q2(person: Frame, auction: Frame, bid: Frame) -> Frame:
    return bid[bid.auction % 123 == 0][["auction", "price"]]


def _q3(person: Frame, auction: Frame, bid: Frame) -> Frame:
    sellers = person[person.state.isin(["OR", "ID", "CA"])].rename(columns={"id": "seller"})
    both = auction[auction.category == 10][["id", "seller"]].merge(sellers[["seller", "name", "city", "state"]])
    return both[["name", "city", "state", "id"]]


def _q5(person: Frame, auction: Frame, bid: Frame) -> Frame:
    starts = bid.dateTime.dt.floor("2s")
    back = [bid[["auction"]].assign(start=starts - pd.Timedelta(seconds=2 * n)) for n in range(5)]
    counts = pd.concat(back).groupby(["start", "auction"]).size().rename("num").reset_index()
    return counts[counts.num == counts.groupby("start").num.transform("max")][["auction", "num"]]


def _q7(person: Frame, auction: Frame, bid: Frame) -> Frame:
    most = bid.groupby(bid.dateTime.dt.floor("10s")).price.transform("max")
    return bid[bid.price == most][["auction", "price", "bidder", "dateTime"]]


def _q8(person: Frame, auction: Frame, bid: Frame) -> Frame:
    users = person[["id", "name"]].assign(starttime=person.dateTime.dt.floor("10s"))
    sellers = pd.DataFrame({"id": auction.seller, "starttime": auction.dateTime.dt.floor("10s")})
    return users.merge(sellers).drop_duplicates()[["id", "name", "starttime"]]


@pytest.mark.parametrize("oracle", [_q0, _q1, _q2, _q3, _q5, _q7, _q8], ids=lambda one: one.__name__[1:])
def test_queries(oracle: Callable[..., Frame], nexmark: Any, folder: Path, frames: dict[str, Frame]) -> None:
    query, seen = oracle.__name__[1:], gf.stream.collect()
    nexmark.flow_of(query, folder, seen).run(progress=False)
    expected = oracle(frames["person"], frames["auction"], frames["bid"])
    assert len(expected)
    found = pd.DataFrame(seen.values)[list(nexmark.QUERIES[query])]
    for name in found.columns.intersection(["dateTime", "starttime"]):
        found[name] = pd.to_datetime(found[name]).dt.tz_localize(None).astype("datetime64[ms]")
    by = list(expected.columns)
    pd.testing.assert_frame_equal(
        found.sort_values(by, ignore_index=True), expected.sort_values(by, ignore_index=True), check_dtype=False
    )


def test_events(frames: dict[str, Frame]) -> None:
    person, auction, bid = (frames[name] for name in ("person", "auction", "bid"))
    assert (len(person), len(auction), len(bid)) == (_COUNT // 50, 3 * _COUNT // 50, 46 * _COUNT // 50)
    assert person.id.tolist() == list(range(1000, 1000 + len(person)))
    assert auction.id.tolist() == list(range(1000, 1000 + len(auction)))
    ends = [frame.dateTime.iloc[-1] - frame.dateTime.iloc[0] for frame in (person, auction, bid)]
    assert all(pd.Timedelta(seconds=39) < end < pd.Timedelta(seconds=40) for end in ends)
    assert all(frame.dateTime.is_monotonic_increasing for frame in (person, auction, bid))
    popular = np.mean(bid.auction % 100 == 0)  # ids begin with 1000
    assert 0.49 < popular < 0.53
    assert bid.price.between(100, 100_000_000).all() and auction.category.isin(range(10, 15)).all()

"""Spot machines of a catalogue: their prices over time, when they are taken away, and what they cost."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.cloud.prices import PROHIBITIVE
from goffish.cloud.providers import LocalProvider, Request, SimulatedProvider
from goffish.cloud.spot_market import SpotMarket
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.policies import make_policy, policy_names
from goffish.scheduling.simulate.run import simulate
from tests.cloud.children import child_in

#: Seconds since the beginning and price of an hour.
CHANGES = [(0, 0.1), (1800, 0.2), (4000, 0.3), (9000, 1.5), (9500, 0.1), (100_000, 0.1)]


def trace_file(folder: Path, changes: list[tuple[float, float]], name: str = "prices.csv") -> str:
    rows = [f"{np.datetime64('2015-03-01') + np.timedelta64(int(at), 's')},{price}" for at, price in changes]
    path = folder / name
    path.write_text("timestamp_utc,price_usd_per_hour\n" + "\n".join(rows) + "\n")
    return str(path)


def catalogue(folder: Path, changes: list[tuple[float, float]] = CHANGES, **fields: Any) -> Catalogue:
    spot = {"name": "spot", "cores": 2, "price_per_hour": 1.0, "market": "spot", "prices": trace_file(folder, changes)}
    owned = {"name": "owned", "cores": 2, "price_per_hour": 1.0}
    return read_catalogue({"machine_types": [owned, spot | fields.pop("spot", {})], "startup_s": 60} | fields)


def one(market: SpotMarket, start: float, stop: float, taken: bool = False) -> float:
    found = market.rents(np.array([1]), np.array([start]), np.array([stop]), np.array([taken]))
    return float(found[0])


def test_each_quantum_costs_the_price_at_its_start(tmp_path: Path) -> None:
    """Breaks when an hour is charged at another moment's price; sums done by hand."""
    market = SpotMarket(catalogue(tmp_path))
    assert one(market, 0, 1) == pytest.approx(0.1)
    assert one(market, 0, 3601) == pytest.approx(0.1 + 0.2)  # the second hour begins at 3600, before the change at 4000
    assert one(market, 500, 4101) == pytest.approx(0.1 + 0.3)
    assert one(market, 0, 0) == 0.0
    by_minute = SpotMarket(catalogue(tmp_path, billing={"quantum_s": 60}))
    assert one(by_minute, 0, 3600) == pytest.approx((30 * 0.1 + 30 * 0.2) / 60)


@pytest.mark.parametrize(
    ("rule", "early", "late"),
    [("paid", 0.2 + 1.5, 0.1 + 0.2 + 0.3), ("free", 0.2, 0.1 + 0.2), ("first-hour-free", 0.2 + 1.5, 0.1 + 0.2 + 0.3)],
)
def test_what_the_provider_cuts_off(tmp_path: Path, rule: str, early: float, late: float) -> None:
    """Breaks when a rule for the broken quantum is another one."""
    market = SpotMarket(catalogue(tmp_path, billing={"quantum_s": 3600, "cut_off": rule}))
    assert one(market, 0, 9000, taken=True) == pytest.approx(late)
    assert one(market, 0, 9000) == pytest.approx(0.1 + 0.2 + 0.3)
    assert one(market, 5400, 9001, taken=True) == pytest.approx(early + 0.1)
    assert one(market, 8000, 9000, taken=True) == pytest.approx(0.3 if rule == "paid" else 0.0)


@given(
    st.floats(0, 20_000), st.floats(0, 20_000), st.sampled_from([1.0, 60.0, 3600.0]),
    st.lists(st.tuples(st.integers(1, 30_000), st.floats(0.01, 5)), max_size=6, unique_by=lambda c: c[0]),
)  # fmt: skip
def test_rents_are_sums_over_quanta(
    tmp_path_factory: pytest.TempPathFactory, start: float, length: float, quantum: float, extra: list[Any]
) -> None:
    """Breaks when the sum over periods of equal prices is not the sum over quanta; one by one is the oracle."""
    changes = [(0, 0.7), *sorted((at, round(price, 6)) for at, price in extra), (90_000, 0.7)]
    folder = tmp_path_factory.mktemp("prices")
    market = SpotMarket(catalogue(folder, changes, billing={"quantum_s": quantum}))
    times, prices = zip(*changes, strict=True)
    starts = [start + k * quantum for k in range(int(np.ceil((length - 1e-6) / quantum)) if length > 1e-6 else 0)]
    expected = sum(prices[np.searchsorted(times, at, "right") - 1] for at in starts) * quantum / 3600
    assert one(market, start, start + length) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_when_a_machine_is_taken_and_what_is_to_be_had(tmp_path: Path) -> None:
    """Breaks when a bid does not decide, or policies see prices of another moment."""
    market = SpotMarket(catalogue(tmp_path, spot={"bid": 0.25}))
    assert market.taken_s(1, 0) == 4000 and market.taken_s(1, 5000) == 5000 and market.taken_s(1, 9600) == np.inf
    assert market.taken_s(0, 0) == np.inf
    assert SpotMarket(catalogue(tmp_path)).taken_s(1, 0) == 9000  # the default bid is the price on demand
    now = market.priced(2000)
    assert now.prices.tolist() == [1.0, 0.2] and now.available.all() and now.largest == 1
    later = market.priced(4000)
    assert later.prices.tolist() == [1.0, PROHIBITIVE] and later.available.tolist() == [True, False]
    assert later.largest == 0 and later.by_power == [0]
    assert market.priced(2500) is now


def test_wrong_catalogues_are_refused(tmp_path: Path) -> None:
    """Breaks when a run could end beyond its prices, or a spot machine has none."""
    with pytest.raises(
        InputError, match=r"catalogue: machine_types\[0\] = \{'name': 'spot', 'cores': 1, 'price_per_hour': 1,"
    ):
        read_catalogue({"machine_types": [{"name": "spot", "cores": 1, "price_per_hour": 1, "market": "spot"}]})
    with pytest.raises(InputError, match="a: bid: requires market: spot"):
        read_catalogue({"machine_types": [{"name": "a", "cores": 1, "price_per_hour": 1, "bid": 1}]})
    with pytest.raises(InputError, match=r"reach from 2015-03-01 00:00 to 2015-03-02 03:46, not from .* for 28 hours"):
        SpotMarket(catalogue(tmp_path), length_s=100_800)
    with pytest.raises(
        InputError, match=r"prices: no file 'nowhere', .* or here, and no bundled trace of that name \(us-east-1a"
    ):
        SpotMarket(catalogue(tmp_path, spot={"prices": "nowhere"}))


def test_price_files_lie_beside_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a catalogue works only where it lies, or its own files give way to those of the current folder."""
    one = {"name": "spot", "cores": 1, "price_per_hour": 1, "market": "spot", "prices": "p/r3.csv"}
    (tmp_path / "far/p").mkdir(parents=True)
    (tmp_path / "here/p").mkdir(parents=True)
    path = tmp_path / "far/c.json"
    path.write_text(json.dumps({"machine_types": [one]}))
    (tmp_path / "here/p/r3.csv").touch()
    monkeypatch.chdir(tmp_path / "here")
    given: Any
    for given in (path, str(path), "../far/c.json", {"machine_types": [one]}):
        assert read_catalogue(given).classes[0].prices == "p/r3.csv"
    (tmp_path / "far/p/r3.csv").touch()
    for given in (path, str(path), "../far/c.json"):
        found = read_catalogue(given).classes[0].prices
        assert found is not None and Path(found).samefile(tmp_path / "far/p/r3.csv") and Path(found).is_absolute()
    assert read_catalogue({"machine_types": [one]}).classes[0].prices == "p/r3.csv"
    assert read_catalogue("ec2-2015-spot").classes == read_catalogue(read_catalogue("ec2-2015-spot")).classes


def flow() -> Any:
    return compile_flow(read_dataflow("sc13-diamond"))


@pytest.mark.parametrize("engine", ["fluid", "events"])
def test_a_run_loses_its_spot_machines_and_replaces_them(tmp_path: Path, engine: Any) -> None:
    """Breaks when the price does not take machines away, they are rented where they are not granted, or cost is not
    that of the table of machines, added up by hand.
    """
    machines = catalogue(tmp_path, billing={"quantum_s": 3600, "cut_off": "free"})
    rates = np.tile(flow().rates, (60, 1))
    found = simulate(flow(), machines, make_policy("reactive-global"), rates, engine=engine, interval_s=300)
    table = found.machines.to_pandas()
    spot = table[table["machine_type"] == "spot"]
    assert spot["taken"].any() and (spot[spot["taken"]]["stop_s"] == 9000).all()
    assert not ((spot["start_s"] >= 9000) & (spot["start_s"] < 9500)).any()
    assert {"take"} <= set(found.events["event"].to_pylist())
    replaced = table[(table["machine_type"] == "owned") & (table["start_s"] >= 9000)]
    assert len(replaced)
    end, times, prices = 60 * 300, [c[0] for c in CHANGES], [c[1] for c in CHANGES]
    total = 0.0
    for row in table.itertuples():
        stop = end if np.isnan(row.stop_s) else row.stop_s
        hours = int(np.ceil((stop - row.start_s) / 3600 - 1e-9)) - bool(row.taken)
        price = (lambda at: 1.0) if row[2] == "owned" else lambda at: prices[np.searchsorted(times, at, "right") - 1]
        total += sum(price(row.start_s + 3600 * k) for k in range(hours))
    assert found.summary.cost == pytest.approx(total) == pytest.approx(table["rent"].sum())


#: Some policies take seconds, the genetic algorithm as long as all others together.
ADAPTING = [
    pytest.param(
        name,
        marks=pytest.mark.slow if name not in ("reactive-global", "plasticc", "ds2", "latency-aware", "btu") else (),
    )
    for name in policy_names()
    if not name.startswith("static-")
]


@pytest.mark.parametrize("policy", ADAPTING)
def test_every_policy_lives_with_spot_machines(tmp_path: Path, policy: str) -> None:
    """Breaks when a policy asks for what is not to be had although something else is."""
    machines = catalogue(tmp_path, [(0, 0.1), (900, 2.0), (1800, 0.2), (100_000, 0.1)])
    found = simulate(flow(), machines, make_policy(policy), np.tile(flow().rates, (10, 1)), interval_s=300)
    table = found.machines.to_pandas()
    refused = table[(table["machine_type"] == "spot") & (table["start_s"] >= 900) & (table["start_s"] < 1800)]
    assert refused.empty
    # All are on spot machines at first, and have lost and replaced them by the end.
    assert (table["machine_type"] == "spot").any() and found.intervals["omega"][-1].as_py() > 0


def test_providers_take_spot_machines_away(tmp_path: Path) -> None:
    """Breaks when a provider keeps a machine whose price exceeds its bid; the local one kills its processes."""
    machines = catalogue(tmp_path, [(0, 0.1), (2, 2.0), (100_000, 2.0)], billing={"quantum_s": 1}, startup_s=0)
    kept, lost = (one.name for one in machines.classes)

    def request(name: str, market: Any) -> Request:
        return Request(machine_type=name, market=market, command=(sys.executable, "-c", "while True: 1"), token=name)

    async def run() -> None:
        simulated = SimulatedProvider(machines, lambda command: 50.0)
        await simulated.request(request(kept, "on-demand"))
        await simulated.request(request(lost, "spot"))
        simulated.advance(1)
        assert [one.state for one in await simulated.machines({})] == ["running", "running"]
        simulated.advance(9)
        found = await simulated.machines({})
        assert [(one.state, one.ended_s) for one in found] == [("running", None), ("interrupted", 2.0)]
        assert await simulated.costs(found) == [pytest.approx(10 / 3600), pytest.approx(2 * 0.1 / 3600)]
        local = LocalProvider(machines, folder=tmp_path / "local")
        try:
            await local.request(request(lost, "spot"))
            agent = child_in(tmp_path)
            end = time.monotonic() + 20
            while (await local.machines({}))[0].state != "interrupted":
                assert time.monotonic() < end, "the machine was not taken away"
                await asyncio.sleep(0.05)
            assert 0 < (await local.costs(await local.machines({})))[0] < 0.001
            assert not agent.is_running()
        finally:
            await local.close()

    asyncio.run(run())

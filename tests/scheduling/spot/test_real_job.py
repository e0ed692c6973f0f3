"""A real graph job on machines that are taken away: decisions of a table, processes of this computer, the engine's
checkpoints.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import goffish as gf
from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.cloud.providers import LocalProvider, Machine, Request
from goffish.scheduling.spot.job import PROCESS, RELEASE, RUNNING, START, Status, submitted
from goffish.scheduling.spot.table import Table, build_table
from tests.scheduling.spot.spot_cases import tiny

pytestmark = pytest.mark.slow

#: Seconds of this test for a slot of the model, and slots of work that the job is said to be.
SLOT_S, WORK, SLOTS = 4.0, 5, 24


async def follow(
    cloud: Catalogue, table: Table, command: list[str], folder: Path, taken_at: float
) -> tuple[bool, list[tuple[bool, bool]]]:
    """Carry out the decisions of a table; return whether the job is done, and its machines: spot, resumed."""
    provider, market = LocalProvider(cloud, folder=folder), table.market
    status, held, runs = submitted(WORK), None, list[tuple[bool, bool]]()
    began = time.monotonic()

    async def start(spot: bool) -> Machine:
        resume = ["--resume"] if any((folder / "saved").glob("*")) else []
        runs.append((spot, bool(resume)))
        return await provider.request(
            Request(
                machine_type="tiny", market="spot" if spot else "on-demand", max_price=0.26 if spot else None,
                command=[*command, *resume], token=str(len(runs)),
            )
        )  # fmt: skip

    async def state(machine: Machine) -> Machine:
        return next(one for one in await provider.machines({}) if one.id == machine.id)

    try:
        for left in range(SLOTS, 0, -1):
            price = 0.02 if time.monotonic() - began < taken_at else 0.5
            if held is not None and (await state(held)).state == "interrupted":
                status, held = submitted(status.saved), None
            action = table.decide(left, status, [price])
            if action == RELEASE:
                assert held is not None
                await provider.release([held.id])
                status, held = submitted(status.saved), None
                action = table.decide(left, status, [price])
            if action >= START:
                held = await start(bool(market.rules.spot[action - START]))
                status = Status(RUNNING, status.saved, status.saved, action - START)
            await asyncio.sleep(SLOT_S)
            if held is not None:
                if (await state(held)).state == "finished":
                    return (await state(held)).exit_code == 0, runs
                if action == PROCESS:
                    # The engine saves by itself every few supersteps: what is done is saved.
                    work = max(1, status.work - 1)
                    status = Status(RUNNING, work, work, status.choice, (status.hour + 1) % 2)
        # On a busy machine the job takes more slots than it has.
        end = time.monotonic() + 600
        while held is not None and not (await state(held)).ended:
            assert time.monotonic() < end, "the job did not end"
            await asyncio.sleep(0.5)
        return held is not None and (await state(held)).exit_code == 0, runs
    finally:
        await provider.close()


def test_a_job_is_done_although_its_machine_is_taken_away(tmp_path: Path) -> None:
    """Breaks when a machine outlives its price, a job does not resume from the engine's checkpoint, or the answer is
    another one.
    """
    rng = np.random.default_rng(1)
    graph = gf.from_edges(rng.integers(0, 200_000, 1_500_000), rng.integers(0, 200_000, 1_500_000))
    gf.partition(graph, parts=4, method="hash").save(tmp_path / "store")
    begin = np.datetime64("2015-03-01T00:00:00")
    taken_at = 9
    rows = [f"{begin + np.timedelta64(at, 's')},{price}" for at, price in ((0, 0.02), (taken_at, 0.5), (9000, 0.5))]
    (tmp_path / "prices.csv").write_text("timestamp_utc,price_usd_per_hour\n" + "\n".join(rows) + "\n")
    cloud = read_catalogue({
        "startup_s": 0, "billing": {"quantum_s": 1},
        "machine_types": [
            {"name": "tiny", "cores": 2, "price_per_hour": 0.13, "market": "spot",
             "prices": str(tmp_path / "prices.csv")},
        ],
    })  # fmt: skip
    options = ["--engine", "local", "--checkpoint-every", "20", "--supersteps", "400"]
    command = [
        sys.executable,
        "-c",
        "from goffish.cli import main; main()",
        "run",
        "pagerank",
        str(tmp_path / "store"),
        *options,
    ]
    checkpoints = ["--checkpoint-dir", str(tmp_path / "saved"), "-o", str(tmp_path / "answer.parquet")]
    table = build_table(tiny(), WORK, SLOTS)
    done, runs = asyncio.run(follow(cloud, table, [*command, *checkpoints], tmp_path, taken_at))
    assert done, runs
    assert runs[0] == (True, False) and runs[-1][1], runs
    expected = gf.pagerank(graph, tolerance=1e-12).table.sort_by("vertex")
    found = pq.read_table(tmp_path / "answer.parquet").sort_by("vertex")
    assert np.allclose(found["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-7, atol=0)

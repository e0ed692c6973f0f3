"""A real graph job on machines that are taken away: decisions of a table, processes of this computer, the engine's
checkpoints.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import goffish as gf
from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers import LocalProvider, Task
from goffish.scheduling.spot.job import PROCESS, RELEASE, RUNNING, START, Status, submitted
from goffish.scheduling.spot.table import build_table
from tests.scheduling.spot.spot_cases import tiny

pytestmark = pytest.mark.slow

#: Seconds of this test for a slot of the model, and slots of work that the job is said to be.
SLOT_S, WORK, SLOTS = 4.0, 5, 24


def wait(provider: LocalProvider, machine: int) -> None:
    end = time.monotonic() + 30
    while provider.states()[machine] == "starting":
        assert time.monotonic() < end, "the machine did not start"
        time.sleep(0.05)


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
            {"name": "owned", "cores": 2, "price_per_hour": 0.13},
            {"name": "tiny", "cores": 2, "price_per_hour": 0.13, "market": "spot", "bid": 0.26,
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
    market = tiny()
    table = build_table(market, WORK, SLOTS)
    done, held, task, runs = False, -1, None, []
    status, began = submitted(WORK), time.monotonic()
    with LocalProvider(cloud, folder=tmp_path) as provider:
        for left in range(SLOTS, 0, -1):
            price = 0.02 if time.monotonic() - began < taken_at else 0.5
            if held >= 0 and provider.states()[held] == "failed":
                status, held, task = submitted(status.saved), -1, None
            action = table.decide(left, status, [price])
            if action == RELEASE:
                provider.stop(held)
                status, held, task = submitted(status.saved), -1, None
                action = table.decide(left, status, [price])
            if action >= START:
                spot = bool(market.rules.spot[action - START])
                held = provider.start(1 if spot else 0)
                wait(provider, held)
                resume = ["--resume"] if any((tmp_path / "saved").glob("*")) else []
                task = provider.submit(held, [*command, *checkpoints, *resume])
                runs.append((spot, bool(resume)))
                status = Status(RUNNING, status.saved, status.saved, action - START)
            time.sleep(SLOT_S)
            if task is not None and held >= 0:
                done = provider.exit_code(task) == 0
                if action == PROCESS:
                    # The engine saves by itself every few supersteps: what is done is saved.
                    work = max(1, status.work - 1)
                    status = Status(RUNNING, work, work, status.choice, (status.hour + 1) % 2)
            if done:
                break
        # On a busy machine the job takes more slots than it has.
        end = time.monotonic() + 600
        while task is not None and not done and provider.exit_code(task) in (None, 0):
            done = provider.exit_code(task) == 0
            assert time.monotonic() < end, "the job did not end"
            time.sleep(0.5)
    assert done, runs
    assert runs[0] == (True, False) and runs[-1][1], runs
    assert isinstance(task, Task)
    expected = gf.pagerank(graph, tolerance=1e-12).table.sort_by("vertex")
    found = pq.read_table(tmp_path / "answer.parquet").sort_by("vertex")
    assert np.allclose(found["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-7, atol=0)

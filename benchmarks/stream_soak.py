"""A flow that runs for long: ``python benchmarks/stream_soak.py``.

Workers read numbers, count them by key, sum them in windows, and write what comes out, with copies on other workers and
checkpoints in a folder. The memory of the workers is printed for each tenth of the records; in the end, the results are
compared with those of arithmetic.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import _harness
import numpy as np
import pyarrow as pa

import goffish as gf
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.topology import Topology

_KEYS, _PER_SECOND, _WINDOW = 1000, 1_000_000, 10
#: Records of an Arrow batch.
_BATCH = 1000


def batch(number: int) -> pa.RecordBatch:
    """Return the records of a batch: each has a number that follows from its place."""
    first = number * _BATCH
    places = np.arange(first, first + _BATCH)
    return pa.record_batch(
        {"key": places % _KEYS, "n": places % 7, "at": pa.array(places * 1_000_000 // _PER_SECOND, pa.timestamp("us"))}
    )


def flow(records: int, workers: int, out: Path) -> Topology:
    """Return a flow that sums numbers by key in windows of event time, and by key."""
    made = gf.stream.Flow("soak")
    count = records // _BATCH // workers
    parts = [
        made.source(gf.stream.generate(lambda number, n=n: number * workers + n, count=count), name=f"numbers-{n}")
        for n in range(workers)
    ]
    numbers = parts[0].union(*parts[1:]) if workers > 1 else parts[0]
    rows = numbers.map_batches(lambda given: pa.concat_batches([batch(n) for n in given["value"].to_pylist()]))
    keyed = rows.event_time("at", lateness="1s").key_by("key")
    keyed.window(gf.stream.tumbling(f"{_WINDOW}s")).sum("n", name="sums").sink(gf.stream.write_json_lines(out))
    return made.check()


def resident(pid: int) -> float:
    """Return the memory of a process in MiB."""
    text = Path(f"/proc/{pid}/statm").read_text().split()
    return int(text[1]) * 4096 / (1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    print(_harness.machine_line(("pyarrow",)))
    print()
    print("| records | records/s | memory of the workers, MiB |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        cluster = Cluster(flow(given.records, given.workers, out), given.workers, checkpoint=Path(name) / "saved")
        due, begun = given.records // 10, time.monotonic()
        try:
            while not cluster.finished:
                cluster.poll()
                received = cluster.metrics()["sums"].received
                if received >= due:
                    used = ", ".join(f"{resident(pid):,.0f}" for pid in cluster.pids.values())
                    print(f"| {received:,} | {received / (time.monotonic() - begun):,.0f} | {used} |", flush=True)
                    due += given.records // 10
        finally:
            cluster.close()
        size = _PER_SECOND * _WINDOW
        expected = np.zeros((given.records // size + 1, _KEYS), np.int64)
        for window in range(len(expected)):
            places = np.arange(window * size, min((window + 1) * size, given.records))
            expected[window] = np.bincount(places % _KEYS, places % 7, _KEYS)
        found = np.zeros_like(expected)
        for path in out.glob("*.jsonl"):
            for text in path.read_text().splitlines():
                row = json.loads(text)
                window = round(np.datetime64(row["window_start"].removesuffix("+00:00"), "s").astype(int) / _WINDOW)
                found[window, row["key"]] += row["n"]
        print(f"\nsums that differ: {np.count_nonzero(found != expected):,} of {np.count_nonzero(expected):,}")


if __name__ == "__main__":
    main()

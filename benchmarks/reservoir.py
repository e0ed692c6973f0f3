"""The event reservoir beside a folder of Parquet files: ``python benchmarks/reservoir.py``.

Events of 30 days are appended in tables, each with events of its day in any order. The baseline writes each table as a
Parquet file, which neither finds repeated events nor publishes or verifies anything, and queries the folder by
`pyarrow.dataset`, which skips row groups by their statistics. Numbers of events found are compared.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import _harness
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import goffish as gf

_DAYS, _DAY = 30, 86_400
_BEGIN = 1_767_225_600


def tables(events: int, each: int) -> list[pa.Table]:
    """Return events of logins, in the order in which they are appended."""
    rng, made = np.random.default_rng(0), []
    for begin in range(0, events, each):
        count = min(each, events - begin)
        day = begin * _DAYS // events
        times = _BEGIN + day * _DAY + rng.uniform(0, _DAY, count)
        made.append(pa.table({
            "t": pa.array((times * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
            "id": begin + np.arange(count), "user": rng.integers(0, 20_000, count), "host": rng.integers(0, 500, count),
            "failed": rng.random(count) < 0.05,
        }))  # fmt: skip
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=3_000_000, help="[default: 3,000,000]")
    parser.add_argument("--table", type=int, default=20_000, help="events of a table [default: 20,000]")
    given = parser.parse_args()
    made = tables(given.events, given.table)
    print(_harness.machine_line(("pyarrow",)))
    print(f"\n{given.events:,} events in {len(made)} tables\n")
    with tempfile.TemporaryDirectory() as folder:
        kept = gf.Reservoir.create(Path(folder) / "reservoir", bucket="1d")
        pool = kept.pool("logins", group=["user"])
        begun = time.perf_counter()
        for table in made:
            pool.append(table)
        appended = time.perf_counter() - begun
        plain = Path(folder) / "plain"
        plain.mkdir()
        begun = time.perf_counter()
        for number, table in enumerate(made):
            pq.write_table(table, plain / f"{number:05d}.parquet", compression="zstd")
        written = time.perf_counter() - begun
        begun = time.perf_counter()
        again = pool.append(made[len(made) // 2])
        repeated = time.perf_counter() - begun
        assert again == 0
        begun = time.perf_counter()
        kept.compact()
        compacted = time.perf_counter() - begun
        begin, end = _BEGIN + 10 * _DAY + 3600, _BEGIN + 10 * _DAY + 3600 + _DAYS * _DAY // 100
        moments = [pa.scalar(one * 1_000_000, pa.int64()).cast(pa.timestamp("us", "UTC")) for one in (begin, end)]
        in_range = (pc.field("t") >= moments[0]) & (pc.field("t") < moments[1])
        queries: dict[str, tuple[dict[str, Any], Any]] = {
            "1 % of the time": ({"start": begin, "end": end}, in_range),
            "1 % of the time, failed": (
                {"start": begin, "end": end, "where": {"failed": True}}, in_range & pc.field("failed")
            ),
            "one user": ({"where": {"user": 77}}, pc.field("user") == 77),
            "one id": ({"where": {"id": given.events // 2}}, pc.field("id") == given.events // 2),
        }  # fmt: skip
        rows = [
            [
                "append, events/s", f"{given.events / appended:,.0f}", f"{given.events / written:,.0f}",
                f"{written / appended:.2f}x",
            ],
            ["append a table again, ms", f"{1e3 * repeated:.1f}", "", ""], ["compact, s", f"{compacted:.1f}", "", ""],
        ]  # fmt: skip
        for name, (options, condition) in queries.items():

            def ours(options: Any = options) -> int:
                return len(kept.query("logins", **options))

            def theirs(condition: Any = condition) -> int:
                return len(
                    ds.dataset(plain).to_table(filter=condition).sort_by([("t", "ascending"), ("id", "ascending")])
                )

            assert ours() == theirs() > 0
            found = _harness.measure_together({"ours": ours, "theirs": theirs})
            took, other = found["ours"].median, found["theirs"].median
            rows.append(
                [f"{name}, ms ({ours():,} events)", f"{1e3 * took:.1f}", f"{1e3 * other:.1f}", f"{other / took:.1f}x"]
            )
    _harness.print_table(["", "reservoir", "Parquet files", "ratio"], rows)


if __name__ == "__main__":
    main()

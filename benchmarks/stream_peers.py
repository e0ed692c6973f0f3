"""Word count and keyed sum against Bytewax, Pathway and PyFlink: ``python benchmarks/stream_peers.py``.

Each system runs in a process of its own, and systems alternate. ``--pathway-python E/bin/python`` names the interpreter
of an environment with Pathway, and so on; systems that are neither there nor in this environment are skipped. Results
of all systems are checked to be equal on a small input before anything is measured. The start of interpreters, of a
JVM and of worker processes does not count; PyFlink's jobs include their submission.

- ``words`` and ``sums`` read CSV files, one for each worker, with what each system has for columns: Arrow batches
  here, compiled operators of Pathway, SQL with mini-batches in PyFlink, and in Bytewax, which has no columns, Arrow's
  CSV reader and aggregation of each batch before its own.
- ``python-words`` and ``python-sums`` make the records from numbers, and call Python functions for each record;
  PyFlink in thread mode. Pathway has no source of numbers, and reads them from a file.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import _harness
import numpy as np
import pyarrow as pa
import pyarrow.csv
from _streams import LIMIT_S, System, add_systems, checked, started

COLUMNS, PYTHON = ("words", "sums"), ("python-words", "python-sums")
_KEYS, _SEED, _PARTS = 100_000, 7, 2
_LETTERS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--python-records", type=int, default=1_000_000)
    parser.add_argument("--check-records", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", choices=COLUMNS + PYTHON, default=COLUMNS + PYTHON)
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="of the other systems")
    add_systems(parser, ("bytewax", "pathway", "pyflink"))
    given = parser.parse_args()
    print(_harness.machine_line(("pyarrow",)), "\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "timed", given.records, given.python_records, _PARTS)
        write(folder / "check", given.check_records, given.check_records, _PARTS)
        systems = started(given, folder, ("bytewax", "pathway", "pyflink"), ours=(1, 2))
        try:
            for task in given.tasks:
                compare(task, systems, folder, given)
        finally:
            for one in systems:
                one.close()


def write(folder: Path, records: int, python_records: int, parts: int) -> None:
    """Write the inputs, in as many files as there are workers, with and without a header."""
    folder.mkdir()
    random = np.random.default_rng(_SEED)
    letters = random.integers(97, 123, (_KEYS, _LETTERS), np.uint8)
    vocabulary = pa.array([row.tobytes().decode() for row in letters])
    share = 1 / np.arange(1, _KEYS + 1)
    words = random.choice(_KEYS, records, p=share / share.sum()).astype(np.int32)
    tables = {
        "words": pa.table({"word": pa.DictionaryArray.from_arrays(words, vocabulary).dictionary_decode()}),
        "sums": pa.table({"key": random.integers(0, _KEYS, records), "value": random.integers(0, 1000, records)}),
        "python-words": pa.table({"number": np.arange(python_records // 10)}),
        "python-sums": pa.table({"number": np.arange(python_records)}),
    }
    for name, table in tables.items():
        write_parts(folder, name, table, parts)


def write_parts(folder: Path, name: str, table: pa.Table, parts: int) -> None:
    """Write every so many records to one file, with a header and without."""
    (folder / "no-header" / name).mkdir(parents=True)
    for part in range(parts):
        mine = table.take(pa.array(np.arange(part, len(table), parts)))
        for path, header in ((f"{name}-{part}.csv", True), (f"no-header/{name}/{part}.csv", False)):
            options = pyarrow.csv.WriteOptions(include_header=header, quoting_style="none")
            pyarrow.csv.write_csv(mine, folder / path, options)


def compare(task: str, systems: list[System], folder: Path, given: argparse.Namespace) -> None:
    """Check and measure one task, and print its table."""
    records = given.python_records if task in PYTHON else given.records
    measured = checked(task, systems, folder, records=given.check_records)
    for _ in range(given.repeats):
        for one in measured:
            one.measure(task, LIMIT_S, folder=str(folder / "timed"), records=records)
    print(f"\n{task}: {records:,} records, median of {given.repeats}\n")
    ours = min(one.median(task) for one in measured if one.name == "goffish")
    _harness.print_table(
        ("system", "seconds", "records/s", "core-seconds", "system / GoFFish"),
        (
            (one.label, f"{one.median(task):.2f}", f"{records / one.median(task):,.0f}",
             f"{one.median_cores(task):.1f}", f"{one.median(task) / ours:.2f}")
            for one in measured
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()

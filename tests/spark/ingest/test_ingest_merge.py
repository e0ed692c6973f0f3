"""Merging duplicates and sending rows to other tasks, without Spark around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from goffish.spark.ingest import blocks as blocks_module
from goffish.spark.ingest.blocks import Pack, Sent, unpack
from goffish.spark.ingest.labels import Ends
from goffish.spark.ingest.merge import Merge, ToRanges

Link = tuple[int, int, int, float, str]

LINKS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.sampled_from([0.1, 0.7, 1e16, 3.0]),
        st.text(max_size=2),
    ),
    max_size=40,
)  # fmt: skip


def _merged_by_hand(links: list[Link], rule: str, columns: int) -> list[list[Any]]:
    """Links in their order, the first `columns` columns of which say what they are links of."""
    if rule == "keep":
        return sorted([[*link[:2], *link[3:]] for link in links], key=lambda row: row[:2])
    found: dict[tuple[int, ...], list[Any]] = {}
    for link in links:
        key, weight, note = link[:columns], *link[3:]
        if key not in found:
            found[key] = [weight, note]
        elif rule == "sum":
            found[key][0] += weight
        elif rule == "min" and weight < found[key][0]:
            found[key] = [weight, note]
    return [[*key, *values] for key, values in sorted(found.items())]


@given(LINKS, st.sampled_from(["min", "sum", "first", "keep"]), st.booleans(), st.randoms())
def test_duplicates_are_merged_as_by_hand(links: list[Link], rule: str, timed: bool, random: Any) -> None:
    """Breaks when a sum is added up in another order, a tie goes to a later row, or an entry to another edge."""
    timed = timed and rule != "keep"
    rows = list(enumerate(links))
    random.shuffle(rows)  # a shuffle brings them in any order
    columns = [pa.array([link[at] for _, link in rows], pa.int64()) for at in range(3)]
    table = pa.table({
        "u": columns[0], "v": columns[1], "instance": columns[2],
        "order": pa.array([at for at, _ in rows], pa.int64()),
        "weight": pa.array([link[3] for _, link in rows], pa.float64()),
        "a0": pa.array([link[4] for _, link in rows], pa.string()),
    })  # fmt: skip
    found = Merge(rule, ["weight", "a0"], timed)([table]).to_pylist()
    edges = [row for row in found if row["instance"] is None]
    assert [row["place"] for row in edges] == list(range(len(edges)))
    assert [[row["u"], row["v"], row["weight"], row["a0"]] for row in edges] == _merged_by_hand(links, rule, 2)
    entries = [row for row in found if row["instance"] is not None]
    if timed:
        told = [[row["u"], row["v"], row["instance"], row["weight"], row["a0"]] for row in entries]
        assert told == _merged_by_hand(links, rule, 3)
        assert all((edges[row["place"]]["u"], edges[row["place"]]["v"]) == (row["u"], row["v"]) for row in entries)
    else:
        assert not entries


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.text(max_size=3) | st.none()), max_size=200),
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from([1, 200, 1 << 17]),
)
def test_every_row_arrives_where_it_was_sent(rows: list[Any], batch: int, targets: int, size: int) -> None:
    """Breaks when a block loses a row or lands at another target; two copies of a row with an odd number are sent."""
    names = ["number", "text"]
    kinds = [pa.int64(), pa.string()]
    whole = pa.table([pa.array([row[at] for row in rows], kinds[at]) for at in (0, 1)], names)

    def route(table: pa.Table) -> Sent:
        numbers = table.column("number").to_numpy()
        odd = np.flatnonzero(numbers % 2)
        chosen = np.concatenate((np.arange(numbers.size), odd))
        target = np.concatenate((numbers % targets, (numbers[odd] + 1) % targets))
        return Sent(table, chosen, target, np.abs(numbers[chosen]) % 3)

    kept = blocks_module.BLOCK_BYTES, blocks_module._PACKED_ROWS
    try:
        blocks_module.BLOCK_BYTES, blocks_module._PACKED_ROWS = size, 17
        sent = list(Pack(route, [10 + at for at in range(targets)])(iter(whole.to_batches(batch))))
    finally:
        blocks_module.BLOCK_BYTES, blocks_module._PACKED_ROWS = kept
    found: dict[tuple[int, int], list[Any]] = {}
    for piece in sent:
        for key, target, kind, payload in zip(*(piece.column(at) for at in range(4)), strict=True):
            assert key.as_py() == 10 + target.as_py()
            arrived = unpack([payload.as_buffer()])
            assert arrived is not None and arrived.num_rows
            found.setdefault((target.as_py(), kind.as_py()), []).extend(
                tuple(row.values()) for row in arrived.to_pylist()
            )
    expected: dict[tuple[int, int], list[Any]] = {}
    for number, text in rows:
        for step in range(1 + number % 2):
            expected.setdefault(((number + step) % targets, abs(number) % 3), []).append((number, text))
    assert {place: sorted(v, key=repr) for place, v in found.items()} == {
        place: sorted(v, key=repr) for place, v in expected.items()
    }
    assert unpack([]) is None


def test_ranges_hold_the_rows_from_one_bound_to_the_next() -> None:
    links, ends = pa.table({"u": [0, 4, 5, 9, 10, 99], "v": [100] * 6}), Ends(directed=False)
    assert ToRanges(np.array([5, 10]), ends)(links).target.tolist() == [0, 0, 1, 1, 2, 2]
    assert ToRanges(np.empty(0, np.int64), ends)(links).target.tolist() == [0] * 6

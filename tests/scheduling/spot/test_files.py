"""Tables as files: the same again when opened, and refused when damaged or foreign."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.errors import InputError, StoreError
from goffish.scheduling.spot.files import fingerprint_digest, open_table, write_table
from goffish.scheduling.spot.model import Local
from goffish.scheduling.spot.table import build_table
from tests.scheduling.spot.spot_cases import random_market, reference, tiny


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_the_same_again(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Breaks when an array, its place, or a field of the market is lost on the way; extending works from the file."""
    path = tmp_path_factory.mktemp("table") / "t.spot"
    market = random_market(seed)
    table = build_table(market, 3, 6)
    write_table(path, table)
    for again in (open_table(path), open_table(path, market)):
        assert again.market.fingerprint() == market.fingerprint() and (again.work, again.slots) == (3, 6)
        for found, mine in zip(
            (again.values, again.idle_actions, *again.actions), (table.values, table.idle_actions, *table.actions),
            strict=True,
        ):  # fmt: skip
            assert np.array_equal(found, mine) and not (found.size and found.flags.writeable)
    grown = build_table(market, 3, 9, extends=open_table(path))
    assert np.array_equal(grown.values, build_table(market, 3, 9).values)
    assert [entry.name for entry in path.parent.iterdir()] == ["t.spot"]


def test_damage(tmp_path: Path) -> None:
    """Any changed byte is found, also a missing or an additional one."""
    path = tmp_path / "t.spot"
    write_table(path, build_table(tiny(), 2, 5))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [0, 8, 12, 20, 60, len(whole) - 1, *rng.integers(0, len(whole), 60).tolist()]:
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        # Between the header and the arrays are bytes that mean nothing.
        if whole[at] == 0 and damaged[at] == 0x10 and _is_padding(whole, at):
            continue
        with pytest.raises(StoreError, match=r"t\.spot: (is|has)"):
            open_table(path)
    for length in (0, 5, 30, 100, len(whole) - 64, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match=r"is damaged|is not a strategy table"):
            open_table(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(StoreError, match="is damaged"):
        open_table(path)
    path.write_bytes(b"GOFFSPOT" + struct.pack("<I", 1) + whole[12:])
    with pytest.raises(StoreError, match="has version 1, this GoFFish reads version 2"):
        open_table(path)
    path.write_bytes(b"something else entirely")
    with pytest.raises(StoreError, match="is not a strategy table"):
        open_table(path)
    with pytest.raises(StoreError, match="cannot be read"):
        open_table(tmp_path / "none.spot")


def _is_padding(whole: bytes, at: int) -> bool:
    length = struct.unpack_from("<Q", whole, 12)[0]
    begin = 52 + length
    return begin <= at < begin + -begin % 64


def test_another_market(tmp_path: Path) -> None:
    """§3.4: the first field that differs is named; breaks when a table is used for a job it is not for."""
    path = tmp_path / "t.spot"
    market = reference(local=Local(1, 1, 0.12))
    write_table(path, build_table(market, 2, 5))
    first = market.classes[0]
    others = {
        "slots_per_hour": replace(market, slots_per_hour=12),
        "spot_billing": replace(market, spot_billing="per_second"),
        "checkpoint_slots": replace(market, checkpoint_slots=2),
        "local": replace(market, local=Local(1, 1, 0.15)),
        "classes": reference(names="large", local=market.local),
        "medium: on_demand": replace(market, classes=(replace(first, on_demand=0.14), market.classes[1])),
        "medium: levels": replace(market, classes=(replace(first, levels=first.levels * 1.01), market.classes[1])),
        "medium: chain": replace(market, classes=(replace(first, chain=np.eye(5)), market.classes[1])),
        "medium: covers": replace(market, classes=(replace(first, covers=np.array([1])), market.classes[1])),
    }
    for name, other in others.items():
        with pytest.raises(StoreError, match=f"another market: {name} is .* in the table, .* in the market"):
            open_table(path, other)
        assert fingerprint_digest(other) != fingerprint_digest(market)
    assert fingerprint_digest(open_table(path).market) == fingerprint_digest(market)


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a writer that fails leaves half a table, or destroys the one before."""
    path = tmp_path / "t.spot"
    table = build_table(tiny(), 2, 5)
    write_table(path, table)
    before = path.read_bytes()

    def fail(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("goffish.scheduling.spot.files.os.fsync", fail)
    with pytest.raises(InputError, match="no space left"):
        write_table(path, build_table(tiny(), 2, 6))
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]

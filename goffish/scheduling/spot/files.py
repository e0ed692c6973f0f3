"""Table files: versioned, with a checksum and the fingerprint of their market, and memory-mapped when opened.

A file is: magic, version, length and SHA-256 of the header, the header (JSON), then arrays at multiples of 64 bytes.
See docs/specs/spot.md, section 3.4.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import StoreError
from goffish.partial import output_file
from goffish.scheduling.spot._build import Actions
from goffish.scheduling.spot.model import Local, Market, SpotClass
from goffish.scheduling.spot.table import Table

MAGIC = b"GOFFSPOT"
VERSION = 2
#: Magic, version, length of the header, its SHA-256.
HEAD = struct.Struct("<8sIQ32s")
ALIGN = 64
#: Number of bytes hashed at a time.
CHUNK = 1 << 22


def fingerprint_digest(market: Market) -> str:
    """SHA-256 of a market's fingerprint, which names its tables."""
    return hashlib.sha256(_json(market.fingerprint())).hexdigest()


def write_table(path: str | Path, table: Table) -> None:
    """Write a table atomically.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    arrays: list[tuple[str, NDArray[Any]]] = [
        ("values", table.values),
        ("idle_actions", table.idle_actions),
        *((name, getattr(table.actions, name)) for name in Actions._fields),
    ]
    for j, parts in enumerate(table.last):
        arrays += [(f"{name} {j}", part) for name, part in zip(("running", "saving", "starting"), parts, strict=True)]
    entries, offset, payload = [], 0, hashlib.sha256()
    for name, array in arrays:
        entries.append({"name": name, "dtype": array.dtype.str, "shape": array.shape, "offset": offset})
        data = np.ascontiguousarray(array)
        payload.update(data.data if data.size else b"")
        payload.update(b"\0" * (-data.nbytes % ALIGN))
        offset += data.nbytes + -data.nbytes % ALIGN
    header = _json(
        {
            "fingerprint": table.market.fingerprint(),
            "work": table.work,
            "slots": table.slots,
            "arrays": entries,
            "bytes": offset,
            "sha256": payload.hexdigest(),
        }
    )
    begin = HEAD.size + len(header)
    with output_file(path) as partial, partial.open("wb") as out:
        out.write(HEAD.pack(MAGIC, VERSION, len(header), hashlib.sha256(header).digest()))
        out.write(header + b"\0" * (-begin % ALIGN))
        for _, array in arrays:
            data = np.ascontiguousarray(array)
            out.write(data.data if data.size else b"")
            out.write(b"\0" * (-data.nbytes % ALIGN))
        out.flush()
        os.fsync(out.fileno())


def open_table(path: str | Path, market: Market | None = None) -> Table:
    """Open a table; its arrays stay in the file and are read on demand.

    Parameters
    ----------
    path : path
    market : Market, optional
        The expected market of the table.

    Raises
    ------
    StoreError
        If the file is missing, damaged, not a table, of a newer version, or for another market; in the last case the
        message names the first different field of the fingerprint.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise StoreError(f"{path}: is not a strategy table")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror or error})") from None
    header, begin = _header(path, mapped)
    if len(mapped) != begin + header["bytes"]:
        raise StoreError(f"{path}: is damaged (expected {begin + header['bytes']} bytes, found {len(mapped)})")
    digest, view = hashlib.sha256(), memoryview(mapped)
    for at in range(begin, len(mapped), CHUNK):
        digest.update(view[at : at + CHUNK])
    if digest.hexdigest() != header["sha256"]:
        raise StoreError(f"{path}: is damaged (SHA-256 mismatch)")
    if market is not None:
        _compare(path, header["fingerprint"], json.loads(_json(market.fingerprint())))
    else:
        market = market_of(header["fingerprint"])
    arrays = {}
    for entry in header["arrays"]:
        count = int(np.prod(entry["shape"], dtype=np.int64))
        flat = np.frombuffer(mapped, entry["dtype"], count, begin + entry["offset"])
        arrays[entry["name"]] = flat.reshape(entry["shape"])
    last = tuple(
        (arrays[f"running {j}"], arrays[f"saving {j}"], arrays[f"starting {j}"]) for j in range(market.choices)
    )
    return Table(
        market, header["work"], header["slots"], arrays["values"], arrays["idle_actions"],
        Actions(*(arrays[name] for name in Actions._fields)), last,
    )  # fmt: skip


def _header(path: Path, mapped: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The header of a file, and the offset of its arrays."""
    if mapped[: len(MAGIC)] != MAGIC:
        raise StoreError(f"{path}: is not a strategy table")
    if len(mapped) < HEAD.size:
        raise StoreError(f"{path}: is damaged (truncated header)")
    _, version, length, digest = HEAD.unpack_from(mapped)
    if version != VERSION:
        raise StoreError(f"{path}: has version {version}, this GoFFish reads version {VERSION}; rebuild the table")
    text = mapped[HEAD.size : HEAD.size + length]
    if len(text) != length or hashlib.sha256(text).digest() != digest:
        raise StoreError(f"{path}: is damaged (SHA-256 mismatch in the header)")
    begin = HEAD.size + length
    found: dict[str, Any] = json.loads(text)
    return found, begin + -begin % ALIGN


def _compare(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in [*wanted, *found]:
        if name not in found or name not in wanted or found[name] != wanted[name]:
            there, here = _short(found.get(name, "nothing")), _short(wanted.get(name, "nothing"))
            raise StoreError(f"{path}: is for another market: {name} is {there} in the table, {here} in the market")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def market_of(fingerprint: dict[str, Any]) -> Market:
    """Reconstruct the market of a fingerprint."""
    named = dict(fingerprint)
    classes = []
    for name in named.pop("classes"):
        fields = {key: named.pop(f"{name}: {key}") for key in ("speed", "on_demand", "hazard", "ages")}
        for key in ("edges", "levels", "chain", "covers"):
            fields[key] = np.array(named.pop(f"{name}: {key}"), np.int64 if key == "covers" else np.float64)
        classes.append(SpotClass(name=name, **fields))
    local, saves, joint = named.pop("local"), named.pop("checkpoint_slots"), named.pop("joint_chain")
    return Market(
        tuple(classes),
        checkpoint_slots=saves[0] if len(saves) == 1 else tuple(saves),
        local=None if local is None else Local(*local),
        joint_chain=None if joint is None else np.array(joint, np.float64),
        **named,
    )


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

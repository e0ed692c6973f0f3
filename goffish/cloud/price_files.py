"""Readers of spot price histories; the format is detected from the content.

Formats: the output of ``aws ec2 describe-spot-price-history`` as JSON, as text, or converted to CSV, and the CSV of the
traces of 2015 (`prices.read_csv`). See docs/specs/spot.md, section 4.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from goffish.cloud.prices import PROHIBITIVE, TIME_ACCEPTED, Trace, history_seconds, read_csv, reason, trace_of
from goffish.errors import FormatError, InputError

#: Fields that identify a price series, in the order of their appearance in its name.
_KEYS = ("AvailabilityZone", "ProductDescription", "InstanceType")
_FIELDS = (*_KEYS, "SpotPrice", "Timestamp")
_OURS = ("timestamp_utc", "price_usd_per_hour")
_ACCEPTED = "is not a price history (timestamp_utc,price_usd_per_hour, or aws ec2 describe-spot-price-history)"
#: Patterns of fields, for CSV without a header. A price is tried last, as a year could be one.
_LOOKS = {
    "Timestamp": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d.*"),
    "AvailabilityZone": re.compile(r"[a-z]{2}(-[a-z]+)+-\d+(-[a-z]+-\d+)?[a-z]"),
    "InstanceType": re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+"),
    "ProductDescription": re.compile(r"(Linux/UNIX|Red Hat Enterprise Linux|SUSE Linux|Windows)( \(Amazon VPC\))?"),
    "SpotPrice": re.compile(r"\d+(\.\d*)?([eE][-+]?\d+)?"),
}


class _Row(NamedTuple):
    """A price: its position (a line, or none), its series, time and value."""

    line: int | None
    name: str
    time: str
    price: str


def read_prices(path: str | Path) -> dict[str, Trace]:
    """Read the traces of a price file in any supported format (``.gz`` is decompressed).

    Rows may be in any order. In outputs of AWS they may also be repeated: of several prices of a machine type at the
    same time, the newest counts, which AWS prints first.

    Parameters
    ----------
    path : path
        JSON (the whole response, or the list in it), ``--output text``, CSV with AWS's field names in any order, CSV
        without a header as written by ``jq -r '... | @csv'``, or CSV with the columns ``timestamp_utc`` and
        ``price_usd_per_hour``.

    Returns
    -------
    dict from "zone-product-machine type" to Trace
        Sorted by name; parts that the file does not contain are left out. A file in GoFFish's CSV format holds one
        trace, which is named after the file.

    Raises
    ------
    InputError
        If the file cannot be read; `FormatError`, with the line, if its content is invalid.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read prices ({reason(error)})") from None
    first = text.lstrip()[:1]
    if first in ("{", "["):
        rows: Iterable[_Row] = _json_rows(path, text)
    elif "\t" in text.partition("\n")[0]:
        rows = _text_rows(path, text)
    elif tuple(text.partition("\n")[0].strip().split(",")[:2]) == _OURS:
        trace = read_csv(path)
        return {trace.name: trace}
    else:
        rows = _csv_rows(path, text)
    return _traces(path, rows)


def _traces(path: Path, rows: Iterable[_Row]) -> dict[str, Trace]:
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        times, prices = found.setdefault(row.name, ([], []))
        try:
            time, price = history_seconds(row.time), float(row.price)
        except ValueError:
            time, price = 0.0, -1.0
        if not 0 <= price < PROHIBITIVE:
            problem = f"expected {TIME_ACCEPTED}, and a price of at least 0 and less than {PROHIBITIVE:g}"
            raise FormatError(path, row.line, problem, f"{row.time} {row.price}")
        times.append(time)
        prices.append(price)
    if not found:
        raise FormatError(path, None, f"{_ACCEPTED}: no prices found")
    for times, prices in found.values():
        # AWS prints the newest price first; of several at the same time, the last one in the sequence counts.
        if times[0] >= times[-1]:
            times.reverse()
            prices.reverse()
    return {name: trace_of(*found[name], name) for name in sorted(found)}


def _json_rows(path: Path, text: str) -> Iterator[_Row]:
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(path, error.lineno, f"{_ACCEPTED} ({error.msg})") from None
    if isinstance(entries, dict):
        entries = entries.get("SpotPriceHistory")
    if not isinstance(entries, list):
        raise FormatError(path, None, f"{_ACCEPTED}: SpotPriceHistory is missing")
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not {"SpotPrice", "Timestamp"} <= entry.keys():
            raise FormatError(path, None, f"{_ACCEPTED}: entry {number} has no SpotPrice and Timestamp", str(entry))
        name = "-".join(str(entry[key]) for key in _KEYS if key in entry)
        yield _Row(None, name, str(entry["Timestamp"]), str(entry["SpotPrice"]))


def _text_rows(path: Path, text: str) -> Iterator[_Row]:
    for line, written in enumerate(text.splitlines(), 1):
        parts = written.strip().split("\t")
        # AWS prints fields sorted by name; newer versions include the zone's id.
        if parts[0] == "SPOTPRICEHISTORY" and len(parts) in (6, 7):
            kind, product, price, time = parts[-4:]
            yield _Row(line, f"{parts[1]}-{product}-{kind}", time, price)
        elif parts[0] not in ("NEXTTOKEN", ""):
            needed = "expected SPOTPRICEHISTORY, zone, machine type, product, price and time, separated by tabs"
            raise FormatError(path, line, needed, written)


def _csv_rows(path: Path, text: str) -> Iterator[_Row]:
    rows = csv.reader(text.splitlines())
    columns: dict[str, int] | None = None
    for row in rows:
        if not row:
            continue
        if columns is None:
            columns = {field: row.index(field) for field in _FIELDS if field in row}
            headed = bool(columns)
            columns = columns or _columns_by_content(row)
            if not {"SpotPrice", "Timestamp"} <= columns.keys():
                raise FormatError(
                    path, rows.line_num, f"{_ACCEPTED}: columns SpotPrice and Timestamp are required", ",".join(row)
                )
            if headed:
                continue
        if len(row) <= max(columns.values()):
            raise FormatError(path, rows.line_num, f"expected {max(columns.values()) + 1} columns", ",".join(row))
        name = "-".join(row[columns[key]] for key in _KEYS if key in columns)
        yield _Row(rows.line_num, name, row[columns["Timestamp"]], row[columns["SpotPrice"]])


def _columns_by_content(row: list[str]) -> dict[str, int]:
    """Detect the meaning of each column from the first row."""
    found: dict[str, int] = {}
    for at, field in enumerate(row):
        kind = next((name for name, look in _LOOKS.items() if name not in found and look.fullmatch(field)), None)
        if kind is not None:
            found[kind] = at
    return found

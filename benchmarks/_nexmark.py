"""Events of the Nexmark schema, and its queries as flows.

The generator follows the published one in the schema, the proportions of 1 person, 3 auctions and 46 bids, the ranges
of ids, and the shares of popular auctions, sellers and bidders. Event times are milliseconds, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

import goffish as gf

BEGIN_MS = 1_436_918_400_000  # as in the published generator
_PERSONS, _AUCTIONS, _CYCLE = 1, 3, 50
_FIRST_PERSON = _FIRST_AUCTION = 1000
_ACTIVE_PEOPLE, _OPEN_AUCTIONS, _AHEAD = 1000, 100, 10
_POPULAR = 100  # one of so many people or auctions is popular
_PADDING, _LONGEST_MS = 20, 20_000
_FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_PLACES = (
    ("Phoenix", "AZ"), ("Los Angeles", "CA"), ("San Francisco", "CA"), ("Boise", "ID"), ("Portland", "OR"),
    ("Bend", "OR"), ("Redmond", "WA"), ("Seattle", "WA"), ("Kent", "WA"), ("Cheyenne", "WY"),
)  # fmt: skip
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

Numbers = NDArray[np.int64]


def events(count: int, per_second: int = 10_000, seed: int = 0) -> dict[str, pa.Table]:
    """Return the persons, auctions and bids among the first events, of which so many are in a second of event time."""
    random = np.random.default_rng(seed)
    number = np.arange(count)
    place = number % _CYCLE
    kinds = {
        "person": number[place < _PERSONS],
        "auction": number[(place >= _PERSONS) & (place < _PERSONS + _AUCTIONS)],
        "bid": number[place >= _PERSONS + _AUCTIONS],
    }
    return {name: _KINDS[name](of, BEGIN_MS + of * 1000 // per_second, random) for name, of in kinds.items()}


def _last_person(number: Numbers) -> Numbers:
    return number // _CYCLE


def _last_auction(number: Numbers) -> Numbers:
    return number // _CYCLE * _AUCTIONS + np.clip(number % _CYCLE - _PERSONS, -1, _AUCTIONS - 1)


def _moments(milliseconds: Numbers) -> pa.Array:
    return pa.array(milliseconds).cast(pa.timestamp("ms"))


def _texts(random: np.random.Generator, count: int, size: int = _PADDING) -> pa.Array:
    data = random.integers(97, 123, count * size, np.uint8)
    offsets = np.arange(0, count * size + 1, size, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))


def _chosen(values: list[str], at: Numbers) -> pa.Array:
    return pa.array(values).take(pa.array(at))


def _people(random: np.random.Generator, number: Numbers, popular: int) -> Numbers:
    """Return a popular person in three of four cases, else one of those that are active."""
    last = _last_person(number)
    active = np.minimum(last, _ACTIVE_PEOPLE)
    others = last - active + (random.random(len(number)) * (active + _AHEAD)).astype(np.int64)
    favorites = last // _POPULAR * _POPULAR + popular
    return _FIRST_PERSON + np.where(random.integers(0, 4, len(number)) > 0, favorites, others)


def _persons(number: Numbers, time: Numbers, random: np.random.Generator) -> pa.Table:
    count = len(number)
    first, last = (random.integers(0, len(names), count) for names in (_FIRST_NAMES, _LAST_NAMES))
    where = random.integers(0, len(_PLACES), count)
    names = [f"{a} {b}" for a in _FIRST_NAMES for b in _LAST_NAMES]
    cards = [f"{card:016d}" for card in random.integers(0, 10**16, count).tolist()]
    return pa.table(
        {
            "id": _FIRST_PERSON + _last_person(number),
            "name": _chosen(names, first * len(_LAST_NAMES) + last),
            "emailAddress": pc.binary_join_element_wise(_texts(random, count, 7), _texts(random, count, 5), "@"),
            "creditCard": cards,
            "city": _chosen([city for city, _ in _PLACES], where),
            "state": _chosen([state for _, state in _PLACES], where),
            "dateTime": _moments(time),
            "extra": _texts(random, count),
        }
    )


def _auctions(number: Numbers, time: Numbers, random: np.random.Generator) -> pa.Table:
    count = len(number)
    least = _prices(random, count)
    return pa.table(
        {
            "id": _FIRST_AUCTION + _last_auction(number),
            "itemName": _texts(random, count),
            "description": _texts(random, count, 3 * _PADDING),
            "initialBid": least,
            "reserve": least + _prices(random, count),
            "dateTime": _moments(time),
            "expires": _moments(time + random.integers(1, _LONGEST_MS, count)),
            "seller": _people(random, number, 0),
            "category": 10 + random.integers(0, 5, count),
            "extra": _texts(random, count),
        }
    )


def _bids(number: Numbers, time: Numbers, random: np.random.Generator) -> pa.Table:
    count, last = len(number), _last_auction(number)
    first = np.maximum(last - _OPEN_AUCTIONS, 0)
    others = first + (random.random(count) * (last - first + 1 + _AHEAD)).astype(np.int64)
    favorites = last // _POPULAR * _POPULAR
    channel = random.integers(0, 8, count)
    names = [*_CHANNELS, *(f"channel-{number}" for number in range(4))]
    return pa.table(
        {
            "auction": _FIRST_AUCTION + np.where(random.integers(0, 2, count) > 0, favorites, others),
            "bidder": _people(random, number, 1),
            "price": _prices(random, count),
            "channel": _chosen(names, channel),
            "url": _chosen([f"https://www.nexmark.com/item.htm?query=1&channel={name}" for name in names], channel),
            "dateTime": _moments(time),
            "extra": _texts(random, count),
        }
    )


_KINDS = {"person": _persons, "auction": _auctions, "bid": _bids}


def _prices(random: np.random.Generator, count: int) -> Numbers:
    return np.round(10 ** (random.random(count) * 6) * 100).astype(np.int64)


def write(folder: Path, count: int, per_second: int = 10_000) -> None:
    """Write the events as CSV files with a header.

    Those in ``no-header/NAME`` have none. Those in ``numbers`` have the column ``number`` in place of ``id``, which
    Pathway does not accept.
    """
    for name, table in events(count, per_second).items():
        renamed = table.rename_columns(["number" if column == "id" else column for column in table.column_names])
        files = (
            (table, f"{name}.csv", True),
            (table, f"no-header/{name}/0.csv", False),
            (renamed, f"numbers/{name}.csv", True),
        )
        for found, path, header in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            options = pyarrow.csv.WriteOptions(include_header=header, quoting_style="none")
            pyarrow.csv.write_csv(found, folder / path, options)


# The queries.

#: Columns of the results.
QUERIES = {
    "q0": ("auction", "bidder", "price", "dateTime", "extra"),
    "q1": ("auction", "bidder", "price", "dateTime", "extra"),
    "q2": ("auction", "price"),
    "q3": ("name", "city", "state", "id"),
    "q5": ("auction", "num"),
    "q7": ("auction", "price", "bidder", "dateTime"),
    "q8": ("id", "name", "starttime"),
}


def flow_of(query: str, folder: Path, sink: Any) -> gf.stream.Flow:
    """Return the flow of a query that reads the files in a folder."""
    flow = gf.stream.Flow(query)
    _FLOWS[query](flow, folder).sink(sink)
    return flow


def _read(flow: gf.stream.Flow, folder: Path, name: str, *columns: str, **options: Any) -> gf.stream.Stream:
    return flow.source(gf.stream.read_csv(folder / f"{name}.csv", columns=columns), name=name, **options)


def _q0(flow: gf.stream.Flow, folder: Path) -> gf.stream.Stream:
    return _read(flow, folder, "bid", *QUERIES["q0"])


def _q1(flow: gf.stream.Flow, folder: Path) -> gf.stream.Stream:
    def in_euros(bids: pa.RecordBatch) -> pa.RecordBatch:
        columns = [bids["auction"], bids["bidder"], pc.multiply(bids["price"], 0.908), bids["dateTime"], bids["extra"]]
        return pa.record_batch(columns, QUERIES["q1"])

    return _read(flow, folder, "bid", *QUERIES["q1"]).map_batches(in_euros)


def _q2(flow: gf.stream.Flow, folder: Path) -> gf.stream.Stream:
    bids = _read(flow, folder, "bid", *QUERIES["q2"])
    return bids.filter_batches(lambda batch: batch["auction"].to_numpy() % 123 == 0)


class LocalItems:
    """Joins auctions with their sellers, for as long as the flow runs."""

    def on_value(self, key: Any, value: Any, state: Any, timers: Any, emit: Callable[[Any], None]) -> None:
        if "name" in value:
            state["seller"] = person = (value["name"], value["city"], value["state"])
            for auction in state.get("auctions", ()):
                emit({"name": person[0], "city": person[1], "state": person[2], "id": auction})
        else:
            state["auctions"] = (*state.get("auctions", ()), value["id"])
            if (person := state.get("seller")) is not None:
                emit({"name": person[0], "city": person[1], "state": person[2], "id": value["id"]})


def _q3(flow: gf.stream.Flow, folder: Path) -> gf.stream.Stream:
    states = pa.array(["OR", "ID", "CA"])
    people = _read(flow, folder, "person", "id", "name", "city", "state").filter_batches(
        lambda batch: pc.is_in(batch["state"], states)
    )
    auctions = _read(flow, folder, "auction", "id", "seller", "category").filter_batches(
        lambda batch: pc.equal(batch["category"], 10)
    )
    both = people.union(auctions)
    return both.key_by(lambda one: one.get("seller", one["id"])).process(LocalItems)


def _q5(flow: gf.stream.Flow, folder: Path) -> gf.stream.Stream:
    bids = _read(flow, folder, "bid", "auction", "dateTime", time="dateTime")
    counts = bids.key_by("auction").window(gf.stream.sliding("10s", "2s")).aggregate(num="count")

    def hottest(batch: pa.RecordBatch) -> NDArray[np.bool_]:
        return batch["num"].to_numpy() == pc.max(batch["num"]).as_py()  # a batch is of one window

    return counts.filter_batches(hottest)


def _q7(flow: gf.stream.Flow, folder: Path) -> gf.stream.Stream:
    bids = _read(flow, folder, "bid", *QUERIES["q7"], time="dateTime")

    def highest(batch: pa.RecordBatch) -> NDArray[np.bool_]:
        window = batch["dateTime"].cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy() // 10_000
        price = batch["price"].to_numpy()
        most = np.zeros(window[-1] - window[0] + 1, np.int64)
        np.maximum.at(most, window - window[0], price)
        return price == most[window - window[0]]

    def best(found: list[Any], bid: Any) -> list[Any]:
        if found and found[0]["price"] > bid["price"]:
            return found
        return [*(found if found and found[0]["price"] == bid["price"] else ()), bid]

    windows = bids.filter_batches(highest).key_by(lambda bid: 0).window(gf.stream.tumbling("10s"))
    return windows.reduce(best, initial=[]).flat_map(
        lambda window: [{name: bid[name] for name in QUERIES["q7"]} for bid in window["value"]]
    )


def _q8(flow: gf.stream.Flow, folder: Path) -> gf.stream.Stream:
    window = gf.stream.tumbling("10s")
    people = _read(flow, folder, "person", "id", "name", "dateTime", time="dateTime")
    auctions = _read(flow, folder, "auction", "seller", "dateTime", time="dateTime")
    sellers = auctions.key_by("seller").window(window).count()

    def user(person: Any, seller: Any) -> dict[str, Any]:
        return {"id": person["id"], "name": person["name"], "starttime": seller["window_start"]}

    return people.key_by("id").window(window).join(sellers.key_by("seller"), function=user)


_FLOWS: dict[str, Callable[[gf.stream.Flow, Path], gf.stream.Stream]] = {
    "q0": _q0, "q1": _q1, "q2": _q2, "q3": _q3, "q5": _q5, "q7": _q7, "q8": _q8,
}  # fmt: skip

"""Find infected hosts in the packets of a network: ``python examples/network_security.py``.

One percent of the hosts, guests behind an access point, become infected one after another, and contact 50 others a
minute from then on; after five minutes, routes from the access point to all networks are announced. Three small stream
processors turn packets into changes of a live graph: edges, the rate of each host, and the removal of links that were
not used for two minutes. The queries are in ``network_security.cgql``. What they find is compared with the hosts that
were infected, and a page of the events is written.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import goffish as gf
from goffish import plot

QUERIES = Path(__file__).with_suffix(".cgql")
PARAMETERS = {"contacts": 30, "busy": 30}
PER_ROUTER, SHOWN = 50, 100
#: Minutes after which routes from the guests to all others are announced.
ANNOUNCED = 5
LINES = "DETECT Motif((source:{number < shown})-[edge:{type = packet}]->(target:{number < shown})) AS lines"
Packet = tuple[float, str, str]


class Network(NamedTuple):
    """Packets of each minute, and the truth: when each host was infected, in seconds."""

    hosts: list[str]
    minutes: list[list[Packet]]
    infected: dict[str, float]


def network(hosts: int, minutes: int, seed: int) -> Network:
    """Return random packets. Hosts send three a minute, mostly to a few destinations."""
    rng = np.random.default_rng(seed)
    names = [f"h{number:05}" for number in range(hosts)]
    chosen = [int(rng.integers(first, min(first + 100, hosts))) for first in range(0, hosts, 100)]
    while len(chosen) < 3:
        chosen = list(dict.fromkeys([*chosen, int(rng.integers(hosts))]))
    popular, shares = rng.permutation(hosts), np.cumsum(1 / np.arange(1, hosts + 1))
    parts = []
    for minute in range(minutes):
        senders = np.repeat(np.arange(hosts), 3)
        targets = popular[np.searchsorted(shares, rng.uniform(0, shares[-1], len(senders)))]
        parts.append((60 * (minute + rng.random(len(senders))), senders, targets))
    instants = 90 + 280 * np.arange(len(chosen)) / len(chosen)
    for number, (host, instant) in enumerate(zip(chosen, instants, strict=True)):
        times = np.arange(instant, 60 * minutes, 1.2)
        parts.append((times, np.full(len(times), host), np.resize(rng.permutation(hosts), len(times))))
        reports = np.arange(instant + 0.5, 60 * minutes, 60)  # to the host that infected this one
        parts.append((reports, np.full(len(reports), host), np.full(len(reports), chosen[max(number - 1, 0)])))
    times, senders, targets = (np.concatenate(column) for column in zip(*parts, strict=True))
    others = senders != targets
    order = np.argsort(times[others], kind="stable")
    micros = np.floor(5e5 * times[others][order]).astype(np.int64)
    micros = np.maximum.accumulate(micros - np.arange(len(micros))) + np.arange(len(micros))
    micros = 2 * micros + 1  # no two at once, and none at the end of a minute
    columns = (micros / 1e6).tolist(), senders[others][order].tolist(), targets[others][order].tolist()
    packets: list[list[Packet]] = [[] for _ in range(minutes)]
    for time, sender, target in zip(*columns, strict=True):
        if time < 60 * minutes:
            packets[int(time // 60)].append((time, names[sender], names[target]))
    return Network(names, packets, {names[one]: float(at) for one, at in zip(chosen, instants, strict=True)})


def links(data: Network) -> Iterator[dict[str, Any]]:
    """Return the updates of the fixed part: hosts, routers, and routes; those to guests are not announced."""
    hosts = data.hosts
    for number, host in enumerate(hosts):
        yield {"op": "+v", "id": host, "attrs": {"kind": "host", "number": number}}
    routers = [f"r{number}" for number in range(-(-len(hosts) // PER_ROUTER))]
    routes = list(zip(routers, routers[1:] + routers[:1], strict=True))
    for number, host in enumerate(hosts):
        router = "guests" if host in data.infected else routers[number // PER_ROUTER]
        routes += [(host, router)] if router == "guests" else [(host, router), (router, host)]
    for source, target in routes:
        yield {"op": "+e", "src": source, "dst": target, "attrs": {"type": "route"}}


def edges(packets: Iterable[Packet]) -> Iterator[dict[str, Any]]:
    """Stream processor: packets to edges."""
    for time, sender, target in packets:
        yield {"t": time, "op": "+e", "src": sender, "dst": target, "attrs": {"type": "packet"}}


class Rates:
    """Stream processor: packets to the attribute ``rate`` of their senders, in packets a minute."""

    def __init__(self) -> None:
        self._last: Counter[str] = Counter()

    def __call__(self, packets: Iterable[Packet]) -> Iterator[dict[str, Any]]:
        """Return updates of the rates of a minute that differ from those of the minute before."""
        rates = Counter(sender for _, sender, _ in packets)
        for host in sorted(rates | self._last):
            if rates[host] != self._last[host]:
                yield {"op": "+av", "id": host, "attrs": {"rate": rates[host]}}
        self._last = rates


def records(data: Network) -> Iterator[list[dict[str, Any]]]:
    """Return the records of all stream processors, minute by minute."""
    yield [{"t": 0.0, "op": "txn", "updates": list(links(data))}]
    rates, expiry = Rates(), gf.stream.LinkExpiry("2min", types=["packet"])
    for minute, packets in enumerate(data.minutes, 1):
        yield list(expiry(edges(packets)))
        updates = list(rates(packets))
        if minute == ANNOUNCED:
            updates.append({"op": "+e", "src": "guests", "dst": "r0", "attrs": {"type": "route"}})
        yield list(expiry([{"t": 60.0 * minute, "op": "txn", "updates": updates}]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100, help="number of hosts, 100 or more [default: 100]")
    parser.add_argument("--minutes", type=int, default=7, help="minutes of packets, 7 to 600 [default: 7]")
    parser.add_argument("--seed", type=int, default=0, help="random seed [default: 0]")
    parser.add_argument("--page", default="network_security.html", help="page of events [default: %(default)s]")
    options = parser.parse_args()
    if not 100 <= options.hosts <= 100_000 or not 7 <= options.minutes <= 600 or options.seed < 0:
        parser.error("accepted are 100 to 100,000 hosts, 7 to 600 minutes and a seed from 0 on")
    try:
        plot.check_graph_events(options.page)
    except gf.GoffishError as error:
        parser.error(str(error))
    data = network(options.hosts, options.minutes, options.seed)
    live = gf.stream.LiveGraph(lateness=0)
    live.submit(QUERIES.read_text(encoding="utf-8"), PARAMETERS)
    live.submit(LINES, {"shown": SHOWN})
    for part in records(data):
        live.feed(part)
    print(f"{options.hosts:,} hosts, {live.counts['applied']:,} records; {len(data.infected):,} hosts were infected")
    raised: dict[str, float] = {}
    for event in live.events("scans").to_pylist():
        if event["status"] == "RAISED":
            raised.setdefault(event["vertex"], event["time"].timestamp())
    delays = [raised[host] - instant for host, instant in data.infected.items() if host in raised]
    print(f"scans:  {len(raised):,} hosts, {len(raised.keys() - data.infected):,} of them not infected", end="")
    print(f"; {min(delays):.1f} to {max(delays):.1f} s after the infection" if delays else "")
    bad = {host for cluster in live.answers("bad").to_pylist() for host in cluster["members"]}
    print(f"bad:    clusters with {len(bad):,} hosts, {len(bad - data.infected.keys()):,} of them not infected")
    threats = live.events("threat")["status"].to_pylist().count("REACHABLE")
    print(f"threat: routes from bad to good clusters, {threats:,} times")
    spread = {event["id"] for event in live.events("spread").to_pylist() if event["status"] == "MATCHED"}
    print(f"spread: {len(spread):,} hosts after that, {len(spread - data.infected.keys()):,} of them not infected")
    shown = {topic: live.events(topic) for topic in ("scans", "bad", "threat", "spread")}
    print(plot.write_graph_events(live.events("lines"), shown, options.page, title="Network security"))
    if raised.keys() != data.infected.keys():
        sys.exit("the hosts that were found are not those that were infected")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)

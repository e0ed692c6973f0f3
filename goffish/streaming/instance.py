"""An instance of a processing element: a process on one core of a machine that works messages off.

``python -m goffish.streaming.instance HOST PORT KEYFILE NAME``: it connects to the dataflow's broker, says its name
and then answers every order with how many messages it did. An order is how many messages, how many seconds of processor
each of them takes, and which part of a processor the core is; it works at that pace and no faster.
"""

from __future__ import annotations

import json
import sys
import time
from multiprocessing.connection import Client
from pathlib import Path


def main() -> None:
    """Work until the broker is gone."""
    host, port, key, name = sys.argv[1:]
    with Client((host, int(port)), authkey=Path(key).read_bytes()) as broker:
        broker.send_bytes(json.dumps({"name": int(name)}).encode())
        while True:
            try:
                order = json.loads(broker.recv_bytes(1 << 16))
            except (EOFError, OSError):
                return
            begun = time.monotonic()
            for _ in range(order["messages"]):
                _work(order["cpu_s"], order["share"])
            report = {"messages": order["messages"], "seconds": time.monotonic() - begun}
            broker.send_bytes(json.dumps(report).encode())


def _work(cpu_s: float, share: float) -> None:
    """Keep a processor busy for `cpu_s`, spread over ``cpu_s / share`` of time."""
    begun, until = time.monotonic(), time.process_time() + cpu_s
    while time.process_time() < until:
        pass
    rest = cpu_s / share - (time.monotonic() - begun)
    if rest > 0:
        time.sleep(rest)


if __name__ == "__main__":
    main()

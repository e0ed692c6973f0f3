"""The side of Pathway in ``live_pagerank.py``: a program for the Python in which it is installed.

Pushes edges from a file of arrays, with a commit after each batch, and prints a line of JSON with the number of
results and the seconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import numpy as np
import pathway as pw
from pathway.stdlib.graphs.pagerank import pagerank


class Ends(pw.Schema):
    a: int
    b: int


class Source(pw.io.python.ConnectorSubject):  # type: ignore[misc]
    """Edges, a batch in a commit; each waits for the result of the one before, which takes less time."""

    def __init__(self, u: Any, v: Any, batch: int) -> None:
        super().__init__()
        self._u, self._v, self._batch = u.tolist(), v.tolist(), batch
        self.done = threading.Semaphore(0)

    def run(self) -> None:
        for begin in range(0, len(self._u), self._batch):
            end = begin + self._batch
            for a, b in zip(self._u[begin:end], self._v[begin:end], strict=True):
                self.next(a=a, b=b)
            self.commit()
            self.done.acquire()


def main() -> None:
    data = np.load(sys.argv[1])
    seconds: list[float] = []
    source = Source(data["u"], data["v"], int(data["batch"]))
    given = pw.io.python.read(source, schema=Ends, autocommit_duration_ms=None)
    edges = given.select(u=given.pointer_from(given.a), v=given.pointer_from(given.b))
    ranks = pagerank(edges, steps=int(data["steps"]))
    # One row, as a call of Python for each rank that changes takes longer than the ranks.
    total = ranks.reduce(total=pw.reducers.sum(pw.this.rank))

    def end(_: int) -> None:
        seconds.append(time.perf_counter() - begun)
        source.done.release()

    pw.io.subscribe(total, on_change=lambda **_: None, on_time_end=end)
    begun = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print(json.dumps({"results": len(seconds), "seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()

"""Run one METIS call in a separate process: ``python _metis_child.py < request > answer``.

METIS holds the interpreter lock for the whole call (seconds to minutes), prints to standard output, and can
end the process. In a child it can be interrupted, its prints are a log, and a crash is an exit code. The
child loads neither NumPy nor GoFFish, so it is up in about 50 ms.

Request: one line of JSON, then raw arrays. Answer: the cut as eight bytes, then one part number per vertex.
"""

from __future__ import annotations

import io
import json
import os
from array import array
from typing import Any


def _read(source: io.BufferedReader, code: str, count: int) -> array[int] | None:
    if count < 0:
        return None
    values: array[int] = array(code, bytes(count * array(code).itemsize))
    view, at = memoryview(values).cast("B"), 0
    while at < len(view):
        got = source.readinto(view[at:])
        if not got:
            raise SystemExit("incomplete request")
        at += got
    return values


def main() -> None:
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import pymetis

    source = open(0, "rb")  # noqa: SIM115 (open for as long as the process lives)
    request: dict[str, Any] = json.loads(source.readline())
    code = request["code"]
    offsets, targets, vertex_weights, edge_weights = (_read(source, code, count) for count in request["sizes"])
    cut, part = pymetis.part_graph(
        request["parts"],
        pymetis.CSRAdjacency(offsets, targets),
        vweights=vertex_weights,
        eweights=edge_weights,
        tpwgts=request["shares"],
        recursive=request["recursive"],
        options=pymetis.Options(**request["options"]),
    )
    answer.write(array("q", [cut]))
    answer.write(part if isinstance(part, array) else array(code, part))
    answer.close()


if __name__ == "__main__":
    main()

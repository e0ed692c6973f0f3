"""``goffish compile``: compile kernels before they are needed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from goffish.cli.inputs import run_status
from goffish.cli.output import print_json, print_table
from goffish.errors import GoffishError, InputError

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Algorithm
    from goffish.graph import Graph

_VERTICES, _EDGES = 2000, 8000
#: Vertices of graphs on engines.
_FEW = 300
#: Options of what only reproduces a publication.
_PUBLISHED = ("variant", "null_model")


def run_compile(names: list[str], json: bool) -> None:
    """Run each algorithm on small graphs of every kind, then flows and live graphs, and print how long that took."""
    from goffish.algorithms.catalogue import ALGORITHMS
    from goffish.cli.compile_streams import STREAMS

    choices = [*ALGORITHMS, *STREAMS]
    for name in names:
        if name not in choices:
            raise InputError(f"unknown algorithm {name!r}: choose one of {', '.join(choices)}")
    rows = []
    with run_status("compiling") as (_, note):
        begun = time.perf_counter()
        graphs = list(_graphs())
        rows.append({"algorithm": "(reading files)", "seconds": time.perf_counter() - begun})
        for name in names or choices:
            note(name)
            begun = time.perf_counter()
            if name in STREAMS:
                STREAMS[name]()
            else:
                _compile_algorithm(name, graphs)
            rows.append({"algorithm": name, "seconds": time.perf_counter() - begun})
    if json:
        print_json({"rows": rows})
        return
    print_table("compiled", ("algorithm", "seconds"), [(row["algorithm"], f"{row['seconds']:.2f}") for row in rows])


def _compile_algorithm(name: str, graphs: list[Graph]) -> None:
    from goffish.algorithms.catalogue import ALGORITHMS
    from goffish.algorithms.run import run

    for graph in graphs:
        for options, engine in _options(ALGORITHMS[name]):
            part = graph if engine == "auto" else graph.subgraph(list(graph)[:_FEW])
            with suppress(GoffishError):  # graphs that the algorithm does not take
                run(name, part, engine, parts=None if engine == "auto" else 2, **options)


def _graphs() -> Iterator[Graph]:
    """Iterate over graphs with and without directions and weights, and one without cycles."""
    import numpy as np

    from goffish.graph import from_edges
    from goffish.graph.io import read

    rng = np.random.default_rng(1)
    src, dst = np.sort(rng.integers(_VERTICES, size=(2, _EDGES)), axis=0)
    weights = rng.integers(1, 9, _EDGES).astype(np.float64)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.txt"
        np.savetxt(path, np.column_stack([src, dst]), fmt="%d")
        yield read(path)
    for directed in (False, True):
        for weight in (None, weights):
            yield from_edges(src, dst, weight, directed=directed)


def _options(algorithm: type[Algorithm]) -> Iterator[tuple[dict[str, Any], str]]:
    """Iterate over options and engines that lead to other kernels."""
    fields = algorithm.model_fields
    needed = {name: at for at, name in enumerate(("source", "target")) if name in fields and fields[name].is_required()}
    yield needed, "auto"
    if "weighted" in fields and fields["weighted"].default is False:
        yield {**needed, "weighted": True}, "auto"
    if "epsilon" in fields:
        yield {**needed, "epsilon": 0.1}, "auto"
    for name, field in fields.items():
        for choice in get_args(field.annotation) if get_origin(field.annotation) is Literal else ():
            if choice != field.default and name not in _PUBLISHED:
                yield {**needed, name: choice}, "auto"
    if not algorithm.in_memory:
        yield needed, "local"

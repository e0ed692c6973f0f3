"""Programs and jobs that the ranks of `test_mpi` import; nothing heavy, because every rank does so."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from goffish.gopher import SubgraphProgram, per_vertex

COUNTS = ["superstep", "partition", "active", "messages", "combined", "remote", "remote_bytes"]
#: Every algorithm of the catalogue that has a program, with options that need no choice.
JOBS: dict[str, dict[str, Any]] = {
    "components": {}, "bfs": {"source": 5}, "hops": {"source": 5}, "sssp": {"source": 0},
    "pagerank": {"supersteps": 10}, "blockrank": {"tolerance": 1e-4}, "louvain": {"seed": 1},
    "betweenness": {"pivots": 3, "seed": 1}, "triangles": {}, "cores": {}, "max-value": {}, "counts": {},
    "quotient": {}, "clustering": {}, "independent-set": {}, "coloring": {},
    "label-propagation": {}, "eigenvector": {"tolerance": 0.01}, "katz": {}, "hits": {"tolerance": 0.01},
    "spanning-forest": {}, "strong-components": {}, "walks": {"length": 5, "walks": 2},
}  # fmt: skip


class Chatter(SubgraphProgram):
    """Broadcasts, messages to vertices, halting, floating sums: what depends on the order of anything."""

    message = {"value": np.float64, "small": np.int8}
    state = {"heard": per_vertex(np.float64)}
    aggregators = {"total": "sum", "odd": "or", "last": "max"}

    def compute(self, sg: Any, step: Any) -> None:
        own = (sg["heard"].sum() + 1 / (3 + sg.id)) if step.number > 1 else 1 / (1 + sg.id)
        step.aggregate("total", own)
        step.aggregate("odd", step.number % 2 == 1)
        if sg.id % 2:
            step.aggregate("last", np.float32(own))
        for message in step.messages:
            sg["heard"][max(0, int(message["vertex"]))] += message["value"] / 3 + message["small"]
        seen = step.aggregated("total")
        if step.number == 2:
            assert seen is not None
            sg["heard"][:] += seen
        if step.number < 4:
            if sg.remote_vertex.size:
                step.send_to_vertex(sg.remote_subgraph, sg.remote_vertex, value=own, small=sg.id % 5)
            if sg.id % 3 == 0:
                step.send_to_all(value=own / 7, small=1)
        step.vote_to_halt()

    def result(self, sg: Any) -> dict[str, Any]:
        return {"heard": sg["heard"]}


class Silent(SubgraphProgram):
    """Sends nothing and answers with texts; partition 1 answers nothing at all."""

    rows = "free"

    def compute(self, sg: Any, step: Any) -> None:
        step.vote_to_halt()

    def result(self, sg: Any) -> dict[str, Any]:
        return {
            "name": np.array([f"unit {sg.id}"] * (sg.partition != 1)),
            "big": np.full(int(sg.partition != 1), 1 << 40),
        }


class Fails(SubgraphProgram):
    """Fails in one partition in one phase while another rank is busy for a minute."""

    message = {"value": np.float64}
    aggregators = {"sum": "sum"}

    def __init__(self, phase: str) -> None:
        self.phase = phase

    def _fail(self, sg: Any, phase: str) -> None:
        if self.phase == phase and sg.partition == 2:
            raise ValueError("on purpose")
        if self.phase == phase and sg.partition == 0:
            time.sleep(60)

    def init(self, sg: Any) -> None:
        self._fail(sg, "init")

    def compute(self, sg: Any, step: Any) -> None:
        if step.number == 3:
            self._fail(sg, "compute")
            if self.phase == "contribution" and sg.partition == 2:
                step.aggregate("sum", np.ones((2, 2)))
            if self.phase == "address" and sg.partition == 2:
                step.send_to_vertex(0, 400, value=1)
        if step.number == 4:
            step.vote_to_halt()

    def result(self, sg: Any) -> dict[str, Any]:
        self._fail(sg, "result")
        return {"id": sg.vertex_ids}

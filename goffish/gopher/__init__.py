"""Gopher: the subgraph-centric engine."""

from goffish.gopher.engine import RunOptions
from goffish.gopher.program import (
    StateColumn,
    SubgraphProgram,
    per_neighbor,
    per_partition,
    per_remote,
    per_subgraph,
    per_vertex,
)
from goffish.gopher.result import Result
from goffish.gopher.run import run_program
from goffish.gopher.stats import RunStats
from goffish.gopher.superstep import BatchStep, Superstep, Totals
from goffish.gopher.views import Subgraph, SubgraphBatch

__all__ = [
    "BatchStep",
    "Result",
    "RunOptions",
    "RunStats",
    "StateColumn",
    "Subgraph",
    "SubgraphBatch",
    "SubgraphProgram",
    "Superstep",
    "Totals",
    "per_neighbor",
    "per_partition",
    "per_remote",
    "per_subgraph",
    "per_vertex",
    "run_program",
]

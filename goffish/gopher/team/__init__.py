"""The engine of processes that share a job: those of `goffish.gopher.mpi` and of `goffish.gopher.spark`."""

from goffish.gopher.team.team import Team

__all__ = ["Team"]

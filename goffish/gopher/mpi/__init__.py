"""The MPI engine. Nothing here loads mpi4py before an `MpiTeam` is made."""

from goffish.gopher.mpi.team import MpiTeam

__all__ = ["MpiTeam"]

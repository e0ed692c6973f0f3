"""The MPI engine. Nothing here loads mpi4py before a `Team` is made."""

from goffish.gopher.mpi.team import Team

__all__ = ["Team"]

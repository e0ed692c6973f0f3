"""Requirements of an instance of a processing element on its machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from goffish.cloud.catalogue import Name, NotNegative, Positive
from goffish.definitions import Definition

#: Instances of a PE without a limit.
NO_LIMIT = int(np.iinfo(np.int64).max)


class Needs(Definition):
    """Requirements of one instance.

    Attributes
    ----------
    cores : float
        Cores reserved for the instance.
    memory_mb : float
        Memory reserved for the instance.
    state_mb, code_mb : float
        Of the whole PE: state that moves with its instances, and code that is loaded where an instance starts.
    most_instances : int, optional
        Maximum number of instances; default: unlimited.
    hosts : tuple of str
        Names of the machine types that may run it, such as existing hosts; default: any.
    sites : tuple of str
        Names of the sites that may run it, such as the site of a sensor; default: any.
    duration_s : float, optional
        Target for the time that a message spends at the PE, queueing included.
    """

    cores: Positive = 1.0
    memory_mb: NotNegative = 0.0
    state_mb: NotNegative = 0.0
    code_mb: NotNegative = 0.0
    most_instances: Annotated[int, Field(ge=1, strict=True)] | None = None
    hosts: tuple[Name, ...] = ()
    sites: tuple[Name, ...] = ()
    duration_s: Positive | None = None


class NeedColumns(NamedTuple):
    """Requirements of all PEs; arrays of shape (elements,), infinite or `NO_LIMIT` where nothing is set."""

    cores: NDArray[np.float64]
    memory_mb: NDArray[np.float64]
    state_mb: NDArray[np.float64]
    code_mb: NDArray[np.float64]
    most_instances: NDArray[np.int64]
    duration_s: NDArray[np.float64]
    hosts: tuple[tuple[str, ...], ...]
    sites: tuple[tuple[str, ...], ...]

    @property
    def tied(self) -> bool:
        """Whether any PE is restricted to some machines."""
        return any(self.hosts) or any(self.sites)

    def allowed(self, types: Sequence[str], sites: Sequence[str | None]) -> NDArray[np.bool_]:
        """Machines that each PE may use, given their types and sites; shape (elements, machines)."""
        found = np.ones((len(self.hosts), len(types)), np.bool_)
        for row, names, places in zip(found, map(frozenset, self.hosts), map(frozenset, self.sites), strict=True):
            if names:
                row &= [name in names for name in types]
            if places:
                row &= [site in places for site in sites]
        return found


def need_columns(needs: Sequence[Needs]) -> NeedColumns:
    """Convert the requirements of PEs, in their order, to columns."""
    plain = {
        name: np.array([getattr(n, name) for n in needs]) for name in ("cores", "memory_mb", "state_mb", "code_mb")
    }
    return NeedColumns(
        **plain,
        most_instances=np.array([NO_LIMIT if n.most_instances is None else n.most_instances for n in needs], np.int64),
        duration_s=np.array([np.inf if n.duration_s is None else n.duration_s for n in needs]),
        hosts=tuple(n.hosts for n in needs),
        sites=tuple(n.sites for n in needs),
    )

"""Providers of machines behind one protocol: simulated machines, and processes on this computer."""

from goffish.cloud.providers.local import LocalProvider
from goffish.cloud.providers.processes import LocalMachines, Task
from goffish.cloud.providers.protocol import CapacityError, Machine, Offer, Provider, Request
from goffish.cloud.providers.simulated import SimulatedProvider

__all__ = [
    "CapacityError", "LocalMachines", "LocalProvider", "Machine", "Offer", "Provider", "Request", "SimulatedProvider",
    "Task",
]  # fmt: skip

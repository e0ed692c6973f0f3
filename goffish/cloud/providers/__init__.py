"""Providers of machines behind one protocol: simulated machines, and processes on this computer."""

from goffish.cloud.providers.local import LocalProvider
from goffish.cloud.providers.protocol import Provider, State, Task
from goffish.cloud.providers.simulated import SimulatedProvider

__all__ = ["LocalProvider", "Provider", "SimulatedProvider", "State", "Task"]

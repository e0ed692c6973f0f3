"""Those who provide machines, behind one small protocol: simulated ones, and real processes on this computer."""

from goffish.services.cloud.providers.local import LocalProvider
from goffish.services.cloud.providers.protocol import Provider, State, Task
from goffish.services.cloud.providers.simulated import SimulatedProvider

__all__ = ["LocalProvider", "Provider", "SimulatedProvider", "State", "Task"]

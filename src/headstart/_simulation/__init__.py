"""The in-process engine: rounds, clients and evaluation."""

from headstart._keys import Keys
from headstart._simulation.federation import Federation
from headstart._simulation.simulation import Progress, Simulation

__all__ = ["Federation", "Keys", "Progress", "Simulation"]

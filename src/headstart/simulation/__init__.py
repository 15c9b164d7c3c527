"""The in-process engine: rounds, clients, evaluation."""

from headstart.keys import Keys
from headstart.simulation.federation import Federation
from headstart.simulation.simulation import Progress, Simulation

__all__ = ["Federation", "Keys", "Progress", "Simulation"]

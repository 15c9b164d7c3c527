"""The in-process engine: rounds, clients, evaluation."""

from headstart.simulation.federation import Federation, Keys
from headstart.simulation.simulation import Progress, Simulation

__all__ = ["Federation", "Keys", "Progress", "Simulation"]

"""What happens to updates on their way: a chain of steps, or a rule over all replies."""

from headstart.aggregation.chain import Aggregated, aggregated
from headstart.aggregation.interfaces import Rule, Step
from headstart.aggregation.rules import RULES, GeometricMedian, Krum, Median, TrimmedMean
from headstart.aggregation.steps import STEPS, Clip, Noise, Quantise

__all__ = [
    "RULES",
    "STEPS",
    "Aggregated",
    "Clip",
    "GeometricMedian",
    "Krum",
    "Median",
    "Noise",
    "Quantise",
    "Rule",
    "Step",
    "TrimmedMean",
    "aggregated",
]

"""What happens to updates on their way: a chain of steps, or a rule over all replies."""

from headstart.aggregation.chain import AggregatedAlgorithm, with_aggregation
from headstart.aggregation.interfaces import AggregationRule, AggregationStep
from headstart.aggregation.rules import RULES, GeometricMedian, Krum, Median, TrimmedMean
from headstart.aggregation.steps import STEPS, Clip, Noise, Quantise

__all__ = [
    "RULES",
    "STEPS",
    "AggregatedAlgorithm",
    "AggregationRule",
    "AggregationStep",
    "Clip",
    "GeometricMedian",
    "Krum",
    "Median",
    "Noise",
    "Quantise",
    "TrimmedMean",
    "with_aggregation",
]

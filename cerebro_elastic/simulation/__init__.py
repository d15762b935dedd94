"""Runs on a virtual clock.

The decisions, the policy and the search are those of live runs. Only training is replaced, by the seconds
that it takes. ``simulate`` plays a run through; ``redecide`` decides a recorded run again and compares."""

from cerebro_elastic.simulation.faults import Fault, read_faults
from cerebro_elastic.simulation.metrics import MetricSource, RecordedMetrics, SyntheticMetrics
from cerebro_elastic.simulation.redecide import Redecision, redecide
from cerebro_elastic.simulation.simulate import Simulation, simulate
from cerebro_elastic.simulation.times import Times, UnitSizes, measured, read_times

__all__ = [
    "Fault",
    "MetricSource",
    "RecordedMetrics",
    "Redecision",
    "Simulation",
    "SyntheticMetrics",
    "Times",
    "UnitSizes",
    "measured",
    "read_faults",
    "read_times",
    "redecide",
    "simulate",
]

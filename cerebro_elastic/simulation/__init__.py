"""Runs on a virtual clock: the machine, the decisions, the policy and the search are those of live runs; only
training is replaced, by the seconds that it takes."""

from cerebro_elastic.simulation.faults import Fault, read_faults
from cerebro_elastic.simulation.learning import Learning, Recorded, Toy
from cerebro_elastic.simulation.measured import measured
from cerebro_elastic.simulation.redecide import Redecided, divergence, redecide
from cerebro_elastic.simulation.simulate import Simulation, simulate
from cerebro_elastic.simulation.times import Sizes, Times, read_times

__all__ = [
    "Fault",
    "Learning",
    "Recorded",
    "Redecided",
    "Simulation",
    "Sizes",
    "Times",
    "Toy",
    "divergence",
    "measured",
    "read_faults",
    "read_times",
    "redecide",
    "simulate",
]

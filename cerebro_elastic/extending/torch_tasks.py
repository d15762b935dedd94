"""What tasks of torch share: its generators, optimizers' options, and a check that parameters are finite."""

from __future__ import annotations

from cerebro_elastic.training import rng
from cerebro_elastic.training.finite_check import not_finite
from cerebro_elastic.training.optimizer_options import OptimizerOptions, constructor_options, override_options

__all__ = [
    "OptimizerOptions",
    "constructor_options",
    "not_finite",
    "override_options",
    "rng",
]

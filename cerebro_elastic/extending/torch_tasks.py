"""What tasks of torch share: its generators, optimizers' options, and a check that parameters are finite."""

from __future__ import annotations

from cerebro_elastic.training.generators import rng
from cerebro_elastic.training.metrics import not_finite
from cerebro_elastic.training.parallel.optimizer_state import (
    OptimizerOptions,
    constructor_options,
    override_options,
)

__all__ = [
    "OptimizerOptions",
    "constructor_options",
    "not_finite",
    "override_options",
    "rng",
]

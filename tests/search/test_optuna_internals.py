"""The one private name of optuna that we use does what we take it for."""

from __future__ import annotations

from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from cerebro_elastic.search._optuna_internals import is_in

DISTRIBUTIONS: list[tuple[Any, Any, Any]] = [
    (FloatDistribution(0.1, 0.5), 0.1, 0.6),
    (FloatDistribution(0.0, 1.0, step=0.25), 0.75, 0.7),
    (IntDistribution(1, 9, step=2), 7, 8),
    (CategoricalDistribution(["a", "b"]), "b", None),
]


@pytest.mark.parametrize(("distribution", "inside", "outside"), DISTRIBUTIONS)
def test_a_value_lies_inside_or_outside(distribution: Any, inside: Any, outside: Any) -> None:
    assert is_in(distribution, inside)
    assert outside is None or not is_in(distribution, outside)

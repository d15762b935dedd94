"""How much each hyper-parameter matters for the objective, by PED-ANOVA (IJCAI 2023, with branches KDD 2026):
how far the values of the best configs differ from those of all. The cost is linear in the number of configs.

The densities are those of optuna's ``PedAnovaImportanceEvaluator``, whose import takes all of scikit-learn.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_elastic.core.model.best import loss
from cerebro_elastic.core.model.configs import HParams, Status
from cerebro_elastic.errors import RunError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import Domain, flattened
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.system.words import counted

LEAST = 10
"""How many configs must have finished: fewer say nothing."""
_BEST = 5
"""The best tenth is compared with all, and no fewer than this number."""
_STEPS = 50
"""How finely the range of a number is divided."""
_ORDERS = 100.0
"""Positive numbers of a choice whose range spans this factor are compared by their logarithms."""


@dataclass(frozen=True, slots=True)
class Importances:
    """How much each hyper-parameter matters for the objective."""

    run: str
    metric: str
    """The objective's metric."""
    shares: Mapping[str, float]
    """By hyper-parameter, its share of what sets the best configs apart; the most important first. They add
    up to 1."""
    configs: int
    """How many finished configs they rest on."""

    @property
    def text(self) -> str:
        """What they rest on, as a sentence."""
        few = "; of so few configs, take them as a hint" if self.configs < 3 * LEAST else ""
        return f"by PED-ANOVA of {counted(self.configs, 'finished config')}{few}"


def importances(run: str, recipe: Recipe, rows: Iterable[ConfigResult]) -> Importances:
    """How much each hyper-parameter matters for the objective of the ``run`` whose configs have the results
    ``rows``. Raises ``RunError`` if too few configs have finished, or nothing varies."""
    metric, mode = recipe.objective.metric, recipe.objective.mode
    done = [
        (row.hparams, loss(row.best, mode))
        for row in rows
        if row.best is not None and row.status is Status.FINISHED
    ]
    if len(done) < LEAST:
        raise RunError(
            f"importances need {LEAST} finished configs with a value of {metric}, and run {run!r} has "
            f"{len(done)}; stopped ones do not count, since they had less training"
        )
    found = divergences(done, max(_BEST, math.ceil(len(done) / 10)), flattened(recipe.search.space))
    total = sum(found.values())
    if not total:
        raise RunError(
            f"the finished configs of run {run!r} do not differ in any hyper-parameter that matters"
        )
    shares = {name: found[name] / total for name in sorted(found, key=lambda name: (-found[name], name))}
    return Importances(run, metric, shares, len(done))


def divergences(
    points: Sequence[tuple[HParams, float]], best: int, space: Mapping[str, Domain]
) -> dict[str, float]:
    """By hyper-parameter, how far the ``best`` of the points (with their losses; equal ones count, too) lie
    from all of them: Pearson's divergence between two densities."""
    worst = sorted(loss for _, loss in points)[best - 1]
    top = [hparams for hparams, loss in points if loss <= worst]
    found = {}
    for name in sorted({name for hparams, _ in points for name in hparams}):
        having = [hparams[name] for hparams, _ in points if name in hparams]
        of_best = [hparams[name] for hparams in top if name in hparams]
        axis = _axis(having, space.get(name, Domain(choice=(None,))))
        found[name] = 0.0
        if of_best and axis.cells > 1:
            below, above = axis.density(having), axis.density(of_best)
            divergence = sum(b * (a / b - 1) ** 2 for a, b in zip(above, below, strict=True))
            found[name] = divergence * (len(of_best) / len(top)) ** 2 / (len(having) / len(points))
    return found


@dataclass(frozen=True, slots=True)
class _Categories:
    """The values of a hyper-parameter that have no order."""

    names: Mapping[str, int]

    @property
    def cells(self) -> int:
        return len(self.names)

    def density(self, values: Iterable[Any]) -> list[float]:
        """The share of each value, smoothed."""
        counts = Counter(self.names[_text(value)] for value in values)
        kernels, prior = len(counts) + 1, 1 / (counts.total() + 1)
        return [
            ((1 - prior) / kernels + counts[cell] * prior) / (self.cells / kernels + 1) + prior / self.cells
            for cell in range(self.cells)
        ]


@dataclass(frozen=True, slots=True)
class _Range:
    """Numbers between two bounds, in cells of equal width, by their logarithms if ``log``."""

    low: float
    high: float
    log: bool
    cells: int

    def density(self, values: Iterable[float]) -> list[float]:
        """The share of each cell: a normal density around each value, of Scott's width, and a wide one."""
        counts = Counter(map(self._cell, values))
        width = _width(counts)
        kernels: list[tuple[float, float, int]] = [(cell, width, count) for cell, count in counts.items()]
        kernels.append(((self.cells - 1) / 2, self.cells, 1))
        return [
            sum(count * self._share(cell, middle, width) for middle, width, count in kernels)
            / (counts.total() + 1)
            for cell in range(self.cells)
        ]

    def _cell(self, value: float) -> int:
        low, high = self._scaled(self.low), self._scaled(self.high)
        return math.ceil((self._scaled(value) - low) / (high - low) * (self.cells - 1) - 0.5)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else value

    def _share(self, cell: int, middle: float, width: float) -> float:
        return _mass(cell, cell + 1, middle, width) / _mass(0, self.cells, middle, width)


def _axis(values: Sequence[Any], domain: Domain) -> _Categories | _Range:
    """How the ``values`` of a hyper-parameter are compared: numbers are numbers, also those of a choice."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values)
    if not numbers or len(set(values)) < 2:
        return _Categories({text: cell for cell, text in enumerate(sorted(set(map(_text, values))))})
    low, high = min(values), max(values)
    spans = domain.choice is not None and low > 0 and high >= _ORDERS * low
    cells = min(high - low + 1, _STEPS) if domain.integers is not None else _STEPS
    return _Range(low, high, spans or domain.loguniform is not None, cells)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _width(counts: Counter[int]) -> float:
    """Scott's rule for cells with these counts; at least so wide that 90 % lie in one cell."""
    cells, total = sorted(counts.elements()), counts.total()
    mean = sum(cells) / total
    deviation = math.sqrt(sum((cell - mean) ** 2 for cell in cells) / max(1, total - 1))
    quartiles = cells[min(total * 3 // 4, total - 1)] - cells[max(total // 4 - 1, 0)]
    return max(1.059 * min(quartiles / 1.34, deviation) * float(total**-0.2), 0.5 / 1.64)


def _mass(low: float, high: float, middle: float, width: float) -> float:
    """What of a normal density lies between the lower bounds of two cells; a cell's middle is its number."""
    left, right = ((bound - 0.5 - middle) / width / math.sqrt(2) for bound in (low, high))
    if left > 0:
        return (math.erfc(left) - math.erfc(right)) / 2
    if right < 0:
        return (math.erfc(-right) - math.erfc(-left)) / 2
    return (math.erf(right) - math.erf(left)) / 2

"""Racing: a config is dropped while it is validated, once its present model is shown to be worse than another
config's at the same epoch.

All configs are validated on the same rows in the same order. For configs a and b at an epoch, let D_i be the
loss of a's model on row i less that of b's, as a share of the range of losses: -1 <= D_i <= 1. The rows are
independent draws of a distribution, and neither model has seen them. To show that a's mean loss is larger, we
bet against the hypothesis E[D_i] <= 0. A bettor who stakes the share s of the wealth on each row has

    K_t(s) = (1 + s D_1) (1 + s D_2) ... (1 + s D_t),    0 <= s <= 1/2,

the capital process of Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting",
JRSS B 86 (2024), section 4. Under the hypothesis it is a nonnegative supermartingale that begins with 1, and
so is the mean K_t of K_t(s) over fixed stakes (``STAKES``). By Ville's inequality P(some K_t >= 1/alpha) <=
alpha: a may be dropped at any t at which K_t >= 1/alpha, however often one looks.

With alpha = delta / (e (e + 1)) / (n (n - 1)) for the epochs e = 1, 2, ... that are judged and the n (n - 1)
ordered pairs of n configs, the probabilities of all wrong drops of a run sum to at most delta, whatever its
length.

- Means over blocks of rows take the place of rows: their means and bounds are the same.
- A recorded loss differs from the true one by at most half a step of the record. The difference of two is
  taken a whole step too small, which keeps K_t a supermartingale.
- The models must not depend on the rows. Training never sees them (``validation: evaluate``), and points come
  from a grid or by chance. Which configs are left depends on them, and may: the bound is over all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import Decision, SearchContext, Stop
from cerebro_elastic.core.model.row_losses import TOP, unpacked
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import UNIT_RANGE, RaceSearch
from cerebro_elastic.search.procedure import Procedure, at_rest
from cerebro_elastic.search.sampling import GridSampler, RandomSampler
from cerebro_elastic.system.words import counted

STAKES: NDArray[np.float64] = np.array([0.5**k for k in range(1, 11)])
"""Shares of the wealth that are staked: the more, the sooner large differences show, small ones the less."""
Losses: TypeAlias = tuple[str, ...]
"""The recorded losses of rows, by validation partition."""


class Race(Procedure):
    """All points of a grid, or ``num`` of them by chance. After each validated partition a config is dropped
    if its present model is shown to be worse than another's at the same epoch."""

    def __init__(self, recipe: Recipe) -> None:
        section = recipe.search
        assert isinstance(section, RaceSearch)
        for path, problem in _unfit(recipe, section):
            raise RecipeError(f"{recipe.source.where(path)}: {problem}")
        sampler = GridSampler(recipe) if section.num is None else RandomSampler(recipe)
        super().__init__(recipe, sampler, eager=True)
        self._configs = sampler.count(section.num or recipe.limits.configs)
        wanted = max(2, section.num or 2)
        if self._configs < wanted:
            raise RecipeError(
                f"{recipe.source.where(('search', 'space'))}: a race of {counted(wanted, 'config')} needs as "
                f"many points, and the space has {self._configs}: give further values"
            )
        self._delta = section.delta
        self._warmup = section.behind + section.n_warmup_steps

    def judge(self, context: SearchContext) -> Sequence[Decision]:
        """One config to stop at a time: so the last one is never stopped."""
        racing = [view for view in context.proposed if view.status in (Status.LIVE, Status.FINISHED)]
        for view in racing:
            epoch = view.measured
            if view.status is not Status.LIVE or epoch is None or epoch < self._warmup or not at_rest(view):
                continue
            for other in racing:
                own, theirs = in_pairs(view.row_losses.get(epoch, ()), other.row_losses.get(epoch, ()))
                if other is not view and log_wealth(own, theirs) >= self.needed(epoch):
                    return [Stop(view.config, self._reason(other.config, epoch, own, theirs))]
        return ()

    def needed(self, epoch: int) -> float:
        """The logarithm of the wealth that drops a config at an epoch, from 0."""
        pairs, number = self._configs * (self._configs - 1), epoch - self._warmup + 1
        return math.log(number * (number + 1) * pairs / self._delta)

    def _reason(self, other: str, epoch: int, own: Losses, theirs: Losses) -> str:
        return (
            f"its model after {counted(epoch + 1, 'epoch')} is worse than {other}'s: {self.criterion.metric} "
            f"{self._mean(own)} against {self._mean(theirs)} on {counted(len(own), 'validation partition')}"
        )

    def _mean(self, losses: Losses) -> str:
        """The metric's mean, of values within the bounds."""
        section = self.recipe.search
        assert isinstance(section, RaceSearch)
        low, high = section.range_of(self.criterion.metric)
        share = float(np.mean([np.mean(unpacked(text)) for text in losses])) / TOP
        return f"{low + (1 - share if self.criterion.mode == 'max' else share) * (high - low):.4g}"


def _unfit(recipe: Recipe, section: RaceSearch) -> Iterator[tuple[tuple[str, ...], str]]:
    """What of the recipe a race cannot keep its promise with, by its place."""
    metric = recipe.objective.metric
    if recipe.validation != "evaluate":
        yield (
            ("validation",),
            "a race validates in units of their own: leave `validation` out",
        )
    if not metric.startswith("val_"):
        yield (
            ("objective", "metric"),
            f"a race compares configs by losses on validation rows, and the objective is {metric}: name a "
            "metric of validation, such as val_loss",
        )
    if section.bounds is None and metric not in UNIT_RANGE:
        yield (
            ("search", "method"),
            f"a race needs `bounds`, the range of {metric} for a row, since its guarantee is about bounded "
            "losses; give one, such as [0, 1] for an accuracy: a value outside counts as the bound",
        )
    if recipe.data.valid == 0:
        yield (
            ("data", "valid"),
            "a race compares validation rows, and valid is 0: hold some out, 20% say",
        )
    if recipe.data.split_by is not None:
        yield (
            ("data", "split_by"),
            "rows of a group depend on each other, and the guarantee of a race is about independent rows: "
            "leave `split_by` out, or take another method",
        )


def in_pairs(own: Losses, theirs: Losses) -> tuple[Losses, Losses]:
    """Those of the first partitions that both have."""
    count = min(len(own), len(theirs))
    return own[:count], theirs[:count]


@lru_cache(maxsize=2**16)
def log_wealth(own: Losses, theirs: Losses) -> float:
    """The logarithm of K_t after all rows, in the bet that ``own`` losses are larger than ``theirs``."""
    logs = sum(map(_log_wealths, own, theirs), np.zeros(len(STAKES)))
    return float(np.logaddexp.reduce(logs)) - math.log(len(STAKES))


@lru_cache(maxsize=2**16)
def _log_wealths(own: str, theirs: str) -> NDArray[np.float64]:
    """By stake: the logarithm of K_t(s) over one partition."""
    mine, others = (np.array(unpacked(losses), dtype=np.float64) for losses in (own, theirs))
    if len(mine) != len(others):
        return np.full(len(STAKES), -np.inf)  # a record that was damaged shows nothing
    differences = np.maximum(mine - others - 1, -TOP) / TOP
    logs: NDArray[np.float64] = np.log1p(STAKES[:, None] * differences).sum(axis=1)
    return logs

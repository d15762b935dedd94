"""Successive halving as a scheduler sees it: which configs go on is known only when it is decided.

Rungs are numbers of epochs. A config that has come to a rung rests there until it is decided that it goes
on to the next. No config waits for a rung as a whole, unless the rule does (Li et al. 2020, A system for
massively parallel hyperparameter tuning, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cerebro_elastic.errors import ScheduleError
from cerebro_elastic.scheduling.openshop.checks import MOST_UNITS, floats, one_of, whole
from cerebro_elastic.scheduling.openshop.instances import Instance

RULES = ("each", "asynchronous", "synchronous")
"""The rules by which configs go on (see ``Rungs.rule``)."""


@dataclass(frozen=True, slots=True)
class Rungs:
    """Of the configs that come to a rung, the best ``1 / reduction_factor`` go on to the next one."""

    rungs: Sequence[int]
    """Numbers of epochs in all, rising; the first is the instance's ``epochs``."""
    losses: ArrayLike
    """``[C]`` or ``[C, rungs]``: the losses that are seen when a config arrives; less is better."""
    reduction_factor: int = 2
    """One in this many configs goes on."""
    rule: str = "each"
    """When it is decided that a config goes on.

    - ``each``: when it arrives, by its own loss, as if those of the others were known;
    - ``asynchronous``: once it is among the best of those that have arrived so far (ASHA);
    - ``synchronous``: as soon as no config that is still to come can displace it.
    """


class Ladder:
    """How far each config has come. Raises ``ScheduleError`` for ``Rungs`` that cannot be."""

    def __init__(self, halving: Rungs, problem: Instance) -> None:
        if not isinstance(halving, Rungs):
            raise ScheduleError(f"disturbances.halving is {halving!r}; it must be Rungs(rungs, losses)")
        self._rungs = _rungs(halving, problem)
        self._losses = _losses(halving, problem)
        one_of(halving.rule, RULES, "rule")
        self._factor = whole(halving.reduction_factor, "reduction_factor", 2, MOST_UNITS)
        self._rule = halving.rule
        self._place = [0] * problem.configs
        self._arrived: list[list[int]] = [[] for _ in self._rungs]
        self._survivors = [list(range(problem.configs))]
        for rung in range(len(self._rungs) - 1):
            members = self._survivors[-1]
            self._survivors.append(self._best(members, rung)[: len(members) // self._factor])

    def arrive(self, config: int) -> list[tuple[int, int]]:
        """The config has come to its rung: which configs go on now, each by how many epochs."""
        rung = self._place[config]
        self._arrived[rung].append(config)
        if rung + 1 == len(self._rungs):
            return []
        chosen = [i for i in self._chosen(rung, config) if self._place[i] == rung]
        for i in chosen:
            self._place[i] = rung + 1
        return [(i, self._rungs[rung + 1] - self._rungs[rung]) for i in chosen]

    def _chosen(self, rung: int, config: int) -> Sequence[int]:
        """The configs that are known to go on from the rung; some may have gone on before."""
        arrived = self._best(self._arrived[rung], rung)
        if self._rule == "asynchronous":
            return arrived[: len(arrived) // self._factor]
        survivors = self._survivors[rung + 1]
        if self._rule == "each":
            return [config] if config in survivors else []
        missing = len(self._survivors[rung]) - len(arrived)
        return arrived[: max(len(survivors) - missing, 0)]

    def _best(self, configs: Sequence[int], rung: int) -> list[int]:
        return sorted(configs, key=lambda i: (self._losses[i, rung], i))


def _rungs(halving: Rungs, problem: Instance) -> list[int]:
    given, most = floats(halving.rungs, "rungs"), MOST_UNITS // (problem.configs * problem.partitions)
    whole_numbers = given.ndim == 1 and given.size > 0 and ((given >= 1) & (given == np.round(given))).all()
    if not whole_numbers or (np.diff(given) <= 0).any():
        raise ScheduleError(
            f"rungs is {given.tolist()}; it must be whole numbers of at least 1, each above the last"
        )
    if given[-1] > most:
        raise ScheduleError(
            f"rungs is {given.tolist()}; {most} epochs of all configs are {MOST_UNITS} units: give fewer"
        )
    rungs = [int(rung) for rung in given]
    if (problem.epochs != rungs[0]).any():
        raise ScheduleError(
            f"epochs is {problem.epochs.tolist()}, but the first rung is at {rungs[0]}: give the instance "
            f"epochs={rungs[0]}, what every config gets for certain"
        )
    return rungs


def _losses(halving: Rungs, problem: Instance) -> NDArray[np.float64]:
    losses = floats(halving.losses, "losses")
    shape = (problem.configs, len(halving.rungs))
    if losses.shape not in (shape, shape[:1]) or np.isnan(losses).any():
        raise ScheduleError(
            f"losses has the shape {losses.shape}; it must be {shape[:1]} or {shape}, without NaN (a config "
            "that failed has an infinite loss)"
        )
    return np.broadcast_to(losses if losses.ndim == 2 else losses[:, None], shape)

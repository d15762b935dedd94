"""The metrics of configs in a simulation: made-up curves, or those of a recorded run."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import advance, units_done
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.configs import Config, HParams
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase


class Logged(NamedTuple):
    """The metrics of a visit."""

    metrics: Mapping[str, float]
    done: bool = False
    """Whether the task ends the config's training with this visit."""


class MetricSource(Protocol):
    def after(self, config: Config, units: int) -> Logged:
        """The rows logged by a config after ``units`` whole training units, those of its ancestors
        included."""


@dataclass(frozen=True, slots=True)
class SyntheticMetrics:
    """Curves that fall (for a maximised metric: rise) towards a pseudo-random level by the hyper-parameters,
    so that a search has a choice. Folds and seeds change it by up to a tenth."""

    metrics: Mapping[str, str]
    """The mode of each metric by name: "min" or "max"."""
    units: int
    """The number of a config's training units in all."""
    seed: int = 0
    """Another seed gives other levels."""

    def after(self, config: Config, units: int) -> Logged:
        level = random.Random(f"{self.seed} {_key(config.hparams)}").uniform(0.05, 0.6)
        if config.member_of:
            level *= random.Random(f"{self.seed} {_key_of(config)}").uniform(0.9, 1.1)
        loss = level + (1 - level) * math.exp(-5 * units / self.units)
        return Logged({name: loss if mode == "min" else 1 - loss for name, mode in self.metrics.items()})


class RecordedMetrics:
    """The metrics of configs of a recorded run with the same hyper-parameters. Others get those of
    ``fallback``."""

    def __init__(self, events: Sequence[Event], plan: Plan, fallback: MetricSource) -> None:
        self._fallback = fallback
        self._logged: dict[str, dict[int, Logged]] = {}
        view = RunView(events)
        configs = {config.id: born(config) for config in view.state.configs.values()}
        for visit in view.log:
            config = configs[visit.unit.config]
            after = configs[config.id] = advance(config, visit, plan)
            if visit.unit.phase is Phase.TRAIN and visit.whole:
                curve = self._logged.setdefault(_key_of(config), {})
                curve[units_done(after, plan)] = Logged(visit.metrics, visit.done)

    def after(self, config: Config, units: int) -> Logged:
        recorded = self._logged.get(_key_of(config), {}).get(units)
        return recorded or self._fallback.after(config, units)


def _key_of(config: Config) -> str:
    member = f"{config.fold} {config.repeat}" if config.member_of else ""
    return member + _key(config.hparams)


class ContinuedCurves:
    """The metrics of the configs of a live run from now on: each repeats its last logged values.

    A config that has logged nothing yet gets the values of another one, drawn by its hyper-parameters; if no
    config has logged anything, those of ``fallback``.
    """

    def __init__(self, state: State, fallback: MetricSource) -> None:
        self._fallback = fallback
        self._curves = {
            name: ends for name, curve in sorted(state.curves.items()) if (ends := epoch_ends(curve))
        }

    def after(self, config: Config, units: int) -> Logged:
        if not self._curves:
            return self._fallback.after(config, units)
        own = self._curves.get(config.id)
        curve = own or random.Random(_key(config.hparams)).choice(list(self._curves.values()))
        known = [point for point in curve if point.units <= units] or curve[:1]
        return Logged(known[-1].metrics)


def _key(hparams: HParams) -> str:
    return json.dumps(dict(hparams), sort_keys=True)

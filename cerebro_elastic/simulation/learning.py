"""What configs log in a simulation: a toy, or what was recorded."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import advance, units_done
from cerebro_elastic.core.model.configs import Config, HParams
from cerebro_elastic.core.model.events import ConfigCreated, Event, StateRead
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.simulation.measured import visits_of


class Logged(NamedTuple):
    """What a visit logs, and whether the task ends the config's training with it."""

    metrics: Mapping[str, float]
    done: bool = False


class Learning(Protocol):
    """What a config logs after ``units`` whole training units of its and its ancestors'."""

    def after(self, config: Config, units: int) -> Logged: ...


@dataclass(frozen=True, slots=True)
class Toy:
    """Curves that fall (for a metric that is to be large: rise) towards a level that the hyper-parameters
    decide by chance, so that a search has something to choose. ``metrics`` have their modes, "min" or "max";
    a config has so many ``units`` in all."""

    metrics: Mapping[str, str]
    units: int
    seed: int = 0

    def after(self, config: Config, units: int) -> Logged:
        level = random.Random(f"{self.seed} {_key(config.hparams)}").uniform(0.05, 0.6)
        loss = level + (1 - level) * math.exp(-5 * units / self.units)
        return Logged({name: loss if mode == "min" else 1 - loss for name, mode in self.metrics.items()})


class Recorded:
    """What configs of the same hyper-parameters logged in a recorded run; ``others`` is for the rest."""

    def __init__(self, events: Sequence[Event], plan: Plan, others: Learning) -> None:
        self._others = others
        self._logged: dict[str, dict[int, Logged]] = {}
        at = {config.id: born(config) for config in _configs(events)}
        for visit in visits_of(events):
            config = at[visit.unit.config]
            after = at[config.id] = advance(config, visit, plan)
            if visit.unit.phase is Phase.TRAIN and visit.whole:
                curve = self._logged.setdefault(_key(config.hparams), {})
                curve[units_done(after, plan)] = Logged(visit.metrics, visit.done)

    def after(self, config: Config, units: int) -> Logged:
        found = self._logged.get(_key(config.hparams), {}).get(units)
        return found or self._others.after(config, units)


def _configs(events: Sequence[Event]) -> Collection[Config]:
    found: dict[str, Config] = {}
    for event in events:
        match event:
            case StateRead(state=state):
                found |= state.configs
            case ConfigCreated(config=config):
                found[config.id] = config
    return found.values()


def _key(hparams: HParams) -> str:
    return json.dumps(dict(hparams), sort_keys=True)

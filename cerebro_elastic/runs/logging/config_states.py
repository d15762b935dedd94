"""The state of each config as loggers see it, from the events of a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cerebro_elastic.core.history.lineage import with_status
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    RunEnded,
    RunExtended,
    RunOpened,
    StateRead,
    UnitCommitted,
)
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.reporting.logged import ConfigEnd, EndStatus


class ConfigStates:
    """The configs of a run after the events that were read.

    It reads a record without checking it: the run's own fold does that, and takes longer."""

    def __init__(self) -> None:
        self.configs: dict[str, Config] = {}
        self.ended = False
        self._plan: Plan | None = None
        self._last: dict[str, float] = {}

    def read(self, event: Event) -> list[Visit]:
        """Take the next event. Returns the visits to log: that of the event, or all up to a state that was
        read."""
        match event:
            case RunOpened(plan=plan):
                self._plan = plan
            case RunEnded():
                self.ended = True
            case RunExtended(extension=extension) if self._plan is not None:
                self.ended, self._plan = False, replace(self._plan, epochs=extension.epochs)
            case ConfigCreated(config=config):
                self.configs[config.id] = replace(config, revision=event.revision)
            case ConfigEnded(config=name) | ConfigResumed(config=name):
                config = with_status(self.configs[name], event)
                self.configs[name] = replace(config, revision=event.revision)
            case UnitCommitted(visit=visit):
                self._commit(visit, event.revision)
                return [visit]
            case StateRead(state=state, visits=visits):
                self.configs, self._plan = dict(state.configs), state.plan
                self.ended = state.outcome is not None
                self._last = {visit.unit.config: visit.ended for visit in visits}
                return list(visits)
        return []

    def ends(self) -> Iterator[ConfigEnd]:
        """The configs that get no more units."""
        for config in self.configs.values():
            if config.status is not Status.LIVE:
                yield ConfigEnd(
                    config.id,
                    config.hparams,
                    _status(config),
                    config.reason,
                    self._last.get(config.id),
                    config.revision,
                    parent_of(config),
                    config.head.url if config.head is not None else "",
                )

    def _commit(self, visit: Visit, revision: int) -> None:
        config = self.configs[visit.unit.config]
        if self._plan is not None:
            config = replace(advance(config, visit, self._plan), revision=revision)
        self.configs[config.id] = config
        self._last[config.id] = visit.ended


def parent_of(config: Config) -> str:
    """The id of the config from which it continues; "" if it began at the beginning, or outside the run."""
    return config.parent.config if config.parent is not None else ""


def _status(config: Config) -> EndStatus:
    match config.status:
        case Status.FAILED:
            return "failed"
        case Status.STOPPED:
            return "stopped" if config.by_hand else "pruned"
        case _:
            return "finished"
